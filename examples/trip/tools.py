"""The tools of a trip: bookings that are kept in memory, each with its undo."""

from __future__ import annotations

from saga_engine import ToolError, tool

BOOKED: dict[str, str] = {}


@tool(undo="cancel_booking")
async def book_seat(train: str, date: str) -> dict[str, str]:
    """Books a seat on a train."""
    return _booked(f"{train} on {date}")


@tool(undo="cancel_booking")
async def book_room(city: str, date: str) -> dict[str, str]:
    """Books a room in a city; Atlantis has none."""
    if city == "Atlantis":
        raise ToolError("there is no room", error_code="sold_out", retryable=False)
    return _booked(f"a room in {city} on {date}")


@tool(tolerates_absence=True)
async def cancel_booking(ref: str) -> dict[str, bool]:
    """Cancels a booking."""
    return {"cancelled": BOOKED.pop(ref, None) is not None}


def _booked(what: str) -> dict[str, str]:
    ref = f"R{len(BOOKED) + 1}"
    BOOKED[ref] = what
    return {"ref": ref}
