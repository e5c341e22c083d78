"""The wrapped keys with which payloads are sealed, in the store."""

from __future__ import annotations

from typing import Protocol


class SealStore(Protocol):
    """The wrapped key of each saga whose payloads are sealed, and that of the store itself.

    The store neither reads nor makes a key: ``Creation.key`` comes with a saga, and ``Head.key`` shows it. Both verbs
    are safe to repeat and raise ``StoreUnavailable`` and ``StoreRefused`` like those of ``Store``.
    """

    #: The store's own wrapped key, as ``Store.open`` found it; empty: it has none.
    found: bytes

    async def replace(self, saga_id: str, old: bytes, new: bytes) -> bytes | None:
        """Replace the wrapped key of a saga (empty: of the store) if it is ``old`` (empty: there is none).

        Returns the one that is there now: another one if somebody else was faster, and None if there is no such saga.
        """
        ...

    async def erase(self, saga_id: str, summary: bytes) -> bool | None:
        """Remove the wrapped key of a saga that has ended, and replace its summary.

        Its values, messages and tallies, its terms and the digest of its plan are removed as well; its records stay.
        False: it has not ended; None: there is no such saga.
        """
        ...
