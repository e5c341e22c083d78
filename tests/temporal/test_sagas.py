"""Whole sagas in Temporal: real server, real SDK, a worker in this process."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import pytest

from saga_engine import Coordinator, RetryPolicy, ToolContext, ToolError, tool
from saga_engine.core import machine
from saga_engine.core.codec import decode
from saga_engine.core.messages import Message
from saga_engine.core.state import State
from saga_engine.errors import (
    AmendRefused,
    CancelRefused,
    DecisionRefused,
    PlanInvalid,
    RuntimeUnavailable,
    SagaExists,
    SagaNotFound,
)
from tests.kill.polling import eventually
from tests.kill.world import FAST
from tests.temporal.conftest import LEASE_S, Place
from tests.temporal.outside import Outside, facts, step
from tests.temporal.server import detecting_deadlocks


@pytest.fixture
def outside(tmp_path) -> Outside:
    return Outside(tmp_path / "world.db")


def about(value: str, op: str, to: Any) -> dict[str, Any]:
    """A condition."""
    return {"value": value, "op": op, "to": to}


#: Every kind of step that calls no tool and waits for nobody; one that is skipped, one that fails, one that stands.
CONDITIONS = [
    step(1),
    {"step_id": 2, "compute": {"join": ["i", {"add": ["0.1", "0.2"]}]}},
    step(3, when=[about("$output.step_2", "==", "i0.3")]),
    step(4, when=[about("$output.step_2", "!=", "i0.3")]),
    step(5, "refuse", on_error="continue"),
    {"step_id": 6, "sleep": 0.05},
    {"step_id": 7, "tool": "post", "params": {"text": "$output.step_2"}, "kind": "irreversible"},
]
BOUND = step(2, params={"item": "$output.step_1.ref"})
PLANS = {
    "completes": [step(1), BOUND, step(3)],
    "compensates": [step(1), BOUND, step(3, "refuse")],
    "graph": [
        step(1, depends_on=[]),
        step(2, depends_on=[1]),
        step(3, depends_on=[1]),
        step(4, "refuse", depends_on=[2, 3]),
    ],
    "probed": [step(1), step(2, "silent"), step(3, "refuse")],
    "finally": [step(1), step(2, "refuse")],
    "conditions": [*CONDITIONS, step(8, params={"item": {"$first": ["$output.step_4.ref", "$output.step_2"]}})],
    "refused": [*CONDITIONS, step(8, failed_when=[about("$output.step_8.ref", "==", "i8")])],
    "undecidable": [*CONDITIONS, step(8, when=[about("$output.step_1.ref", ">", 1)])],
}
#: Run at the end of the plan of that name: one happens, and one stays in doubt.
FINALLY = [
    {"step_id": "told", "tool": "book", "params": {"item": "{$end.status}: {$end.reason}"}},
    {"step_id": "lost", "tool": "lose", "params": {"item": "y"}},
]


@pytest.mark.parametrize("name", PLANS)
async def test_the_same_journal_as_in_process(name: str, place: Place, outside: Outside, tmp_path) -> None:
    """The same plan makes the same records in Temporal as in the engine's own runtime, the world agrees, and the run replays."""
    plan = {"steps": PLANS[name], **({"finally": FINALLY} if name == "finally" else {})}
    saga_id = place.saga_id(name)
    async with place.both(outside.tools) as coordinator:
        outcome = await coordinator.run(plan, saga_id=saga_id)
        there = [decode(data) for data in await coordinator.sagas.journal(saga_id, patience_s=5)]
        await place.replayed(coordinator, saga_id)
    assert outside.ledger.compare(outcome, plan) == []
    other = Outside(tmp_path / "other.db")
    async with Coordinator.open("memory://", other.tools, durability="relaxed") as local:
        here = await local.run(plan, saga_id=saga_id)
        records = [decode(data) for data in await local.store.read(saga_id)]
    assert outcome.status == here.status
    if name == "graph":  # which of two branches answers first is nobody's promise
        key = repr
        assert sorted(facts(there), key=key) == sorted(facts(records), key=key)
    else:
        assert facts(there) == facts(records)


async def test_an_undo_of_several_calls(place: Place) -> None:
    """Its calls are made and recorded as in process: in order, one for each item, each with its own key and retries."""
    made: list[tuple[str, str]] = []
    busy: list[str] = []

    @tool
    async def order() -> dict:
        return {"id": "o1", "items": [{"name": "a"}, {"name": "b"}]}

    @tool(retry=FAST)
    async def free(name: str, ctx: ToolContext) -> dict:
        if name in busy:
            busy.remove(name)
            raise ToolError("busy", error_code="busy", retryable=True)
        made.append((name, ctx.idempotency_key))
        return {"freed": name}

    @tool(effect="read")
    async def refuse() -> dict:
        raise ToolError("no rooms", error_code="full", retryable=False)

    tools = [order, free, refuse]
    then = [{"tool": "free", "params": {"name": "$output.step_1.id"}}]
    each = {"tool": "free", "params": {"name": "$item.name"}, "each": "$output.step_1.items", "then": then}
    plan = {"steps": [{"step_id": 1, "tool": "order", "rollback": each}, {"step_id": 2, "tool": "refuse"}]}
    saga_id = place.saga_id("several")
    busy.append("b")
    async with place.both(tools) as coordinator:
        outcome = await coordinator.run(plan, saga_id=saga_id)
        there = [decode(data) for data in await coordinator.sagas.journal(saga_id, patience_s=5)]
        await place.replayed(coordinator, saga_id)
    assert [name for name, _ in made] == ["a", "b", "o1"]
    assert len({key for _, key in made}) == 3
    busy.append("b")
    async with Coordinator.open("memory://", tools, durability="relaxed") as local:
        here = await local.run(plan, saga_id=saga_id)
        records = [decode(data) for data in await local.store.read(saga_id)]
    assert outcome.status == here.status == "COMPENSATED"
    assert facts(there) == facts(records)
    assert [name for name, _ in made[3:]] == ["a", "b", "o1"]


async def test_a_saga_that_sleeps_is_continued_and_cancelled(place: Place, outside: Outside) -> None:
    """A sleep of days is one timer of the workflow: runs that continue others keep it, and a cancel ends it."""
    plan = {"steps": [*CONDITIONS, step(8), {"step_id": 9, "sleep": "P2D"}, step(10)]}
    # With a cache: a worker without one puts aside one task of a run that it gives up, so a task that arrives beside the
    # queries of ``follow`` is lost, and the server offers it again after ten seconds (temporalio/sdk-rust 716).
    async with place.both(outside.tools, events=30, patience_s=LEASE_S, cached=10) as coordinator:
        saga_id = (await coordinator.submit(plan, saga_id=place.saga_id("sleep"))).saga_id
        async for record in coordinator.follow(saga_id):
            if record["k"] == "StepWaiting" and record["step"] == "9":
                break
        outcome = await coordinator.cancel(saga_id, by="ada")
        histories = await place.replayed(coordinator, saga_id)
    assert len(histories) > 1
    assert (outcome.status, outcome.report["left_in_place"]) == ("WAIVED", [7])
    assert [step["status"] for step in outcome.body["steps"][-2:]] == ["SKIPPED", "SKIPPED"]
    assert outside.ledger.compare(outcome, plan) == []
    assert [line.tool for line in outside.ledger.standing()] == ["post"]


async def test_retries_are_records_and_timers(place: Place, outside: Outside) -> None:
    """A retry is journalled by the engine; Temporal repeats nothing by itself."""
    outside.fails = 2
    async with place.both(outside.tools) as coordinator:
        outcome = await coordinator.run({"steps": [step(1)]}, saga_id=place.saga_id("r"))
        kinds = [record["k"] for record in await coordinator.history(outcome.saga_id)]
        await place.replayed(coordinator, outcome.saga_id)
    assert outcome.completed
    assert kinds.count("StepRetryScheduled") == 2
    assert outcome.body["steps"][0]["attempts"] == 3
    assert [line.attempt for line in outside.ledger.lines(what="sent")] == [1, 2, 3]


async def test_a_person_answers(place: Place, outside: Outside) -> None:
    """A call in doubt that nothing can settle becomes a question; people are told; the answer is checked like anywhere."""
    told: list[Any] = []
    plan = {"steps": [step(1), step(2, "lose"), step(3)]}
    async with place.both(outside.tools, on_escalation=told.append) as coordinator:
        outcome = await coordinator.run(plan, saga_id=place.saga_id("p"))
        assert outcome.status == "ESCALATED"
        assert [(each.kind, each.step_id) for each in told] == [("in-doubt", 2)]
        with pytest.raises(DecisionRefused, match="undone"):
            await coordinator.resolve(outcome.saga_id, 2, "undone")
        with pytest.raises(DecisionRefused, match="nothing is asked"):
            await coordinator.resolve(outcome.saga_id, 1, "happened")
        with pytest.raises(DecisionRefused, match="needs an output"):
            await coordinator.resolve(outcome.saga_id, 2, "happened")
        outcome = await coordinator.resolve(outcome.saga_id, 2, "happened", output={"ref": "i2"}, by="ada")
        assert outcome.completed
        with pytest.raises(DecisionRefused):
            await coordinator.resolve(outcome.saga_id, 2, "not-happened")
        await place.replayed(coordinator, outcome.saga_id)
    assert outside.ledger.compare(outcome, plan) == []


async def test_a_plan_asks(place: Place, outside: Outside) -> None:
    """A question of the plan waits in the workflow; its answer is checked against the schema and is the step's output."""
    asks = {"step_id": 1, "ask": {"question": "How many?", "schema": {"type": "integer"}, "to": "{$input.who}"}}
    late = {"ask": {"question": "Still?", "options": ["yes"], "expires_s": 1, "on_timeout": {"value": "yes"}}}
    plan = {"steps": [asks, {"step_id": 2, **late}, step(3)], "input": {"who": "Finance"}}
    async with place.both(outside.tools) as coordinator:
        outcome = await coordinator.run(plan, saga_id=place.saga_id("ask"))
        assert outcome.status == "ESCALATED"
        assert [each["to"] for each in (await coordinator.show(outcome.saga_id)).body["questions"]] == ["Finance"]
        with pytest.raises(DecisionRefused, match="does not fit"):
            await coordinator.resolve(outcome.saga_id, 1, "answer", output="two")
        await coordinator.resolve(outcome.saga_id, 1, "answer", output=2, by="ada", wait=False)
        while not outcome.completed:
            outcome = await coordinator.wait(outcome.saga_id)
        assert outcome.output(1) == {"answer": 2, "by": "ada", "note": ""}
        assert outcome.output(2) == {"answer": "yes", "by": "", "note": "", "expired": True}
        await place.replayed(coordinator, outcome.saga_id)


async def test_the_saga_itself_refuses(place: Place, outside: Outside) -> None:
    """Whoever passes by the client's checks is refused by the workflow, and nothing of it gets into the history."""
    from saga_engine.core.messages import Message

    async with place.both(outside.tools) as coordinator:
        outcome = await coordinator.run({"steps": [step(1, "lose")]}, saga_id=place.saga_id("v"))
        assert outcome.status == "ESCALATED"
        before = await coordinator.history(outcome.saga_id)
        wrong = Message(id="x", kind="resolve", step="1", decision="approve")
        with pytest.raises(DecisionRefused, match="no answer"):
            await coordinator.sagas.send(outcome.saga_id, wrong, wait_s=5)
        assert await coordinator.history(outcome.saga_id) == before
        # The same message twice is one message.
        right = Message(id="y", kind="resolve", step="1", decision="accept", by="ada")
        await coordinator.sagas.send(outcome.saga_id, right, wait_s=5)
        outcome = await coordinator.wait(outcome.saga_id)
        assert outcome.status == "WAIVED"
        kinds = [record["k"] for record in await coordinator.history(outcome.saga_id)]
        assert kinds.count("QuestionResolved") == 1


async def test_cancel(place: Place, outside: Outside) -> None:
    """A cancel awaits the call in flight, then undoes. Saying it again changes nothing; a saga that has ended refuses it."""
    plan = {"steps": [step(1), step(2, "wait"), step(3)]}
    async with place.both(outside.tools) as coordinator:
        saga_id = (await coordinator.submit(plan, saga_id=place.saga_id("c"))).saga_id
        await outside.begun.wait()
        outcome = await coordinator.cancel(saga_id, by="ada", note="off", wait=False)
        assert outcome.status == "RUNNING"
        assert (await coordinator.cancel(saga_id, wait=False)).status == "RUNNING"
        outside.gate.set()
        outcome = await coordinator.wait(saga_id)
        assert outcome.status == "COMPENSATED"
        assert (await coordinator.cancel(saga_id)).status == "COMPENSATED"
        assert [record["k"] for record in await coordinator.history(saga_id)].count("CancelRequested") == 1
        await place.replayed(coordinator, saga_id)
        ended = await coordinator.run({"steps": [step(1)]}, saga_id=place.saga_id("e"))
        with pytest.raises(CancelRefused, match="has ended"):
            await coordinator.cancel(ended.saga_id)
    assert outside.ledger.compare(outcome, plan) == []
    assert [line.saga_id for line in outside.ledger.standing()] == [ended.saga_id]


async def test_cancelling_the_workflow_undoes_the_saga(place: Place, outside: Outside) -> None:
    """Temporal's own cancel is a cancel of the saga: what happened is undone, and the call in flight is awaited."""
    plan = {"steps": [step(1), step(2, "wait"), step(3)]}
    async with place.both(outside.tools) as coordinator:
        saga_id = (await coordinator.submit(plan, saga_id=place.saga_id("w"))).saga_id
        await outside.begun.wait()
        await coordinator.sagas.client.get_workflow_handle(saga_id).cancel()

        async def cancelled() -> bool:
            return any(record["k"] == "CancelRequested" for record in await coordinator.history(saga_id))

        await eventually(cancelled, "the cancel to be taken in")
        outside.gate.set()
        outcome = await coordinator.wait(saga_id)
        await place.replayed(coordinator, saga_id)
    assert outcome.status == "COMPENSATED"
    assert outside.ledger.compare(outcome, plan) == []


async def test_an_id_is_one_saga(place: Place, outside: Outside) -> None:
    """The same id with the same plan is the saga that exists, under way or ended; with another plan it is refused."""
    plan = {"steps": [step(1)], "task_id": place.saga_id("one")}
    async with place.both(outside.tools) as coordinator:
        first = await coordinator.run(plan)
        again = await coordinator.run(plan)
        assert first.to_dict() == again.to_dict()
        with pytest.raises(SagaExists):
            await coordinator.run({**plan, "steps": [step(1), step(2)]})
        with pytest.raises(SagaNotFound):
            await coordinator.show("nobody")
        with pytest.raises(SagaNotFound):
            await coordinator.cancel("nobody")
        with pytest.raises(PlanInvalid):
            await coordinator.submit({"steps": [step(1, "nothing")]})
    assert len(outside.ledger.lines(what="applied")) == 1


async def test_a_plan_is_checked_and_not_submitted(place: Place, outside: Outside) -> None:
    """All problems at once, without a worker and without a saga; what passes can be submitted."""
    async with place.client(outside.tools) as coordinator:
        found = coordinator.check({"oops": 1, "steps": [step(1, "nothing"), step(2)]})
        assert {"field-unknown", "tool-unknown"} <= {problem.code for problem in found}
        assert coordinator.check({"steps": [step(1)]}) == []
        with pytest.raises(PlanInvalid):
            await coordinator.submit({"oops": 1, "steps": [step(1, "nothing"), step(2)]})


async def test_steps_are_added(place: Place, outside: Outside) -> None:
    """Steps that are added run with the rest, on declarations that came with them, and are checked first."""
    plan = {"steps": [step(1, "wait")]}
    async with place.both(outside.tools) as coordinator:
        saga_id = (await coordinator.submit(plan, saga_id=place.saga_id("a"))).saga_id
        await outside.begun.wait()
        with pytest.raises(PlanInvalid, match="nothing"):
            await coordinator.amend(saga_id, [step(2, "nothing")])
        await coordinator.amend(saga_id, [step(2, params={"item": "$output.step_1.ref"})], by="ada", wait=False)
        outside.gate.set()
        outcome = await coordinator.wait(saga_id)
        assert outcome.completed
        assert outcome.output(2) == {"ref": "i1"}
        with pytest.raises(AmendRefused):
            await coordinator.amend(saga_id, [step(3)])
        await place.replayed(coordinator, saga_id)


async def test_what_ended_needs_no_worker(place: Place, outside: Outside) -> None:
    """An ended saga is shown with no worker there; one under way says that none answers, and goes on with the next one."""
    plan = {"steps": [step(1), step(2, "lose")]}
    async with place.client(outside.tools) as coordinator, place.client(patience_s=0.5) as hasty:
        async with place.worker(outside.tools):
            ended = await coordinator.run({"steps": [step(1)]}, saga_id=place.saga_id("e"))
            asked = await coordinator.run(plan, saga_id=place.saga_id("u"))
        assert (await coordinator.show(ended.saga_id)).to_dict() == ended.to_dict()
        assert len(await coordinator.trace(ended.saga_id)) > 3
        with pytest.raises(RuntimeUnavailable, match="no worker"):
            await hasty.show(asked.saga_id)
        async with place.worker(outside.tools):
            outcome = await coordinator.resolve(asked.saga_id, 2, "happened", output={"ref": "i2"})
    assert outcome.completed


async def test_a_worker_drains(place: Place, outside: Outside) -> None:
    """A worker that is stopped awaits its calls in flight, and what came of them is known."""
    async with place.client(outside.tools) as coordinator:
        async with place.worker(outside.tools) as stopped:
            saga_id = (
                await coordinator.submit({"steps": [step(1, "wait"), step(2)]}, saga_id=place.saga_id("d"))
            ).saga_id
            await outside.begun.wait()
            stopped.set()
            asyncio.get_running_loop().call_later(0.2, outside.gate.set)
        async with place.worker(outside.tools):
            outcome = await coordinator.wait(saga_id)
        kinds = [record["k"] for record in await coordinator.history(saga_id)]
    assert outcome.completed
    assert "StepInDoubt" not in kinds


async def test_a_message_that_no_worker_takes_is_an_error_with_a_hint(place: Place, outside: Outside) -> None:
    """The SDK has one word for 'timed out' and 'cancelled'; whoever waits hears which, and a cancel is a cancel."""
    plan = {"steps": [{"step_id": 1, "tool": "book", "params": {"item": "a"}}]}
    saga_id = place.saga_id("unheard")
    async with place.client(outside.tools) as coordinator:
        await coordinator.submit(plan, saga_id=saga_id)
        message = Message(id="m1", kind="cancel")
        with pytest.raises(RuntimeUnavailable, match="no worker"):
            await coordinator.sagas.send(saga_id, message, wait_s=0.5)
        sending = asyncio.create_task(coordinator.sagas.send(saga_id, message, wait_s=60))
        await asyncio.sleep(0)
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending


async def test_a_cancel_that_comes_before_the_first_turn_is_heard(place: Place, outside: Outside) -> None:
    """Temporal hands a message to a workflow before it runs; sent once more, it is the same message."""
    plan = {"steps": [{"step_id": 1, "tool": "book", "params": {"item": "a"}}]}
    saga_id = place.saga_id("early")
    async with place.client(outside.tools) as coordinator:
        await coordinator.submit(plan, saga_id=saga_id)
        message = Message(id="m1", kind="cancel")
        with pytest.raises(RuntimeUnavailable):
            await coordinator.sagas.send(saga_id, message, wait_s=0.5)
        async with place.worker(outside.tools):
            await coordinator.sagas.send(saga_id, message, wait_s=60)
            assert (await coordinator.wait(saga_id)).status == "COMPENSATED"
    assert outside.ledger.lines(saga_id) == []


async def test_an_observer_that_raises_ends_no_wait(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    """A listener's fault is logged, the other listeners hear of each record, and the wait returns the saga's end."""
    heard: list[str] = []

    def broken(saga_id: str, record: Any) -> None:
        raise RuntimeError("a listener's fault")

    @tool(effect="read", retry=RetryPolicy(max_attempts=1))
    async def look(rooms: dict) -> dict:
        return {"ref": rooms["oslo"]}

    saga_id = place.saga_id("heard")
    plan = {"steps": [{"step_id": 1, "tool": "look", "params": {"rooms": {}}}]}
    observers = [broken, lambda _, record: heard.append(type(record).__name__)]
    async with place.both([look], observers=observers) as coordinator:
        outcome = await coordinator.run(plan, saga_id=saga_id)
    assert outcome.status == "COMPENSATED"
    assert (heard[0], heard[-1]) == ("SagaStarted", "SagaCompensated")
    faults = [each for each in caplog.records if "observer" in each.getMessage() and each.exc_info]
    assert len(faults) == len(heard)
    (defect,) = [each for each in caplog.records if each.name == "saga_engine.tools"]
    assert (defect.saga_id, defect.tool) == (saga_id, "look")  # type: ignore[attr-defined]
    assert outcome.body["steps"][0]["traceback"].endswith("KeyError")


async def test_a_turn_that_the_sdk_interrupts_is_played_again(
    place: Place, outside: Outside, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """A turn that takes too long, as on a starved machine, costs time alone: no call is lost, and none is made twice."""
    plan = {"steps": PLANS["compensates"]}
    saga_id, decide, starved = place.saga_id("starved"), machine.decide, []

    def slow(state: State, *args: Any) -> Any:
        if not starved and outside.ledger.lines(saga_id):
            starved.append(state.status)
            while True:  # until the SDK interrupts it
                pass
        return decide(state, *args)

    monkeypatch.setattr(machine, "decide", slow)
    gc.disable()  # another turn may take as long on a loaded machine: no callback of a collection swallows that
    request.addfinalizer(gc.enable)
    with detecting_deadlocks(2.0):
        async with place.both(outside.tools) as coordinator:
            outcome = await coordinator.run(plan, saga_id=saga_id)
            await place.replayed(coordinator, saga_id)
    assert starved
    assert outcome.status == "COMPENSATED"
    assert outside.ledger.compare(outcome, plan) == []
