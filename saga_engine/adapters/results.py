"""What a model sees of a tool's result: the cut form of a large one, with a reference, and pages of it on request.

The journal holds the whole result, without secrets. A reference is the number of the call in its session, so it stays
valid when the agent runs again and its conversation is restored.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import msgspec

from saga_engine.errors import SettingInvalid, ToolError
from saga_engine.plan.jsonpath import Mismatch, follow, scan
from saga_engine.plan.preview import brief
from saga_engine.plan.values import cut
from saga_engine.runtime.session import Session

#: The name of the tool that reads pages of a result.
FETCH: Final = "saga_fetch"
#: How many bytes, as JSON, a model sees of one result or page.
RESULT_BYTES: Final = 8_192
#: Below this a cut form says nothing.
LEAST_BYTES: Final = 512
#: How much of an error's text a model sees, in characters.
ERROR_CHARS: Final = 2_000
_REF: Final = "call-"
_CUT: Final = "This result was cut. Ask for less of it: a filter, a part, a page."
_ITEMS: Final = 20
_TEXT_CHARS: Final = 1_000

FETCH_DESCRIPTION: Final = (
    "Read more of a result that was cut, one page at a time. "
    "Use when a result has a saga_ref and you need what its cut form leaves out. "
    "Returns the value at path; next_offset is the offset of the next page, and null on the last page."
)
FETCH_SCHEMA: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        "ref": {"type": "string", "description": "the saga_ref of the result, such as call-3"},
        "path": {"type": "string", "description": "where in the result, such as $.items[4].text; $ is all of it"},
        "offset": {
            "type": "integer",
            "minimum": 0,
            "description": "the first character of a text, or the first item of a list or an object",
        },
    },
    "required": ["ref"],
    "additionalProperties": False,
}


def check_limit(limit: int | None, names: Iterable[str]) -> None:
    """Raises ``SettingInvalid`` for a limit below 512 bytes, and for an agent's own tool named ``saga_fetch``."""
    if limit is None:
        return
    if limit < LEAST_BYTES:
        raise SettingInvalid(f"result_bytes={limit} is too small", hint=f"{LEAST_BYTES} or more, or None: no limit")
    if FETCH in names:
        raise SettingInvalid(f"{FETCH!r} is the tool that reads large results", hint="give your tool another name")


def shown_result(step: str, output: Any, limit: int | None, *, fetched: bool = True) -> Any:
    """The result of a call as its model sees it: itself, or its cut form with a reference.

    ``fetched``: the model is offered ``saga_fetch``; else the reference is for its program, which has ``page``.
    """
    if limit is None:
        return output
    size = len(msgspec.json.encode(output))
    if size <= limit:
        return output
    made = {
        "saga_ref": f"{_REF}{step}",
        "bytes": size,
        "note": f"This result was cut. {FETCH}(ref, path, offset) reads the rest." if fetched else _CUT,
    }
    room = limit - len(msgspec.json.encode(made)) - len(',"cut":')
    return {**made, "cut": brief(output, max_bytes=room, max_items=_ITEMS, max_text=max(room // 2, 24), max_depth=8)}


def page(session: Session, ref: str, path: str = "$", offset: int = 0, *, limit: int = RESULT_BYTES) -> dict[str, Any]:
    """A page of a recorded result, of at most ``limit`` bytes. Raises ``ToolError`` for what is not there."""
    step = ref.removeprefix(_REF).strip()
    outputs = session.outputs()
    if step not in outputs:
        known = ", ".join(f"{_REF}{key}" for key in list(outputs)[-20:])
        raise ToolError(f"no result has the reference {cut(ref, 80)}", suggestion=f"results: {known or 'none yet'}")
    value = _at(outputs[step], path)
    about: dict[str, Any] = {"saga_ref": f"{_REF}{step}", "path": path, "type": _kind(value)}
    if not isinstance(value, str | list | dict):
        return {**about, "value": value, "next_offset": None}
    total = len(value)
    if not 0 <= offset <= total:
        raise ToolError(f"offset {offset} is not in this {_kind(value)}", suggestion=f"0 to {total}")
    about |= {"offset": offset, "total": total, "next_offset": total}
    room = limit - len(msgspec.json.encode({**about, "value": ""}))
    found = _text(value, offset, room) if isinstance(value, str) else _part(value, offset, room)
    end = offset + len(found)
    return {**about, "value": found, "next_offset": end if end < total else None}


def _at(value: Any, path: str) -> Any:
    """The value at a path of fields and indexes."""
    parts = scan(path[1:]) if path.startswith("$") else None
    if parts is None:
        raise ToolError(f"{cut(path, 200)} is not a path", suggestion="write $.field, $['any name'] or $.items[0]")
    try:
        return follow(value, parts)
    except Mismatch as error:
        raise ToolError(f"nothing is at {cut(path, 200)}: {error}", suggestion="$ is the whole result") from error


def _text(value: str, offset: int, room: int) -> str:
    """As many characters as fit; a character takes up to 6 bytes of JSON."""
    found = value[offset : offset + room]
    while len(data := msgspec.json.encode(found)) > room + 2:
        found = found[: max(len(found) * room // len(data), 1)]
    return found


def _part(value: list[Any] | dict[str, Any], offset: int, room: int) -> list[Any] | dict[str, Any]:
    """As many items or fields as fit, at least one; one that does not fit alone is cut, and has a path of its own."""
    listed = list(enumerate(value)) if isinstance(value, list) else list(value.items())
    taken: list[tuple[Any, Any]] = []
    for name, item in listed[offset:]:
        size = len(msgspec.json.encode(item)) + (len(str(name)) * 6 + 4 if isinstance(value, dict) else 1)
        if size > room and taken:
            break
        fits = size <= room
        taken.append((name, item if fits else brief(item, max_bytes=room, max_items=_ITEMS, max_text=_TEXT_CHARS)))
        room -= size
    return [item for _, item in taken] if isinstance(value, list) else dict(taken)


def _kind(value: Any) -> str:
    names = {str: "text", list: "list", dict: "object", bool: "boolean", type(None): "null"}
    return names.get(type(value), "number")
