"""The laws of the core, over random plans, outcomes, crashes, lost answers, repeated deliveries and people."""

from __future__ import annotations

import itertools
import random
from collections import Counter

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from saga_engine.core import transitions as t
from saga_engine.core.records import StepEscalated
from tests import tiers
from tests.core.ahead_simulation import AheadSimulation
from tests.core.expected_simulation import ExpectedSimulation
from tests.core.generator import FEATURES, drawn, generated
from tests.core.image_simulation import ImageSimulation
from tests.core.lying_simulation import lying
from tests.core.session_simulation import SessionSimulation
from tests.core.simulation import Simulation
from tests.core.taking_back_simulation import TakingBackSimulation


@settings(max_examples=tiers.examples(250), deadline=None, suppress_health_check=list(HealthCheck))
@given(dice=st.randoms(use_true_random=False), trouble=st.sampled_from([0.0, 0.3, 0.6, 1.0]))
def test_every_law_holds_whatever_happens(dice: random.Random, trouble: float) -> None:
    """No effect without intent, one key a direction, reverse order, all or nothing or a question, live = folded, it ends."""
    Simulation(dice, trouble).run()


def test_seeds_reach_every_end() -> None:
    """A fixed corpus runs clean and is not trivially so: it completes, compensates and waives."""
    ends: Counter[str] = Counter()
    for seed in range(700):
        dice = random.Random(seed)
        ends[Simulation(dice, dice.choice([0.3, 0.6, 1.0])).run().status] += 1
    assert all(ends[status] > 25 for status in t.SAGA_FINAL), ends


@settings(max_examples=tiers.examples(200), deadline=None, suppress_health_check=list(HealthCheck))
@given(dice=st.randoms(use_true_random=False), trouble=st.sampled_from([0.0, 0.3, 0.6, 1.0]))
def test_every_law_holds_for_sessions(dice: random.Random, trouble: float) -> None:
    """As above, with an agent that calls, rolls back a part, goes on beside that, fails, and ends: in any order."""
    SessionSimulation(dice, trouble).run()


def test_seeds_of_sessions_reach_every_end() -> None:
    """The corpus of sessions completes, compensates and waives as well, and rolls back amid all that."""
    ends: Counter[str] = Counter()
    for seed in range(500):
        dice = random.Random(seed)
        simulation = SessionSimulation(dice, dice.choice([0.3, 0.6, 1.0]))
        ends[simulation.run().status] += 1
        kinds = [type(record).__name__ for record in simulation.journalled()]
        if "PartialCompensationRequested" in kinds:
            ends["rolled back"] += 1
            ends["and turned around"] += "CompensationStarted" in kinds[kinds.index("PartialCompensationRequested") :]
        if "SessionKept" in kinds:
            ends["kept"] += 1
            ends["and went on"] += bool({"CallAdded", "SessionClosed"} & {*kinds[kinds.index("SessionKept") :]})
    wanted = (*t.SAGA_FINAL, "rolled back", "and turned around", "kept", "and went on")
    assert all(ends[name] > 20 for name in wanted), ends


@pytest.mark.seeds
def test_no_effect_is_undone_twice() -> None:
    """An agent takes its own calls back at any time: each effect is undone once, whoever does it, and what stands is told."""
    seen: Counter[str] = Counter()
    for seed in range(tiers.examples(500)):
        dice = random.Random(seed)
        simulation = TakingBackSimulation(dice, dice.choice([0.0, 0.3, 0.6, 1.0]))
        seen[simulation.run().status] += 1
        for record in simulation.journalled():
            seen["taken back"] += bool(getattr(record, "undoes", ""))
            seen["again"] += getattr(record, "via", "") == "deduplicated"
            error = getattr(record, "error", None)
            seen["near miss"] += isinstance(record, StepEscalated) and error.error_code == "perhaps_undone"
    assert tiers.fewer() or all(seen[name] > 5 for name in (*t.SAGA_FINAL, "taken back", "again", "near miss")), seen


@pytest.mark.seeds
def test_an_operator_holds_up_only_what_depends_on_it() -> None:
    """Calls that change objects of their own, and name those of others: no undo comes before one that it depends on."""
    seen: Counter[str] = Counter()
    for seed in range(tiers.examples(250)):
        dice = random.Random(seed)
        simulation = AheadSimulation(dice, dice.choice([0.3, 0.6, 1.0]))
        simulation.run()
        seen["ahead"] += bool(simulation.ahead())
        seen["named"] += any(simulation.took.values())
    assert tiers.fewer() or seen["ahead"] > 3, seen
    assert seen["named"] >= tiers.examples(21), seen


@pytest.mark.seeds
def test_no_stranger_is_overwritten() -> None:
    """Values that strangers change, too: a call's image is what it overwrote, and no undo overwrites a stranger's value."""
    seen: Counter[str] = Counter()
    for seed in range(tiers.examples(300)):
        dice = random.Random(seed)
        simulation = ImageSimulation(dice, dice.choice([0.3, 0.6, 1.0]))
        simulation.run()
        for record in simulation.journalled():
            seen["drift"] += getattr(record, "kind", "") == "drift"
            seen["unchanged"] += getattr(record, "via", "") == "unchanged"
            seen["undo anyway"] += getattr(record, "decision", "") == "undo"
    assert tiers.fewer() or all(seen[name] > 3 for name in ("drift", "unchanged", "undo anyway")), seen


@pytest.mark.seeds
def test_no_stranger_is_overwritten_unseen() -> None:
    """Writes that expect what their saga read: a value that a stranger changed in between is left, and that is said."""
    changed = 0
    for seed in range(tiers.examples(300)):
        dice = random.Random(seed)
        simulation = ExpectedSimulation(dice, dice.choice([0.3, 0.6, 1.0]))
        simulation.run()
        changed += simulation.changed
    assert tiers.fewer() or changed > 5, changed


@pytest.mark.seeds
def test_an_undo_that_only_says_so_is_found_out() -> None:
    """Undos that lie, with every feature of plans: none counts as verified, and no honest one is doubted."""
    seen: Counter[str] = Counter()
    for seed in range(tiers.examples(300)):
        simulation = lying(seed)
        simulation.run()
        for record in simulation.journalled():
            seen[getattr(record, "kind", "")] += 1
            seen[getattr(record, "how", "")] += 1
    kinds = ("undo-unverified", "verified", "said", "later")
    assert tiers.fewer() or all(seen[name] > 3 for name in kinds), seen


#: What shows in a journal that its saga has a feature.
MARKS = {
    "finally": b'"k":"FinallyStarted"',
    "children": b'"k":"ChildEnded"',
    "waits": b'"on":"event"',
    "asks": b'"kind":"ask"',
    "conditions": b'"k":"OutputChecked"',
    "lists": b'"k":"EachExpanded"',
    "undo calls": b'"call":{',
    "expected values": b'"changed_meanwhile"',
    "images": b'"before":{',
}


@pytest.mark.seeds
def test_every_law_holds_for_features_together() -> None:
    """Plans with several features at once, held to the laws of all of them; every pair of features occurs.

    And most pairs show in one journal: the features are not merely written into the plans.
    """
    pairs: Counter[tuple[str, ...]] = Counter()
    shown: Counter[tuple[str, ...]] = Counter()
    for seed in range(tiers.examples(200)):
        simulation = generated(seed)
        simulation.run()
        text = b"\n".join(simulation.journal.data)
        pairs.update(itertools.combinations(drawn(random.Random(seed)), 2))
        shown.update(itertools.combinations([name for name, mark in MARKS.items() if mark in text], 2))
    assert tiers.fewer() or len(pairs) == len(FEATURES) * (len(FEATURES) - 1) // 2
    assert tiers.fewer() or len(shown) > 20, shown


@pytest.mark.slow
@pytest.mark.parametrize("first", range(10_000, 40_000, 5_000))
@pytest.mark.parametrize("kind", [Simulation, SessionSimulation, ImageSimulation])
def test_many_more_seeds(kind: type[Simulation], first: int) -> None:
    """The long form by hand: pytest -m slow --long."""
    for seed in range(first, first + 5_000):
        dice = random.Random(seed)
        kind(dice, dice.choice([0.3, 0.6, 1.0])).run()
