"""From a journal's records to the state: every reader folds alike, and refuses alike what is no journal."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from saga_engine.analysis.fingerprint import folded
from saga_engine.core import records as r
from saga_engine.core.fold import fold, started_of, state_of
from saga_engine.core.plan_growth import Growth, compile_started
from saga_engine.core.report import view
from saga_engine.core.submission import Submission
from saga_engine.errors import JournalUnreadable
from saga_engine.plan.compiler import compile_plan
from saga_engine.plan.model import load_plan
from saga_engine.plan.tool_spec import ToolSpec
from saga_engine.runtime.journal import state_of as state_of_stored
from tests.core.simulation import Catalog

BODY = {"steps": [{"step_id": 1, "tool": "pay", "rollback": {"tool": "refund"}}, {"step_id": 2, "tool": "look"}]}
CATALOG = Catalog([ToolSpec("pay"), ToolSpec("refund"), ToolSpec("look", effect="read")])
COMPILED = compile_plan(load_plan(BODY), CATALOG)


def submission(**more: Any) -> Submission:
    plan = load_plan(BODY)
    return Submission(saga_id="s", plan=plan.json_bytes, compiled=COMPILED, digest=plan.digest, seed="x", **more)


JOURNAL: list[r.AnyRecord] = [
    submission().started(1),
    r.StepIntended(at=2, step="1"),
    r.StepSucceeded(at=3, step="1", output={"ref": "a"}),
    r.StepIntended(at=4, step="2"),
]

READERS: dict[str, Callable[[list[r.AnyRecord]], Any]] = {
    "fold": lambda records: fold(records, COMPILED),
    "state_of": state_of,
    "state_of, of the runtime": state_of_stored,
    "folded": lambda records: folded(records, COMPILED),
    "started_of": started_of,
}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("journal", [[], JOURNAL[1:]], ids=["empty", "cut"])
def test_a_journal_that_begins_otherwise_is_refused(reader: str, journal: list[r.AnyRecord]) -> None:
    """One error, whoever reads: a journal begins with ``SagaStarted``."""
    with pytest.raises(JournalUnreadable, match="must begin with SagaStarted"):
        READERS[reader](journal)


def test_every_reader_comes_to_the_same_state() -> None:
    """The plan may be compiled before, by the reader, or from its cache: the state is the same."""
    whole = view(fold(JOURNAL, COMPILED))
    assert view(state_of(JOURNAL, CATALOG)) == whole
    assert view(state_of_stored(JOURNAL, CATALOG)) == whole
    assert view(folded(JOURNAL, COMPILED)[0]) == whole
    assert [step.status for step in whole.steps] == ["SUCCEEDED", "RUNNING"]


def test_a_note_is_taken_of_every_record_after_the_first() -> None:
    """The state that comes with a record is the one after it."""
    seen: list[tuple[str, int]] = []
    fold(JOURNAL, COMPILED, note=lambda state, record: seen.append((type(record).__name__, state.at)))
    assert seen == [("StepIntended", 2), ("StepSucceeded", 3), ("StepIntended", 4)]


def test_a_journalled_plan_that_is_no_object_is_not_read_as_a_file(tmp_path: Any) -> None:
    """A plan given as a text names a file; one in a journal never does."""
    path = tmp_path / "plan.json"
    path.write_bytes(load_plan(BODY).json_bytes)
    started = r.SagaStarted(at=1, saga_id="s", plan=str(path), digest="d", seed="x")
    for reader in (state_of, state_of_stored):
        with pytest.raises(JournalUnreadable, match="not an object"):
            reader([started])
    with pytest.raises(JournalUnreadable, match="not an object"):
        Growth(started, None).compile([])


def test_a_submission_makes_a_record_that_holds_its_plan() -> None:
    """What is compiled from the first record is what was submitted, at the time that the runtime gave."""
    started = submission(input={"a": 1}, fork_of="other").started(7)
    assert (started.at, started.saga_id, started.input, started.fork_of) == (7, "s", {"a": 1}, "other")
    again = compile_started(started, CATALOG)
    assert again.tool_digests == COMPILED.tool_digests
    assert again.undos == COMPILED.undos
    assert isinstance(started.plan, msgspec.Raw)
