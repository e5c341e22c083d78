"""A real Prometheus scrapes a worker and a server, and its own tool accepts what it gets."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2

from saga_engine import Coordinator
from saga_engine.server.tokens import Tokens
from tests.server.harness import BOOK, TOOLS
from tests.support.servers import until
from tests.telemetry.prometheus_server import Prometheus, promtool

ROOT = Path(__file__).parents[2]


@contextmanager
def command(folder: Path, *args: str) -> Iterator[str]:
    """`saga ...` as a process of its own, until the end of the block; gives the URL that it prints."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("SAGA_")}
    env |= {"PYTHONPATH": str(ROOT)}
    line = [sys.executable, "-m", "saga_engine", *args, "--tools", f"{ROOT}/tests/server/harness.py:TOOLS"]
    with subprocess.Popen(
        line, cwd=folder, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as ran:
        assert ran.stdout is not None
        try:
            yield next(text[text.index("http://") :].strip() for text in ran.stdout if "http://" in text)
        finally:
            ran.send_signal(signal.SIGTERM)
            ran.stdout.read()


async def test_prometheus_scrapes_a_worker_and_a_server(tmp_path: Path) -> None:
    """Its queries give the worker's counters and the store's gauges; `promtool check metrics` has no complaint."""
    (tmp_path / "saga.toml").write_text("[saga]\nlease_s = 120\n")
    async with Coordinator.open(f"embedded://{tmp_path}/.saga", TOOLS) as coordinator:
        _, token = await Tokens(coordinator.store.documents()).create("Ada", ["read"])
        for name in ("a", "b"):
            await coordinator.submit(BOOK, saga_id=name, detach=True)
        await asyncio.to_thread(_scraped, tmp_path, token)


def _scraped(folder: Path, token: str) -> None:
    with (
        command(folder, "worker", "--metrics", "127.0.0.1:0") as worker,
        command(folder, "serve", "--port", "0") as server,
    ):
        prometheus = Prometheus(folder, {"worker": (worker, ""), "server": (f"{server}/metrics", token)})
        try:
            for expression, value in {
                'sum(saga_ended_total{job="worker", status="completed"})': 2,
                'sum(saga_call_outcomes_total{job="worker", outcome="succeeded"})': 2,
                'saga_queue_length{job="server"}': 0,
                'saga_workers{job="server"}': 1,
                'min(up{job=~"worker|server"})': 1,
            }.items():
                until(lambda ask=expression, wanted=value: prometheus.value(ask) == wanted, expression)
        finally:
            prometheus.close()
        with httpx2.Client(timeout=120, trust_env=False) as client:
            for url, headers in ((worker, {}), (f"{server}/metrics", {"authorization": f"Bearer {token}"})):
                text = client.get(url, headers=headers).text
                assert "saga_" in text
                assert promtool("check", "metrics", given=text) == ""
