"""Sagas that sleep or wait are rows of the store: they cost a worker no task, no call and no memory."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from saga_engine import Coordinator, tool
from saga_engine.runtime.audit import Audit
from saga_engine.runtime.worker import Worker
from saga_engine.stores.client import Calls

ROOT = Path(__file__).parents[2]
SAGAS = 200
CALLED: list[int] = []
#: What is done for one saga.
FOR_A_SAGA = {"acquire", "append", "post", "read", "release", "heads"}


@tool(undo="forget")
async def note(number: int) -> dict[str, int]:
    """Notes."""
    CALLED.append(number)
    return {"number": number}


@tool
async def forget(number: int) -> dict[str, int]:
    """Undoes nothing."""
    return {"number": number}


def plan(first: dict[str, Any], number: int) -> dict[str, Any]:
    then = {"step_id": 2, "tool": "note", "params": {"number": number}, "depends_on": [1]}
    return {"steps": [{"step_id": 1, **first}, then]}


async def test_sleeping_and_waiting_sagas_cost_no_task_and_no_call(tmp_path, monkeypatch) -> None:
    """While a worker looks and polls beside hundreds, it does nothing for one of them; each wakes by its own cause."""
    CALLED.clear()
    called: list[str] = []
    asked, looked, rounds = [], [], []
    run, ask, look, tell = Calls.run, Worker._ask, Audit.look, Worker._tell

    async def ran(self: Calls, name: str, *args: Any, **options: Any) -> Any:
        called.append(name)
        return await run(self, name, *args, **options)

    async def counted(self: Worker, limit: int) -> Any:
        taking = await ask(self, limit)
        asked.append(len(taking.sagas) if taking else 0)
        return taking

    async def examined(self: Audit) -> None:
        await look(self)
        looked.append(None)

    async def told(self: Worker) -> None:
        await tell(self)
        rounds.append(None)

    monkeypatch.setattr(Calls, "run", ran)
    monkeypatch.setattr(Worker, "_ask", counted)
    monkeypatch.setattr(Worker, "_tell", told)
    monkeypatch.setattr(Audit, "look", examined)
    async with Coordinator.open(f"embedded://{tmp_path}", [note, forget], lease_s=120, on_escalation=()) as engine:
        worker = asyncio.create_task(engine.work(concurrency=16))
        async with asyncio.timeout(500):
            while len(asked) < 2 or not looked:  # noqa: ASYNC110 - what the worker does
                await asyncio.sleep(0.01)
            tasks = len(asyncio.all_tasks())
            for number in range(SAGAS):
                first = {"wait": {"event": "paid", "key": str(number)}} if number % 2 else {"sleep": "P1D"}
                await engine.submit(plan(first, number), saga_id=f"s{number}", detach=True)
            for number in range(SAGAS):
                while (head := await engine.store.head(f"s{number}")).owner or b"waits" not in head.summary:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
            while engine.supervisor.count()[0]:  # noqa: ASYNC110 - what has just been released
                await asyncio.sleep(0.01)
            assert {"append", "heads", "take"} <= set(called)
            for told_of in (asked, looked, rounds, called):
                told_of.clear()
            while len(asked) < 3 or len(looked) < 2 or len(rounds) < 2:  # noqa: ASYNC110 - as above
                await asyncio.sleep(0.01)
            assert set(asked) == {0}
            assert FOR_A_SAGA.isdisjoint(called)
            assert called.count("take") <= len(asked) + 1  # one is under way
            while len(asyncio.all_tasks()) > tasks:  # noqa: ASYNC110 - one of a moment may be there
                await asyncio.sleep(0.01)
            assert engine.supervisor.count()[0] == 0
            await engine.submit(plan({"sleep": "PT3S"}, 1000), saga_id="soon", detach=True)
            await engine.send_event("paid", "101", {})
            assert (await engine.wait("s101")).completed
            assert (await engine.wait("soon")).completed
        worker.cancel()
        await asyncio.gather(worker, return_exceptions=True)
    assert sorted(CALLED) == [101, 1000]


@pytest.mark.slow
def test_ten_thousand_cost_about_as_much_as_none(tmp_path) -> None:
    """CPU of worker and server over a minute as a ratio in one run, tasks, memory; those whose time has come wake."""
    out = tmp_path / "figures.json"
    command = [sys.executable, str(ROOT / "dev" / "benchmarks" / "sleepers.py"), "--sagas", "10000", "--json", str(out)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr
    found = json.loads(out.read_text())
    assert (found["tasks_more"], found["driven"]) == (0, 0)
    assert found["worker_bytes_a_saga"] < 1000
    assert found["ratio"] < 3
    assert found["woken"] == found["completed"] == 21
