"""Group commits: the entries of many sagas in few calls, on one server or over the partitions of a cluster."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from zlib import crc32

from redis.exceptions import ResponseError

from saga_engine.ports import Ack, AppendReply
from saga_engine.stores.append_entries import ack_of, failed, options
from saga_engine.stores.cluster import ClusterPool
from saga_engine.stores.connection import refusal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from saga_engine.errors import StoreRefused
    from saga_engine.ports import Entry, StopsSeen
    from saga_engine.stores.client import Calls
    from saga_engine.stores.connection import Argument
    from saga_engine.stores.repair import Mender

#: No single call is larger than this, unless one entry alone is.
_CALL_BYTES: Final = 16 * 1024 * 1024
_OK: Final = Ack("ok")

_Arguments = list["Argument"]
_Keys = list[str]
_Places = list[int]


class Commits:
    """The group commits of a ``RedisStore``.

    ``both``: the keys of a saga's journal and head; ``partitions``: how many the store has; ``seen``: what the replies
    tell of the operator's stops.
    """

    def __init__(
        self,
        calls: Calls,
        mender: Mender,
        seen: StopsSeen,
        *,
        url: str,
        both: Callable[[str], tuple[str, str]],
        partitions: int,
    ) -> None:
        self._calls = calls
        self._appends = calls.journal
        self._mender = mender
        self.stops_seen = seen
        self._url = url
        self._both = both
        self._partitions = partitions

    async def append(self, owner: str, entries: Sequence[Entry]) -> AppendReply:
        """Group commit. Raises ``ValueError`` for an entry that contradicts itself."""
        if self._calls.scattered:
            return await self._append_scattered(owner, entries)
        now_ms = 0
        acks: list[Ack] = []
        damaged: dict[int, StoreRefused] = {}
        for keys, args in self.cut(owner, entries):
            said, *codes = await self._calls.run("append", keys, args, self._appends)
            if len(codes) > len(keys) // 2:
                self.stops_seen.version = max(self.stops_seen.version, codes.pop())
            now_ms = abs(said)
            if said < 0:
                await self._mender.mend(keys)
            if not any(codes):  # almost always
                acks += [_OK] * len(codes)
                continue
            for code in codes:
                if type(code) is list:
                    damaged[len(acks)] = self._damaged(code)
                acks.append(_OK if code == 0 else ack_of(code))
        if not damaged:
            return AppendReply(now_ms, acks)
        if len(damaged) == len(acks):
            raise damaged[0]
        return AppendReply(now_ms, acks, {place: failed(error) for place, error in damaged.items()})

    def _damaged(self, code: Sequence[bytes]) -> StoreRefused:
        """The error for a saga whose keys a foreign writer damaged; other sagas are not affected."""
        return refusal(ResponseError(str(code[0], "utf-8", "replace")), self._url)

    async def _append_scattered(self, owner: str, entries: Sequence[Entry]) -> AppendReply:
        """Group commit on a cluster, complete once the slowest node has answered.

        If one partition is unavailable, the whole commit is: the writer repeats all of it, which is safe.
        """
        now_ms, acks, late = await self.append_apart(owner, entries)
        found = dict(zip(late, await asyncio.gather(*late.values()), strict=True))
        return AppendReply(now_ms, [found.get(place, ack) for place, ack in enumerate(acks)])

    async def append_apart(self, owner: str, entries: Sequence[Entry]) -> AppendReply:
        """See ``ports.Apart.append_apart``."""
        assert isinstance(self._appends, ClusterPool)
        shares: dict[int, _Places] = {}
        for place, entry in enumerate(entries):
            shares.setdefault(crc32(entry.saga_id.encode()) % self._partitions, []).append(place)
        calls, places = [], []
        for share in shares.values():
            at = 0
            for keys, args in self.cut(owner, [entries[place] for place in share]):
                calls.append((keys, args))
                places.append(share[at : at + len(keys) // 2])
                at += len(keys) // 2
        replies = await self._calls.run_each("append", calls or [([], [owner])], self._appends)
        while not any(reply.done() and not reply.exception() for reply in replies):
            pending = [reply for reply in replies if not reply.done()]
            if not pending:
                raise next(error for reply in replies if (error := reply.exception()))
            await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
        for reply, (keys, _) in zip(replies, calls, strict=False):
            reply.add_done_callback(partial(self._mend_late, keys))
        acks = [_OK] * len(entries)
        late: dict[int, asyncio.Future[Ack]] = {}
        now_ms = 0
        for reply, share in zip(replies, places or [[]], strict=True):
            if reply.done() and not reply.exception():
                said, *codes = self._news(reply.result(), len(share))
                now_ms = max(now_ms, abs(said))
                for place, code in zip(share, codes, strict=True):
                    acks[place] = _OK if code == 0 else ack_of(code)
                    if type(code) is list:
                        late[place] = failed(self._damaged(code))
            else:
                for at, place in enumerate(share):
                    acks[place] = Ack("late")
                    late[place] = self._later(reply, at)
        return AppendReply(now_ms, acks, late)

    def _later(self, reply: asyncio.Future[Any], at: int) -> asyncio.Future[Ack]:
        """The ack of the entry at that position in a call whose reply is late or will never arrive."""
        found: asyncio.Future[Ack] = asyncio.get_running_loop().create_future()

        def settle(reply: asyncio.Future[Any]) -> None:
            if reply.cancelled():
                found.cancel()
            elif error := reply.exception():
                found.set_exception(error)
                found.exception()  # a caller that needs it reads it; no caller has to
            else:
                code = reply.result()[at + 1]
                if type(code) is list:
                    found.set_exception(self._damaged(code))
                    found.exception()
                else:
                    found.set_result(_OK if code == 0 else ack_of(code))

        reply.add_done_callback(settle)
        return found

    def _mend_late(self, keys: _Keys, reply: asyncio.Future[Any]) -> None:
        """Mend the partition of these keys, if a group commit has found it damaged."""
        failed = reply.cancelled() or reply.exception()
        if not failed and self._news(reply.result(), len(keys) // 2)[0] < 0:
            self._mender.mend_soon(keys)

    def _news(self, reply: list[Any], count: int) -> list[Any]:
        """The reply to a group commit of so many entries, without the version of the stops, which is remembered."""
        if len(reply) > count + 1:
            self.stops_seen.version = max(self.stops_seen.version, reply.pop())
        return reply

    def cut(self, owner: str, entries: Sequence[Entry]) -> Iterator[tuple[_Keys, _Arguments]]:
        """Cut a group commit into script calls by size: keys and arguments of each."""
        both = self._both
        keys: _Keys = []
        args: _Arguments = [owner]
        size = 0
        for entry in entries:
            saga_id, seq, epoch, records, *others = entry
            more = sum(map(len, records))
            if entry.summary:
                more += len(entry.summary)
            if entry.values:
                more += sum(map(len, entry.values.values()))
            if keys and size + more > _CALL_BYTES:
                yield keys, args
                keys, args, size = [], [owner], 0
            size += more
            keys += both(saga_id)
            if any(others):
                args += (epoch, seq, len(records), *options(entry))
            else:
                args += (epoch, seq, len(records), b"")
            args += records
        yield keys, args
