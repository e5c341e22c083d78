"""Google ADK: a callback that routes an agent's tool calls through a session.

::

    async with coordinator.session("trip") as session:
        agent = Agent(name="travel", model=model, tools=tools, before_tool_callback=SagaCallback(session))
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from saga_engine.adapters.routing import Offered, Router
from saga_engine.errors import SettingInvalid
from saga_engine.runtime.session import Session

try:
    from google.adk.tools.base_tool import BaseTool
    from google.genai.types import FunctionDeclaration
    from pydantic_core import to_jsonable_python
except ImportError as missing:
    raise SettingInvalid("Google ADK is not installed", hint="pip install 'saga-engine[google-adk]'") from missing


class SagaCallback:
    """Each tool call of the agent is a call of the session; ``options`` are those of ``routing.Router``.

    It is the ``before_tool_callback`` of an agent, and no plugin: ADK gives the errors of plugins another name, and the
    session could not tell that its agent waits for an operator. A call that was not done is the response
    ``{"error": ...}``. What the model cannot mend is raised.
    """

    def __init__(self, session: Session, **options: Any) -> None:
        self._router = Router(session, **options)

    async def __call__(self, tool: Any, args: dict[str, Any], tool_context: Any) -> dict[str, Any]:
        """Make the call in the session; what is returned takes the place of the framework's own call."""

        async def run(params: dict[str, Any]) -> Any:
            return to_jsonable_python(await tool.run_async(args=params, tool_context=tool_context), fallback=str)

        told = await self._router.route(tool.name, (tool.description or "", _schema(tool)), args, run)
        return _response(told.content)


def saga_tools(session: Session, names: Iterable[str] | None = None, **options: Any) -> list[BaseTool]:
    """The coordinator's tools for an agent, all but those that only undo or probe others, or the named ones."""
    return [_SagaTool(each) for each in Router(session, **options).offered(names)]


class _SagaTool(BaseTool):  # type: ignore[misc]
    def __init__(self, offered: Offered) -> None:
        super().__init__(name=offered.name, description=offered.description)
        self._offered = offered

    def _get_declaration(self) -> Any:
        about = self._offered
        return FunctionDeclaration(name=about.name, description=about.description, parameters_json_schema=about.schema)

    async def run_async(self, *, args: dict[str, Any], tool_context: Any) -> Any:  # noqa: ARG002 - the framework's form
        """Make the call in the session."""
        return _response((await self._offered.call(args)).content)


def _response(content: str) -> dict[str, Any]:
    found = msgspec.json.decode(content)
    return found if isinstance(found, dict) else {"result": found}


def _schema(tool: Any) -> dict[str, Any]:
    """The JSON Schema of a tool's parameters, as far as the tool declares it in this form."""
    declaration = tool._get_declaration()  # noqa: SLF001 - the framework's own extension point
    given = None if declaration is None else declaration.parameters_json_schema
    if isinstance(given, dict):
        return given
    found = None if declaration is None else declaration.parameters
    properties: dict[str, Any] = {name: {} for name in (found.properties or {})} if found is not None else {}
    return {"type": "object", "properties": properties}
