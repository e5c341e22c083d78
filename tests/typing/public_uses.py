"""Uses of every public name as the docs use them. ``mypy`` reads this file (``make types``); nothing runs it.

A line with ``type: ignore[code]`` is a wrong use that the types must refuse: ``warn_unused_ignores`` makes it an error if they
do not. ``assert_type`` says what a user's editor shows.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, assert_type

import saga_engine
from saga_engine import (
    BreakerPolicy,
    CallBlocked,
    CallFailed,
    CallResult,
    Coordinator,
    Escalation,
    Failure,
    Handle,
    NeedsPerson,
    OutcomeUnknown,
    Plan,
    PlanInvalid,
    Policy,
    Question,
    RetryPolicy,
    Rule,
    SagaError,
    SagaResult,
    Savepoint,
    Sensitive,
    Session,
    StepResult,
    SyncSession,
    Tool,
    ToolContext,
    ToolError,
    ToolRegistry,
    Undo,
    run_sync,
    select_tools,
    sync_session,
    tool,
)
from saga_engine.barriers import AsyncSqlBarrier, SqlBarrier
from saga_engine.core.views import UndoResult

# --- tools -----------------------------------------------------------------------------------------------------------


@tool
async def cancel(ref: str, idempotency_key: str) -> None:
    """Cancel a booking."""


@tool(undo=cancel, retry=RetryPolicy(max_attempts=2), breaker=BreakerPolicy(failures=5, open_s=60), rate="10/s")
async def book(item: str, ctx: ToolContext, card: Annotated[str, Sensitive] = "") -> dict[str, str]:
    """Book an item."""
    assert_type(ctx.saga_id, str)
    assert_type(ctx.deadline, float | None)
    assert_type(ctx.undoes, str | None)
    if not item:
        raise ToolError("no seat left", error_code="sold_out", retryable=False, suggestion="take a later flight")
    if not card:
        raise OutcomeUnknown("the line went dead")
    return {"ref": item}


@tool(effect="read", last_good_s=300)
def look(at: str) -> int:
    return len(at)


def plain(value: str) -> str:
    return value


async def a_tool_stays_the_function_that_it_is(context: ToolContext) -> None:
    assert_type(look("Oslo"), int)
    assert_type(await book("flight", context), dict[str, str])
    assert_type(tool(plain)("x"), str)
    assert_type(Tool(plain, name="other")("x"), str)
    look(7)  # type: ignore[arg-type]
    look("Oslo", "Rome")  # type: ignore[call-arg]
    tool(effect="writes")(plain)  # type: ignore[call-overload]
    tool(undoes=cancel)(plain)  # type: ignore[call-overload]
    RetryPolicy(attempts=2)  # type: ignore[call-arg]
    BreakerPolicy(failures="5")  # type: ignore[arg-type]
    context.attempt = 2  # type: ignore[misc]
    registry = ToolRegistry([book, cancel, look])
    assert_type(registry.names(), Sequence[str])
    select_tools("book a flight", registry, limit=5)
    select_tools(registry, "book a flight")  # type: ignore[arg-type]


# --- the coordinator -------------------------------------------------------------------------------------------------

PLAN = {"steps": [{"step_id": 1, "tool": "book", "params": {"item": "flight"}}]}
POLICY = Policy([Rule(name="no wires", verdict="deny", tools=["wire"])])
Rule(name="no wires", verdict="refuse")  # type: ignore[arg-type]
Rule("no wires", "deny")  # type: ignore[call-arg]


async def tell(question: Question) -> None:
    assert_type(question.options, tuple[str, ...])
    assert_type(question.step_id, int | str)
    question.answer  # type: ignore[attr-defined]  # noqa: B018


def tell_at_once(question: Question) -> None:
    assert_type(question.kind, str)


async def a_coordinator() -> None:
    escalation = Escalation(hooks=[tell, tell_at_once], remind_s=600)
    async with Coordinator.open("memory://", [book, cancel], policy=POLICY, on_escalation=escalation) as coordinator:
        assert_type(coordinator, Coordinator)
        outcome = await coordinator.run(PLAN, saga_id="trip-1", input={"guest": "Ada"})
        handle = await coordinator.submit(PLAN, tags=["customer:42"], detach=True)
        page = await coordinator.search(tags=["customer:42"], tool="book", limit=10)
        assert_type([head.saga_id for head in page.sagas], list[str])
        assert_type(page.cursor, str | None)
        assert_type(handle, Handle)
        assert_type(await handle.wait(), SagaResult)
        assert_type(await coordinator.cancel("trip-1", by="kim"), SagaResult)
        assert_type(await coordinator.amend("trip-1", [{"step_id": 2, "tool": "book"}]), SagaResult)
        assert_type(await coordinator.history("trip-1"), list[dict[str, Any]])
        planned = await coordinator.plan("two nights in Rome", may_use=["when", "compute"])
        assert_type(planned.plan, Plan)
        assert_type(await coordinator.plan_and_run("a trip", saga_id="t", may_use=("ask",)), SagaResult)
        await coordinator.resolve("trip-1", 1, "happened", output={"ref": "flight"}, by="kim")
        async for record in coordinator.follow("trip-1"):
            assert_type(record, dict[str, Any])
        look_at(outcome)
        await coordinator.search("customer:42")  # type: ignore[call-arg]
        await coordinator.plan("a trip", may_use=7)  # type: ignore[arg-type]
        Coordinator.open(tool=[book])  # type: ignore[call-arg]
        Coordinator.open(on_escalation=plain)  # type: ignore[arg-type]
        coordinator.run(PLAN).status  # type: ignore[attr-defined]  # noqa: B018
        await coordinator.run(PLAN, "trip-1")  # type: ignore[call-arg]
        await coordinator.run(7)  # type: ignore[arg-type]
        await coordinator.resolve("trip-1", "happened")  # type: ignore[call-arg]
        async with Coordinator.open(privacy={"k1": bytes(32)}, retention={"completed": "30d"}) as sealed:
            assert_type(await sealed.erase("trip-1", by="ann", why="asked"), Mapping[str, Any])
            assert_type((await sealed.purge({"completed": "90d"}, dry_run=True)).purged, list[str])
            await sealed.erase("trip-1", "ann")  # type: ignore[call-arg]
            await sealed.purge(7)  # type: ignore[arg-type]
        Coordinator.open(privacy={"k1": "no bytes"})  # type: ignore[dict-item]
        Coordinator.open(privacy="k1")  # type: ignore[arg-type]
        Coordinator.open(retention="30d")  # type: ignore[arg-type]
        async with Coordinator.open(on_escalation=[tell], tool_options={"book": {"timeout_s": 5}}):
            pass


def look_at(outcome: SagaResult) -> None:
    assert_type(outcome.completed, bool)
    assert_type(outcome.status, str)
    assert_type(outcome.error, Failure | None)
    step = outcome.steps.by_id("flight")
    assert_type(step, StepResult)
    calls: list[CallResult] = [step, *([step.compensation] if step.compensation else [])]
    assert_type([call.status for call in calls], list[str])
    assert_type(step.compensation, UndoResult | None)
    assert_type(step.attempts, int)
    outcome.status = "COMPLETED"  # nobody does this; a property would cost each saga a call
    outcome.completed = True  # type: ignore[misc]
    step.status = "SUCCEEDED"  # type: ignore[misc]
    step.compensation.status  # type: ignore[union-attr]  # noqa: B018
    if outcome.error is not None:
        assert_type(outcome.error.error_code, str | None)


def a_plan(plan: Plan) -> None:
    assert_type(plan.goal, str)
    plan.steps = ()  # type: ignore[misc]


# --- sessions --------------------------------------------------------------------------------------------------------


async def an_agent(coordinator: Coordinator) -> None:
    async with coordinator.session("trip-2", goal="two nights", on_divergence="continue") as session:
        assert_type(session, Session)
        await session.ask("Which?", options=["a", "b"], expires_s=60.0, on_timeout={"value": "a"})
        assert_type(await session.sleep("P1D"), None)
        await session.saga({"steps": []}, input={"city": "Lyon"})
        await session.saga(template="leg@2")
        await session.wait_for(first=["paid.card", {"event": "paid.bank", "key": 7}], timeout_s=60.0)
        await session.wait_for(all_of=["a", "b"])
        await session.wait_for("paid", key=17, timeout_s=60.0, undo=("refund", {"sum": "$output.sum"}))
        point = session.savepoint()
        assert_type(point, Savepoint)
        try:
            await session.call(book, item="flight")
            await session.call("book", {"item": "hotel"}, undo=Undo("cancel", {"ref": "$output.ref"}), timeout_s=5)
            await session.call(book, undo=("cancel", {"ref": "$output.ref"}), item="car")
        except CallBlocked as error:
            assert_type(error.code, str)
        except CallFailed as error:
            assert_type(error.hint, str | None)
            await session.rollback(point)
        session.tool(book, undo=cancel)
        session.tool(book, undone=cancel)  # type: ignore[call-overload]
        await session.rollback("start")  # type: ignore[arg-type]
        await session.call(7)  # type: ignore[arg-type]
        await session.call(book, undo=7)  # type: ignore[arg-type]
    coordinator.session(on_divergence="ignore")  # type: ignore[arg-type]
    coordinator.session(on_failure="keep", idle_s=3600, tools=[book, cancel])
    coordinator.session(on_failure="forget")  # type: ignore[arg-type]


def an_agent_that_blocks() -> None:
    with sync_session("trip-3", store="memory://", tools=[book, cancel]) as session:
        assert_type(session, SyncSession)
        session.call(book, item="flight")
        assert_type(session.tool(plain)("x"), str)
        assert_type(session.tool(effect="read")(plain)("x"), str)
        session.rollback(session.savepoint())
    sync_session("trip-4", store="memory://", on_failure="ask", idle_s=60.0)
    sync_session("trip-4", on_failure="retry")  # type: ignore[arg-type]
    SyncSession(session.session, asyncio.new_event_loop())
    SyncSession(session)  # type: ignore[arg-type, call-arg]


# --- errors and the rest ---------------------------------------------------------------------------------------------


async def count() -> int:
    return 1


def errors_say_what_to_do(needed: NeedsPerson, invalid: PlanInvalid) -> None:
    assert_type(run_sync(count()), int)
    run_sync(count)  # type: ignore[arg-type]
    error: SagaError = needed
    assert_type(error.code, str)
    assert_type(error.context, Mapping[str, Any])
    for problem in invalid.problems:
        assert_type(problem.path, str)
    assert_type(saga_engine.__version__, str)
    raise ToolError("full", code="full")  # type: ignore[call-arg]


def there_is_no_such_name() -> None:
    from saga_engine import Nonsense  # type: ignore[attr-defined]  # noqa: F401


# --- barriers --------------------------------------------------------------------------------------------------------


def a_barrier_gives_the_work_its_connection(barrier: SqlBarrier, ctx: ToolContext) -> object:
    barrier.create_table()
    barrier.undo(ctx.undoes, lambda db, booked: [db, booked])
    barrier.call(ctx.idempotency_key, lambda: 1)  # type: ignore[arg-type, misc]
    assert_type(barrier.purge(3600), int)
    return barrier.probe(ctx.idempotency_key) or barrier.call(ctx.idempotency_key, lambda db: [db])


async def an_asynchronous_barrier_awaits_the_work(barrier: AsyncSqlBarrier, ctx: ToolContext) -> object:
    async def work(db: object) -> int:
        return 1

    await barrier.call(ctx.idempotency_key, lambda db: 1)  # type: ignore[arg-type, return-value]
    return await barrier.call(ctx.idempotency_key, work)
