"""The one count of a saga's steps costs a look at each step, however many questions are open."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from saga_engine.core.fold import begin
from saga_engine.core.records import SagaStarted
from saga_engine.core.report import counts
from saga_engine.core.state_values import OpenQuestion
from saga_engine.plan.compiler import compile_plan
from saga_engine.plan.model import load_plan
from saga_engine.plan.tool_spec import ToolSpec
from tests.core.simulation import Catalog


class Looked(dict[str, OpenQuestion]):
    """Questions that count how often they are gone through."""

    times = 0

    def values(self) -> Any:
        self.times += 1
        return super().values()


def test_questions_are_gone_through_once() -> None:
    """Not once for each step: a saga with thousands of both is counted before each append that changes a question."""
    body = {"steps": [{"step_id": number, "tool": "look", "kind": "irreversible"} for number in range(1, 50)]}
    compiled = compile_plan(load_plan(body), Catalog([ToolSpec("look", effect="write", keyed=True)]))
    state = begin(SagaStarted(at=0, saga_id="s", plan=None, digest="", seed="0"), compiled)
    looked = Looked(one=SimpleNamespace(step=0, direction="forward", kind="in-doubt"))  # type: ignore[dict-item]
    state.questions = looked
    for step in state.steps:
        step.status = "RUNNING"
    assert counts(state).steps == 49
    assert looked.times == 1
