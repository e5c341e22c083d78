"""The sagas of ``saga serve --demo``: a travel agency in memory, with good and bad luck. No tool reaches anything real.

``fill`` submits them. Most end at once, well or undone; the others wait for a person, an event or a time, so that each
page of the console has something to show.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, NoReturn

from saga_engine.errors import SagaExists, ToolError
from saga_engine.tools.decorator import tool

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from saga_engine.api import Coordinator

#: Payments over 1,000 need a person.
POLICY: Final[dict[str, Any]] = {
    "default": "allow",
    "rules": [
        {
            "name": "large payments",
            "tools": ["pay"],
            "when": [{"param": "amount", "op": ">", "value": 1000}],
            "verdict": "ask",
            "expires_s": 86400,
        }
    ],
}
#: Where somebody else changes the price between a booking and its undo, once.
_CHANGED: Final = "Old Town Walk"


class Agency:
    """What is booked, and how often each request came."""

    def __init__(self) -> None:
        self.booked: dict[str, str] = {}
        self.asked: dict[str, int] = {}
        self.prices = {"City Pass": 40, _CHANGED: 25}

    def book(self, kind: str, item: str, key: str) -> str:
        """Book under a request id; again under the same id it is the same booking."""
        return self.booked.setdefault(key, f"{kind}-{len(self.booked) + 1:04} {item}")

    def nth(self, key: str) -> int:
        """How often this request came, with this time."""
        self.asked[key] = self.asked.get(key, 0) + 1
        return self.asked[key]


def tools_of(agency: Agency) -> list[Any]:
    """The agency's tools."""
    return [*_bookings(agency), *_payments(agency), *_catalogue_tools(agency)]


def _bookings(agency: Agency) -> list[Any]:

    @tool(effect="read")
    async def find_flight(idempotency_key: str) -> dict[str, Any] | None:
        """Tell whether a flight was booked under a request id."""
        found = agency.booked.get(idempotency_key)
        return None if found is None else {"order_id": found}

    @tool(undo="cancel_flight", probe=find_flight, timeout_s=30)
    async def book_flight(flight: str, date: str, idempotency_key: str) -> dict[str, Any]:  # noqa: ARG001
        """Book one seat on a flight. flight: its number. date: YYYY-MM-DD."""
        await asyncio.sleep(0.12)
        if flight.startswith("ZZ") and agency.nth(idempotency_key) == 1:
            agency.book("F", flight, idempotency_key)
            raise TimeoutError("the airline did not answer in time")
        return {"order_id": agency.book("F", flight, idempotency_key)}

    @tool(tolerates_absence=True)
    async def cancel_flight(order_id: str) -> dict[str, Any]:
        """Cancel a flight order. Cancelling twice is harmless."""
        await asyncio.sleep(0.06)
        return {"cancelled": order_id}

    @tool(undo="cancel_hotel", timeout_s=30)
    async def book_hotel(hotel: str, nights: int, idempotency_key: str) -> dict[str, Any]:
        """Book a room. hotel: its name. nights: how many."""
        await asyncio.sleep(0.09)
        if hotel == "Hilton Harbour":
            _refuse(f"{hotel} has no room left for {nights} night(s)", "sold_out", "choose another hotel")
        if hotel == "Slow Inn" and agency.nth(idempotency_key) < 3:
            raise ToolError("the desk is busy", error_code="busy", retryable=True)
        return {"booking_ref": agency.book("H", hotel, idempotency_key)}

    @tool
    async def cancel_hotel(booking_ref: str) -> dict[str, Any]:
        """Cancel a room."""
        await asyncio.sleep(0.05)
        if "Stubborn" in booking_ref:
            _refuse("this room can only be cancelled by telephone", "closed", "call the desk")
        return {"cancelled": booking_ref}

    return [find_flight, book_flight, cancel_flight, book_hotel, cancel_hotel]


def _payments(agency: Agency) -> list[Any]:
    @tool(undo="refund", timeout_s=30)
    async def pay(amount: float, purpose: str, idempotency_key: str) -> dict[str, Any]:
        """Pay. amount: in euros. purpose: what for."""
        await asyncio.sleep(0.05)
        if "declined" in purpose:
            _refuse("the card was declined", "declined", "ask for another card")
        return {"payment_id": agency.book("P", f"{amount:.2f}", idempotency_key)}

    @tool(tolerates_absence=True)
    async def refund(payment_id: str) -> dict[str, Any]:
        """Refund a payment in full."""
        await asyncio.sleep(0.04)
        return {"refunded": payment_id}

    @tool
    async def send_mail(to: str, text: str) -> dict[str, Any]:
        """Send a mail. It cannot be taken back."""
        return {"sent": f"{to}: {len(text)} characters"}

    return [pay, refund, send_mail]


def _catalogue_tools(agency: Agency) -> list[Any]:
    @tool(effect="read")
    async def read_price(item: str) -> dict[str, Any]:
        """Read the price of an item of the catalogue."""
        return {"price": agency.prices[item]}

    @tool(before=read_price, undo="set_price")
    async def set_price(item: str, price: int) -> dict[str, Any]:
        """Set the price of an item of the catalogue."""
        agency.prices[item] = price
        return {}

    @tool(undo="take_down")
    async def publish(item: str) -> dict[str, Any]:
        """Publish an item of the catalogue."""
        if item == _CHANGED:
            agency.prices[item] = 31  # somebody else is at work
            _refuse("the page refuses this item", "rejected", "mend its text")
        return {"page": f"/catalogue/{item}"}

    @tool
    async def take_down(page: str) -> dict[str, Any]:
        """Take a page of the catalogue down."""
        return {"gone": page}

    return [read_price, set_price, publish, take_down]


def _refuse(what: str, code: str, suggestion: str) -> NoReturn:
    raise ToolError(what, error_code=code, retryable=False, suggestion=suggestion)


def trip(hotel: str, *, flight: str = "CA1234", amount: float = 420.0, purpose: str = "trip") -> dict[str, Any]:
    """A flight, a hotel and a payment."""
    return {
        "name": "trip",
        "goal": f"{flight} to Lisbon on 1 February, then two nights at {hotel}",
        "tags": ["demo"],
        "steps": [
            {
                "step_id": "flight",
                "tool": "book_flight",
                "params": {"flight": flight, "date": "2027-02-01"},
                "depends_on": [],
            },
            {"step_id": "hotel", "tool": "book_hotel", "params": {"hotel": hotel, "nights": 2}, "depends_on": []},
            {
                "step_id": "payment",
                "tool": "pay",
                "params": {"amount": amount, "purpose": f"{purpose} {{$output.step_flight.order_id}}"},
                "depends_on": ["flight", "hotel"],
            },
            {
                "step_id": "mail",
                "tool": "send_mail",
                "kind": "irreversible",
                "params": {"to": "ada@example.com", "text": "paid: {$output.step_payment.payment_id}"},
                "depends_on": ["payment"],
            },
        ],
    }


def _catalogue(item: str, price: int) -> dict[str, Any]:
    return {
        "name": "catalogue",
        "goal": f"Sell {item} for {price} euros",
        "tags": ["demo", "catalogue"],
        "steps": [
            {"step_id": "price", "tool": "set_price", "params": {"item": item, "price": price}},
            {"step_id": "page", "tool": "publish", "params": {"item": item}},
        ],
    }


def _group() -> dict[str, Any]:
    """A wide plan that asks a person and waits for an event."""
    rooms = [
        {
            "step_id": f"room_{n}",
            "tool": "book_hotel",
            "params": {"hotel": f"Pension {n}", "nights": 3},
            "depends_on": ["flight"],
        }
        for n in range(1, 6)
    ]
    last = [f"room_{n}" for n in range(1, 6)]
    return {
        "name": "group",
        "goal": "A tour for a group of ten: flight, five rooms, a menu that the group chooses, and the deposit",
        "tags": ["demo", "group"],
        "steps": [
            {
                "step_id": "flight",
                "tool": "book_flight",
                "params": {"flight": "TP571", "date": "2027-05-14"},
                "depends_on": [],
            },
            *rooms,
            {
                "step_id": "menu",
                "ask": {"question": "Which menu does the group take?", "options": ["Fish", "Vegetarian", "Both"]},
                "depends_on": last,
            },
            {"step_id": "deposit", "wait": {"event": "deposit.paid", "key": "group-tour"}, "depends_on": last},
            {
                "step_id": "mail",
                "tool": "send_mail",
                "kind": "irreversible",
                "params": {"to": "group@example.com", "text": "Menu: {$output.step_menu.answer}"},
                "depends_on": ["menu", "deposit"],
            },
        ],
    }


#: The sagas by id, in the order in which they are submitted.
SAGAS: Final[Mapping[str, dict[str, Any]]] = {
    "trip-lisbon": trip("Grand Plaza"),
    "trip-hotel-full": trip("Hilton Harbour"),
    "trip-slow-desk": trip("Slow Inn"),
    "trip-answer-lost": trip("Casa Azul", flight="ZZ900"),
    "trip-large-payment": trip("Ritz", amount=4200.0),
    "trip-undo-refused": trip("Stubborn Lodge", purpose="declined"),
    "catalogue-city-pass": _catalogue("City Pass", 45),
    "catalogue-changed-meanwhile": _catalogue(_CHANGED, 29),
    "group-tour": _group(),
    "reminder": {
        "name": "reminder",
        "goal": "Remind the traveller a day before the flight",
        "tags": ["demo"],
        "steps": [
            {"step_id": "later", "sleep": "P20D"},
            {
                "step_id": "mail",
                "tool": "send_mail",
                "kind": "irreversible",
                "params": {"to": "ada@example.com", "text": "Tomorrow!"},
            },
        ],
    },
}


async def fill(coordinator: Coordinator) -> Sequence[str]:
    """Submit the sagas for workers, and put a template and a schedule; returns the ids. Again it changes nothing."""
    template = trip("Grand Plaza") | {"input": {"amount": 420}}
    template["steps"][2]["params"]["amount"] = "$input.amount"
    await coordinator.templates.put("trip", template)
    await coordinator.schedules.put("weekly-trip", template="trip", cron="0 9 * * MON", time_zone="Europe/Lisbon")
    for saga_id, plan in SAGAS.items():
        try:
            await coordinator.submit(plan, saga_id=saga_id, detach=True)
        except SagaExists:
            continue
    return list(SAGAS)
