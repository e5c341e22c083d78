"""What operators are asked: the kinds of questions, the answers that each permits, and the record that asks.

A question is the last way to settle something. The engine asks when no call can find out what happened (``in-doubt``,
``undo-in-doubt``), when a call is not retried and the saga cannot continue without it (``step-failed``,
``undo-failed``, ``undo-blocked``, ``undo-missing``, ``tool-changed``), when an undo would overwrite what somebody else
changed (``drift``), when an undo was said to be done and the value is as before it (``undo-unverified``), and when a
rule or a setting reserves the choice for a person (``approval``, ``compensation``). A step of the plan may itself ask
(``ask``: ``core.steps.ask``). Two kinds concern a session as a whole, whose agent failed (``session-failed``,
``session-kept``): ``session_records.keep`` asks them, and no call waits for the answer.

Four guards decide which answers a question permits. Each keeps an operator from an answer that the engine could not
carry out, or that would contradict the journal:

* An undo that could not be made permits the answers of a failed undo: an operator undoes the step by hand, has the
  undo repeated, or accepts the effect (scenarios ``undo-refused-undone``, ``undo-refused-retry``,
  ``undo-refused-accept``).
* Past the pivot a failed step may not be left as not done, because the saga cannot turn around any more (scenario
  ``pivot-failure-after``).
* A model is asked again (``ask-again``) only if it was asked and could not answer; a model that said that nothing
  compensates for the step is not asked twice.
* A call of a semantic compensation that is no longer wanted is never repeated (``State.still_wanted``).
"""

from __future__ import annotations

from typing import Any, Final

from saga_engine.core import records as r
from saga_engine.core.effects import COMPENSATE, FORWARD, Ask, Direction, ErrorInfo
from saga_engine.core.state import State
from saga_engine.language.errors import said

#: The kinds of questions and their answers; docs/errors.md, 'Questions to operators', explains each.
OPTIONS: Final = {
    "in-doubt": ("happened", "not-happened", "retry", "accept"),
    "step-failed": ("retry", "happened", "not-happened", "accept"),
    "tool-changed": ("retry", "happened", "not-happened", "accept"),
    "undo-failed": ("undone", "retry", "accept"),
    "undo-in-doubt": ("undone", "happened", "not-happened", "retry", "accept"),
    "undo-blocked": ("undone", "retry", "accept"),
    "undo-missing": ("undone", "accept"),
    "drift": ("undo", "undone", "retry", "accept"),
    "undo-unverified": ("retry", "undone", "accept"),
    "approval": ("approve", "deny"),
    "compensation": ("approve", "deny", "undone", "accept"),
    "session-failed": ("undo", "keep", "close"),
    "session-kept": ("undo", "close"),
    "ask": (),  # the plan's own; or "answer", with a value
}
#: What a model may be asked to compensate for: the kinds of questions that offer to ask it again.
MADE_UP_FOR: Final = frozenset({"undo-failed", "undo-missing"})
#: Why an operator is asked, if no error states it.
_CAUSES: Final = {
    "in-doubt": ErrorInfo("answer_lost", said("answer_lost")),
    "undo-in-doubt": ErrorInfo("answer_lost", said("answer_lost.undo")),
    "undo-missing": ErrorInfo("undo_missing", said("undo_missing")),
    "undo-failed": ErrorInfo("undo_failed", said("undo_failed")),
    "undo-blocked": ErrorInfo("undo_blocked", said("undo_blocked")),
    "step-failed": ErrorInfo("step_failed", said("step_failed")),
}


def escalate(  # noqa: PLR0917
    state: State,
    index: int,
    direction: Direction,
    kind: str,
    now: int,
    error: ErrorInfo | None = None,
    approval: Ask | None = None,
    found: dict[str, Any] | None = None,
) -> r.AnyRecord:
    """The record that asks an operator about a step.

    ``approval``: about the exact call that a rule wants approved. ``found``: the image of the value that an undo found.
    Nobody is asked about a step of ``finally``: the saga's end would wait for the answer.
    """
    if state.ending is not None:
        return _unasked(state, index, now, error, approval)
    options = OPTIONS[kind]
    if direction == COMPENSATE and kind in MADE_UP_FOR and state.steps[index].semantic == "unanswered":
        options = (*options, "ask-again")
    if kind == "compensation" and state.undoing(index) is not None:
        options = (*options, "retry")
    if kind in ("step-failed", "tool-changed") and direction == COMPENSATE:
        options = OPTIONS["undo-failed"]
    elif kind == "step-failed" and state.past_pivot:
        options = tuple(option for option in options if option != "not-happened")
    elif kind == "step-failed" and state.plan.steps[index].child is not None:
        # What a child did is its own: nobody can say that it happened, and then have it undone.
        options = tuple(option for option in options if option != "happened")
    elif not state.still_wanted(index, direction):
        options = tuple(option for option in options if option != "retry")
    if found is not None and kind == "undo-in-doubt":
        options = (*options, "undo")
    call = state.steps[index].call(direction)
    key = state.plan.steps[index].key
    return r.StepEscalated(
        at=now,
        step=key,
        direction=direction,
        # Stable for de-duplication, and a new one each time the same call is asked about.
        question=f"{key}:{'f' if direction == FORWARD else 'c'}:{call.asked + 1}",
        kind=kind,
        options=list(options),
        error=error or call.error or _CAUSES.get(kind),
        call=approval.digest if approval else "",
        expires_ms=now + round(approval.expires_s * 1000) if approval else None,
        rule=approval.rule if approval else "",
        found=found,
    )


def _unasked(state: State, index: int, now: int, error: ErrorInfo | None, approval: Ask | None) -> r.AnyRecord:
    key, call = state.plan.steps[index].key, state.steps[index].forward
    if approval is not None:
        return r.StepBlocked(at=now, step=key, error=approval.error, rule=approval.rule)
    if call.doubt:
        return unsettled(state, index, now, error)
    return r.StepFailed(at=now, step=key, error=error or call.error or _CAUSES["step-failed"])


def unsettled(state: State, index: int, now: int, error: ErrorInfo | None = None) -> r.StepUnsettled:
    """The record that leaves a step of ``finally`` in doubt."""
    why = error or state.steps[index].forward.error or _CAUSES["in-doubt"]
    return r.StepUnsettled(at=now, step=state.plan.steps[index].key, error=why)
