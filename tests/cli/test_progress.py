"""Progress from records: complete for a small saga, bounded for a large one."""

from __future__ import annotations

import io
from contextlib import redirect_stderr

from saga_engine.cli.progress import Progress
from saga_engine.core import records as r
from saga_engine.core.effects import ErrorInfo
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
        "step 1 n1: waits to try again, 500 ms (busy: come back; next in 2.0 s)",
        "step 1 n1: running, try 2",
        "step 1 n1: not done, try 2, 500 ms (busy: come back)",
        "saga s: undoing what happened (step-failed)",
        "undo 0 n0: undoing",
        "undo 0 n0: undone, 1 ms",
        "saga s: everything that happened was undone",
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
