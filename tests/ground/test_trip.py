"""The example of the trip does what its page says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from saga_engine import Coordinator
from saga_engine.tools.loader import load_tools

FOLDER = Path(__file__).parents[2] / "examples" / "trip"
PLAN = json.loads((FOLDER / "plan.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    ("second", "ends"),
    [
        ("Turin", {"trip": "COMPLETED", "trip.first": "COMPLETED", "trip.second": "COMPLETED"}),
        ("Atlantis", {"trip": "COMPENSATED", "trip.second": "COMPENSATED", "trip.first-undo": "COMPENSATED"}),
    ],
)
async def test_the_trip(second: str, ends: dict[str, str]) -> None:
    """Both cities are booked, or neither: a saga of its own takes back the child that completed."""
    async with Coordinator.open("memory://", tools=load_tools("tools.py", FOLDER)) as coordinator:
        outcome = await coordinator.run(PLAN, input={"second": second}, saga_id="trip")
        assert outcome.report["clean"]
        assert {saga: (await coordinator.show(saga)).status for saga in ends} == ends
