"""A saga's summary."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from saga_engine.core.views import HeadView


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

    def told(self) -> dict[str, Any]:
        """The summary; empty if there is none that can be read: another engine may have written it."""
        try:
            found = json.loads(self.summary or b"{}")
        except ValueError:
            return {}
        return found if isinstance(found, dict) else {}

    def view(self) -> HeadView:
        """The saga in a list."""
        from saga_engine.core.views import HeadView  # a table of sagas needs it for nothing

        return HeadView(
            saga_id=self.saga_id,
            status=self.status,
            created_ms=self.created_ms,
            changed_ms=self.changed_ms,
            owner=self.owner if self.owner_ttl_ms > 0 else None,
            records=self.length,
            waiting_messages=self.messages,
            summary=self.told(),
        )


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
