"""Progress from records: complete for a small saga, bounded for a large one."""

from __future__ import annotations

import io
from contextlib import redirect_stderr

import msgspec

from saga_engine.cli.progress import _STATES, _UNTOLD, Progress
from saga_engine.core import records as r
from saga_engine.core.effects import ErrorInfo
from saga_engine.core.undo_call import UndoCall
from saga_engine.plan.model import load_plan


def progress_of(steps: int) -> Progress:
    plan = load_plan({"steps": [{"step_id": at, "name": f"n{at}", "tool": "t"} for at in range(steps)]})
    return Progress.of_plan("s", plan)


def told(progress: Progress, records: list[r.Record]) -> list[str]:
    err = io.StringIO()
    with redirect_stderr(err):
        for record in records:
            progress.observe("s", record)
    return err.getvalue().splitlines()


def forward(step: int, **fields) -> list[r.Record]:
    at = 1000 + step * 10
    return [r.StepIntended(at=at, step=str(step)), r.StepSucceeded(at=at + 5, step=str(step), **fields)]


def test_a_small_saga_is_told_step_by_step():
    """Each change is one line with the step, what became of it, the attempt and the time it took."""
    error = ErrorInfo("busy", "come back")
    records = [
        *forward(0),
        r.StepIntended(at=2000, step="1"),
        r.StepRetryScheduled(at=2500, step="1", error=error, delay_ms=2000),
        r.StepIntended(at=4500, step="1", attempt=2),
        r.StepFailed(at=5000, step="1", error=error),
        r.CompensationStarted(at=5001, reason="step-failed", step="1"),
        r.StepIntended(at=5002, step="0", direction="compensate"),
        r.StepSucceeded(at=5003, step="0", direction="compensate"),
        r.SagaCompensated(at=5004),
    ]

    lines = [line.split("  ", 1)[1] for line in told(progress_of(2), records)]

    assert lines == [
        "step 0 n0: running",
        "step 0 n0: done, 5 ms",
        "step 1 n1: running",
        "step 1 n1: waits to retry, 500 ms (busy: come back; next attempt in 2.0 s)",
        "step 1 n1: running, attempt 2",
        "step 1 n1: not done, attempt 2, 500 ms (busy: come back)",
        "saga s: compensating (step-failed)",
        "undo 0 n0: undoing",
        "undo 0 n0: undone, 1 ms",
        "saga s: compensated",
    ]


def test_the_calls_of_an_undo_are_told_one_by_one_and_undo_one_step():
    """Each line names the call; every call has its own attempts, and the step is undone once, after the last one."""
    error = ErrorInfo("busy", "come back")
    back = {"step": "0", "direction": "compensate"}
    records = [
        *forward(0),
        r.StepIntended(at=2000, call=UndoCall(0, 2), **back),
        r.StepSucceeded(at=2001, **back),
        r.StepIntended(at=2002, call=UndoCall(1, 2), **back),
        r.StepRetryScheduled(at=2003, error=error, delay_ms=2000, **back),
        r.StepIntended(at=4003, attempt=2, call=UndoCall(1, 2), **back),
        r.StepSucceeded(at=4004, **back),
    ]
    progress = progress_of(1)
    lines = [line.split("  ", 1)[1] for line in told(progress, records)]
    assert lines[2:] == [
        "undo 0 n0, call 1 of 2: undoing",
        "undo 0 n0, call 1 of 2: undone, 1 ms",
        "undo 0 n0, call 2 of 2: undoing",
        "undo 0 n0, call 2 of 2: waits to retry, 1 ms (busy: come back; next attempt in 2.0 s)",
        "undo 0 n0, call 2 of 2: undoing, attempt 2",
        "undo 0 n0, call 2 of 2: undone, attempt 2, 1 ms",
    ]
    assert progress._counts() == "1 of 1 done, 1 undone, 0 under way"


def test_a_wait_for_an_approval_is_no_try():
    """Tries are calls: what a person has to approve first, and what was not let through, was not called."""
    error = ErrorInfo("full", "no")
    records = [
        r.StepIntended(at=1000, step="0"),
        r.StepEscalated(at=1005, step="0", question="0:f:1", kind="approval", options=["approve", "deny"]),
        r.QuestionResolved(at=2000, step="0", question="0:f:1", decision="approve", by="ada"),
        r.StepIntended(at=3000, step="0", attempt=2),
        r.StepRetryScheduled(at=3005, step="0", error=error, delay_ms=7),
        r.StepIntended(at=4000, step="0", attempt=3),
        r.StepRetryScheduled(at=4005, step="0", error=error, delay_ms=7, counted=False),
        r.StepIntended(at=5000, step="0", attempt=4),
        r.StepSucceeded(at=5005, step="0"),
        r.StepIntended(at=6000, step="1"),
        r.StepBlocked(at=6005, step="1", error=error),
    ]

    lines = [line.split("  ", 1)[1] for line in told(progress_of(2), records)]

    assert lines == [
        "step 0 n0: running",
        "step 0 n0: waits for an operator (approval)",
        "step 0 n0: resolved (approve by ada)",
        "step 0 n0: running",
        "step 0 n0: waits to retry, 5 ms (full: no; next attempt in 7 ms)",
        "step 0 n0: running, attempt 2",
        "step 0 n0: waits to retry, attempt 2 (full: no; next attempt in 7 ms)",
        "step 0 n0: running, attempt 2",
        "step 0 n0: done, attempt 2, 5 ms",
        "step 1 n1: running",
        "step 1 n1: blocked (full: no)",
    ]


def test_tries_go_on_where_the_saga_stood():
    """A saga that is resumed has made calls before; their number comes from what `show` says."""
    progress = progress_of(1)
    step = {"step_id": 0, "name": "n0", "status": "RUNNING", "attempts": 2, "compensation": None}
    progress.start_from({"steps": [step]})
    lines = told(progress, [r.StepIntended(at=1000, step="0", attempt=4)])
    assert [line.split("  ", 1)[1] for line in lines] == ["step 0 n0: running, attempt 3"]


def test_an_undo_that_an_operator_wants_goes_on():
    """'undo' of a step overwrites a drifted value, and is not yet its end; 'undo' of a session is about the saga."""
    back = {"step": "0", "direction": "compensate"}
    asked = {"question": "0:c:1", "kind": "drift", "options": ["undo"]}
    error = ErrorInfo("drift", "somebody else")
    records = [
        *forward(0),
        r.StepIntended(at=2000, **back),
        r.StepEscalated(at=2010, **back, **asked, error=error),
        r.QuestionResolved(at=3000, question="0:c:1", decision="undo", by="Ada", **back),
        r.StepIntended(at=3001, attempt=2, **back),
        r.StepSucceeded(at=3005, **back),
        r.QuestionResolved(at=4000, question="session:2", step="", decision="undo"),
    ]
    lines = [line.split("  ", 1)[1] for line in told(progress_of(2), records)]
    assert lines[3:] == [
        "undo 0 n0: undo waits for an operator (drift)",
        "undo 0 n0: resolved (undo by Ada)",
        "undo 0 n0: undoing",
        "undo 0 n0: undone, 4 ms",
        "saga s: the session whose agent failed: undo",
    ]


def test_ten_thousand_steps_are_counted_and_only_trouble_is_told():
    """A large saga prints a count now and then, and every step that is not routine; it holds no more than a window."""
    progress = progress_of(10_000)
    records = [record for step in range(9_999) for record in forward(step)]
    records += [r.StepIntended(at=1, step="9999"), r.StepFailed(at=2, step="9999", error=ErrorInfo("full", "no"))]

    lines = told(progress, records)

    assert len(lines) <= 25
    assert "9999 n9999: not done" in lines[-1]
    assert any("5000 of 10000 done" in line for line in lines)
    assert len(progress._active) == 0
    assert len(progress._ended) <= 16
    assert str(progress._window()).count("\n") <= 20


def test_the_window_shows_what_is_under_way():
    """The window holds the counts, the last steps that ended, and those in flight, whatever their number."""
    progress = progress_of(500)
    told(progress, [*forward(0), *(r.StepIntended(at=1, step=str(step)) for step in range(1, 400))])

    window = str(progress._window())

    assert "1 of 500 done, 399 under way" in window
    assert "step 399 n399: running" in window
    assert window.count("\n") <= 20


def test_what_is_not_routine_has_its_line():
    """Blocks, other ways, waiting, approvals that ran out, added steps and a planner: each is told, and nothing breaks."""
    error = ErrorInfo("down", "nobody is there")
    written = r.Written(model="m")
    records = [
        r.StepIntended(at=1000, step="0"),
        r.FallbackChosen(at=1005, step="0", fallback=1, error=error, unavailable=True),
        r.StepDeferred(at=1010, step="0", error=error, delay_ms=60_000, notice="0:deferred"),
        r.StepIntended(at=61_010, step="0", attempt=2),
        r.StepSucceeded(at=61_020, step="0", via="cache", age_ms=90_000),
        r.StepEscalated(at=61_030, step="1", question="1:f:1", kind="approval", options=["approve"], rule="boss"),
        r.QuestionResolved(at=61_040, question="1:f:1", step="1", decision="approve", by="kim"),
        r.StepIntended(at=61_050, step="1"),
        r.StepBlocked(at=61_060, step="1", error=ErrorInfo("policy_denied", "no"), rule="never"),
        r.ApprovalExpired(at=61_070, question="1:f:2", step="1"),
        r.PlannerAsked(at=61_080, step="1", purpose="replan"),
        r.StepsAdded(
            at=61_090,
            steps=[{"step_id": 7, "name": "by rail"}],
            dropped=["1"],
            reasons={"1": "no trains that day"},
            by="planner",
            written=written,
        ),
        r.StepIntended(at=61_100, step="7"),
        r.PlannerAsked(at=61_110, step="0", purpose="compensate"),
        r.PlannerGaveUp(at=61_120, step="0", purpose="compensate", error=error),
        r.PlannerAsked(at=61_121, step="0", purpose="compensate"),
        r.PlannerGaveUp(
            at=61_122,
            step="0",
            purpose="compensate",
            error=ErrorInfo("model_unreachable", "no answer"),
            delay_ms=30_000,
        ),
        r.CompensationProposed(at=61_130, step="0", steps=[{"step_id": "m", "name": "voucher"}]),
        r.StepIntended(at=61_140, step="m"),
    ]

    lines = [line.split("  ", 1)[1] for line in told(progress_of(2), records)]

    assert lines == [
        "step 0 n0: running",
        "step 0 n0: uses a fallback, 5 ms (fallback 1; down: nobody is there)",
        "step 0 n0: deferred, 10 ms (down: nobody is there; next attempt in 1 min 0 s)",
        "step 0 n0: running, attempt 2",
        "step 0 n0: done, attempt 2, 10 ms (the last good result, 1 min 30 s old)",
        "step 1 n1: waits for an operator (approval, rule boss)",
        "step 1 n1: resolved (approve by kim)",
        "step 1 n1: running",
        "step 1 n1: blocked (rule never; policy_denied: no)",
        "step 1 n1: denied (no answer in time)",
        "saga s: asking the planner to replace step 1",
        "saga s: step 7 added by planner; step 1 will not run; 1: no trains that day",
        "step 7 by rail: running",
        "saga s: asking the planner how to compensate for step 0",
        "saga s: the planner found nothing for step 0 (down: nobody is there)",
        "saga s: asking the planner how to compensate for step 0",
        "saga s: the planner cannot be reached for step 0 (model_unreachable: no answer): asks again in 30.0 s",
        "saga s: the planner proposes to compensate for step 0 with step m",
        "step m voucher: running",
    ]


def test_added_steps_count_and_proposed_ones_do_not():
    """The total grows by added steps and shrinks by those that will not run; what makes up for a step is none of them."""
    progress = progress_of(3)
    told(progress, [*forward(0), r.StepsAdded(at=5, steps=[{"step_id": 8}, {"step_id": 9}], dropped=["2"])])
    told(progress, [r.CompensationProposed(at=6, step="0", steps=[{"step_id": "m"}], auto=True)])

    assert "1 of 4 done, 0 under way" in str(progress._window())


def test_an_agent_without_a_plan_is_followed():
    """A session's calls count as they are added; rolling back, taking over and the end are told."""
    progress = progress_of(1)
    records = [
        r.CallAdded(at=1000, step="c1", tool="search", params={}),
        r.StepIntended(at=1001, step="c1"),
        r.EffectReused(at=1002, step="0", source="other:1", fingerprint="f"),
        r.PartialCompensationRequested(at=1003, steps=["c1"]),
        r.SessionClosed(at=1004, reason="cancelled"),
    ]

    lines = [line.split("  ", 1)[1] for line in told(progress, records)]

    assert lines == [
        "saga s: the agent calls search as step c1",
        "step c1 search: running",
        "step 0 n0: reused (the effect of other:1)",
        "saga s: the agent returns to a savepoint: undoing step c1",
        "saga s: the agent closed the session (cancelled)",
    ]
    assert "1 of 2 done, 1 under way" in str(progress._window())


def test_every_record_is_told_or_passed_over_on_purpose():
    """No kind of record shows as its bare name: whoever adds one decides what people are told."""
    for kind in r.AnyRecord.__args__:
        name = kind.__name__
        if name in _STATES or name in _UNTOLD:
            continue
        given = {
            "at": 1,
            "step": "0",
            "to": "x",
            "source": "s/1",
            "fingerprint": "f",
            "tool": "t",
            "error": ErrorInfo("a", "b"),
            "steps": [],
            "params": {},
            "epoch": 1,
        }
        needed = [field.encode_name for field in msgspec.structs.fields(kind) if field.required]
        record = kind(**{field: given.get(field, "x") for field in needed})
        line = told(progress_of(1), [record])[0]
        assert name not in line
