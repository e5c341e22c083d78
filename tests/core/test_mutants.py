"""The simulation can fail: each of these broken engines is caught by it."""

from __future__ import annotations

import itertools
import random

import pytest

from saga_engine.errors import JournalUnreadable
from tests.core.ask_simulation import AskSimulation
from tests.core.asking_later_simulation import AskLaterSimulation
from tests.core.child_mutants import CHILD_MUTANTS
from tests.core.child_simulation import ChildSimulation
from tests.core.conditional_mutants import CONDITIONAL_MUTANTS
from tests.core.conditional_simulation import ConditionalSimulation
from tests.core.each_mutants import EACH_MUTANTS
from tests.core.each_simulation import EachSimulation
from tests.core.engine_mutants import (
    ASK_MUTANTS,
    AWAY_MUTANTS,
    FINAL_MUTANTS,
    IMAGE_MUTANTS,
    LATER_MUTANTS,
    MUTANTS,
    SESSION_MUTANTS,
    WAITING_MUTANTS,
)
from tests.core.final_simulation import FinalSimulation
from tests.core.image_simulation import ImageSimulation
from tests.core.session_simulation import SessionSimulation
from tests.core.several_mutants import SEVERAL_MUTANTS
from tests.core.several_simulation import SeveralSimulation
from tests.core.simulation import Simulation
from tests.core.undo_calls_mutants import UNDO_CALLS_MUTANTS
from tests.core.undo_calls_simulation import UndoCallsSimulation
from tests.core.undo_mutants import UNDO_MUTANTS
from tests.core.undo_simulation import UndoSimulation
from tests.core.waiting_simulation import WaitingSimulation
from tests.core.world import Violation


def hunt(seeds: range, *kinds: type[Simulation]) -> str | None:
    """The first broken law, or None."""
    for seed, kind in itertools.product(seeds, kinds or (Simulation,)):
        dice = random.Random(seed)
        try:
            kind(dice, dice.choice([0.3, 0.6, 1.0])).run()
        except (Violation, JournalUnreadable, LookupError, AssertionError) as caught:
            return f"{type(caught).__name__}: {caught}"
    return None


#: Faults that few sagas can show, and the first seed of those among which they are found soon.
RARE = {
    "drop what was added while the planner was asked": 10_800,
    "a call in doubt waits until its key is forgotten": 1_750,
    "drop writes without a reason": 950,
    "drop all steps that have not started": 900,
    "start forward calls while turning around": 800,
    "repeat after the key has expired": 750,
    "an agent ends a session about which an operator is asked": 1_500,
    "accepting a remainder ends the session": 450,
    "evaluate the conditions of a step before its undo": 700,
    "start what depends on an output before it is checked": 450,
}


def seeds_of(name: str) -> range:
    return range(RARE.get(name, 0), RARE.get(name, 0) + 3000)


@pytest.mark.parametrize("name", [*MUTANTS, *LATER_MUTANTS])
def test_the_simulation_catches(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A broken engine does not get through."""
    (MUTANTS | LATER_MUTANTS)[name](monkeypatch)
    assert hunt(seeds_of(name)), f"nothing noticed the mutant '{name}'"


@pytest.mark.parametrize("name", SESSION_MUTANTS)
def test_the_simulation_of_sessions_catches(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine that is broken for sessions does not get through."""
    SESSION_MUTANTS[name](monkeypatch)
    assert hunt(seeds_of(name), SessionSimulation), f"nothing noticed the mutant '{name}'"


@pytest.mark.parametrize("name", ASK_MUTANTS)
def test_the_simulation_of_asks_catches(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine that is broken for the questions of plans does not get through."""
    ASK_MUTANTS[name](monkeypatch)
    assert hunt(seeds_of(name), AskSimulation), f"nothing noticed the mutant '{name}'"


@pytest.mark.parametrize("name", AWAY_MUTANTS)
def test_the_simulation_of_models_that_are_away_catches(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine that forgets to ask a model again, or asks too early or for ever, does not get through."""
    AWAY_MUTANTS[name](monkeypatch)
    assert hunt(seeds_of(name), AskLaterSimulation), f"nothing noticed the mutant '{name}'"


@pytest.mark.parametrize("name", FINAL_MUTANTS)
def test_the_simulation_of_finally_catches(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine that is broken for the steps of ``finally`` does not get through."""
    FINAL_MUTANTS[name](monkeypatch)
    assert hunt(range(1000), FinalSimulation), f"nothing noticed the mutant '{name}'"


@pytest.mark.parametrize("name", WAITING_MUTANTS)
def test_the_simulation_of_waits_catches(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine that is broken for steps that wait does not get through."""
    WAITING_MUTANTS[name](monkeypatch)
    assert hunt(seeds_of(name), WaitingSimulation), f"nothing noticed the mutant '{name}'"


@pytest.mark.parametrize("name", SEVERAL_MUTANTS)
def test_the_simulation_of_several_events_catches(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine that is broken for waits for several events does not get through."""
    SEVERAL_MUTANTS[name](monkeypatch)
    assert hunt(seeds_of(name), SeveralSimulation), f"nothing noticed the mutant '{name}'"


@pytest.mark.parametrize("name", CONDITIONAL_MUTANTS)
def test_the_simulation_of_conditions_catches(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine that is broken for conditional steps, or for outputs that mean failure, does not get through."""
    CONDITIONAL_MUTANTS[name](monkeypatch)
    assert hunt(seeds_of(name), ConditionalSimulation), f"nothing noticed the mutant '{name}'"


@pytest.mark.parametrize("name", EACH_MUTANTS)
def test_the_simulation_of_lists_catches(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine that is broken for steps with ``each`` does not get through."""
    EACH_MUTANTS[name](monkeypatch)
    assert hunt(range(1000), EachSimulation), f"nothing noticed the mutant '{name}'"


@pytest.mark.parametrize("name", UNDO_MUTANTS)
def test_the_simulation_of_undos_catches(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine that undoes a completed saga wrongly does not get through."""
    UNDO_MUTANTS[name](monkeypatch)
    assert hunt(range(500), UndoSimulation), f"nothing noticed the mutant '{name}'"


@pytest.mark.parametrize("name", IMAGE_MUTANTS)
def test_the_simulation_of_images_catches(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine that overwrites what others wrote, or undoes to another value, does not get through."""
    IMAGE_MUTANTS[name](monkeypatch)
    assert hunt(seeds_of(name), ImageSimulation), f"nothing noticed the mutant '{name}'"


@pytest.mark.parametrize("name", CHILD_MUTANTS)
def test_the_simulation_of_children_catches(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine that is broken for child sagas does not get through."""
    CHILD_MUTANTS[name](monkeypatch)
    assert hunt(range(1500), ChildSimulation), f"nothing noticed the mutant '{name}'"


@pytest.mark.parametrize("name", UNDO_CALLS_MUTANTS)
def test_the_simulation_of_several_undo_calls_catches(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine that makes the calls of an undo wrongly does not get through."""
    UNDO_CALLS_MUTANTS[name](monkeypatch)
    assert hunt(range(2000), UndoCallsSimulation), f"nothing noticed the mutant '{name}'"


def test_the_simulation_catches_nothing_else() -> None:
    """The same hunt finds nothing in the engine as it is, so what it finds are the mutants."""
    assert hunt(range(300), Simulation, SessionSimulation, AskSimulation, ImageSimulation) is None
    assert hunt(range(100), FinalSimulation) is None
    assert hunt(range(100), WaitingSimulation, AskLaterSimulation, SeveralSimulation) is None
    assert hunt(range(60), UndoSimulation) is None
    assert hunt(range(100), ChildSimulation) is None
    assert hunt(range(150), UndoCallsSimulation) is None
    assert hunt(range(200), ConditionalSimulation) is None
    assert hunt(range(200), EachSimulation) is None
