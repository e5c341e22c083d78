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
#: The field of a listed tool that says why it cannot be read, in place of what it declares.
UNREADABLE_TOOL: Final = "_unreadable"
#: How deep the declaration of a tool may be, and what any parser reads.
MAX_DEPTH: Final = 100
_READ_DEPTH: Final = 150
_BRACKET: Final = re.compile(rb'"(?:[^"\\]|\\.)*+"|[\[\]{}]', re.DOTALL)
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
    """A message as it is parsed: with whole characters, and if it has a name twice, an error in its place.

    In a list of tools only the tool is marked (``UNREADABLE_TOOL``), and so is one that is nested too deeply: a parser
    that gives up gives up the whole message, and with it all tools of the server.
    """
    data = whole_characters(data.removeprefix(codecs.BOM_UTF8))
    try:
        try:
            value, twice = _loaded(data)
        except RecursionError:
            value, twice = _loaded(_flat(data))
            if not _tools_of(value):
                return data  # of an answer nothing is left out
    except ValueError:
        return data  # the parser says what it is
    if not isinstance(value, dict) or "method" in value:
        return data
    marked = [tool for tool in _tools_of(value) if _mark(tool, twice)]
    if twice:
        said = f"its answer has {_said_twice(twice[0])}"
        error = {"code": UNREADABLE, "message": said}
        return json.dumps({"jsonrpc": "2.0", "id": value.get("id"), "error": error}).encode()
    return json.dumps(value).encode() if marked else data


class _Twice(dict[str, Any]):
    """An object that has a name twice, which says two things at once."""

    name = ""


def _said_twice(found: _Twice) -> str:
    return f"the name '{printable(found.name, 100)}' twice in one object"


def _loaded(data: bytes) -> tuple[Any, list[_Twice]]:
    """A message, and the objects in it that have a name twice. Raises ``ValueError`` and ``RecursionError``."""
    twice: list[_Twice] = []

    def pairs(found: list[tuple[str, Any]]) -> dict[str, Any]:
        made = dict(found)
        if len(made) == len(found):
            return made
        names = [name for name, _ in found]
        twice.append(_Twice(made))
        twice[-1].name = next(name for name in made if names.count(name) > 1)
        return twice[-1]

    return json.loads(data, object_pairs_hook=pairs), twice


def _flat(data: bytes) -> bytes:
    """JSON in which whatever is nested deeper than a parser reads is null."""
    parts, kept, begun, depth = [], 0, 0, 0
    for found in _BRACKET.finditer(data):
        if found[0] in b"[{":
            depth += 1
            if depth == _READ_DEPTH:
                begun = found.start()
        elif found[0] in b"]}":
            if depth == _READ_DEPTH:
                parts += [data[kept:begun], b"null"]
                kept = found.end()
            depth -= 1
    return b"".join([*parts, data[kept:]])


def _tools_of(value: Any) -> list[Any]:
    result = value.get("result") if isinstance(value, dict) else None
    tools = result.get("tools") if isinstance(result, dict) else None
    return tools if isinstance(tools, list) else []


def _mark(tool: Any, twice: list[_Twice]) -> bool:
    """Whether a tool cannot be read; a mark is in place of its declaration, and ``twice`` knows it no more."""
    why, depth, level = "", 0, [tool] if isinstance(tool, dict) else []
    while level:
        depth += 1
        inner: list[Any] = []
        for each in level:
            if twice and isinstance(each, _Twice):
                twice[:] = [other for other in twice if other is not each]
                why = why or f"it has {_said_twice(each)}"
            values = each.values() if isinstance(each, dict) else each
            inner += [one for one in values if isinstance(one, dict | list)]
        level = inner
    if depth > MAX_DEPTH:
        why = f"its schemas are nested deeper than {MAX_DEPTH} levels"
    if why:
        name = tool.get("name")
        tool.clear()
        tool.update({"name": name, "inputSchema": {"type": "object"}, UNREADABLE_TOOL: why})
    return bool(why)
