"""What goes on beside the driver of a saga: I/O about what its journal says, and what is learned of it.

The driver knows this form alone. Which kinds there are is said where a process is put together (``supervisor``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Sequence
from typing import Any, Final, NamedTuple

from saga_engine.core.messages import Message, decode_message
from saga_engine.core.records import AnyRecord, MessageRefused
from saga_engine.core.state import State
from saga_engine.core.states import SAGA_FINAL
from saga_engine.errors import Interrupted, LeaseLost, StoreRefused, StoreUnavailable
from saga_engine.loggers import logger_of

_log = logger_of("saga_engine.companions")

#: Errors that say nothing about the work: it is tried again.
PASSING: Final = (StoreUnavailable, StoreRefused, LeaseLost, Interrupted)
#: When a worker tells others of the end of a saga, if the process in which it ended has not.
TELL_AGAIN_MS: Final = 5_000
#: When the driver looks again at work that failed beside its calls: they may take long, and nothing else wakes it.
AGAIN_S: Final = 1.0


class Companion:
    """Beside one driver, from when the saga first needs it. What is not overridden it does not do."""

    __slots__ = ()

    @property
    def holds(self) -> bool:
        """Whether it has something that the saga has not recorded."""
        return False

    def take(self, now_ms: int) -> Iterator[AnyRecord]:
        """The records of that; each is in the state before the next one is asked for."""
        del now_ms
        yield from ()

    def settled(self, now_ms: int) -> bool:
        """Whether there is nothing to do now."""
        del now_ms
        return True

    def due_ms(self) -> int | None:
        """When there is something to do although nothing has changed (Unix ms); None: never."""
        return None

    def refused(self, message: Message, record: MessageRefused) -> None:
        """The saga has refused a message that this one answers for; others are told once that is durable."""

    async def work(self, *, queued: bool, now_ms: int) -> None:
        """Do what the state, which is durable, asks for. ``queued``: workers may drive what is begun here.

        What is to be done is chosen before the first pause: the state may change after that.
        """

    async def last(self, *, queued: bool) -> None:
        """The saga is not driven here any more: do what follows from its last record."""


class Kind(NamedTuple):
    """A kind of companions, as one process has it. What is None is never so."""

    companion: Callable[[State], Companion]
    #: What its waits are for (``Wait.on``): the saga is not released before others know of them.
    on: str = ""
    #: Whether there is something to do because the saga has turned around.
    turns: Callable[[State], bool] | None = None
    #: Whether others are to know of the end of the saga; a worker tells them if this process dies before.
    follows: Callable[[State, Companion | None], bool] | None = None
    #: Codes of refused messages that its companion answers for.
    refusals: frozenset[str] = frozenset()
    #: Whether its work begins something new: a driver that stops leaves that to the next owner.
    begins: bool = False


class Companions:
    """Those of one driver."""

    __slots__ = ("_here", "_kinds", "_rouse", "_state", "_tasks")

    def __init__(self, kinds: Sequence[Kind], state: State, rouse: Callable[[], None] = lambda: None) -> None:
        self._kinds = kinds
        self._state = state
        self._rouse = rouse
        #: By the place of their kind.
        self._here: dict[int, Companion] = {}
        #: The work of each that goes on beside calls.
        self._tasks: dict[int, asyncio.Task[bool]] = {}

    def begin(self) -> bool:
        """Begin those that the state needs now; returns whether there are any."""
        for at, kind in enumerate(self._kinds):
            if at not in self._here and self._needs(kind):
                self._of(at)
        return bool(self._here)

    def _needs(self, kind: Kind) -> bool:
        state = self._state
        return kind.on in {wait.on for wait in state.pending.values()} or bool(kind.turns and kind.turns(state))

    @property
    def holds(self) -> bool:
        """Whether one has something that the saga has not recorded."""
        return any(each.holds for each in self._here.values())

    def take(self, now_ms: int) -> Iterator[AnyRecord]:
        """The records of that; each is in the state before the next one is asked for."""
        for each in self._here.values():
            if each.holds:
                yield from each.take(now_ms)

    def settled(self, now_ms: int) -> bool:
        """Whether none has anything to do now."""
        return all(each.settled(now_ms) for each in self._here.values())

    def due_ms(self) -> int | None:
        """When one has something to do although nothing has changed."""
        return min((due for each in self._here.values() if (due := each.due_ms()) is not None), default=None)

    def tasks(self) -> Sequence[asyncio.Task[bool]]:
        """What goes on beside calls."""
        return list(self._tasks.values())

    def refused(self, data: bytes, record: MessageRefused) -> None:
        """The saga has refused a message."""
        for at, kind in enumerate(self._kinds):
            if record.code in kind.refusals:
                self._of(at).refused(decode_message(data), record)

    async def attend(self, *, busy: bool, stopping: bool, queued: bool, now_ms: int) -> None:
        """Let each do what it has to do. ``busy``: calls are made, or about to be; that must not delay them."""
        for at, each in list(self._here.items()):
            task = self._tasks.get(at)
            if task is not None:
                if busy and not task.done():
                    continue
                await asyncio.wait([task])
                del self._tasks[at]
            if each.settled(now_ms) or (stopping and self._kinds[at].begins):
                continue
            work = each.work(queued=queued, now_ms=now_ms)
            if busy:
                self._tasks[at] = asyncio.create_task(self._beside(work), name=f"saga-beside {self._state.saga_id}")
            else:
                await work

    def follows(self) -> bool:
        """Whether others are to know of the end of the saga."""
        for at, kind in enumerate(self._kinds):
            if kind.follows is not None and kind.follows(self._state, self._here.get(at)):
                return True
        return False

    async def ended(self, *, queued: bool) -> bool:
        """The saga is not ours any more; its journal says what follows. False: a worker does what is left."""
        final = self._state.status in SAGA_FINAL
        for at, kind in enumerate(self._kinds):
            if at in self._tasks:  # it may be doing the same
                await asyncio.wait([self._tasks[at]])
            wanted = at in self._here or self._needs(kind)
            wanted = wanted or bool(final and kind.follows and kind.follows(self._state, None))
            if wanted and not await self._apart(self._of(at).last(queued=queued)):
                return False
        return True

    async def _beside(self, work: Coroutine[Any, Any, None]) -> bool:
        done = await self._apart(work)
        if not done:
            asyncio.get_running_loop().call_later(AGAIN_S, self._rouse)
        return done

    async def _apart(self, work: Coroutine[Any, Any, None]) -> bool:
        try:
            await work
        except PASSING as error:
            _log.warning("what goes on beside saga %s is tried again: %s", self._state.saga_id, error)
            return False
        self._rouse()
        return True

    def _of(self, at: int) -> Companion:
        found = self._here.get(at)
        if found is None:
            found = self._here[at] = self._kinds[at].companion(self._state)
        return found
