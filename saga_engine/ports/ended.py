"""Ended sagas: which are old, and how they leave the store."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from saga_engine.ports.head import Head


class Aged(NamedTuple):
    """A piece of the sagas that ended long ago. ``looked``: how many entries of the index it stands for."""

    now_ms: int
    heads: Sequence[Head]
    looked: int


class EndedStore(Protocol):
    """The sagas of a store that have ended. All verbs are safe to repeat; they raise what those of ``Store`` raise."""

    @property
    def count(self) -> int:
        """How many partitions the store has."""
        ...

    async def aged(self, partition: int, status: str, age_ms: int, skip: int, limit: int) -> Aged:
        """Sagas of a final status that ended ``age_ms`` ago or earlier, the first to end in front.

        ``skip``: how many of them to pass over. The store's clock counts.
        """
        ...

    async def hold(self, partition: int, limit: int) -> int:
        """Keep sagas that would expire by themselves (``Entry.keep_ms``) until they are purged; returns how many.

        Fewer than ``limit``: there are no more for now.
        """
        ...

    async def purge(self, head: Head) -> bool | None:
        """Remove a saga with everything that the store has of it, if it is as ``head`` says; None: it is not there.

        False: it is taken, has changed, or has not ended, and nothing was removed. The memory of guards stays.
        """
        ...

    async def reserved(self, saga_id: str) -> bool:
        """Whether the id is reserved for a saga that has not begun (``Store.reserve``)."""
        ...
