"""What a reader has to hold in the head may only get less: who brings a figure down writes the new one here."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
#: How many files of the package each walk enters. (What a write expects has a module of its own, for its checks.)
MOST_FILES = {"submission": 62, "step": 36, "event": 52}
#: What the whole is made of.
MOST_PARTS = {
    "slots of State": 51,
    "fields of StepState": 31,
    "kinds of records": 51,
    # (`expect`: the write says what it relies on. `hold`, `hold_max_s`: what a saga keeps, only the author knows.)
    "options of @tool": 48,  # (`undo_check`, `verify`, `verify_within_s`: how an undo is looked at. `cost`: only the tool's author knows what a call costs.)
    "params of Coordinator.open": 24,
    # Who holds a resource, and who waits, is decided in its slot: `hold`, `unhold`, `leave`, `holds`.
    # Who has written it tells its queue: `writes`.
    "verbs of a store": 85,
    # What plans compute gives the event loop back: a module of its own. Costs (`plan`) and the guard that counts them.
    # What a write expects: its form, and what the saga knows.
    # What sagas hold is a folder of the guards, and what it needs to know of other sagas is `api.holds`.
    # Who wrote what a resource names is one as well (`guards.writes`).
    # What is said to people is a room of its own: the mechanism, the words of questions, those of errors.
    # What compiles bindings stands apart from what resolves them, and the shapes of plans are known.
    "modules that Coordinator loads": 267,
    # The looks after undos are a folder of their own (`core.verified`), beside the kernel, and its records.
    # Words that are brought: what a folder says is looked at before it is recorded.
    # An `ask` has an addressee: read, checked, recorded and shown. What plans compute gives the event loop back. A
    # budget is read, tightened and carried to each call. A page asks whether there is a planner.
    # What the saga knows of a value, and what follows if that is no more (`core.expected`). What a call returned is held
    # against the output schema that its tool declares.
    # What sagas hold: taking, waiting, giving way, giving back; a call tells what its saga is.
    # What a store may read of each field is said beside its port (`ports.sealing`): less than the verbs that it replaced.
    # An undo asks who else has written since: what came of each write, and what the question tells of it.
    # A lease that is lost before a saga's first record loses no saga: it is submitted again.
    # A hold that is overdue is told to the hooks, and what dead processes left held is given back.
    # A suspect that waits for a guard is not tried: what it waits for may be another suspect's.
    # A client of Temporal refuses seven methods by name that it did not have.
    # A library that the loader would refuse is not preloaded.
    # Who reads that the loop is blocked is told whether a tool or the engine blocks it.
    # The steps of a long plan are compiled when they are first used, in the process that takes its saga over.
    # A plan of a known shape gets only its own values, which is what agents send.
    # Names of steps are masked at every door, and so is what binds a step of `finally` that has not begun.
    # A call of a session is not compared with itself.
    # What not every program uses is imported by the method that needs it: 7 statements, and 36 modules less.
    # Texts in the lists of a plan, its name and its tags are masked.
    "statements in the rooms of every saga": 18972,
}


@pytest.fixture(scope="module")
def told() -> Any:
    command = [sys.executable, "-m", "dev.benchmarks.reading", "--json"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def _grown(found: dict[str, int], most: dict[str, int]) -> dict[str, int]:
    assert set(found) == set(most)
    assert all(count > 4 for count in found.values()), "nothing was counted"
    return {name: count for name, count in found.items() if count > most[name]}


def test_no_walk_through_the_package_gets_longer(told: Any) -> None:
    """From an answer to the next call, from a new plan to its first call, from an event to the end of its saga."""
    assert _grown({name: walk["files"] for name, walk in told["walks"].items()}, MOST_FILES) == {}


def test_the_path_through_the_kernel_is_the_one_that_is_walked(told: Any) -> None:
    """``dev/kernel.md`` names each file that the walk of a step enters, and none that does not exist."""
    page = (ROOT / "dev" / "kernel.md").read_text(encoding="utf-8")
    walk = page.partition("## The walk of one step")[2].partition("\n## ")[0]
    assert set(told["walks"]["step"]["entered"]) - set(re.findall(r"`(\w+/[\w/]+\.py)`", walk)) == set()
    named = re.findall(r"`((?:core|execution|ext|guards|plan|runtime|stores|tools)/[\w/]+\.\w+)`", page)
    assert len(named) > 40
    assert [name for name in named if not (ROOT / "saga_engine" / name).exists()] == []


def test_the_whole_gets_no_more_parts(told: Any) -> None:
    """State, records, options, verbs of the store, modules, statements: what comes in takes something else out."""
    assert _grown(told["parts"], MOST_PARTS) == {}


def test_lines_are_counted_by_room(told: Any) -> None:
    """The sum is that of the rooms."""
    lines = told["lines"]
    assert lines["all"] == sum(count for room, count in lines.items() if room != "all") > 10_000
