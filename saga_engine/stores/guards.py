"""The shared state of the guards of all processes, in the same Redis or Valkey as the journals.

One script for each kind of guard, with its laws at its top. All keys of a tool, of a resource, of a rate and of a tally
carry a hash tag of their own, so everything that a script changes together is in one slot::

    saga:{t:<tool>}:dedupe:<digest>  hash    a claimed or made call: owner nonce done_ms result
    saga:{t:<tool>}:owner:<owner>    hash    its calls (m:<digest>) and who relies on their result (by:<owner>)
    saga:{t:<tool>}:breaker          hash    failures opens_at open_ms trial_until trial_ms trial, and each failure
    saga:{t:<tool>}:stats            hash    numbers by name
    saga:{t:<tool>}:good:<digest>    hash    the last good result of a read: result at_ms
    saga:{r:<hash>}:queue            zset    tickets by arrival
    saga:{r:<hash>}:alive            zset    tickets by the time they die
    saga:{r:<hash>}:writes           hash    who wrote it, and when, by idempotency key
    saga:{p07}:held:<hash>           hash    who holds a resource: mode, times and note by family and saga
    saga:{p07}:line:<hash>           zset    who waits for that, by rank and arrival
    saga:{p07}:alive:<hash>          zset    the same by the time they die
    saga:{p07}:holds                 zset    the resources of the partition that are held
    saga:{rate:<hash>}               string  the theoretical arrival time of the next call, and when it was written (µs)
    saga:{y:<hash>}                  hash    a tally without a saga: entries by owner
    saga:{p07}:tally:<id>            hash    the tallies of a saga: entries by hash and owner

Names that may be any text (resources, rates, tallies) are hashed: 32 hex digits of their SHA-256. Every key but the
statistics and what is held expires by itself.
"""

from __future__ import annotations

import asyncio
import hashlib
import uuid
from typing import TYPE_CHECKING, Any, Final

from saga_engine.errors import StopIncomplete, StoreRefused, StoreUnavailable
from saga_engine.ports import BreakerState, Claim, HeldResource, HoldAnswer, HoldClaim, Holder, Write
from saga_engine.stores.cluster import ClusterPool

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence

    from saga_engine.ports import StopsSeen
    from saga_engine.stores.client import Calls
    from saga_engine.stores.connection import Argument
    from saga_engine.stores.repair import Mender

#: Longer is equivalent to for ever, and a server refuses times that do not fit 64 bits.
_LONGEST_MS: Final = 100 * 365 * 86_400_000
#: At most so many held resources of a partition are listed.
_MOST_LISTED: Final = 1000
#: The greatest product of a rate's interval and its burst, in µs: 100 years. Lua counts exactly to 2**53.
_LONGEST_US: Final = _LONGEST_MS * 1000


class RedisGuards:
    """A ``GuardStore`` (see ``ports``) beside the journals of a ``RedisStore``.

    Each call is one script in one round trip, atomic, on the server's clock. After a lost reply a script is repeated
    with the same arguments. ``claim`` and the breaker's verbs recognise their own work; ``reserve`` may reserve twice
    (the limit holds, a time slot is wasted) and ``count`` may count twice; all others are idempotent.
    """

    def __init__(
        self,
        mender: Mender,
        namespace: str,
        status: Callable[[str], Awaitable[str | None]],
        driven: Callable[[str], Awaitable[bool]],
        *,
        saga_keys: Callable[[str], Sequence[str]],
        stop_keys: Sequence[str],
        stops_seen: StopsSeen,
        apart: Calls | None,
    ) -> None:
        self._run, self._spread = mender.run, mender.spread
        self._namespace = namespace
        self._status = status
        self._driven = driven
        self._saga_keys = saga_keys
        self._stop_keys = stop_keys
        #: Those of all partitions.
        self._tags = [key.removesuffix("stops") for key in stop_keys]
        self._stops_seen = stops_seen
        self._apart = apart

    # --- the operator's stops ---

    async def stops(self) -> tuple[int, Mapping[str, str]]:
        """The stops that hold now, by scope, and their version.

        On a cluster a copy tells them if the primary of the original does not answer, unless a reply to an append was
        of a later version than every copy that can be read: then nobody knows what holds.
        """
        if self._apart is None:
            return _stops(await self._run("stop", self._stop_keys[:1], ["read"]))
        (reply,) = await self._read_stops(self._stop_keys[:1])
        if not reply.done() or isinstance(reply.exception(), StoreUnavailable):
            copies = await self._read_stops(self._stop_keys[1:])
            found = [_stops(copy.result()) for copy in copies if copy.done() and copy.exception() is None]
            latest = max(found, key=lambda stops: stops[0], default=None)
            if latest is not None and latest[0] >= self._stops_seen.version:
                return latest
        return _stops(await reply)

    async def _read_stops(self, keys: Sequence[str]) -> Sequence[asyncio.Future[Any]]:
        assert self._apart is not None
        assert isinstance(self._apart.others, ClusterPool)
        return await self._apart.run_each("stop", [([key], ["read"]) for key in keys], self._apart.others)

    async def set_stop(self, scope: str, entry: str | None) -> Mapping[str, str]:
        """Set or (None) lift a stop; when it returns, every append of any process replies with its version."""
        version, found = _stops(await self._run("stop", self._stop_keys[:1], ["set", scope, entry or ""]))
        flat = [text for pair in found.items() for text in pair]
        await self._copy_stops(["copy", version, *flat])
        return found

    async def _copy_stops(self, args: Sequence[Argument]) -> None:
        """Bring every partition that can be reached up to date. Raises ``StopIncomplete`` for the others."""
        if self._apart is None:
            await self._spread("stop", [[key] for key in self._stop_keys], args)
            return
        assert isinstance(self._apart.others, ClusterPool)
        calls = [([key], args) for key in self._stop_keys]
        replies = await asyncio.gather(
            *await self._apart.run_each("stop", calls, self._apart.others), return_exceptions=True
        )
        missed = {number: reply for number, reply in enumerate(replies) if isinstance(reply, StoreUnavailable)}
        refused = [
            [key] for key, reply in zip(self._stop_keys, replies, strict=True) if isinstance(reply, StoreRefused)
        ]
        if refused:
            await self._spread("stop", refused, args)  # it repairs what a foreign writer damaged
        if missed:
            raise StopIncomplete(
                f"the stops are as you want them in {len(replies) - len(missed)} of {len(replies)} partitions; "
                f"{', '.join(map(str, missed))} did not get the change: {next(iter(missed.values())).message}",
                hint="repeat the command until it succeeds: when that primary is back, a process that writes to these "
                "partitions alone does not know of the change",
                partitions=list(missed),
            )
        for reply in replies:
            if isinstance(reply, BaseException) and not isinstance(reply, StoreRefused):
                raise reply

    # --- de-duplication ---

    async def claim(self, tool: str, digest: str, owner: str, ttl_ms: int) -> Claim:
        """Claim a call before it is made, unless it has been made (or claimed) by another owner within its time.

        ``new`` and ``ours`` are written for ``ttl_ms`` from now. An owner that gets another one's result relies on it
        until ``unrely``, even after the result itself has expired.
        """
        keys = self._call_keys(tool, owner, digest)
        code, *rest = await self._run("guard_dedupe", keys, ["claim", owner, digest, bounded_ms(ttl_ms), _nonce()])
        if code == b"done":
            holder, result, age_ms = rest
            return Claim("done", _text(holder), result, age_ms)
        if code == b"busy":
            return Claim("busy", _text(rest[0]))
        return Claim("ours" if code == b"ours" else "new")

    async def remember(self, tool: str, digest: str, owner: str, result: bytes, ttl_ms: int) -> None:
        """The claimed call happened, with this result; kept for ``ttl_ms`` from now.

        Written if the claim is still the owner's, or has expired and has no owner. A call that ``owner`` never claimed,
        or has since forgotten, is not written.
        """
        keys = self._call_keys(tool, owner, digest)
        await self._run("guard_dedupe", keys, ["remember", owner, digest, bounded_ms(ttl_ms), result])

    async def forget(self, tool: str, owner: str) -> Sequence[str]:
        """Drop the calls of ``owner``, unless others rely on the result: these are returned, sorted."""
        relying = await self._run("guard_dedupe", self._call_keys(tool, owner), ["forget", owner])
        return sorted(map(_text, relying))

    async def recollect(self, tool: str, owner: str) -> bytes | None:
        """The result of the call that ``owner`` made; None if it is unknown or has expired."""
        result: bytes | None = await self._run("guard_dedupe", self._call_keys(tool, owner), ["recollect", owner])
        return result

    async def unrely(self, tool: str, owner: str, relying: str) -> None:
        """Record that ``relying`` no longer relies on the result of ``owner``."""
        await self._run("guard_dedupe", self._call_keys(tool, owner), ["unrely", owner, relying])

    async def saga_status(self, saga_id: str) -> str | None:
        """The status of a saga in this store; None if it does not exist."""
        return await self._status(saga_id)

    async def saga_driven(self, saga_id: str) -> bool:
        """Whether a process with a valid lease owns a saga of this store now."""
        return await self._driven(saga_id)

    # --- resources and rates ---

    async def take(self, resource: str, tickets: Sequence[str], ttl_ms: int) -> str:
        """Join the queue for a resource, or stay alive in it; returns the ticket whose turn it is."""
        args: list[Argument] = ["take", bounded_ms(ttl_ms, least=0), *tickets]
        return _text(await self._run("guard_queue", self._queue_keys(resource), args))

    async def keep(self, resource: str, tickets: Sequence[str], ttl_ms: int) -> str:
        """Keep alive those of the tickets that are in the queue; returns the ticket whose turn it is."""
        args: list[Argument] = ["keep", bounded_ms(ttl_ms, least=0), *tickets]
        return _text(await self._run("guard_queue", self._queue_keys(resource), args))

    async def give(self, resource: str, ticket: str, *, wrote: bool = True) -> str:
        """Leave the queue; returns the ticket whose turn it is then, or an empty text."""
        args: list[Argument] = ["give", ticket] if wrote else ["give", ticket, "1"]
        return _text(await self._run("guard_queue", self._queue_keys(resource), args))

    async def writes(self, resource: str) -> Sequence[Write]:
        """The last writes of a resource, the oldest first."""
        flat = await self._run("guard_queue", self._queue_keys(resource), ["writes"])
        return [Write(_text(key), at_ms) for key, at_ms in zip(flat[::2], flat[1::2], strict=True)]

    async def free(self, resource: str, ticket: str, ttl_ms: int, silent_ms: int) -> str:
        """Drop the ticket of a dead process, unless it was kept alive a moment ago; returns whose turn it is then."""
        args: list[Argument] = ["free", ticket, bounded_ms(ttl_ms, least=0), bounded_ms(silent_ms, least=0)]
        return _text(await self._run("guard_queue", self._queue_keys(resource), args))

    async def hold(self, resource: str, claim: HoldClaim, ttl_ms: int) -> HoldAnswer:
        """Hold a resource until ``unhold``, or stand in line for it for ``ttl_ms`` from now."""
        about: list[Argument] = [claim.family, claim.saga, claim.started_ms, "w" if claim.write else "r"]
        place: list[Argument] = [
            claim.ticket,
            0 if claim.undo else 1,
            int(claim.skips),
            claim.note,
            _hash(claim.ticket),
        ]
        args: list[Argument] = ["hold", bounded_ms(ttl_ms), *about, *place]
        granted, *rest = await self._run("guard_hold", self._hold_keys(resource), args)
        if granted:
            return HoldAnswer(granted=True, new=granted == 2, since_ms=rest[0])
        return HoldAnswer(granted=False, others=_holders(rest))

    async def leave(self, resource: str, ticket: str) -> None:
        """Stand in line for it no more."""
        await self._run("guard_hold", self._hold_keys(resource), ["leave", ticket])

    async def unhold(self, resource: str, family: str, saga: str, since_ms: int, ticket: str = "") -> bool:
        """A saga holds it no more, if it does so since then; with a ``ticket``, only if no other was granted it."""
        args: list[Argument] = ["unhold", family, saga, since_ms, _hash(ticket) if ticket else ""]
        return bool(await self._run("guard_hold", self._hold_keys(resource), args))

    async def holds(self) -> Sequence[HeldResource]:
        """Every resource that is held, and who waits for it."""
        keys = [(f"{tag}holds",) for tag in self._tags]
        replies = await self._spread("guard_hold", keys, ["list", _MOST_LISTED])
        return [_held(each) for reply in replies for each in reply]

    async def reserve(self, rate: str, interval_us: int, burst: int, max_wait_ms: int | None) -> int:
        """Reserve the next free slot of a rate limit (GCRA, ITU-T I.371): how many ms to wait from now, rounded up.

        ``interval_us``: one call in so many microseconds, ``burst``: that many at once after a pause. -1: the wait
        would be longer than ``max_wait_ms``, and nothing is reserved. Raises ``ValueError`` for an interval or a burst
        below 1, or for more than 100 years of both.
        """
        if interval_us < 1 or burst < 1 or interval_us * burst > _LONGEST_US:
            raise ValueError(f"no rate: one call in {interval_us} µs, {burst} at once")
        args: list[Argument] = [interval_us, burst, "" if max_wait_ms is None else max_wait_ms]
        wait_ms: int = await self._run("guard_rate", [f"{self._namespace}:{{rate:{_hash(rate)}}}"], args)
        return wait_ms

    # --- breakers ---

    async def breakers(self, tools: Sequence[str]) -> Mapping[str, BreakerState]:
        """The breakers of these tools, in one round trip (to each node of a cluster)."""
        if not tools:
            return {}
        keys = [(self._tool_key(tool, "breaker"),) for tool in tools]
        flat = [item for reply in await self._spread("guard_breaker", keys, ["look"]) for item in reply]
        return {tool: _breaker(flat[at : at + 3]) for tool, at in zip(tools, range(0, len(flat), 3), strict=True)}

    async def breaker_trial(self, tool: str, trial_ms: int) -> bool:
        """Become the one call that is let through, for ``trial_ms``. Also true if the breaker has closed meanwhile."""
        args: list[Argument] = ["trial", bounded_ms(trial_ms, least=0), _nonce()]
        go: int = await self._run("guard_breaker", [self._tool_key(tool, "breaker")], args)
        return go == 1

    async def breaker_outcome(self, tool: str, *, failed: bool, failures: int, open_ms: int) -> BreakerState:
        """Count an outcome; the table of states is in ``guard_breaker.lua``.

        Raises ``ValueError`` for a limit below 1.
        """
        if failures < 1:
            raise ValueError(f"a breaker opens after at least one failure, not {failures}")
        args: list[Argument] = ["outcome", int(failed), failures, bounded_ms(open_ms, least=0), _nonce()]
        return _breaker(await self._run("guard_breaker", [self._tool_key(tool, "breaker")], args))

    # --- numbers and texts ---

    async def count(self, tool: str, counters: Mapping[str, int]) -> None:
        """Add to the statistics of a tool."""
        if counters:
            args: list[Argument] = ["add", *(item for pair in counters.items() for item in pair)]
            await self._run("guard_counts", [self._tool_key(tool, "stats")], args)

    async def counters(self, tools: Sequence[str]) -> Mapping[str, Mapping[str, int]]:
        """The statistics of tools, by name of counter; an empty mapping for a tool without any."""
        if not tools:
            return {}
        keys = [(self._tool_key(tool, "stats"),) for tool in tools]
        found = [flat for reply in await self._spread("guard_counts", keys, ["look"]) for flat in reply]
        return {
            tool: {_text(name): int(number) for name, number in _pairs(flat)}
            for tool, flat in zip(tools, found, strict=True)
        }

    async def tally(self, name: str, saga_id: str = "") -> Mapping[str, str]:
        """The entries of a tally: texts by owner; with ``saga_id`` of a tally of that saga."""
        if saga_id:
            flat = await self._run("guard_saga_tally", self._saga_keys(saga_id), ["look", _hash(name)])
        else:
            flat = await self._run("guard_tally", [self._tally_key(name)], ["look"])
        return {_text(owner): _text(entry) for owner, entry in _pairs(flat)}

    async def tally_set(self, name: str, owner: str, entry: str | None, ttl_ms: int, saga_id: str = "") -> None:
        """See ``ports.GuardStore.tally_set``."""
        if saga_id:
            verb: list[Argument] = ["drop" if entry is None else "set", _hash(name), bounded_ms(ttl_ms), owner]
            await self._run("guard_saga_tally", self._saga_keys(saga_id), verb if entry is None else [*verb, entry])
            return
        args: list[Argument] = (
            ["drop", bounded_ms(ttl_ms), owner] if entry is None else ["set", bounded_ms(ttl_ms), owner, entry]
        )
        await self._run("guard_tally", [self._tally_key(name)], args)

    async def keep_good(self, tool: str, digest: str, result: bytes, ttl_ms: int) -> None:
        """Keep the last good result of a read for ``ttl_ms`` from now."""
        await self._run("guard_good", [self._tool_key(tool, f"good:{digest}")], ["keep", bounded_ms(ttl_ms), result])

    async def good(self, tool: str, digest: str) -> tuple[bytes, int] | None:
        """The last good result of a read and its age in ms."""
        found = await self._run("guard_good", [self._tool_key(tool, f"good:{digest}")], ["look"])
        return (found[0], found[1]) if found else None

    # --- keys ---

    def _tool_key(self, tool: str, rest: str) -> str:
        return f"{self._namespace}:{{t:{tool}}}:{rest}"

    def _call_keys(self, tool: str, owner: str, digest: str | None = None) -> Sequence[str]:
        record = self._tool_key(tool, f"owner:{owner}")
        return [record] if digest is None else [record, self._tool_key(tool, f"dedupe:{digest}")]

    def _queue_keys(self, resource: str) -> Sequence[str]:
        tag = f"{self._namespace}:{{r:{_hash(resource)}}}"
        return [f"{tag}:queue", f"{tag}:alive", f"{tag}:writes"]

    def _hold_keys(self, resource: str) -> Sequence[str]:
        name = _hash(resource)
        tag = self._tags[int(name, 16) % len(self._tags)]
        return [f"{tag}held:{name}", f"{tag}line:{name}", f"{tag}alive:{name}", f"{tag}holds"]

    def _tally_key(self, name: str) -> str:
        return f"{self._namespace}:{{y:{_hash(name)}}}"


def _hash(name: str) -> str:
    # A plan's text may hold half of a surrogate pair, which is not UTF-8; it is a name like any other.
    return hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def bounded_ms(duration: int, least: int = 1) -> int:
    """A time that a server accepts, in ms."""
    return min(max(duration, least), _LONGEST_MS)


def _nonce() -> str:
    """Distinguishes calls; the repeats of a call whose reply was lost carry the same nonce."""
    return uuid.uuid4().hex


def _text(raw: bytes) -> str:
    return str(raw, "utf-8")


def _pairs(flat: Sequence[bytes]) -> Iterator[tuple[bytes, bytes]]:
    return zip(flat[::2], flat[1::2], strict=True)


def _stops(reply: Sequence[Any]) -> tuple[int, Mapping[str, str]]:
    version, *flat = reply
    return int(version), {_text(scope): _text(entry) for scope, entry in _pairs(flat)}


def _holders(flat: Sequence[Any]) -> list[Holder]:
    rows = zip(*(flat[at::6] for at in range(6)), strict=True)
    return [Holder(_text(row[0]), _text(row[1]), row[2] == b"w", row[3], row[4], _text(row[5])) for row in rows]


def _held(reply: Sequence[Any]) -> HeldResource:
    _, holders, waiting = reply
    line = zip(map(_text, waiting[::2]), waiting[1::2], strict=True)
    return HeldResource(_holders(holders), [*line])


def _breaker(reply: Sequence[int]) -> BreakerState:
    failures, tripped, opens_ms = reply
    return BreakerState(failures, tripped == 1, opens_ms)
