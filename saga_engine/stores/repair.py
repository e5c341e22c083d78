"""Repairs partitions that a foreign writer damaged: sets keys aside and rebuilds them from the heads (``mend.lua``).

A foreign writer is another program that writes to the keys of the store. No call searches for damage: a call that meets
it fails, the partition is mended, and the call is repeated.
"""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Any, Final, TypeVar

from saga_engine.core.states import SAGA_STATES
from saga_engine.errors import SagaError, StoreRefused
from saga_engine.loggers import logger_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence

    from saga_engine.stores.client import Calls
    from saga_engine.stores.cluster import ClusterPool
    from saga_engine.stores.connection import Argument, Pool

_T = TypeVar("_T")
_log = logger_of("saga_engine.stores")

#: The maximum number of attempts of a call: after one mending it may meet the next damaged key.
_TRIES: Final = 3
#: How many keys one call reads while a partition is rebuilt: it blocks the server for some milliseconds at most.
_KEYS_PER_LOOK: Final = 1000
#: The tag of a partition, at the start of its keys.
_TAG: Final = re.compile(r"[^{]*\{p\d+\}:")


class Mender:
    """The calls of a store; mends partitions whose keys have a wrong type."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls
        self._mending = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(
        self, name: str, keys: Sequence[Argument], args: Sequence[Argument], pool: Pool | ClusterPool | None = None
    ) -> Any:
        """See ``Calls.run``."""
        return await self._mended(keys, lambda: self._calls.run(name, keys, args, pool))

    async def spread(
        self,
        name: str,
        keys_by_tag: Sequence[Sequence[str]],
        args: Sequence[Argument],
        instead: Sequence[Sequence[Argument]] | None = None,
    ) -> list[Any]:
        """See ``Calls.spread``."""
        keys = [group[0] for group in keys_by_tag]
        return await self._mended(keys, lambda: self._calls.spread(name, keys_by_tag, args, instead))

    async def plain(self, *args: Argument) -> Any:
        """See ``Calls.plain``."""
        return await self._mended(args[1:2], lambda: self._calls.plain(*args))

    async def _mended(self, keys: Sequence[Argument], call: Callable[[], Awaitable[_T]]) -> _T:
        for tried in range(1, _TRIES):
            try:
                return await call()
            except StoreRefused as error:
                if error.context.get("reason") != "WRONGTYPE" or not _tags(keys):
                    raise
                # Another process may have mended it a moment ago: then nothing is wrong any more.
                if not await self.mend(keys) and tried > 1:
                    raise
        return await call()

    # --- mending ---

    async def find(self, tags: Iterable[str]) -> Sequence[tuple[str, str]]:
        """The damage in partitions: ``wrong`` or ``aside`` and the key, ``unfinished`` and the key of the owners."""
        return await self._survey("look", tags)

    async def mend(self, keys: Iterable[Argument]) -> bool:
        """Mend the partitions of these keys; returns whether there was anything to mend."""
        return await self._mend(keys) is not None

    async def _mend(self, keys: Iterable[Argument], *, whole: bool = False) -> Sequence[str] | None:
        """The sagas that have lost their terms, as far as partitions were mended; None: there was nothing to mend.

        ``whole``: rebuild each of these partitions, also one that another has just finished.
        """
        tags = _tags(keys)
        async with self._mending:
            found = await self._survey("aside", tags)
            for word, key in found:
                if word == "wrong":
                    _log.error(
                        "%s had a wrong type: another program wrote there. It is set aside under damaged:, and rebuilt",
                        key,
                    )
            unfinished = [f"{tag}owners" for tag in tags if whole or ("unfinished", f"{tag}owners") in found]
            lost: dict[str, None] = {}  # SCAN may come to a key twice
            for owners in unfinished:
                cursor: Argument = "0"
                while True:
                    ((cursor, *ids),) = await self._calls.spread(
                        "mend", [(owners,)], ["rebuild", cursor, _KEYS_PER_LOOK]
                    )
                    lost |= dict.fromkeys(str(saga_id, "utf-8", "replace") for saga_id in ids)
                    if cursor == b"0":
                        break
            return list(lost) if unfinished else None

    async def rebuild(self, tags: Sequence[str]) -> Sequence[str]:
        """Rebuild the indexes of these partitions, whatever is missing there. They may be used meanwhile.

        Returns the sagas that have lost their terms, which only their journals tell.
        """
        await self._calls.spread("mend", [(f"{tag}owners",) for tag in tags], ["mark"])
        # An audit that mends at this moment, here or elsewhere, may finish what is marked, and asks for no lost terms.
        return await self._mend((f"{tag}owners" for tag in tags), whole=True) or ()

    def mend_soon(self, keys: Iterable[Argument]) -> None:
        """Mend them in the background."""
        task = asyncio.create_task(self._mend_quietly(list(keys)), name="saga-mending")
        if not task.done():
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Wait for mending in progress."""
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _mend_quietly(self, keys: Sequence[Argument]) -> None:
        try:
            await self.mend(keys)
        except SagaError as error:
            _log.error("damaged keys of a partition could not be mended yet: %s", error)

    async def _survey(self, verb: str, tags: Iterable[str]) -> Sequence[tuple[str, str]]:
        keys = [(f"{tag}owners",) for tag in tags]
        found: list[tuple[str, str]] = []
        for reply in await self._calls.spread("mend", keys, [verb, *SAGA_STATES]):
            words = [str(item, "utf-8", "replace") for item in reply]
            found += zip(words[::2], words[1::2], strict=True)
        return found


def _tags(keys: Iterable[Argument]) -> Sequence[str]:
    """The tags of the partitions of these keys."""
    found = (_TAG.match(key if isinstance(key, str) else str(key)) for key in keys)
    return list(dict.fromkeys(match[0] for match in found if match))
