"""Messages as a server spells them, made ready for a strict parser.

Half of an emoji, where a server has cut a text, is no UTF-8 and no reason to lose an answer: it becomes U+FFFD. An
object that has a name twice says two things at once, and is read by nobody, as in the answers of HTTP tools.
"""

from __future__ import annotations

import codecs
import json
import re
from typing import TYPE_CHECKING, Any, Final

from saga_engine.plan.values import printable
from saga_engine.sources.mcp.transport_errors import UNREADABLE

if TYPE_CHECKING:
    from pydantic import ValidationError

_ESCAPE: Final = re.compile(
    rb"\\(?:u(?P<high>[dD][89abAB][0-9a-fA-F]{2})(?P<low>\\u[dD][c-fC-F][0-9a-fA-F]{2})?"
    rb"|u(?P<alone>[dD][c-fC-F][0-9a-fA-F]{2})|.)",
    re.DOTALL,
)
#: The blocks of an answer, each with the fields that it must have.
_BLOCKS: Final[dict[str, dict[str, type]]] = {
    "text": {"text": str},
    "image": {"data": str, "mimeType": str},
    "audio": {"data": str, "mimeType": str},
    "resource_link": {"uri": str, "name": str},
    "resource": {"resource": dict},
}
#: The keywords of a schema that hold values and no schemas.
_VALUES: Final = frozenset({"const", "default", "enum", "examples", "example"})
#: The field of a listed tool that stands in place of its schemas if they are nested too deeply to be read.
TOO_DEEP: Final = "_tooDeep"
MAX_DEPTH: Final = 100
_ANY_SURROGATE: Final = re.compile(rb"\\u[dD][89a-fA-F]")


def fault_in(error: ValidationError, *left_out: str | int) -> str:
    """The first fault of a message, with its place; ``left_out``: steps of the place that say nothing."""
    first = error.errors(include_url=False, include_input=False, include_context=False)[0]
    where = ".".join(str(step) for step in first["loc"] if step not in left_out)
    return f"{where}: {first['msg']}" if where else first["msg"]


def blocks_of(content: Any) -> Any:
    """The content of an answer as the protocol wants it: some servers write none, a text, or one block alone.

    A block of a kind that the protocol does not have, or without its fields, is a text with what it spells.
    """
    if content is None:
        return []
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    if isinstance(content, dict):
        content = [content]
    return [_known(each) for each in content] if isinstance(content, list) else content


def _known(block: Any) -> Any:
    kind_of = block.get("type") if isinstance(block, dict) else None
    wanted = _BLOCKS.get(kind_of) if isinstance(kind_of, str) else None
    if wanted is not None and all(isinstance(block.get(name), kind) for name, kind in wanted.items()):
        return block
    return {"type": "text", "text": block if isinstance(block, str) else json.dumps(block, ensure_ascii=False)}


def without_nulls(schema: Any) -> Any:
    """A schema without keywords that are null: some servers write ``"properties": null`` for none."""
    if isinstance(schema, list):
        return [without_nulls(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        name: value if name in _VALUES else without_nulls(value)
        for name, value in schema.items()
        if value is not None or name in _VALUES
    }


def whole_characters(data: bytes) -> bytes:
    """JSON in which each half of a character that is escaped alone is U+FFFD."""
    return _ESCAPE.sub(_whole, data) if _ANY_SURROGATE.search(data) else data


def _whole(found: re.Match[bytes]) -> bytes:
    half = (found["high"] and not found["low"]) or found["alone"]
    return b"\\ufffd" if half else found[0]


def read_once(data: bytes) -> bytes:
    """A message as it is parsed: with whole characters, and if it has a name twice, an error in its place."""
    data = whole_characters(data.removeprefix(codecs.BOM_UTF8))
    twice: list[str] = []

    def pairs(found: list[tuple[str, Any]]) -> dict[str, Any]:
        made = dict(found)
        if len(made) < len(found):
            names = [name for name, _ in found]
            twice.append(next(name for name in made if names.count(name) > 1))
        return made

    try:
        value = json.loads(data, object_pairs_hook=pairs)
    except (ValueError, RecursionError):
        return data  # the parser says what it is
    if not isinstance(value, dict) or "method" in value:
        return data
    if not twice:
        return json.dumps(value).encode() if _flattened(value.get("result")) else data
    said = f"its answer has the name '{printable(twice[0], 100)}' twice in one object"
    error = {"code": UNREADABLE, "message": said}
    return json.dumps({"jsonrpc": "2.0", "id": value.get("id"), "error": error}).encode()


def _flattened(result: Any) -> bool:
    """Whether a list of tools had one whose schemas no parser would read, and it has a mark in their place now.

    A parser that gives up gives up the whole message, and with it all tools of the server.
    """
    tools = result.get("tools") if isinstance(result, dict) else None
    deep = [tool for tool in tools if _is_deep(tool)] if isinstance(tools, list) else []
    for tool in deep:
        name = tool.get("name")
        tool.clear()
        tool.update({"name": name, "inputSchema": {"type": "object"}, TOO_DEEP: True})
    return bool(deep)


def _is_deep(tool: Any) -> bool:
    level: list[dict[str, Any] | list[Any]] = [tool] if isinstance(tool, dict) else []
    for _ in range(MAX_DEPTH):
        level = [
            inner
            for each in level
            for inner in (each.values() if isinstance(each, dict) else each)
            if isinstance(inner, dict | list)
        ]
        if not level:
            return False
    return True
