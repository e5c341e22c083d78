"""pydantic-ai: a capability that routes an agent's tool calls through a session (extra ``pydantic-ai``).

::

    async with coordinator.session("trip") as session:
        await agent.run(question, capabilities=[SagaCapability(session)])
"""

from __future__ import annotations

from typing import Any

from saga_engine.adapters.routing import Router
from saga_engine.errors import SettingInvalid, ToolError
from saga_engine.runtime.session import Session

try:
    from pydantic_ai import ModelRetry
    from pydantic_ai.capabilities import AbstractCapability
    from pydantic_ai.exceptions import ToolFailed
    from pydantic_core import to_jsonable_python
except ImportError as missing:
    raise SettingInvalid("pydantic-ai is not installed", hint="pip install 'saga-engine[pydantic-ai]'") from missing


class SagaCapability(AbstractCapability[Any]):
    """Each tool call of the agent is a call of the session; ``options`` are those of ``routing.Router``.

    A call that was not done is a failed tool result (``ToolFailed``). What the model cannot mend is raised.
    """

    def __init__(self, session: Session, **options: Any) -> None:
        self._router = Router(session, **options)

    async def wrap_tool_execute(self, ctx: Any, *, call: Any, tool_def: Any, args: Any, handler: Any) -> Any:  # noqa: ARG002 - the framework's form
        """Make the call in the session."""

        async def run(_: dict[str, Any]) -> Any:
            try:
                return to_jsonable_python(await handler(args), fallback=str)
            except (ModelRetry, ToolFailed) as refused:
                raise ToolError(refused.message) from refused

        about = (tool_def.description or "", tool_def.parameters_json_schema)
        told = await self._router.route(call.tool_name, about, to_jsonable_python(args, fallback=str), run)
        if told.is_error:
            raise ToolFailed(told.content)
        return told.content
