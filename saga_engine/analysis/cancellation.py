"""The preview of a cancel: what would be undone of a saga as it stands now, and what would remain.

It names the undos that would be called. Whether each of them succeeds, nobody knows before. A call that is in flight or
in doubt is settled first, and undone if it happened.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from saga_engine.core import transitions as t
from saga_engine.core.messages import check_cancel
from saga_engine.core.state import State
from saga_engine.errors import CancelRefused
from saga_engine.plan.compiled import CompiledStep
from saga_engine.plan.diagram import undo_text


@dataclass(slots=True)
class CancelPreview:
    """What a cancel would do now. ``refused``: why it is not possible; empty: it is.

    ``undoes``: steps whose undo would be called, the last that happened first; undos that do not depend on each other
    may have another order. ``settles``: steps whose call is in flight or in doubt, or whose child saga has not ended:
    that is settled first, by a cancel of the child, and undone if it happened. ``remains``: effects without an undo;
    ``asks``: of those, the steps about which a model or an operator would be asked. ``elsewhere``: effects that other
    sagas own. ``never``: steps that would not begin any more.
    """

    refused: str = ""
    undoes: list[dict[str, Any]] = field(default_factory=list)
    settles: list[dict[str, Any]] = field(default_factory=list)
    remains: list[dict[str, Any]] = field(default_factory=list)
    elsewhere: list[dict[str, Any]] = field(default_factory=list)
    never: list[dict[str, Any]] = field(default_factory=list)


def preview_cancel(state: State) -> CancelPreview:
    """The preview for a state as the journal has it; nothing changes."""
    found = CancelPreview()
    try:
        check_cancel(state)
    except CancelRefused as error:
        found.refused = error.message
    happened: list[tuple[int, dict[str, Any]]] = []
    for compiled in state.plan.steps:
        if compiled.kind == "finally":
            continue
        step = state.steps[compiled.index]
        body = _body(state, compiled)
        if step.status == t.SUCCEEDED:
            if not _has_effect(compiled) or step.undoes >= 0:
                continue
            if not state.owns(compiled.index):
                found.elsewhere.append(body)
            elif state.rollback_of(compiled.index) is not None:
                happened.append((step.happened_nth, body))
            else:
                found.remains.append(body | {"asks": compiled.kind != "irreversible"})
        elif _unsettled(state, compiled):
            found.settles.append(body)
        elif step.status in (t.PENDING, t.WAITING, t.ESCALATED):
            found.never.append(body)
    found.undoes = [body for _, body in sorted(happened, key=lambda each: each[0], reverse=True)]
    return found


def _has_effect(compiled: CompiledStep) -> bool:
    """Whether there can be something to undo: a read and a built-in step without a rollback leave nothing."""
    return compiled.kind != "read" and (bool(compiled.tool) or compiled.rollback is not None)


def _unsettled(state: State, compiled: CompiledStep) -> bool:
    step = state.steps[compiled.index]
    if compiled.child is not None:
        return compiled.index in state.children()
    if compiled.kind == "read" or not compiled.tool:
        return False
    return bool(step.forward.doubt) or step.status in (t.RUNNING, t.IN_DOUBT)


def _body(state: State, compiled: CompiledStep) -> dict[str, Any]:
    rollback = state.whole_rollback(compiled.index)
    child = compiled.child is not None  # it is undone by a saga of its own
    return {
        "step_id": compiled.step_id,
        "name": compiled.name,
        "tool": state.acting(compiled.index).tool or compiled.builtin,
        "kind": compiled.kind,
        "status": state.steps[compiled.index].status,
        "undo": compiled.builtin if child else None if rollback is None else undo_text(rollback),
    }
