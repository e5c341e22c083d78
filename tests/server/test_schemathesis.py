"""The API keeps its OpenAPI document: schemathesis sends what fits it and what does not, and judges the answers."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest

from saga_engine import Coordinator
from saga_engine.server.settings import ServerSettings
from tests.server.harness import ASK, BOOK, TOOLS, WAIT, Planner, serving

HERE = Path(__file__).parent
SHORT = ("--phases", "fuzzing", "--max-examples", "3", "--no-shrink")
LONG = ("--max-examples", "25")
#: No stream opens, because schemathesis would read it to its end; streams are tested elsewhere. Nothing waits.
SETTINGS = ServerSettings(port=0, requests_per_s=1e6, burst=1_000_000, max_wait_s=0, max_streams=0)


@pytest.mark.parametrize("form", [SHORT, pytest.param(LONG, marks=[pytest.mark.slow, pytest.mark.timeout(1200)])])
async def test_schemathesis_finds_nothing(form: tuple[str, ...], tmp_path: Path) -> None:
    """All its default checks hold for every operation, on a real store with sagas, a template and a schedule."""
    async with Coordinator.open(
        f"embedded://{tmp_path}/store", TOOLS, durability="relaxed", planner=Planner()
    ) as coordinator:
        working = asyncio.create_task(coordinator.work())
        try:
            for saga_id, plan in (("done", BOOK), ("asks", ASK), ("waits", WAIT)):
                await coordinator.submit(plan, saga_id=saga_id, detach=True)
            await coordinator.templates.put("trip", BOOK)
            await coordinator.schedules.put("weekly", template="trip", cron="0 9 * * MON")
            async with serving(coordinator, SETTINGS) as server:
                api = await server.api()
                status, said = await judged(server.url, api.headers["authorization"], form, tmp_path)
        finally:
            working.cancel()
            await asyncio.wait([working])
    assert status == 0, said


async def judged(url: str, authorization: str, form: tuple[str, ...], folder: Path) -> tuple[int, str]:
    """Its exit code, and what it says."""
    command = [sys.executable, "-m", "schemathesis.cli", "--config-file", str(HERE / "schemathesis.toml"), "run"]
    command += [f"{url}/v1/openapi.json", "--header", f"Authorization: {authorization}", "--no-color"]
    command += ["--seed", "17", "--continue-on-failure", "--generation-database", "none", *form]
    command += ["--suppress-health-check", "all", "--request-timeout", "120"]  # a busy machine is no finding
    hooks = {"SCHEMATHESIS_HOOKS": "tests.server.schemathesis_checks", "PYTHONPATH": str(HERE.parent.parent)}
    running = await asyncio.create_subprocess_exec(
        *command,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env={**os.environ, **hooks},
        cwd=folder,
    )
    try:
        said, _ = await running.communicate()
    finally:
        if running.returncode is None:
            running.kill()
            await running.wait()
    return running.returncode or 0, said.decode()
