"""Engines that are broken on purpose where steps have conditions, or a saga goes on from a failure."""

from __future__ import annotations

import pytest

from saga_engine.core import decide, settling
from saga_engine.core.evolve import calls, compensation
from saga_engine.core.steps import conditional
from tests.core.engine_mutants import Patch, rewrite


def _checked(*changes: tuple[str, str]) -> Patch:
    def apply(monkeypatch: pytest.MonkeyPatch) -> None:
        rewrite(conditional, "checked", *changes)(monkeypatch)
        monkeypatch.setattr(decide, "checked", conditional.checked)

    return apply


def undecidable_is_no(monkeypatch: pytest.MonkeyPatch) -> None:
    rewrite(conditional, "not_wanted", ("if truth is False:", "if truth is not True:"))(monkeypatch)
    monkeypatch.setattr("saga_engine.core.steps.not_wanted", conditional.not_wanted)


CONDITIONAL_MUTANTS: dict[str, Patch] = {
    "take what cannot be evaluated for a no": undecidable_is_no,
    "call a step whose conditions do not hold": rewrite(
        settling, "intend", ("(step.builtin or step.when is not None)", "step.builtin")
    ),
    "evaluate the conditions of a step before its undo": rewrite(settling, "intend", (" and direction == FORWARD", "")),
    "forget the order of undos at a skipped step": rewrite(
        compensation, "compensation_started", (" or step.settled or", " or")
    ),
    "start what depends on an output before it is checked": rewrite(
        calls,
        "happened",
        ("state.to_check[index] = None", "state.to_check[index] = None; _release_dependents(state, compiled)"),
    ),
    "do not undo a step whose output means failure": rewrite(
        calls, "output_checked", ('.kind != "read"', '.kind == "none"')
    ),
    "let an output pass that cannot be evaluated": _checked(("elif truth is not False:", "elif False:")),
    "never go on from what was skipped": rewrite(
        calls, "_pass_over", ("_release_dependents(state, state.plan.steps[index])", "pass")
    ),
}
