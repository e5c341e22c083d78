"""Tools small enough for a small model. Planning calls none of them."""

from __future__ import annotations

from typing import TypedDict

from saga_engine import tool


class Room(TypedDict):
    """A booked room."""

    booking: str


@tool(undo="cancel_room")
def book_room(hotel: str) -> Room:
    """Book a room in a hotel."""
    raise AssertionError("planning calls no tool")


@tool
def cancel_room(booking: str) -> dict:
    """Cancel a booked room."""
    raise AssertionError("planning calls no tool")


@tool
def send_mail(to: str, text: str) -> dict:
    """Send a mail. A mail that was sent cannot be called back."""
    raise AssertionError("planning calls no tool")
