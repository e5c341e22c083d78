"""Strands Agents: hooks that route an agent's tool calls through a session.

::

    async with coordinator.session("trip") as session:
        agent = Agent(model=model, tools=tools, hooks=[SagaHooks(session)])
        await agent.invoke_async(question)
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable
from typing import Any

from saga_engine.adapters.routing import Offered, Router
from saga_engine.errors import SettingInvalid, ToolError
from saga_engine.runtime.session import Session

try:
    from pydantic_core import to_jsonable_python
    from strands.hooks import BeforeToolCallEvent, HookProvider, HookRegistry
    from strands.types._events import ToolResultEvent
    from strands.types.tools import AgentTool
except ImportError as missing:
    raise SettingInvalid("Strands Agents is not installed", hint="pip install 'saga-engine[strands]'") from missing


class SagaHooks(HookProvider):  # type: ignore[misc]  # untyped where Strands is not installed
    """Each tool call of the agent is a call of the session; ``options`` are those of ``routing.Router``.

    A call that was not done is a result with the status ``error``. Strands tells its model every exception of a tool:
    after one that the model cannot mend the session takes no more calls, and leaving its block raises.
    """

    def __init__(self, session: Session, **options: Any) -> None:
        self._router = Router(session, **options)

    def register_hooks(self, registry: HookRegistry, **_: Any) -> None:
        """Stand before each tool call."""
        registry.add_callback(BeforeToolCallEvent, self._before)

    def _before(self, event: Any) -> None:
        if event.selected_tool is not None and not isinstance(event.selected_tool, _Routed):
            event.selected_tool = _Routed(self._router, event.selected_tool)


def saga_tools(session: Session, names: Iterable[str] | None = None, **options: Any) -> list[AgentTool]:
    """The coordinator's tools for an agent, all but those that only undo or probe others, or the named ones."""
    router = Router(session, **options)
    return [_Routed(router, _Declared(each)) for each in router.offered(names)]


class _Declared:
    """A tool of the coordinator as Strands specifies it."""

    tool_type = "saga"

    def __init__(self, offered: Offered) -> None:
        self.tool_name = offered.name
        schema = {"json": offered.schema}
        self.tool_spec = {"name": offered.name, "description": offered.description, "inputSchema": schema}


class _Routed(AgentTool):  # type: ignore[misc]
    def __init__(self, router: Router, inner: Any) -> None:
        super().__init__()
        self._router = router
        self._inner = inner

    @property
    def tool_name(self) -> str:
        return str(self._inner.tool_name)

    @property
    def tool_spec(self) -> Any:
        return self._inner.tool_spec

    @property
    def tool_type(self) -> str:
        return str(self._inner.tool_type)

    async def stream(self, tool_use: Any, invocation_state: dict[str, Any], **more: Any) -> AsyncGenerator[Any, None]:
        async def run(params: dict[str, Any]) -> Any:
            last: Any = None
            async for event in self._inner.stream({**tool_use, "input": params}, invocation_state, **more):
                last = event
            return _output(last)

        spec = self.tool_spec
        about = (spec.get("description", ""), spec["inputSchema"].get("json", {"type": "object"}))
        told = await self._router.route(self.tool_name, about, tool_use["input"], run)
        status = "error" if told.is_error else "success"
        yield ToolResultEvent(
            {"toolUseId": tool_use["toolUseId"], "status": status, "content": [{"text": told.content}]}
        )


def _output(event: Any) -> Any:
    """What a tool's last event says; an error is raised, so that it counts as one."""
    result = getattr(event, "tool_result", event)
    blocks = result.get("content", []) if isinstance(result, dict) else [{"json": result}]
    found = [block.get("json", block.get("text")) for block in blocks]
    if isinstance(result, dict) and result.get("status") == "error":
        raise ToolError(" ".join(map(str, found)))
    return to_jsonable_python(found[0] if len(found) == 1 else found, fallback=str)
