"""The outside world of this example: an airline, a hotel and a bank, in one SQLite file.

It behaves as good services do:

* It keeps request ids. A request that comes again gets the first answer and changes nothing.
* It writes down what it is asked (*sent*) before it does anything, and what it did (*applied*) in the same transaction
  as the deed. Whoever dies in between leaves a request without a deed, never half a deed.
* It can be asked whether a request was carried out (``find``), and a booking can be cancelled by its reference or by
  the request id that made it. Cancelling what never came leaves a note: a request held up on its way is refused then.

Any number of processes may use the file at once. Nothing in here knows of the engine.
"""

from __future__ import annotations

import json
import os
import sqlite3
import tempfile
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

_SCHEMA = """
PRAGMA journal_mode = WAL;
CREATE TABLE bookings (
    number INTEGER PRIMARY KEY,
    kind TEXT NOT NULL,
    ref TEXT UNIQUE,
    request_id TEXT NOT NULL UNIQUE,
    item TEXT NOT NULL,
    params TEXT NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('booked', 'cancelled', 'never came'))
);
CREATE TABLE requests (
    number INTEGER PRIMARY KEY,
    kind TEXT NOT NULL,
    action TEXT NOT NULL,
    request_id TEXT NOT NULL,
    outcome TEXT NOT NULL DEFAULT 'sent'
);
CREATE TABLE rooms_left (kind TEXT NOT NULL, item TEXT NOT NULL, number INTEGER NOT NULL, PRIMARY KEY (kind, item));
CREATE TABLE closed (kind TEXT NOT NULL, action TEXT NOT NULL, PRIMARY KEY (kind, action));
"""


class Refused(Exception):
    """The world says no, and has done nothing. ``code`` says why: sold_out, closed, cancelled, unknown_booking."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class World:
    """The services. ``kind`` is ``flight``, ``hotel`` or ``payment``; ``item`` is what is booked (CA1234, Hilton)."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        if not self.path.exists():
            _create(self.path)

    # --- services ------------------------------------------------------------------------------------------------

    def book(self, kind: str, item: str, params: dict[str, Any], request_id: str) -> str:
        """Book, once for each request id; returns the reference. Raises ``Refused``."""
        arrival = self._arrive(kind, "book", request_id)
        with self._answering(arrival) as db:
            known = db.execute("SELECT ref, state FROM bookings WHERE request_id = ?", (request_id,)).fetchone()
            if known is not None and known[1] != "never came":
                _note(db, arrival, "repeat")
                return str(known[0])
            if known is not None:
                raise Refused("cancelled", f"request {request_id} was cancelled before it came")
            self._check_open(db, kind, "book")
            left = db.execute("SELECT number FROM rooms_left WHERE kind = ? AND item = ?", (kind, item)).fetchone()
            if left is not None and left[0] <= 0:
                raise Refused("sold_out", f"{item} is full")
            db.execute("UPDATE rooms_left SET number = number - 1 WHERE kind = ? AND item = ?", (kind, item))
            made = db.execute(
                "INSERT INTO bookings (kind, request_id, item, params, state) VALUES (?, ?, ?, ?, 'booked')",
                (kind, request_id, item, json.dumps(params)),
            )
            ref = f"{kind[0].upper()}-{made.lastrowid:04}"
            db.execute("UPDATE bookings SET ref = ? WHERE number = ?", (ref, made.lastrowid))
            _note(db, arrival, "applied")
            return ref

    def cancel(self, kind: str, request_id: str, *, ref: str = "", booked_by: str = "") -> str:
        """Cancel a booking by ``ref`` or by the request that made it; returns what it found. Raises ``Refused``.

        Cancelling again is no error. Neither is cancelling, by its request id, what never came.
        """
        arrival = self._arrive(kind, "cancel", request_id)
        with self._answering(arrival) as db:
            self._check_open(db, kind, "cancel")
            found = db.execute(
                "SELECT number, item, state FROM bookings WHERE kind = ? AND (ref = ? OR request_id = ?)",
                (kind, ref, booked_by),
            ).fetchone()
            if found is None and not booked_by:
                raise Refused("unknown_booking", f"there is no {kind} booking {ref}")
            if found is None:
                db.execute(
                    "INSERT INTO bookings (kind, request_id, item, params, state) "
                    "VALUES (?, ?, '', '{}', 'never came')",
                    (kind, booked_by),
                )
                _note(db, arrival, "applied")
                return "never came"
            number, item, state = found
            if state != "booked":
                _note(db, arrival, "repeat")
                return str(state)
            db.execute("UPDATE bookings SET state = 'cancelled' WHERE number = ?", (number,))
            db.execute("UPDATE rooms_left SET number = number + 1 WHERE kind = ? AND item = ?", (kind, item))
            _note(db, arrival, "applied")
            return "cancelled"

    def find(self, kind: str, request_id: str) -> str | None:
        """The reference of the booking that this request made; None if it made none."""
        with closing(self._connect()) as db:
            found = db.execute(
                "SELECT ref FROM bookings WHERE kind = ? AND request_id = ? AND state != 'never came'",
                (kind, request_id),
            ).fetchone()
        return None if found is None else str(found[0])

    # --- fate ----------------------------------------------------------------------------------------------------

    def set_left(self, kind: str, item: str, number: int) -> None:
        """From now on only so many are left (without this call there is always room)."""
        with self._writing() as db:
            db.execute("INSERT OR REPLACE INTO rooms_left VALUES (?, ?, ?)", (kind, item, number))

    def close_desk(self, kind: str, action: str) -> None:
        """From now on the service refuses every ``book`` or ``cancel``."""
        with self._writing() as db:
            db.execute("INSERT OR IGNORE INTO closed VALUES (?, ?)", (kind, action))

    def open_desk(self, kind: str, action: str) -> None:
        """The service does it again."""
        with self._writing() as db:
            db.execute("DELETE FROM closed WHERE kind = ? AND action = ?", (kind, action))

    # --- looking -------------------------------------------------------------------------------------------------

    def bookings(self, state: str | None = "booked") -> list[dict[str, Any]]:
        """The bookings in a state, oldest first; None: all of them."""
        with closing(self._connect()) as db:
            rows = db.execute(
                "SELECT ref, kind, item, state, request_id FROM bookings "
                "WHERE ?1 IS NULL OR state = ?1 ORDER BY number",
                (state,),
            )
            return [dict(zip(("ref", "kind", "item", "state", "request_id"), row, strict=True)) for row in rows]

    def requests(self) -> list[dict[str, Any]]:
        """Every request that ever came, and what was made of it: sent (nothing yet), applied, repeat or refused."""
        with closing(self._connect()) as db:
            rows = db.execute("SELECT kind, action, request_id, outcome FROM requests ORDER BY number")
            return [dict(zip(("kind", "action", "request_id", "outcome"), row, strict=True)) for row in rows]

    # --- inside --------------------------------------------------------------------------------------------------

    def _connect(self) -> sqlite3.Connection:
        db = sqlite3.connect(self.path, timeout=30.0, isolation_level=None)
        db.execute("PRAGMA synchronous = NORMAL")
        return db

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        with closing(self._connect()) as db:
            db.execute("BEGIN IMMEDIATE")
            try:
                yield db
            except BaseException:
                db.execute("ROLLBACK")
                raise
            db.execute("COMMIT")

    def _arrive(self, kind: str, action: str, request_id: str) -> int:
        with self._writing() as db:
            line = db.execute(
                "INSERT INTO requests (kind, action, request_id) VALUES (?, ?, ?)", (kind, action, request_id)
            )
            assert line.lastrowid is not None
            return line.lastrowid

    @contextmanager
    def _answering(self, arrival: int) -> Iterator[sqlite3.Connection]:
        """The deed and its note, together or not at all; a refusal is noted apart."""
        try:
            with self._writing() as db:
                yield db
        except Refused:
            with self._writing() as db:
                _note(db, arrival, "refused")
            raise

    def _check_open(self, db: sqlite3.Connection, kind: str, action: str) -> None:
        if db.execute("SELECT 1 FROM closed WHERE kind = ? AND action = ?", (kind, action)).fetchone():
            raise Refused("closed", f"the {kind} desk does not {action} today")


def _note(db: sqlite3.Connection, arrival: int, outcome: str) -> None:
    db.execute("UPDATE requests SET outcome = ? WHERE number = ?", (outcome, arrival))


def _create(path: Path) -> None:
    """Make the file complete under another name, then give it its own: no process ever sees half a world."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
    os.close(handle)
    made = Path(name)
    try:
        with closing(sqlite3.connect(made)) as db:
            db.executescript(_SCHEMA)
        try:
            os.link(made, path)
        except FileExistsError:
            return  # another process was faster; its world is as good
    finally:
        made.unlink()
