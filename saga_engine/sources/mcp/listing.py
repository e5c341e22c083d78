"""What a server lists: each tool checked alone, so that one that cannot be read costs no other one its calls.

The SDK refuses a list as a whole for one wrong entry. So the entries are sieved before it reads them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from saga_engine.plan.values import printable
from saga_engine.sources.mcp.compensation import claimed_undo, undo_among
from saga_engine.sources.mcp.messages import UNREADABLE_TOOL, blocks_of, fault_in
from saga_engine.sources.mcp.pins import PinnedTool

if TYPE_CHECKING:
    from mcp.client.session import ClientSession
    from mcp.shared._stream_protocols import ReadStream
    from mcp.shared.message import SessionMessage

_MAX_PAGES: Final = 100
#: More tools than this are not looked at.
MAX_TOOLS: Final = 10_000
_REASON_CHARS: Final = 200
#: What an answer of a tool may have that says nothing. An answer without anything else has no content.
_OF_ALL: Final = frozenset({"_meta", "isError", "resultType"})


@dataclass(frozen=True, slots=True)
class Listing:
    """The tools of a server by name. ``unreadable``: those that it lists and that cannot be read, with the reason.

    ``undos``: by tool, the one that takes back what it does, as the server says.
    """

    tools: Mapping[str, PinnedTool] = field(default_factory=dict)
    unreadable: Mapping[str, str] = field(default_factory=dict)
    undos: Mapping[str, str] = field(default_factory=dict)


class Sieve:
    """The messages of a server, without the tools of its lists that the SDK would refuse."""

    def __init__(self, inner: ReadStream[SessionMessage | Exception]) -> None:
        self._inner = inner
        #: The tools that were taken out, with the reason.
        self.taken_out: dict[str, str] = {}
        #: What the others say of their undos, in fields that the SDK does not keep.
        self.claims: dict[str, list[str]] = {}

    async def receive(self) -> SessionMessage | Exception:
        """The next message."""
        return self._sieved(await self._inner.receive())

    async def aclose(self) -> None:
        """Close the stream."""
        await self._inner.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        return self._sieved(await self._inner.__anext__())

    async def __aenter__(self) -> Self:
        await self._inner.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return await self._inner.__aexit__(kind, error, trace)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)  # the SDK asks for the sender's context

    def _sieved(self, item: SessionMessage | Exception) -> SessionMessage | Exception:
        result = getattr(getattr(item, "message", None), "result", None)
        if isinstance(result, dict):
            if isinstance(result.get("tools"), list) and "content" not in result:
                result["tools"] = list(self._readable(result["tools"]))
                if type(result.get("nextCursor")) in (int, float):
                    result["nextCursor"] = str(result["nextCursor"])  # as the servers that do so read it back
            elif result.keys() & {"content", "structuredContent"} or not result.keys() - _OF_ALL:
                result["content"] = blocks_of(result.get("content"))
        return item

    def _readable(self, entries: Sequence[Any]) -> Iterator[Any]:
        for at, entry in enumerate(entries):
            why = _fault(entry)
            if why:
                name = entry.get("name") if isinstance(entry, dict) else None
                shown = printable(name, 100) if isinstance(name, str) and name else f"no. {at + 1}"
                self.taken_out[shown] = why
            else:
                if claimed := claimed_undo(entry):
                    self.claims[entry["name"]] = claimed
                yield entry


def _fault(entry: Any) -> str:
    """Why an entry of a list is no tool; empty if it is one, for this engine and for each version of the protocol."""
    from mcp_types.methods import validate_server_result
    from pydantic import ValidationError

    if not isinstance(entry, dict):
        return "it is no object"
    if entry.get(UNREADABLE_TOOL):
        return printable(str(entry[UNREADABLE_TOOL]), _REASON_CHARS)
    for version in ("2025-11-25", "2026-07-28"):
        bare = {"tools": [], "resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
        try:
            validate_server_result("tools/list", version, {**bare, "tools": [entry]})
        except ValidationError as error:
            return printable(fault_in(error, "tools", 0), _REASON_CHARS)
    try:
        PinnedTool.of(entry)
    except ValueError as error:
        return printable(str(error), _REASON_CHARS)
    return ""


async def list_tools(session: ClientSession, sieve: Sieve) -> Listing:
    """All tools of a server. Raises what a request raises."""
    from mcp_types import PaginatedRequestParams

    sieve.taken_out.clear()
    sieve.claims.clear()
    found: dict[str, PinnedTool] = {}
    twice: dict[str, str] = {}
    cursor: str | None = None
    asked: set[str] = set()
    for _ in range(_MAX_PAGES):
        page = await session.list_tools(params=PaginatedRequestParams(cursor=cursor))
        for entry in page.tools:
            tool = PinnedTool.of(entry.model_dump(by_alias=True, mode="json", exclude_none=True))
            if found.setdefault(tool.name, tool).digest != tool.digest:
                twice[tool.name] = "it is listed twice, with two declarations"
        cursor = page.next_cursor
        if cursor is None or cursor in asked or len(found) >= MAX_TOOLS:
            break  # a server that repeats a cursor has no more
        asked.add(cursor)
    tools = {name: tool for name, tool in found.items() if name not in twice}
    undos = {name: undo for name, claimed in sieve.claims.items() if (undo := undo_among(claimed, name, tools))}
    return Listing(tools, {**sieve.taken_out, **twice}, undos)
