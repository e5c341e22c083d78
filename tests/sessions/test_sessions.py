"""Sessions: agents that have no plan in advance, recorded, replayed after a crash, and undone in reverse."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from saga_engine import Coordinator, RetryPolicy, ToolError, tool
from saga_engine.errors import (
    CallBlocked,
    CallFailed,
    CallInvalid,
    LeaseHeld,
    NeedsPerson,
    PlanInvalid,
    SagaExists,
    SessionDiverged,
    SessionEnded,
)
from saga_engine.runtime.session import Savepoint

ONCE = RetryPolicy(max_attempts=1)
LOG: list[str] = []
FULL: set[str] = set()
GATE: dict[str, asyncio.Event] = {}


@pytest.fixture(autouse=True)
def fresh() -> None:
    LOG.clear()
    FULL.clear()
    GATE.clear()


@tool(undo="unbook", retry=ONCE)
async def book(what: str) -> dict:
    if what in GATE:
        await GATE[what].wait()
    if what in FULL:
        raise ToolError("full", error_code="full", suggestion="take another")
    LOG.append(f"book {what}")
    return {"ref": what}


@tool(retry=ONCE)
async def unbook(ref: str) -> dict:
    if ref in FULL:
        raise ToolError("too late", error_code="too_late", retryable=False)
    LOG.append(f"unbook {ref}")
    return {}


@tool(retry=ONCE)
async def send(text: str) -> dict:
    LOG.append(f"send {text}")
    return {"id": 7}


@tool(retry=ONCE)
async def unsend(id: int, why: str = "") -> dict:  # noqa: A002
    LOG.append(f"unsend {id} {why}".strip())
    return {}


@tool(effect="read", retry=ONCE)
async def look(at: str) -> dict:
    LOG.append(f"look {at}")
    return {"seen": at}


@tool
async def drop(**anything: Any) -> dict:
    LOG.append("drop")
    return {}


TOOLS = [book, unbook, send, unsend, look, drop]


async def statuses(engine: Coordinator, saga_id: str) -> list[str]:
    return [step["status"] for step in (await engine.show(saga_id)).body["steps"]]


# --- calls and ends ------------------------------------------------------------------------------------------------


async def test_a_session_completes_at_the_end_of_its_block() -> None:
    """Each call is a step, journalled and keyed; leaving the block ends the saga."""
    async with Coordinator.open("memory://", TOOLS) as engine:
        async with engine.session("trip", goal="a trip") as s:
            assert await s.call("look", at="sky") == {"seen": "sky"}
            assert await s.call(book, what="flight") == {"ref": "flight"}
            assert (await engine.show("trip")).status == "RUNNING"
        outcome = await engine.show("trip")
        assert outcome.completed
        assert [step["tool"] for step in outcome.body["steps"]] == ["look", "book"]
        assert outcome.body["session"] == "closed"
    assert LOG == ["look sky", "book flight"]


async def test_an_exception_undoes_in_reverse_what_the_session_did() -> None:
    """The agent's own error leaves the block after everything has been undone, last things first."""
    async with Coordinator.open("memory://", TOOLS) as engine:
        with pytest.raises(RuntimeError, match="changed my mind"):
            async with engine.session("trip") as s:
                await s.call(book, what="flight")
                await s.call(book, what="hotel")
                await s.call("look", at="sky")
                raise RuntimeError("changed my mind")
        outcome = await engine.show("trip")
        assert outcome.status == "COMPENSATED"
        assert outcome.body["error"]["code"] == "session-failed"
        assert outcome.report["clean"]
    assert LOG == ["book flight", "book hotel", "look sky", "unbook hotel", "unbook flight"]


async def test_a_failed_call_is_the_agents_to_deal_with() -> None:
    """A tool error that the agent mends is no failure of the session."""
    FULL.add("Hilton")
    async with Coordinator.open("memory://", TOOLS) as engine:
        async with engine.session("trip") as s:
            with pytest.raises(CallFailed) as error:
                await s.call(book, what="Hilton")
            assert (error.value.error_code, error.value.hint) == ("full", "take another")
            await s.call(book, what="Savoy")
        assert (await engine.show("trip")).completed
        assert await statuses(engine, "trip") == ["FAILED", "SUCCEEDED"]
    assert LOG == ["book Savoy"]


async def test_calls_side_by_side_are_undone_before_what_came_first() -> None:
    """Calls at the same time are steps beside each other; what came before both is undone after both."""
    async with Coordinator.open("memory://", TOOLS) as engine:
        with pytest.raises(LookupError):
            async with engine.session("trip") as s:
                await s.call(book, what="first")
                await asyncio.gather(*(s.call(book, what=name) for name in "abc"))
                await s.call(book, what="last")
                raise LookupError
    assert sorted(LOG[1:4]) == ["book a", "book b", "book c"]
    assert LOG[5] == "unbook last"
    assert sorted(LOG[6:9]) == ["unbook a", "unbook b", "unbook c"]
    assert LOG[9] == "unbook first"


async def test_an_undo_may_be_given_with_the_call() -> None:
    """By name, or with params that bind the call's own output; nothing else in them binds."""
    async with Coordinator.open("memory://", TOOLS) as engine:
        with pytest.raises(LookupError):
            async with engine.session("mail") as s:
                await s.call(
                    send, text="$output.x {$secret.HOME}", undo=("unsend", {"id": "$output.id", "why": "$secret.HOME"})
                )
                raise LookupError
    assert LOG == ["send $output.x {$secret.HOME}", "unsend 7 $secret.HOME"]


async def test_a_write_without_an_undo_must_be_meant() -> None:
    """It is refused, unless the agent says that it cannot be undone; then the report says that it stands."""
    async with Coordinator.open("memory://", TOOLS) as engine:
        with pytest.raises(LookupError):
            async with engine.session("mail") as s:
                with pytest.raises(PlanInvalid) as error:
                    await s.call(send, text="x")
                assert error.value.problems[0].code == "rollback-missing"
                await s.call(send, text="x", irreversible=True)
                await s.call(book, what="hotel")
                raise LookupError
        outcome = await engine.show("mail")
        assert outcome.status == "WAIVED"
        assert outcome.report["left_in_place"] == [1]
    assert LOG == ["send x", "book hotel", "unbook hotel"]


async def test_what_a_model_does_wrong_is_told_to_the_model_and_ends_nothing() -> None:
    """Each mistake is a ``CallFailed`` with what to mend; the loop goes on, and what was done stays done."""
    mistakes: list[tuple[Any, Any]] = [
        ("book", {"what": 1}),
        ("book", '{"what": "hotel"}'),
        ("book", ["hotel"]),
        ("book", {"what": float("nan")}),
        ("boook", {"what": "hotel"}),
    ]
    told = []
    async with Coordinator.open("memory://", TOOLS) as engine:
        async with engine.session("s") as s:
            await s.call(book, what="flight")
            for name, arguments in mistakes:
                with pytest.raises(CallFailed) as error:
                    await s.call(name, arguments)
                (problem,) = error.value.to_dict()["problems"]
                told.append((error.value.error_code, problem["path"], error.value.hint))
            await s.call(book, what="hotel")
        assert (await engine.show("s")).status == "COMPLETED"
    assert LOG == ["book flight", "book hotel"]
    assert [each[:2] for each in told] == [
        ("params-invalid", "$.params.what"),
        ("params-no-object", "$.params"),
        ("params-no-object", "$.params"),
        ("value-not-json", "$.params.what"),
        ("tool-missing", "$"),
    ]
    assert told[1][2] == "read the text of the arguments first: json.loads(arguments)"
    assert told[4][2] == "did you mean 'book'?"


async def test_why_a_saga_was_undone_is_said_wherever_it_is_shown() -> None:
    """The exception of the agent, and who cancelled and why: in the saga and in the list of sagas."""
    async with Coordinator.open("memory://", TOOLS) as engine:
        with pytest.raises(LookupError):
            async with engine.session("failed") as s:
                await s.call(book, what="hotel")
                raise LookupError("no such hotel")
        with pytest.raises(SessionEnded):
            async with engine.session("cancelled") as s:
                await s.call(book, what="hotel")
                await engine.cancel("cancelled", by="ada", note="changed her mind", wait=False)
        for name, code, message in (
            ("failed", "session-failed", "LookupError: no such hotel"),
            ("cancelled", "cancelled", "ada: changed her mind"),
        ):
            shown = (await engine.show(name)).error
            assert shown is not None
            assert (shown.code, shown.message) == (code, message)
            (head,) = [each for each in await engine.list() if each.saga_id == name]
            assert json.loads(head.summary)["error"] == {"code": code, "message": message}


async def test_wrong_calls_are_refused_before_they_are_recorded() -> None:
    """Unknown tools, invented params, unknown undos and paths that are none: nothing is journalled."""
    async with Coordinator.open("memory://", TOOLS) as engine, engine.session("s") as s:
        with pytest.raises(CallInvalid, match="no tool is called nope"):
            await s.call("nope")
        with pytest.raises(CallInvalid) as mistake:
            await s.call(book, what=1, colour="red")
        assert {each["code"] for each in mistake.value.to_dict()["problems"]} == {"params-invalid"}
        for made in (book, drop):  # an undo that is called is looked up first
            with pytest.raises(CallInvalid, match="nan is not a JSON number"):
                await s.call(made, **{"what" if made is book else "ref": float("nan")})
        with pytest.raises(PlanInvalid):
            await s.call(book, what="x", undo="nobody")
        with pytest.raises(PlanInvalid, match="called without its parameters"):
            await s.call(book, what="x", undo=drop)
        with pytest.raises(PlanInvalid, match="only reads"):
            await s.call(book, what="x", undo=("look", {"at": "$output.ref"}))
        with pytest.raises(PlanInvalid):
            await s.call(book, what="x", undo=("unbook", {"ref": "$output.[["}))
        assert await statuses(engine, "s") == []


async def test_a_function_can_be_wrapped() -> None:
    """``@s.tool``: the agent calls its functions as before, and each call is a step."""
    async with Coordinator.open("memory://", TOOLS) as engine, engine.session("s") as s:
        booked = s.tool(book)
        assert await booked("flight") == {"ref": "flight"}
        assert await statuses(engine, "s") == ["SUCCEEDED"]


async def test_guards_and_policy_hold_in_a_session() -> None:
    """A blocked call is not a failed one, and nothing was called."""
    policy = {"rules": [{"name": "no", "tools": ["send"], "verdict": "deny"}]}
    async with Coordinator.open("memory://", TOOLS, policy=policy) as engine, engine.session("s") as s:
        with pytest.raises(CallBlocked):
            await s.call(send, text="x", irreversible=True)
        assert await statuses(engine, "s") == ["BLOCKED"]
    assert LOG == []


# --- rolling back a part -------------------------------------------------------------------------------------------


async def test_a_part_is_rolled_back_and_the_session_goes_on() -> None:
    """Undone in reverse down to the savepoint; what came before stands, and another way can be tried."""
    async with Coordinator.open("memory://", TOOLS) as engine:
        async with engine.session("trip") as s:
            await s.call(book, what="flight")
            point = s.savepoint()
            await s.call(book, what="hotel")
            await s.call(book, what="car")
            await s.rollback(point)
            assert LOG[-2:] == ["unbook car", "unbook hotel"]
            await s.call(book, what="train")
        assert (await engine.show("trip")).completed
        assert await statuses(engine, "trip") == ["SUCCEEDED", "COMPENSATED", "COMPENSATED", "SUCCEEDED"]
        assert (await engine.show("trip")).report["clean"]


async def test_after_a_part_was_rolled_back_the_rest_is_undone_once() -> None:
    """What is undone already is not undone again when the session fails."""
    async with Coordinator.open("memory://", TOOLS) as engine:
        with pytest.raises(LookupError):
            async with engine.session("trip") as s:
                await s.call(book, what="flight")
                point = s.savepoint()
                await s.call(book, what="hotel")
                await s.rollback(point)
                await s.call(book, what="car")
                raise LookupError
        assert (await engine.show("trip")).status == "COMPENSATED"
    assert LOG == ["book flight", "book hotel", "unbook hotel", "book car", "unbook car", "unbook flight"]


async def test_a_whole_rollback_ends_the_session() -> None:
    """Without a savepoint everything is undone, and no more calls can be made."""
    async with Coordinator.open("memory://", TOOLS) as engine:
        with pytest.raises(SessionEnded):
            async with engine.session("trip") as s:
                await s.call(book, what="flight")
                outcome = await s.rollback()
                assert outcome is not None
                assert outcome.status == "COMPENSATED"
                await s.call(book, what="car")
    assert LOG == ["book flight", "unbook flight"]


# --- another life --------------------------------------------------------------------------------------------------


class DiedError(Exception):
    """Stands for the end of a process: nothing of the session's own end is run."""


async def live(store: str, *whats: str, die: bool = True, **options: Any) -> list[Any]:
    """One life of an agent; with ``die`` it ends without closing its session."""
    results: list[Any] = []
    async with Coordinator.open(store, TOOLS, **options) as engine:
        manager = engine.session("trip")
        s = await manager.__aenter__()
        results += [await s.call(book, what=what) for what in whats]
        if die:
            s.link.leave()
            await manager.gen.aclose()  # type: ignore[attr-defined]
        else:
            await manager.__aexit__(None, None, None)
    return results


async def test_after_a_crash_recorded_calls_return_what_is_recorded() -> None:
    """The agent runs again with the same id: nothing is called twice, and it goes on where it was."""
    await live("memory://again", "flight", "hotel")
    assert LOG == ["book flight", "book hotel"]
    results = await live("memory://again", "flight", "hotel", "car", die=False)
    assert LOG == ["book flight", "book hotel", "book car"]
    assert results == [{"ref": "flight"}, {"ref": "hotel"}, {"ref": "car"}]
    async with Coordinator.open("memory://again", TOOLS) as engine:
        assert (await engine.show("trip")).completed


async def test_a_recorded_failure_fails_again_without_a_call() -> None:
    """What was not done is recorded as well: the agent meets the same error."""
    FULL.add("flight")
    async with Coordinator.open("memory://failed", TOOLS) as engine:
        manager = engine.session("trip")
        s = await manager.__aenter__()
        with pytest.raises(CallFailed):
            await s.call(book, what="flight")
        s.link.leave()
        await manager.gen.aclose()  # type: ignore[attr-defined]
    FULL.clear()
    async with Coordinator.open("memory://failed", TOOLS) as engine, engine.session("trip") as s:
        with pytest.raises(CallFailed):
            await s.call(book, what="flight")
    assert LOG == []


async def test_an_agent_that_does_otherwise_is_told_so() -> None:
    """``strict``: nothing is changed, and the message says where it went another way."""
    await live("memory://strict", "flight", "hotel")
    async with Coordinator.open("memory://strict", TOOLS) as engine:
        with pytest.raises(SessionDiverged, match="call 2"):
            async with engine.session("trip") as s:
                await s.call(book, what="flight")
                await s.call(book, what="car")
        assert await statuses(engine, "trip") == ["SUCCEEDED", "SUCCEEDED"]
    assert LOG == ["book flight", "book hotel"]


async def test_an_agent_may_go_on_from_where_it_diverged() -> None:
    """``continue``: the calls from there on are live, and what was recorded is undone with the rest if it fails."""
    await live("memory://continue", "flight", "hotel")
    async with Coordinator.open("memory://continue", TOOLS) as engine:
        with pytest.raises(LookupError):
            async with engine.session("trip", on_divergence="continue") as s:
                await s.call(book, what="flight")
                await s.call(book, what="car")
                assert "hotel" in (s.divergence or "")
                await s.call(book, what="bike")
                raise LookupError
    assert [
        *("book flight", "book hotel", "book car", "book bike"),
        *("unbook bike", "unbook car", "unbook hotel", "unbook flight"),
    ] == LOG


async def test_an_agent_may_come_after_its_former_life() -> None:
    """``append``: the same call again is another call, and a savepoint may lie in a former life."""
    await live("memory://append", "flight", "hotel")
    async with Coordinator.open("memory://append", TOOLS) as engine:
        async with engine.session("trip", on_divergence="append") as s:
            step = await s.begin_call("book", {"what": "flight"})
            assert (step, await s.outcome(step), await s.outcome("2")) == ("3", {"ref": "flight"}, {"ref": "hotel"})
            await s.rollback(Savepoint(1))
        assert (await engine.show("trip")).completed
    assert LOG == ["book flight", "book hotel", "book flight", "unbook flight", "unbook hotel"]


async def test_an_agent_that_diverges_may_be_undone() -> None:
    """``rollback``: everything is undone, and the error says so."""
    await live("memory://undone", "flight", "hotel")
    async with Coordinator.open("memory://undone", TOOLS) as engine:
        with pytest.raises(SessionDiverged, match="COMPENSATED"):
            async with engine.session("trip", on_divergence="rollback") as s:
                await s.call(book, what="ship")
        assert (await engine.show("trip")).status == "COMPENSATED"
    assert LOG == ["book flight", "book hotel", "unbook hotel", "unbook flight"]


async def test_a_rollback_of_a_part_is_replayed_too() -> None:
    """After a crash the agent repeats its calls, its rollback, and goes on: nothing is called twice."""

    async def agent(s: Any) -> None:
        await s.call(book, what="flight")
        point = s.savepoint()
        await s.call(book, what="hotel")
        await s.rollback(point)
        await s.call(book, what="car")

    async with Coordinator.open("memory://parts", TOOLS) as engine:
        manager = engine.session("trip")
        s = await manager.__aenter__()
        await agent(s)
        s.link.leave()
        await manager.gen.aclose()  # type: ignore[attr-defined]
    before = list(LOG)
    async with Coordinator.open("memory://parts", TOOLS) as engine:
        async with engine.session("trip") as s:
            await agent(s)
        assert await statuses(engine, "trip") == ["SUCCEEDED", "COMPENSATED", "SUCCEEDED"]
    assert before == LOG


async def test_a_call_in_doubt_asks_a_person_and_the_agent_comes_back() -> None:
    """The call never answered: the session waits for a person; answered, the agent runs again and gets the output."""

    @tool(undo="unbook", retry=ONCE, timeout_s=0.01, name="slow")
    async def slow(what: str) -> dict:
        await asyncio.Event().wait()
        return {"ref": what}

    async with Coordinator.open("memory://doubt", [*TOOLS, slow]) as engine:
        with pytest.raises(NeedsPerson):
            async with engine.session("trip") as s:
                await s.call("slow", what="hotel")
        assert (await engine.show("trip")).status == "ESCALATED"
        await engine.resolve("trip", 1, "happened", output={"ref": "h"})
        async with engine.session("trip") as s:
            assert await s.call("slow", what="hotel") == {"ref": "h"}
        assert (await engine.show("trip")).completed


async def test_one_session_has_one_agent() -> None:
    """A second agent with the id of a session that is in use is refused, in this process and in others."""
    async with Coordinator.open("memory://two", TOOLS) as engine, engine.session("trip") as s:
        await s.call(book, what="flight")
        with pytest.raises(LeaseHeld):
            async with engine.session("trip"):
                pass
        async with Coordinator.open("memory://two", TOOLS) as other:
            with pytest.raises(LeaseHeld):
                async with other.session("trip"):
                    pass


async def test_an_id_with_a_plan_is_no_session_and_an_undone_one_has_ended() -> None:
    """Neither a plan's saga nor a session that was undone can be gone on with: its results stand for nothing."""
    async with Coordinator.open("memory://", TOOLS) as engine:
        await engine.run({"steps": [{"step_id": 1, "tool": "look", "params": {"at": "x"}}]}, saga_id="planned")
        with pytest.raises(SagaExists):
            async with engine.session("planned"):
                pass
        with pytest.raises(LookupError):
            async with engine.session("undone") as s:
                await s.call(book, what="flight")
                raise LookupError
        with pytest.raises(SessionEnded, match="has ended: COMPENSATED"):
            async with engine.session("undone"):
                pass


async def delivered(engine: Coordinator, *more: str) -> list[Any]:
    """A job: books a flight, tries a hotel, goes back to before it, and books a car."""
    async with engine.session("job", on_divergence="strict") as s:
        found = [await s.call(book, what="flight")]
        point = s.savepoint()
        await s.call(book, what="train")
        try:
            await s.call(book, what="hotel")
        except CallFailed as error:
            found.append(error.error_code)
            await s.rollback(point)
        found.append(await s.call(book, what="car"))
        found += [await s.call(book, what=each) for each in more]
        return found


async def test_a_job_that_is_delivered_again_gets_the_same_answers() -> None:
    """A complete session with the same id replays and returns: each result, each failure, no call, no record."""
    FULL.add("hotel")
    async with Coordinator.open("memory://again", TOOLS) as engine:
        first = await delivered(engine)
    FULL.clear()
    made = list(LOG)
    async with Coordinator.open("memory://again", TOOLS) as engine:
        length = (await engine.store.head("job")).length
        assert await delivered(engine) == first
        assert await delivered(engine) == first
        head = await engine.store.head("job")
        assert (head.length, head.status, head.owner) == (length, "COMPLETED", "")
    assert made == LOG


@pytest.mark.parametrize("policy", ["strict", "continue", "rollback"])
async def test_a_complete_session_is_not_changed_by_another_run(policy: Any) -> None:
    """Another call, a further one, fewer, an error of the agent: each is told, and what was done stays done."""
    async with Coordinator.open("memory://", TOOLS) as engine:
        async with engine.session("trip", on_divergence=policy) as s:
            await s.call(book, what="flight")
            await s.call(book, what="hotel")
        with pytest.raises((SessionDiverged, SessionEnded), match="is complete"):
            async with engine.session("trip", on_divergence=policy) as s:
                await s.call(book, what="boat")
        with pytest.raises(SessionEnded, match="is complete"):
            async with engine.session("trip", on_divergence=policy) as s:
                for what in ("flight", "hotel", "car"):
                    await s.call(book, what=what)
        if policy != "continue":
            with pytest.raises(SessionDiverged, match="made 2 calls before, and now ends after call 1"):
                async with engine.session("trip", on_divergence=policy) as s:
                    await s.call(book, what="flight")
        with pytest.raises(LookupError) as error:
            async with engine.session("trip", on_divergence=policy) as s:
                await s.call(book, what="flight")
                raise LookupError
        assert "was not undone in full (COMPLETED)" in error.value.__notes__[0]
        assert (await engine.show("trip")).status == "COMPLETED"
    assert LOG == ["book flight", "book hotel"]


async def test_a_session_whose_agent_is_gone_is_settled_and_left() -> None:
    """``resume`` settles what is in doubt and waits for nobody; ``cancel`` undoes it."""
    await live("memory://gone", "flight")
    async with Coordinator.open("memory://gone", TOOLS) as engine:
        assert (await engine.resume("trip")).status == "RUNNING"
        assert (await engine.cancel("trip")).status == "COMPENSATED"
    assert LOG == ["book flight", "unbook flight"]


async def test_an_undo_that_fails_is_a_persons() -> None:
    """The agent's error carries the note that not everything could be undone."""
    async with Coordinator.open("memory://", TOOLS) as engine:
        with pytest.raises(LookupError) as error:
            async with engine.session("trip") as s:
                await s.call(book, what="flight")
                FULL.add("flight")
                raise LookupError
        assert any("ESCALATED" in note for note in error.value.__notes__)
        assert (await engine.show("trip")).report["failed"] == [1]
