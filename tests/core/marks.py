"""An operator who knows what follows from an answer, and one who does not."""

from __future__ import annotations

from saga_engine.core import records as r
from saga_engine.core.messages import Message, answer
from saga_engine.core.outlooks import needs_mark, outlook
from saga_engine.core.report import view
from saga_engine.core.state import State
from saga_engine.core.state_values import OpenQuestion
from tests.core.world import Violation


def mark_of(state: State, question: OpenQuestion, decision: str) -> str:
    """The mark of an answer, if it needs one: without it, it is refused. A look at what follows changes nothing."""
    before = view(state)
    told = outlook(state, question, decision)
    if view(state) != before:
        raise Violation(f"a look at what follows from {decision} changed the saga")
    if not needs_mark(state, question, decision):
        return ""
    step = state.plan.steps[question.step].key
    without = Message(id="d", kind="resolve", step=step, decision=decision, question=question.id)
    if isinstance(answer(state, without, state.at), r.QuestionResolved):
        raise Violation("a call that may happen twice was repeated, and nobody had said that this is known")
    return str(told["mark"])
