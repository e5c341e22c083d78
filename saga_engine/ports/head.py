"""A saga's summary."""

from __future__ import annotations

from typing import NamedTuple


class Head(NamedTuple):
    """A saga's summary, readable without its journal. Times are Unix milliseconds of the store's clock."""

    saga_id: str
    status: str
    epoch: int
    owner: str
    owner_ttl_ms: int  # what remains of the owner's lease; 0: it has ended or there is no owner
    digest: str
    created_ms: int
    changed_ms: int
    length: int
    messages: int
    summary: bytes
    key: bytes = b""  # the wrapped key with which its payloads are sealed; empty: they are not
