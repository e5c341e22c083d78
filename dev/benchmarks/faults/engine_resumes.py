"""saga_engine: the same trip. The hotel's lost answer is settled by its probe; the declined card undoes the rest."""

from __future__ import annotations

import asyncio

import world

from saga_engine import Coordinator, ToolError, tool


@tool(undo="cancel")
def flight(number: str) -> dict:
    return {"what": world.act(f"flight {number}")}


@tool(undo="cancel", probe="room_booked")
def hotel(name: str) -> dict:
    what = f"room in the {name}"
    world.lost(what)
    return {"what": what}


@tool(effect="read")
def room_booked(name: str) -> dict | None:
    what = f"room in the {name}"
    return {"what": what} if what in world.standing() else None


@tool(undo="cancel")
def pay(amount: int) -> dict:
    raise ToolError(f"the card is declined for {amount}", error_code="declined")


@tool
def cancel(what: str) -> None:
    world.take_back(what)


PLAN = {
    "steps": [
        {"step_id": "flight", "tool": "flight", "params": {"number": "CA1234"}},
        {"step_id": "hotel", "tool": "hotel", "params": {"name": "Ibis"}},
        {"step_id": "pay", "tool": "pay", "params": {"amount": 420}},
    ]
}


async def main() -> None:
    """One process."""
    async with Coordinator.open(store="embedded://.saga", tools=[flight, hotel, room_booked, pay, cancel]) as open_:
        result = await open_.run(PLAN, saga_id="trip-1")
    how = {step.step_id: step.status for step in result.steps}
    print(f"  the saga is {result.status}: {how}")


if __name__ == "__main__":
    asyncio.run(main())
