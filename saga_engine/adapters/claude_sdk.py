"""Claude Agent SDK: the coordinator's tools as an MCP server in the agent's process, and a rewind of what they did.

::

    async with coordinator.session("trip") as session:
        saga = SagaClaude(session)
        options = ClaudeAgentOptions(mcp_servers={"saga": saga.server()}, can_use_tool=saga.permit)
        async with ClaudeSDKClient(options) as client: ...
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from saga_engine.adapters.routing import Offered, Router
from saga_engine.errors import SettingInvalid
from saga_engine.runtime.session import Savepoint, Session

try:
    from claude_agent_sdk import (
        PermissionResultAllow,
        PermissionResultDeny,
        SdkMcpTool,
        create_sdk_mcp_server,
    )
except ImportError as missing:
    raise SettingInvalid(
        "the Claude Agent SDK is not installed", hint="pip install 'saga-engine[claude-sdk]'"
    ) from missing


class SagaClaude:
    """The tools of one conversation, each call a call of the session; ``options`` are those of ``routing.Router``.

    The SDK tells its model every exception of a tool: after one that the model cannot mend the session takes no more
    calls, and leaving its block raises.
    """

    def __init__(self, session: Session, *, name: str = "saga", allow: Iterable[str] = (), **options: Any) -> None:
        self._session = session
        self._router = Router(session, **options)
        self._name = name
        self._allowed = frozenset(allow)
        self._points: dict[str, Savepoint] = {}

    def server(self, names: Iterable[str] | None = None) -> Any:
        """The server for ``mcp_servers``: all tools but those that only undo or probe others, or the named ones."""
        return create_sdk_mcp_server(self._name, tools=[_tool(each) for each in self._router.offered(names)])

    async def permit(self, tool: str, _: Any, __: Any) -> Any:
        """The permission callback: the saga's tools, and Claude's own that are named in ``allow``; no others.

        A call of any other tool would be no part of the session, and nothing would undo it.
        """
        if tool.startswith(f"mcp__{self._name}__") or tool in self._allowed:
            return PermissionResultAllow()
        return PermissionResultDeny(message=f"{tool} is not part of the saga: use the tools of the server {self._name}")

    def mark(self, message_id: str) -> None:
        """Remember the place of a user's message (``UserMessage.uuid``), to which ``rewind`` can return."""
        self._points[message_id] = self._session.savepoint()

    async def rewind(self, client: Any, message_id: str) -> None:
        """Return to a user's message: the client's files, and in reverse what the saga's tools did since.

        The effects come first: if one cannot be undone the files stay. Raises what ``Session.rollback`` raises, and
        ``SettingInvalid`` for a message without a mark.
        """
        if message_id not in self._points:
            raise SettingInvalid(f"there is no mark {message_id[:80]!r}", hint="call mark() for each user's message")
        await self._session.rollback(self._points[message_id])
        await client.rewind_files(message_id)


def _tool(offered: Offered) -> Any:
    async def handle(arguments: dict[str, Any]) -> dict[str, Any]:
        told = await offered.call(arguments)
        return {"content": [{"type": "text", "text": told.content}], "is_error": told.is_error}

    return SdkMcpTool(offered.name, offered.description, offered.schema, handle)
