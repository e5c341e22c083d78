"""Long pure work (checks and simulations of large plans) says in each round that it goes on.

The pure rooms know neither time nor threads. They call ``spend`` once in each round of a loop that may be long; what
was set with ``spending`` around them may raise there, and so end the work.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

_ASKED: Final[ContextVar[Callable[[], None] | None]] = ContextVar("saga_effort", default=None)


def spend() -> None:
    """One more round. Raises what the caller of the work wants to end it with."""
    asked = _ASKED.get()
    if asked is not None:
        asked()


@contextmanager
def spending(asked: Callable[[], None]) -> Iterator[None]:
    """Ask in each round of the work in this block."""
    token = _ASKED.set(asked)
    try:
        yield
    finally:
        _ASKED.reset(token)
