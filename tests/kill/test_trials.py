"""A call that ends its processes: bare calls of other sagas are lost to its first end alone."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from typing import Any

import pytest

from saga_engine import Coordinator
from saga_engine.execution.owner import parse
from tests.kill.conftest import Place
from tests.kill.polling import eventually, opened
from tests.kill.processes import Processes
from tests.kill.worker_child import TOOLS
from tests.support.servers import GIVE_UP_S, EmbeddedFolder

#: A plan for each kind of call that ends its process: a call under its key, a probe, an undo.
FATAL = {
    "call": [("poison", {"item": "x"})],
    "probe": [("poison_probe", {"item": "x"})],
    "undo": [("fine", {"item": "x"}), ("fail", {"item": "x"})],
}


def plan(*calls: tuple[str, dict[str, str]]) -> dict[str, Any]:
    return {"steps": [{"step_id": at, "tool": name, "params": given} for at, (name, given) in enumerate(calls, 1)]}


async def doubtful(coordinator: Coordinator, saga_ids: list[str]) -> set[str]:
    """The sagas with a call in flight, as far as their journals know."""
    found = set()
    for saga_id in saga_ids:
        records = [record["k"] for record in await coordinator.history(saga_id)]
        if records[-1] == "StepIntended":
            found.add(saga_id)
    return found


async def drives(url: str, saga_ids: list[str], pid: int) -> bool:
    """Whether a process has the lease of each of these sagas, or died with it."""
    async with opened(url) as store:
        owners = [parse((await store.head(saga_id)).owner) for saga_id in saga_ids]
    return all(owner is not None and owner.pid == pid for owner in owners)


@pytest.mark.parametrize("kind", FATAL)
async def test_only_the_first_end_of_a_process_costs_bare_calls(
    kind: str, embedded: EmbeddedFolder, processes: Processes, new_place: Callable[[str], Place]
) -> None:
    """Of the bare sagas beside it, those in flight at the first end become questions, and none at the others.

    At each end some are at stake: early ones are in flight when the saga is taken over, late ones come while its call,
    its probe or its undo is in flight.
    """
    place = new_place(embedded.url)
    folder = place.ledger.path.parent
    bare: list[str] = []
    at_an_end: list[set[str]] = []
    async with Coordinator.open(place.url, TOOLS["fatal"]) as coordinator:

        async def submit_bare(name: str) -> list[str]:
            fresh = [f"{name}-{number}" for number in range(3)]  # a worker has room for all of them
            for saga_id in fresh:
                steps = [("linger", {"item": f"{saga_id}-{step}"}) for step in range(3)]
                await coordinator.submit(plan(*steps), saga_id=saga_id, detach=True)
            bare.extend(fresh)
            return fresh

        await coordinator.submit(plan(*FATAL[kind]), saga_id="fatal", detach=True)
        for life in range(3):
            await submit_bare(f"early-{life}")
            worker = processes.start("work", player="workers", variant="fatal", name=f"w{life}", **place.told)
            waiting = asyncio.create_task(asyncio.to_thread(worker.wait))
            await eventually(lambda pid=worker.pid: drives(place.url, ["fatal"], pid), "the saga to be taken over")
            (folder / f"drives-{worker.pid}").touch()
            await eventually((folder / f"ends-{worker.pid}").exists, "the fatal call")
            if life:
                late = await submit_bare(f"late-{life}")
                await eventually(
                    lambda pid=worker.pid, done=waiting.done, late=late: done() or drives(place.url, late, pid),
                    "the late sagas to be taken, or the end",
                )
                (folder / f"drives-all-{worker.pid}").touch()
            ended = await waiting
            assert ended.killed, ended.told
            at_an_end.append(await doubtful(coordinator, bare))
        worker = processes.start("work", player="workers", variant="fatal", name="w3", **place.told)
        (folder / f"drives-{worker.pid}").touch()
        async with asyncio.timeout(GIVE_UP_S):
            finals = {saga_id: await coordinator.wait(saga_id) for saga_id in bare}
        fatal = await coordinator.wait("fatal")
        await eventually((folder / "ready-w3").exists, "the last worker to listen")
        os.kill(worker.pid, signal.SIGTERM)
        await asyncio.to_thread(worker.told)
    assert at_an_end[0], "nothing was at stake"
    assert at_an_end[1:] == [set(), set()]
    assert {saga_id for saga_id, final in finals.items() if not final.completed} == at_an_end[0]
    (question,) = fatal.body["questions"]
    assert question["error"]["error_code"] == "takeovers_without_progress"
    for saga_id, final in finals.items():
        assert place.ledger.compare(dict(final.body)) == [], saga_id
