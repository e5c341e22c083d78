"""Compensation: which step is undone next, and when the undo of a step has ended.

A step is *returning* from the moment its undo is wanted until that has ended; ``undo_open`` counts these steps. Its
undo ends when nothing is left to do for the step itself **and** the undos of all steps that come before it in this
order have ended. An undo that failed, waits for its next attempt or is in doubt therefore holds back every step that it
follows: in a plan these are the steps that it depends on, in a session those that had happened before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from saga_engine.core import records as r
from saga_engine.core import transitions as t
from saga_engine.core.effects import COMPENSATE, FORWARD, ErrorInfo
from saga_engine.core.evolve.transition import move, turn_saga
from saga_engine.core.state import State
from saga_engine.core.state_values import Backward, CallState, Turning
from saga_engine.core.undo_ahead import happened, has_undo, held
from saga_engine.core.undo_call import UndoneCall
from saga_engine.language.errors import said

_NOTHING_TO_UNDO = frozenset({t.SUCCEEDED, t.FAILED, t.BLOCKED, t.SKIPPED, t.RESOLVED, t.COMPENSATED})
_NO_WAY_BACK = frozenset({"retriable", "irreversible"})


def compensation_started(state: State, record: r.CompensationStarted) -> None:
    """The saga turns around: what happened is undone, last things first. An undo in flight continues."""
    turn_saga(state, "compensate")
    state.phase = Backward(record.reason, state.phase.said if isinstance(state.phase, Turning) else "")
    state.open = False
    state.ready.clear()
    state.undo_ready.clear()
    state.to_check.clear()
    _close_forward(state)
    state.pending = {index: each for index, each in state.pending.items() if not each.of_step}
    started: list[int] = []
    for index, step in enumerate(state.steps):
        pending = step.status in (t.PENDING, t.WAITING)  # what it waited for comes too late
        if pending:
            move(step, "skip")
        # Undos wait through a step that was skipped; in the undo of a completed saga nothing else is skipped. What was
        # dropped, or has not been reached, is in nobody's way.
        if step.status != t.SKIPPED or step.settled or (pending and state.undo_of):
            started.append(index)
    _send_back(state, started)


def partial_requested(state: State, record: r.PartialCompensationRequested) -> None:
    """A part of a session is undone, last things first, and the session continues."""
    _send_back(state, [state.plan.by_key[key] for key in record.steps])


def _send_back(state: State, chosen: Sequence[int]) -> None:
    """The undos of these steps are wanted, which are all that is returning; determine which waits for which."""
    steps = state.steps
    for index in chosen:
        steps[index].undo_waits = 0
    state.undo_open = len(chosen)
    if state.session:
        _in_reverse(state, chosen)
    else:
        for index in chosen:
            dependents = state.plan.steps[index].dependents
            steps[index].undo_waits = sum(1 for other in dependents if steps[other].undo_waits is not None)
    # Those that nothing precedes start; the rest follow as the undos that they wait for end.
    for index in [index for index in reversed(chosen) if not steps[index].undo_waits]:
        undo_turn(state, index)


def _in_reverse(state: State, chosen: Sequence[int]) -> None:
    """An agent's calls are undone one by one, last come first; what may have happened counts as the last of all.

    The dependencies between an agent's calls are unknown: two of one turn may have written the same record.
    """
    after = -1
    for index in sorted(chosen, key=lambda index: happened(state, index)):
        step = state.steps[index]
        step.undo_next, step.undo_waits = after, 1
        after = index
    if after >= 0:
        state.steps[after].undo_waits = 0


def goes_ahead(state: State, index: int) -> None:
    """The undo of a call begins although others come before it, which wait for an operator (``core.undo_ahead``).

    What was to come after it waits for it as before, and for those that it has passed. An undo that has begun, and got
    a predecessor since, only ends: it has passed nothing.
    """
    step = state.steps[index]
    if not step.undo_waits or step.status != t.SUCCEEDED:
        return
    passed = next((before for other, before in held(state) if other == index), None)
    if passed is None:
        raise KeyError(f"the undo of step {state.plan.steps[index].key} comes before its turn")
    step.undo_waits = 0
    for other in passed:
        state.steps[other].undo_next = step.undo_next
    if step.undo_next >= 0:
        following = state.steps[step.undo_next]
        following.undo_waits = (following.undo_waits or 0) + len(passed)


def close_call(state: State, index: int) -> None:
    """A forward call that did not happen is not wanted any more: no attempt follows, and no question."""
    step = state.steps[index]
    if step.forward.doubt:
        return
    asked = [
        question.id for question in state.questions.values() if (question.step, question.direction) == (index, FORWARD)
    ]
    for question in asked:
        for about in (state.questions, state.alerts, state.reminders):
            about.pop(question, None)
    waits = state.waiting.pop((index, FORWARD), None) is not None
    if waits or asked:
        move(step, "fail")
        stands_still(state, index)
    if waits and state.plan.steps[index].compensates is None:
        state.failed.append(index)


def _close_forward(state: State) -> None:
    """What was to be tried again is not; what was asked about steps that did not happen is moot."""
    places = [place[0] for place in state.waiting if place[1] == FORWARD]
    places += [question.step for question in state.questions.values() if question.direction == FORWARD]
    for index in places:
        close_call(state, index)


def undo_turn(state: State, index: int) -> None:
    """The step has just been settled, or nothing precedes its undo any more: continue with it."""
    step = state.steps[index]
    if step.undo_waits != 0:  # others come before it, or its undo is not wanted
        return
    if step.status == t.SUCCEEDED and has_undo(state, index):
        _begin_undo(state, index)
    elif step.status in _NOTHING_TO_UNDO:
        end_undo(state, index)


def _begin_undo(state: State, index: int) -> None:
    """It is the step's turn to be undone; one whose tool leaves that to a model has nothing to call."""
    step = state.steps[index]
    if step.undone_by >= 0 and state.steps[step.undone_by].status != t.RESOLVED:
        return  # a call is its undo, and has not been settled
    if state.undoing(index) is not None:
        state.undo_ready[index] = None
        return
    step.call(COMPENSATE).error = ErrorInfo("no_undo", said("no_undo"))
    move(step, "undo_failed")
    state.to_escalate[index, COMPENSATE] = "undo-missing"


def goes_on(state: State, index: int, output: Any, via: str) -> bool:
    """A call of an undo of several calls happened: it is noted, and another one follows it if this was not the last.

    The next call has attempts, a key and doubts of its own; it is due now, like a retry.
    """
    step = state.steps[index]
    made = step.undo_call
    if made is None or via == "unchanged":
        return False
    done, rollback = step.call(COMPENSATE), state.rollback(index)
    attempts = done.attempt - done.not_made
    known = UndoneCall(rollback.tool, done.params, output, attempts, state.at, via, done.error, done.unkeyed)
    step.undo_calls += (known,)
    if len(step.undo_calls) >= made.of:
        return False
    step.undo = CallState(asked=done.asked)
    state.waiting[index, COMPENSATE] = state.at
    return True


def is_undo_of(state: State, index: int, key: str) -> None:
    """The call of a step is the undo of the step ``key``; empty: it is a call of its own."""
    stands_still(state, index)
    step = state.steps[index]
    step.undoes = state.plan.by_key[key] if key else -1
    if key:
        state.steps[step.undoes].undone_by = index


def taken_back(state: State, index: int) -> None:
    """The call of a step was the undo of another one, and has happened."""
    step = state.steps[index]
    undone = state.steps[step.undoes]
    if undone.status == t.SUCCEEDED:  # else it is undone already, by the same call
        undone.undone_by, undone.undo_output = index, step.output
        move(undone, "taken_back")
        state.undo_ready.pop(step.undoes, None)
        end_undo(state, step.undoes)


def stands_still(state: State, index: int) -> None:
    """The call of a step is over and was not the undo that it was to be: what it was to undo stands as before.

    If an operator accepted that nobody knows, it holds on to that: before another undo an operator is asked.
    """
    step = state.steps[index]
    if step.undoes < 0 or state.steps[step.undoes].undone_by != index:
        return
    if step.status != t.RESOLVED:
        state.steps[step.undoes].undone_by = -1
    undo_turn(state, step.undoes)


def end_undo(state: State, index: int) -> None:
    """Nothing is left to do for the step itself; its undo ends, unless others still precede it.

    Iterative: a chain may have thousands of steps.
    """
    stack = [index]
    while stack:
        at = stack.pop()
        step = state.steps[at]
        if step.undo_waits is None and step.semantic == "none":  # it is settled once more, after a look at its undo
            ask_about_compensations(state, at)
        if step.undo_waits != 0:
            continue
        step.undo_waits = None
        state.undo_open -= 1
        if step.status == t.SUCCEEDED and state.backward and _remains(state, at):
            state.left_any = True
        if step.left and state.backward:
            state.left_any = True
        if step.semantic == "none":
            ask_about_compensations(state, at)
        for other in _let_go(state, at):
            earlier = state.steps[other]
            if earlier.status == t.SUCCEEDED and has_undo(state, other):
                _begin_undo(state, other)
            elif earlier.status in _NOTHING_TO_UNDO:
                stack.append(other)


def _remains(state: State, index: int) -> bool:
    """Whether the effect of a step stays by declaration: of the plan, or of a session's agent.

    That of a pivot only in the undo of a completed saga: no other saga has turned around behind its pivot.
    """
    kind = state.plan.steps[index].kind
    declared = kind in _NO_WAY_BACK or (kind == "pivot" and bool(state.undo_of))
    return declared and state.owns(index)


def _let_go(state: State, index: int) -> list[int]:
    """Count the step's undo as ended for those that wait for it; returns those that now have nothing to wait for."""
    if state.session:
        behind: Sequence[int] = (state.steps[index].undo_next,) if state.steps[index].undo_next >= 0 else ()
    else:
        behind = state.plan.steps[index].deps
    free: list[int] = []
    for other in behind:
        step = state.steps[other]
        if step.undo_waits is None:
            continue
        step.undo_waits -= 1
        if not step.undo_waits:
            free.append(other)
    return free


def ask_about_compensations(state: State, stuck: int) -> None:
    """Steps of a semantic compensation whose step was settled without them are useless: each becomes a question."""
    for compiled in state.plan.steps:
        step = state.steps[compiled.index]
        if compiled.compensates == stuck and step.status == t.SUCCEEDED and compiled.key not in state.plan.reads:
            step.call(COMPENSATE).error = ErrorInfo(
                "not_needed",
                said("not_needed", step=state.plan.steps[stuck].key),
            )
            move(step, "undo_failed")
            state.to_escalate[compiled.index, COMPENSATE] = "undo-missing"


def compensation_refused(state: State, _: r.CompensationRefused) -> None:
    """The saga cannot turn around: the failed steps become questions."""
    turn_saga(state, "refuse")
    state.phase = FORWARD
    for index in state.failed:
        if state.steps[index].status in (t.FAILED, t.BLOCKED):
            state.to_escalate[index, FORWARD] = "step-failed"
