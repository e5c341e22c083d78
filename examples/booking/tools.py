"""The tools of the source article, with the facts that make them safe to use in a saga.

Each booking tool honours an idempotency key, can be asked by a probe whether a call happened, and names its undo. The
world they act on is the SQLite file that ``BOOKING_WORLD`` names (``world.db`` in the working directory by default).
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import NoReturn, TypedDict

from saga_engine import ToolError, tool

sys.path.insert(0, str(Path(__file__).parent))
from world import Refused, World


class Flight(TypedDict):
    order_id: str


class Room(TypedDict):
    booking_ref: str


class Payment(TypedDict):
    payment_id: str


class Cancellation(TypedDict):
    found: str


def the_world() -> World:
    """The world of this process."""
    return World(os.environ.get("BOOKING_WORLD", "world.db"))


# --- the airline ---------------------------------------------------------------------------------------------------


@tool(effect="read")
def find_flight(idempotency_key: str) -> Flight | None:
    """Tell whether a flight was booked under a request id. For the engine, not for planning."""
    ref = the_world().find("flight", idempotency_key)
    return None if ref is None else {"order_id": ref}


@tool(undo="airline_api_cancel", probe=find_flight, timeout_s=30)
def airline_api(flight: str, date: str, idempotency_key: str) -> Flight:
    """Book one seat on a flight. Use it when flight number and date are fixed; it does not search.

    flight: the number, such as CA1234. date: YYYY-MM-DD. Returns the order_id.
    """
    return {"order_id": _book("airline_api", "flight", flight, {"date": date}, idempotency_key)}


@tool(tolerates_absence=True)
def airline_api_cancel(order_id: str, idempotency_key: str) -> Cancellation:
    """Cancel a flight order. Cancelling twice is harmless."""
    return {"found": _cancel("flight", order_id, idempotency_key)}


# --- the hotel -----------------------------------------------------------------------------------------------------


@tool(effect="read")
def find_room(idempotency_key: str) -> Room | None:
    """Tell whether a room was booked under a request id. For the engine, not for planning."""
    ref = the_world().find("hotel", idempotency_key)
    return None if ref is None else {"booking_ref": ref}


@tool(undo="hotel_api_cancel", probe=find_room, timeout_s=30)
def hotel_api(hotel: str, nights: int, idempotency_key: str) -> Room:
    """Book a room. Use it when the hotel is chosen; it refuses with sold_out when the hotel is full.

    hotel: its name. nights: how many. Returns the booking_ref.
    """
    return {"booking_ref": _book("hotel_api", "hotel", hotel, {"nights": nights}, idempotency_key)}


@tool(tolerates_absence=True)
def hotel_api_cancel(booking_ref: str, idempotency_key: str) -> Cancellation:
    """Cancel a room. Cancelling twice is harmless."""
    return {"found": _cancel("hotel", booking_ref, idempotency_key)}


# --- the bank ------------------------------------------------------------------------------------------------------


@tool(undo="refund_payment")
def pay(amount: float, purpose: str, idempotency_key: str) -> Payment:
    """Pay. amount: in euros. purpose: what for. Returns the payment_id."""
    return {"payment_id": _book("pay", "payment", purpose, {"amount": amount}, idempotency_key)}


@tool(tolerates_absence=True)
def refund_payment(payment_id: str, idempotency_key: str) -> Cancellation:
    """Refund a payment in full."""
    return {"found": _cancel("payment", payment_id, idempotency_key)}


# --- shared --------------------------------------------------------------------------------------------------------


def _book(name: str, kind: str, item: str, params: dict[str, object], key: str) -> str:
    try:
        ref = the_world().book(kind, item, params, key)
    except Refused as refusal:
        _fail(refusal)
    _hold(name)
    return ref


def _cancel(kind: str, ref: str, key: str) -> str:
    try:
        return the_world().cancel(kind, key, ref=ref)
    except Refused as refusal:
        _fail(refusal)


def _fail(refusal: Refused) -> NoReturn:
    hints = {"sold_out": "choose another one", "closed": "ask the desk by telephone"}
    raise ToolError(str(refusal), error_code=refusal.code, retryable=False, suggestion=hints.get(refusal.code))


def _hold(name: str) -> None:
    """For the demo: once the booking stands, keep back the answer of the tool that ``BOOKING_HOLD`` names.

    It says so by a file beside the world, and waits as long as that file is there. Whoever kills the process now kills
    it at the worst moment: the world has acted, and nobody knows.
    """
    if os.environ.get("BOOKING_HOLD") != name:
        return
    held = Path(f"{the_world().path}.held")
    held.touch()
    while held.exists():
        time.sleep(0.02)
