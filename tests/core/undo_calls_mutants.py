"""Engines that are broken on purpose where an undo consists of several calls."""

from __future__ import annotations

from tests.support.mutating import Mutant, rewrite

UNDO_CALLS_MUTANTS: dict[str, Mutant] = {
    "an undo ends with its first call": rewrite((">= made.of", ">= 1")),
    "all calls of an undo share one key": rewrite(("0 if step.undo_call is None else step.undo_call.number", "0")),
    "an undo begins again with its first call": rewrite(("places[done]", "places[0]")),
    "an undo goes on with its last call": rewrite(("places[done]", "places[-1]")),
    "what a person says of one call counts for all": rewrite(("if not compensation", "if True or not compensation")),
    "a doubt is settled by an undo of which one call tolerates absence": rewrite(
        (
            "return all(call.spec is not None and call.spec.tolerates_absence for call in calls)",
            "return any(call.spec is not None and call.spec.tolerates_absence for call in calls)",
        )
    ),
    "a model makes up for a step that is half undone": rewrite((" and not state.steps[index].undo_calls", "")),
}
