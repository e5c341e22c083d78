"""How a saga that has ended is told to the saga that waits for it; what follows there is in ``core.steps.child``."""

from __future__ import annotations

from typing import Any, Final

from saga_engine.core import states as t
from saga_engine.core.codec import Stored
from saga_engine.core.effects import ErrorInfo
from saga_engine.core.masking import mask_of
from saga_engine.core.report import failure, report
from saga_engine.core.state import State
from saga_engine.core.waiting_records import ChildEnd
from saga_engine.language.errors import said

_LISTED: Final = 20


def end_of(state: State) -> ChildEnd:
    """How a saga that has ended is told to its parent."""
    told = report(state)
    inner = {step.step_id: state.steps[step.index].left for step in state.plan.steps if state.steps[step.index].left}
    remains = (told.left_in_place, told.unresolved, told.failed, told.semantic)
    left = [str(key) for each in remains for key in each if key not in inner]
    left += [key for keys in inner.values() for key in keys]
    if state.status == t.COMPLETED:
        output, hidden = _outputs(state)
        return ChildEnd(state.saga_id, state.status, output, left=left, hidden=hidden)
    if state.undo_of and state.status == t.COMPENSATED and not left:
        return ChildEnd(state.saga_id, state.status)
    why = failure(state)
    because = ": ".join(
        part for part in (() if why is None else (why.code, why.error_code, why.message)) if part is not None
    )
    rest = f"; left in place: {', '.join(left[:_LISTED])}" if left else ""
    more = f"{f' ({because})' if because else ''}{rest}"
    text = said("child_undone", saga=state.saga_id, how=f"{state.status}{more}")
    mask = mask_of(state)
    text = text if mask is None else str(mask.value(text))
    error = ErrorInfo("child_undone", text[:1000], retryable=False)
    if left:
        error = ErrorInfo("child_left", text[:1000], retryable=False)
    return ChildEnd(state.saga_id, state.status, error=error, left=left)


def _outputs(state: State) -> tuple[dict[str, Any], list[str]]:
    """The outputs of the steps that happened, and the texts in them that views of the child do not show."""
    outputs = {
        step.key: state.steps[step.index].output
        for step in state.plan.steps
        if step.kind != "finally" and state.steps[step.index].status == t.SUCCEEDED
    }
    assert not any(isinstance(output, Stored) for output in outputs.values()), "its values are at hand"
    mask = mask_of(state)
    hidden = [] if mask is None else [*mask.found(outputs)]
    hidden += [text for step in state.steps for text in step.hidden]
    return {"saga_id": state.saga_id, "outputs": outputs}, hidden
