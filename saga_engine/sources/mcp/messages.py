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
_ANY_SURROGATE: Final = re.compile(rb"\\u[dD][89a-fA-F]")


def fault_in(error: ValidationError, *left_out: str | int) -> str:
    """The first fault of a message, with its place; ``left_out``: steps of the place that say nothing."""
    first = error.errors(include_url=False, include_input=False, include_context=False)[0]
    where = ".".join(str(step) for step in first["loc"] if step not in left_out)
    return f"{where}: {first['msg']}" if where else first["msg"]


def blocks_of(content: Any) -> Any:
    """The content of an answer as the protocol wants it: some servers write none, a text, or one block alone."""
    if content is None:
        return []
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return [content] if isinstance(content, dict) else content


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
    if not twice or not isinstance(value, dict) or "method" in value:
        return data
    said = f"its answer has the name '{printable(twice[0], 100)}' twice in one object"
    error = {"code": UNREADABLE, "message": said}
    return json.dumps({"jsonrpc": "2.0", "id": value.get("id"), "error": error}).encode()
