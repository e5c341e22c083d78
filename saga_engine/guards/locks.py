"""Calls with the same resource run one after the other, across sagas and processes; first come, first served.

Each call puts its own ticket into the resource's queue in the store, and the oldest living ticket holds the resource. A
ticket lives as long as its process keeps it alive, so a process that died frees the resource after its lease. It names
its process: a keeper that waits for one which provably runs no more frees the resource as soon as the ticket has been
silent, which the ticket of a live process on a cloned machine is not. A process has one keeper for each resource that
it uses. The keeper asks for all waiting calls, passes the resource from one to
the next without asking, keeps the holder alive and returns tickets. No call therefore depends on waiting for the store
while it is being cancelled. A call takes its resources in one order (by key), so there is no deadlock.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import deque
from typing import TYPE_CHECKING, Any, Final

from saga_engine.core.effects import COMPENSATE, ErrorInfo, NotDone, Outcome
from saga_engine.core.redaction import REDACTED
from saga_engine.errors import SagaError
from saga_engine.execution.owner import provably_dead, this_process
from saga_engine.guards.waiting import Turn, Waiting, Word, settle, store_trouble, turned_away
from saga_engine.guards.writes.marks import mark_of, may_have_written
from saga_engine.loggers import logger_of, quoted
from saga_engine.ports.foreign import IN_THE_LOOP, runs_foreign_code
from saga_engine.tools.limits import ResourceKey, ResourceParamMissing, resource_keys
from saga_engine.tools.outcomes import bounded, describe

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from saga_engine.guards.holds.holding import Holding
    from saga_engine.guards.waiting import Counts
    from saga_engine.ports import Call, GuardStore
    from saga_engine.tools.decorator import AnyTool
    from saga_engine.tools.invoke import Invocation

_log = logger_of("saga_engine.guards")

#: The intervals at which a foreign holder is queried: doubling from the first to the last.
_FIRST_PAUSE_S: Final = 0.002
_LAST_PAUSE_S: Final = 0.05
#: The longest interval at which tickets are kept alive; a shorter lease is kept alive three times.
_KEPT_EVERY_S: Final = 1.0
#: How often a keeper looks whether the process that holds its resource still runs.
_LOOK_S: Final = 0.2
#: A ticket that was not kept alive for so long is not that of a live process elsewhere: a loop that is blocked is found
#: after ``_KEPT_EVERY_S`` and at most 1.5 s, and its watchdog keeps the tickets from then on.
_SILENT_MS: Final = 3_000
#: How long ``close`` waits for tickets to be returned.
_CLOSE_S: Final = 5.0


class Queues:
    """The part of this process in the queues for resources."""

    __slots__ = ("_lease_s", "_queues", "_signature", "_store", "_waiting")

    def __init__(self, store: GuardStore, waiting: Waiting, lease_s: float) -> None:
        self._store = store
        self._waiting = waiting
        self._lease_s = lease_s
        self._queues: dict[str, _Queue] = {}
        #: What this process adds to its tickets.
        self._signature = ""

    def __len__(self) -> int:
        return len(self._queues)

    def tickets(self) -> dict[str, list[str]]:
        """All tickets that hold or wait, by resource. Safe to call from any thread."""
        # Copies are made in one step of the interpreter: others join or leave before or after.
        return {key: tickets for key, queue in list(self._queues.items()) if (tickets := list(queue.turns))}

    async def enter(self, key: str, shown: str, call: Call, counts: Counts, mark: str = "") -> str | Word:
        """Wait for the resource: the ticket that holds it now, or the word that ended the wait.

        ``shown`` is the key for the log, ``mark`` says what the call writes (``guards.writes``). Raises
        ``StoreUnavailable`` and ``StoreRefused``. In every case no place in the queue is kept but the one of the
        returned ticket.
        """
        queue = self._queues.get(key)
        if queue is None:
            queue = self._queues[key] = _Queue(key, shown, self._store, self._waiting, self._lease_s)
            queue.keeper = asyncio.create_task(self._keep(queue), name="saga-guards: keeper of a resource")
        elif shown != key:
            queue.shown = shown  # For one of the callers the key is a secret, whichever came first.
        self._signature = self._signature or f" {round(self._lease_s * 1000)} {this_process()}"
        ticket = f"{call.idempotency_key}:{call.attempt}:{secrets.token_hex(4)}{mark}{self._signature}"
        turn, kept = queue.join(ticket)
        held = False
        try:
            word = await self._waiting.until(turn, call, counts, kept)
            held = word is Word.TURN
        finally:
            if not held:
                queue.leave(ticket, wrote=False)
        if isinstance(word, SagaError):
            raise word
        return ticket if held else word

    def leave(self, key: str, ticket: str, *, wrote: bool) -> None:
        """Release the resource. It is passed on right after, without waiting here."""
        queue = self._queues.get(key)
        if queue is not None:
            queue.leave(ticket, wrote=wrote)

    async def _keep(self, queue: _Queue) -> None:
        try:
            await queue.run()
        finally:
            # Nothing is awaited between the last look at the queue and this line, so no call can have joined.
            del self._queues[queue.key]
            queue.end()

    async def close(self) -> None:
        """Leave all queues, and end."""
        for queue in list(self._queues.values()):
            queue.end()
            for ticket in list(queue.turns):
                queue.leave(ticket, wrote=True)
        keepers = {queue.keeper for queue in self._queues.values() if queue.keeper is not None}
        if not keepers:
            return
        _, late = await asyncio.wait(keepers, timeout=_CLOSE_S)
        for keeper in late:
            keeper.cancel()
        if late:
            await asyncio.wait(late)


class _Queue:
    """The calls of this process that hold or wait for one resource, in the order of their arrival."""

    __slots__ = (
        "_alive_due_s",
        "_alive_s",
        "_ask_s",
        "_changed",
        "_given",
        "_holder",
        "_kept",
        "_lease_s",
        "_look_s",
        "_new",
        "_pause_s",
        "_store",
        "_waiting",
        "keeper",
        "key",
        "shown",
        "turns",
    )

    def __init__(self, key: str, shown: str, store: GuardStore, waiting: Waiting, lease_s: float) -> None:
        self.key = key
        self.shown = shown
        self.turns: dict[str, Turn] = {}
        self.keeper: asyncio.Task[None] | None = None
        self._store = store
        self._waiting = waiting
        self._lease_s = lease_s
        self._changed = asyncio.Event()
        self._new: list[str] = []
        #: Of tickets that may pass at once: done when the store has named another as the holder.
        self._kept: dict[str, asyncio.Future[None]] = {}
        self._given: deque[tuple[str, bool]] = deque()
        self._holder = ""
        self._pause_s = _FIRST_PAUSE_S
        self._alive_s = asyncio.get_running_loop().time()
        self._alive_due_s = 0.0
        self._ask_s = 0.0
        self._look_s = 0.0

    # --- what calls do: never anything that could be interrupted ---------------------------------------------------

    def join(self, ticket: str) -> tuple[Turn, asyncio.Future[None] | None]:
        """Stand at the end: the turn, and a future that is done when the store has named another holder.

        None instead of the future: a ticket of this process is before this one, so it has to wait anyway.
        """
        loop = asyncio.get_running_loop()
        turn: Turn = loop.create_future()
        kept = None if self.turns else self._kept.setdefault(ticket, loop.create_future())
        self.turns[ticket] = turn
        self._new.append(ticket)
        self._changed.set()
        return turn, kept

    def leave(self, ticket: str, *, wrote: bool) -> None:
        """Step out, as holder or not; without ``wrote`` nothing was written."""
        self._kept.pop(ticket, None)
        if self.turns.pop(ticket, None) is not None:
            self._given.append((ticket, wrote))
            self._changed.set()

    def end(self) -> None:
        """Nobody waits here any longer."""
        for turn in self.turns.values():
            settle(turn, Word.INTERRUPTED)

    # --- what the keeper does: one question at a time, so that none can overtake another -----------------------------

    async def run(self) -> None:
        """Serve the queue until no call of this process is in it."""
        loop = asyncio.get_running_loop()
        while True:
            self._changed.clear()
            while self._given:
                await self._give(*self._given.popleft())
            if not self.turns:
                return
            now_s = loop.time()
            if self._new or now_s >= self._ask_s:
                await self._take(now_s)
            if not self._changed.is_set():
                timer = loop.call_at(self._ask_s, self._changed.set)
                try:
                    await self._changed.wait()
                finally:
                    timer.cancel()

    async def _take(self, now_s: float) -> None:
        """Ask whose turn it is: with all tickets when they have to be kept alive, else with as few as possible."""
        all_due = now_s >= self._alive_due_s
        first = next(iter(self.turns))
        tickets = list(self.turns) if all_due else [one for one in self._new if one in self.turns] or [first]
        self._new.clear()
        try:
            turn = await self._store.take(self.key, tickets, round(self._lease_s * 1000))
            if turn not in self.turns and now_s >= self._look_s:
                self._look_s = now_s + _LOOK_S
                turn = await self._after_the_dead(turn)
        except SagaError as error:
            self._store_failed(error)
            return
        if all_due:
            self._alive_s = now_s
            self._alive_due_s = now_s + min(_KEPT_EVERY_S, self._lease_s / 3)
        self._pass_to(turn)
        for asked in tickets if self._kept else ():
            kept = self._kept.pop(asked, None)
            if kept is not None and asked != turn:
                kept.set_result(None)
        if self._holder:
            self._ask_s = self._alive_due_s
        else:
            self._ask_s = min(asyncio.get_running_loop().time() + self._pause_s, self._alive_due_s)
            self._pause_s = min(2 * self._pause_s, _LAST_PAUSE_S)
        if self._waiting.stopped:
            self.end()

    async def _after_the_dead(self, holder: str) -> str:
        """Whose turn it is when no process that provably runs no more holds the resource; else ``holder``."""
        while holder not in self.turns:
            lease_ms, process = _signed(holder)
            if not provably_dead(process):
                break
            turn = await self._store.free(self.key, holder, lease_ms, _SILENT_MS)
            if turn == holder:
                break  # it was kept alive a moment ago
            _log.warning("the resource %r is free: %s, which held it, runs no more", quoted(self.shown), process)
            holder = turn
        return holder

    async def _give(self, ticket: str, wrote: bool) -> None:
        if ticket == self._holder:
            self._holder = ""
        try:
            turn = await self._store.give(self.key, ticket, wrote=wrote)
        except SagaError as error:
            _log.warning(
                "the resource %r could not be given back and is free after its lease: %s", quoted(self.shown), error
            )
            self._given.clear()  # The others would wait for the same store.
            return
        self._pass_to(turn)
        if not self._holder:
            self._pause_s = _FIRST_PAUSE_S
            self._ask_s = min(asyncio.get_running_loop().time() + self._pause_s, self._alive_due_s)

    def _pass_to(self, ticket: str) -> None:
        """It is this ticket's turn now: one of ours, one that is leaving, or a foreign one."""
        if self._holder and self._holder != ticket and self._holder in self.turns:
            _log.warning(
                "the resource %r was lost while a call held it (%s): it was not kept alive in time, and another call "
                "may run beside it",
                quoted(self.shown),
                self._holder,
            )
        self._holder = ""
        turn = self.turns.get(ticket)
        if turn is None:
            return
        settle(turn, Word.TURN)
        if not turn.cancelled() and turn.result() is Word.TURN:
            self._holder = ticket
            self._pause_s = _FIRST_PAUSE_S

    def _store_failed(self, error: SagaError) -> None:
        """The store did not answer: waiters are told, holders are kept alive as soon as it works again."""
        for turn in self.turns.values():
            settle(turn, error)
        now_s = asyncio.get_running_loop().time()
        if self._holder and now_s - self._alive_s > self._lease_s:
            _log.warning(
                "the resource %r has not been kept alive for longer than its lease; another call may run beside %s: %s",
                quoted(self.shown),
                self._holder,
                error,
            )
        self._alive_due_s = 0.0
        self._ask_s = now_s + _LAST_PAUSE_S


def _signed(ticket: str) -> tuple[int, str]:
    """For how long a ticket is kept alive each time, and the process that does; of an older version, nobody."""
    _, _, signature = ticket.partition(" ")
    lease_ms, _, process = signature.partition(" ")
    return (int(lease_ms), process) if lease_ms.isdecimal() else (0, "")


def _words_of_resource(local: Mapping[str, Any]) -> str:
    tool, call = local["tool"], local["call"]
    return f"the resource function of tool '{tool.name}' (saga {call.saga_id}, step {call.step_id})"


class Resources:
    """The guard of one tool."""

    __slots__ = ("_counts", "_defaults", "_holding", "_inner", "_queues", "_tool")

    def __init__(
        self, tool: AnyTool, inner: Invocation, queues: Queues, counts: Counts, holding: Holding | None = None
    ) -> None:
        self._tool = tool
        self._inner = inner
        self._queues = queues
        self._counts = counts
        self._holding = holding
        self._defaults = tool.defaults() if tool.resource is not None else {}

    async def call(self, params: Mapping[str, Any], call: Call) -> Outcome:
        """Make the call while it holds all its resources."""
        try:
            keys = locked_keys(self._tool, self._defaults, params, call)
        except Exception as error:  # noqa: BLE001 - the function is the tool author's
            # Without its key the call could run beside another: it is not made.
            info = ErrorInfo("resource_invalid", bounded(describe(error)), retryable=False)
            return NotDone(info, retryable=False)
        if not keys:
            return await self._inner(params, call)
        if self._holding is not None and (refused := await self._holding.take(keys, call)) is not None:
            return refused
        held: list[tuple[str, str]] = []
        mark, wrote = mark_of(self._tool, call), False
        try:
            for key, shown in keys:
                try:
                    ticket = await self._queues.enter(key, shown, call, self._counts, mark)
                except SagaError as error:
                    return store_trouble(error, f"the resource {bounded(shown, 200)!r}")
                if isinstance(ticket, Word):
                    return turned_away(ticket, f"the resource {bounded(shown, 200)!r}")
                held.append((key, ticket))
            wrote = True
            outcome = await self._inner(params, call)
            wrote = may_have_written(outcome)
            return outcome
        finally:
            for key, ticket in reversed(held):
                self._queues.leave(key, ticket, wrote=wrote)


@runs_foreign_code(_words_of_resource, IN_THE_LOOP)
def locked_keys(
    tool: AnyTool, defaults: Mapping[str, Any], params: Mapping[str, Any], call: Call
) -> list[tuple[str, str]]:
    """The keys in the order in which they are taken, each with what may be shown of it."""
    keys = {key: key for key in call.resources}  # the plan's own: secrets stand in them by name
    resource = tool.resource
    if resource is None:
        return sorted(keys.items())
    parts = [resource] if isinstance(resource, str) or callable(resource) else list(resource)
    for part in parts:
        try:
            found = resource_keys(part, params, defaults)
        except (ResourceParamMissing, KeyError):
            # An undo is called with whatever the forward call left: what it does not have it does not touch.
            if call.direction != COMPENSATE and call.undoes is None:
                raise
            continue
        keys.update(zip(found, _shown(tool, defaults, part, found, params, call), strict=True))
    return sorted(keys.items())


def _shown(  # noqa: PLR0917
    tool: AnyTool,
    defaults: Mapping[str, Any],
    part: ResourceKey,
    keys: Sequence[str],
    params: Mapping[str, Any],
    call: Call,
) -> Sequence[str]:
    """The keys with markers for what is secret or sensitive. What a function makes of that nobody can tell."""
    hidden = [name for name in tool.hidden_params() if name in params]
    if call.masked is None and not hidden:
        return keys
    if callable(part):
        return [f"of tool {tool.name}, by a function of its params"] * len(keys)
    shown = {**(params if call.masked is None else call.masked), **dict.fromkeys(hidden, REDACTED)}
    return resource_keys(part, shown, defaults)
