"""The index of sagas by status: the most recently changed ones, and all of them page by page."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from saga_engine.ports import PagePlace

if TYPE_CHECKING:
    from saga_engine.stores.repair import Mender

#: (changed_ms, saga_id, the status under whose index it was found)
Candidate = tuple[int, str, str]
#: About so many sagas are on a page.
_PAGE = 500


async def latest(mender: Mender, tags: Sequence[str], statuses: Sequence[str], limit: int) -> Sequence[Candidate]:
    """The most recently changed sagas."""
    merged: Sequence[Candidate] = ()
    for status in statuses:
        keys = [(f"{tag}index:{status}",) for tag in tags]
        flat = [item for reply in await mender.spread("index", keys, [limit]) for item in reply]
        found = _candidates(zip(flat[::2], flat[1::2], strict=True), status)
        merged = heapq.nlargest(limit, [*merged, *found])
    return merged


async def scanned(
    mender: Mender, tags: Sequence[str], status: str, at: PagePlace
) -> tuple[Sequence[Candidate], PagePlace | None]:
    """The sagas from ``at`` on, and where to continue; None: that was all."""
    partition, cursor = at
    found: list[Candidate] = []
    # Small partitions share a page.
    while len(found) < _PAGE:
        cursor_said, flat = await mender.plain("ZSCAN", f"{tags[partition]}index:{status}", cursor, "COUNT", _PAGE)
        cursor = str(cursor_said, "utf-8") if isinstance(cursor_said, bytes) else str(cursor_said)
        # (Clients differ in whether they pair them.)
        pairs = flat if flat and isinstance(flat[0], tuple | list) else zip(flat[::2], flat[1::2], strict=True)
        found += _candidates(pairs, status)
        if cursor == "0":
            partition += 1
            if partition == len(tags):
                return found, None
    return found, (partition, cursor)


def _candidates(pairs: Iterable[tuple[bytes, bytes | float]], status: str) -> list[Candidate]:
    """Ids that may be sagas: a foreign writer may have added other members."""
    found = []
    for raw, score in pairs:
        saga_id, changed_ms = str(raw, "utf-8", "replace"), float(score)
        if saga_id.encode() == raw:
            found.append((int(changed_ms) if abs(changed_ms) < 2**63 else 0, saga_id, status))
    return found
