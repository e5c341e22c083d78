"""What happens when undoing is not enough: a model proposes the way out, and a person approves it.

Three scenes in a temporary folder. The model is a script, so that this runs with no key and no network; with one,
``planner=ScriptedPlanner(...)`` becomes ``planner="openai:gpt-5"``, and nothing else changes.

    python stuck.py
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from saga_engine import Coordinator, tool
from saga_engine.testing.scripted import ScriptedPlanner

sys.path.insert(0, str(Path(__file__).parent))
import tools

SAID: list[str] = []


@tool(semantic="approve")
def announce(text: str) -> dict[str, Any]:
    """Tell everybody. It cannot be taken back: whoever wants that has to say something else."""
    SAID.append(text)
    return {"post": len(SAID)}


@tool(compensates=True)
def correct(post: int, text: str) -> None:
    """Answer a post, to put it right."""
    SAID.append(f"about post {post}: {text}")


def announced_trip(hotel: str) -> dict[str, Any]:
    """A flight and a room; between them everybody is told."""
    return {
        "goal": f"fly to Beijing, stay at the {hotel}, and tell everybody",
        "steps": [
            {"step_id": "flight", "tool": "airline_api", "params": {"flight": "CA1234", "date": "2026-02-01"}},
            {"step_id": "news", "tool": "announce", "params": {"text": f"Off to the {hotel}!"}},
            {"step_id": "hotel", "tool": "hotel_api", "params": {"hotel": hotel, "nights": 1}},
        ],
    }


def trip_with_another_way(hotel: str) -> dict[str, Any]:
    """If a step fails, the planner is asked for another way for what is left."""
    steps = [step for step in announced_trip(hotel)["steps"] if step["step_id"] != "news"]
    return {"goal": "fly to Beijing and stay there for a night", "steps": steps, "on_failure": "replan"}


#: What a model would answer when it is asked to make up for the announcement.
CORRECTION = [
    {
        "step_id": "fix_1",
        "tool": "correct",
        "params": {"post": 1, "text": "we are not going after all. Sorry for the noise."},
        "kind": "retriable",
    }
]
#: What it would answer when the Hilton is full.
OTHER_HOTEL = [{"step_id": "other_hotel", "tool": "hotel_api", "params": {"hotel": "Ibis", "nights": 1}}]
#: What it would answer if it believed a text that tells it to spend money.
GREED = [{"step_id": "fix_1", "tool": "pay", "params": {"amount": 9999.0, "purpose": "a gift"}, "kind": "retriable"}]


def standing() -> list[str]:
    """What is booked in the outside world."""
    return [f"{row['kind']} {row['item']}" for row in tools.the_world().bookings()]


def expect(what: str, found: Any, wanted: Any) -> None:
    """The example checks itself: what it shows is so."""
    print(f"  {what}: {found}")
    if found != wanted:
        raise SystemExit(f"expected {wanted}")


async def correction(store: str) -> None:
    """The room is not to be had; the flight is cancelled, and what was said is put right once a person agrees."""
    planner = ScriptedPlanner(CORRECTION)
    async with Coordinator.open(store, [tools, announce, correct], planner=planner) as coordinator:
        outcome = await coordinator.run(announced_trip("Hilton"), saga_id="announced")
        question = outcome.body["questions"][0]
        print(f"  a person is asked: {question['kind']}, {question['steps']}")
        expect("said so far", SAID, ["Off to the Hilton!"])
        outcome = await coordinator.resolve("announced", "news", "approve", by="ada")
        expect("status", outcome.status, "COMPENSATED")
        expect("said", SAID[1:], ["about post 1: we are not going after all. Sorry for the noise."])
        expect("made up for", outcome.report["semantic"], ["news"])
        expect("standing in the world", standing(), [])


async def another_hotel(store: str) -> None:
    """The Hilton is full; the model finds the Ibis, and the flight stays."""
    planner = ScriptedPlanner(OTHER_HOTEL)
    async with Coordinator.open(store, [tools], planner=planner) as coordinator:
        outcome = await coordinator.run(trip_with_another_way("Hilton"), saga_id="another-hotel")
        expect("status", outcome.status, "COMPLETED")
        expect("standing in the world", standing(), ["flight CA1234", "hotel Ibis"])


async def greed(store: str) -> None:
    """A model that wants to use another tool is refused in every round; nothing is called, a person decides."""
    planner = ScriptedPlanner(GREED, GREED, GREED)
    async with Coordinator.open(store, [tools, announce, correct], planner=planner, semantic="auto") as coordinator:
        outcome = await coordinator.run(announced_trip("Hilton"), saga_id="greedy")
        expect("asked of the model", len(planner.asked), 3)
        expect("asked of a person", outcome.body["questions"][0]["kind"], "undo-missing")
        # The plan declares no depends_on, so the flight's undo waits for the answer about the news, which came later.
        expect("standing in the world", standing(), ["flight CA1234", "hotel Ibis", "flight CA1234"])
        outcome = await coordinator.resolve("greedy", "news", "accept", by="ada", note="nobody has read it")
        expect("left in place", outcome.report["left_in_place"], ["news"])
        expect("standing in the world", standing(), ["flight CA1234", "hotel Ibis"])


async def play(folder: Path) -> None:
    """All scenes, one after the other."""
    os.environ["BOOKING_WORLD"] = str(folder / "world.db")
    tools.the_world().set_left("hotel", "Hilton", 0)
    store = f"embedded://{folder / 'store'}"
    for scene in (correction, another_hotel, greed):
        print(f"\n{scene.__doc__}")
        await scene(store)
    print("\nall agreed")


def main() -> int:
    """Play in a folder that is gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="saga-stuck-") as folder:
        asyncio.run(play(Path(folder)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
