"""A travel agency. Files of the folder make it fail: 'hotel-is-full', 'hotel-is-silent', 'airline-is-closed'."""

from __future__ import annotations

import time
from pathlib import Path

from saga_engine import RetryPolicy, ToolError, tool

ONCE = RetryPolicy(max_attempts=1, base_s=0.01, max_s=0.01)


@tool(undo="cancel_flight", retry=ONCE)
def book_flight(to: str) -> dict:
    """Book a flight. Use it before the hotel."""
    return {"ref": f"FL-{to}"}


@tool(retry=ONCE)
def cancel_flight(ref: str) -> dict:
    """Give a flight back."""
    if Path("airline-is-closed").exists():
        raise ToolError("the office is closed", error_code="closed")
    return {"cancelled": ref}


@tool(undo="cancel_hotel", retry=ONCE)
def book_hotel(city: str, nights: int = 1) -> dict:
    """Book a room in a hotel of a city."""
    if Path("hotel-is-full").exists():
        raise ToolError("no rooms", error_code="full", suggestion="try another day")
    if Path("hotel-is-silent").exists():
        raise ConnectionError("the line is dead")
    return {"ref": f"HO-{city}", "nights": nights}


@tool(retry=ONCE)
def cancel_hotel(ref: str) -> dict:
    """Give a room back."""
    return {"cancelled": ref}


@tool(effect="read", retry=ONCE)
def weather(city: str) -> dict:
    """What the weather will be."""
    return {"city": city, "sun": True}


@tool(undo="cancel_hotel", retry=ONCE)
def misprogrammed(city: str) -> dict:
    """A tool with a defect."""
    return {"ref": {}[city]}


@tool(undo="cancel_hotel", retry=ONCE, timeout_s=600)
def slow_hotel(city: str) -> dict:
    """Book a room where that takes until somebody opens the gate."""
    while not Path("gate").exists():
        time.sleep(0.02)
    return {"ref": f"HO-{city}"}
