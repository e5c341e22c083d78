"""A small office whose state a run leaves behind: calendar, prices, invoices, accounts, trips, mail, and tickets.

Its tools have what tools of today have: undos with params of their own, for each item, or from the value before. The
tickets are those of an MCP server, which runs as a process of its own (``tickets_server``).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any, Final, Literal, TypedDict

from saga_engine import RetryPolicy, ToolError, tool
from saga_engine.sources.mcp import McpServer

_ONCE: Final = RetryPolicy(max_attempts=1)
START: Final[dict[str, Any]] = {
    "events": {"e1": "2026-03-02T09:00:00+01:00", "e2": "2026-03-05T14:30:00+01:00"},
    "prices": {"tea": 10.0, "milk": 2.5},
    "invoices": [
        {"id": "i-1", "due": "2026-02-01", "amount": 200.0, "mail": "a@b.example"},
        {"id": "i-2", "due": "2026-03-20", "amount": 50.0, "mail": "c@d.example"},
    ],
    "dunned": {},
    "balance": 500.0,
    "state": "active",
    "paid": {},
    "legs": [],
    "full": [],
    "fare": 120.0,
    "mails": [],
}


class Event(TypedDict):
    id: str
    start: str


class Events(TypedDict):
    events: list[Event]


class Moved(TypedDict):
    id: str
    old: str


class Price(TypedDict):
    sku: str
    price: float


class Prices(TypedDict):
    items: list[Price]


class Invoice(TypedDict):
    id: str
    due: str
    amount: float
    mail: str


class Invoices(TypedDict):
    invoices: list[Invoice]


class Notice(TypedDict):
    notice: str


class Account(TypedDict):
    balance: float
    status: Literal["active", "frozen"]


class Paid(TypedDict):
    tx: str


class Trip(TypedDict):
    legs: list[str]
    price: float


class Sent(TypedDict):
    id: int


def office(given: Mapping[str, Any] = START) -> tuple[dict[str, Any], list[Any]]:
    """The state of a new office, and its tools. ``given`` replaces parts of the state at the start."""
    state = {**deepcopy(START), **deepcopy(dict(given))}
    return state, [*_calendar(state), *_prices(state), *_money(state), *_trips(state)]


def _calendar(state: dict[str, Any]) -> list[Any]:
    @tool(effect="read", name="calendar.list")
    async def calendar_list(week: str) -> Events:  # noqa: ARG001
        """The events of a week, such as 2026-W10."""
        return {"events": [{"id": key, "start": start} for key, start in state["events"].items()]}

    @tool(
        name="calendar.move", undo="calendar.put", undo_params={"id": "$params.id", "start": "$output.old"}, retry=_ONCE
    )
    async def calendar_move(id: str, start: str) -> Moved:  # noqa: A002
        """Move an event to another start."""
        old, state["events"][id] = state["events"][id], start
        return {"id": id, "old": old}

    @tool(name="calendar.put", tolerates_absence=True)
    async def calendar_put(id: str, start: str) -> None:  # noqa: A002
        """Put an event back to where it was."""
        state["events"][id] = start

    @tool(name="mail.send", retry=_ONCE)
    async def mail_send(to: str, text: str) -> Sent:
        """Send a mail. It cannot be unsent."""
        state["mails"].append([to, text])
        return {"id": len(state["mails"])}

    return [calendar_list, calendar_move, calendar_put, mail_send]


def _prices(state: dict[str, Any]) -> list[Any]:
    @tool(effect="read", name="prices.list")
    async def prices_list() -> Prices:
        """The prices of all goods."""
        return {"items": [{"sku": sku, "price": price} for sku, price in state["prices"].items()]}

    @tool(effect="read", name="prices.get")
    async def prices_get(sku: str) -> Price:
        """The price of one of the goods."""
        return {"sku": sku, "price": state["prices"][sku]}

    back = {"sku": "$params.sku", "price": "$before.price"}

    @tool(name="prices.set", before="prices.get", undo="prices.put", undo_params=back, retry=_ONCE)
    async def prices_set(sku: str, price: float) -> None:
        """Set a price."""
        state["prices"][sku] = price

    @tool(name="prices.put", tolerates_absence=True)
    async def prices_put(sku: str, price: float) -> None:
        """Put a price back."""
        state["prices"][sku] = price

    return [prices_list, prices_get, prices_set, prices_put]


def _money(state: dict[str, Any]) -> list[Any]:
    @tool(effect="read", name="invoices.open")
    async def invoices_open(customer: str) -> Invoices:  # noqa: ARG001
        """The open invoices of a customer."""
        return {"invoices": deepcopy(state["invoices"])}

    @tool(name="dunning.create", undo="dunning.cancel", retry=_ONCE)
    async def dunning_create(invoice: str, pay_by: str, fee: float) -> Notice:
        """Dun an invoice: to be paid by a day, with a fee."""
        state["dunned"][invoice] = [pay_by, fee]
        return {"notice": invoice}

    @tool(name="dunning.cancel", tolerates_absence=True)
    async def dunning_cancel(notice: str) -> None:
        """Cancel a notice."""
        state["dunned"].pop(notice, None)

    @tool(effect="read", name="account.get")
    async def account_get() -> Account:
        """The balance and the status of the account."""
        return {"balance": state["balance"], "status": state["state"]}

    @tool(name="bank.transfer", retry=_ONCE)
    async def bank_transfer(to: str, amount: float) -> Paid:
        """Transfer money. It cannot be called back, and is refused without enough money."""
        if amount > state["balance"]:
            raise ToolError("not enough money", error_code="no_money", retryable=False)
        state["balance"] -= amount
        state["paid"][to] = state["paid"].get(to, 0) + amount
        return {"tx": f"tx-{to}"}

    return [invoices_open, dunning_create, dunning_cancel, account_get, bank_transfer]


def _trips(state: dict[str, Any]) -> list[Any]:
    @tool(
        name="trips.book", undo="trips.cancel_leg", undo_params={"leg": "$item"}, undo_each="$output.legs", retry=_ONCE
    )
    async def trips_book(to: str) -> Trip:
        """Book a trip there and back."""
        if to in state["full"]:
            raise ToolError(f"no seat to {to}", error_code="full", retryable=False)
        legs = [f"to {to}", f"from {to}"]
        state["legs"] += legs
        return {"legs": legs, "price": state["fare"]}

    @tool(name="trips.cancel_leg", tolerates_absence=True)
    async def trips_cancel_leg(leg: str) -> None:
        """Cancel one leg of a trip."""
        if leg in state["legs"]:
            state["legs"].remove(leg)

    return [trips_book, trips_cancel_leg]


#: What the operator says of the server's tools.
_TICKETS: Final[dict[str, Any]] = {
    "list_tickets": {"effect": "read"},
    "get_ticket": {"effect": "read"},
    "open_ticket": {"undo": "close_ticket"},
    "close_ticket": {"tolerates_absence": True},
    "set_priority": {
        "before": "get_ticket",
        "undo": "set_priority",
        "undo_params": {"ticket": "$params.ticket", "priority": "$before.priority"},
    },
}


def desk(folder: Path, tickets: Mapping[str, Any]) -> McpServer:
    """The server of the tickets, whose file is in this folder."""
    file = folder / "tickets.json"
    file.write_text(json.dumps(tickets), encoding="utf-8")
    server = Path(__file__).with_name("tickets_server.py")
    return McpServer("desk", command=[sys.executable, str(server), str(file)], tools=_TICKETS)


def tickets_in(folder: Path) -> dict[str, str]:
    """The priorities of the tickets, by their titles."""
    found = json.loads((folder / "tickets.json").read_text(encoding="utf-8"))
    return {each["title"]: each["priority"] for each in found.values()}
