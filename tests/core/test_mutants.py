"""The simulation can fail: each of these broken engines is caught by it."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from saga_engine.errors import JournalUnreadable
from tests import tiers
from tests.core.ahead_mutants import AHEAD_MUTANTS
from tests.core.ahead_simulation import AheadSimulation
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
from tests.core.expected_mutants import EXPECTED_MUTANTS
from tests.core.expected_simulation import ExpectedSimulation
from tests.core.final_simulation import FinalSimulation
from tests.core.hunts import HUNTS
from tests.core.image_simulation import ImageSimulation
from tests.core.lying_mutants import LYING_MUTANTS
from tests.core.lying_simulation import LyingImages
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

#: The seeds that caught the mutants when somebody last looked, by the simulation and the mutant's name: without them most
#: of the hunt goes into sagas that show nothing. A seed that catches no more costs the search for one behind it, and
#: nothing else. ``python -m tests.core.test_mutants`` writes them anew.
CAUGHT = Path(__file__).parent / "caught.json"
KNOWN: dict[str, dict[str, int]] = json.loads(CAUGHT.read_text())


def broken_law(kind: type[Simulation], seed: int) -> str | None:
    """The law that one random saga breaks, or None."""
    dice = random.Random(seed)
    try:
        kind(dice, dice.choice([0.3, 0.6, 1.0])).run()
    except (Violation, JournalUnreadable, LookupError, AssertionError) as caught:
        return f"{type(caught).__name__}: {caught}"
    return None


def hunt(name: str, kind: type[Simulation] = Simulation) -> int | None:
    """The first seed whose saga breaks a law, or None."""
    first = KNOWN.get(kind.__name__, {}).get(name, 0)
    return next((seed for seed in range(first, first + 3000) if broken_law(kind, seed)), None)


@pytest.mark.parametrize("name", [*MUTANTS, *LATER_MUTANTS])
def test_the_simulation_catches(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A broken engine does not get through."""
    (MUTANTS | LATER_MUTANTS)[name](monkeypatch)
    assert hunt(name) is not None, f"nothing noticed the mutant '{name}'"


@pytest.mark.parametrize("name", SESSION_MUTANTS)
def test_the_simulation_of_sessions_catches(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine that is broken for sessions does not get through."""
    SESSION_MUTANTS[name](monkeypatch)
    assert hunt(name, SessionSimulation) is not None, f"nothing noticed the mutant '{name}'"


@pytest.mark.parametrize("name", AHEAD_MUTANTS)
def test_the_simulation_of_undos_ahead_of_their_turn_catches(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine that undoes a call while one that depends on it waits for an operator does not get through."""
    AHEAD_MUTANTS[name](monkeypatch)
    assert hunt(name, AheadSimulation) is not None, f"nothing noticed the mutant '{name}'"


@pytest.mark.parametrize("name", ASK_MUTANTS)
def test_the_simulation_of_asks_catches(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine that is broken for the questions of plans does not get through."""
    ASK_MUTANTS[name](monkeypatch)
    assert hunt(name, AskSimulation) is not None, f"nothing noticed the mutant '{name}'"


@pytest.mark.parametrize("name", AWAY_MUTANTS)
def test_the_simulation_of_models_that_are_away_catches(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine that forgets to ask a model again, or asks too early or for ever, does not get through."""
    AWAY_MUTANTS[name](monkeypatch)
    assert hunt(name, AskLaterSimulation) is not None, f"nothing noticed the mutant '{name}'"


@pytest.mark.parametrize("name", FINAL_MUTANTS)
def test_the_simulation_of_finally_catches(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine that is broken for the steps of ``finally`` does not get through."""
    FINAL_MUTANTS[name](monkeypatch)
    assert hunt(name, FinalSimulation) is not None, f"nothing noticed the mutant '{name}'"


@pytest.mark.parametrize("name", WAITING_MUTANTS)
def test_the_simulation_of_waits_catches(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine that is broken for steps that wait does not get through."""
    WAITING_MUTANTS[name](monkeypatch)
    assert hunt(name, WaitingSimulation) is not None, f"nothing noticed the mutant '{name}'"


@pytest.mark.parametrize("name", SEVERAL_MUTANTS)
def test_the_simulation_of_several_events_catches(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine that is broken for waits for several events does not get through."""
    SEVERAL_MUTANTS[name](monkeypatch)
    assert hunt(name, SeveralSimulation) is not None, f"nothing noticed the mutant '{name}'"


@pytest.mark.parametrize("name", CONDITIONAL_MUTANTS)
def test_the_simulation_of_conditions_catches(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine that is broken for conditional steps, or for outputs that mean failure, does not get through."""
    CONDITIONAL_MUTANTS[name](monkeypatch)
    assert hunt(name, ConditionalSimulation) is not None, f"nothing noticed the mutant '{name}'"


@pytest.mark.parametrize("name", EACH_MUTANTS)
def test_the_simulation_of_lists_catches(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine that is broken for steps with ``each`` does not get through."""
    EACH_MUTANTS[name](monkeypatch)
    assert hunt(name, EachSimulation) is not None, f"nothing noticed the mutant '{name}'"


@pytest.mark.parametrize("name", UNDO_MUTANTS)
def test_the_simulation_of_undos_catches(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine that undoes a completed saga wrongly does not get through."""
    UNDO_MUTANTS[name](monkeypatch)
    assert hunt(name, UndoSimulation) is not None, f"nothing noticed the mutant '{name}'"


@pytest.mark.parametrize("name", IMAGE_MUTANTS)
def test_the_simulation_of_images_catches(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine that overwrites what others wrote, or undoes to another value, does not get through."""
    IMAGE_MUTANTS[name](monkeypatch)
    assert hunt(name, ImageSimulation) is not None, f"nothing noticed the mutant '{name}'"


@pytest.mark.parametrize("name", CHILD_MUTANTS)
def test_the_simulation_of_children_catches(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine that is broken for child sagas does not get through."""
    CHILD_MUTANTS[name](monkeypatch)
    assert hunt(name, ChildSimulation) is not None, f"nothing noticed the mutant '{name}'"


@pytest.mark.parametrize("name", UNDO_CALLS_MUTANTS)
def test_the_simulation_of_several_undo_calls_catches(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine that makes the calls of an undo wrongly does not get through."""
    UNDO_CALLS_MUTANTS[name](monkeypatch)
    assert hunt(name, UndoCallsSimulation) is not None, f"nothing noticed the mutant '{name}'"


@pytest.mark.parametrize("name", LYING_MUTANTS)
def test_the_simulation_of_lying_undos_catches(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine that believes what an undo says does not get through."""
    LYING_MUTANTS[name](monkeypatch)
    assert hunt(name, LyingImages) is not None, f"nothing noticed the mutant '{name}'"


@pytest.mark.seeds
@pytest.mark.parametrize("kind", HUNTS, ids=lambda kind: kind.__name__)
def test_what_the_simulation_catches_are_the_mutants(kind: type[Simulation]) -> None:
    """In the sagas that catch the mutants, and in as many others, the engine as it is breaks no law."""
    seeds = {*KNOWN[kind.__name__].values(), *range(tiers.examples(30))}
    assert {seed: law for seed in seeds if (law := broken_law(kind, seed))} == {}


def write() -> None:
    """Search the seeds of all mutants anew."""
    found: dict[str, dict[str, int]] = {}
    for kind, mutants in HUNTS.items():
        seeds = found[kind.__name__] = {}
        for name, broken in mutants.items():
            with pytest.MonkeyPatch.context() as patch:
                broken(patch)
                seed = hunt(name, kind)
            if seed is not None:
                seeds[name] = seed
    CAUGHT.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    write()


@pytest.mark.parametrize("name", EXPECTED_MUTANTS)
def test_the_simulation_of_expected_values_catches(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine that writes what it should have left does not get through."""
    EXPECTED_MUTANTS[name](monkeypatch)
    assert hunt(name, ExpectedSimulation) is not None, f"nothing noticed the mutant '{name}'"
