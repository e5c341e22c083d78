"""A booking agent with the coordinator inside.

The agent turns a wish into a plan, has the plan run as one unit, and looks at the report when it could not be done:
then nothing of it stands any more, and the agent is free to think again. Its model is a script, so that this runs with
no key and no network; a real one would be asked in ``ScriptedModel.propose``.

    python agent.py                  the first hotel has a room
    python agent.py --full Hilton    it has none: the flight is cancelled, and the next hotel is tried
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from saga_engine import Coordinator, Question, SagaResult

sys.path.insert(0, str(Path(__file__).parent))
import tools

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True)
class Wish:
    """What a person wants."""

    flight: str
    date: str
    nights: int
    hotels: Sequence[str]
    budget: float


class ScriptedModel:
    """Stands for a language model: it writes plans, and learns from what the report says."""

    def __init__(self, wish: Wish) -> None:
        self._wish = wish
        self._sold_out: set[str] = set()

    def propose(self) -> dict[str, Any] | None:
        """A plan in the JSON format, or None if there is nothing left to try."""
        hotel = next((name for name in self._wish.hotels if name not in self._sold_out), None)
        if hotel is None:
            return None
        return {
            "goal": f"{self._wish.flight} on {self._wish.date}, then {self._wish.nights} night(s) at {hotel}",
            "input": {"amount": self._wish.budget},
            "steps": [
                {
                    "step_id": "flight",
                    "tool": "airline_api",
                    "params": {"flight": self._wish.flight, "date": self._wish.date},
                    "depends_on": [],
                },
                {
                    "step_id": "hotel",
                    "tool": "hotel_api",
                    "params": {"hotel": hotel, "nights": self._wish.nights},
                    "depends_on": [],
                },
                {
                    "step_id": "payment",
                    "tool": "pay",
                    "params": {
                        "amount": "$input.amount",
                        "purpose": "flight {$output.step_flight.order_id}, room {$output.step_hotel.booking_ref}",
                    },
                    "depends_on": ["flight", "hotel"],
                },
            ],
        }

    def learn(self, plan: dict[str, Any], outcome: SagaResult) -> None:
        """Draw conclusions from a saga that was undone."""
        error = outcome.body["error"] or {}
        if error.get("error_code") == "sold_out" and error.get("step_id") == "hotel":
            self._sold_out.add(plan["steps"][1]["params"]["hotel"])


def tell(question: Question) -> None:
    """Where a real agent would send a message to somebody."""
    print(f"  A person is needed: saga {question.saga_id}, step {question.step_id}: {question.kind}")


async def book(wish: Wish, store: str) -> SagaResult | None:
    """Try plans until one is done; returns its outcome, or None when the model has no more ideas."""
    model = ScriptedModel(wish)
    async with Coordinator.open(store=store, tools=[tools], on_escalation=tell) as coordinator:
        while plan := model.propose():
            print(f"  The model proposes: {plan['goal']}")
            outcome = await coordinator.run(plan)
            print(f"  {outcome.status}: {describe(outcome)}")
            if outcome.completed:
                return outcome
            if not outcome.report["clean"]:
                print("  Something is left over, so the agent does not go on by itself.")
                return outcome
            model.learn(plan, outcome)
    return None


def describe(outcome: SagaResult) -> str:
    """The report in a line."""
    if outcome.completed:
        return ", ".join(f"{step['step_id']} {next(iter(step['output'].values()))}" for step in outcome.body["steps"])
    error = outcome.body["error"] or {}
    undone = ", ".join(str(step_id) for step_id in outcome.report["compensated"]) or "nothing"
    return f"{error.get('message', error.get('code'))}; undone: {undone}; clean: {outcome.report['clean']}"


def main() -> int:
    """Book the trip of the source article. Returns the exit code: 0 if it is booked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--store", default="embedded://.saga", help="where journals are written")
    parser.add_argument("--full", action="append", default=[], metavar="HOTEL", help="this hotel has no room left")
    given = parser.parse_args()
    for hotel in given.full:
        tools.the_world().set_left("hotel", hotel, 0)
    wish = Wish(flight="CA1234", date="2026-02-01", nights=1, hotels=["Hilton", "Ibis"], budget=420.0)
    outcome = asyncio.run(book(wish, given.store))
    return 0 if outcome is not None and outcome.completed else 1


if __name__ == "__main__":
    sys.exit(main())
