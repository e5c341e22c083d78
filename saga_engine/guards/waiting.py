"""How guards wait: for a turn, at most until the saga's deadline, and until they are stopped."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from enum import Enum
from typing import TYPE_CHECKING, Any

from saga_engine.core.effects import COMPENSATE, ErrorInfo, NotDone
from saga_engine.language.errors import said
from saga_engine.loggers import logger_of
from saga_engine.plan.limits import GUARD_WAIT_S

if TYPE_CHECKING:
    from collections.abc import MutableMapping

    from saga_engine.errors import SagaError
    from saga_engine.ports import Call, Clock

    #: What a tool's guards count, by name.
    Counts = MutableMapping[str, int]

_log = logger_of("saga_engine.guards")

#: Errors of a store are passed through a turn as its result: an exception without a reader would be noise.
Turn = asyncio.Future["Word | SagaError"]


class Word(Enum):
    """How a wait ended."""

    TURN = "it is our turn"
    DEADLINE = "the deadline passed"
    LONG = "it has waited as long as it may"
    INTERRUPTED = "the engine is being closed"


def settle(turn: Turn, word: Word | SagaError) -> bool:
    """End a wait, unless it has ended; tells whether it was this word that ended it."""
    if turn.done():
        return False
    turn.set_result(word)
    return True


class Waiting:
    """All waits of the guards of a process.

    Waiting is no part of a tool's own time. It ends with the saga's deadline, which is on the store's clock; backward
    there is none.
    """

    __slots__ = ("_clock", "_turns", "stopped")

    def __init__(self, clock: Clock) -> None:
        self.stopped = False
        self._clock = clock
        self._turns: set[Turn] = set()

    def left_ms(self, call: Call) -> int | None:
        """Until the deadline; 0 once it has passed, None if there is none."""
        return None if call.deadline_ms is None else max(call.deadline_ms - self._clock.now_ms(), 0)

    def most_ms(self, call: Call) -> tuple[int | None, Word]:
        """How long a rate or a bulkhead may delay a call, None: for ever; and the end of that time."""
        left_ms = self.left_ms(call)
        if call.guard_wait_s is None or is_undo(call):
            return left_ms, Word.DEADLINE
        # (0 is about refusals that are known at once: whoever chose it still wants calls to keep to rates and places.)
        most_ms = round((call.guard_wait_s or GUARD_WAIT_S) * 1000)
        return (most_ms, Word.LONG) if left_ms is None or most_ms < left_ms else (left_ms, Word.DEADLINE)

    async def until(
        self,
        turn: Turn,
        call: Call,
        counts: Counts,
        kept: asyncio.Future[None] | None = None,
        *,
        most: tuple[int | None, Word] | None = None,
    ) -> Word | SagaError:
        """Wait until ``turn`` is settled; meanwhile the mark that the call waits is written.

        ``kept``: done as soon as it is known that the call cannot pass at once; None: that is known. ``most`` (see
        ``most_ms``): how long it waits; None: until the deadline. Raised are cancellation, and why the mark could not
        be written; even then ``turn`` may be settled.
        """
        if turn.done():
            return turn.result()
        loop = turn.get_loop()
        left_ms, ends = most or (self.left_ms(call), Word.DEADLINE)
        timer = None if left_ms is None else loop.call_later(left_ms / 1000, settle, turn, ends)
        self._turns.add(turn)
        began_s = loop.time()
        try:
            if call.waits is not None:
                if kept is not None:
                    either: list[asyncio.Future[Any]] = [turn, kept]
                    await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
                if not turn.done() and (written := call.waits(call, True)) is not None:
                    await written
            return await turn
        finally:
            self._turns.discard(turn)
            if timer is not None:
                timer.cancel()
            counts["waited_us"] += int((loop.time() - began_s) * 1_000_000)

    async def pause(self, wait_s: float, call: Call, counts: Counts) -> Word:
        """Wait for ``wait_s`` seconds: ``TURN``, unless the deadline or ``stop`` comes first."""
        if self.stopped:
            return Word.INTERRUPTED
        loop = asyncio.get_running_loop()
        turn: Turn = loop.create_future()
        timer = loop.call_later(wait_s, settle, turn, Word.TURN)
        try:
            word = await self.until(turn, call, counts)
        finally:
            timer.cancel()
        assert isinstance(word, Word)
        return word

    def stop(self) -> None:
        """End all waits now, and refuse later ones."""
        self.stopped = True
        for turn in list(self._turns):
            settle(turn, Word.INTERRUPTED)


def is_undo(call: Call) -> bool:
    """Whether a call takes something back: no breaker and no rate holds it."""
    return call.backward or call.direction == COMPENSATE or call.undoes is not None


def turned_away(word: Word, what: str) -> NotDone:
    """The outcome of a call that waited in vain for ``what``. It says nothing about earlier attempts."""
    if word is Word.LONG:
        message = said("guard_wait", what=what)
        return NotDone(ErrorInfo("guard_wait", message, retryable=True), retryable=True, held=True)
    if word is Word.DEADLINE:
        message = said("deadline", what=what)
        return NotDone(ErrorInfo("deadline", message, retryable=False), retryable=False)
    message = said("interrupted", what=what)
    return NotDone(ErrorInfo("interrupted", message, retryable=True), retryable=True, counted=False)


def store_trouble(error: SagaError, what: str) -> NotDone:
    """The outcome of a call that was not made because the store did not answer."""
    message = said("any.store", what=what, message=error.message)
    return NotDone(ErrorInfo(error.code.replace("-", "_"), message, error.hint, retryable=True), retryable=True)


class Chores:
    """Work that no call waits for. What it raises is logged."""

    __slots__ = ("_tasks",)

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    def start(self, work: Coroutine[Any, Any, Any], what: str) -> asyncio.Task[Any]:
        """Begin; ``what`` names it in the log."""
        task = asyncio.create_task(work, name=f"saga-guards: {what}")
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.warning("%s failed: %s", task.get_name(), error)

    async def finish(self, limit_s: float) -> None:
        """Wait for what has been begun, at most ``limit_s`` seconds; cut off the rest."""
        if not self._tasks:
            return
        _, late = await asyncio.wait(set(self._tasks), timeout=limit_s)
        for task in late:
            task.cancel()
        if late:
            await asyncio.wait(late)
