"""Engines that are broken on purpose where a completed saga is undone."""

from __future__ import annotations

from tests.support.mutating import Mutant, rewrite

UNDO_MUTANTS: dict[str, Mutant] = {
    "undo what was skipped": rewrite(
        (
            "old.steps[compiled.index].status == t.SUCCEEDED\n        and old.steps[compiled.index].effect is not None",
            "True",
        )
    ),
    "undo what is another saga's": rewrite(("owner = _owner(old, compiled, to, owners)", 'owner = ""')),
    "run finally again": rewrite(('body.pop("finally", None) is None', "True")),
    "undo out of order around a skipped step": rewrite((" or (pending and state.undo_of)", "")),
    "forget a step that has no undo": rewrite(
        (
            "for compiled in _as_happened(old):",
            "for compiled in [x for x in _as_happened(old) if old.acting(x.index).rollback]:",
        )
    ),
}
