"""Engines that are broken on purpose where an undo consists of several calls."""

from __future__ import annotations

from saga_engine.core import decide, settling
from saga_engine.core.evolve import compensation, escalation
from saga_engine.core.state import State
from tests.core.engine_mutants import Patch, rewrite

UNDO_CALLS_MUTANTS: dict[str, Patch] = {
    "an undo ends with its first call": rewrite(compensation, "goes_on", (">= made.of", ">= 1")),
    "all calls of an undo share one key": rewrite(
        State, "key", ("0 if step.undo_call is None else step.undo_call.number", "0")
    ),
    "an undo begins again with its first call": rewrite(settling, "next_undo_call", ("places[done]", "places[0]")),
    "an undo goes on with its last call": rewrite(settling, "next_undo_call", ("places[done]", "places[-1]")),
    "what a person says of one call counts for all": rewrite(
        escalation, "_undo_goes_on", ("if not compensation", "if True or not compensation")
    ),
    "a doubt is settled by an undo of which one call tolerates absence": rewrite(
        settling, "_blind_undo", ("all(call", "any(call")
    ),
    "a model makes up for a step that is half undone": rewrite(
        decide, "_stuck", (" and not state.steps[index].undo_calls", "")
    ),
}
