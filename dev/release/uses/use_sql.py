"""The barrier on SQLite: a repeated key acts once, and the undo of a saga takes it back."""

from desk import STORE, book, go, unbook
from sqlalchemy import Connection, create_engine, text

from saga_engine import Coordinator, ToolContext, tool
from saga_engine.barriers import SqlBarrier

engine = create_engine("sqlite:///shop.db")
barrier = SqlBarrier(engine)
KEYS: list[str] = []


@tool(undo="cancel_seat")
def book_seat(seat: str, idempotency_key: str) -> dict:
    KEYS.append(idempotency_key)

    def work(db: Connection) -> dict:
        db.execute(text("INSERT INTO seats VALUES (:seat)"), {"seat": seat})
        return {"seat": seat}

    barrier.call(idempotency_key, work)
    return barrier.call(idempotency_key, work)


@tool(tolerates_absence=True)
def cancel_seat(ctx: ToolContext) -> None:
    def cancel(db: Connection, booked: dict) -> None:
        db.execute(text("DELETE FROM seats WHERE seat = :seat"), booked)

    barrier.undo(ctx.undoes, cancel)


def seats() -> int:
    with engine.connect() as db:
        return db.execute(text("SELECT COUNT(*) FROM seats")).scalar() or 0


async def main() -> str:
    barrier.create_table()
    with engine.begin() as db:
        db.execute(text("CREATE TABLE seats (seat TEXT)"))
    kept = {"step_id": 1, "tool": "book_seat", "params": {"seat": "1A"}}
    lost = {"step_id": 1, "tool": "book_seat", "params": {"seat": "2B"}}
    async with Coordinator.open(STORE, [book_seat, cancel_seat, book, unbook]) as coordinator:
        assert (await coordinator.run({"steps": [kept]}, saga_id="kept")).completed
        assert seats() == 1
        full = {"step_id": 2, "tool": "book", "params": {"item": "hotel"}, "depends_on": [1]}
        outcome = await coordinator.run({"steps": [lost, full]}, saga_id="undone")
        assert outcome.status == "COMPENSATED", outcome
    assert seats() == 1
    assert len(set(KEYS)) == 2
    return "a key that is used twice acts once, and its undo runs once"


go(main)
