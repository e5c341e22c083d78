"""A model that could not be reached is asked again later: record by record, without a clock."""

from __future__ import annotations

from typing import Any

import pytest

from saga_engine.core import asking_later, waits
from saga_engine.core import records as r
from saga_engine.core.decide import Capabilities, decide
from saga_engine.core.effects import AskPlanner, ErrorInfo
from saga_engine.core.machine import FixedMeans
from saga_engine.core.report import view
from saga_engine.plan.tool_spec import ToolSpec
from tests.core.recording import Recording
from tests.core.stories import NO

SPECS = [
    ToolSpec("tweet", semantic="auto", digest="d-tweet"),
    ToolSpec("book", undo="cancel", digest="d-book"),
    ToolSpec("cancel", keyed=True, tolerates_absence=True, digest="d-cancel"),
]
AWAY = ErrorInfo("model_unreachable", "no answer")
#: How each of the two purposes begins: with a plan whose second step fails.
PURPOSES = ("compensate", "replan")


def asked(purpose: str, **fields: Any) -> Recording:
    """A saga that has just asked a model."""
    first = {"tool": "tweet", "kind": "compensatable"} if purpose == "compensate" else {"tool": "book"}
    body = {"steps": [{"step_id": "a", **first}, {"step_id": "b", "tool": "book"}], **fields}
    if purpose == "replan":
        body["on_failure"] = "replan"
    saga = Recording(body, SPECS, {("b", "forward"): [NO]})
    saga.machine.means = FixedMeans(Capabilities(alerting=False, planner=True), catalog=saga.catalog)
    saga.run(2).decide()
    return saga


def gives_up(saga: Recording, error: ErrorInfo = AWAY) -> r.AnyRecord:
    """What is in flight, a request to a model, has no answer; the saga decides what follows."""
    effect = saga.in_flight.pop(0)
    assert isinstance(effect, AskPlanner)
    saga.now += 10
    saga.learned(effect, error)
    record = saga.records[-1]
    saga.decide()
    return record


def kinds(saga: Recording, since: int = 0) -> list[str]:
    return [type(record).__name__ for record in saga.records[since:]]


@pytest.mark.parametrize("purpose", PURPOSES)
def test_it_is_asked_three_times_more_with_growing_delays(purpose: str) -> None:
    """After 30 s, 2 min and 10 min; only then an operator is asked, or the saga turns around."""
    saga = asked(purpose)
    for delay_ms in (30_000, 120_000, 600_000):
        gave_up = gives_up(saga)
        assert (kinds(saga)[-1], gave_up.delay_ms) == ("PlannerGaveUp", delay_ms)  # type: ignore[union-attr]
        assert saga.state.only_waits()
        assert saga.state.next_due(saga.now) == gave_up.at + delay_ms
        assert decide(saga.state, gave_up.at + delay_ms - 1, saga.machine.means.capabilities) == ()
        saga.now = gave_up.at + delay_ms
        saga.decide()
        assert kinds(saga)[-1] == "PlannerAsked"
    before = len(saga.records)
    assert gives_up(saga).delay_ms == 0  # type: ignore[union-attr]
    if purpose == "compensate":
        assert kinds(saga, before) == ["PlannerGaveUp", "StepEscalated", "SagaEscalated"]
        assert "ask-again" in saga.state.questions["a:c:1"].options
    else:
        assert kinds(saga, before) == ["PlannerGaveUp", "CompensationStarted", "StepIntended"]


@pytest.mark.parametrize("code", ["planner_failed", "planner_unavailable", "planner_defect", "goal_impossible"])
@pytest.mark.parametrize("purpose", PURPOSES)
def test_what_another_time_does_not_mend_is_not_asked_again(purpose: str, code: str) -> None:
    """An answer without steps, no key, a defect: the saga goes on at once as it does without a model."""
    saga = asked(purpose)
    assert gives_up(saga, ErrorInfo(code, "no")).delay_ms == 0  # type: ignore[union-attr]
    assert saga.state.pending == {}
    assert ({"StepEscalated", "CompensationStarted"}) & {*kinds(saga)[-2:]}


@pytest.mark.parametrize("purpose", PURPOSES)
def test_a_crash_forgets_no_request(purpose: str) -> None:
    """While it waits, and while the model is asked again: the next owner asks, and the number of times still counts."""
    saga = asked(purpose)
    due = gives_up(saga).at + 30_000
    saga.crash().decide()
    assert saga.state.next_due(saga.now) == due
    saga.now = due
    saga.decide()
    saga.crash().decide()
    assert kinds(saga)[-2:] == ["SagaResumed", "PlannerAsked"]
    assert gives_up(saga).delay_ms == 120_000  # type: ignore[union-attr]


@pytest.mark.parametrize("purpose", PURPOSES)
def test_a_process_without_a_planner_leaves_it_to_one_that_has(purpose: str) -> None:
    """It looks each minute whether it is its own turn to give up; after ten, an operator is asked or the saga turns."""
    saga = asked(purpose)
    due = gives_up(saga).at + 30_000
    nobody = Capabilities(alerting=False, planner=False)
    assert decide(saga.state, due, nobody) == ()
    assert saga.state.next_due(due) == due + waits.OFFER_MS
    assert [type(record) for record in decide(saga.state, due, saga.machine.means.capabilities)] == [r.PlannerAsked]
    end = due + asking_later.WAIT_FOR_PLANNER_MS
    assert saga.state.next_due(end - 1) == end
    assert decide(saga.state, end - 1, nobody) == ()
    saga.machine.means, saga.now = FixedMeans(nobody, catalog=saga.catalog), end
    saga.decide()
    assert {"StepEscalated", "CompensationStarted"} & {*kinds(saga)[-2:]}
    assert saga.state.pending == {}


def test_a_process_that_may_not_ask_leaves_it_as_well() -> None:
    """Its settings say ``never``, where the tool itself says nothing."""
    saga = asked("compensate")
    due = gives_up(saga).at + 30_000
    saga.state.plan.steps[0].spec = ToolSpec("tweet")  # type: ignore[misc]
    assert decide(saga.state, due, Capabilities(planner=True, semantic="never")) == ()


def test_a_cancel_ends_the_wait_for_another_way() -> None:
    """What was to be asked later is not asked: the saga turns around at once, one time."""
    saga = asked("replan")
    gives_up(saga)
    saga.message(kind="cancel", by="kim").decide()
    assert saga.state.pending == {}
    saga.run()
    assert kinds(saga).count("CompensationStarted") == kinds(saga).count("PlannerAsked") == 1
    assert saga.state.status == "COMPENSATED"


def test_a_cancel_while_the_model_is_asked_again_leaves_nothing_to_ask_later() -> None:
    """Its answer is moot, whatever it is."""
    saga = asked("replan")
    saga.message(kind="cancel", by="kim")
    assert gives_up(saga).delay_ms == 0  # type: ignore[union-attr]
    assert saga.state.pending == {}


def test_the_deadline_binds_a_saga_that_waits_for_a_model() -> None:
    """The saga turns around when it passes, before the model is asked again."""
    saga = asked("replan", deadline_s=20)
    gives_up(saga)
    deadline = saga.state.deadline_ms
    assert saga.state.next_due(saga.now) == deadline
    saga.run()
    assert [record.at for record in saga.records if isinstance(record, r.DeadlinePassed)] == [deadline]
    assert kinds(saga).count("PlannerAsked") == 1


def test_a_view_says_when_the_model_is_asked_again() -> None:
    """The step because of which it is asked has the time, until it is asked."""
    saga = asked("compensate")
    assert "model_asked_ms" not in view(saga.state).plain()["steps"][0]
    due = gives_up(saga).at + 30_000
    assert view(saga.state).plain()["steps"][0]["model_asked_ms"] == due
    saga.now = due
    saga.decide()
    assert "model_asked_ms" not in view(saga.state).plain()["steps"][0]
