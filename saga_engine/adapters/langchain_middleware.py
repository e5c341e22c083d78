"""LangChain and LangGraph: a middleware that routes an agent's tool calls through a session (extra ``langchain``).

::

    async with coordinator.session("trip") as session:
        agent = create_agent(model, tools, middleware=[SagaMiddleware(session)])
        await agent.ainvoke(question)
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from saga_engine.adapters.routing import Handler, Router
from saga_engine.adapters.sync import SyncSession
from saga_engine.errors import SettingInvalid
from saga_engine.runtime.session import Session

try:
    from langchain.agents.middleware import AgentMiddleware
    from langchain_core.messages import ToolMessage
    from langchain_core.utils.function_calling import convert_to_openai_tool
    from pydantic_core import to_jsonable_python
except ImportError as missing:
    raise SettingInvalid("LangChain is not installed", hint="pip install 'saga-engine[langgraph]'") from missing


class SagaMiddleware(AgentMiddleware):  # type: ignore[misc]  # untyped where LangChain is not installed
    """Each tool call of the agent is a call of the session; ``options`` are those of ``routing.Router``.

    A call that was not done is a ``ToolMessage`` with the status ``error``. What the model cannot mend is raised. A
    ``SyncSession`` is for an agent that is invoked without ``await``.
    """

    def __init__(self, session: Session | SyncSession, **options: Any) -> None:
        super().__init__()
        self._sync = session if isinstance(session, SyncSession) else None
        self._router = Router(session.session if isinstance(session, SyncSession) else session, **options)

    async def awrap_tool_call(self, request: Any, handler: Callable[[Any], Awaitable[Any]]) -> Any:
        """Make the call in the session."""

        async def run(_: dict[str, Any]) -> Any:
            return _output(await handler(request))

        return await self._routed(request, run)

    def wrap_tool_call(self, request: Any, handler: Callable[[Any], Any]) -> Any:
        """Make the call in the session, from a thread."""
        sync = self._sync
        if sync is None:
            raise SettingInvalid("the agent blocks, and its session does not", hint="use ainvoke, or sync_session")

        async def run(_: dict[str, Any]) -> Any:
            import asyncio

            return _output(await asyncio.to_thread(handler, request))

        return sync.run(lambda: self._routed(request, run))

    async def _routed(self, request: Any, run: Handler) -> Any:
        call, tool = request.tool_call, request.tool
        about: tuple[str, dict[str, Any]] = ("", {"type": "object"})
        if tool is not None:
            found = convert_to_openai_tool(tool)["function"]
            about = (found.get("description", ""), found.get("parameters") or {"type": "object", "properties": {}})
        told = await self._router.route(call["name"], about, call["args"], run)
        status = "error" if told.is_error else "success"
        return ToolMessage(told.content, tool_call_id=call["id"], name=call["name"], status=status)


def _output(message: Any) -> Any:
    """What a handler's message says; an error is raised, so that it counts as one."""
    content = getattr(message, "content", message)
    if getattr(message, "status", "success") == "error":
        from saga_engine.errors import ToolError

        raise ToolError(str(content))
    return to_jsonable_python(content, fallback=str)
