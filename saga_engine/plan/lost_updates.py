"""Plans whose writes depend on a read and expect nothing of it: what comes in between is lost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from saga_engine.errors import Problem
from saga_engine.plan.values import canonical, json_path

if TYPE_CHECKING:
    from saga_engine.plan.compiled import CompiledStep
    from saga_engine.plan.draft import Draft

#: The warning about a write that depends on a read, and that nothing keeps from overwriting what came in between.
LOST_UPDATE: Final = "lost-update"


def lost_updates(made: Draft) -> list[Problem]:
    """The writes whose params come from a read of the very value that they change, and that expect nothing of it."""
    found: list[Problem] = []
    for step in made.steps:
        read = step.before
        if read is None or read.expect is not None or step.index in made.each:
            continue
        sources = (made.steps[made.by_key[key]] for key in sorted(step.params.outputs) if key in made.by_key)
        for source in sources:
            if _is_held(source) and _is_held(step):
                continue  # nobody else writes in between
            if source.tool != read.tool or canonical(source.params.raw) != canonical(read.params.raw):
                continue
            message = (
                f"step {step.key} writes what step {source.key} read, and what somebody else writes in between is lost"
            )
            hint = "add 'expect': '$before': the call is then made only if the value is still the one that was read"
            found.append(Problem(LOST_UPDATE, json_path(("steps", step.index)), message, hint))
            break
    return found


def _is_held(step: CompiledStep) -> bool:
    return step.spec is not None and step.spec.hold
