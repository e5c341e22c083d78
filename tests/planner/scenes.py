"""What the tests of this room share: tools, plans, and a planner that says what a script says without any wire."""

from __future__ import annotations

import json
from typing import Any

from saga_engine.errors import Problem
from saga_engine.plan.tool_spec import ToolSpec
from saga_engine.planner.json_extract import find_object
from saga_engine.ports import PlannerAnswer, PlannerUsage, PlanRequest
from tests.plan.catalog import NUMBER, TEXT, Catalog, closed, declare

SHOP = Catalog(
    declare("flights.search", closed(["to"], to=TEXT), effect="read", output_schema=closed(["flight"], flight=TEXT)),
    declare(
        "flights.book",
        closed(["flight"], flight=TEXT, passenger=TEXT),
        undo="flights.cancel",
        output_schema=closed(["order_id"], order_id=TEXT),
    ),
    declare("flights.cancel", closed(["order_id"], order_id=TEXT)),
    declare("hotels.book", closed(["hotel"], hotel=TEXT, note=TEXT), undo="hotels.cancel"),
    declare("hotels.cancel", closed(["booking_ref"], booking_ref=TEXT), tolerates_absence=True),
    declare("mail.send", closed(["to", "text"], to=TEXT, text=TEXT)),
    declare("ledger.post", closed(["amount"], amount=NUMBER), undo="ledger.void"),
    declare("ledger.void", closed([])),
)
OFFERED = ("flights.search", "flights.book", "hotels.book", "mail.send", "ledger.post")
GOAL = "Book a flight to Rome and a hotel, and tell ada@example.org."


def specs(*names: str) -> list[ToolSpec]:
    return [spec for name in names or OFFERED if (spec := SHOP.spec(name)) is not None]


def step(number: int | str, tool: str, params: dict[str, Any] | None = None, **others: Any) -> dict[str, Any]:
    return {"step_id": number, "tool": tool, "params": params or {}, **others}


FLIGHT = step(1, "flights.book", {"flight": "AZ1"})
HOTEL = step(2, "hotels.book", {"hotel": "Roma"})
MAIL = step(3, "mail.send", {"to": "ada@example.org", "text": "order {$output.step_1.order_id}"}, kind="pivot")
GOOD = {"steps": [FLIGHT, HOTEL, MAIL]}
BAD = {"steps": [{**FLIGHT, "tool": "flight.book"}, HOTEL]}


class Scripted:
    """A ``ports.Planner`` that answers from a list and remembers what it was asked."""

    model = "scripted:model"

    def __init__(self, *answers: Any, usage: PlannerUsage | None = None) -> None:
        self.answers = list(answers)
        self.asked: list[PlanRequest] = []
        self.usage = usage or PlannerUsage(100, 20, 1, None, 0.5)

    async def ask(self, request: PlanRequest) -> PlannerAnswer:
        self.asked.append(request)
        said = self.answers.pop(0)
        if isinstance(said, BaseException):
            raise said
        text = said if isinstance(said, str) else json.dumps(said)
        return PlannerAnswer(text, find_object(text), self.model, "propose@1", "0" * 64, self.usage)

    @property
    def codes(self) -> list[list[str]]:
        """The codes of the problems that each question came with."""
        return [[p.code for p in asked.repair.problems] if asked.repair else [] for asked in self.asked]


def codes(problems: list[Problem]) -> list[str]:
    return [problem.code for problem in problems]
