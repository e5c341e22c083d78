"""Resources that sagas hold: what the guards have to know of sagas, and what operators see and take away."""

from __future__ import annotations

import asyncio
from shlex import quote
from typing import TYPE_CHECKING, Final

from saga_engine.core.effects import FORWARD
from saga_engine.core.fold import started_of
from saga_engine.errors import SagaNotFound, SettingInvalid
from saga_engine.execution.calls import may_turn
from saga_engine.execution.questions import tell
from saga_engine.guards.holds.listing import Held, held_in, sweep, unhold
from saga_engine.loggers import logger_of
from saga_engine.ports import Question, Standing, Store
from saga_engine.ports.machine_clock import machine_clock
from saga_engine.runtime.journal import folded_state, read_records

if TYPE_CHECKING:
    from collections.abc import Awaitable, Sequence

    from saga_engine.core.state import State
    from saga_engine.guards.chain import GuardedTools
    from saga_engine.plan.tool_spec import ToolCatalog
    from saga_engine.ports import Clock, Escalation

__all__ = ["Held", "Kindred", "Overdue", "concerning", "ended", "held", "release"]

_log = logger_of("saga_engine")

#: How long it is remembered that an operator was told of a hold: a year.
_TOLD_US: Final = 365 * 86400 * 1_000_000


async def held(store: Store) -> list[Held]:
    """What sagas hold now, the longest held first, and who waits for it."""
    return await held_in(store.guard_store(), machine_clock.time_ns() // 1_000_000)


async def release(store: Store, *, saga_id: str | None = None, resource: str | None = None) -> list[Held]:
    """Take a resource, or all that a saga holds, away from it; returns what was taken.

    Others may have it at once. The saga goes on: a call of it that names the resource waits for it again. What others
    write meanwhile its undos do not know of, unless their tools have ``before``. Raises ``SettingInvalid`` if nothing
    like that is held.
    """
    if bool(saga_id) == bool(resource):
        raise SettingInvalid("a release is of a resource or of a saga", hint="give one of them")
    found = [each for each in await held(store) if each.resource == resource or (saga_id and each.is_of(saga_id))]
    if not found:
        what = f"no saga holds {str(resource)[:200]!r}" if resource else f"nothing is held by {str(saga_id)[:200]!r}"
        raise SettingInvalid(what, hint="`saga release` alone lists the sagas and what they hold")
    return [each for each in found if await unhold(store.guard_store(), each)]


def concerning(found: Sequence[Held], saga_id: str) -> list[Held]:
    """What a saga holds, or waits for."""
    return [each for each in found if each.is_of(saga_id) or saga_id in {who for who, _ in each.waiting}]


class Kindred:
    """What the journals of the sagas of a store say about families."""

    def __init__(self, store: Store, catalog: ToolCatalog) -> None:
        self._store = store
        self._catalog = catalog

    async def origin(self, saga_id: str) -> Standing | None:
        """Which saga waits for one, or is undone by it; None: it does not exist (any more)."""
        try:
            records = await read_records(self._store, saga_id, whole=False, most=1)
        except SagaNotFound:
            return None
        started = started_of(records)
        return Standing(started.at, "" if started.parent is None else started.parent.saga, started.undo_of)

    async def may_turn(self, saga_id: str) -> bool:
        """Whether a saga can be undone whole now."""
        state = await self.state(saga_id)
        return state is not None and may_turn(state)

    async def state(self, saga_id: str) -> State | None:
        """What has come of a saga; None: it does not exist (any more)."""
        try:
            return await folded_state(await read_records(self._store, saga_id), self._catalog)
        except SagaNotFound:
            return None


class Overdue:
    """Tells operators of what sagas hold for longer than ``hold_max_s``: of each hold once, by one of all processes."""

    def __init__(self, guards: GuardedTools, escalation: Escalation, clock: Clock) -> None:
        self._holds = guards.holds
        self._escalation = escalation
        self._clock = clock

    async def look(self) -> None:
        """Give back what ended sagas have left, and notify of what is overdue. Raises ``StoreUnavailable``."""
        if not self._holds.used:
            return
        store = self._holds.store
        await sweep(store)
        for each in await held_in(store, self._clock.now_ms()) if self._escalation.hooks else ():
            if each.overdue and await store.reserve(f"overdue {each.token} {each.since_ms}", _TOLD_US, 1, 0) == 0:
                self._holds.beside(self._tell(each), "telling of a hold that is overdue")

    async def _tell(self, held: Held) -> None:
        """Call the hooks until they take it, a minute apart; with the process that ends."""
        while (error := await tell(self._escalation, notice_of(held), 0)) is not None:
            _log.warning("nobody could be told that saga %s holds something for too long: %s", held.saga, error.message)
            await asyncio.sleep(60)


def notice_of(held: Held) -> Question:
    """The notice that a saga holds a resource for too long."""
    who = ", ".join(saga for saga, _ in held.waiting[:3])
    waits = f"; {len(held.waiting)} wait for it ({who})" if held.waiting else ""
    error = {
        "error_code": "hold_overdue",
        "message": f"saga {held.saga} holds the resource {held.resource!r} for longer than {held.max_s:g} s{waits}",
        "suggestion": f"see to the saga, or take it away: saga release {quote(held.resource)}",
    }
    name = f"hold:{held.token[:12]}:{held.since_ms}"
    asked_ms = held.since_ms + round((held.max_s or 0) * 1000)
    return Question(
        held.saga, name, held.step, "", held.tool, FORWARD, "hold-overdue", (), error, goal="", asked_ms=asked_ms
    )


def ended(guards: GuardedTools, saga_id: str, state: State | None) -> Awaitable[None] | None:
    """A saga has ended: what it held is free."""
    return guards.holds.ended(saga_id, lambda: state is None or _shared(guards, state))


def _shared(guards: GuardedTools, state: State) -> bool:
    """Whether another process may have made calls of a saga that hold something."""
    if any(step.child is not None for step in state.plan.steps):
        return True
    if state.epoch == 1:
        return False
    return any((spec := guards.spec(name)) is not None and spec.hold for name in state.tools)
