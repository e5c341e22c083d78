"""Connects a session's agent with the driver of its saga."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

from saga_engine.core import records as r
from saga_engine.core.state import State


class Driver(Protocol):
    """What drives the saga at present."""

    def rouse(self) -> None:
        """Have it look for what has changed."""


class Link:
    """The connection of one session; it outlives the loss of a lease.

    ``requests`` are facts that the agent wants recorded, each built from the state at the time of its recording.
    ``on_durable`` receives records, and ``on_driver`` a driver that has started.
    """

    __slots__ = ("driver", "left", "on_driver", "on_durable", "requests")

    def __init__(self, on_durable: Callable[[Sequence[r.AnyRecord]], None], on_driver: Callable[[State], None]) -> None:
        self.requests: deque[Callable[[State, int], r.AnyRecord | None]] = deque()
        self.on_durable = on_durable
        self.on_driver = on_driver
        self.driver: Driver | None = None
        self.left = False

    def leave(self) -> None:
        """The agent is gone: journal what is in flight, and release the saga until the agent restarts."""
        self.left = True
        if self.driver is not None:
            self.driver.rouse()

    def request(self, make: Callable[[State, int], r.AnyRecord | None]) -> None:
        """Request that a fact is recorded; ``make`` may find that there is nothing to record any more."""
        self.requests.append(make)
        if self.driver is not None:
            self.driver.rouse()
