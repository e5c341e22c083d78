"""Stop and go: no forward call starts anywhere while an operator's stop holds; undos go on."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from saga_engine import Coordinator, SagaResult, ToolError, tool
from saga_engine.api.stops import Stop, go, stop, stops
from saga_engine.core import finishing
from saga_engine.core.effects import Done, NotDone
from saga_engine.errors import SettingInvalid
from saga_engine.execution.clock import StoreClock
from saga_engine.guards import stops as held_calls
from saga_engine.guards.chain import GuardedTools
from saga_engine.stores import open_store
from saga_engine.tools.registry import ToolRegistry
from tests.tools.calls import a_call


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """A held call looks often whether it was released."""
    monkeypatch.setattr(held_calls, "POLL_S", 0.01)


class World:
    """Counts what happened; a call may run code of the test."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.held = asyncio.Event()
        self.during: Any = None

    def tools(self) -> list[Any]:
        @tool(undo="put_back")
        async def take(item: str) -> dict[str, str]:
            self.done.append(f"take {item}")
            if self.during is not None:
                await self.during(item)
            return {"item": item}

        @tool(tolerates_absence=True)
        async def put_back(item: str) -> dict[str, str]:
            self.done.append(f"put back {item}")
            return {}

        return [take, put_back]


def plan(*items: str, **fields: Any) -> dict[str, Any]:
    steps = [{"step_id": at, "tool": "take", "params": {"item": item}} for at, item in enumerate(items, 1)]
    return {"goal": "some things", "steps": steps, **fields}


async def queued(coordinator: Coordinator, saga_id: str, step: str = "1") -> None:
    """Wait until the journal says that a call of the saga is held."""
    async for record in coordinator.follow(saga_id):
        if record["k"] == "StepQueued" and str(record["step"]) == step:
            return


async def test_a_stop_holds_and_go_releases() -> None:
    """A held call was not made, and that is durable; after the go it is made once."""
    world = World()
    async with Coordinator.open("memory://", world.tools()) as coordinator:
        assert await stop(coordinator.store, by="ada", note="the shop burns") == await stops(coordinator.store)
        handle = await coordinator.submit(plan("a"), saga_id="s")
        await queued(coordinator, "s")
        assert world.done == []
        (one,) = await stops(coordinator.store)
        assert (one.scope, one.by, one.note) == ("all", "ada", "the shop burns")
        assert await go(coordinator.store) == []
        assert (await handle.wait()).status == "COMPLETED"
    assert world.done == ["take a"]


@pytest.mark.parametrize("of", [{}, {"tool": "take"}, {"saga_id": "s"}], ids=["all", "tool", "saga"])
async def test_after_a_stop_has_returned_no_next_call_starts(of: dict[str, str]) -> None:
    """Also not in the saga that runs at that moment, and in another process: its next intent learns of the stop."""
    world = World()
    async with (
        Coordinator.open("memory://shared", world.tools()) as coordinator,
        Coordinator.open("memory://shared") as elsewhere,
    ):

        async def during(item: str) -> None:
            if item == "a":
                await stop(elsewhere.store, **of)

        world.during = during
        handle = await coordinator.submit(plan("a", "b"), saga_id="s")
        await queued(coordinator, "s", "2")
        assert world.done == ["take a"]
        await go(elsewhere.store, **of)
        assert (await handle.wait()).status == "COMPLETED"
    assert world.done == ["take a", "take b"]


async def test_a_stop_of_another_tool_or_saga_holds_nothing() -> None:
    """Each stop holds what it names, and is lifted by itself."""
    world = World()
    async with Coordinator.open("memory://", world.tools()) as coordinator:
        await stop(coordinator.store, tool="other")
        await stop(coordinator.store, saga_id="t")
        assert (await coordinator.run(plan("a"), saga_id="s")).status == "COMPLETED"
        assert [each.scope for each in await go(coordinator.store)] == ["saga:t", "tool:other"]
        with pytest.raises(SettingInvalid):
            await stop(coordinator.store, tool="other", saga_id="t")
        for of in ({"tool": ""}, {"saga_id": ""}):  # from an empty variable of a shell: never all calls
            with pytest.raises(SettingInvalid):
                await go(coordinator.store, **of)


async def test_the_name_of_a_tool_is_no_saga() -> None:
    """It is refused, and nothing is stopped; a saga of that name is meant where there is one."""
    world = World()
    async with Coordinator.open("memory://", world.tools()) as coordinator:
        known = {"tools": lambda: coordinator.tools}
        with pytest.raises(SettingInvalid, match="take is a tool") as refused:
            await stop(coordinator.store, saga_id="take", **known)
        assert "did you mean --tool take?" in refused.value.hint
        assert await stops(coordinator.store) == []
        await coordinator.run(plan("a"), saga_id="take")
        for name in ("take", "later"):  # a saga that is not there yet is held as soon as it is
            await stop(coordinator.store, saga_id=name, **known)
        assert [each.scope for each in await stops(coordinator.store)] == ["saga:later", "saga:take"]


async def test_undos_go_on() -> None:
    """A saga that is cancelled while a stop holds it is undone at once; the held call is never made."""
    world = World()
    async with Coordinator.open("memory://", world.tools()) as coordinator:

        async def during(item: str) -> None:
            await stop(coordinator.store)

        world.during = during
        await coordinator.submit(plan("a", "b"), saga_id="s")
        await queued(coordinator, "s", "2")
        result = await coordinator.cancel("s")
    assert (result.status, world.done) == ("COMPENSATED", ["take a", "put back a"])


async def test_a_completed_saga_is_undone_under_a_stop() -> None:
    """``saga undo`` of what stands is made of undos only: no stop holds it, neither of all, of a tool nor of a saga."""
    world = World()
    async with Coordinator.open("memory://", world.tools()) as coordinator:
        assert (await coordinator.run(plan("a", "b"), saga_id="s")).status == "COMPLETED"
        for of in ({}, {"tool": "take"}, {"tool": "put_back"}, {"saga_id": "s"}, {"saga_id": "s-undo"}):
            await stop(coordinator.store, **of)
        outcome = await coordinator.undo("s")
        assert isinstance(outcome, SagaResult)
        assert (outcome.status, outcome.body["report"]["clean"]) == ("COMPENSATED", True)
    assert world.done == ["take a", "take b", "put back b", "put back a"]


@pytest.mark.parametrize("item", ["b", "refused"])
@pytest.mark.parametrize("lifted", [True, False])
async def test_the_steps_of_finally_are_held(item: str, lifted: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """After undos as well. They are made after the go, or their time ends and with it the saga; no journal grows meanwhile."""
    world = World()
    if not lifted:
        monkeypatch.setattr(finishing, "FINALLY_S", 0.3)

    async def refuse(item: str) -> None:
        if item == "refused":
            raise ToolError("sold out", error_code="full", retryable=False)

    @tool
    async def tell(what: str) -> None:
        world.done.append(what)

    world.during = refuse
    last = {"step_id": "f0", "tool": "tell", "params": {"what": "the end"}}
    async with Coordinator.open("memory://", [*world.tools(), tell], on_escalation=()) as coordinator:
        await stop(coordinator.store, tool="tell")
        handle = await coordinator.submit(plan("a", item, **{"finally": [last]}), saga_id="s")
        await queued(coordinator, "s", "f0")
        if lifted:
            await go(coordinator.store, tool="tell")
        result = await handle.wait()
        kinds = [record["k"] for record in await coordinator.history("s")]
    assert result.status == ("COMPLETED" if item == "b" else "COMPENSATED")
    assert ("the end" in world.done) == lifted
    assert kinds.count("StepQueued") <= 2


async def test_a_deadline_passes_while_calls_are_held() -> None:
    """A stop does not keep a saga alive: it is undone at its deadline."""
    world = World()
    async with Coordinator.open("memory://", world.tools()) as coordinator:
        await stop(coordinator.store)
        result = await coordinator.run(plan("a", deadline_s=0.2))
    assert (result.status, world.done) == ("COMPENSATED", [])


async def test_a_session_is_held() -> None:
    """An agent's call waits like a step of a plan; nothing that the agent has lifts the stop."""
    world = World()
    async with Coordinator.open("memory://", world.tools()) as coordinator:
        await stop(coordinator.store)
        async with coordinator.session("s", goal="an agent") as session:
            call = asyncio.ensure_future(session.call("take", item="a"))
            await queued(coordinator, "s")
            assert world.done == []
            await go(coordinator.store)
            await call
    assert world.done == ["take a"]


async def test_a_call_that_waited_for_a_guard_is_held_too() -> None:
    """A stop during a long wait for a resource takes effect before the call that got its turn."""
    gate, busy = asyncio.Event(), asyncio.Event()
    done: list[str] = []

    @tool(resource="door", undo="leave")
    async def enter(name: str) -> dict[str, str]:
        done.append(name)
        busy.set()
        await gate.wait()
        return {"name": name}

    @tool(tolerates_absence=True)
    async def leave(name: str) -> None:
        done.append(f"-{name}")

    def one(name: str) -> dict[str, Any]:
        return {"goal": name, "steps": [{"step_id": 1, "tool": "enter", "params": {"name": name}}]}

    async with Coordinator.open("memory://", [enter, leave]) as coordinator:
        first = await coordinator.submit(one("a"))
        await busy.wait()
        second = await coordinator.submit(one("b"), saga_id="b")
        await queued(coordinator, "b")
        await stop(coordinator.store)
        gate.set()
        assert (await first.wait()).status == "COMPLETED"
        async for record in coordinator.follow("b"):  # it got its turn, and is held now
            if record["k"] == "StepQueued" and record["seq"] > 3:
                break
        assert done == ["a"]
        await go(coordinator.store)
        assert (await second.wait()).status == "COMPLETED"
    assert done == ["a", "b"]


async def test_where_no_append_tells_the_view_is_read() -> None:
    """In Temporal no append to the store precedes a call: the view of the stops has a maximum age instead."""
    store = open_store("memory://", durability="relaxed", patience_s=1)
    await store.open()
    made = World()
    clock = StoreClock()
    tools = GuardedTools(ToolRegistry(made.tools()), store.guard_store(), gate=None, clock=clock, stops_fresh_s=0)
    assert isinstance(await tools.call("take", {"item": "a"}, a_call()), Done)
    await stop(store, tool="take")
    waiting = asyncio.ensure_future(tools.call("take", {"item": "b"}, a_call()))
    assert isinstance(await tools.call("take", {"item": "c"}, a_call(direction="compensate")), Done)
    await go(store, tool="take")
    assert isinstance(await waiting, Done)
    await stop(store)
    waiting = asyncio.ensure_future(tools.call("take", {"item": "d"}, a_call()))
    await asyncio.sleep(0)
    tools.stop_waiting()
    assert isinstance(await waiting, NotDone)  # a worker that ends makes no held call
    assert made.done == ["take a", "take c", "take b"]
    await store.close()


def test_a_damaged_entry_still_stops() -> None:
    """What another program wrote is taken for a stop without a reason."""
    assert Stop.of("all", "{").scope == "all"
    assert Stop.of("all", "[1]").note


CHILD = """
    import asyncio, sys
    from saga_engine import Coordinator, tool

    @tool(undo="put_back")
    def take(item: str) -> dict:
        open(sys.argv[2], "a").write(f"take {item}\\n")
        return {"item": item}

    @tool(tolerates_absence=True)
    def put_back(item: str) -> None:
        open(sys.argv[2], "a").write(f"put back {item}\\n")

    async def main():
        async with Coordinator.open(sys.argv[1], [take, put_back], lease_s=1) as coordinator:
            if sys.argv[3] == "resume":
                print((await coordinator.resume("s")).status)
                return
            steps = [{"step_id": 1, "tool": "take", "params": {"item": "a"}}]
            handle = await coordinator.submit({"goal": "x", "steps": steps}, saga_id="s")
            async for record in coordinator.follow("s"):
                if record["k"] == "StepQueued":
                    print("held", flush=True)
            await handle.wait()

    asyncio.run(main())
"""


async def test_a_stop_survives_the_death_of_every_process(tmp_path: Path) -> None:
    """A process is killed while it holds a call: the stop stays, the call was not made, and is made once after the go."""
    url, log = f"embedded://{tmp_path}/store", tmp_path / "log"
    program = tmp_path / "child.py"
    program.write_text(textwrap.dedent(CHILD))
    first = open_store(url, durability="fsync", patience_s=10)
    await first.open()
    await stop(first, note="night")
    child = await asyncio.create_subprocess_exec(
        sys.executable, str(program), url, str(log), "submit", stdout=subprocess.PIPE
    )
    assert child.stdout is not None
    assert await child.stdout.readline() == b"held\n"
    child.send_signal(signal.SIGKILL)
    await child.wait()
    await first.close()
    again = open_store(url, durability="fsync", patience_s=10)
    await again.open()
    assert [each.note for each in await stops(again)] == ["night"]
    assert not log.exists()
    await go(again)
    other = await asyncio.create_subprocess_exec(
        sys.executable, str(program), url, str(log), "resume", stdout=subprocess.PIPE
    )
    out, _ = await other.communicate()
    await again.close()
    assert (out, log.read_text()) == (b"COMPLETED\n", "take a\n")
