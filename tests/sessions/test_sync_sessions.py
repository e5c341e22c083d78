"""Sessions of agents that block: one bridge to the same engine."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from saga_engine import (
    CallFailed,
    Coordinator,
    NeedsPerson,
    RetryPolicy,
    SyncSession,
    ToolError,
    run_sync,
    sync_session,
    tool,
)
from saga_engine.errors import LeaseHeld, SessionEnded, SettingInvalid
from tests.support.servers import EmbeddedFolder

ONCE = RetryPolicy(max_attempts=1)
LOG: list[str] = []


@pytest.fixture(autouse=True)
def fresh() -> None:
    LOG.clear()


@tool(undo="unbook", retry=ONCE)
def book(what: str) -> dict:
    if what == "full":
        raise ToolError("full", error_code="full", suggestion="take another")
    LOG.append(f"book {what}")
    return {"ref": what}


@tool(retry=ONCE)
def unbook(ref: str) -> dict:
    LOG.append(f"unbook {ref}")
    return {}


TOOLS = [book, unbook]


def status(store: str, saga_id: str = "trip") -> str:
    async def look() -> str:
        async with Coordinator.open(store, TOOLS) as engine:
            return (await engine.show(saga_id)).status

    return run_sync(look())


def test_a_block_that_ends_well_completes_the_session() -> None:
    """Calls return the outputs of the tools, by name or by function; leaving the block ends the saga."""
    with sync_session("trip", store="memory://sync-1", tools=TOOLS, goal="a trip") as s:
        assert s.saga_id == "trip"
        assert s.call("book", what="flight") == {"ref": "flight"}
        assert s.call(book, {"what": "hotel"}) == {"ref": "hotel"}
        assert s.tool(book)("car") == {"ref": "car"}
    assert status("memory://sync-1") == "COMPLETED"
    assert LOG == ["book flight", "book hotel", "book car"]


def test_an_exception_undoes_what_the_session_did_before_it_goes_on() -> None:
    """The same exception leaves the block, and by then everything has been undone."""
    error = LookupError("changed my mind")
    with pytest.raises(LookupError) as caught, sync_session("trip", store="memory://sync-2", tools=TOOLS) as s:
        s.call(book, what="flight")
        s.call(book, what="hotel")
        raise error
    assert caught.value is error
    assert LOG[2:] == ["unbook hotel", "unbook flight"]
    assert status("memory://sync-2") == "COMPENSATED"


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
def test_an_interrupt_undoes_too(kind: type[BaseException]) -> None:
    """Ctrl-C and an exit are exceptions that leave the block; they do not end the loop before the undos are made."""
    with pytest.raises(kind), sync_session("trip", store=f"memory://sync-{kind.__name__}", tools=TOOLS) as s:
        s.call(book, what="flight")
        raise kind
    assert LOG == ["book flight", "unbook flight"]


def test_a_part_is_rolled_back() -> None:
    """Savepoints and rollbacks are those of a session; a failed call is an exception that the agent may catch."""
    with sync_session("trip", store="memory://sync-3", tools=TOOLS) as s:
        s.call(book, what="flight")
        point = s.savepoint()
        s.call(book, what="hotel")
        with pytest.raises(CallFailed) as error:
            s.call(book, what="full")
        assert error.value.error_code == "full"
        s.rollback(point)
        s.call(book, what="train")
    assert LOG == ["book flight", "book hotel", "unbook hotel", "book train"]
    assert status("memory://sync-3") == "COMPLETED"


def test_a_whole_rollback_is_no_error() -> None:
    """The agent wanted it: the block ends in peace, and no more calls can be made."""
    with sync_session("trip", store="memory://sync-4", tools=TOOLS) as s:
        s.call(book, what="flight")
        outcome = s.rollback()
        assert outcome is not None
        assert outcome.status == "COMPENSATED"
        with pytest.raises(SessionEnded):
            s.call(book, what="car")
    assert LOG == ["book flight", "unbook flight"]


def test_threads_may_call_at_once() -> None:
    """Calls from several threads run side by side: each gets its own answer, each happens once."""
    gate = threading.Barrier(8, timeout=60)

    @tool(undo="unbook", retry=ONCE)
    def meet(what: str) -> dict:
        gate.wait()  # nobody gets past before all eight are here
        return {"ref": what}

    names = [f"t{number}" for number in range(8)]
    with sync_session("trip", store="memory://sync-5", tools=[meet, unbook]) as s, ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda name: s.call(meet, what=name), names))
    assert found == [{"ref": name} for name in names]


def test_another_life_goes_on_where_the_first_one_died(tmp_path: Path) -> None:
    """A journal on disk: the second agent gets what is recorded and makes the rest."""
    with EmbeddedFolder(tmp_path / "saga") as folder:
        with pytest.raises(LeaseHeld), sync_session("trip", store=folder.url, tools=TOOLS) as s:
            s.call(book, what="flight")
            raise LeaseHeld("stands for an end that says nothing about the work", hint="")
        with sync_session("trip", store=folder.url, tools=TOOLS) as s:
            assert s.call(book, what="flight") == {"ref": "flight"}
            s.call(book, what="hotel")
        assert status(folder.url) == "COMPLETED"
    assert LOG == ["book flight", "book hotel"]


def test_what_keeps_a_session_from_beginning_is_raised() -> None:
    """A wrong option, and an id that has ended by being undone; no thread stays behind."""
    before = threading.active_count()
    with pytest.raises(SettingInvalid), sync_session("trip", store="memory://sync-6", on_divergence="maybe"):  # type: ignore[arg-type]
        pass
    with sync_session("trip", store="memory://sync-6", tools=TOOLS) as s:
        s.call(book, what="flight")
        s.rollback()
    with pytest.raises(SessionEnded), sync_session("trip", store="memory://sync-6", tools=TOOLS):
        pass
    assert not [thread for thread in threading.enumerate() if thread.name == "saga-session"], before


def test_a_person_is_needed() -> None:
    """What only a person can settle leaves the block as it leaves an async one, and the session stays open."""

    @tool(undo="unbook", retry=ONCE)
    def lost(what: str) -> dict:
        raise ConnectionResetError("the line is dead")

    with pytest.raises(NeedsPerson), sync_session("trip", store="memory://sync-7", tools=[lost, unbook]) as s:
        s.call(lost, what="flight")
    assert status("memory://sync-7") == "ESCALATED"


async def test_an_agent_that_blocks_in_a_thread_of_an_async_program() -> None:
    """It calls back into the program's loop; in the loop's own thread a blocking call is refused, it would hang."""
    async with Coordinator.open("memory://sync-8", TOOLS) as engine:
        async with engine.session("trip") as session:
            s = SyncSession(session, asyncio.get_running_loop())
            assert await asyncio.to_thread(s.call, "book", what="flight") == {"ref": "flight"}
            assert (await asyncio.to_thread(s.savepoint)).calls == 1
            with pytest.raises(RuntimeError, match="event loop"):
                s.call("book", what="hotel")
        assert (await engine.show("trip")).completed
