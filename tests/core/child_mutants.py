"""Engines that are broken on purpose where a saga waits for others."""

from __future__ import annotations

import pytest

from saga_engine.core import report, settling
from saga_engine.core.effects import FORWARD
from saga_engine.core.evolve import children, compensation
from saga_engine.core.state import State
from saga_engine.core.steps import child
from tests.core.engine_mutants import Patch, rewrite, spread


def does_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(State, "calls_forward", lambda state: any(way == FORWARD for _, way in state.in_flight))


CHILD_MUTANTS: dict[str, Patch] = {
    "the turn does not wait for a child": does_not_wait,
    "the end of a child is lost": rewrite(child, "ended", ('wait.about["saga"] != end.saga', "True")),
    "the end of another child counts": rewrite(child, "ended", (' or wait.about["saga"] != end.saga', "")),
    "a child that completed counts as failed": rewrite(
        children, "ended", ("record.status == t.COMPLETED", "not record.status")
    ),
    "a child is started twice": rewrite(child, "child_id", ("if attempt == 1", "if True")),
    "what a child left is dropped": rewrite(children, "ended", ("step.left = [", "_ = [")),
    "what a child left is not in the report": rewrite(report, "_bucket", ("if step.left and (", "if False and (")),
    "a saga whose child left something counts as compensated": rewrite(
        compensation, "end_undo", ("if step.left and state.backward:", "if False:")
    ),
    "an undo that could not begin counts as done": rewrite(
        children, "_undone", ("record.status == t.COMPENSATED", "record.status != t.WAIVED")
    ),
    "a child that completed is not undone": rewrite(
        compensation, "_has_undo", ("state.undoing(index) is not None", "state.plan.steps[index].tool")
    ),
    "the undo of a child starts a new one": spread(
        child, "begin_undo", (settling,), ("undo_id(state.steps[index].child)", "child_id(state.saga_id, 'x', 1)")
    ),
}
