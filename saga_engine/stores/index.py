"""The index of sagas by status: those that changed last, and all of them page by page."""

from __future__ import annotations

import heapq
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any

from saga_engine.ports import PagePlace

if TYPE_CHECKING:
    from saga_engine.stores.work import Spread

#: (changed_ms, saga_id, the status under whose index it was found)
Candidate = tuple[int, str, str]
#: About so many sagas are on a page.
_PAGE = 500


async def latest(spread: Spread, tags: Sequence[str], statuses: Sequence[str], limit: int) -> Sequence[Candidate]:
    """Those that changed last."""
    merged: Sequence[Candidate] = ()
    for status in statuses:
        keys = [(f"{tag}index:{status}",) for tag in tags]
        flat = [item for reply in await spread("index", keys, [limit]) for item in reply]
        ids = (str(saga_id, "utf-8") for saga_id in flat[::2])
        found = [(int(score), saga_id, status) for score, saga_id in zip(flat[1::2], ids, strict=True)]
        merged = heapq.nlargest(limit, [*merged, *found])
    return merged


async def scanned(
    plain: Callable[..., Awaitable[Any]], tags: Sequence[str], status: str, at: PagePlace
) -> tuple[Sequence[Candidate], PagePlace | None]:
    """Those from ``at`` on, and where to go on; None: that was all."""
    partition, cursor = at
    found: list[Candidate] = []
    # Small partitions share a page.
    while len(found) < _PAGE:
        cursor_said, flat = await plain("ZSCAN", f"{tags[partition]}index:{status}", cursor, "COUNT", _PAGE)
        cursor = str(cursor_said, "utf-8") if isinstance(cursor_said, bytes) else str(cursor_said)
        # (Clients differ in whether they pair them.)
        pairs = flat if flat and isinstance(flat[0], tuple | list) else zip(flat[::2], flat[1::2], strict=True)
        found += [(int(float(score)), str(saga_id, "utf-8"), status) for saga_id, score in pairs]
        if cursor == "0":
            partition += 1
            if partition == len(tags):
                return found, None
    return found, (partition, cursor)
