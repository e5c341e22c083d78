"""Finds steps that wait for people or events while the saga holds a resource: everybody else waits for that as well."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from saga_engine.errors import Problem
from saga_engine.plan import graph
from saga_engine.plan.values import cut, json_path

if TYPE_CHECKING:
    from collections.abc import Collection

    from saga_engine.plan.compiled import CompiledStep
    from saga_engine.plan.draft import Draft

HELD: Final = "held-over-wait"

#: The words of steps whose end nobody here decides.
_WAITS: Final = {"ask": "a person", "wait": "an event"}


def held_over(made: Draft, asked: Collection[str] | None = None) -> list[Problem]:
    """The steps that wait for people or events after one whose tool has ``hold``.

    ``asked``: the paths of steps for whose calls the policy asks an operator; then only these are looked for.
    """
    steps = made.steps
    holding: dict[int, CompiledStep] = {}
    found: list[Problem] = []
    for index in graph.sort([step.deps for step in steps]):
        step, path = steps[index], json_path(("steps", index))
        before = next((holding[other] for other in step.deps if other in holding), None)
        whom = _WAITS.get(step.builtin) if asked is None else "an approval" if path in asked else None
        if before is not None and whom is not None:
            message = (
                f"step {step.key} waits for {whom}, and since step {before.key} the saga holds the "
                f"resource of {cut(before.tool, 80)} until its end"
            )
            hint = "ask or wait before that step; or say with hold_max_s when this takes too long"
            found.append(Problem(HELD, path, message, hint))
        if before is not None or _holds(step):
            holding[index] = before or step
    return found


def _holds(step: CompiledStep) -> bool:
    return any(spec is not None and spec.hold for spec in (step.spec, *(each.spec for each in step.fallbacks)))
