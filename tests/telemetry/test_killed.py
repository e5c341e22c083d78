"""Workers are killed in the middle of calls and others take over; a real receiver decodes what they all export."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from saga_engine import Coordinator
from saga_engine.telemetry import Spans, tracing
from tests.support.servers import until
from tests.telemetry.killed_tools import TOOLS
from tests.telemetry.receiver import Receiver, receiving

ROOT = Path(__file__).parents[2]
Started = list[subprocess.Popen[bytes]]


@pytest.fixture
def started() -> Iterator[Started]:
    processes: Started = []
    yield processes
    for process in processes:
        if process.poll() is None:
            process.kill()
        process.wait(120)


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as receiver:
        yield receiver


def worker(folder: Path, otlp: str, started: Started) -> subprocess.Popen[bytes]:
    env = {name: value for name, value in os.environ.items() if not name.startswith(("SAGA_", "OTEL_"))}
    env |= {"PYTHONPATH": str(ROOT), "SAGA_OTLP": otlp}
    line = [sys.executable, "-m", "saga_engine", "worker", "--tools", f"{ROOT}/tests/telemetry/killed_tools.py:TOOLS"]
    log = (folder / f"worker-{len(started)}.log").open("wb")
    with log:
        process = subprocess.Popen(line, cwd=folder, env=env, stdout=log, stderr=log)
    started.append(process)
    return process


async def kill(folder: Path, process: subprocess.Popen[bytes], item: str) -> None:
    """Kill the worker in the call that it has begun; the next attempt of the call does not stay."""
    begun = await asyncio.to_thread((folder / "begun").read_text)
    assert begun == item, (folder / "worker-0.log").read_text()
    (folder / f"stay-{item}").unlink()
    process.send_signal(signal.SIGKILL)
    assert process.wait(120) == -signal.SIGKILL


async def eventually(condition: Any, what: str) -> None:
    await asyncio.to_thread(until, condition, what)


async def test_each_attempt_once_whoever_is_killed(tmp_path: Path, receiver: Receiver, started: Started) -> None:
    """The first worker dies with exported spans, the second with spans that nobody got; the third ends the saga.

    Every intent of the journal has one span, with its begin; no span comes twice, and none lacks its parent.
    """
    (tmp_path / "saga.toml").write_text("[saga]\nlease_s = 120\n")
    os.mkfifo(tmp_path / "begun")
    os.mkfifo(tmp_path / "never")
    for item in "bc":
        (tmp_path / f"stay-{item}").touch()
    steps = [{"step_id": at, "tool": "book", "params": {"item": at}} for at in "abc"]
    plan = {"steps": [*steps, {"step_id": "d", "tool": "full", "params": {"item": "d"}}], "name": "trip"}
    async with Coordinator.open(f"embedded://{tmp_path}/.saga", TOOLS, lease_s=120) as coordinator:
        await coordinator.submit(plan, saga_id="s", detach=True)
        first = worker(tmp_path, f"{receiver.url}?delay_s=0&grace_s=0", started)
        await eventually(lambda: len(receiver.spans) == 2, "the first spans")
        await marked(coordinator, 4)  # the outcome of a is record 3
        await kill(tmp_path, first, "b")
        await kill(tmp_path, worker(tmp_path, f"{receiver.url}?delay_s=3600&grace_s=3600", started), "c")
        assert len(receiver.spans) == 2
        worker(tmp_path, f"{receiver.url}?delay_s=0&grace_s=0", started)
        end = await ended(coordinator)
        history = await coordinator.history("s")
    assert end == "COMPENSATED"
    intents = [record for record in history if record["k"] == "StepIntended"]
    await eventually(lambda: len(receiver.spans) >= len(intents) + 2, "the last spans")
    started[-1].send_signal(signal.SIGTERM)
    assert started[-1].wait(120) == 0
    found = receiver.spans
    attempts = [span for span in found if span.name.startswith("execute_tool")]
    told = Counter(
        (span.attributes["saga.step"], span.attributes["saga.direction"], span.begun_ms) for span in attempts
    )
    assert told == Counter((record["step"], record.get("direction", "forward"), record["at"]) for record in intents)
    assert Counter(span.attributes["saga.outcome"] for span in attempts)["in_doubt"] == 2
    ids = Counter(span.span_id for span in found)
    assert max(ids.values()) == 1
    (root,) = (span for span in found if not span.parent)
    assert {span.parent for span in found if span is not root} == {root.span_id}
    assert {(span.trace_id, span.service) for span in found} == {(root.trace_id, "saga-engine")}
    assert sorted(span.name for span in found if span not in attempts) == ["invoke_workflow trip", "saga trip"]


async def marked(coordinator: Coordinator, to: int) -> None:
    """It is durable that the spans of so many records were exported."""
    marks = coordinator.store.guard_store()
    while int((await marks.tally("spans", "s")).get("1", "0")) < to:  # noqa: ASYNC110 - another process does it
        await asyncio.sleep(0.01)


async def ended(coordinator: Coordinator) -> str:
    while not (shown := await coordinator.show("s")).ended:  # noqa: ASYNC110 - as above
        await asyncio.sleep(0.02)
    return shown.status


async def test_a_receiver_that_is_away_costs_no_saga_anything(receiver: Receiver) -> None:
    """It refuses, and the sagas go on and end; when it is back it gets every span, in order."""
    receiver.works, receiver.status = (
        False,
        403,
    )  # at 503 the exporter itself would try again, and hide who keeps the spans
    spans = Spans(receiver.url, delay_s=0)
    async with Coordinator.open("memory://", TOOLS, spans=spans) as coordinator:
        ran = await coordinator.run({"steps": [{"step_id": 1, "tool": "book", "params": {"item": "a"}}]})
        assert (ran.completed, receiver.spans) == (True, [])
        await eventually(lambda: receiver.refused > 0, "a refusal")
        receiver.works = True
        await eventually(lambda: len(receiver.spans) == 3, "the spans after the outage")
    spans.close()
    assert [span.name for span in receiver.spans] == ["saga", "execute_tool book", "invoke_workflow"]


async def test_a_receiver_that_hangs_costs_no_saga_anything(monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes the connection and never answers: the sagas end, and so does the coordinator."""
    monkeypatch.setattr(tracing, "CLOSE_S", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        spans = Spans(f"http://127.0.0.1:{silent.getsockname()[1]}", delay_s=0)
        async with Coordinator.open("memory://", TOOLS, spans=spans) as coordinator:
            ran = await coordinator.run({"steps": [{"step_id": 1, "tool": "book", "params": {"item": "a"}}]})
        spans.close(0)
        assert ran.completed
        assert spans.outbox.dropped == 3
