"""The way back: whose turn it is to be undone, and when the undo of a step has ended."""

from __future__ import annotations

from saga_engine.core import records as r
from saga_engine.core import transitions as t
from saga_engine.core.effects import COMPENSATE, FORWARD, ErrorInfo
from saga_engine.core.moving import move, turn_saga
from saga_engine.core.state import State


def compensation_started(state: State, record: r.CompensationStarted) -> None:
    """The saga turns around: what happened is undone, last things first."""
    turn_saga(state, "compensate")
    state.backward = True
    state.failing = record.reason
    state.ready.clear()
    state.undo_ready.clear()
    _close_forward(state)
    started: list[int] = []
    for index, step in enumerate(state.steps):
        if step.status == t.PENDING:
            move(step, "skip")
        elif step.status != t.SKIPPED:  # one that was dropped has been skipped before
            started.append(index)
    for index in started:
        dependents = state.plan.steps[index].dependents
        state.steps[index].undo_waits = sum(1 for other in dependents if state.steps[other].status != t.SKIPPED)
    state.undo_open = len(started)
    # Those that nothing depends on come first; the rest follow as their dependents end.
    for index in [index for index in reversed(started) if not state.steps[index].undo_waits]:
        undo_turn(state, index)


def rolled_back(state: State, record: r.RolledBack) -> None:
    """A part of a session is undone, last things first, and the session goes on."""
    chosen = [state.plan.by_key[key] for key in record.steps]
    group = set(chosen)
    for index in chosen:
        state.steps[index].undo_waits = sum(1 for other in state.plan.steps[index].dependents if other in group)
    state.undo_open += len(chosen)
    for index in [index for index in reversed(chosen) if not state.steps[index].undo_waits]:
        undo_turn(state, index)


def _close_forward(state: State) -> None:
    """What was to be tried again is not; what was asked about steps that did not happen is moot."""
    for place in [place for place in state.waiting if not state.steps[place[0]].forward.doubtful]:
        del state.waiting[place]
        step = state.steps[place[0]]
        step.forward.phase = "idle"
        move(step, "fail")
        state.failed.append(place[0])
    for question in [q for q in state.questions.values() if not state.steps[q.step].forward.doubtful]:
        for about in (state.questions, state.alerts, state.expiring, state.reminders):
            about.pop(question.id, None)
        move(state.steps[question.step], "fail")


def undo_turn(state: State, index: int) -> None:
    """The undos of all that depended on the step have ended, or the step has just been settled: go on with it."""
    step = state.steps[index]
    if step.undo_waits:
        return
    if step.status == t.SUCCEEDED and _has_undo(state, index):
        _begin_undo(state, index)
    elif step.status in _NOTHING_TO_UNDO:
        end_undo(state, index)


def _has_undo(state: State, index: int) -> bool:
    if state.undoing(index) is not None:
        return True
    step = state.steps[index]
    return state.plan.steps[index].semantic and step.via != "shared" and not step.handed_to


def _begin_undo(state: State, index: int) -> None:
    """It is the step's turn to be undone; one whose tool leaves that to a model has nothing to call."""
    if state.undoing(index) is not None:
        state.undo_ready[index] = None
        return
    step = state.steps[index]
    step.call(COMPENSATE).error = ErrorInfo("no_undo", "its tool has no undo")
    move(step, "undo_failed")
    state.to_escalate[index, COMPENSATE] = "undo-missing"


_NOTHING_TO_UNDO = frozenset({t.SUCCEEDED, t.FAILED, t.BLOCKED, t.RESOLVED, t.COMPENSATED})


def end_undo(state: State, index: int) -> None:
    """Nothing is left to do for the step on the way back. Iterative: a chain may have thousands of steps."""
    stack = [index]
    while stack:
        at = stack.pop()
        state.undo_open -= 1
        if state.backward and state.plan.steps[at].kind == "retriable" and state.steps[at].status == t.SUCCEEDED:
            state.left_any = True  # an agent's call that cannot be undone, made with its eyes open
        for other in _let_go(state, at, only_data=state.steps[at].released):
            step = state.steps[other]
            if step.status == t.SUCCEEDED and _has_undo(state, other):
                _begin_undo(state, other)
            elif step.status in _NOTHING_TO_UNDO:
                stack.append(other)


def _let_go(state: State, index: int, *, only_data: bool) -> list[int]:
    """Count the step's undo as ended for those it depends on; returns those that now have nothing to wait for."""
    compiled = state.plan.steps[index]
    free: list[int] = []
    for other in compiled.deps:
        if only_data and other not in compiled.data_deps:
            continue
        step = state.steps[other]
        step.undo_waits -= 1
        if not step.undo_waits:
            free.append(other)
    return free


def release_order(state: State, index: int) -> None:
    """A failed undo holds back the steps it names; those it merely follows in the list go on."""
    step = state.steps[index]
    if step.released:
        return
    step.released = True
    compiled = state.plan.steps[index]
    for other in compiled.deps:
        if other not in compiled.data_deps:
            earlier = state.steps[other]
            earlier.undo_waits -= 1
            undo_turn(state, other)


def compensation_refused(state: State, _: r.CompensationRefused) -> None:
    """There is no way back: the failed steps become questions."""
    state.failing = None
    for index in state.failed:
        if state.steps[index].status in (t.FAILED, t.BLOCKED):
            state.to_escalate[index, FORWARD] = "step-failed"
