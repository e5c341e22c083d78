"""The lease of a process beside the journals: a key with a TTL in each partition, timed by the server's clock.

On one server it is valid or ended as a whole. On a cluster each partition has its own part, so that an unavailable
server affects only its own partitions.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any

from saga_engine.errors import StoreRefused, StoreUnavailable
from saga_engine.ports import Begun, Renewal, Renewals
from saga_engine.stores.cluster import ClusterPool

if TYPE_CHECKING:
    from collections.abc import Sequence

    from saga_engine.ports import Apart
    from saga_engine.stores.client import Calls
    from saga_engine.stores.repair import Mender


class RedisLeases:
    """The leases of a ``RedisStore``; ``tags`` are the partitions."""

    def __init__(self, calls: Calls, mender: Mender, tags: Sequence[str]) -> None:
        self._calls = calls
        self._mender = mender
        self._tags = tags

    async def open(self, owner: str, ttl_ms: int, partitions: Sequence[int] | None = None, note: bytes = b"") -> int:
        """See ``ports.Store.open_lease``.

        On a cluster the time is that of the primary whose clock is ahead, so that the store's time never goes back.
        Leases do not depend on it: each primary keeps the remaining time in its partitions, and the owner counts its
        lease from before it sent this call. Differing clocks make deadlines early by the difference, and weaken no
        fence.
        """
        keys = [(f"{tag}lease:{owner}", f"{tag}owners") for tag in self._chosen(partitions)]
        return int(max(await self._mender.spread("open_lease", keys, [ttl_ms, owner, note])))

    async def open_apart(self, owner: str, ttl_ms: int, note: bytes = b"") -> Begun:
        """See ``ports.Apart.open_apart``. The time is as in ``open``, of the primaries that answer."""
        pool = self._calls.others
        assert isinstance(pool, ClusterPool)
        keys = [(f"{tag}lease:{owner}", f"{tag}owners") for tag in self._tags]
        replies = await self._calls.run_each("open_lease", [(group, [ttl_ms, owner, note]) for group in keys], pool)
        while all(map(_unavailable, replies)):
            pending = [reply for reply in replies if not reply.done()]
            if not pending:
                raise next(error for reply in replies if (error := reply.exception()))
            await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
        times: dict[int, int] = {}
        for number, (reply, group) in enumerate(zip(replies, keys, strict=True)):
            if _unavailable(reply):
                continue
            try:
                times[number] = reply.result()
            except StoreRefused:  # it repairs what a foreign writer damaged
                (times[number],) = await self._mender.spread("open_lease", [group], [ttl_ms, owner, note])
        return Begun(max(times.values()), tuple(times))

    async def renew(self, owner: str, ttl_ms: int) -> Renewal:
        """See ``ports.Store.renew``. The time is as in ``open``."""
        keys, leases = self._renewing(owner, ttl_ms, self._tags)
        return _merged(await self._mender.spread("renew", keys, [ttl_ms], leases))

    async def renew_apart(self, owner: str, ttl_ms: int, partitions: Sequence[int]) -> Renewals:
        """See ``ports.Apart.renew_apart``."""
        pool = self._calls.renewals
        assert isinstance(pool, ClusterPool)
        keys, leases = self._renewing(owner, ttl_ms, [self._tags[number] for number in partitions])
        replies = await self._calls.run_each("renew", [(group, [ttl_ms]) for group in keys], pool, leases)
        found: dict[int, Renewal] = {}
        late: dict[int, asyncio.Future[Renewal]] = {}
        for number, reply, group, lease in zip(partitions, replies, keys, leases, strict=True):
            if reply.done() and not reply.exception():
                found[number] = _merged([reply.result()])
            else:
                again = partial(self._mender.spread, "renew", [group], [ttl_ms], [lease])
                late[number] = asyncio.ensure_future(_later(reply, again))
        return Renewals(found, late)

    async def close(self, owner: str, *, clean: bool, partitions: Sequence[int] | None = None) -> None:
        """See ``ports.Store.close_lease``."""
        chosen = self._chosen(partitions)
        keys = [(f"{tag}lease:{owner}", f"{tag}wake:{owner}", f"{tag}owners") for tag in chosen]
        await self._mender.spread("close_lease", keys, [owner, int(clean)])

    def _chosen(self, partitions: Sequence[int] | None) -> Sequence[str]:
        return self._tags if partitions is None else [self._tags[number] for number in partitions]

    def _renewing(
        self, owner: str, ttl_ms: int, tags: Sequence[str]
    ) -> tuple[list[tuple[str, str]], list[tuple[bytes, str, int]]]:
        """The keys of each partition, and the plain command for one whose slot is on its way.

        A lease must not end because its slot is slow to migrate; a later renewal finds the messages.
        """
        keys = [(f"{tag}lease:{owner}", f"{tag}wake:{owner}") for tag in tags]
        return keys, [(b"PEXPIRE", lease, ttl_ms) for lease, _ in keys]


def _merged(found: Sequence[Any]) -> Renewal:
    replies: Sequence[Any] = [[0, reply] if isinstance(reply, int) else reply for reply in found]
    wakes = [str(wake, "utf-8") for reply in replies for wake in reply[2:]]
    return Renewal(max(reply[0] for reply in replies), all(reply[1] == 1 for reply in replies), wakes)


def _unavailable(reply: asyncio.Future[Any]) -> bool:
    """Whether its server has not answered, so far or at all."""
    return not reply.done() or isinstance(reply.exception(), StoreUnavailable)


async def _later(reply: asyncio.Future[Any], again: partial[Any]) -> Renewal:
    try:
        return _merged([await reply])
    except StoreRefused:
        return _merged(await again())  # it repairs what a foreign writer damaged


async def renewed_anywhere(store: Apart, owner: str, ttl_ms: int, partitions: Sequence[int]) -> Renewal:
    """Renew the lease wherever possible; ``only`` names the partitions, unless it was everywhere."""
    renew_apart = store.renew_apart
    if renew_apart is None:
        return await store.renew(owner, ttl_ms)
    renewals = await renew_apart(owner, ttl_ms, partitions)
    late = await asyncio.gather(*renewals.late.values(), return_exceptions=True)
    found = dict(renewals.found)
    found |= {number: each for number, each in zip(renewals.late, late, strict=True) if isinstance(each, Renewal)}
    alive = [number for number, each in found.items() if each.alive]
    now_ms = max((each.now_ms for each in found.values()), default=0)
    return Renewal(now_ms, bool(alive), [wake for each in found.values() for wake in each.wakes], tuple(alive))
