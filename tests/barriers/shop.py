"""The tools of a shop whose database has a barrier, for sagas of processes that may be killed.

``python shop.py URL STORE SAGA`` runs the saga of a trip, or continues it. SHOP_DIES names the moment at which the
process kills itself, once: it leaves a file of that name.
``python shop.py URL race KEYS`` makes the calls with these keys.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, text

from saga_engine import Coordinator, RetryPolicy, Tool, ToolContext, ToolError, tool
from saga_engine.barriers import SqlBarrier

TRIP = {
    "steps": [
        {"step_id": "seat", "tool": "book_seat", "params": {"seat": "1A"}},
        {"step_id": "room", "tool": "book_room", "params": {"room": "full"}, "kind": "pivot"},
    ]
}
FAST = RetryPolicy(max_attempts=3, base_s=0.001, max_s=0.002)


def made(url: str) -> tuple[Engine, SqlBarrier]:
    """An engine on the shop's database with its tables."""
    engine = create_engine(url, connect_args={"timeout": 120} if url.startswith("sqlite") else {})
    barrier = SqlBarrier(engine)
    barrier.create_table()
    with engine.begin() as db:
        db.execute(text("CREATE TABLE IF NOT EXISTS bookings (seat VARCHAR(20) NOT NULL, note VARCHAR(20))"))
    return engine, barrier


def book(seat: str) -> Any:
    """The work of a booking."""

    def work(db: Connection) -> dict[str, str]:
        db.execute(text("INSERT INTO bookings (seat) VALUES (:seat)"), {"seat": seat})
        return {"seat": seat}

    return work


def cancel(db: Connection, booked: Any) -> dict[str, int]:
    """The work of its undo."""
    gone = db.execute(text("DELETE FROM bookings WHERE seat = :seat"), {"seat": booked["seat"]})
    return {"rows": gone.rowcount}


def dies(moment: str) -> None:
    """Kill this process if it is to die now and has not died before."""
    if os.environ.get("SHOP_DIES") == moment and not Path(moment).exists():
        Path(moment).touch()
        os.kill(os.getpid(), signal.SIGKILL)


def tools_of(barrier: SqlBarrier) -> list[Tool[..., Any]]:
    """The tools of the shop."""

    @tool(undo="cancel_seat", retry=FAST)
    def book_seat(seat: str, idempotency_key: str) -> Any:
        def work(db: Connection) -> Any:
            result = book(seat)(db)
            dies("in-the-call")
            return result

        result = barrier.call(idempotency_key, work)
        dies("after-the-call")
        return result

    @tool(tolerates_absence=True, retry=FAST)
    def cancel_seat(ctx: ToolContext) -> Any:
        result = barrier.undo(ctx.undoes, cancel)
        dies("after-the-undo")
        return result

    @tool
    def book_room(room: str) -> None:
        raise ToolError("the hotel is full", error_code="sold_out", retryable=False)

    return [book_seat, cancel_seat, book_room]


async def _trip(url: str, store: str, saga: str) -> None:
    engine, barrier = made(url)
    async with Coordinator.open(store, tools_of(barrier)) as coordinator:
        outcome = await coordinator.run(TRIP, saga_id=saga)
    engine.dispose()
    sys.stdout.write(outcome.status)


def _race(url: str, keys: list[str]) -> None:
    engine, barrier = made(url)
    for key in keys:
        while True:
            try:
                barrier.call(key, book(key))
            except ToolError as error:
                if not error.retryable:
                    raise
            else:
                break
    engine.dispose()


if __name__ == "__main__":
    if sys.argv[2] == "race":
        _race(sys.argv[1], sys.argv[3:])
    else:
        asyncio.run(_trip(*sys.argv[1:]))
