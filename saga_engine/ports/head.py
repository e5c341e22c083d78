"""A saga's summary."""

from __future__ import annotations

from typing import Any, NamedTuple


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


def tombstone_of(summary: bytes) -> dict[str, Any] | None:
    """Who erased the saga with this summary, why and when; None: nobody did."""
    if b'"erased"' not in summary:
        return None
    import msgspec  # a list of sagas needs it for nothing else

    try:
        found = msgspec.json.decode(summary).get("erased")
    except (msgspec.MsgspecError, UnicodeDecodeError, AttributeError):
        return None
    return found if isinstance(found, dict) else None
