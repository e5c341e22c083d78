"""Logs unforeseen exceptions of tools, as soon as they occur and before they are interpreted."""

from __future__ import annotations

from saga_engine.core.effects import CallTool, Done, Outcome, Probe
from saga_engine.core.masking import mask_of
from saga_engine.core.question_view import asked_tool
from saga_engine.core.state import State
from saga_engine.ports.defects import log_defect


def tell_defect(state: State, effect: CallTool | Probe, outcome: Outcome) -> None:
    """Log an unforeseen exception with its saga and step."""
    if isinstance(outcome, Done) or outcome.error.traceback is None:
        return
    mask = mask_of(state)
    log_defect(
        outcome.error if mask is None else mask.error(outcome.error),
        tool=asked_tool(state, effect.step, effect.direction),
        saga_id=state.saga_id,
        step=state.plan.steps[effect.step].step_id,
        direction="probe" if isinstance(effect, Probe) else effect.direction,
        attempt=effect.attempt,
    )
