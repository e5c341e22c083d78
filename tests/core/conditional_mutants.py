"""Engines that are broken on purpose where steps have conditions, or a saga goes on from a failure."""

from __future__ import annotations

from tests.support.mutating import Mutant, rewrite

CONDITIONAL_MUTANTS: dict[str, Mutant] = {
    "take what cannot be evaluated for a no": rewrite(
        ("    if truth is False:\n        return r.", "    if truth is not True:\n        return r.")
    ),
    "call a step whose conditions do not hold": rewrite(("(step.builtin or step.when is not None)", "step.builtin")),
    "evaluate the conditions of a step before its undo": rewrite(
        (
            "if (step.builtin or step.when is not None) and direction == FORWARD and (made := begin(state, index, now)):",
            "if (step.builtin or step.when is not None) and (made := begin(state, index, now)):",
        )
    ),
    "forget the order of undos at a skipped step": rewrite((" or step.settled or", " or")),
    "start what depends on an output before it is checked": rewrite(
        ("state.to_check[index] = None", "state.to_check[index] = None; _release_dependents(state, compiled)")
    ),
    "do not undo a step whose output means failure": rewrite(
        ('if state.plan.steps[index].kind != "read":', 'if state.plan.steps[index].kind == "none":')
    ),
    "let an output pass that cannot be evaluated": rewrite(("elif truth is not False:", "elif False:")),
    "never go on from what was skipped": rewrite(
        ("state.passed += 1\n    _release_dependents(state, state.plan.steps[index])", "state.passed += 1\n    pass")
    ),
}
