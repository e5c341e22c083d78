"""Engines that are broken on purpose where steps have lists."""

from __future__ import annotations

from tests.support.mutating import Mutant, rewrite

EACH_MUTANTS: dict[str, Mutant] = {
    "start all items at once": rewrite(("if number < lanes else (first + number - lanes,)", "")),
    "let what depends on a list start with its first item": rewrite(
        ("replace(of, deps=(*of.deps, *tails)", "replace(of, deps=(*of.deps, *tails[:0])")
    ),
    "undo what a list depends on before its items": rewrite(
        ("dependents=(*steps[before].dependents, *heads)", "dependents=steps[before].dependents")
    ),
    "give all items one key": rewrite(('f"{parent}[{number}]"', 'f"{parent}[0]"')),
    "call the items that the list leaves out": rewrite(("if truth:", "if True:")),
    "complete without the items": rewrite(("state.remaining += len(made)", "pass")),
    "lose the items when steps are added": rewrite(("if state.lists:", "if False:")),
    "stop at an item whose failure is collected": rewrite(
        ("state.plan.steps[index].goes_on(", "False and state.plan.steps[index].goes_on(")
    ),
}
