"""Sessions that turn around at any time: amid a partial roll-back, while their agent goes on, while they rest."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import pytest

from saga_engine import Coordinator, RetryPolicy, Session, ToolError, tool
from saga_engine.errors import NeedsPerson, SagaError, SessionEnded
from tests.support.journals import journalled, until

ONCE = RetryPolicy(max_attempts=1)
AGAIN = RetryPolicy(max_attempts=8, base_s=0.01, max_s=0.01, jitter=False)
LOG: list[str] = []
#: What an undo of a thing does: ``busy`` (until taken out), ``never``, ``gone``.
UNDO: dict[str, str] = {}
#: Calls (``book x``, ``unbook x``) that wait for their gate, and what says that one has begun.
GATES: dict[str, asyncio.Event] = {}
BEGUN: dict[str, asyncio.Event] = {}


@pytest.fixture(autouse=True)
def fresh() -> None:
    for kept in (LOG, UNDO, GATES, BEGUN):
        kept.clear()


def gate(call: str) -> asyncio.Event:
    """Make a call wait; returns what lets it go."""
    BEGUN[call] = asyncio.Event()
    GATES[call] = asyncio.Event()
    return GATES[call]


async def _pass(call: str) -> None:
    if call in GATES:
        BEGUN[call].set()
        await GATES[call].wait()


@tool(undo="unbook", retry=ONCE)
async def book(what: str) -> dict:
    await _pass(f"book {what}")
    if what == "silent":
        raise TimeoutError
    LOG.append(f"book {what}")
    return {"ref": what}


@tool(retry=AGAIN, tolerates_absence=True)
async def unbook(ref: str) -> dict:
    await _pass(f"unbook {ref}")
    if UNDO.get(ref) == "busy":
        BEGUN.setdefault(f"busy {ref}", asyncio.Event()).set()
        raise ToolError("busy", retryable=True)
    if UNDO.get(ref) == "never":
        raise ToolError("too late", error_code="too_late", retryable=False)
    LOG.append(f"unbook {ref}")
    return {}


@tool(effect="read")
async def look() -> dict:
    return {}


TOOLS = [book, unbook, look]


@pytest.fixture
async def engine() -> AsyncIterator[Coordinator]:
    async with Coordinator.open("memory://", TOOLS) as engine:
        yield engine


def standing() -> set[str]:
    """What stands in the outside world."""
    made = {line.split()[1] for line in LOG if line.startswith("book ")}
    return made - {line.split()[1] for line in LOG if line.startswith("unbook ")}


async def roll_back_hotel(s: Session) -> None:
    await s.call(book, what="flight")
    point = s.savepoint()
    await s.call(book, what="hotel")
    await s.rollback(point)


# --- a turn amid a partial roll-back -------------------------------------------------------------------------------


async def test_a_cancel_while_an_undo_of_a_rollback_waits_for_its_retry(engine: Coordinator) -> None:
    """The undo that waits is still due on the way back: it is made, and nothing ends before it."""

    async def agent() -> None:
        async with engine.session("s") as s:
            await roll_back_hotel(s)

    UNDO["hotel"] = "busy"
    BEGUN["busy hotel"] = asyncio.Event()
    running = asyncio.create_task(agent())
    await BEGUN["busy hotel"].wait()
    cancelling = asyncio.create_task(engine.cancel("s"))
    await journalled(engine, "s", "CancelRequested")
    del UNDO["hotel"]
    outcome = await cancelling
    with pytest.raises(SessionEnded):
        await running
    assert outcome.status == "COMPENSATED"
    assert outcome.report["clean"]
    assert LOG == ["book flight", "book hotel", "unbook hotel", "unbook flight"]


@pytest.mark.parametrize("turn", ["cancel", "failure"])
async def test_a_turn_over_an_open_question_of_a_rollback(engine: Coordinator, turn: str) -> None:
    """The question stays: the hotel is booked until a person settles it, and nothing before it is undone till then."""
    UNDO["hotel"] = "never"
    with suppress(ValueError):
        async with engine.session("s") as s:
            with pytest.raises(NeedsPerson):
                await roll_back_hotel(s)
            if turn == "failure":
                raise ValueError("the agent gives up")
            await engine.cancel("s")
            raise ValueError("the agent ends")
    outcome = await engine.show("s")
    assert outcome.status == "ESCALATED"
    assert [(q["step_id"], q["kind"]) for q in outcome.body["questions"]] == [(2, "undo-failed")]
    assert standing() == {"flight", "hotel"}
    outcome = await engine.resolve("s", 2, "undone")
    assert outcome.status == "COMPENSATED"
    assert outcome.report["compensated"] == [1, 2]
    assert LOG[-1] == "unbook flight"


async def test_a_cancel_while_the_undo_of_a_rollback_is_in_flight(engine: Coordinator) -> None:
    """Each undo ends once: what was called beside the roll-back is undone too, and what came first is undone last."""
    undo, call = gate("unbook b"), gate("book c")

    async def agent() -> None:
        async with engine.session("s") as s:
            await s.call(book, what="a")
            point = s.savepoint()
            await s.call(book, what="b")
            await s.call(look)
            await asyncio.gather(s.rollback(point), beside(s))

    async def beside(s: Session) -> None:
        await BEGUN["unbook b"].wait()
        await s.call(book, what="c")

    running = asyncio.create_task(agent())
    await BEGUN["book c"].wait()
    cancelling = asyncio.create_task(engine.cancel("s"))
    call.set()
    await until(lambda: "unbook c" in LOG)
    assert "unbook a" not in LOG
    undo.set()
    outcome = await cancelling
    with pytest.raises(SagaError):
        await running
    assert outcome.status == "COMPENSATED"
    assert outcome.report["clean"]
    assert sorted(LOG[-2:]) == ["unbook a", "unbook b"]
    assert LOG[-1] == "unbook a"


async def test_a_person_leaves_what_a_rollback_could_not_undo(engine: Coordinator) -> None:
    """The session stays open, its agent goes on in its next life, and the report still says what was left."""

    async def agent() -> None:
        async with engine.session("s") as s:
            await roll_back_hotel(s)
            await s.call(book, what="tent")

    UNDO["hotel"] = "never"
    with pytest.raises(NeedsPerson):
        await agent()
    outcome = await engine.resolve("s", 2, "accept", by="ada")
    assert (outcome.status, outcome.body["session"]) == ("RUNNING", "open")
    await agent()
    outcome = await engine.show("s")
    assert (outcome.status, outcome.report["left_in_place"], outcome.report["clean"]) == ("COMPLETED", [2], False)
    assert LOG == ["book flight", "book hotel", "book tent"]


async def test_an_undo_of_a_rollback_that_is_in_doubt_is_unresolved() -> None:
    """While a person is asked whether the call was undone, the report does not pass over it."""

    @tool(undo="unsend", retry=ONCE)
    async def send() -> dict:
        return {}

    @tool(retry=ONCE)
    async def unsend() -> dict:
        raise TimeoutError

    async with Coordinator.open("memory://", [send, unsend]) as engine:
        with pytest.raises(NeedsPerson):
            async with engine.session("s") as s:
                point = s.savepoint()
                await s.call(send)
                await s.rollback(point)
        report = (await engine.show("s")).report
        assert (report["unresolved"], report["clean"]) == ([1], False)


# --- an agent that goes on -----------------------------------------------------------------------------------------


async def test_no_call_is_added_on_the_way_back(engine: Coordinator) -> None:
    """From the cancel on, a call of the agent is neither journalled nor made; it hears that the session has ended."""
    undo = gate("unbook early")

    async def agent() -> None:
        async with engine.session("s") as s:
            await s.call(book, what="early")
            await BEGUN["unbook early"].wait()
            asyncio.get_running_loop().call_soon(undo.set)
            await s.call(book, what="late")

    running = asyncio.create_task(agent())
    await until(lambda: "book early" in LOG)
    outcome = await engine.cancel("s")
    with pytest.raises(SessionEnded):
        await running
    assert (outcome.status, outcome.body["session"]) == ("COMPENSATED", "closed")
    assert LOG == ["book early", "unbook early"]
    assert [record["k"] for record in await engine.history("s")].count("CallAdded") == 1


async def test_no_call_is_added_to_a_session_that_is_about_to_turn_around(engine: Coordinator) -> None:
    """A cancel that waits for a call in flight binds the agent at once."""
    first = gate("book first")

    async def agent() -> None:
        async with engine.session("s") as s:
            await asyncio.gather(s.call(book, what="first"), late(s))

    async def late(s: Session) -> None:
        await journalled(engine, "s", "CancelRequested")
        asyncio.get_running_loop().call_soon(first.set)
        await s.call(book, what="late")

    running = asyncio.create_task(agent())
    await BEGUN["book first"].wait()
    outcome = await engine.cancel("s")
    with pytest.raises(SagaError):
        await running
    assert outcome.status == "COMPENSATED"
    assert LOG == ["book first", "unbook first"]


# --- a session that rests ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["exception", "rollback"])
async def test_an_agent_that_fails_while_its_session_rests(engine: Coordinator, how: str) -> None:
    """That it failed is recorded although nobody drives the session: after the answer it is undone, not open for ever."""
    with suppress(ValueError, NeedsPerson):
        async with engine.session("s") as s:
            await s.call(book, what="flight")
            with pytest.raises(NeedsPerson):
                await s.call(book, what="silent")
            if how == "rollback":
                outcome = await s.rollback()
                assert outcome is not None
                assert outcome.status == "ESCALATED"
            else:
                raise ValueError("the agent gives up")
    outcome = await engine.show("s")
    assert (outcome.status, outcome.body["session"]) == ("ESCALATED", "closed")
    assert standing() == {"flight"}  # it happened before the call in doubt, so its undo waits
    outcome = await engine.resolve("s", 2, "not-happened")
    assert outcome.status == "COMPENSATED"
    assert outcome.report["clean"]
    assert LOG == ["book flight", "unbook flight"]


# --- calls of one turn ---------------------------------------------------------------------------------------------


async def test_calls_side_by_side_are_undone_one_by_one(engine: Coordinator) -> None:
    """In reverse of their completion, not of their making; the next undo begins when the one before has ended."""
    first, undo = gate("book first"), gate("unbook first")

    async def agent() -> None:
        async with engine.session("s") as s:
            await asyncio.gather(s.call(book, what="first"), second(s))
            raise ValueError("the agent gives up")

    async def second(s: Session) -> None:
        await s.call(book, what="second")
        first.set()

    running: asyncio.Task[Any] = asyncio.create_task(agent())
    await BEGUN["unbook first"].wait()
    assert "unbook second" not in LOG
    undo.set()
    with pytest.raises(ValueError, match="gives up"):
        await running
    assert LOG == ["book second", "book first", "unbook first", "unbook second"]


async def test_a_failed_undo_holds_back_what_had_happened_before_it(engine: Coordinator) -> None:
    """Also among calls of one turn: one of them may have overwritten what the other wrote."""
    UNDO["b"] = "never"
    with pytest.raises(ValueError, match="gives up"):
        async with engine.session("s") as s:
            await asyncio.gather(s.call(book, what="a"), s.call(book, what="b"))
            raise ValueError("the agent gives up")
    assert standing() == {"a", "b"}
    del UNDO["b"]
    outcome = await engine.resolve("s", 2, "retry")
    assert outcome.status == "COMPENSATED"
    assert LOG == ["book a", "book b", "unbook b", "unbook a"]
