"""Sessions that are broken on purpose, to show that their kill matrix can fail. Applied after the fork."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from saga_engine.core import records as r
from saga_engine.core.evolve import compensation
from saga_engine.runtime.session import Session


def make_every_call_anew() -> None:
    """What is recorded is not looked at."""

    async def placed(self: Session, record: r.CallAdded) -> str:
        return self._new_call(record)

    Session._placed = placed  # type: ignore[method-assign]


def forget_what_came_before() -> None:
    """No undo waits for another."""
    compensation._in_reverse = lambda state, chosen: None  # type: ignore[assignment]


def end_well_whatever_happens() -> None:
    """The session is closed as if its agent had not failed."""
    genuine = Session.close

    async def close(self: Session, *, reason: str = "", note: str = "") -> Any:
        return await genuine(self)

    Session.close = close  # type: ignore[method-assign]


def roll_nothing_back() -> None:
    """A savepoint is where the agent is anyway."""

    async def rollback(self: Session, to: Any = None) -> None:
        return None

    Session.rollback = rollback  # type: ignore[method-assign]


MUTANTS: dict[str, Callable[[], None]] = {
    mutant.__name__.replace("_", " "): mutant
    for mutant in (make_every_call_anew, forget_what_came_before, end_well_whatever_happens, roll_nothing_back)
}
