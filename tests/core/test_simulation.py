"""The laws of the core, over random plans, outcomes, crashes, lost answers, repeated deliveries and people."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from saga_engine.core import transitions as t
from tests.core.simulation import Simulation


@settings(max_examples=400, deadline=None, suppress_health_check=list(HealthCheck))
@given(dice=st.randoms(use_true_random=False), trouble=st.sampled_from([0.0, 0.3, 0.6, 1.0]))
def test_every_law_holds_whatever_happens(dice: random.Random, trouble: float) -> None:
    """No effect without intent, one key a direction, reverse order, all or nothing or a question, live = folded, it ends."""
    Simulation(dice, trouble).run()


def test_seeds_reach_every_end() -> None:
    """A fixed corpus runs clean and is not trivially so: it completes, compensates and abandons."""
    ends: Counter[str] = Counter()
    for seed in range(1500):
        dice = random.Random(seed)
        ends[Simulation(dice, dice.choice([0.3, 0.6, 1.0])).run().status] += 1
    assert all(ends[status] > 50 for status in t.SAGA_FINAL), ends


@pytest.mark.slow
def test_many_more_seeds() -> None:
    """The long form by hand: pytest -m slow --long."""
    for seed in range(10_000, 40_000):
        dice = random.Random(seed)
        Simulation(dice, dice.choice([0.3, 0.6, 1.0])).run()
