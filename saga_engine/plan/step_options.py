"""Checks of ``when``, ``on_error`` and ``failed_when``: where they make sense, and what binds to a missing output."""

from __future__ import annotations

from typing import TYPE_CHECKING

from saga_engine.plan.redacted import check_redacted
from saga_engine.plan.values import cut

if TYPE_CHECKING:
    from saga_engine.plan.compiled import CompiledStep
    from saga_engine.plan.draft import Draft
    from saga_engine.plan.problems import Path


def check_options(made: Draft, step: CompiledStep) -> None:
    """Add the problems of a step's options and of its bindings to steps that may have no output."""
    path: Path = ("steps", step.index)
    fixed = "decides whether there is a way back" if step.kind == "pivot" else "makes up for another step"
    for name, given in (("when", step.when is not None), ("on_error", step.continues)):
        if given and step.kind in {"pivot", "compensation"}:
            message = f"'{name}' on a {step.kind}: step {step.key} {fixed}, so it must run, or fail"
            made.problems.add("kind-contradiction", (*path, name), message, f"remove '{name}'")
    if step.failed_when is not None:
        place = (*path, "failed_when")
        if step.kind not in {"compensatable", "read"}:
            message = f"a {step.kind} step is never undone, so its output cannot mean failure"
            made.problems.add("kind-contradiction", place, message, "use 'failed_when' where there is an undo")
        elif step.continues and step.kind != "read" and step.index not in made.guessed:
            message = f"step {step.key} cannot go on after 'failed_when': its effect has to be undone"
            made.problems.add("kind-contradiction", place, message, "remove 'on_error', or 'failed_when'")
    _check_defaults(made, step)
    check_redacted(made, step, path)


def _check_defaults(made: Draft, step: CompiledStep) -> None:
    for template, _, base, _ in made.bound.get(step.index, ()):
        for place in template.places:
            if place.source != "output" or place.optional or place.step == step.key:
                continue
            source = made.steps[made.by_key[place.step]]
            if source.may_lack_output:
                why = "may be skipped" if source.when is not None else "may fail and the saga goes on"
                message = f"{cut(place.text, 120)}: step {source.key} {why}, so it may have no output"
                hint = f'give a default: {{"$first": ["{place.text}", null]}}'
                made.problems.add("binding-needs-default", (*base, *place.path), message, hint)
