"""Which read tells whether the undo of a call did what it says."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from saga_engine.plan.compiled import CompiledRead, CompiledRollback, Serving
from saga_engine.plan.which_undo import UndoOf, own_params, usual_params

if TYPE_CHECKING:
    from saga_engine.plan.compiled import Params
    from saga_engine.plan.problems import Path, Problems
    from saga_engine.plan.tool_spec import ToolSpec

#: ``check``: the read that the tool's ``undo_check`` names. ``before``: that of its before-image. ``probe``: the probe
#: of the undo itself. Empty: nothing tells, and the undo counts as its tool says.
By = Literal["", "check", "before", "probe"]


def look_of(serving: Serving, undo: CompiledRollback | None, *, image: bool) -> By:
    """What tells about the undo of a call; ``image``: the value from before the call is known."""
    if serving.spec is None or not serving.spec.verify:
        return ""
    if serving.check is not None:
        return "check"
    if serving.before is not None and image:
        return "before"
    if undo is None or undo.then or undo.each is not None:
        return ""  # a probe answers for one call only
    return "probe" if undo.spec is not None and undo.spec.probe is not None else ""


def within_ms(serving: Serving) -> int:
    """For how long after an undo the value may still be the old one, in ms."""
    return 0 if serving.spec is None else round(serving.spec.verify_within_s * 1000)


def compile_check(  # noqa: PLR0917
    declared: ToolSpec, spec: ToolSpec | None, key: str, forward: Params, problems: Problems, path: Path
) -> CompiledRead | None:
    """The read that a tool's ``undo_check`` names, for a call of step ``key``; ``spec`` is the read's declaration.

    What it must show is its ``absent``: then it finds nothing that is left.
    """
    check = declared.undo_check
    if check is None or spec is None:
        return None
    params, _ = own_params(UndoOf(check.tool, check.params), key, forward, problems, (*path, "undo_check", "params"))
    made = usual_params(spec, key, forward, None) if params is None else params
    return CompiledRead(check.tool, spec, made, spec.retry, spec.timeout_s, absent=check.shows)
