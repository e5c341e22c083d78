"""The form of a ``wait`` step: which event it waits for, and what follows if none comes, or one comes too late."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec

from saga_engine.plan.bindings import Template
from saga_engine.plan.limits import MAX_SECONDS
from saga_engine.plan.value_schema import SchemaUnusable, ValueSchema
from saga_engine.plan.values import json_path, printable

if TYPE_CHECKING:
    from saga_engine.plan.compiled import Params
    from saga_engine.plan.problems import Path, Problems

MAX_KEY_CHARS: Final = 200
MAX_ID_CHARS: Final = 200
MAX_SCHEMA_BYTES: Final = 8_192
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
    """The schema of the step's output: that of the payload, unless a value may stand in for it."""
    schema: dict[str, Any] | None = body.get("schema")
    return None if isinstance(body.get("on_timeout"), Mapping) else schema


def check_late(problems: Problems, params: Params, path: Path) -> None:
    """A call for a late event is made by another saga, which gets no secret."""
    for place in params.places if isinstance(params, Template) else ():
        if place.source == "secret":
            message = "a call for a late event cannot bind a secret"
            problems.add("wait-invalid", (*path, "params", *place.path), message, "let the tool read the secret")


def check_wait(problems: Problems, body: Mapping[str, Any], template: Template, path: Path) -> None:
    """The problems of a ``wait`` at ``path`` that its bindings leave visible; the rest is found when it begins."""
    bound = {place.path[1] for place in template.places if len(place.path) > 1}
    hint = "see 'Waiting for an event' in docs/plan-format.md"

    def add(field: str, message: str) -> None:
        problems.add("wait-invalid", (*path, field), message, hint)

    if problem := name_problem(body["event"]):
        add("event", problem)
    for field in ("schema", "on_timeout", "event"):
        if field in bound:
            add(field, f"{field} cannot bind: write it as it is")
    schema = body.get("schema")
    for field, read in (("key", key_of), ("timeout_s", timeout_ms)):
        if body.get(field) is not None and field not in bound:
            try:
                read(body[field])
            except ValueError as error:
                add(field, str(error))
    if "on_timeout" in body and body.get("timeout_s") is None:
        add("on_timeout", "without timeout_s the wait has no end of its own: add timeout_s, or remove on_timeout")
    faulty = ""
    if schema is not None and "schema" not in bound:
        if len(msgspec.json.encode(schema)) > MAX_SCHEMA_BYTES:
            faulty = f"the schema has more than {MAX_SCHEMA_BYTES} bytes of JSON"
        elif found := ValueSchema(schema).problem():
            faulty = f"the schema is no valid JSON Schema: {printable(found, 300)}"
        if faulty:
            add("schema", faulty)
