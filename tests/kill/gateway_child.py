"""What a forked child does in the cases about the gateway: an agent's calls of a real server of others, and a rollback.

The calls change the world in states that are all different, so a look at the world tells how many of them stand: so
does the operator who answers here.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from saga_engine import Coordinator
from saga_engine.errors import SagaNotFound
from saga_engine.sources.mcp.call import McpCall
from saga_engine.stores import open_store
from saga_engine.testing.faults import Fault, Faults, FaultyStore
from tests.gateway.agents import Agent, agent, client, served
from tests.mcp.real_servers import KINDS, RealWorld

#: No lease ends beside a slow machine: one that is lost in the middle of a call leaves a doubt that no case is about. Who
#: is killed needs none to end, because a dead owner of the same machine is recognised.
LEASE_S = 120.0

Told = dict[str, Any]
Calls = list[tuple[str, dict[str, Any]]]


def script(kind: str, world: RealWorld) -> Calls:
    """What the agent does."""
    path = str(world.folder)
    bo = {"name": "Bo", "entityType": "guest", "observations": ["loud"]}
    gone = {"entityName": "Ann", "observations": ["tall"]}
    return {
        "filesystem": [
            ("write_file", {"path": f"{path}/a.txt", "content": "other\n"}),
            ("edit_file", {"path": f"{path}/a.txt", "edits": [{"oldText": "other", "newText": "third"}]}),
            ("move_file", {"source": f"{path}/a.txt", "destination": f"{path}/sub/c.txt"}),
        ],
        "memory": [
            ("create_entities", {"entities": [bo]}),
            ("create_relations", {"relations": [{"from": "Bo", "to": "Inn", "relationType": "knows"}]}),
            ("delete_observations", {"deletions": [gone]}),
        ],
        "git": [
            ("git_checkout", {"repo_path": path, "branch_name": "other"}),
            ("git_add", {"repo_path": path, "files": ["f", "new"]}),
        ],
    }[kind]


def main(case: dict[str, Any]) -> Told:
    """Work and roll back, or roll back what a killed gateway left; then say how it ended and what the world is like."""
    gone = asyncio.Event()
    faults = Faults(case.get("fault", ""), actions={"server": _kill_servers, "agent": lambda _: gone.set()})
    world = KINDS[case["kind"]](Path(case["ledger"]).parent)
    _count_calls(faults)
    return asyncio.run(_play(case, faults, world, gone))


def _kill_servers(_: Fault) -> None:
    """SIGKILL for every child; stopped first, so that it reads nothing that is sent meanwhile."""
    for pid in children(os.getpid()):
        os.kill(pid, signal.SIGSTOP)
        os.kill(pid, signal.SIGKILL)


def children(parent: int) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[1]) == parent and fields[0] != "Z":
                found.append(int(entry.name))
    return found


def _count_calls(faults: Faults) -> None:
    """Each request of a tool, reads included, is a point; a server that is killed after it has not answered."""
    answer = McpCall._answer

    async def counted(self: McpCall, connection: Any, live: Any, params: Any, call: Any) -> Any:
        fired = len(faults.fired)
        with faults.at("call"):
            made = await answer(self, connection, live, params, call)
        if [fault for fault in faults.fired[fired:] if fault.action == "server"]:
            connection.lose(live)
            raise self._unknown("the server was killed", "connection_lost")
        return made

    McpCall._answer = counted  # type: ignore[method-assign]


async def _play(case: dict[str, Any], faults: Faults, world: RealWorld, gone: asyncio.Event) -> Told:
    store, name = FaultyStore(open_store(case["url"]), faults), case["saga_id"]
    hashes: list[str] = [world.hash()]
    outputs: list[Any] = []
    try:
        if case["part"] == "submit":
            async with _gateway(store, world, case) as (_, it):
                await _work(it, script(case["kind"], world), world, hashes, outputs, gone)
        async with _gateway(store, world, case) as (coordinator, it):  # of the same agent, or of the next one
            answer = await it.call("saga_rollback")
            assert answer.structured_content is not None, str(answer)
            told, first = answer.structured_content, world.hash()
            asked = await _answered(coordinator, name, world, case)
            try:
                body = (await coordinator.show(name)).body
            except SagaNotFound:
                body = {"status": "NOTHING", "report": {"clean": True}}
    finally:
        await store.close()
    named = [each["call"] for each in (*told["left"], *told["unknown"], *told["questions"])]
    return {
        "status": body["status"],
        "clean": body["report"]["clean"],
        "hash": world.hash(),
        "asked": asked,
        "claimed": told["clean"],
        "named": named,
        "first": first,
        "hashes": hashes,
        "outputs": outputs,
        "counts": dict(faults.counts),
    }


@asynccontextmanager
async def _gateway(
    store: FaultyStore, world: RealWorld, case: dict[str, Any]
) -> AsyncIterator[tuple[Coordinator, Agent]]:
    name = case["saga_id"]
    async with Coordinator.open(store, sources=[world.server()], lease_s=LEASE_S) as coordinator:
        if case["over"] == "stdio":
            async with agent(coordinator, name) as it:
                yield coordinator, it
        else:  # in both eras of the protocol: the second agent is of the other one
            mode = "legacy" if case["part"] == "submit" else "2026-07-28"
            async with served(coordinator) as url, client(f"{url}/{name}", mode) as it:
                yield coordinator, it


async def _work(
    it: Agent, calls: Calls, world: RealWorld, hashes: list[str], outputs: list[Any], gone: asyncio.Event
) -> None:
    """Make the calls until one fails, or the agent is gone: its connection is then cut in the middle of a call."""

    async def work() -> None:
        for tool, params in calls:
            answer = await it.call(tool, **params)
            hashes.append(world.hash())
            outputs.append(answer.structured_content)
            if answer.is_error:
                return

    tasks = [asyncio.ensure_future(work()), asyncio.ensure_future(gone.wait())]
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    if not gone.is_set():
        tasks[0].result()
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def _answered(coordinator: Coordinator, name: str, world: RealWorld, case: dict[str, Any]) -> list[str]:
    """An operator answers from what the world shows, until nothing is asked any more."""
    asked: list[str] = []
    while len(asked) < 20:
        try:
            body = (await coordinator.show(name)).body
        except SagaNotFound:
            return asked
        if not body["questions"]:
            return asked
        question = body["questions"][0]
        step, stand = int(question["step_id"]), case["states"].index(world.hash())
        asked.append(f"{step} {question['kind']}")
        word, output = answer_for(question, step=step, stand=stand, outputs=case["outputs"])
        mark = question["outlooks"][word]["mark"]
        await coordinator.resolve(name, step, word, output=output, by="operator", expect=mark)
        await coordinator.resume(name)
    return asked


def answer_for(question: dict[str, Any], *, step: int, stand: int, outputs: list[Any]) -> tuple[str, Any]:
    """``stand``: how many calls stand in the world."""
    options = question["options"]
    if question["direction"] == "forward":
        happened = stand >= step
        return ("happened", outputs[step - 1]) if happened else (next(o for o in options if o.startswith("not")), None)
    if stand < step:
        return "undone", None
    return ("undo" if "undo" in options else "retry"), None
