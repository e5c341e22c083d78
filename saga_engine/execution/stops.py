"""The operator's stops as they are stored, and how they are read."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from saga_engine.ports import GuardStore

#: The scope of a stop of all calls; others are ``tool:NAME`` and ``saga:ID``.
ALL: Final = "all"


class Stop(NamedTuple):
    """A stop: what it holds, and who said so, when (Unix ms on the operator's clock) and why."""

    scope: str
    by: str = ""
    note: str = ""
    at_ms: int = 0

    def entry(self) -> str:
        """As it is stored."""
        return json.dumps([self.by, self.note, self.at_ms])

    @classmethod
    def of(cls, scope: str, entry: str) -> Stop:
        """From the store. A damaged entry still stops."""
        try:
            by, note, at_ms = json.loads(entry)
            return cls(scope, str(by), str(note), int(at_ms))
        except (ValueError, TypeError):
            return cls(scope, note="(its entry in the store is damaged)")


async def read_stops(store: GuardStore) -> list[Stop]:
    """The stops that hold now."""
    _, found = await store.stops()
    return [Stop.of(scope, entry) for scope, entry in sorted(found.items())]


def scope_of(tool: str | None, saga_id: str | None) -> str:
    """The scope of a stop of one tool, of one saga, or of all calls."""
    return f"tool:{tool}" if tool else f"saga:{saga_id}" if saga_id else ALL
