"""The scenarios in ``*.txt`` are the specification of the semantics, and the engine keeps it."""

from __future__ import annotations

import asyncio
import difflib
import itertools
import re
import typing
from pathlib import Path

import pytest

from saga_engine.core import asking_later, questions, records
from saga_engine.core.messages import DECISIONS
from tests.scenarios import page
from tests.scenarios.player import Player

SCENARIOS = page.scenarios()
#: Those that a real server with a disk plays as well.
ON_DISK = ("crash-before-result", "failure-compensation", "forward-success", "owners-fenced", "session-savepoint-crash")
_NUMBERS = itertools.count()


def settle(scenario: Path, found: str, *, accept: bool) -> None:
    """Compare what happened with what was reviewed, or write it down for a review."""
    if accept:
        scenario.write_text(found)
    else:
        compare(scenario.read_text(), found)


async def played(scenario: Path, url: str, monkeypatch: pytest.MonkeyPatch) -> str:
    # A process that is to die before it asks again must not be so slow that it asks first.
    monkeypatch.setattr(asking_later, "DELAYS_MS", (2000 if scenario.stem == "crash-model-away" else 1, 1, 1))
    return await Player(url, monkeypatch.setenv).play(await asyncio.to_thread(scenario.read_text))


def in_memory() -> str:
    """A store of its own."""
    return f"memory://scenario-{next(_NUMBERS)}"


def compare(expected: str, found: str) -> None:
    """Fail with the difference, as a person reviews it."""
    if found != expected:
        diff = difflib.unified_diff(expected.splitlines(), found.splitlines(), "reviewed", "now", lineterm="", n=20)
        pytest.fail("\n".join([*diff, "if it is meant so: pytest --accept-transcripts, and review"]), pytrace=False)


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda path: path.stem)
async def test_scenario(scenario: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """Plan, faults and answers lead to the journal, the questions, the report and the remaining effects as reviewed.

    ``--accept-transcripts`` writes what happens now; review the diff.
    """
    found = await played(scenario, in_memory(), monkeypatch)
    settle(scenario, found, accept=request.config.getoption("--accept-transcripts"))


@pytest.mark.parametrize("name", ON_DISK)
async def test_a_store_on_disk_plays_the_same(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The semantics do not depend on the store."""
    scenario = page.FOLDER / f"{name}.txt"
    settle(scenario, await played(scenario, f"embedded://{tmp_path}/.saga", monkeypatch), accept=False)


async def test_an_output_that_differs_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A scenario that expects something else than what happens fails and shows the line."""
    scenario = tmp_path / "wrong.txt"
    right = (page.FOLDER / "failure-compensation.txt").read_text()
    settle(scenario, right.replace("+ remaining effects: none", "+ remaining effects: book-car"), accept=True)
    found = await played(scenario, in_memory(), monkeypatch)
    assert found == right
    with pytest.raises(pytest.fail.Exception, match=r"-\+ remaining effects: book-car"):
        settle(scenario, found, accept=False)


def test_the_page_lists_every_scenario(request: pytest.FixtureRequest) -> None:
    """``docs/semantics.md`` has each scenario with its sentence, and shows one in full."""
    if request.config.getoption("--accept-transcripts"):
        page.write()
    text = page.PAGE.read_text(encoding="utf-8")
    assert text == page.drawn(text)
    assert len(SCENARIOS) >= 40
    assert [path.name for path in SCENARIOS if f"scenarios/{path.name})" not in text] == []


def test_everything_that_can_be_recorded_is_specified() -> None:
    """Each kind of record, each kind of question and each decision occurs in a scenario."""
    texts = "\n".join(path.read_text() for path in SCENARIOS)
    kinds = {kind.__name__ for kind in typing.get_args(records.AnyRecord)}
    assert kinds - _kinds(texts) == set()
    assert set(questions.OPTIONS) - set(re.findall(r"^\? \S+ ([\w-]+):", texts, re.MULTILINE)) == set()
    assert set(DECISIONS) - set(re.findall(r"^> resolve \S+ \S+ (\S+)", texts, re.MULTILINE)) == set()


def _kinds(texts: str) -> set[str]:
    """The kinds of the records in the output: what follows the step, of which there may be none."""
    return set(re.findall(r"^\| .{14} (\w+)", texts, re.MULTILINE))
