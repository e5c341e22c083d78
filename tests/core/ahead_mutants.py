"""Engines that undo a call ahead of its turn although nothing proves that it may be: ``AheadSimulation`` notices each."""

from __future__ import annotations

from tests.core.engine_mutants import Mutant, rewrite

AHEAD_MUTANTS: dict[str, Mutant] = {
    "an undo that waits for an operator holds up no other": rewrite(
        ("step.status == t.SUCCEEDED and walls.apart(index)", "step.status == t.SUCCEEDED")
    ),
    "whatever changes an object of its own depends on nothing": rewrite(
        ("if said.has_any(self._names) or self._said.has_any(one.names()):", "if said.has_any(self._names):"),
    ),
    "a value that an earlier call returned is no dependency": rewrite(
        ("return not self._come_from(one)", "return True"),
        ("if self._marks & (_marks(one.output) - _marks(one.given)):", "if False:"),
    ),
    "what the tools lock tells nothing": rewrite((" or one.locks & self._locks", "")),
    "an undo that waits is passed, whatever depends on it": rewrite(
        ("            return index\n        walls.add(index)\n", "            return index\n")
    ),
    "what has passed others is in nobody's way": rewrite(
        ("following.undo_waits = (following.undo_waits or 0) + len(passed)", "pass")
    ),
}
