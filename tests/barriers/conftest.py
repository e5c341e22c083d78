"""An empty bookings table behind a barrier, in each kind of database that is installed."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import Connection, create_engine, text

from saga_engine.barriers import SqlBarrier
from tests.barriers.databases import NAMES, database
from tests.support.servers import GIVE_UP_S

_keys = itertools.count()


class Shop:
    """A table of bookings, and a barrier in front of it. ``key`` is fresh for each test."""

    def __init__(self, url: str) -> None:
        self.url = url
        #: SQLite's driver gives up on a lock after 5 s otherwise, which says nothing on a busy machine.
        self.options: dict[str, Any] = {"timeout": GIVE_UP_S} if url.startswith("sqlite") else {}
        self.engine = create_engine(url, connect_args=self.options)
        self.barrier = SqlBarrier(self.engine)
        self.barrier.create_table()
        with self.engine.begin() as db:
            db.execute(text("DROP TABLE IF EXISTS bookings"))
            db.execute(text("CREATE TABLE bookings (seat VARCHAR(20) NOT NULL, note VARCHAR(20))"))
        self.key = f"saga-{next(_keys)}:1:f:seed"

    def seats(self) -> list[str]:
        with self.engine.connect() as db:
            return [row[0] for row in db.execute(text("SELECT seat FROM bookings ORDER BY seat"))]

    def rows(self) -> list[Any]:
        with self.engine.connect() as db:
            wanted = text("SELECT state FROM saga_barrier WHERE call_key = :key")
            return [row[0] for row in db.execute(wanted, {"key": self.key})]

    def book(self, seat: str) -> Any:
        def work(db: Connection) -> dict[str, str]:
            db.execute(text("INSERT INTO bookings (seat) VALUES (:seat)"), {"seat": seat})
            return {"seat": seat}

        return self.barrier.call(self.key, work)

    def cancel(self) -> Any:
        def work(db: Connection, booked: Any) -> dict[str, str]:
            db.execute(text("DELETE FROM bookings WHERE seat = :seat"), {"seat": booked["seat"]})
            return {"cancelled": booked["seat"]}

        return self.barrier.undo(self.key, work)


@pytest.fixture(scope="session", params=NAMES)
def url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with database(request.param, tmp_path_factory.mktemp("database")) as url:
        yield url


@pytest.fixture
def shop(url: str) -> Iterator[Shop]:
    shop = Shop(url)
    yield shop
    shop.engine.dispose()
