"""The shared state of the guards of all processes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple, Protocol


class Claim(NamedTuple):
    """What the de-duplication of a tool knows about a call.

    ``new``: no saga has made it; it is claimed for us now. ``ours``: we claimed it before and no result is known.
    ``done``: ``owner`` made it, ``age_ms`` ago, with ``result`` (JSON). ``busy``: ``owner`` claimed it and has not
    reported its outcome.
    """

    code: Literal["new", "ours", "done", "busy"]
    owner: str = ""
    result: bytes = b""
    age_ms: int = 0


class BreakerState(NamedTuple):
    """A circuit breaker as all processes see it.

    ``failures`` in a row so far; ``opens_ms`` is how much longer it stays open (0: it is closed, or the time for a
    trial has come); ``tripped``: it is open or waits for its trial.
    """

    failures: int = 0
    tripped: bool = False
    opens_ms: int = 0


class HoldClaim(NamedTuple):
    """Who wants to hold a resource: a ``saga`` of a ``family`` that began at ``started_ms``.

    ``write``: alone; else beside others that read. ``ticket`` is its place among those that wait: one without
    ``undo`` stands behind all with it, one that ``skips`` behind none. ``note`` is kept with the hold.
    """

    family: str
    saga: str
    started_ms: int
    write: bool
    ticket: str
    undo: bool = False
    skips: bool = False
    note: str = ""


class Holder(NamedTuple):
    """A saga that holds a resource, since when, and when its family began."""

    family: str
    saga: str
    write: bool
    since_ms: int
    started_ms: int
    note: str = ""


class HoldAnswer(NamedTuple):
    """Whether a saga holds a resource now, and since when; ``new``: it did not before.

    ``others``: the families in the way, the oldest first; none if it only waits for others that came before.
    """

    granted: bool
    new: bool = False
    since_ms: int = 0
    others: Sequence[Holder] = ()


class HeldResource(NamedTuple):
    """A resource that is held, by whom, and who waits for it: ticket and since when, in order."""

    holders: Sequence[Holder]
    waiting: Sequence[tuple[str, int]]


class Write(NamedTuple):
    """A call that wrote a resource, or may have: its idempotency key, and when it got its turn.

    ``at_ms`` orders the writes of one resource; no two have the same.
    """

    key: str
    at_ms: int


class SagaLookup(Protocol):
    """What the guards need to know about the other sagas whose calls they deduplicate.

    Both methods raise ``StoreUnavailable`` and ``StoreRefused`` like those of ``Store``.
    """

    async def saga_status(self, saga_id: str) -> str | None:
        """The status of a saga; None if there is no such saga."""
        ...

    async def saga_driven(self, saga_id: str) -> bool:
        """Whether a process drives a saga now."""
        ...


class StopsSeen:
    """The highest version of the operator's stops that a reply to an append of this process has carried."""

    __slots__ = ("version",)

    def __init__(self) -> None:
        self.version = 0


class GuardStore(SagaLookup, Protocol):
    """Shared, durable state of guards. Every verb is atomic, uses the server's clock, and is safe to repeat.

    It looks up the sagas of its own store.

    All methods raise ``StoreUnavailable`` and ``StoreRefused`` like those of ``Store``. An ``owner`` is an idempotency
    key: the same for every attempt of one step in one direction. ``digest`` is the digest of a call's params.
    """

    async def stops(self) -> tuple[int, Mapping[str, str]]:
        """The operator's stops that hold now, texts by scope, and their version, which only grows."""
        ...

    async def set_stop(self, scope: str, entry: str | None) -> Mapping[str, str]:
        """Set or (None) lift a stop, and return those that hold.

        When it returns, every later append of any process to any partition replies with its version. Idempotent.
        Raises ``StopIncomplete`` if some partitions did not get it, because their server does not answer.
        """
        ...

    async def claim(self, tool: str, digest: str, owner: str, ttl_ms: int) -> Claim:
        """Claim a call before it is made, unless another owner has made (or claimed) it within its time.

        A caller that gets another owner's result is recorded as relying on it.
        """
        ...

    async def remember(self, tool: str, digest: str, owner: str, result: bytes, ttl_ms: int) -> None:
        """The claimed call happened, with this result; stored for ``ttl_ms`` from now. Only for the claim's owner."""

    async def forget(self, tool: str, owner: str) -> Sequence[str]:
        """Drop what ``owner`` claimed or made, because it did not happen or is about to be undone.

        Returns the owners that rely on its result; if there are any, nothing is dropped.
        """
        ...

    async def recollect(self, tool: str, owner: str) -> bytes | None:
        """The result of the call that ``owner`` made; None if it is unknown."""
        ...

    async def unrely(self, tool: str, owner: str, relying: str) -> None:
        """``relying`` no longer relies on the result of ``owner``."""

    async def take(self, resource: str, tickets: Sequence[str], ttl_ms: int) -> str:
        """Put tickets in the queue for a resource, in this order, or keep those that are in it alive for ``ttl_ms``.

        A ticket whose call writes (``guards.writes.marked``) is noted at its turn; see ``writes``.
        Returns the ticket whose turn it is: the oldest that is still alive. A ticket that is not kept alive is dropped.
        """
        ...

    async def keep(self, resource: str, tickets: Sequence[str], ttl_ms: int) -> str:
        """Keep those of the tickets alive for ``ttl_ms`` that have a place in the queue; none joins.

        Returns as ``take`` does.
        """
        ...

    async def give(self, resource: str, ticket: str, *, wrote: bool = True) -> str:
        """Leave the queue, as holder or not; returns the ticket whose turn it is then, or an empty text.

        Without ``wrote`` its call was not made, or changed nothing: then it is no write.
        """
        ...

    async def writes(self, resource: str) -> Sequence[Write]:
        """The last hundred writes of a resource, or a few more, the oldest first.

        They begin with the first one of a tool with ``before``, and are kept until 30 days after the last one.
        """
        ...

    async def free(self, resource: str, ticket: str, ttl_ms: int, silent_ms: int) -> str:
        """Drop the ticket of a process that is dead, as far as this one can tell; returns whose turn it is then.

        Not if it was kept alive, for ``ttl_ms``, within the last ``silent_ms``: somebody does that.
        """
        ...

    async def hold(self, resource: str, claim: HoldClaim, ttl_ms: int) -> HoldAnswer:
        """Hold a resource until ``unhold``, or stand in line for it: a ticket keeps its place for ``ttl_ms``.

        No two families hold it at once, unless both read. A family that holds it passes.
        """
        ...

    async def leave(self, resource: str, ticket: str) -> None:
        """Stand in line for it no more."""

    async def unhold(self, resource: str, family: str, saga: str, since_ms: int, ticket: str = "") -> bool:
        """A saga holds a resource no more, if it does so since then; whether it did.

        ``ticket``: only if no other one of its family has been granted it since that one was.
        """
        ...

    async def holds(self) -> Sequence[HeldResource]:
        """Every resource that is held, and who waits for it; of each partition at most a thousand."""
        ...

    async def reserve(self, rate: str, interval_us: int, burst: int, max_wait_ms: int | None) -> int:
        """Reserve the next free moment of a rate limit (GCRA, ITU-T I.371): how many ms to wait from now.

        -1: the wait would be longer than ``max_wait_ms``, and nothing is reserved.
        """
        ...

    async def breakers(self, tools: Sequence[str]) -> Mapping[str, BreakerState]:
        """The breakers of these tools, in one round trip."""
        ...

    async def breaker_trial(self, tool: str, trial_ms: int) -> bool:
        """Be the one trial call; no other call is for ``trial_ms`` or until its outcome is known."""
        ...

    async def breaker_outcome(self, tool: str, *, failed: bool, failures: int, open_ms: int) -> BreakerState:
        """Count an outcome: ``failures`` failures in a row open the breaker for ``open_ms``, a success closes it."""
        ...

    async def count(self, tool: str, counters: Mapping[str, int]) -> None:
        """Add to the statistics of a tool. It is not idempotent, and nothing depends on it."""

    async def counters(self, tools: Sequence[str]) -> Mapping[str, Mapping[str, int]]:
        """The statistics of tools, by name of counter."""
        ...

    async def tally(self, name: str, saga_id: str = "") -> Mapping[str, str]:
        """The entries of a tally: texts by owner; with ``saga_id`` of a tally of that saga."""
        ...

    async def tally_set(self, name: str, owner: str, entry: str | None, ttl_ms: int, saga_id: str = "") -> None:
        """Set or (None) remove an owner's entry; the whole tally is kept for ``ttl_ms`` from now.

        With ``saga_id`` it is kept for as long as the saga, if that is one of this store.
        """

    async def keep_good(self, tool: str, digest: str, result: bytes, ttl_ms: int) -> None:
        """Store the last good result of a read."""

    async def good(self, tool: str, digest: str) -> tuple[bytes, int] | None:
        """The last good result of a read and its age in ms."""
        ...
