"""Takes resources for sagas, waits for those that others hold, and gives them back at the end.

**Waiting** is bounded by ``guard_wait_s``. A call that waits stands in line in the store; it asks the store again and
again, and looks now and then whether the saga in its way has ended in a process that died before it gave back what it
held: then the waiter does that.

**Deadlocks** (wait-die, Rosenkrantz et al. 1978). A family that holds something and is younger than one in its way does
not wait: its call is *not done*, so that the saga is undone and gives back what it holds. So families that hold
something wait for younger ones only, and never in a circle. A saga that must not be undone (its pivot has happened,
a step is in doubt, it is being undone, or a parent waits for it) waits all the same; of each circle that such sagas
make, the youngest that may be undone gives way after a while, although it waits for younger ones; if none may, the
youngest waits no longer, so that an operator is asked. What one call has taken before it had to wait, it gives back
meanwhile.
"""

from __future__ import annotations

import asyncio
import hashlib
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from saga_engine.core.effects import FORWARD, ErrorInfo, NotDone
from saga_engine.core.states import SAGA_FINAL
from saga_engine.errors import SagaError
from saga_engine.guards.holds.family import Families, Kin, Member, circle_of
from saga_engine.guards.waiting import Chores, Turn, Waiting, Word, is_undo, settle, store_trouble, turned_away
from saga_engine.language.errors import said
from saga_engine.loggers import logger_of
from saga_engine.plan.limits import GUARD_WAIT_S
from saga_engine.ports import GuardStore, HoldAnswer, HoldClaim, Holder, SagaLookup
from saga_engine.tools.outcomes import bounded

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

    from saga_engine.guards.waiting import Counts
    from saga_engine.ports import Call
    from saga_engine.tools.decorator import AnyTool
    from saga_engine.tools.registry import ToolRegistry

_log = logger_of("saga_engine.guards")

#: The intervals at which a waiting call asks again: doubling from the first to the last.
_FIRST_PAUSE_S: Final = 0.005
_LAST_PAUSE_S: Final = 0.25
#: How often a waiting call looks whether the saga in its way has ended, and what its own family holds.
_LOOK_S: Final = 1.0
#: How often a waiting call of a saga that holds something looks whether it is in a circle of which nobody gives way.
_CIRCLE_S: Final = 2.0
#: How long a place in the line is kept for a call that does not ask.
_TICKET_MS: Final = 5_000
#: How long a call waits whose agent wants to be told at once (``guard_wait_s`` 0).
_AT_ONCE_S: Final = 2.0
#: Of so many sagas a process knows what they hold; of another one the store tells.
_MOST: Final = 10_000
#: A key is shown up to so many characters.
_SHOWN_CHARS: Final = 200


class Note(msgspec.Struct, omit_defaults=True):
    """What is stored with a hold: the ``token`` of the resource, and what may be shown of its key.

    ``saga``, ``step`` and ``tool``: the call that took it. ``max_s``: after so many seconds the hold is overdue.
    """

    token: str
    key: str
    saga: str
    step: str
    tool: str
    max_s: float | None = None


def note_of(holder: Holder) -> Note:
    """What is noted with a hold; of a damaged one, nothing."""
    try:
        return msgspec.json.decode(holder.note, type=Note)
    except msgspec.MsgspecError:
        return Note("", "(its entry in the store is damaged)", "", "", "")


def token_of(key: str) -> str:
    """What stands for a resource in the store: its key may hold a secret."""
    return hashlib.sha256(b"hold\0" + key.encode("utf-8", "surrogatepass")).hexdigest()[:32]


class Holds:
    """What the sagas of a process hold.

    ``sagas``: where the sagas in the way are looked up. ``kin``: what other sagas of a family say; None: each saga is
    one. ``registry``: the tools of this process, some of which may have ``hold``.
    """

    def __init__(  # noqa: PLR0917
        self,
        store: GuardStore,
        sagas: SagaLookup,
        waiting: Waiting,
        chores: Chores,
        kin: Kin | None,
        registry: ToolRegistry,
    ) -> None:
        self.store = store
        self.waiting = waiting
        self.families = Families(kin)
        self._sagas = sagas
        self._chores = chores
        self._registry = registry
        #: By the token: what waits here for it.
        self._turns: dict[str, set[Turn]] = {}
        #: By the saga that releases it and the token: of which family, and since when.
        self._held: dict[str, dict[str, tuple[str, int]]] = {}

    @property
    def used(self) -> bool:
        """Whether a tool of this process has ``hold``."""
        return self._registry.holding

    def beside(self, work: Coroutine[Any, Any, Any], what: str) -> None:
        """Begin what nobody waits for."""
        self._chores.start(work, what)

    def took(self, member: Member, token: str, since_ms: int) -> None:
        """A saga holds a resource."""
        held = self._held.get(member.saga)
        if held is None:
            while len(self._held) >= _MOST:
                del self._held[next(iter(self._held))]  # a waiter finds out that it has ended
            held = self._held[member.saga] = {}
        held[token] = member.family, since_ms

    async def give_back(self, member: Member, token: str, since_ms: int, ticket: str) -> None:
        """A saga holds a resource no more that a call of it took, unless another one has begun because of it."""
        self._held.get(member.saga, {}).pop(token, None)
        done = False
        try:
            done = await self._unhold(token, member.family, member.saga, since_ms, ticket)
        finally:
            if not done:
                self.took(member, token, since_ms)

    async def _unhold(self, token: str, family: str, saga: str, since_ms: int, ticket: str = "") -> bool:
        done = await self.store.unhold(token, family, saga, since_ms, ticket)
        for turn in self._turns.get(token, ()):
            settle(turn, Word.TURN)
        return done

    async def pause(self, token: str, wait_s: float, call: Call, counts: Counts) -> Word:
        """Wait for ``wait_s`` seconds, or until this process has given the resource back: ``TURN``."""
        if self.waiting.stopped:
            return Word.INTERRUPTED
        loop = asyncio.get_running_loop()
        turn: Turn = loop.create_future()
        timer = loop.call_later(wait_s, settle, turn, Word.TURN)
        turns = self._turns.setdefault(token, set())
        turns.add(turn)
        try:
            word = await self.waiting.until(turn, call, counts)
        finally:
            timer.cancel()
            turns.discard(turn)
            if not turns and self._turns.get(token) is turns:
                del self._turns[token]
        assert isinstance(word, Word)
        return word

    def knows_of_any(self, member: Member) -> bool:
        """Whether this process knows of anything that a family holds."""
        return bool(self._held.get(member.saga))

    async def holds_any(self, member: Member) -> bool:
        """Whether a family holds anything. Raises ``StoreUnavailable``."""
        found = await self.store.holds()
        return any(holder.family == member.family for each in found for holder in each.holders)

    async def still_holds_any(self, member: Member) -> bool:
        """As ``holds_any``; else an operator took it away, and this process forgets it. Raises ``StoreUnavailable``."""
        still = await self.holds_any(member)
        if not still:
            self._held.pop(member.saga, None)
        return still

    async def ends_circle(self, member: Member, *, able: bool) -> bool:
        """Whether a family that waits in a circle is the one that ends it; ``able``: it may be undone.

        That is the youngest of those that may be undone; without any, the youngest. Raises ``StoreUnavailable``.
        """
        circle = circle_of(member.family, await self.store.holds())
        if not circle:
            return False
        younger = [each for each in circle if (each.started_ms, each.family) > (member.started_ms, member.family)]
        if not able and younger:
            return False
        for each in younger if able else circle:
            if all([await self.families.saga_may_turn(saga) for saga in each.sagas]):
                return False
        return True

    async def free_ended(self, token: str, others: Sequence[Holder]) -> bool:
        """Give back what sagas hold that have ended; whether there were any. Raises ``StoreUnavailable``."""
        freed = False
        for other in others:
            status = await self._sagas.saga_status(other.saga)
            if status is None or status in SAGA_FINAL:
                freed = await self._unhold(token, other.family, other.saga, other.since_ms) or freed
        return freed

    def ended(self, saga_id: str, others: Callable[[], bool]) -> Coroutine[Any, Any, None] | None:
        """Give back what a saga held, which has ended; None: that is nothing.

        ``others``: whether other processes may have taken something for it.
        """
        held = self._held.pop(saga_id, {})
        if not held and not self._registry.holding:
            return None
        complete = not others()
        return self._release(saga_id, held, complete=complete) if held or not complete else None

    async def _release(self, saga_id: str, held: dict[str, tuple[str, int]], *, complete: bool) -> None:
        try:
            if not complete:
                for each in await self.store.holds():
                    for holder in each.holders:
                        if holder.saga == saga_id:
                            held[note_of(holder).token] = holder.family, holder.since_ms
            for token, (family, since_ms) in held.items():
                await self._unhold(token, family, saga_id, since_ms)
        except SagaError as error:
            _log.warning("what saga %s held is given back when another one wants it: %s", saga_id, error.message)

    def leave(self, token: str, ticket: str) -> None:
        """Stand in line no more; nobody waits for this."""
        self.beside(self.store.leave(token, ticket), "leaving a line")


class _Wanted(NamedTuple):
    """A resource that a call wants: its token, and what may be shown of its key."""

    token: str
    shown: str


class Holding:
    """The part of one tool in the guard of its resources."""

    __slots__ = ("_counts", "_holds", "_tool")

    def __init__(self, tool: AnyTool, holds: Holds, counts: Counts) -> None:
        self._tool = tool
        self._holds = holds
        self._counts = counts

    async def take(self, keys: Sequence[tuple[str, str]], call: Call) -> NotDone | None:
        """Hold these for the saga of a call. Else why the call is not made."""
        wanted = [_Wanted(token_of(key), bounded(shown, _SHOWN_CHARS)) for key, shown in keys]
        try:
            member = await self._holds.families.of(call)
            return await self._take(wanted, member, call)
        except SagaError as error:
            return store_trouble(error, f"whether another saga holds a resource of {self._tool.name!r}")

    async def _take(self, wanted: Sequence[_Wanted], member: Member, call: Call) -> NotDone | None:
        until_s = asyncio.get_running_loop().time() + _patience_s(call)
        fresh: list[tuple[str, int]] = []
        at = 0
        while at < len(wanted):
            one = wanted[at]
            claim = self._claim(one, member, call)
            found = await self._holds.store.hold(one.token, claim, _TICKET_MS)
            if found.granted:
                self._took(found, one, member, fresh)
                at += 1
                continue
            while fresh:  # it is tried again; meanwhile others may have it
                await self._holds.give_back(member, *fresh.pop(), claim.ticket)
            turn = await self._wait(one, claim, found, member, call, until_s)
            if isinstance(turn, NotDone):
                return turn
            self._took(turn, one, member, fresh)
            at = 0
        reads = call.around is not None and call.direction == FORWARD
        # Until now others could write. Who has waited reads its before-image again; so does this call.
        if fresh and reads and call.waits is not None and (written := call.waits(call, True)) is not None:
            await written
        return None

    def _took(self, found: HoldAnswer, one: _Wanted, member: Member, fresh: list[tuple[str, int]]) -> None:
        self._holds.took(member, one.token, found.since_ms)
        if found.new:
            fresh.append((one.token, found.since_ms))

    def _claim(self, one: _Wanted, member: Member, call: Call) -> HoldClaim:
        note = Note(one.token, one.shown, call.saga_id, call.step_id, self._tool.name, self._tool.hold_max_s)
        place = hashlib.sha256(call.idempotency_key.encode("utf-8", "surrogatepass")).hexdigest()[:16]
        return HoldClaim(
            member.family,
            member.saga,
            member.started_ms,
            self._tool.effect != "read",
            f"{call.saga_id} {place} {member.family}",
            is_undo(call),
            note=msgspec.json.encode(note).decode(),
        )

    async def _wait(  # noqa: PLR0917
        self, one: _Wanted, claim: HoldClaim, found: HoldAnswer, member: Member, call: Call, until_s: float
    ) -> HoldAnswer | NotDone:
        """Wait until the resource is ours; else why the call is not made."""
        loop, holds = asyncio.get_running_loop(), self._holds
        pause_s, look_s = _FIRST_PAUSE_S, loop.time()
        circle_s = look_s + _CIRCLE_S
        try:
            while not found.granted:
                looks = loop.time() >= look_s
                if looks:
                    look_s = loop.time() + _LOOK_S
                freed = looks and await holds.free_ended(one.token, found.others)
                if not claim.skips and (holds.knows_of_any(member) or (looks and await holds.holds_any(member))):
                    claim = claim._replace(skips=True)
                    freed = True
                if freed:
                    found = await holds.store.hold(one.token, claim, _TICKET_MS)
                    continue
                if claim.skips and _is_younger(claim, found.others, call) and await holds.families.may_turn(call):
                    if await holds.still_holds_any(member):
                        return _gives_way(one, found.others)
                    claim = claim._replace(skips=False)
                over = loop.time() >= until_s
                if claim.skips and loop.time() >= circle_s:
                    circle_s = loop.time() + _CIRCLE_S
                    able = not is_undo(call) and await holds.families.may_turn(call)
                    if await holds.ends_circle(member, able=able):
                        if able:
                            return _gives_way(one, found.others)
                        over = True
                if refused := _refusal(one, found.others, call, over=over):
                    return refused
                word = await holds.pause(one.token, pause_s, call, self._counts)
                if word is not Word.TURN:
                    return turned_away(word, f"the resource {one.shown!r}, which {_named(found.others)} holds")
                pause_s = min(2 * pause_s, _LAST_PAUSE_S)
                found = await holds.store.hold(one.token, claim, _TICKET_MS)
            return found
        finally:
            if not found.granted:
                holds.leave(one.token, claim.ticket)


def _gives_way(one: _Wanted, others: Sequence[Holder]) -> NotDone:
    hint = said("resource_held.hint-itself")
    return NotDone(ErrorInfo("resource_held", _said(one, others, "itself"), hint, retryable=False), retryable=False)


def _refusal(one: _Wanted, others: Sequence[Holder], call: Call, *, over: bool) -> NotDone | None:
    """Why a call does not wait any longer; None: it does. ``over``: it has waited as long as it may."""
    if over:
        hint = said("resource_held.hint")
        forward = not is_undo(call)
        error = ErrorInfo("resource_held", _said(one, others, "patience"), hint, retryable=forward)
        return NotDone(error, retryable=forward, held=forward)
    if not is_undo(call) and _is_unwanted(call):
        error = ErrorInfo("resource_held", _said(one, others, "unwanted"), retryable=True)
        return NotDone(error, retryable=True, counted=False)
    return None


def _is_unwanted(call: Call) -> bool:
    """Whether the saga turns around meanwhile, or has something else to look at."""
    turns = call.standing is not None and call.standing().turns
    wanted = call.wanted
    return turns or (wanted is not None and not wanted())


def _is_younger(claim: HoldClaim, others: Sequence[Holder], call: Call) -> bool:
    """Whether one of the families in the way is older; what takes something back gives way to nobody."""
    if is_undo(call) or not others:
        return False
    return (others[0].started_ms, others[0].family) < (claim.started_ms, claim.family)


def _said(one: _Wanted, others: Sequence[Holder], why: str) -> str:
    if not others:
        return said(f"resource_held.line-{why}", name=repr(one.shown))
    since = datetime.fromtimestamp(others[0].since_ms / 1000, UTC).isoformat(timespec="seconds")
    return said(f"resource_held.{why}", who=_named(others), name=repr(one.shown), when=since)


def _patience_s(call: Call) -> float:
    if is_undo(call) or call.guard_wait_s is None:
        return GUARD_WAIT_S
    return call.guard_wait_s or _AT_ONCE_S


def _named(others: Sequence[Holder]) -> str:
    return f"saga {others[0].saga}" if others else "another saga"
