"""How a call in doubt is settled, record by record."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from saga_engine.core import records as r
from saga_engine.core.crash_loops import has_suspects, is_tried
from saga_engine.core.decide import decide
from saga_engine.core.effects import FORWARD, CallTool, ErrorInfo, NotDone, Probe, Unknown
from saga_engine.core.evolve import evolve
from saga_engine.core.fold import begin
from saga_engine.core.interpret import interpret
from saga_engine.core.proposed_steps import needs_approval
from saga_engine.core.report import view
from saga_engine.core.state import State
from saga_engine.plan.compiler import compile_plan
from saga_engine.plan.limits import MAX_CRASHES
from saga_engine.plan.model import load_plan
from saga_engine.plan.operator_limits import Limits
from saga_engine.plan.tool_spec import RetryPolicy, ToolSpec
from tests.core.simulation import Catalog

ERROR = ErrorInfo("timeout", "no answer")


def saga(spec: ToolSpec, *records: r.AnyRecord) -> State:
    """A saga of one step, with an undo that cannot be called blindly."""
    rollback = {} if spec.effect == "read" else {"rollback": {"tool": "undo"}}
    body = {"steps": [{"step_id": 1, "tool": spec.name, **rollback}]}
    state = begin(
        r.SagaStarted(at=1, saga_id="s", plan=body, digest="d", seed="x"),
        compile_plan(load_plan(body), Catalog([spec, ToolSpec("undo"), ToolSpec("look", effect="read")])),
    )
    for record in records:
        evolve(state, record)
    return state


def names(records: Any) -> list[str]:
    return [type(record).__name__ for record in records]


def test_one_attempt_does_not_keep_a_crash_from_being_settled_by_key() -> None:
    """``max_attempts=1`` forbids retries; that a process died is no reason to page a person who would say 'again'."""
    spec = ToolSpec("pay", keyed=True, retry=RetryPolicy(max_attempts=1))
    state = saga(spec, r.StepIntended(at=2, step="1"), r.SagaResumed(at=3, owner="o", epoch=2))
    assert names(decide(state, 4)) == ["StepIntended"]
    evolve(state, r.StepIntended(at=4, step="1", attempt=2))
    evolve(state, r.StepBegun(at=4, step="1"))
    evolve(state, r.SagaResumed(at=5, owner="o", epoch=3))
    assert names(decide(state, 6)) == ["StepEscalated"]  # not without end


@pytest.mark.parametrize("effect", ["write", "read"])
def test_an_outcome_that_tells_of_a_crash_counts_as_one(effect: Any) -> None:
    """In Temporal an outcome tells that the worker died: that is settled by one more call, whatever ``max_attempts`` is."""
    spec = ToolSpec("pay", keyed=True, effect=effect, retry=RetryPolicy(max_attempts=1))
    state = saga(spec)
    for attempt in (1, 2):
        assert names(decide(state, attempt * 10)) == ["StepIntended"]
        evolve(state, r.StepIntended(at=attempt * 10, step="1", attempt=attempt))
        died = interpret(state, CallTool(0, FORWARD, attempt), Unknown(ERROR, lost=True), attempt * 10, 0.5)
        assert names([died]) == ["StepInDoubt"]
        evolve(state, msgspec.structs.replace(died, delay_ms=0))
    assert "StepIntended" not in names(decide(state, 30))  # not without end


@pytest.mark.parametrize("most", [MAX_CRASHES, 1, 5])
def test_workers_that_die_in_a_row_are_no_endless_series(most: int) -> None:
    """A call that ends each worker that makes it is not made by all workers there are: a person is asked about it.

    After how many is the operator's limit.
    """
    state = saga(ToolSpec("pay", keyed=True, retry=RetryPolicy(max_attempts=99)))
    state.plan = Limits(max_crashes=most).applied(state.plan)
    for attempt in range(1, most + 1):
        assert names(decide(state, attempt)) == ["StepIntended"]
        evolve(state, r.StepIntended(at=attempt, step="1", attempt=attempt))
        evolve(state, r.StepInDoubt(at=attempt, step="1", error=ERROR, lost=True))
    (asked,) = decide(state, 9)
    assert isinstance(asked, r.StepEscalated)
    assert asked.error is not None
    assert asked.error.error_code == "takeovers_without_progress"


def test_only_owners_that_began_the_call_incriminate_it() -> None:
    """Owners that end between the intent and the call, as under load, have not been ended by it: nobody is asked.

    Their number is bounded all the same, and the question says how many really called.
    """
    state = saga(ToolSpec("pay", keyed=True))
    call = state.steps[0].forward
    for owners in range(1, 3 * MAX_CRASHES + 1):
        assert names(decide(state, owners)) == ["StepIntended"]
        evolve(state, r.StepIntended(at=owners, step="1", attempt=owners))
        evolve(state, r.SagaResumed(at=owners, owner="o", epoch=owners + 1))
        assert (call.crashes, call.takeovers, call.tries) == (1, owners, 1)
    (asked,) = decide(state, 99)
    assert isinstance(asked, r.StepEscalated)
    assert asked.error is not None
    assert asked.error.error_code == "takeovers_without_progress"
    assert asked.error.message.startswith("9 processes in a row ended")
    assert '1 of them had begun to call the tool "pay":' in asked.error.message


@pytest.mark.parametrize(
    ("probe", "said"),
    [
        (None, '3 of them had begun to call the tool "pay":'),
        ("look", '1 of them had begun to call the tool "pay", 2 to'),
    ],
)
def test_the_question_tells_calls_from_probes(probe: str | None, said: str) -> None:
    """Three owners in a row had begun the call, as ``StepBegun`` says of a suspect, or its probe: a person is asked."""
    state = saga(ToolSpec("pay", keyed=True, probe=probe))
    for owners in range(MAX_CRASHES):
        (record,) = decide(state, owners)
        evolve(state, record)
        if owners and not probe:
            evolve(state, r.StepBegun(at=owners, step="1"))
        evolve(state, r.SagaResumed(at=owners, owner="o", epoch=owners + 2))
    (asked,) = decide(state, 99)
    assert isinstance(asked, r.StepEscalated)
    assert asked.error is not None
    assert said in asked.error.message


@pytest.mark.parametrize("told_by", ["a take-over", "the outcome"])
def test_a_probe_that_dies_with_its_process_is_a_crash_and_no_answer(told_by: str) -> None:
    """The law of crash loops is the same in both runtimes: three ends in a row, each with the probe in flight, ask a person.

    An answer in between begins the count anew, and no end uses up one of the answers that cannot tell.
    """
    state = saga(ToolSpec("pay", probe="look", retry=RetryPolicy(max_attempts=9)), r.StepIntended(at=1, step="1"))
    evolve(state, r.StepInDoubt(at=1, step="1", error=ERROR))
    call = state.steps[0].forward
    for epoch, ends in enumerate(["died", "died", "answered", *["died"] * MAX_CRASHES], 2):
        (intent,) = decide(state, epoch)
        assert names([intent]) == ["ProbeIntended"]
        evolve(state, intent)
        if ends == "answered":
            failed = interpret(state, Probe(0, FORWARD, 1), Unknown(ERROR), epoch, 0.5)
        elif told_by == "the outcome":
            failed = interpret(state, Probe(0, FORWARD, 1), Unknown(ERROR, lost=True), epoch, 0.5)
        else:
            failed = r.SagaResumed(at=epoch, owner="o", epoch=epoch)
        evolve(state, msgspec.structs.replace(failed, delay_ms=0) if isinstance(failed, r.ProbeFailed) else failed)
        assert call.probes == (epoch >= 4)
    (asked,) = decide(state, 99)
    assert isinstance(asked, r.StepEscalated)
    assert asked.error is not None
    assert asked.error.error_code == "takeovers_without_progress"


@pytest.mark.parametrize("told_by", ["its answer", "a person"])
def test_what_has_an_outcome_is_no_suspect(told_by: str) -> None:
    """A step that is over ended nobody, however many owners ended before: no other saga has to wait for the rest of its."""
    state = saga(ToolSpec("pay", keyed=True), r.StepIntended(at=1, step="1"))
    for epoch in range(2, 2 + (MAX_CRASHES if told_by == "a person" else 1)):
        evolve(state, r.SagaResumed(at=epoch, owner="o", epoch=epoch))
        (record,) = decide(state, epoch)
        evolve(state, record)
        if type(record) is r.StepIntended:
            evolve(state, r.StepBegun(at=epoch, step="1"))
    assert has_suspects(state)
    if told_by == "a person":
        (question,) = state.questions.values()
        answer = {"question": question.id, "step": "1", "decision": "happened", "by": "ada", "output": {}}
        evolve(state, r.QuestionResolved(at=9, **answer))
    else:
        evolve(state, r.StepSucceeded(at=9, step="1", output={}))
    assert not has_suspects(state)


def test_a_suspect_that_waits_for_a_guard_is_not_tried() -> None:
    """As long as it waits it ends no process, and perhaps it waits for what another suspect holds."""
    state = saga(ToolSpec("pay", keyed=True), r.StepIntended(at=1, step="1"))
    evolve(state, r.SagaResumed(at=2, owner="o", epoch=2))
    assert is_tried(state)
    (record,) = decide(state, 2)
    evolve(state, record)
    assert is_tried(state)
    evolve(state, r.StepQueued(at=2, step="1"))
    assert has_suspects(state)
    assert not is_tried(state)
    evolve(state, r.StepBegun(at=2, step="1"))
    assert is_tried(state)


def test_a_second_call_that_was_not_made_can_be_made_later() -> None:
    """The call that settles a crash waited for a guard when its process closed: it is still the one that settles it."""
    state = saga(
        ToolSpec("pay", keyed=True, retry=RetryPolicy(max_attempts=1)),
        r.StepIntended(at=2, step="1"),
        r.SagaResumed(at=3, owner="o", epoch=2),
        r.StepIntended(at=4, step="1", attempt=2),
    )
    closed = interpret(state, CallTool(0, FORWARD, 2), NotDone(ERROR, retryable=True, counted=False), 5, 0.5)
    assert closed == r.StepInDoubt(at=5, step="1", error=ERROR, counted=False)
    evolve(state, closed)
    assert names(decide(state, 6)) == ["StepIntended"]


def test_one_attempt_that_times_out_is_asked_about() -> None:
    """A time-out is an attempt that has had its answer: no second one is made."""
    spec = ToolSpec("pay", keyed=True, retry=RetryPolicy(max_attempts=1))
    state = saga(spec, r.StepIntended(at=2, step="1"), r.StepInDoubt(at=3, step="1", error=ERROR))
    assert names(decide(state, 4)) == ["StepEscalated"]


def test_a_probe_that_tells_is_not_counted() -> None:
    """'It did not happen' is an answer: the next doubt may be asked about three times again."""
    spec = ToolSpec("pay", probe="look", retry=RetryPolicy(max_attempts=9))
    state = saga(spec)
    for attempt in range(1, 6):
        evolve(state, r.StepIntended(at=2, step="1", attempt=attempt))
        evolve(state, r.StepInDoubt(at=2, step="1", error=ERROR))
        (intent,) = decide(state, 3)
        assert names([intent]) == ["ProbeIntended"]
        evolve(state, intent)
        evolve(state, interpret(state, Probe(0, FORWARD, 1), NotDone(ERROR, retryable=True, definite=True), 3, 0.5))
    assert state.steps[0].forward.probes == 0


def test_a_refusal_that_the_probe_confirms_is_not_tried_again() -> None:
    """What the tool said before the probe was asked counts, once it is known that nothing happened."""
    spec = ToolSpec("pay", probe="look")
    state = saga(spec, r.StepIntended(at=2, step="1"))
    said = ErrorInfo("value_error", "full", retryable=False)
    evolve(state, r.StepInDoubt(at=2, step="1", error=said))
    evolve(state, r.ProbeIntended(at=3, step="1"))
    record = interpret(state, Probe(0, FORWARD, 1), NotDone(said, retryable=True, definite=True), 3, 0.5)
    assert names([record]) == ["StepFailed"]


def test_a_call_at_work_is_asked_about_at_once() -> None:
    """Neither probe nor key come before a person while the call goes on in a thread."""
    spec = ToolSpec("pay", probe="look", keyed=True)
    state = saga(spec, r.StepIntended(at=2, step="1"))
    evolve(state, interpret(state, CallTool(0, FORWARD, 1), Unknown(ERROR, at_work=True), 3, 0.5))
    assert names(decide(state, 4)) == ["StepEscalated"]


def test_time_and_attempts_are_those_of_calls_alone() -> None:
    """Waiting for a person, for the next attempt, or for an owner is no time of a call; what called nothing is no attempt."""
    ask = r.StepEscalated(at=110, step="1", question="q", kind="approval", options=["approve", "deny"], call="c")
    state = saga(ToolSpec("pay", keyed=True), r.StepIntended(at=100, step="1"), ask)

    def told() -> tuple[int, int | None]:
        step = view(state).plain()["steps"][0]
        return step["attempts"], step["took_ms"]

    assert told() == (0, None)
    evolve(state, r.QuestionResolved(at=9_000, step="1", question="q", decision="approve"))
    evolve(state, r.StepIntended(at=9_000, step="1", attempt=2))
    assert told() == (1, None)
    evolve(state, r.StepRetryScheduled(at=9_030, step="1", error=ERROR, delay_ms=5_000))
    assert told() == (1, 30)
    evolve(state, r.StepIntended(at=15_000, step="1", attempt=3))
    evolve(state, r.SagaResumed(at=99_000, owner="o", epoch=2))
    assert told() == (2, 30)  # when the process died, nobody knows
    evolve(state, r.StepIntended(at=99_000, step="1", attempt=4))
    evolve(state, r.StepSucceeded(at=99_012, step="1", output={}))
    assert told() == (3, 42)


def test_a_call_that_is_blocked_called_nothing() -> None:
    """The policy refused it: there was no attempt, and it took no time."""
    blocked = r.StepBlocked(at=150, step="1", error=ERROR, rule="never")
    step = view(saga(ToolSpec("pay"), r.StepIntended(at=100, step="1"), blocked)).plain()["steps"][0]
    assert (step["attempts"], step["took_ms"]) == (0, None)


def test_what_an_operator_wanted_repeated_is_the_doubt_that_was_shown() -> None:
    """A retry of what did not happen says nothing about a later doubt: a key that has expired is not used again."""
    spec = ToolSpec("pay", keyed=True, key_ttl_s=10.0, timeout_s=1.0, retry=RetryPolicy(max_attempts=3))
    asked = r.StepEscalated(at=3, step="1", question="1:f:1", kind="tool-changed", options=["retry"])
    again = r.QuestionResolved(at=4, question="1:f:1", step="1", decision="retry")
    state = saga(spec, asked, again)
    assert names(decide(state, 5)) == ["StepIntended"]
    evolve(state, r.StepIntended(at=5, step="1"))
    evolve(state, r.StepInDoubt(at=6, step="1", error=ERROR))
    evolve(state, r.StepIntended(at=7, step="1", attempt=2))
    approval = r.StepEscalated(
        at=8, step="1", question="1:f:2", kind="approval", options=["approve", "deny"], call="d", expires_ms=99_999
    )
    evolve(state, approval)
    evolve(state, r.QuestionResolved(at=50_000, question="1:f:2", step="1", decision="approve"))
    assert names(decide(state, 50_000)) == ["StepEscalated"]


def test_the_time_out_of_a_wait_is_no_amount_that_a_model_may_refund() -> None:
    """What makes up for an event is measured by the event: a wait of 900 seconds allows no refund of 900."""
    body = {"event": "paid", "key": 700, "timeout_s": 900}
    undo = {"tool": "undo_a", "params": {"ref": "$output.step_w.ref"}}
    catalog = Catalog([ToolSpec(name="undo_a", keyed=True), ToolSpec(name="refund", keyed=True)])
    plan = {"steps": [{"step_id": "w", "wait": body, "rollback": undo}]}
    compiled = compile_plan(load_plan(plan), catalog)
    started = r.SagaStarted(at=0, saga_id="sg", plan=plan, digest="d", seed="s")
    state = begin(started, compiled)
    evolve(state, decide(state, 1)[0])
    evolve(state, r.StepSucceeded(at=2, step="w", output={"ref": "r1", "amount": 80}, via="event", source="e1"))
    for amount, wanted in ((80, ""), (81, "which is more than step w had"), (900, "more"), (700, "more")):
        said = needs_approval(state, 0, [{"tool": "refund", "params": {"value": amount}}], catalog)
        assert wanted in said, amount
        assert bool(wanted) == bool(said), amount


_UNDOER: dict[str, Any] = {"step_id": 1, "tool": "refund", "params": {"value": 80}}


@pytest.mark.parametrize(
    ("step", "why"),
    [
        (_UNDOER, ""),
        ({**_UNDOER, "params": {"to_account": {"$first": ["$output.step_w.none", "FR76300060000112"]}}}, "FR7630"),
        ({**_UNDOER, "params": {"to_account": {"$first": ["$output.step_w.none", "r1"]}}}, ""),
        ({**_UNDOER, "params": {"payment_id": 77}}, "77"),
        ({**_UNDOER, "params": {"payment_id": 12}}, ""),
        ({**_UNDOER, "params": {"nested": [{"payee": "Eve"}]}}, "Eve"),
        ({**_UNDOER, "each": ["a", "b"]}, "not one call of a tool"),
        ({"step_id": 1, "saga": {"plan": {}}}, "not one call of a tool"),
        ({**_UNDOER, "fallback": [{"tool": "refund_b", "params": {"value": 81}}]}, "81"),
        ({**_UNDOER, "fallback": {"tool": "refund_b", "params": {"payee": "Eve"}}}, "Eve"),
        ({**_UNDOER, "rollback": {"tool": "a", "then": [{"tool": "b", "params": {"value": 99}}]}}, "99"),
    ],
)
def test_every_call_that_a_proposed_step_may_make_counts(step: dict[str, Any], why: str) -> None:
    """A fallback, an undo, a default or an item of a list is no way around the limits of what needs no approval."""
    catalog = Catalog([ToolSpec(name="undo_a", keyed=True)])
    undo = {"tool": "undo_a", "params": {"ref": "$output.step_w.ref"}}
    plan = {
        "goal": "give back payment 12",
        "steps": [{"step_id": "w", "wait": {"event": "paid", "timeout_s": 9}, "rollback": undo}],
    }
    compiled = compile_plan(load_plan(plan), catalog)
    state = begin(r.SagaStarted(at=0, saga_id="sg", plan=plan, digest="d", seed="s"), compiled)
    evolve(state, decide(state, 1)[0])
    evolve(state, r.StepSucceeded(at=2, step="w", output={"ref": "r1", "amount": 80}, via="event", source="e1"))
    said = needs_approval(state, 0, [step], catalog)
    assert why in said
    assert bool(why) == bool(said)
