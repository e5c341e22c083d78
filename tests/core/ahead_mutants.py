"""Engines that undo a call ahead of its turn although nothing proves that it may be: ``AheadSimulation`` notices each."""

from __future__ import annotations

from tests.core.engine_mutants import Mutant, rewrite

AHEAD_MUTANTS: dict[str, Mutant] = {
    "an undo that waits for an operator holds up no other": rewrite(
        ("all(_apart(state, index, wall, known) for wall in walls)", "True")
    ),
    "whatever changes an object of its own depends on nothing": rewrite(
        ("if _names((*one.given, *one.undone), other.changes) or _names(", "if False and _names("),
    ),
    "a value that an earlier call returned is no dependency": rewrite(
        ("return not any(_comes_from(each, one) for each in other.given)", "return True"),
        ("if _marks(other.given) & _marks(one.output) - _marks(one.given):", "if False:"),
    ),
    "what the tools lock tells nothing": rewrite(("or one.locks & other.locks", "")),
    "an undo that waits is passed, whatever depends on it": rewrite(
        ("            return index\n        walls.append(index)\n", "            return index\n")
    ),
    "what has passed others is in nobody's way": rewrite(
        ("following.undo_waits = (following.undo_waits or 0) + len(passed)", "pass")
    ),
}
