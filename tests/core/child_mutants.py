"""Engines that are broken on purpose where a saga waits for others."""

from __future__ import annotations

from tests.support.mutating import Mutant, rewrite

CHILD_MUTANTS: dict[str, Mutant] = {
    "the turn does not wait for a child": rewrite(
        ("if self.pending and any(each.holds_turn for each in self.pending.values()):", "if False:")
    ),
    "the end of a child is lost": rewrite(
        (
            'wait = state.pending.get(index)\n    if wait is None or wait.on != "child" or wait.about["saga"] != end.saga:',
            'wait = state.pending.get(index)\n    if wait is None or wait.on != "child" or True:',
        )
    ),
    "the end of another child counts": rewrite(
        (
            'wait = state.pending.get(index)\n    if wait is None or wait.on != "child" or wait.about["saga"] != end.saga:',
            'wait = state.pending.get(index)\n    if wait is None or wait.on != "child":',
        )
    ),
    "a child that completed counts as failed": rewrite(("record.status == t.COMPLETED", "not record.status")),
    "a child is started twice": rewrite(("if attempt == 1", "if True")),
    "what a child left is dropped": rewrite(("step.left = [", "_ = [")),
    "what a child left is not in the report": rewrite(("if step.left and (", "if False and (")),
    "a saga whose child left something counts as compensated": rewrite(
        ("if step.left and state.backward:", "if False:")
    ),
    "an undo that could not begin counts as done": rewrite(
        ("record.status == t.COMPENSATED", "record.status != t.WAIVED")
    ),
    "a child that completed is not undone": rewrite(
        (
            "return state.undoing(index) is not None or (state.plan",
            "return bool(state.plan.steps[index].tool) or (state.plan",
        )
    ),
    "the undo of a child starts a new one": rewrite(
        ("undo_id(state.steps[index].child)", "child_id(state.saga_id, 'x', 1)")
    ),
}
