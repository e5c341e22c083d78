"""The indexes of sagas. By status: the most recently changed ones, and all of them page by page. By terms: a search.

The search index of a partition is rebuilt from the sagas' own terms if it is damaged (``mend.lua``).
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

from saga_engine.ports import PagePlace, SearchPlace

if TYPE_CHECKING:
    from saga_engine.ports import Query
    from saga_engine.stores.repair import Mender

#: (changed_ms, saga_id, the status under whose index it was found)
Candidate = tuple[int, str, str]
#: About so many sagas are on a page.
_PAGE = 500
#: The terms that the store itself knows: of every saga, and of those with an open question.
ANY: Final = "*"
ASKS: Final = "?"
#: Candidates that one call looks at in a partition, and calls for one page.
_LOOKS: Final = 2000
_CALLS: Final = 16
_LATEST_MS: Final = 10**13 - 1


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


async def sought(
    mender: Mender, tags: Sequence[str], query: Query, after: SearchPlace | None
) -> tuple[Sequence[Candidate], SearchPlace | None]:
    """The sagas that fit, as ``Store.search`` pages through them; the status of a candidate is empty."""
    terms = [*query.terms, *([ASKS] if query.asks else ())] or [ANY]
    before = b"" if after is None else _place(*after)
    if after is None and query.until_ms is not None:
        before = _place(max(query.until_ms + 1, 0), "")
    keys = [(f"{tag}owners",) for tag in tags]
    for _ in range(_CALLS):
        since = f"{min(max(query.since_ms, 0), _LATEST_MS):013d}"
        # The sagas of a page lie evenly in the partitions; what a full page needs beyond that is asked for again.
        share = min(query.limit, 2 * query.limit // len(tags) + 16)
        args = [share, _LOOKS, before, since, ",".join(query.statuses), *terms]
        parts = [part for reply in await mender.spread("search", keys, args) for part in reply]
        places = [b"%b\0%b" % pair for part in parts for pair in zip(part[1::2], part[2::2], strict=True)]
        # Above the highest of the places at which a partition stopped, nothing is missing.
        horizon = max(part[0] for part in parts)
        certain = sorted((place for place in places if place >= horizon), reverse=True)
        page = certain[: query.limit]
        before = page[-1] if len(certain) > query.limit else horizon
        if page or not before:
            break
    found = [_split(place) for place in page]
    return [(created, saga_id, "") for created, saga_id in found], _split(before) if before else None


def _place(created_ms: int, saga_id: str) -> bytes:
    return f"{min(created_ms, _LATEST_MS):013d}\0{saga_id}".encode()


def _split(place: bytes) -> SearchPlace:
    created, _, saga_id = place.partition(b"\0")
    return int(created), str(saga_id, "utf-8", "replace")


def _candidates(pairs: Iterable[tuple[bytes, bytes | float]], status: str) -> list[Candidate]:
    """Ids that may be sagas: a foreign writer may have added other members."""
    found = []
    for raw, score in pairs:
        saga_id, changed_ms = str(raw, "utf-8", "replace"), float(score)
        if saga_id.encode() == raw:
            found.append((int(changed_ms) if abs(changed_ms) < 2**63 else 0, saga_id, status))
    return found
