"""The form of a ``wait`` step: which event it waits for, and what follows if none comes, or one comes too late."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from saga_engine.plan.bindings import Template
from saga_engine.plan.limits import MAX_SECONDS
from saga_engine.plan.value_schema import SchemaUnusable, ValueSchema
from saga_engine.plan.values import json_path, printable

if TYPE_CHECKING:
    from saga_engine.plan.compiled import Params
    from saga_engine.plan.problems import Path, Problems

    _Add = Callable[[Path, str], None]

MAX_KEY_CHARS: Final = 200
MAX_ID_CHARS: Final = 200
MAX_SCHEMA_BYTES: Final = 8_192
#: The words of a wait for several events: the first of them ends it, or the last one.
SEVERAL: Final = ("first", "all")
#: Of a payload, as JSON.
MAX_PAYLOAD_BYTES: Final = 256 * 1024
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,99}", re.ASCII)


def name_problem(name: Any) -> str:
    """Why this is no name of an event; empty if it is one."""
    if isinstance(name, str) and _NAME.fullmatch(name):
        return ""
    return "the name of an event is a letter or digit, then letters, digits, '.', '_', ':' and '-', at most 100"


def key_of(key: Any) -> str:
    """The key of an event as text: a text or a whole number is one. Raises ``ValueError``."""
    found = str(key) if isinstance(key, int) and not isinstance(key, bool) else key
    if not isinstance(found, str) or not found or not found.isprintable() or len(found) > MAX_KEY_CHARS:
        raise ValueError(f"the key of an event is a whole number, or 1 to {MAX_KEY_CHARS} printable characters")
    return found


def several(body: Mapping[str, Any]) -> str:
    """The word of a wait for several events; empty for one event."""
    return next((word for word in SEVERAL if body.get(word) is not None), "")


def awaited(body: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """The events of a wait as its body has them; the body itself, if it is for one event."""
    word = several(body)
    return list(body[word]) if word else [body]


def misfit(schema: Mapping[str, Any] | None, payload: Any) -> str:
    """What is wrong with a payload; empty if it fits."""
    if schema is None:
        return ""
    try:
        found = ValueSchema(schema)(payload)
    except (SchemaUnusable, ValueError, TypeError) as error:
        return f"it cannot be checked: {printable(str(error), 300)}"
    return f"{json_path(found[0][0])}: {printable(found[0][1], 300)}" if found else ""


def timeout_ms(seconds: Any) -> int:
    """The longest time of a wait. Raises ``ValueError``."""
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds <= MAX_SECONDS:
        raise ValueError(f"timeout_s is a number of seconds, more than 0 and at most {MAX_SECONDS:.0f}")
    return round(seconds * 1000)


def wait_output(body: Mapping[str, Any]) -> dict[str, Any] | None:
    """The schema of the step's output: that of the payload, unless a value may stand in for it.

    In an ``on_late`` the output of a wait for several events is the late one, so that of ``all`` has two forms.
    """
    word = several(body)
    if isinstance(body.get("on_timeout"), Mapping) or (word == "all" and body.get("on_late") is not None):
        return None
    if not word:
        schema: dict[str, Any] | None = body.get("schema")
        return schema
    events = awaited(body)
    if word == "all":
        return {"type": "array", "prefixItems": [_came([each]) for each in events], "items": False, **_count(events)}
    return _came(events)


def _count(events: Sequence[Any]) -> dict[str, int]:
    return {"minItems": len(events), "maxItems": len(events)}


def _came(events: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The schema of an event that came, which is one of these."""
    schemas = [each.get("schema") for each in events]
    payload = schemas[0] if all(each == schemas[0] for each in schemas) else {}
    return {
        "type": "object",
        "properties": {
            "event": {"enum": list(dict.fromkeys(each["event"] for each in events))},
            "key": {"type": "string"},
            "payload": payload or {},
        },
        "required": ["event", "key", "payload"],
        "additionalProperties": False,
    }


def check_late(problems: Problems, params: Params, path: Path) -> None:
    """A call for a late event is made by another saga, which gets no secret."""
    for place in params.places if isinstance(params, Template) else ():
        if place.source == "secret":
            message = "a call for a late event cannot bind a secret"
            problems.add("wait-invalid", (*path, "params", *place.path), message, "let the tool read the secret")


def check_wait(problems: Problems, body: Mapping[str, Any], template: Template, path: Path) -> None:
    """The problems of a ``wait`` at ``path`` that its bindings leave visible; the rest is found when it begins."""
    bound = {place.path[1:] for place in template.places}
    hint = "see 'Waiting for an event' in docs/plan-steps.md"

    def add(place: Path, message: str) -> None:
        problems.add("wait-invalid", (*path, *place), message, hint)

    given = [word for word in ("event", *SEVERAL) if body.get(word) is not None]
    if len(given) != 1:
        add(tuple(given[1:2]), f"a wait has exactly one of event, {' and '.join(SEVERAL)}")
        return
    word = given[0]
    if any(place[:1] == ("on_timeout",) for place in bound):
        add(("on_timeout",), "on_timeout cannot bind: write it as it is")
    _check_value(add, body, ("timeout_s",), timeout_ms, bound)
    if "on_timeout" in body and body.get("timeout_s") is None:
        add(("on_timeout",), "without timeout_s the wait has no end of its own: add timeout_s, or remove on_timeout")
    if word == "event":
        _check_event(add, body, (), bound)
        return
    for field in ("key", "schema"):
        if body.get(field) is not None:
            add((field,), f"each event of '{word}' has its own {field}: write it there")
    seen: set[tuple[Any, Any]] = set()
    for number, each in enumerate(body[word]):
        place = (word, number)
        _check_event(add, each, place, bound)
        channel = (each["event"], None if each.get("key") is None else str(each["key"]))
        if channel in seen and (*place, "key") not in bound:
            add(place, f"'{word}' has this event with this key already: each event counts once")
        seen.add(channel)


def _check_event(add: _Add, each: Mapping[str, Any], place: Path, bound: Collection[Path]) -> None:
    """The problems of one event that is awaited."""
    if problem := name_problem(each["event"]):
        add((*place, "event"), problem)
    at = len(place)
    for field in ("schema", "event"):
        if any(other[: at + 1] == (*place, field) for other in bound):
            add((*place, field), f"{field} cannot bind: write it as it is")
            return
    _check_value(add, each, (*place, "key"), key_of, bound)
    schema = each.get("schema")
    if schema is None:
        return
    if len(msgspec.json.encode(schema)) > MAX_SCHEMA_BYTES:
        add((*place, "schema"), f"the schema has more than {MAX_SCHEMA_BYTES} bytes of JSON")
    elif found := ValueSchema(schema).problem():
        add((*place, "schema"), f"the schema is no JSON Schema that can be used: {printable(found, 300)}")


def _check_value(
    add: _Add, given: Mapping[str, Any], place: Path, read: Callable[[Any], object], bound: Collection[Path]
) -> None:
    value = given.get(str(place[-1]))
    if value is not None and place not in bound:
        try:
            read(value)
        except ValueError as error:
            add(place, str(error))
