"""What an exception means that is no statement of its tool: the same at whatever door the call is made."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest

from saga_engine import CallFailed, Coordinator, NeedsPerson, RetryPolicy, SagaResult, ToolContext, ToolError, tool
from saga_engine.api import Engine
from saga_engine.core import transitions as t
from saga_engine.core.states import SAGA_FINAL
from saga_engine.errors import RuntimeUnsupported, SagaNotFound
from tests.engines.conftest import Opening
from tests.engines.raising import FAST, FOREIGN, UNHURRIED, WHEN, Remote
from tests.gateway.agents import agent

FLIGHT = {"step_id": "flight", "tool": "book", "params": {"what": "flight"}}
HOTEL = {"step_id": "hotel", "tool": "book", "params": {"what": "hotel"}}
END = {"step_id": "end", "tool": "fail", "params": {}}
#: The doors that both runtimes have: a step, a fallback, a child saga, a list, and each on the way back.
PLANS: dict[str, list[dict[str, Any]]] = {
    "plan": [FLIGHT, HOTEL],
    "fallback": [FLIGHT, {**END, "step_id": "hotel", "fallback": [{"tool": "book", "params": {"what": "hotel"}}]}],
    "child": [FLIGHT, {"step_id": "trip", "saga": {"plan": {"steps": [HOTEL]}}}],
    "list": [FLIGHT, {"step_id": "all", "tool": "book", "params": {"what": "$item"}, "each": {"of": ["hotel"]}}],
    "beside a failure": [{**HOTEL, "depends_on": []}, {**END, "depends_on": []}],
}
SETTLES = ("key", "undo", "probe")


async def at_rest(engine: Engine, name: str, door: str) -> SagaResult:
    """The end of a saga; or that of its child, if an operator is asked there: the parent waits for the answer."""
    if door != "child":
        return await engine.run({"steps": PLANS[door]}, saga_id=name)
    await engine.submit({"steps": PLANS[door]}, saga_id=name)
    async with asyncio.timeout(60):
        while True:
            for saga_id in (name, f"{name}.trip"):
                with contextlib.suppress(SagaNotFound):
                    found = await engine.show(saga_id)
                    if found.status == t.ESCALATED or (saga_id == name and found.status in SAGA_FINAL):
                        return found
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("settles", ["key", "undo"])
@pytest.mark.parametrize("when", ["after", "once"])
@pytest.mark.parametrize("door", PLANS)
async def test_no_door_takes_an_exception_for_a_refusal(
    opened: Opening, name: str, door: str, when: str, settles: str, request: pytest.FixtureRequest
) -> None:
    """Whatever was raised, and whenever: nothing stands in a saga that is clean, and nothing is missing in one that completed."""
    in_temporal = request.node.callspec.params["opened"] == "temporal"
    remote = Remote(when, "RuntimeError", settles, UNHURRIED if in_temporal else FAST)
    if door in ("child", "list") and in_temporal:
        with pytest.raises(RuntimeUnsupported):
            async with opened(remote.tools()) as engine:
                await engine.run({"steps": PLANS[door]}, saga_id=name)
        return
    async with opened(remote.tools()) as engine:
        outcome = await at_rest(engine, name, door)
    assert remote.lies(outcome.status, outcome.report, 2) == []
    if when == "once" and door != "beside a failure":
        assert outcome.status == t.COMPLETED, "the same key tells that it happened"
    if settles != "key" and door == "plan":
        assert outcome.status in (t.COMPLETED, t.COMPENSATED), "nobody needs to be asked"


@pytest.mark.parametrize("error", FOREIGN)
@pytest.mark.parametrize("settles", SETTLES)
async def test_no_exception_is_taken_for_a_refusal(error: str, settles: str) -> None:
    """No class, and no way to raise it, makes an exception a statement: after the effect the booking is never forgotten."""
    remote = Remote("after", error, settles)
    async with Coordinator.open("memory://", remote.tools(), durability="relaxed") as engine:
        outcome = await engine.run({"steps": PLANS["plan"]}, saga_id="s")
        asked = [record["error"] for record in await engine.history("s") if record["k"] == "StepEscalated"]
    assert remote.lies(outcome.status, outcome.report, 2) == []
    if settles == "key":
        assert (outcome.status, remote.raised) == (t.ESCALATED, 2), "one repeat under the same key, then a person"
        assert asked[0]["message"], "the question shows the exception"


@pytest.mark.parametrize("settles", SETTLES)
@pytest.mark.parametrize("when", WHEN)
async def test_no_session_takes_an_exception_for_a_refusal(when: str, settles: str) -> None:
    """An agent's own call is settled as a plan's: it is told of no failure while something may stand."""
    remote = Remote(when, "an SDK's", settles)
    async with Coordinator.open("memory://", remote.tools(), durability="relaxed") as engine:
        with pytest.raises((ToolError, NeedsPerson, CallFailed)):
            async with engine.session("s") as session:
                await session.call("book", what="flight")
                await session.call("book", what="hotel")
                raise ToolError("the agent gives up")
        saga = await engine.show("s")
    assert remote.lies(saga.status, saga.report, 2) == []
    if settles == "key" and when != "once":
        assert saga.status == t.ESCALATED


@pytest.mark.parametrize("settles", SETTLES)
@pytest.mark.parametrize("when", WHEN)
async def test_no_gateway_takes_an_exception_for_a_refusal(when: str, settles: str) -> None:
    """An MCP client that rolls back is told 'clean' only if nothing stands."""
    remote = Remote(when, "RuntimeError", settles)
    async with Coordinator.open("memory://", remote.tools(), durability="relaxed") as engine, agent(engine) as it:
        await it.done("book", what="flight")
        await it.call("book", what="hotel")
        told = (await it.call("saga_rollback")).structured_content
    assert told is not None
    assert not (told["clean"] and remote.standing)


@pytest.mark.parametrize("raised", ["unknown", "not-done", None])
@pytest.mark.parametrize("error", FOREIGN)
async def test_a_tool_says_what_its_own_exceptions_mean(raised: Any, error: str) -> None:
    """With ``raised="not-done"`` what the tool's module raises outright is a refusal, and nothing else is."""
    outright = error in ("RuntimeError", "ValueError", "an SDK's")

    async def book(idempotency_key: str) -> None:
        FOREIGN[error]()

    book.__module__ = FOREIGN["RuntimeError"].__module__
    declared = tool(book, raised=raised, retry=FAST, undo="cancel", undo_params={"ref": "$output.ref"})

    @tool
    async def cancel(ref: str) -> None: ...

    async with Coordinator.open("memory://", [declared, cancel], durability="relaxed") as engine:
        outcome = await engine.run({"steps": [{"step_id": 1, "tool": "book"}]})
    assert outcome.status == (t.COMPENSATED if raised == "not-done" and outright else t.ESCALATED)


@pytest.mark.parametrize("raises", ["ValueError", "TimeoutError", "KeyError"])
@pytest.mark.parametrize("door", ["step", "way back"])
async def test_what_another_made_is_never_undone_for_safety(opened: Opening, name: str, raises: str, door: str) -> None:
    """``create_user("bob")`` that says 'exists already' does not delete last year's bob, whatever the tool wants."""
    users = {"bob": "last year's"}
    kind: Any = {"ValueError": ValueError, "TimeoutError": TimeoutError, "KeyError": KeyError}[raises]

    @tool(undo="delete_user", on_doubt="undo", unknown=ValueError, retry=RetryPolicy(max_attempts=1))
    async def create_user(name: str, idempotency_key: str) -> None:
        if name in users:
            raise kind("exists already")
        users[name] = "new"

    @tool(tolerates_absence=True)
    async def delete_user(name: str) -> None:
        users.pop(name, None)

    @tool(undo="delete_user", undo_params={"name": "$key"})
    async def fail() -> None:
        raise ToolError("no", error_code="no", retryable=False)

    user = {"step_id": "user", "tool": "create_user", "params": {"name": "bob"}, "depends_on": []}
    steps = [user] if door == "step" else [user, {"step_id": "end", "tool": "fail", "depends_on": []}]
    async with opened([create_user, delete_user, fail]) as engine:
        outcome = await engine.run({"steps": steps}, saga_id=name)
    assert users == {"bob": "last year's"}
    assert (outcome.status, outcome.report["unresolved"]) == (t.ESCALATED, ["user"])


async def test_a_probe_is_no_evidence_that_an_object_was_not_there(opened: Opening, name: str) -> None:
    """It said that the first attempt did not happen. Whose bob is there when the second one raises it does not know."""
    users = {"bob": "last year's"}
    asked: list[int] = []
    tries: list[int] = []

    @tool(effect="read", retry=RetryPolicy(max_attempts=1))
    async def find(idempotency_key: str) -> None:
        asked.append(1)
        if len(asked) > 1:
            raise RuntimeError("upstream error")

    @tool(undo="delete_user", on_doubt="undo", probe=find, retry=FAST)
    async def create_user(name: str, idempotency_key: str) -> None:
        tries.append(1)
        raise ConnectionResetError("the line is dead") if len(tries) == 1 else ValueError("exists already")

    @tool(tolerates_absence=True)
    async def delete_user(name: str) -> None:
        users.pop(name, None)

    async with opened([create_user, delete_user]) as engine:
        outcome = await engine.run(
            {"steps": [{"step_id": "user", "tool": "create_user", "params": {"name": "bob"}}]}, saga_id=name
        )
    assert (outcome.status, len(tries) > 1) == (t.ESCALATED, True)
    assert users == {"bob": "last year's"}


async def test_what_was_surely_not_done_is_not_undone(opened: Opening, name: str) -> None:
    """A refusal that the tool states ends the step; its undo is not called, even if it cancels by the key."""
    called: list[str] = []

    @tool(undo="cancel", undo_params={"ref": "$key"}, on_doubt="undo", retry=FAST)
    async def book(idempotency_key: str) -> None:
        raise ToolError("full", error_code="full", retryable=False)

    @tool(tolerates_absence=True)
    async def cancel(ref: str) -> None:
        called.append(ref)

    async with opened([book, cancel]) as engine:
        outcome = await engine.run({"steps": [{"step_id": 1, "tool": "book"}]}, saga_id=name)
    assert (outcome.status, outcome.report["clean"], called) == (t.COMPENSATED, True, [])


async def test_a_read_that_raises_is_read_again(opened: Opening, name: str) -> None:
    """It has no effect, and nobody said that it is useless: it is read again within its attempts."""
    reads: list[int] = []

    @tool(effect="read", retry=FAST)
    async def look() -> dict[str, int]:
        reads.append(1)
        if len(reads) < 3:
            raise RuntimeError("upstream error")
        return {"reads": len(reads)}

    async with opened([look]) as engine:
        outcome = await engine.run({"steps": [{"step_id": 1, "tool": "look"}]}, saga_id=name)
    assert (outcome.status, len(reads)) == (t.COMPLETED, 3)


@pytest.mark.parametrize("told", [True, False], ids=["told the key", "told nothing"])
async def test_an_undo_without_parameters_is_certain_only_if_it_is_told_the_key(told: bool) -> None:
    """What knows the call that it undoes touches nothing else; what switches off whatever is on may be somebody else's."""
    undone: list[str] = []

    @tool(undo="switch_off", on_doubt="undo", unknown=ValueError, retry=RetryPolicy(max_attempts=1))
    async def switch_on(idempotency_key: str) -> None:
        raise ValueError("it is on already")

    async def by_key(ctx: ToolContext) -> None:
        undone.append(ctx.undoes)

    async def by_nothing() -> None:
        undone.append("whatever is on")

    switch_off = tool(by_key if told else by_nothing, name="switch_off", tolerates_absence=True)
    async with Coordinator.open("memory://", [switch_on, switch_off], durability="relaxed") as engine:
        outcome = await engine.run({"steps": [{"step_id": 1, "tool": "switch_on"}]}, saga_id="s")
    assert outcome.status == (t.COMPENSATED if told else t.ESCALATED)
    assert [key.startswith("s:1:f:") for key in undone] == ([True] if told else [])
