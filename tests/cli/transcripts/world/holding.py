"""Seats that a saga holds."""

from __future__ import annotations

from saga_engine import tool


@tool(undo="free", resource="seat:{seat}", hold="saga", hold_max_s=0.001)
def book_seat(seat: str) -> dict:
    """Book a seat of a plane."""
    return {"seat": seat}


@tool(resource="seat:{seat}", hold="saga")
def free(seat: str) -> dict:
    """Give a seat back."""
    return {"seat": seat}
