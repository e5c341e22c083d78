"""The connections of a listener. One that waits for its client makes room for one that comes."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Protocol

from saga_engine.listener.bounds import Bounds


class Connection(Hashable, Protocol):
    """One of them."""

    address: str

    def cut(self, why: str) -> None:
        """Close it now."""
        ...


class Crowd:
    """All connections by address, and those that wait for their clients: the one that waits longest comes first."""

    def __init__(self, bounds: Bounds) -> None:
        self._bounds = bounds
        self._all: dict[str, set[Connection]] = {}
        self._count = 0
        self._waiting: dict[str, dict[Connection, None]] = {}

    def admits(self, made: Connection) -> bool:
        """Take in a connection. If all places are taken, one that waits is cut off for it; False: none waits."""
        mine = self._all.get(made.address, set())
        if len(mine) >= self._bounds.connections_each:
            others = self._waiting.get(made.address, {})
        elif self._count >= self._bounds.connections:
            others = max(self._waiting.values(), key=len, default={})
        else:
            self._take(made)
            return True
        if not others:
            return False
        oldest = next(iter(others))
        self.gone(oldest)  # at once: the loop tells it later
        oldest.cut("it waited for its client, and its place was needed")
        self._take(made)
        return True

    def _take(self, made: Connection) -> None:
        self._all.setdefault(made.address, set()).add(made)
        self._count += 1
        self.waits(made)

    def waits(self, one: Connection) -> None:
        """It waits for its client."""
        if one in self._all.get(one.address, ()):
            self._waiting.setdefault(one.address, {}).setdefault(one)

    def works(self, one: Connection) -> None:
        """Its client waits for an answer."""
        _without(self._waiting, one)

    def gone(self, one: Connection) -> None:
        """It has been closed, or is about to be."""
        _without(self._waiting, one)
        mine = self._all.get(one.address, set())
        if one in mine:
            self._count -= 1
            mine.remove(one)
            if not mine:
                del self._all[one.address]


def _without(found: dict[str, dict[Connection, None]], one: Connection) -> None:
    mine = found.get(one.address)
    if mine is not None:
        mine.pop(one, None)
        if not mine:
            del found[one.address]
