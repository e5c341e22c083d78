"""Sagas that began under an older engine go on under this one: their recorded histories are played again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import WorkflowHistory
from temporalio.workflow import NondeterminismError

from saga_engine.api.temporal import SagaWorkflow
from saga_engine.temporal.worker import replay
from tests.core.engine_mutants import MUTANTS
from tests.support.mutating import rewrite
from tests.temporal.recording import FOLDER, history, journal

FILES = sorted(FOLDER.glob("*.json"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
async def test_a_recorded_history_plays_as_it_went(path: Path) -> None:
    """Today's workflow does what it did when the history was recorded: else sagas under way would stop at an upgrade.

    And it writes the same journal, byte for byte, which the next run begins with. A record may change without a change
    of what is done: then the difference of the journals is reviewed (``python -m tests.temporal.recording``).
    """
    assert (await journal(history(path))).decode() == path.with_suffix(".jsonl").read_text()


@pytest.mark.parametrize(
    "record",
    ["SagaStarted", "StepSucceeded", "QuestionResolved", "AlertSent", "StepsAdded", "CompensationStarted"],
)
async def test_a_record_that_changed_is_noticed(record: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is done stays the same, so Temporal alone plays it green: the journals are what tells."""
    new = f"""\
    data = _encode(record)
    if b'"k":"{record}"' in data:
        data = data.replace(b'"at":', b'"note":"new","at":')
    if len(data) <= INLINE_LIMIT:
"""
    rewrite(("    data = _encode(record)\n    if len(data) <= INLINE_LIMIT:\n", new))(monkeypatch)
    written = {path.stem: (await journal(history(path))).decode() for path in FILES}
    changed = {path.stem for path in FILES if written[path.stem] != path.with_suffix(".jsonl").read_text()}
    assert changed == {stem for stem, text in written.items() if '"note":"new"' in text}
    assert changed


def test_every_journal_has_its_history() -> None:
    """None is left over, and a run begins with what the one before it wrote; records may have got fields since."""
    assert sorted(path.with_suffix(".json") for path in FOLDER.glob("*.jsonl")) == FILES
    for path in FILES:
        name, _, number = path.stem.rpartition("-")
        before = FOLDER / f"{name}-{int(number) - 1}.jsonl"
        if int(number) > 1:
            written, begun = records(before), records(path.with_suffix(".jsonl"))
            assert [{**new, **old} for old, new in zip(begun, written, strict=False)] == written


def records(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_there_are_histories_of_everything() -> None:
    """The recorded sagas have timers, answers from people, runs that continue others, and every way that Temporal runs."""
    said = "".join(path.read_text() for path in FILES)
    for event in ("TIMER_STARTED", "UPDATE_ACCEPTED", "CONTINUED_AS_NEW", "WORKFLOW_PROPERTIES_MODIFIED"):
        assert event in said
    written = "".join(path.with_suffix(".jsonl").read_text() for path in FILES)
    for mark in ('"fallback":1', '"call":{', "PlannerAsked", "AlertFailed", "FinallyStarted", "StepsAdded"):
        assert mark in written


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
        except (NondeterminismError, RuntimeError):  # of a run that continues another, the journal cannot be read
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
