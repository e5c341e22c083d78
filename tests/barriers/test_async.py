"""The barrier for asynchronous tools keeps the same laws."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from saga_engine.barriers import AsyncSqlBarrier
from saga_engine.errors import OutcomeUnknown, ToolError
from tests.barriers.conftest import Shop


@pytest.fixture
async def engine(shop: Shop) -> AsyncIterator[AsyncEngine]:
    if shop.url.startswith("mysql"):
        pytest.skip("no asynchronous driver of MySQL is installed")
    engine = create_async_engine(shop.url.replace("sqlite://", "sqlite+aiosqlite://"), connect_args=shop.options)
    yield engine
    await engine.dispose()


async def _book(db: AsyncConnection) -> dict[str, str]:
    await db.execute(text("INSERT INTO bookings (seat) VALUES ('1A')"))
    return {"seat": "1A"}


async def _cancel(db: AsyncConnection, booked: Any) -> dict[str, str]:
    await db.execute(text("DELETE FROM bookings WHERE seat = :seat"), {"seat": booked["seat"]})
    return {"cancelled": booked["seat"]}


async def _never(*given: Any) -> None:
    pytest.fail("it ran again")


async def test_once_undone_once_and_never_again(shop: Shop, engine: AsyncEngine) -> None:
    """A repeat returns the first result, so does a repeated undo, and a call after its undo is refused."""
    barrier = AsyncSqlBarrier(engine)
    await barrier.create_table()
    assert await barrier.probe(shop.key) is None
    assert await barrier.call(shop.key, _book) == {"seat": "1A"}
    assert await barrier.call(shop.key, _never) == {"seat": "1A"} == await barrier.probe(shop.key)
    assert shop.seats() == ["1A"]
    assert await barrier.undo(shop.key, _cancel) == {"cancelled": "1A"}
    assert await barrier.undo(shop.key, _never) == {"cancelled": "1A"}
    assert shop.seats() == []
    with pytest.raises(ToolError, match="was undone"):
        await barrier.call(shop.key, _never)


async def test_an_undo_without_its_call_bars_the_call(shop: Shop, engine: AsyncEngine) -> None:
    """The undo comes first and does nothing; the call is refused."""
    barrier = AsyncSqlBarrier(engine)
    assert await barrier.undo(shop.key, _never) is None
    with pytest.raises(ToolError, match="before it arrived"):
        await barrier.call(shop.key, _never)
    assert await barrier.purge(-60) >= 1


async def test_a_call_that_fails_leaves_nothing(shop: Shop, engine: AsyncEngine) -> None:
    """An error of the work, of the database, or a result that reports a failure: nothing is left."""
    barrier = AsyncSqlBarrier(engine)

    async def fails(db: AsyncConnection) -> None:
        await _book(db)
        raise KeyError("seat")

    async def reports(db: AsyncConnection) -> dict[str, bool]:
        await _book(db)
        return {"success": False}

    async def refused(db: AsyncConnection) -> None:
        await db.execute(text("INSERT INTO bookings (seat) VALUES (NULL)"))

    with pytest.raises(KeyError):
        await barrier.call(shop.key, fails)
    assert await barrier.call(shop.key, reports) == {"success": False}
    with pytest.raises(ToolError) as raised:
        await barrier.call(shop.key, refused)
    assert raised.value.error_code == "database_error"
    assert (shop.seats(), shop.rows()) == ([], [])


async def test_a_call_that_is_cancelled_leaves_nothing(shop: Shop, engine: AsyncEngine) -> None:
    """A time-out cancels the tool in the middle of its transaction: it is rolled back, and the key can be used again."""
    barrier = AsyncSqlBarrier(engine)
    inside = asyncio.Event()

    async def waits(db: AsyncConnection) -> None:
        await _book(db)
        inside.set()
        await asyncio.Event().wait()

    task = asyncio.create_task(barrier.call(shop.key, waits))
    await inside.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (shop.seats(), shop.rows()) == ([], [])
    assert await barrier.call(shop.key, _book) == {"seat": "1A"}


async def test_work_that_commits_by_itself_is_in_doubt(shop: Shop, engine: AsyncEngine) -> None:
    """An effect without its result is unknown."""
    barrier = AsyncSqlBarrier(engine)

    async def commits(db: AsyncConnection) -> None:
        await _book(db)
        await db.commit()

    for asked in (barrier.call(shop.key, commits), barrier.call(shop.key, _never), barrier.undo(shop.key, _never)):
        with pytest.raises(OutcomeUnknown, match="ended the barrier's transaction"):
            await asked


async def test_many_at_once(shop: Shop, engine: AsyncEngine) -> None:
    """Of many tasks that make one call, one does the work; each has its result, or is told to try again."""
    barrier = AsyncSqlBarrier(engine)

    async def one() -> Any:
        while True:
            try:
                return await barrier.call(shop.key, _book)
            except ToolError as error:
                if not error.retryable:
                    raise

    assert await asyncio.gather(*(one() for _ in range(8))) == [{"seat": "1A"}] * 8
    assert shop.seats() == ["1A"]


async def test_a_database_that_cannot_be_reached_is_not_done(tmp_path: Any) -> None:
    """No connection: nothing was done in this attempt."""
    engine = create_async_engine(f"sqlite+aiosqlite:///{tmp_path}/no/such/folder/shop.db")
    barrier = AsyncSqlBarrier(engine)
    with pytest.raises(ToolError) as raised:
        await barrier.call("key", _never)
    assert (raised.value.error_code, raised.value.retryable, raised.value.definite) == ("database_error", True, False)
    await engine.dispose()
    # The driver's thread of a connection that failed ends by itself, and tells that to the loop, which must still run.
    for thread in {thread for thread in threading.enumerate() if "_connection_worker_thread" in thread.name}:
        await asyncio.to_thread(thread.join)
