"""The world of the score: effects in SQLite, outside every system, and the faults of its calls.

A call of a task's step is one row; its inverse removes the row. The world honours an idempotency key if it gets one,
and can be asked whether the call with a key happened. What goes wrong with a step is drawn once from the seed, the task
and the step, so every system meets the same faults.

- ``transient``: the first attempt is refused with "try again", and has no effect;
- ``lost``: the first attempt has its effect, and the connection breaks before the answer;
- ``time-out``: the first attempt ends with a time-out; a coin says whether it had its effect;
- ``refused``: every attempt is refused, and has no effect;
- ``foreign``: every attempt has its effect, and then raises an exception that says nothing (a bug behind the call);
- ``wrong``: every attempt has its effect, and answers something else than it promises;
- ``killed-before``, ``killed-after``: the process that makes the first attempt is killed (SIGKILL);
- ``stuck``: the step works, and its inverse is refused.
"""

from __future__ import annotations

import os
import random
import signal
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

KINDS = (
    "transient",
    "lost",
    "time-out",
    "refused",
    "foreign",
    "wrong",
    "killed-before",
    "killed-after",
    "stuck",
)


class Transient(Exception):
    """Not done; try again."""


class Refused(Exception):
    """Not done, and never will be."""


class World:
    """The effects in a file; ``rate``: of how many steps something goes wrong with (0 to 1). ``kill``: how it kills."""

    def __init__(self, path: Path, seed: int, rate: float, kill: Callable[[], None] | None = None) -> None:
        self._kill = kill or (lambda: os.kill(os.getpid(), signal.SIGKILL))
        self._path = path
        self._seed = seed
        self._rate = rate
        with self._open() as db:
            db.execute("create table if not exists effects (task text, step int, tool text, key text)")
            db.execute("create table if not exists calls (task text, step int, way text)")

    def fault(self, task: str, step: int) -> str:
        """What goes wrong with a step; an empty text: nothing."""
        dice = random.Random(f"{self._seed} {self._rate} {task} {step}")
        return dice.choice(KINDS) if dice.random() < self._rate else ""

    def call(self, task: str, step: int, tool: str, key: str = "") -> dict[str, Any]:
        """Make a step's call. Raises what its fault says."""
        fault = self.fault(task, step)
        with self._open() as db:
            first = not db.execute("select 1 from calls where task=? and step=? and way='do'", (task, step)).fetchone()
            db.execute("insert into calls values (?, ?, 'do')", (task, step))
        if fault == "refused":
            raise Refused(f"step {step} is refused")
        if first and fault == "transient":
            raise Transient(f"step {step}: try again")
        if first and fault == "killed-before":
            self._kill()
        if first and fault == "time-out" and random.Random(f"{self._seed} {task} {step}").random() < 0.5:
            raise TimeoutError(f"step {step} did not answer")
        with self._open() as db:
            known = key and db.execute("select 1 from effects where key=?", (key,)).fetchone()
            if not known:
                db.execute("insert into effects values (?, ?, ?, ?)", (task, step, tool, key))
        if first and fault == "killed-after":
            self._kill()
        if first and fault == "lost":
            raise ConnectionError(f"step {step}: the connection broke")
        if first and fault == "time-out":
            raise TimeoutError(f"step {step} did not answer")
        if fault == "foreign":
            raise KeyError("balance")
        if fault == "wrong":
            return {"error": None}
        return {"ref": f"{task}/{step}"}

    def undo(self, task: str, step: int) -> None:
        """Take a step back, whoever made it and however often. Raises ``Refused`` if it is stuck."""
        with self._open() as db:
            db.execute("insert into calls values (?, ?, 'undo')", (task, step))
            if self.fault(task, step) == "stuck":
                raise Refused(f"step {step} cannot be taken back")
            db.execute("delete from effects where task=? and step=?", (task, step))

    def find(self, key: str) -> bool:
        """Whether the call with a key happened."""
        with self._open() as db:
            return bool(db.execute("select 1 from effects where key=?", (key,)).fetchone())

    def effects(self, task: str) -> dict[int, int]:
        """How often each step of a task stands."""
        with self._open() as db:
            return dict(db.execute("select step, count(*) from effects where task=? group by step", (task,)).fetchall())

    def calls(self, task: str) -> int:
        """How many calls were made for a task, inverse ones as well."""
        with self._open() as db:
            return int(db.execute("select count(*) from calls where task=?", (task,)).fetchone()[0])

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        # Each call has a connection of its own: a killed process leaves nothing behind but what was committed.
        db = sqlite3.connect(self._path, timeout=30)
        try:
            with db:
                yield db
        finally:
            db.close()


def steps_of(task: dict[str, Any]) -> Iterable[tuple[int, str]]:
    """The steps of a task: number and tool."""
    return enumerate((call["tool"] for call in task["calls"]), 1)
