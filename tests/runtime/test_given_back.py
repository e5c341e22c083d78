"""Whatever ends a driver gives its saga back; and a saga that nobody owns and nobody queued is found."""

import asyncio
import sys

import pytest

from saga_engine import Coordinator, Policy, tool
from saga_engine.errors import Interrupted
from saga_engine.runtime import audit
from tests.kill.polling import eventually
from tests.runtime.threads import in_a_process_of_its_own
from tests.support.servers import key_of

ENDED: list[BaseException] = []


@tool(undo="give_back", keyed=True)
async def take(item: str) -> dict:
    await asyncio.sleep(0)
    return {"item": item}


@tool
async def give_back(item: str) -> dict:
    return {"item": item}


@tool(undo="give_back", keyed=True)
async def interrupt(item: str) -> dict:
    """As a tool that raises it by itself, or into which a second Ctrl-C falls."""
    await asyncio.sleep(0)
    if not ENDED:
        ENDED.append(KeyboardInterrupt("now"))
        raise ENDED[-1]
    return {"item": item}


TOOLS = [take, give_back, interrupt]


def plan(*names: str) -> dict:
    return {"steps": [{"step_id": n, "tool": name, "params": {"item": "x"}} for n, name in enumerate(names)]}


async def test_a_keyboard_interrupt_leaves_no_saga_to_nobody() -> None:
    """The one that raised it and those beside it go on with a worker; the one that ended the process does not say 'ok' for them."""
    ENDED.clear()

    async def program() -> None:
        async with Coordinator.open("memory://interrupted", TOOLS) as coordinator:
            beside = await coordinator.submit(plan("take", "interrupt"), saga_id="s1")
            await coordinator.submit(plan(*["take"] * 50), saga_id="s2")
            await beside.wait()

    ended = await asyncio.to_thread(in_a_process_of_its_own, program)
    assert isinstance(ended, KeyboardInterrupt)
    async with Coordinator.open("memory://interrupted", TOOLS) as other:
        working = asyncio.create_task(other.work())
        async with asyncio.timeout(30):
            assert (await other.wait("s1")).completed
            assert (await other.wait("s2")).completed
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)


@pytest.mark.parametrize("where", ["observer", "resource", "policy"])
async def test_sys_exit_around_a_call_ends_neither_the_process_nor_the_saga(where) -> None:
    """In an observer it is a listener's fault; around a call nobody knows what it did, and the call's key settles that."""
    exits = []

    def leave(*_) -> None:
        if not exits:
            exits.append(where)
            sys.exit(3)

    def name_of(params) -> str:
        leave()
        return "one"

    @tool(undo="give_back", keyed=True, resource=name_of if where == "resource" else None)
    async def kept(item: str) -> dict:
        return {"item": item}

    observers = [leave] if where == "observer" else []
    policy = Policy(check=leave) if where == "policy" else None
    async with Coordinator.open(
        "memory://", [take, give_back, kept], observers=observers, policy=policy
    ) as coordinator:
        async with asyncio.timeout(30):
            assert (await coordinator.run(plan("kept", "take"))).completed
    assert exits == [where]


def test_who_waits_for_a_saga_that_ended_its_loop_hears_of_it() -> None:
    """A program may catch it and run its loop again: nobody waits there for ever."""
    ENDED.clear()

    async def begun(coordinator: Coordinator):
        return await coordinator.submit(plan("take", "interrupt"))

    with asyncio.Runner() as runner:
        opening = Coordinator.open("memory://", TOOLS)
        coordinator = runner.run(opening.__aenter__())
        handle = runner.run(begun(coordinator))
        with pytest.raises((KeyboardInterrupt, Interrupted)):
            runner.run(handle.wait())
        with pytest.raises(Interrupted):
            runner.run(handle.wait())
        runner.run(opening.__aexit__(None, None, None))


def test_what_ends_a_driver_gives_its_saga_back_before_any_sweep(monkeypatch: pytest.MonkeyPatch) -> None:
    """The process lives on and sweeps nothing for an hour, as long as its lease lasts: the saga is free all the same."""
    monkeypatch.setattr(audit, "EVERY_S", 3600.0)
    ENDED.clear()

    async def begun(coordinator: Coordinator) -> None:
        handle = await coordinator.submit(plan("take", "interrupt"), saga_id="s1")
        await handle.wait()

    async def given_back(coordinator: Coordinator) -> None:
        async def is_free() -> bool:
            return not (await coordinator.store.head("s1")).owner

        async with asyncio.timeout(20):
            await eventually(is_free, "the saga to be given back")
            assert (await coordinator.resume("s1")).completed

    with asyncio.Runner() as runner:
        opening = Coordinator.open("memory://", TOOLS, lease_s=3600)
        coordinator = runner.run(opening.__aenter__())
        with pytest.raises((KeyboardInterrupt, Interrupted)):
            runner.run(begun(coordinator))
        try:
            runner.run(given_back(coordinator))
        finally:
            runner.run(opening.__aexit__(None, None, None))


async def test_a_worker_finds_what_nobody_owns_and_nobody_queued() -> None:
    """However it came to that: the saga is driven, and whoever looks after the store is told."""
    async with Coordinator.open("memory://orphaned", TOOLS) as coordinator:
        await coordinator.submit(plan("take"), saga_id="s1", detach=True)
        store = coordinator.store
        await store.open_lease("gone", 60_000)
        await store.acquire("s1", "gone")  # out of the queue
        await store.close_lease("gone", clean=True)
        assert (await coordinator.overview()).queued == 0
        working = asyncio.create_task(coordinator.work())
        async with asyncio.timeout(30):
            assert (await coordinator.wait("s1")).completed
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)


async def test_a_journal_that_went_back_under_its_owner_is_given_up() -> None:
    """The store says that the saga is ours, and it is not driven here any more: another process can go on with it."""
    async with (
        Coordinator.open("memory://went-back", TOOLS) as coordinator,
        Coordinator.open("memory://went-back", TOOLS) as other,
    ):
        await coordinator.run(plan("take"))  # it has a lease now
        owner = (await coordinator.supervisor.lease()).owner
        await other.submit(plan("take"), saga_id="s1", detach=True)
        await coordinator.store.acquire("s1", owner)  # as a restored backup would say it

        async def is_free() -> bool:
            return not (await other.store.head("s1")).owner

        await eventually(is_free, "the saga to be nobody's")
        assert (await other.resume("s1")).completed


async def test_a_saga_that_is_driven_is_never_given_up_by_the_audit() -> None:
    """Its owner drives it: two whole looks at everything leave it alone, and it makes its call once."""
    gate = asyncio.Event()
    calls = []

    @tool(undo="give_back", keyed=True)
    async def wait(item: str) -> dict:
        calls.append(item)
        await gate.wait()
        return {"item": item}

    async with Coordinator.open("memory://", [wait, give_back]) as coordinator:
        handle = await coordinator.submit(plan("wait"), saga_id="s1")
        for _ in range(4):
            await coordinator.supervisor.audit.look()
        await coordinator.supervisor.pending.settle()
        assert (await coordinator.store.head("s1")).owner
        gate.set()
        assert (await handle.wait()).completed
    assert calls == ["x"]


async def test_an_idle_session_is_left_to_its_agent() -> None:
    """Nobody drives it and it is in no queue, on purpose: no worker is bothered with it."""
    async with Coordinator.open("memory://", TOOLS) as coordinator:
        with pytest.raises(GeneratorExit):
            async with coordinator.session("s1") as session:
                await session.call(take, item="x")
                raise GeneratorExit

        async def is_free() -> bool:
            return not (await coordinator.store.head("s1")).owner

        await eventually(is_free, "the session to be given up")
        before = (await coordinator.store.head("s1")).length
        for _ in range(3):
            await coordinator.supervisor.audit.look()
        assert (await coordinator.overview()).queued == 0
        assert (await coordinator.store.head("s1")).length == before


async def test_a_driver_whose_epoch_went_back_gives_the_saga_up_at_the_epoch_that_is(folder) -> None:
    """The release of the epoch that it knew would change nothing, and the saga would be its own for ever."""
    begun, gate = asyncio.Event(), asyncio.Event()

    @tool(undo="give_back", keyed=True)
    async def wait(item: str) -> dict:
        begun.set()
        await gate.wait()
        return {"item": item}

    async with Coordinator.open(folder.url, [wait, take, give_back]) as coordinator:
        store = coordinator.store
        handle = await coordinator.submit(plan("wait", "take"), saga_id="s1")
        await begun.wait()
        owner = (await store.head("s1")).owner
        with folder.raw() as raw:
            raw.ltrim(key_of(raw, "journal", "s1"), 0, 0)
        await store.acquire("s1", owner)
        gate.set()
        await asyncio.gather(handle.wait(), return_exceptions=True)

        async def moves_on() -> bool:
            head = await store.head("s1")
            return not head.owner or head.status == "COMPLETED"

        await eventually(moves_on, "the saga to be nobody's, or over")
