"""The tools of a process with their guards: implements ``ports.Tools`` around a registry.

The order is policy, de-duplication, resources, breaker, bulkhead, rate, budget, call: nothing is held while an
operator is asked, a call that waits for a resource occupies no place, and no call waits for a paused tool. (Only the
one trial call of a breaker is chosen last, so that a call which still has to wait does not use it up.) A guard without
effect on a tool is omitted, and the chain of a tool is assembled once. A call that no guard delays takes a shorter path
(``_Lane``).
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from saga_engine.core.effects import Ask, Blocked, Done, ErrorInfo, NotDone, Outcome
from saga_engine.errors import SagaError
from saga_engine.guards.breakers import FRESH_S, Breaker, Breakers, Peek
from saga_engine.guards.budgets import Budget, Budgets
from saga_engine.guards.bulkhead import Bulkhead, places_of
from saga_engine.guards.dedupe import CallIdentity, Deduplication, KeptResults, LastGood, call_digest
from saga_engine.guards.holds.holding import Holding, Holds
from saga_engine.guards.locks import Queues, Resources, locked_keys
from saga_engine.guards.rate_limit import Rate
from saga_engine.guards.stats import COUNTERS, KINDS, Counted, Counting
from saga_engine.guards.stops import Stops
from saga_engine.guards.waiting import Chores, Waiting, store_trouble
from saga_engine.guards.writes.rivals import Writers
from saga_engine.language.errors import said
from saga_engine.loggers import logger_of
from saga_engine.tools.invoke import Caller, Invocation
from saga_engine.tools.outcomes import bounded, describe

if TYPE_CHECKING:
    from collections.abc import Coroutine, Mapping, Sequence

    from saga_engine.guards.budgets import DayLimit
    from saga_engine.guards.holds.family import Kin
    from saga_engine.guards.waiting import Counts
    from saga_engine.plan.tool_spec import ToolSpec
    from saga_engine.ports import Call, Clock, GuardStore, Rivals, SagaLookup, StopsSeen
    from saga_engine.tools.decorator import AnyTool
    from saga_engine.tools.registry import ToolRegistry

_log = logger_of("saga_engine.guards")

#: How long ``close`` waits for pending writes.
_CLOSE_S: Final = 5.0


class Gate(Protocol):
    """The policy, as the chain sees it."""

    def concerns(self, tool: str) -> bool:
        """Whether any rule could ever match this tool."""
        ...

    def waves_through(self, tool: AnyTool, params: Mapping[str, Any], call: Call) -> bool:
        """Whether a call is allowed without anything to await, to count or to settle afterwards."""
        ...

    async def authorize(self, tool: AnyTool, params: Mapping[str, Any], call: Call) -> Blocked | Ask | None:
        """The verdict on one call; None: it is allowed."""
        ...

    async def settled(self, tool: AnyTool, call: Call, outcome: Outcome) -> None:
        """Report the outcome of an authorized call."""


class _Prepared(NamedTuple):
    """How a tool is called.

    ``usual``: with its own guards; the bare call if it has none. ``full``: for a call whose plan names resources, or
    that undoes a call with a stored result.
    """

    tool: AnyTool
    usual: Invocation
    full: Invocation


class GuardedTools:
    """Calls the tools of a registry through their guards. Implements ``ports.Tools``.

    It belongs to one event loop. ``sagas``: where de-duplication looks up other sagas; None: in the ``store``.
    ``lease_s``: how long a resource stays taken when its holder's process has died. ``breaker_fresh_s``: the maximum
    age of the view of the breakers; 0 reads it for each call. ``stops_seen``: what replies to
    appends tell of an operator's stops; without it ``stops_fresh_s`` is the maximum age of the view of them.
    ``day_limit``: what all calls of the namespace may cost in a day. ``kin``: what the journals of other
    sagas say; without it no saga belongs to another.
    """

    def __init__(
        self,
        registry: ToolRegistry,
        store: GuardStore,
        *,
        gate: Gate | None,
        clock: Clock,
        sagas: SagaLookup | None = None,
        lease_s: float = 15.0,
        breaker_fresh_s: float = FRESH_S,
        stops_seen: StopsSeen | None = None,
        stops_fresh_s: float | None = None,
        day_limit: DayLimit | None = None,
        kin: Kin | None = None,
    ) -> None:
        self._registry = registry
        self._store = store
        self._gate = gate
        self._clock = clock
        self._chores = Chores()
        self._waiting = Waiting(clock)
        self._queues = Queues(store, self._waiting, lease_s)
        self._counting = Counting(store, self._chores)
        self._kept = KeptResults(store, store if sagas is None else sagas, registry, self._chores)
        self._breakers = Breakers(store, self._breaker_names, self._chores, breaker_fresh_s)
        self._budgets = Budgets(store, clock, day_limit)
        #: What the sagas hold for which this process makes calls.
        self.holds = Holds(store, store if sagas is None else sagas, self._waiting, self._chores, kin, registry)
        self._writers = Writers(store, self.holds.families, kin)
        self._stops = Stops(store, self._waiting, stops_seen, stops_fresh_s)
        self._prepared: dict[str, _Prepared] = {}

    # --- ports.ToolCatalog ---------------------------------------------------------------------------------------

    def spec(self, name: str) -> ToolSpec | None:
        """The declaration of the tool called ``name``; ``None`` if there is none."""
        return self._registry.spec(name)

    def names(self) -> Sequence[str]:
        """The names of all tools, in order of registration."""
        return self._registry.names()

    # --- ports.Tools ---------------------------------------------------------------------------------------------

    def call(self, name: str, params: Mapping[str, Any], call: Call) -> Coroutine[Any, Any, Outcome]:
        """Make one call, unless a guard refuses it. The wait for a guard does not count towards ``call.timeout_s``.

        Every failure is an outcome. Raised are cancellation, the refusal of ``call.permit``, and ``ToolMissing`` for an
        unknown name.
        """
        prepared = self._prepared.get(name)
        if prepared is None or prepared.tool is not self._registry.get(name):
            tool = self._registry.get(name)
            if tool is None:
                return self._registry.call(name, params, call)  # raises, with a hint
            prepared = self._prepared[name] = self._prepare(tool)
        stops = self._stops
        if (stops.active or stops.seen.version > stops.version) and not stops.lets(name, call):
            return self._held(prepared, params, call)
        if (
            call.resources
            or call.suspect
            or call.around is not None
            or (call.undoes is not None and self._kept.ttl_ms(call.undoes[0]) is not None)
        ):
            return prepared.full(params, call)
        return prepared.usual(params, call)

    async def _held(self, prepared: _Prepared, params: Mapping[str, Any], call: Call) -> Outcome:
        """A call that an operator's stop may hold."""
        name = prepared.tool.name
        refused, _ = await self._stops.passes(name, call, self._counting.of(name))
        # The full chain records that a call which waited starts now.
        return await prepared.full(params, call) if refused is None else refused

    async def probe(self, name: str, params: Mapping[str, Any], call: Call) -> Outcome:
        """Ask whether the call with this key and these params happened.

        De-duplication is asked first, then the tool's own probe.

        ``Done`` with the output: it did. ``NotDone``: it did not. ``Unknown``: it is unknown. No guard delays a probe.
        Raises ``ToolMissing``.
        """
        ttl_ms = self._kept.ttl_ms(name)
        if ttl_ms is None or call.undoes is not None:  # no backward call is stored
            return await self._registry.probe(name, params, call)
        known = await self._kept.recollect(name, call.idempotency_key)
        if known is not None:
            return known
        outcome = await self._registry.probe(name, params, call)
        if type(outcome) is Done:
            identity = CallIdentity(name, call_digest(name, params, call), ttl_ms)
            await self._kept.remember(identity, outcome, params, call)
        elif type(outcome) is NotDone:
            await self._kept.forget(name, call.idempotency_key)
        return outcome

    async def read(self, name: str, params: Mapping[str, Any], call: Call) -> Outcome:
        """Read what a call changes: only the policy stands before it.

        The call may hold the very resources for which the tool that reads would wait. Raises ``ToolMissing``.
        """
        tool = self._registry.get(name)
        if tool is None or self._gate is None or not self._has_policy(tool):
            return await self._registry.call(name, params, call)
        return await _Policed(tool, self._caller(tool), self._gate).call(params, call)

    async def rivals(self, name: str, params: Mapping[str, Any], call: Call) -> Rivals | NotDone | None:
        """Which other sagas wrote what an undo changes since the tool ``name`` did; see ``ports.Tools``."""
        tool = self._registry.get(name)
        if tool is None or (tool.resource is None and not call.resources):
            return None
        try:
            keys = locked_keys(tool, tool.defaults(), params, call)
        except Exception as error:  # noqa: BLE001 - the function is the tool author's
            return NotDone(ErrorInfo("resource_invalid", bounded(describe(error)), retryable=False), retryable=False)
        return await self._writers.since([key for key, _ in keys], call)

    def held(self) -> Mapping[str, Sequence[str]]:
        """The tickets of this process in the queues for resources, by resource; safe to call from any thread."""
        return self._queues.tickets()

    async def last_good(self, name: str, params: Mapping[str, Any], max_age_s: float, call: Call) -> Outcome:
        """The last good result of a read with these params: ``Done`` via ``cache``, or ``NotDone``. Calls nothing."""
        return await self._kept.good(name, params, max_age_s, call)

    async def learn(self, name: str, params: Mapping[str, Any], output: Any, call: Call, *, age_ms: int = 0) -> None:
        """Store the output of a call that happened according to an operator, for identical calls of other sagas.

        Repeating it changes nothing; ``age_ms`` after the first time, it is stored for the rest of its life. Raises
        ``StoreUnavailable``.
        """
        ttl_ms = self._kept.ttl_ms(name)
        if ttl_ms is not None and ttl_ms > age_ms:
            identity = CallIdentity(name, call_digest(name, params, call), ttl_ms - age_ms)
            await self._kept.learn(identity, Done(output), params, call)

    # --- statistics and the end ----------------------------------------------------------------------------------

    async def stats(self) -> dict[str, dict[str, Any]]:
        """What the guards have counted in all processes, by tool; tools without guards are not counted.

        Each has the numbers of ``calls``, ``done``, ``not_done``, ``unknown``, ``rejected`` (by the breaker),
        ``blocked`` and ``asked`` (by the policy) and ``deduplicated``, ``waited_ms`` in total,
        and under ``breaker`` None, or ``state`` (``closed``, ``open``, ``half-open``), ``failures`` in a row, and
        ``open_s``: for how many seconds it stays open. Raises ``StoreUnavailable``.
        """
        await self._counting.flush()
        names = list(self._registry.names())
        counted = await self._store.counters(names)
        breakers = await self._store.breakers(self._breaker_names())
        found: dict[str, dict[str, Any]] = {}
        for name in names:
            tool = self._registry.get(name)
            counts = counted.get(name, {})
            if tool is None or not (counts or self._is_guarded(tool)):
                continue
            row: dict[str, Any] = {counter: counts.get(counter, 0) for counter in COUNTERS}
            row["waited_ms"] = row.pop("waited_us") // 1000
            state = breakers.get(name)
            row["breaker"] = (
                None
                if state is None
                else {
                    "state": "closed" if not state.tripped else "open" if state.opens_ms > 0 else "half-open",
                    "failures": state.failures,
                    "open_s": state.opens_ms / 1000,
                }
            )
            found[name] = row
        return found

    def stop_waiting(self) -> None:
        """End all waits now, and refuse later ones: 'not done, retryable', code ``interrupted``."""
        self._waiting.stop()

    async def close(self) -> None:
        """Leave all queues, complete pending writes, and end. The store stays open."""
        self._waiting.stop()
        await self._queues.close()
        self._chores.start(self._counting.flush(), "writing statistics")
        await self._chores.finish(_CLOSE_S)

    # --- inside --------------------------------------------------------------------------------------------------

    def _breaker_names(self) -> Sequence[str]:
        return [tool.name for tool in self._registry if tool.breaker is not None]

    def _has_policy(self, tool: AnyTool) -> bool:
        return self._gate is not None and self._gate.concerns(tool.name)

    def _is_guarded(self, tool: AnyTool) -> bool:
        options = (
            tool.resource,
            tool.breaker,
            tool.max_concurrency,
            tool.rate,
            tool.dedupe_ttl_s,
            tool.last_good_s,
            tool.cost,
        )
        return any(option is not None for option in options) or self._has_policy(tool)

    def _prepare(self, tool: AnyTool) -> _Prepared:
        full = self._chain(tool, full=True)
        if not self._is_guarded(tool):
            return _Prepared(tool, self._caller(tool), full)
        usual = self._chain(tool, full=False)
        if any(each is not None for each in (tool.resource, tool.rate, tool.dedupe_ttl_s, tool.last_good_s, tool.cost)):
            return _Prepared(tool, usual, full)  # these ask the store about every call
        return _Prepared(tool, self._lane(tool, usual).call, full)

    def _lane(self, tool: AnyTool, usual: Invocation) -> _Lane:
        gate = self._gate if self._has_policy(tool) else None
        return _Lane(tool, self._caller(tool), usual, gate, self._breakers, self._counting)

    def _caller(self, tool: AnyTool) -> Invocation:
        return Caller(tool, self._registry.max_output_bytes).invoke

    def _chain(self, tool: AnyTool, *, full: bool) -> Invocation:
        """From the inside out."""
        name, counts = tool.name, self._counting.of(tool.name)
        inner: Invocation = functools.partial(
            _permitted, self._clock, self._stops, counts, tool.name, self._caller(tool)
        )
        if tool.cost:
            inner = Budget(name, tool.cost, inner, self._budgets).call
        if tool.last_good_s is not None:
            inner = LastGood(name, tool.last_good_s, inner, self._kept).call
        if tool.breaker is not None:
            inner = Breaker(name, tool.breaker, inner, self._breakers, counts).call
        if tool.rate is not None:
            inner = Rate(tool, inner, self._store, self._waiting, counts).call
        if tool.max_concurrency is not None:
            inner = Bulkhead(tool, tool.max_concurrency, inner, self._waiting, counts).call
        if tool.breaker is not None and (tool.rate is not None or tool.max_concurrency is not None):
            inner = Peek(name, tool.breaker, inner, self._breakers, counts).call
        if full or tool.resource is not None:
            holding = Holding(tool, self.holds, counts) if tool.hold else None
            inner = Resources(tool, inner, self._queues, counts, holding).call
        if full or tool.dedupe_ttl_s is not None:
            inner = Deduplication(tool, inner, self._kept, counts, self._waiting).call
        if self._gate is not None and self._gate.concerns(name):
            inner = _Policed(tool, inner, self._gate).call
        return Counted(inner, counts, self._counting).call


class _Lane:
    """The path of a call that no guard delays: the same checks in the same order, without a coroutine each.

    A call that any guard must examine more closely starts again on the ``usual`` path. For tools without guards that
    ask the store about every call.
    """

    __slots__ = ("_bare", "_breaker", "_breakers", "_counting", "_counts", "_gate", "_places", "_tool", "_usual")

    def __init__(  # noqa: PLR0917
        self,
        tool: AnyTool,
        bare: Invocation,
        usual: Invocation,
        gate: Gate | None,
        breakers: Breakers,
        counting: Counting,
    ) -> None:
        self._tool = tool
        self._usual = usual
        self._gate = gate
        self._breaker = tool.breaker
        self._breakers = breakers
        self._places = None if tool.max_concurrency is None else places_of(tool, tool.max_concurrency)
        self._bare = bare
        self._counting = counting
        self._counts = counting.of(tool.name)

    async def call(self, params: Mapping[str, Any], call: Call) -> Outcome:
        """Make the call."""
        places = self._places
        if call.key_until_ms is not None or not self._passes(params, call) or not (places is None or places.take()):
            return await self._usual(params, call)
        try:
            self._counts["calls"] += 1
            self._counting.changed()
            if call.permit is not None:
                call.permit()
            outcome = await self._bare(params, call)
            if self._breaker is not None and self._breakers.has_news(self._tool.name, outcome):
                await self._breakers.report(self._tool.name, self._breaker, outcome)
        finally:
            if places is not None:
                places.leave()
        self._counts[KINDS[type(outcome)]] += 1
        return outcome

    def _passes(self, params: Mapping[str, Any], call: Call) -> bool:
        if self._gate is not None:
            try:
                if not self._gate.waves_through(self._tool, params, call):
                    return False
            except Exception:  # noqa: BLE001 - it is authorized again on the usual way, which says what is wrong
                return False
        return self._breaker is None or self._breakers.is_closed(self._tool.name)


async def _permitted(  # noqa: PLR0917
    clock: Clock, stops: Stops, counts: Counts, name: str, inner: Invocation, params: Mapping[str, Any], call: Call
) -> Outcome:
    """The call itself, after all waits: the right to start it may have ended in the meantime."""
    while True:
        if call.waits is not None and (written := call.waits(call, False)) is not None:
            refused = await written
            if refused is not None:
                return refused
        # That it starts was appended: the reply told whether an operator has stopped it while it waited.
        if stops.lets(name, call):
            break
        refusal, held = await stops.passes(name, call, counts)
        if refusal is not None:
            return refusal
        if not held:
            break
    if call.permit is not None:
        call.permit()
    if call.key_until_ms is not None and clock.now_ms() >= call.key_until_ms and call.direction != "probe":
        message = said("key_expired")
        return NotDone(ErrorInfo("key_expired", message, retryable=True), retryable=True)
    if call.around is not None:
        return await call.around(functools.partial(inner, params, call))
    return await inner(params, call)


class _Policed:
    """The policy's verdict before any other guard."""

    __slots__ = ("_gate", "_inner", "_tool")

    def __init__(self, tool: AnyTool, inner: Invocation, gate: Gate) -> None:
        self._tool = tool
        self._inner = inner
        self._gate = gate

    async def call(self, params: Mapping[str, Any], call: Call) -> Outcome:
        """Make the call if the policy allows it."""
        outcome: Outcome
        try:
            verdict = await self._gate.authorize(self._tool, params, call)
        except SagaError as error:
            return store_trouble(error, "what the policy has to know")
        except Exception as error:  # noqa: BLE001 - the policy may run the code of its author
            # A policy that fails has not allowed anything.
            _log.exception("the policy failed on a call of %s", self._tool.name)
            return Blocked(
                ErrorInfo("policy_failed", bounded(said("policy_failed", why=describe(error))), retryable=False)
            )
        outcome = await self._inner(params, call) if verdict is None else verdict
        try:
            await self._gate.settled(self._tool, call, outcome)
        except SagaError as error:
            _log.warning("the policy was not told what came of a call of %s: %s", self._tool.name, error)
        return outcome
