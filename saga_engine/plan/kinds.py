"""Checks of the kinds of steps: what is undone, the point of no return, and what comes after it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from saga_engine.plan import graph
from saga_engine.plan.values import cut

if TYPE_CHECKING:
    from saga_engine.plan.compiled import CompiledStep
    from saga_engine.plan.draft import Draft


def check_kind(made: Draft, step: CompiledStep) -> None:
    """Check that what is written for a step fits its kind, and that what writes can be undone."""
    written, path = made.plan.steps[step.index], ("steps", step.index)
    checked = step.index >= made.check_from
    reads = checked and step.spec is not None and step.spec.effect == "read"
    if written.rollback is not None and (reads or step.kind == "read"):
        message = f"step {step.key} reads, so there is nothing to undo"
        made.problems.add("rollback-on-read", (*path, "rollback"), message, "remove the rollback")
    elif written.rollback is not None and step.kind in {"irreversible", "pivot", "retriable", "compensation"}:
        message = f"a {step.kind} step is never undone, but this one has a rollback"
        made.problems.add("kind-contradiction", (*path, "kind"), message, "remove the kind or the rollback")
    if not checked or step.spec is None or step.kind == "compensation":
        return
    if written.kind == "read" and not reads:
        message = f"the kind of the step is 'read', but its tool {cut(step.tool, 80)} writes"
        hint = "remove the kind, or declare the tool with effect='read'"
        made.problems.add("kind-contradiction", (*path, "kind"), message, hint)
    elif written.kind in {"compensatable", "irreversible"} and reads:
        message = f"the kind of the step is '{written.kind}', but its tool {cut(step.tool, 80)} only reads"
        made.problems.add("kind-contradiction", (*path, "kind"), message, "remove the kind")
    elif step.kind == "compensatable" and step.rollback is None and step.spec.semantic in {None, "never"}:
        hint = (
            'add a rollback, register an undo for its tool, set "kind": "pivot" and move it behind all steps that can '
            'be undone, or "kind": "irreversible" if its effect may remain when the rest is undone'
        )
        if written.kind is None:
            message = f"step {step.key} calls {cut(step.tool, 80)}, which writes and has no undo"
            made.problems.add("rollback-missing", path, message, hint)
        else:
            message = f"the kind of step {step.key} is 'compensatable', but it has no undo"
            made.problems.add("kind-contradiction", (*path, "kind"), message, hint)


def check_pivot(made: Draft, *, acyclic: bool) -> None:
    """Check that there is one point of no return: all that is undone comes before it, and what is retried after it."""
    wanted = [step for step in made.steps if step.key not in made.dropped]
    pivots = [step for step in wanted if step.kind == "pivot"]
    for second in pivots[1:]:
        message = f"a plan has at most one pivot, and step {pivots[0].key} is one already"
        hint = (
            f"if it can be undone, remove its kind and give it a rollback; if it may follow step {pivots[0].key} and "
            'be repeated until it succeeds, set "kind": "retriable" and make it depend on that step; if its effect may '
            'remain when the rest is undone, set "kind": "irreversible"'
        )
        made.problems.add("pivot-second", ("steps", second.index, "kind"), message, hint)
    if not acyclic:
        return  # a cycle has no before and after
    before: set[int] = set()
    after: set[int] = set()
    if pivots:
        deps = [step.deps for step in made.steps]
        before = graph.reach(pivots[0].index, deps)
        after = graph.reach(pivots[0].index, graph.dependents(deps))
    for step in wanted:
        if step.kind == "retriable" and step.index not in after:
            message = f"step {step.key} is retriable, but no pivot comes before it"
            hint = (
                "if it can be undone, remove its kind and give it a rollback (or register an undo for its tool); if it "
                'cannot, make it depend on the pivot, or set "kind": "irreversible" if its effect may remain when the '
                "rest is undone"
            )
            made.problems.add("kind-retriable-before-pivot", ("steps", step.index, "kind"), message, hint)
        elif pivots and step.kind == "compensatable" and step.index not in before and step.index not in made.guessed:
            message = f"step {step.key} can be undone, but it may run after step {pivots[0].key}, the pivot"
            hint = 'move the pivot last: make it depend on every step that can be undone; or set "kind": "retriable"'
            made.problems.add("pivot-not-last", ("steps", step.index), message, hint)
