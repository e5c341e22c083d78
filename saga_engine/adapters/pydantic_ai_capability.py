"""pydantic-ai: a capability that routes an agent's tool calls through a session (extra ``pydantic-ai``).

::

    async with coordinator.session("trip") as session:
        await agent.run(question, capabilities=[SagaCapability(session)])
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from saga_engine.adapters.routing import Router
from saga_engine.errors import SettingInvalid, ToolError
from saga_engine.runtime.session import Session

try:
    from pydantic_ai import ModelRetry
    from pydantic_ai.capabilities import AbstractCapability
    from pydantic_ai.exceptions import ApprovalRequired, CallDeferred, ToolFailed
    from pydantic_core import to_jsonable_python
except ImportError as missing:
    raise SettingInvalid("pydantic-ai is not installed", hint="pip install 'saga-engine[pydantic-ai]'") from missing

#: What a tool raises so that its agent ends and asks: its call was not made, also when it is answered from the journal.
_DEFERRED: Final = {"approval_required": ApprovalRequired, "call_deferred": CallDeferred}


class SagaCapability(AbstractCapability[Any]):
    """Each tool call of the agent is a call of the session; ``options`` are those of ``routing.Router``.

    A call that was not done is a failed tool result (``ToolFailed``). What the model cannot mend is raised, and so are
    ``ApprovalRequired`` and ``CallDeferred`` of a tool.
    """

    def __init__(self, session: Session, **options: Any) -> None:
        self._router = Router(session, **options)

    async def wrap_tool_execute(self, ctx: Any, *, call: Any, tool_def: Any, args: Any, handler: Any) -> Any:  # noqa: ARG002 - the framework's form
        """Make the call in the session."""
        held: list[Exception] = []

        async def run(_: dict[str, Any]) -> Any:
            try:
                return to_jsonable_python(await handler(args), fallback=str)
            except (ModelRetry, ToolFailed) as refused:
                raise ToolError(refused.message) from refused
            except (ApprovalRequired, CallDeferred) as deferred:
                held.append(deferred)
                code = "approval_required" if isinstance(deferred, ApprovalRequired) else "call_deferred"
                raise ToolError("it was put off, and not made", error_code=code) from deferred

        about = (tool_def.description or "", tool_def.parameters_json_schema)
        told = await self._router.route(call.tool_name, about, to_jsonable_python(args, fallback=str), run)
        if told.is_error:
            kind = _DEFERRED.get(msgspec.json.decode(told.content)["error"]["code"])
            if kind is not None:
                raise held[0] if held else kind()
            raise ToolFailed(told.content)
        return told.content
