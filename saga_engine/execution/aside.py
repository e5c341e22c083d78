"""Long work without I/O, beside the event loop: in a thread, a few at once, ended when nobody waits for it any more.

A thread lets the loop have a turn every few milliseconds, whatever the size of a plan. It cannot be killed; the work
itself asks in each of its rounds whether it goes on (``plan.effort``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from math import inf
from typing import Any, Final, TypeVar
from weakref import WeakKeyDictionary

from saga_engine.errors import RequestInvalid
from saga_engine.plan.effort import spending
from saga_engine.ports.machine_clock import machine_clock
from saga_engine.tools.threads import Ended, start_in_thread

_T = TypeVar("_T")

#: So many of each kind are at work at once in a loop; others wait. All of them share one processor with the loop.
_AT_ONCE: Final = 2
#: A plan with more values is checked aside.
_MANY: Final = 2_000
_ALLOWED_S: Final[ContextVar[float]] = ContextVar("saga_allowed_s", default=inf)
#: Two kinds, so that what is bounded, and may take long, holds up nobody who submits or reads a large saga.
_PLACES: Final[WeakKeyDictionary[asyncio.AbstractEventLoop, Mapping[bool, asyncio.Semaphore]]] = WeakKeyDictionary()


class _GivenUp(BaseException):
    """Nobody waits for the work any more. No handler of errors on its way takes it for one of its own."""


class _Effort:
    """One work in its thread. ``allowed_s``: the processor time that it may use."""

    def __init__(self, allowed_s: float) -> None:
        self.given_up = False
        self._allowed_s = allowed_s
        self._until_s = inf

    def begin(self) -> None:
        """In the thread: count from now on."""
        self._until_s = machine_clock.thread_cpu() + self._allowed_s

    def asked(self) -> None:
        """In each round."""
        if self.given_up:
            raise _GivenUp
        if machine_clock.thread_cpu() > self._until_s:
            message = f"the plan is too much work here: it takes more than {self._allowed_s:g} s of processor time"
            hint = "a smaller plan, or `saga check` and `saga simulate`, which have no such limit"
            raise RequestInvalid(message, hint=hint, where="plan", status=422)


@contextmanager
def allowing(seconds: float) -> Iterator[None]:
    """What is done aside in this block may use so much processor time each; more is refused (``RequestInvalid``)."""
    token = _ALLOWED_S.set(seconds)
    try:
        yield
    finally:
        _ALLOWED_S.reset(token)


async def aside(work: Callable[[], _T]) -> _T:
    """Do the work in a thread, and return what it returns. If the wait is cancelled, the work ends at its next round.

    It waits while as many are at work as may be.
    """
    effort = _Effort(_ALLOWED_S.get())
    places = _places(bounded=_ALLOWED_S.get() < inf)

    def run() -> _T:
        effort.begin()
        with spending(effort.asked):
            return work()

    await places.acquire()
    try:
        ended = start_in_thread(run)
    except BaseException:
        places.release()
        raise
    # Only when the thread has ended: a caller that leaves early does not let another one in.
    ended.add_done_callback(lambda _: places.release())
    try:
        found: Ended = await asyncio.shield(ended)
    except asyncio.CancelledError:
        effort.given_up = True
        raise
    if found.error is not None:
        raise found.error
    value: _T = found.value
    return value


def _places(*, bounded: bool) -> asyncio.Semaphore:
    loop = asyncio.get_running_loop()
    found = _PLACES.get(loop)
    if found is None:
        found = _PLACES[loop] = {kind: asyncio.Semaphore(_AT_ONCE) for kind in (False, True)}
    return found[bounded]


def is_large(*parts: Any) -> bool:
    """Whether checking a plan and its input takes so long that it is done aside."""
    return any(_is_large(part) for part in parts)


def _is_large(part: Any) -> bool:
    if isinstance(part, str | bytes):
        return len(part) > 8 * _MANY
    count, open_ = 0, [part]
    while open_ and count <= _MANY:
        each = open_.pop()
        count += 1
        if isinstance(each, dict):
            count += len(each)
            open_ += each.values()
        elif isinstance(each, list | tuple):
            open_ += each
        elif isinstance(each, str):
            count += len(each) // 100  # bindings in a text
    return count > _MANY
