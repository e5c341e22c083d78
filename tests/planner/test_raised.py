"""The eval of exceptions that say nothing (``make eval-raised``), in a short form: nobody is lied to."""

from __future__ import annotations

import pytest

from dev.benchmarks.eval_raised import SETTINGS, TRUSTING, everything, figures


@pytest.mark.parametrize("setting", SETTINGS)
async def test_nobody_is_lied_to(setting: str) -> None:
    """Half of the calls of some good plans raise, before or after their effect: each end is what the world shows."""
    runs = await everything([setting], seeds=1, percent=50, nth=8)
    assert [run for run in runs if run.lies] == []
    found = figures(runs)
    assert (found["runs"], found["lies"]) == (7, 0)
    assert found["exceptions"] > 0


async def test_the_eval_finds_lies() -> None:
    """A tool without key and probe whose exceptions count as refusals leaves effects that nobody reports."""
    assert figures(await everything([TRUSTING], seeds=1, percent=50, nth=8))["lies"] > 0
