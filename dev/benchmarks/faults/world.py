"""The bank, the airline and the hotel of both comparisons: rows in a SQLite file that outlives every process.

They keep no keys: a request that comes twice acts twice, as with many real systems. The hotel can be asked for a
booking by the traveller's name. Standard library only, because each system runs in an environment of its own.
"""

from __future__ import annotations

import os
import signal
import sqlite3


def _connect() -> sqlite3.Connection:
    db = sqlite3.connect("world.db", isolation_level=None)
    db.execute("CREATE TABLE IF NOT EXISTS effects (what TEXT, standing INTEGER DEFAULT 1)")
    return db


def act(what: str) -> str:
    """Something happens. Then the process is killed, if this is where it should be (``DIE``)."""
    with _connect() as db:
        db.execute("INSERT INTO effects (what) VALUES (?)", (what,))
    if os.environ.get("DIE") == what:
        os.kill(os.getpid(), signal.SIGKILL)
    return what


def take_back(what: str) -> None:
    """One effect of this name ends."""
    with _connect() as db:
        found = db.execute("SELECT max(rowid) FROM effects WHERE what = ? AND standing", (what,)).fetchone()
        db.execute("UPDATE effects SET standing = 0 WHERE rowid = ?", found)


def standing() -> list[str]:
    """What is in effect now."""
    return [what for (what,) in _connect().execute("SELECT what FROM effects WHERE standing ORDER BY rowid")]


def lost(what: str) -> None:
    """The hotel's line goes dead once, after it has booked."""
    first = not os.path.exists("lost")
    act(what)
    if first:
        with open("lost", "w", encoding="utf-8"):
            pass
        raise TimeoutError("the hotel did not answer")
