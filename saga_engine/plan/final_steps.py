"""The steps of a plan's ``finally``: they run when the end of the saga is certain, whatever it is.

They wait only for each other, in the order of their list or as ``depends_on`` says. They may bind ``$end``, and the
outputs of all steps; a step that did not happen has none. Nothing undoes them, so they have no rollback and no kind.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from saga_engine.plan import graph
from saga_engine.plan.problems import known_names
from saga_engine.plan.redacted import check_redacted
from saga_engine.plan.values import cut

if TYPE_CHECKING:
    from saga_engine.plan.compiled import CompiledStep
    from saga_engine.plan.draft import Draft
    from saga_engine.plan.model import Step
    from saga_engine.plan.problems import Path


def order_final(final: Draft, first: int) -> None:
    """Determine what each step of ``finally``, from the index ``first`` on, waits for, and find what cannot be."""
    for number, written in enumerate(final.plan.finally_):
        path: Path = ("finally", number)
        _check_form(final, written, path)
        _settle(final, final.steps[first + number], written, first, path)
        if final.check_from == 0:
            check_redacted(final, final.steps[first + number], path)
    deps = [[at - first for at in step.deps] for step in final.steps[first:]]
    ordered = graph.sort(deps)
    for cycle in graph.cycles(deps, ordered) if len(ordered) < len(deps) else ():
        keys = " → ".join(final.steps[first + at].key for at in [*cycle, cycle[0]])
        path = ("finally", cycle[0], "depends_on")
        message = f"these steps depend on each other: {keys}"
        final.problems.add("graph-cycle", path, message, "remove one 'depends_on' or binding")


def finish(made: Draft) -> list[CompiledStep]:
    """The steps of ``finally``, ready to be compiled."""
    if made.final is None:
        return []
    first = len(made.steps)
    steps = made.final.steps[first:]
    for step, after in zip(steps, graph.dependents([[at - first for at in step.deps] for step in steps]), strict=True):
        step.dependents = tuple(first + at for at in after)
    return steps


def _check_form(final: Draft, written: Step, path: Path) -> None:
    if written.builtin:
        message = f"a step of 'finally' calls a tool, but this one has '{written.builtin}'"
        final.problems.add("finally-invalid", (*path, written.builtin), message, "call a tool")
    if written.each is not None:
        message = "a step of 'finally' calls its tool once, so it has no 'each'"
        final.problems.add("finally-invalid", (*path, "each"), message, "call a tool that takes the whole list")
    for name in ("kind", "rollback"):
        if getattr(written, name) is not None:
            message = f"a step of 'finally' is never undone, so it has no '{name}'"
            final.problems.add("finally-invalid", (*path, name), message, "remove it")
    for number, fallback in enumerate(written.fallback or ()):
        where = (*path, "fallback", number)
        if fallback.rollback is not None:
            message = "a step of 'finally' is never undone, so its fallback has no 'rollback'"
            final.problems.add("finally-invalid", (*where, "rollback"), message, "remove it")
        if fallback.queue_s is not None:
            message = "a step of 'finally' cannot be deferred: the saga's end would wait for it"
            final.problems.add("finally-invalid", (*where, "queue_s"), message, "use a retry instead")


def _settle(final: Draft, step: CompiledStep, written: Step, first: int, path: Path) -> None:
    waits: set[int] = set()
    for position, wanted in enumerate(written.depends_on or ()):
        before = final.by_key.get(str(wanted), -1)
        if before >= first:
            waits.add(before)
            continue
        message = f"there is no step {wanted} in 'finally'"
        if before >= 0:
            message = f"step {wanted} is not of 'finally': it has ended before any step of 'finally' begins"
        hint = known_names([each.key for each in final.steps[first:]], "steps of 'finally'")
        final.problems.add("depends-on-unknown", (*path, "depends_on", position), message, hint)
    for template, _, base, _ in final.bound.get(step.index, ()):
        for place in template.places:
            before = final.by_key[place.step] if place.source == "output" else -1
            if 0 <= before < first and not place.optional:
                message = f"{cut(place.text, 120)}: step {place.step} may not have happened when the saga ends"
                hint = f'give a default: {{"$first": ["{cut(place.text, 120).strip(chr(34))}", null]}}'
                final.problems.add("finally-invalid", (*base, *place.path), message, hint)
            if before < first:
                continue
            if before == step.index or (written.depends_on is None and before > step.index):
                message = f"{cut(place.text, 120)}: step {step.key} cannot bind the output of step {place.step}"
                hint = "bind the output of an earlier step"
                final.problems.add("binding-not-before", (*base, *place.path), message, hint)
            else:
                waits.add(before)
    step.data_deps = frozenset(waits)
    if written.depends_on is None and step.index > first:
        waits.add(step.index - 1)
    step.deps = tuple(sorted(waits))
