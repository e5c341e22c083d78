"""Sagas that began under an older engine go on under this one: their recorded histories are played again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from temporalio.client import WorkflowHistory
from temporalio.workflow import NondeterminismError

from saga_engine.api.temporal import SagaWorkflow
from saga_engine.temporal.worker import replay
from tests.core.engine_mutants import MUTANTS

FOLDER = Path(__file__).with_name("histories")
FILES = sorted(FOLDER.glob("*.json"))


def history(path: Path) -> WorkflowHistory:
    return WorkflowHistory.from_json(path.stem.rpartition("-")[0], path.read_text())


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
async def test_a_recorded_history_plays_as_it_went(path: Path) -> None:
    """Today's workflow does what it did when the history was recorded: else sagas under way would stop at an upgrade."""
    await replay(SagaWorkflow, [history(path)])


def test_there_are_histories_of_everything() -> None:
    """The recorded sagas have timers, answers from people, and runs that continue others."""
    said = "".join(path.read_text() for path in FILES)
    for event in ("TIMER_STARTED", "UPDATE_ACCEPTED", "CONTINUED_AS_NEW", "WORKFLOW_PROPERTIES_MODIFIED"):
        assert event in said


@pytest.mark.parametrize(
    "mutant", ["compensate forwards", "repeat a write without a key", "added steps are started at once"]
)
async def test_an_engine_that_decides_otherwise_is_noticed(mutant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A change of the core that would stop sagas under way fails here: a history does not play under a broken engine."""
    MUTANTS[mutant](monkeypatch)
    refused = []
    for path in FILES:
        try:
            await replay(SagaWorkflow, [history(path)])
        except NondeterminismError:
            refused.append(path.stem)
    assert refused


@pytest.mark.parametrize("kind", ["saga_call", "saga_capabilities"])
async def test_another_way_is_noticed(kind: str) -> None:
    """A replay that would have done something else fails: an activity of the history is told to have been another."""
    path = next(path for path in FILES if kind in path.read_text())
    body = json.loads(path.read_text())
    for event in body["events"]:
        scheduled = event.get("activityTaskScheduledEventAttributes")
        if scheduled and scheduled["activityType"]["name"] == kind:
            scheduled["activityType"]["name"] = "something_else"
            break
    with pytest.raises(NondeterminismError):
        await replay(SagaWorkflow, [WorkflowHistory.from_json("x", json.dumps(body))])
