"""What the tests of calls share."""

from __future__ import annotations

from typing import Any

from saga_engine.ports import Call
from saga_engine.tools.registry import ToolRegistry

#: Long enough never to matter, short enough not to hang a broken build for ever.
PATIENCE_S = 120.0


def a_call(**changes: Any) -> Call:
    """A call with plain values."""
    base = Call(
        saga_id="saga",
        step_id="2",
        direction="forward",
        attempt=3,
        idempotency_key="key-1",
        epoch=7,
        deadline_ms=None,
        timeout_s=PATIENCE_S,
    )
    return base._replace(**changes)


async def call(made: Any, params: dict[str, Any] | None = None, **changes: Any) -> Any:
    """Register one tool and call it once."""
    registry = ToolRegistry(made)
    return await registry.call(registry.names()[0], params or {}, a_call(**changes))
