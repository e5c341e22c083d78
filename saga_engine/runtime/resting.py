"""How a driver stops although its saga has not ended: it sleeps, leaves it to the store, or is stopped.

What a saga waits for then is known outside the driver: its time by the supervisor or the store's queue, its events by
the store (``listening``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import TYPE_CHECKING, Any, Final

from saga_engine.core.states import SAGA_FINAL
from saga_engine.core.steps.wait import KIND as WAIT
from saga_engine.core.steps.wait import never_begun
from saga_engine.errors import Interrupted, LeaseLost, StoreRefused, StoreUnavailable
from saga_engine.loggers import logger_of
from saga_engine.runtime.children import TELL_AGAIN_MS, Children
from saga_engine.runtime.due_times import AT_ONCE, queued_again
from saga_engine.runtime.listening import Listening

if TYPE_CHECKING:
    from saga_engine.core.effects import AnyEffect
    from saga_engine.core.machine import Machine, Ready
    from saga_engine.core.state import State
    from saga_engine.ports import Store
    from saga_engine.runtime.children import Family
    from saga_engine.runtime.link import Link

_log = logger_of("saga_engine.driver")

#: For a longer wait for a timer, a saga needs no task.
_SLEEP_MS: Final = 1_000
#: When a saga that sleeps without a timer is awake for a moment.
_LOOK_AGAIN_MS: Final = 86_400_000


class Resting:
    """The part of ``SagaDriver`` that lets it stop."""

    __slots__ = ("_children", "_concludes", "_listening", "_turned", "sleeps_until_ms")

    _children: Children | None
    #: Whether something that others are to know follows from the end of the saga.
    _concludes: bool
    #: Whether the saga has turned around, and that was looked at.
    _turned: bool
    _listening: Listening | None
    sleeps_until_ms: int

    if TYPE_CHECKING:
        state: State
        stopping: bool
        _family: Family | None
        _link: Link | None
        _machine: Machine
        _messages: bool
        _outcomes: Sequence[Any]
        _rest_ms: int | None
        _store: Store
        _tasks: dict[asyncio.Task[None], AnyEffect]

        def rouse(self) -> None:
            """As of ``SagaDriver``."""

        def _has_post(self) -> bool: ...

        def _is_held(self) -> bool: ...

        def _in_store(self, due_ms: int) -> int: ...

        def _now_ms(self) -> int: ...

    def sleeps_s(self) -> float:
        """For how long, in seconds, nothing moves the saga."""
        return max(self.sleeps_until_ms - self._now_ms(), 0) / 1000 + 0.001

    async def _rests(self) -> bool:
        """Whether the driver stops here: nothing can be done before something comes from outside, or its time."""
        if self._is_left_session():
            await self._release()
            return True
        if self._may_leave():
            await self._leave()
            return True
        return self._may_sleep()

    async def _release(self) -> None:
        """Give the saga away: workers continue it at once; in an open session its agent does, up to the deadline."""
        due_ms = self._in_store(self._machine.due() or 0) if self.state.open else AT_ONCE
        await self._store.release(self.state.saga_id, self.state.epoch, due_ms)

    def _is_left_session(self) -> bool:
        """Whether this is an open session without an agent: everything that needs no agent is settled.

        Only its deadline may still pass, and what its steps wait for may come; workers see to both.
        """
        state = self.state
        kept = self._link is not None and not self._link.left
        if not state.open or kept or self._tasks or self._outcomes or self._messages or self._is_held():
            return False
        if self._listening is not None and not self._listening.settled:
            return False
        return not state.in_flight and self._machine.due(waits=False) in (None, state.binding_deadline)

    def _may_sleep(self) -> bool:
        """Whether the saga waits for a distant timer; it then sleeps until that time."""
        if self._tasks or self._outcomes or self._has_post() or self.stopping or self._link is not None:
            return False
        if not self.state.only_waits() or self._is_held():
            return False
        if self._children is not None and not self._children.settled(self._now_ms()):
            return False
        due_ms = self._next_due()
        if due_ms is None and self.state.waits:
            due_ms = self._machine.decided_at + _LOOK_AGAIN_MS  # for an event: it is woken by a message
        if due_ms is not None and due_ms - self._machine.decided_at > _SLEEP_MS:
            self.sleeps_until_ms = due_ms
        return self.sleeps_until_ms > 0

    async def _listen(self, *, busy: bool) -> None:
        """Register the waits for events that have become durable, and settle those that are over.

        ``busy``: calls are made, or about to be; the store must not delay them.
        """
        if self._children is not None or (self.state.waits and self.state.children()):
            await self._attend(busy=busy)
        if not self._turned and self.state.backward:
            self._turned = True
            # (The key of a wait may become known later: a call in doubt turns out to have happened.)
            if self._listening is None and WAIT not in {step.builtin for step in self.state.plan.steps}:
                return
        listening = self._listening = self._listening or Listening(self._store, self.state)
        if listening.task is not None:
            if busy and not listening.task.done():
                return
            await asyncio.wait([listening.task])
            listening.task = None
        if listening.settled:
            return
        if busy:
            listening.task = asyncio.create_task(
                self._listen_apart(listening), name=f"saga-events {self.state.saga_id}"
            )
        else:
            await listening.settle()
            await self._bring(listening)

    async def _settle_waits(self) -> None:
        """The saga is no longer ours: whatever comes of this, its journal says what became of its waits."""
        if self.state.backward:
            self._listening = self._listening or Listening(self._store, self.state)
        if self._listening is not None:
            if self._listening.task is not None:  # it may be telling the store of the same waits
                await asyncio.wait([self._listening.task])
            if not await self._listen_apart(self._listening):
                return  # a worker does it, and tells the parent
        if self.state.status not in SAGA_FINAL or self._family is None:
            return
        if self.state.parent is not None:
            await self._family.tell(self.state, self.state.epoch)
        elif self._concludes:
            await self._family.concluded(self.state, self.state.epoch)

    async def _listen_apart(self, listening: Listening) -> bool:
        try:
            await listening.settle()
            await self._bring(listening)
        except (StoreUnavailable, StoreRefused) as error:
            _log.info("the waits of saga %s are not settled yet: %s", self.state.saga_id, error)
            return False
        self.rouse()
        return True

    async def _bring(self, listening: Listening) -> None:
        """What was held for waits that are over goes at once to where it belongs now."""
        moved, listening.moved = listening.moved, []
        if self._family is not None:
            for due in moved:
                await self._family.bring(due, queued=self._rest_ms is not None)

    def _due_ms(self, ready: Ready, *, resting: bool) -> int:
        """When a saga that this append releases needs a worker; 0: it is not released, or never needs one."""
        if self._tasks or ready.held:
            return 0
        if resting:
            return self._in_store(queued_again(self.state, self._machine.decided_at))
        if self._rest_ms is None or self._outcomes or self._messages or not self.state.only_waits():
            return 0
        if any(wait.on in ("event", "child") for wait in self.state.waits.values()):
            return 0  # the store has to know of the wait first, or the child has to be started
        due_ms = self._machine.due()
        return self._in_store(due_ms) if due_ms is not None and due_ms - self._machine.decided_at > self._rest_ms else 0

    def _told_until_ms(self) -> int:
        """When a worker says what follows from the end of a saga, if this process does not; 0: nothing follows."""
        state = self.state
        known = self._listening is not None and self._listening.settled
        self._concludes = state.parent is not None or (not known and any(True for _ in never_begun(state)))
        return self._in_store(self._machine.decided_at + TELL_AGAIN_MS) if self._concludes else 0

    def _may_leave(self) -> bool:
        """Whether a saga for which nobody waits here waits for an event, another saga or a distant time."""
        if self._rest_ms is None or not self.state.waits or self._has_post() or self._tasks or self._outcomes:
            return False
        if self.stopping or self._is_held() or not self.state.only_waits():
            return False
        if self._listening is not None and not self._listening.settled:
            return False
        if self._children is not None and not self._children.settled(self._now_ms()):
            return False
        due_ms = self._next_due()
        return due_ms is None or due_ms - self._machine.decided_at > self._rest_ms

    async def _leave(self) -> None:
        """Release a saga that waits: a message wakes a worker, or its time does."""
        due_ms = self._in_store(self._next_due() or 0)
        await self._store.release(self.state.saga_id, self.state.epoch, due_ms)

    def _next_due(self) -> int | None:
        """When something is due by itself, a look at a child included."""
        dues = (self._machine.due(), None if self._children is None else self._children.look_ms())
        return min((due for due in dues if due is not None), default=None)

    async def _attend(self, *, busy: bool) -> None:
        """Start, cancel or look at children; their records are durable. ``busy`` is as in ``_listen``."""
        if self._family is None:
            return
        children = self._children = self._children or Children(self._family, self.state)
        if children.task is not None:
            if busy and not children.task.done():
                return
            await asyncio.wait([children.task])
            children.task = None
        now_ms = self._now_ms()
        if children.settled(now_ms) or self.stopping:
            return
        settling = children.settle(queued=self._rest_ms is not None, now_ms=now_ms)
        if busy:
            children.task = asyncio.create_task(self._attend_apart(settling), name=f"saga-kids {self.state.saga_id}")
        else:
            await settling

    async def _attend_apart(self, settling: Coroutine[Any, Any, None]) -> None:
        try:
            await settling
        except (StoreUnavailable, StoreRefused, LeaseLost, Interrupted) as error:
            _log.info("the children of saga %s are not attended yet: %s", self.state.saga_id, error)
        self.rouse()

    def _beside(self) -> Sequence[asyncio.Task[None]]:
        """What is done about waits while calls are made."""
        return [
            *([] if self._listening is None else self._listening.tasks()),
            *([] if self._children is None or self._children.task is None else [self._children.task]),
        ]
