"""The outside world of this example: a shop with orders, refunds and notices, in one SQLite file.

Like a good payment service it keeps request ids: a request that comes again gets the first answer and changes nothing.
Nothing in here knows of the engine.
"""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator

ORDERS: dict[str, dict[str, Any]] = {
    "A-17": {
        "customer": "ada@example.org",
        "lines": [
            {"id": "1", "item": "lamp", "price": "39.90", "returned": True},
            {"id": "2", "item": "desk", "price": "210.00", "returned": False},
            {"id": "3", "item": "pen", "price": "4.50", "returned": True},
        ],
    },
    "B-20": {
        "customer": "bob@example.org",
        "lines": [
            {"id": "1", "item": "chair", "price": "89.00", "returned": True},
            {"id": "2", "item": "shelf", "price": "120.00", "returned": True},
            {"id": "3", "item": "clock", "price": "25.00", "returned": True},
        ],
    },
    # The last line was paid with a voucher, which cannot be refunded.
    "C-05": {
        "customer": "cem@example.org",
        "lines": [
            {"id": "1", "item": "mug", "price": "12.00", "returned": True},
            {"id": "2", "item": "plate", "price": "14.00", "returned": True},
            {"id": "voucher", "item": "bowl", "price": "9.00", "returned": True},
        ],
    },
}


class Refused(Exception):
    """The shop says no, and has done nothing. ``code`` says why."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class Shop:
    """The services of the shop."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = path
        with self._writing() as db:
            db.execute(
                "CREATE TABLE IF NOT EXISTS refunds (request_id TEXT PRIMARY KEY, ref TEXT NOT NULL UNIQUE, "
                "line TEXT NOT NULL, amount TEXT NOT NULL, state TEXT NOT NULL)"
            )
            db.execute("CREATE TABLE IF NOT EXISTS notices (request_id TEXT PRIMARY KEY, notice TEXT NOT NULL)")

    def order(self, number: str) -> dict[str, Any]:
        """An order with its lines. Raises ``Refused``."""
        if number not in ORDERS:
            raise Refused("unknown_order", f"there is no order {number}")
        return ORDERS[number]

    def refund(self, order: str, line: str, amount: str, request_id: str) -> str:
        """Pay a line back, once for each request id; returns the refund's reference. Raises ``Refused``."""
        if line == "voucher":
            raise Refused("paid_by_voucher", f"line {line} of order {order} was paid with a voucher")
        with self._writing() as db:
            known = db.execute("SELECT ref FROM refunds WHERE request_id = ?", (request_id,)).fetchone()
            if known is not None:
                return str(known[0])
            ref = f"R{db.execute('SELECT count(*) FROM refunds').fetchone()[0] + 1}"
            row = (request_id, ref, f"{order}/{line}", amount)
            db.execute("INSERT INTO refunds VALUES (?, ?, ?, ?, 'paid')", row)
            return ref

    def void(self, ref: str) -> None:
        """Take a refund back. Doing it twice is harmless."""
        with self._writing() as db:
            db.execute("UPDATE refunds SET state = 'void' WHERE ref = ?", (ref,))

    def notify(self, notice: dict[str, Any], request_id: str) -> None:
        """Send a notice, once for each request id."""
        with self._writing() as db:
            db.execute("INSERT OR IGNORE INTO notices VALUES (?, ?)", (request_id, json.dumps(notice)))

    # --- what the tests and the reader look at -------------------------------------------------------------------

    def refunds(self) -> dict[str, str]:
        """The state of each refund, by order and line."""
        with self._writing() as db:
            return dict(db.execute("SELECT line, state FROM refunds ORDER BY line").fetchall())

    def notices(self) -> list[dict[str, Any]]:
        """What was sent."""
        with self._writing() as db:
            return [json.loads(row[0]) for row in db.execute("SELECT notice FROM notices ORDER BY rowid")]

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        # IMMEDIATE: one writer at a time, from any process and thread.
        with closing(sqlite3.connect(self._path, timeout=60, isolation_level=None)) as db:
            db.execute("BEGIN IMMEDIATE")
            try:
                yield db
            except BaseException:
                db.execute("ROLLBACK")
                raise
            db.execute("COMMIT")
