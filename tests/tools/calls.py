"""What the tests of calls share."""

from __future__ import annotations

from typing import Any

from saga_engine.core.effects import Unknown
from saga_engine.plan.tool_spec import ToolSpec
from saga_engine.ports import Call
from saga_engine.tools.decorator import Tool
from saga_engine.tools.registry import ToolRegistry

#: Long enough never to matter, short enough not to hang a broken build for ever.
PATIENCE_S = 120.0
#: Only ever the time of a call that is meant to overrun it.
SHORT_S = 0.001


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


def is_timeout(outcome: Any) -> bool:
    """Whether a call overran its time."""
    return isinstance(outcome, Unknown) and outcome.error.error_code == "timeout"


def spec_of(made: Any) -> ToolSpec:
    """The declaration of one tool."""
    spec = ToolRegistry(made).spec(made.name if isinstance(made, Tool) else made.__name__)
    assert spec is not None
    return spec
