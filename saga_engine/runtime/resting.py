"""How a driver stops although its saga has not ended: it sleeps, leaves it to the store, or is stopped.

What a saga waits for then is known outside the driver: its time by the supervisor or the store's queue, its events by
the store (``listening``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from saga_engine.errors import StoreRefused, StoreUnavailable
from saga_engine.loggers import logger_of
from saga_engine.runtime.companions import TELL_AGAIN_MS, Companions, Kind
from saga_engine.runtime.due_times import AT_ONCE, queued_again

if TYPE_CHECKING:
    from saga_engine.core.effects import AnyEffect
    from saga_engine.core.machine import Machine, Ready
    from saga_engine.core.state import State
    from saga_engine.ports import Store
    from saga_engine.runtime.link import Link

_log = logger_of("saga_engine.driver")

#: For a longer wait for a timer, a saga needs no task.
_SLEEP_MS: Final = 1_000
#: When a saga that sleeps without a timer is awake for a moment.
_LOOK_AGAIN_MS: Final = 86_400_000


class Resting:
    """The part of ``SagaDriver`` that lets it stop."""

    __slots__ = ("_companions", "_concludes", "_kinds", "_turned", "sleeps_until_ms")

    #: What goes on beside the saga, once anything does.
    _companions: Companions | None
    #: Whether something that others are to know follows from the end of the saga.
    _concludes: bool
    #: Whether the saga has turned around, and that was looked at.
    _turned: bool
    _kinds: Sequence[Kind]
    sleeps_until_ms: int

    if TYPE_CHECKING:
        state: State
        stopping: bool
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
        if not self._is_settled():
            return False
        return not state.in_flight and self._machine.due(waits=False) in (None, state.binding_deadline)

    def _may_sleep(self) -> bool:
        """Whether the saga waits for a distant timer; it then sleeps until that time."""
        if self._tasks or self._outcomes or self._has_post() or self.stopping or self._link is not None:
            return False
        if not self.state.only_waits() or self._is_held():
            return False
        if not self._is_settled():
            return False
        due_ms = self._next_due()
        if due_ms is None and self.state.pending:
            due_ms = self._machine.decided_at + _LOOK_AGAIN_MS  # for an event: it is woken by a message
        if due_ms is not None and due_ms - self._machine.decided_at > _SLEEP_MS:
            self.sleeps_until_ms = due_ms
        return self.sleeps_until_ms > 0

    async def _attend(self, *, busy: bool) -> None:
        """Let what goes on beside this saga do its work; its records are durable. ``busy``: as of ``Companions``."""
        self._turned = self._turned or self.state.backward
        companions = self._companions or Companions(self._kinds, self.state, self.rouse)
        if companions.begin():
            self._companions = companions
            await companions.attend(
                busy=busy, stopping=self.stopping, queued=self._rest_ms is not None, now_ms=self._now_ms()
            )

    async def _conclude(self) -> None:
        """The saga is no longer ours: whatever comes of this, its journal says what follows."""
        if self._companions is None and not self._concludes and (self._turned or not self.state.backward):
            return
        companions = self._companions or Companions(self._kinds, self.state)
        if not await companions.ended(queued=self._rest_ms is not None) or not self._concludes:
            return
        try:  # nobody else has to tell it
            await self._store.release(self.state.saga_id, self.state.epoch)
        except (StoreUnavailable, StoreRefused) as error:
            _log.info("the end of saga %s is told once more: %s", self.state.saga_id, error)

    def _due_ms(self, ready: Ready, *, resting: bool) -> int:
        """When a saga that this append releases needs a worker; 0: it is not released, or never needs one."""
        if self._tasks or ready.held:
            return 0
        if resting:
            return self._in_store(queued_again(self.state, self._machine.decided_at))
        if self._rest_ms is None or self._outcomes or self._messages or not self.state.only_waits():
            return 0
        if {kind.on for kind in self._kinds} & {wait.on for wait in self.state.pending.values()}:
            return 0  # the store has to know of the wait first, or the child has to be started
        due_ms = self._machine.due()
        return self._in_store(due_ms) if due_ms is not None and due_ms - self._machine.decided_at > self._rest_ms else 0

    def _told_until_ms(self) -> int:
        """When a worker says what follows from the end of a saga, if this process does not; 0: nothing follows."""
        self._concludes = (self._companions or Companions(self._kinds, self.state)).follows()
        return self._in_store(self._machine.decided_at + TELL_AGAIN_MS) if self._concludes else 0

    def _may_leave(self) -> bool:
        """Whether a saga for which nobody waits here waits for an event, another saga or a distant time."""
        if self._rest_ms is None or not self.state.pending or self._has_post() or self._tasks or self._outcomes:
            return False
        if self.stopping or self._is_held() or not self.state.only_waits():
            return False
        if not self._is_settled():
            return False
        due_ms = self._next_due()
        return due_ms is None or due_ms - self._machine.decided_at > self._rest_ms

    async def _leave(self) -> None:
        """Release a saga that waits: a message wakes a worker, or its time does."""
        due_ms = self._in_store(self._next_due() or 0)
        await self._store.release(self.state.saga_id, self.state.epoch, due_ms)

    def _next_due(self) -> int | None:
        """When something is due by itself, what goes on beside the saga included."""
        dues = (self._machine.due(), None if self._companions is None else self._companions.due_ms())
        return min((due for due in dues if due is not None), default=None)

    def _is_settled(self) -> bool:
        """Whether nothing is to be done beside the saga now."""
        return self._companions is None or self._companions.settled(self._now_ms())
