"""What the sagas of one namespace may use: counted in the store, wherever a saga is journalled or steps are added.

The limits and what is used of them are one document of the namespace, so they bind every process that works on it. Two
that admit at once are told apart by its revision. Servers declare there what their settings state: of those that run
the smallest holds, whichever began last, and a server whose settings state nothing changes nothing.

A saga that is admitted stays in the document until it has a head, and is counted by its status after that; so no place
is given twice, and none has to be given back.
"""

from __future__ import annotations

import asyncio
import functools
import secrets
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from saga_engine.core.transitions import SAGA_FINAL
from saga_engine.errors import QuotaExceeded, StoreRefused, StoreUnavailable
from saga_engine.execution.ids import exists
from saga_engine.loggers import logger_of
from saga_engine.plan.costs import smaller
from saga_engine.ports import Document, Store
from saga_engine.ports.machine_clock import machine_clock

_log: Final = logger_of("saga_engine.quota")

_NAME: Final = "quota"
#: How long a process goes by what it has read, if that was that nothing is limited.
_TRUST_S: Final = 10.0
#: How long a saga that is admitted may take until it is journalled.
_PENDING_MS: Final = 60_000
#: So many times the burst may be added at once, from a whole burst.
_LARGEST: Final = 10
_TRIES: Final = 50
_PAUSE_S: Final = 0.005


class _Use(msgspec.Struct):
    """``pending``: sagas that are admitted, and since when (Unix ms). ``left``: steps, and when that was so.

    ``servers``: what servers that run have declared, by owner; so ``day_costs``, and ``day_cost`` is what holds: how
    much all calls may cost in a day, by unit.
    """

    live_sagas: int = 0
    steps_per_s: float = 0.0
    pending: dict[str, int] = {}
    left: float = 0.0
    at_ms: int = 0
    writer: str = ""
    servers: dict[str, tuple[int, float]] = {}
    day_cost: dict[str, float] = {}
    day_costs: dict[str, dict[str, float]] = {}

    @property
    def limits(self) -> bool:
        return bool(self.live_sagas or self.steps_per_s)

    def take(self, steps: int, now_ms: int) -> None:
        """Take steps. What is more than a burst is taken from a whole one. Raises ``QuotaExceeded``."""
        if not self.steps_per_s:
            return
        burst = max(self.steps_per_s, 1.0)
        left = min(burst, self.left + max(now_ms - self.at_ms, 0) / 1000 * self.steps_per_s) if self.at_ms else burst
        if steps > _LARGEST * burst:
            raise QuotaExceeded(
                f"{steps} steps are too many at once: {_LARGEST * burst:g} may be added",
                hint="add them in smaller parts, or ask an operator for a larger `steps_per_s`",
            )
        if left < min(steps, burst):
            raise QuotaExceeded(
                f"more than {self.steps_per_s:g} steps a second are added",
                hint="try it again later",
                retry_after_s=(min(steps, burst) - left) / self.steps_per_s,
            )
        self.left, self.at_ms = left - steps, now_ms


class Declared(NamedTuple):
    """The limits that hold, and what each server that runs has declared, by owner."""

    live_sagas: int
    steps_per_s: float
    servers: dict[str, tuple[int, float]]
    day_cost: dict[str, float]
    day_costs: dict[str, dict[str, float]]


class Quota:
    """The quota of a store's namespace."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._free_until_s = 0.0
        self._limited = False
        self._day_until_s = 0.0
        self._day_cost: Mapping[str, float] = {}
        self._turn: asyncio.Lock | None = None

    async def set(self, live_sagas: int, steps_per_s: float) -> None:
        """Let these limits hold from now on; 0: none. Raises ``StoreUnavailable`` and ``StoreRefused``."""
        for _ in range(_TRIES):
            there, use = await self._read()
            if (use.live_sagas, use.steps_per_s) == (live_sagas, steps_per_s):
                return
            use.live_sagas, use.steps_per_s = live_sagas, steps_per_s
            if await self._write(there, use):
                self._free_until_s = 0.0
                return
        raise _contended()

    async def declare(
        self, owner: str, live_sagas: int, steps_per_s: float, day_cost: Mapping[str, float] | None = None
    ) -> Declared:
        """Let the smallest of these limits and those of other servers that run hold from now on; 0: any number.

        ``owner``: the lease of the server that says so. ``day_cost``: how much all calls of the namespace may cost in a
        day, by unit. Raises ``StoreUnavailable`` and ``StoreRefused``.
        """
        work = self._store.work()
        for _ in range(_TRIES):
            there, use = await self._read()
            alive = await work.owners(range(work.count))
            servers = {name: said for name, said in use.servers.items() if alive.get(name, 0) > 0}
            servers[owner] = (live_sagas, steps_per_s)
            least = [min((said[at] for said in servers.values() if said[at]), default=0) for at in (0, 1)]
            costs = {name: said for name, said in use.day_costs.items() if alive.get(name, 0) > 0 and name != owner}
            costs |= {owner: dict(day_cost)} if day_cost else {}
            declared = Declared(int(least[0]), least[1], servers, functools.reduce(smaller, costs.values(), {}), costs)
            if (use.live_sagas, use.steps_per_s, use.servers, use.day_cost, use.day_costs) == declared:
                return declared
            use.live_sagas, use.steps_per_s, use.servers, use.day_cost, use.day_costs = declared
            self._day_until_s = 0.0
            if await self._write(there, use):
                self._free_until_s = 0.0
                return declared
        raise _contended()

    async def day_cost(self) -> Mapping[str, float]:
        """How much all calls of the namespace may cost in a day, by unit; empty: nothing is limited.

        Raises ``StoreUnavailable`` if a limit was known and cannot be read now.
        """
        now_s = machine_clock.monotonic()
        if now_s >= self._day_until_s:
            try:
                self._day_cost = (await self._read())[1].day_cost
            except StoreUnavailable as away:
                if self._day_cost:
                    raise
                _log.warning("the budget of the day cannot be read, so calls are not counted now: %s", away.message)
            self._day_until_s = now_s + _TRUST_S
        return self._day_cost

    async def admit(self, saga_id: str, plan: bytes) -> None:
        """Take the place of a new saga, and its steps; one that exists takes nothing. Raises ``QuotaExceeded``."""
        if await self._is_free():
            return
        steps = steps_in(msgspec.json.decode(plan).get("steps", ()))
        full: QuotaExceeded | None = None
        async with self._one_at_a_time():
            for _ in range(_TRIES):
                there, use = await self._read()
                if saga_id in use.pending or await exists(self._store, saga_id):
                    return
                now_ms = await self._now_ms()
                if use.live_sagas and (full := await self._full(use, now_ms)) is not None:
                    await asyncio.sleep(_PAUSE_S)  # some are being journalled: then they are counted once
                    continue
                use.take(max(steps, 1), now_ms)
                if use.live_sagas:
                    use.pending[saga_id] = now_ms
                if await self._write(there, use):
                    return
        raise full or _contended()

    async def add(self, steps: Sequence[Any]) -> None:
        """Take steps that are added to a saga. Raises ``QuotaExceeded``."""
        if await self._is_free():
            return
        async with self._one_at_a_time():
            for _ in range(_TRIES):
                there, use = await self._read()
                use.take(steps_in(steps), await self._now_ms())
                if await self._write(there, use):
                    return
        raise _contended()

    async def _full(self, use: _Use, now_ms: int) -> QuotaExceeded | None:
        """Why no more saga may be live now, which may change at once; raises it if it does not."""
        for name, since_ms in [*use.pending.items()]:
            if now_ms - since_ms > _PENDING_MS or await exists(self._store, name):
                del use.pending[name]
        # After that: what has a head by now is counted here, or has ended.
        statuses = (await self._store.work().overview()).statuses
        live = sum(count for status, count in statuses.items() if status not in SAGA_FINAL)
        if live + len(use.pending) < use.live_sagas:
            return None
        full = QuotaExceeded(
            f"{live + len(use.pending)} sagas have not ended, and {use.live_sagas} may be live",
            hint="wait until some have ended",
            retry_after_s=5,
        )
        if live >= use.live_sagas:
            raise full
        return full

    # --- the document ------------------------------------------------------------------------------------------------

    async def _is_free(self) -> bool:
        """Whether nothing is limited, as far as this process knows."""
        now_s = machine_clock.monotonic()
        if now_s < self._free_until_s:
            return True
        try:
            self._limited = (await self._read())[1].limits
        except StoreUnavailable as away:
            # One partition of a cluster has the document. While it is away, sagas of the others go on, unless this
            # process knows of a limit.
            if self._limited:
                raise
            _log.warning("the quota cannot be read, so what is added now is not counted: %s", away.message)
        if self._limited:
            return False
        self._free_until_s = now_s + _TRUST_S
        return True

    def _one_at_a_time(self) -> asyncio.Lock:
        """Those of this process take turns, so that they do not contend with each other."""
        self._turn = self._turn or asyncio.Lock()
        return self._turn

    async def _read(self) -> tuple[Document, _Use]:
        there = await self._store.documents().read("server", _NAME)
        if there is None:
            return Document(_NAME, 0, b""), _Use()
        return there, msgspec.json.decode(there.body, type=_Use)

    async def _write(self, there: Document, use: _Use) -> bool:
        use.writer = secrets.token_hex(4)
        body = msgspec.json.encode(use)
        return await self._store.documents().write("server", there._replace(body=body)) is not None

    async def _now_ms(self) -> int:
        return (await self._store.documents().due("server", 1)).now_ms


def steps_in(steps: Sequence[Any]) -> int:
    """How many steps these are; a list that is written out counts its items."""
    return sum(_weight(step) for step in steps)


def _weight(step: Any) -> int:
    each = step.get("each") if isinstance(step, Mapping) else None
    items = each.get("of") if isinstance(each, Mapping) else None
    return max(len(items), 1) if isinstance(items, list) else 1


def _contended() -> StoreRefused:
    return StoreRefused("the quota is being used by too many at once", hint="try again")
