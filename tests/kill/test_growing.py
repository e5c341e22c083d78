"""The kill matrix over plans that grow: amendments, other ways, steps that make up for one that stands."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from tests.kill.conftest import Place
from tests.kill.gates import Gate
from tests.kill.processes import Processes
from tests.kill.scenarios import (
    CALLS,
    NewPlace,
    Scenario,
    Stage,
    Told,
    breaches,
    clean,
    killed_at,
    killed_once,
    killed_twice,
)
from tests.kill.world import step
from tests.support.servers import EmbeddedFolder

ADVISED = (*CALLS, "advise")
TWEETED = {"steps": [step(1), {"step_id": 2, "tool": "tweet", "params": {"text": "we go!"}}, step(3, "fail")]}
REPLANNED = {"on_failure": "replan", "steps": [step(1), step(2, "fail"), step(3)]}
PAY = {"step_id": "other", "tool": "pay", "params": {"item": "o"}}


def other_way(variant: str) -> Scenario:
    """The second step fails, and a model knows another."""
    return Scenario(
        REPLANNED, variant, points=ADVISED, later=("acquire", "post", *ADVISED), more={"advice": {"replan 2": [PAY]}}
    )


def no_other_way(variant: str) -> Scenario:
    """Another way is found and fails too; then the model knows none, and all is undone, what was added as well."""
    steps = [PAY, {"step_id": 8, "tool": "fail", "params": {"item": "x"}}]
    return Scenario(
        REPLANNED,
        variant,
        points=ADVISED,
        later=("acquire", "post", *ADVISED),
        end="COMPENSATED",
        more={"advice": {"replan 2": steps}},
    )


def made_up_for(variant: str) -> Scenario:
    """What cannot be undone is made up for by two steps that need no approval."""
    steps = [
        {"step_id": "r1", "tool": "refund", "params": {"ref": "a"}},
        {"step_id": "r2", "tool": "retract", "params": {"ref": "b"}},
    ]
    return Scenario(
        {**TWEETED, "goal": "tell all, and else give back a and b"},
        variant,
        points=ADVISED,
        later=("acquire", "post", *ADVISED),
        end="COMPENSATED",
        refused="WAIVED",
        more={"advice": {"compensate 2": steps}},
    )


def apologised(variant: str, *, lead: bool) -> Scenario:
    """What cannot be undone is made up for after a person's word."""
    steps = [{"step_id": "sorry", "tool": "apologise", "params": {"to": "all"}}]
    return Scenario(
        TWEETED,
        variant,
        points=("acquire", "post", *CALLS) if lead else ADVISED,
        later=("acquire", "post", *ADVISED),
        lead="" if lead else None,
        part="resume-all" if lead else "submit",
        end="COMPENSATED",
        refused="WAIVED",
        more={"advice": {"compensate 2": steps}},
    )


SCENARIOS = {
    "another way, keyed": other_way("keyed"),
    "another way, bare": other_way("bare"),
    "no other way, keyed": no_other_way("keyed"),
    "no other way, bare": no_other_way("bare"),
    "made up for, keyed": made_up_for("keyed"),
    "made up for, bare": made_up_for("bare"),
    "proposed": apologised("keyed", lead=False),
    "apologised, keyed": apologised("keyed", lead=True),
    "apologised, bare": apologised("bare", lead=True),
}


#: What CI runs; the others differ from these in the tools only.
SHORT = ["another way, bare", "made up for, bare", "proposed", "apologised, keyed"]
NAMES = [pytest.param(name, marks=() if name in SHORT else pytest.mark.slow) for name in SCENARIOS]
REACHED = {
    "another way": ["advise:1:before", "advise:1:after", "append:5:before"],
    "no other way": ["advise:2:before", "advise:2:after", "append:8:after", "call:6:after"],
    "made up for": ["advise:1:before", "advise:1:after", "call:5:before", "call:5:after"],
    "proposed": ["advise:1:before", "advise:1:after", "append:5:before"],
    "apologised": ["post:1:after", "acquire:1:after", "call:1:before", "call:1:after"],
}


@pytest.mark.parametrize("name", NAMES)
def test_killed_anywhere(processes: Processes, new_place: NewPlace, embedded: EmbeddedFolder, name: str) -> None:
    """Wherever a process dies, the model is never asked what it has answered, and its steps happen once each."""
    found = killed_once(Stage(processes, new_place, embedded.url, SCENARIOS[name]))
    clean(found, REACHED[name.partition(",")[0]])


@pytest.mark.parametrize("name", ["no other way, bare", pytest.param("made up for, keyed", marks=pytest.mark.slow)])
def test_killed_again_while_resuming(
    processes: Processes, new_place: NewPlace, embedded: EmbeddedFolder, name: str
) -> None:
    """The same laws for a resume that is killed and resumed (a sample of the pairs)."""
    found = killed_twice(Stage(processes, new_place, embedded.url, SCENARIOS[name]), every=False)
    clean(found, [])
    assert sum("not reached" not in fault for fault in found) >= 3, sorted(found)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", list(SCENARIOS))
def test_killed_again_anywhere(processes: Processes, new_place: NewPlace, embedded: EmbeddedFolder, name: str) -> None:
    """Every pair of a kill and a second kill."""
    clean(killed_twice(Stage(processes, new_place, embedded.url, SCENARIOS[name]), every=True), [])


# --- amendments ----------------------------------------------------------------------------------------------------

CAR = [
    {"step_id": "car", "tool": "pay", "params": {"item": "car"}},
    {"step_id": 9, "tool": "fail", "params": {"item": "x"}},
]


def amended(variant: str) -> Scenario:
    """The owner is dead, and whoever adds steps takes the saga over; the last of them fails."""
    return Scenario(
        {"steps": [step(1), step(2), step(3)]},
        variant,
        points=("post", "acquire", *CALLS),
        lead="call:2:after",
        part="amend",
        end="COMPENSATED",
        more={"steps": CAR},
    )


def judged(stage: Stage, place: Place, told: Told, kills: int) -> list[str]:
    """Steps that were posted are added, once; without them the saga completes as it was planned."""
    posted = any(kind == "amend" for kind, *_ in told["messages"]) or _additions(told["before"])
    scenario = stage.scenario if posted else replace(stage.scenario, end="COMPLETED")
    found = breaches(scenario, told, place, kills + (scenario.lead is not None))
    if _additions(told["history"]) != bool(posted):
        found.append(f"posted: {bool(posted)}, added {_additions(told['history'])} times")
    return found


def _additions(history: list[dict[str, Any]]) -> int:
    return sum(record["k"] == "StepsAdded" for record in history)


@pytest.mark.parametrize("variant", ["bare", pytest.param("keyed", marks=pytest.mark.slow)])
def test_an_amendment_killed_anywhere(
    processes: Processes, new_place: NewPlace, embedded: EmbeddedFolder, variant: str
) -> None:
    """What was added runs once and is undone with the rest, or nothing of it was ever heard."""
    stage = Stage(processes, new_place, embedded.url, amended(variant))
    found = killed_once(stage, partial(judged, stage))
    clean(found, ["post:1:before", "post:1:after", "append:1:before", "append:1:after", "call:3:after"])


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("variant", ["keyed", "bare"])
def test_an_amendment_killed_again_anywhere(
    processes: Processes, new_place: NewPlace, embedded: EmbeddedFolder, variant: str
) -> None:
    """Every pair of a kill and a second kill."""
    stage = Stage(processes, new_place, embedded.url, amended(variant))
    clean(killed_twice(stage, every=True, judge=partial(judged, stage)), [])


def test_an_owner_that_dies_of_what_was_added(
    processes: Processes, new_place: NewPlace, embedded: EmbeddedFolder
) -> None:
    """The owner lives when steps are posted, and dies before or after it has taken them in: they are not lost."""
    plan = {"steps": [step(1), step(2, "wait"), step(3)]}
    stage = Stage(processes, new_place, embedded.url, replace(amended("keyed"), plan=plan, lead=None))
    found: dict[str, list[str]] = {}
    for fault in [f"{point}:{number}:{when}" for point, number in AFTER_THE_GATE for when in ("before", "after")]:
        place = stage.place()
        gate = Gate(place)
        owner = processes.start("submit", player="growing", variant="keyed", plan=plan, fault=fault, **place.told)
        gate.wait_for_the_call()
        assert stage.run("amend", place).told["final"]["status"] == "RUNNING"
        gate.open()
        assert owner.wait().killed, fault
        gate.open_for_good()
        told = stage.run("resume-all", place).told
        found[fault] = judged(stage, place, told, 1)
        if told["final"]["status"] != "COMPENSATED":
            found[fault].append("what was posted is lost")
    clean(found, [])


#: The owner has made two appends and one call when it waits; then come the three steps left, the last fails, and the undos.
AFTER_THE_GATE = [("append", 3), ("append", 4), ("append", 5), ("append", 6), ("call", 4), ("call", 6)]


def test_steps_that_were_posted_twice_are_added_once(
    processes: Processes, new_place: NewPlace, embedded: EmbeddedFolder
) -> None:
    """Whoever was killed right after posting tries again: the second message is refused, and whoever sent it hears so."""
    stage = Stage(processes, new_place, embedded.url, amended("keyed"))
    place, ended = stage.first("post:1:after")
    assert ended.killed
    again = stage.run("amend", place).told
    assert again["error"]["code"] == "amend-refused"
    told = stage.run("resume-all", place).told
    assert not judged(stage, place, told, 1)
    assert [record["code"] for record in told["history"] if record["k"] == "MessageRefused"] == ["plan-invalid"]


# --- the matrix can fail -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mutant", "fault"),
    [
        ("ask the model for a second opinion", "append:1:after"),
        ("forget what the model answered", "call:5:before"),
    ],
)
def test_the_matrix_catches(
    processes: Processes, new_place: NewPlace, embedded: EmbeddedFolder, mutant: str, fault: str
) -> None:
    """An engine that is broken in the way that the mutant says does not get through."""
    scenario = SCENARIOS["made up for, keyed"]
    stage = Stage(processes, new_place, embedded.url, replace(scenario, more={**scenario.more, "mutant": mutant}))
    assert killed_at(stage, [fault])[fault], f"nothing noticed the mutant '{mutant}'"
