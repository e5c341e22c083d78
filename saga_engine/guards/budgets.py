"""Budgets: what the calls of one saga may cost together, and what all calls of a namespace may cost in a day.

A call is counted once, by its key, before it is made: a retry, a replay and a call whose result de-duplication has
count nothing again. What only the output says is added when the call has happened. Both sums stand in the store:

- a saga's in a tally of the saga: an entry for each key, ``{"usd": 0.01}``;
- a day's in a tally of the day (UTC): an entry for each process, its sums. So its size is that of the processes. A
  process writes what it adds before it reads what all have added, and takes it back if that is too much: of calls side
  by side perhaps all are refused, but never is more spent than allowed. Until the tally of the saga has a key, the
  entry of the process names it, so that whoever continues the saga of a dead process does not count the call again.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakValueDictionary

import msgspec

from saga_engine.core.effects import Done, ErrorInfo, NotDone
from saga_engine.errors import SagaError
from saga_engine.guards.waiting import is_undo, store_trouble
from saga_engine.language.errors import said
from saga_engine.loggers import logger_of
from saga_engine.plan.costs import amount_in

if TYPE_CHECKING:
    from saga_engine.core.effects import Outcome
    from saga_engine.plan.costs import Costs
    from saga_engine.ports import Call, Clock, GuardStore
    from saga_engine.tools.invoke import Invocation

_log: Final = logger_of("saga_engine.guards")

#: What all calls of a namespace may cost in a day, by unit. Raises ``StoreUnavailable`` if that is not known.
DayLimit = Callable[[], Awaitable[Mapping[str, float]]]

_SAGA: Final = "cost"
_SAGA_MS: Final = 30 * 24 * 3600 * 1000
_DAY_MS: Final = 3 * 24 * 3600 * 1000
#: A sum of decimal fractions is not exact: so much more counts as reached.
_ROUNDING: Final = 1e-9


class _Spent(msgspec.Struct, omit_defaults=True):
    """What a process has spent in a day: ``sums`` by unit, ``keys``: calls that no tally of a saga may name yet."""

    sums: dict[str, float] = {}
    keys: dict[str, dict[str, float]] = {}


class Budgets:
    """The budgets of the calls of a process."""

    def __init__(self, store: GuardStore, clock: Clock, day_limit: DayLimit | None) -> None:
        self._store = store
        self._clock = clock
        self._day_limit = day_limit
        self._owner = secrets.token_hex(8)
        self._day = ""
        self._own = _Spent()
        self._turn: asyncio.Lock | None = None
        self._sagas: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def day_limit(self) -> Mapping[str, float]:
        """What all calls of the namespace may cost in a day; empty: nothing is limited."""
        return {} if self._day_limit is None else await self._day_limit()

    def lock(self, saga_id: str) -> asyncio.Lock:
        """Calls of one saga side by side are counted one after the other."""
        return self._sagas.setdefault(saga_id, asyncio.Lock())

    async def spent(self, saga_id: str) -> dict[str, dict[str, float]]:
        """What the calls of a saga have cost, by key and unit."""
        found = await self._store.tally(_SAGA, saga_id)
        return {key: msgspec.json.decode(entry, type=dict[str, float]) for key, entry in found.items()}

    async def note(self, call: Call, amounts: Mapping[str, float]) -> None:
        """Count a call of a saga with what it has cost so far."""
        entry = msgspec.json.encode(amounts).decode()
        await self._store.tally_set(_SAGA, call.idempotency_key, entry, _SAGA_MS, call.saga_id)
        self._own.keys.pop(call.idempotency_key, None)

    async def add_today(self, key: str, amounts: Mapping[str, float], limit: Mapping[str, float]) -> str:
        """Add to what is spent today, unless the ``limit`` would be passed: then the words of why, and nothing is.

        ``key``: of the call, if it is counted now; a process that has died since it counted it has done so.
        """
        self._turn = self._turn or asyncio.Lock()
        async with self._turn:
            day = datetime.fromtimestamp(self._clock.now_ms() / 1000, UTC).date().isoformat()
            if day != self._day:
                self._day, self._own = day, _Spent()
            name = f"{_SAGA} {day}"
            if key:
                found = await self._read(name)
                if any(key in entry.keys for entry in found.values()):
                    return ""
            before = _Spent(dict(self._own.sums), dict(self._own.keys))
            for unit, amount in amounts.items():
                self._own.sums[unit] = self._own.sums.get(unit, 0.0) + amount
            if key:
                self._own.keys[key] = dict(amounts)
            try:
                await self._write(name)
                why = _passed(limit, amounts, await self._read(name)) if key else ""
            except BaseException:
                self._own = before  # an entry is a sum: the next one that is written is right again
                raise
            if why:
                self._own = before
                await self._write(name)
            return why

    async def _read(self, name: str) -> dict[str, _Spent]:
        found = await self._store.tally(name)
        return {owner: msgspec.json.decode(entry, type=_Spent) for owner, entry in found.items()}

    async def _write(self, name: str) -> None:
        await self._store.tally_set(name, self._owner, msgspec.json.encode(self._own).decode(), _DAY_MS)


class Budget:
    """The guard of one tool that costs something."""

    __slots__ = ("_budgets", "_costs", "_inner", "_name")

    def __init__(self, name: str, costs: Costs, inner: Invocation, budgets: Budgets) -> None:
        self._name = name
        self._costs = costs
        self._inner = inner
        self._budgets = budgets

    async def call(self, params: Mapping[str, Any], call: Call) -> Outcome:
        """Make the call, unless a budget is spent. What takes something back costs nothing here."""
        if is_undo(call):
            return await self._inner(params, call)
        budget = None if call.budget is None else call.budget()
        try:
            limit = await self._budgets.day_limit()
            if not (budget or limit):
                return await self._inner(params, call)
            async with self._budgets.lock(call.saga_id):
                amounts = await self._admitted(call, budget, limit)
        except SagaError as error:
            if budget is not None:
                return store_trouble(error, f"what calls of {self._name!r} have cost")
            _log.warning("a call of %s is not counted in its budget: %s", self._name, error)
            return await self._inner(params, call)
        if isinstance(amounts, NotDone):
            return amounts
        outcome = await self._inner(params, call)
        if type(outcome) is Done:
            try:
                await self._add(call, amounts, outcome.output)
            except SagaError as error:
                _log.warning("what a call of %s has cost is not counted: %s", self._name, error)
        return outcome

    async def _admitted(
        self, call: Call, budget: Mapping[str, float] | None, limit: Mapping[str, float]
    ) -> dict[str, float] | NotDone:
        """Count the call, if it is not counted yet: what it has cost so far. Else why it is not made."""
        spent = await self._budgets.spent(call.saga_id)
        known = spent.get(call.idempotency_key)
        if known is not None:
            return known
        amounts = {unit: float(cost) for unit, cost in self._costs.items() if not isinstance(cost, str)}
        sums: dict[str, float] = {}
        for entry in spent.values():
            for unit, amount in entry.items():
                sums[unit] = sums.get(unit, 0.0) + amount
        for unit in self._costs:
            most = (budget or {}).get(unit)
            if most is not None and _is_too_much(sums.get(unit, 0.0), amounts.get(unit), most):
                return _refused(f"{sums.get(unit, 0.0):g} of {most:g} {unit} of this saga are spent")
        if limit:
            mine = {unit: amounts.get(unit, 0.0) for unit in self._costs}
            bound = limit if budget is not None else {}
            if why := await self._budgets.add_today(call.idempotency_key, mine, bound):
                return _refused(why, "budget_spent.hint-day")
        await self._budgets.note(call, amounts)
        return amounts

    async def _add(self, call: Call, amounts: Mapping[str, float], output: Any) -> None:
        """Count what the output says, once."""
        told = {
            unit: amount_in(output, cost)
            for unit, cost in self._costs.items()
            if isinstance(cost, str) and unit not in amounts
        }
        if told:
            async with self._budgets.lock(call.saga_id):
                if await self._budgets.day_limit():
                    await self._budgets.add_today("", told, {})
                await self._budgets.note(call, {**amounts, **told})


def _is_too_much(spent: float, amount: float | None, most: float) -> bool:
    """Whether a call may not be made; without an ``amount`` only the output says what it costs."""
    return spent >= most if amount is None else spent + amount > most + _ROUNDING


def _passed(limit: Mapping[str, float], amounts: Mapping[str, float], found: Mapping[str, _Spent]) -> str:
    """Why a call whose ``amounts`` are counted already passes a limit of the day."""
    for unit, own in amounts.items():
        most = limit.get(unit)
        if most is None:
            continue
        spent = sum(entry.sums.get(unit, 0.0) for entry in found.values()) - own
        if _is_too_much(spent, own or None, most):
            return f"{spent:g} of {most:g} {unit} of today are spent"
    return ""


def _refused(why: str, key: str = "budget_spent.hint") -> NotDone:
    message, hint = said("budget_spent", why=why), said(key)
    return NotDone(ErrorInfo("budget_spent", message, hint, retryable=False), retryable=False)
