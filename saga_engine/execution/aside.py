"""Long work without I/O, beside the event loop: in a thread, a few at once, ended when nobody waits for it any more.

A thread lets the loop have a turn every few milliseconds, whatever the size of a plan. It cannot be killed; the work
itself asks in each of its rounds whether it goes on (``plan.effort``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import Context, ContextVar, copy_context
from math import inf
from typing import Any, Final, TypeVar
from weakref import WeakKeyDictionary

from saga_engine.errors import RequestInvalid
from saga_engine.execution.plan_cache import no_collection
from saga_engine.plan.effort import spending
from saga_engine.plan.model import Plan
from saga_engine.ports.machine_clock import machine_clock
from saga_engine.tools.threads import Ended, start_in_thread

_T = TypeVar("_T")

#: So many of each kind are at work at once in a loop; others wait. All of them share one processor with the loop.
_AT_ONCE: Final = 2
#: A plan with more values is checked aside.
_MANY: Final = 2_000
_HOLDERS: Final = (dict, list, tuple)
#: Two kinds, so that what is bounded, and may take long, holds up nobody who submits or reads a large saga.
_PLACES: Final[WeakKeyDictionary[asyncio.AbstractEventLoop, Mapping[bool, asyncio.Semaphore]]] = WeakKeyDictionary()


class _GivenUp(BaseException):
    """Nobody waits for the work any more. No handler of errors on its way takes it for one of its own."""


class Allowance:
    """What works may use each, and whether anybody still waits for them.

    ``seconds``: of processor time. ``enter``: encloses each of them while it waits for a place and is at work, gets
    this and whether it is the first one, and may refuse that.
    """

    def __init__(
        self, seconds: float = inf, enter: Callable[[Allowance, bool], AbstractContextManager[object]] | None = None
    ) -> None:
        self.seconds = seconds
        self.left = False
        self._enter = enter
        self._first = True

    def entered(self) -> AbstractContextManager[object]:
        """For one work."""
        if self._enter is None:
            return nullcontext()
        first, self._first = self._first, False
        return self._enter(self, first)

    def give_up(self) -> None:
        """Nobody waits any more: what is at work ends at its next round, and what would begin does not."""
        self.left = True

    def enclosed(self) -> None:
        """What follows is counted and watched as a whole."""
        self._enter = None

    def end(self) -> None:
        """What was begun under it, and still goes on, is as free as anything else from now on."""
        self.seconds, self.left, self._enter = inf, False, None


class _Effort:
    """One work in its thread."""

    def __init__(self, allowance: Allowance) -> None:
        self.given_up = False
        self._allowance = allowance
        self._until_s = inf

    def begin(self) -> None:
        """In the thread: count from now on."""
        self._until_s = machine_clock.thread_cpu() + self._allowance.seconds

    def asked(self) -> None:
        """In each round."""
        if self.given_up:
            raise _GivenUp
        _require_there(self._allowance)
        if machine_clock.thread_cpu() > self._until_s:
            seconds = self._allowance.seconds
            message = f"the plan is too much work here: it takes more than {seconds:g} s of processor time"
            hint = "a smaller plan, or `saga check` and `saga simulate`, which have no such limit"
            raise RequestInvalid(message, hint=hint, where="plan", status=422)


_UNBOUNDED: Final = Allowance()
_ALLOWED: Final[ContextVar[Allowance]] = ContextVar("saga_allowed", default=_UNBOUNDED)


def _require_there(allowance: Allowance) -> None:
    if allowance.left:
        raise RequestInvalid("nobody waits for the answer any more", status=499)


@contextmanager
def allowing(
    seconds: float, enter: Callable[[Allowance, bool], AbstractContextManager[object]] | None = None
) -> Iterator[Allowance]:
    """What is done aside in this block may use so much processor time each; more is refused (``RequestInvalid``).

    ``enter``: see ``Allowance``. A task that begins in the block, and goes on after it, is free from then on;
    what never depends on the caller begins in a ``context_of_its_own``.
    """
    allowance = Allowance(seconds, enter)
    token = _ALLOWED.set(allowance)
    try:
        yield allowance
    finally:
        _ALLOWED.reset(token)
        allowance.end()


def context_of_its_own() -> Context:
    """A copy of this context for what goes on without the caller: nothing of what he is allowed holds there."""
    context = copy_context()
    context.run(_ALLOWED.set, _UNBOUNDED)
    return context


async def beside(work: Callable[[], _T], *parts: Any) -> _T:
    """Do the work: at once, or aside if one of the ``parts`` on which it works is large."""
    return await aside(work) if is_large(*parts) else work()


async def aside(work: Callable[[], _T]) -> _T:
    """Do the work in a thread, and return what it returns. If the wait is cancelled, the work ends at its next round.

    It waits while as many are at work as may be.
    """
    allowance = _ALLOWED.get()
    with allowance.entered():
        return await _aside(work, allowance)


async def _aside(work: Callable[[], _T], allowance: Allowance) -> _T:
    effort = _Effort(allowance)
    bounded = allowance.seconds < inf
    places = _places(bounded=bounded)

    def run() -> _T:
        effort.begin()
        # What is unbounded may take long, and a program of its user needs its collections.
        with spending(effort.asked), no_collection() if bounded else nullcontext():
            return work()

    await places.acquire()
    try:
        _require_there(allowance)
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
    if isinstance(part, Plan):
        part = part.json_bytes
    if isinstance(part, str | bytes):
        return len(part) > 8 * _MANY
    count = 0
    open_: list[Any] = [(part,)]
    while open_ and count <= _MANY:
        each: Any = open_.pop()
        count += len(each)
        if isinstance(each, dict):
            count += len(each)
            each = each.values()
        if count > _MANY:  # before a look at each of them
            break
        for inner in each:
            kind = type(inner)
            if kind is str:
                count += len(inner) // 100  # bindings in a text
            elif kind is dict or kind is list or isinstance(inner, _HOLDERS):
                open_.append(inner)
    return count > _MANY
