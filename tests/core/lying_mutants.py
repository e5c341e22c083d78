"""Engines that are broken on purpose where an undo is looked at."""

from __future__ import annotations

from tests.support.mutating import Mutant, rewrite

LYING_MUTANTS: dict[str, Mutant] = {
    "nobody looks whether an undo did what it says": rewrite(
        ("        if by and not (record.via in", "        if False and not (record.via in")
    ),
    "the saga ends while an undo is looked at": rewrite(
        ("self.doubts or self.questions or self.looks", "self.doubts or self.questions")
    ),
    "a value that is as the call left it counts as undone": rewrite(
        (
            'would_leave(state, index, found):\n        return "left"',
            'would_leave(state, index, found):\n        return "verified"',
        )
    ),
    "what an undo was to show is not compared": rewrite(('        if "absent" in seen:', "        if True:")),
    "a look that failed says that the undo is verified": rewrite(
        ('how="said", error=error', 'how="verified", error=error')
    ),
    "an old value is not looked at again": rewrite(("if state.looks[index] >= until:", "if True:")),
}
