"""The form of an ``ask`` step: what may be asked, and what must be known of it before the plan runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from saga_engine.plan.limits import MAX_TO_CHARS
from saga_engine.plan.value_schema import SCHEMA_HINT, SchemaUnusable, ValueSchema
from saga_engine.plan.values import cut, json_path, printable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from saga_engine.plan.bindings import Template
    from saga_engine.plan.problems import Path, Problems

#: The answer to a question without options: its value is given beside it.
ANSWER: Final = "answer"
MAX_QUESTION_CHARS: Final = 2_000
MAX_OPTIONS: Final = 50
MAX_SCHEMA_BYTES: Final = 8_192
MAX_OPTION_CHARS: Final = 100


def option_problem(options: Any) -> str:
    """Why these are no options; empty if they are."""
    if not isinstance(options, list) or not options:
        return "the options are a list of texts, with at least one"
    if len(options) > MAX_OPTIONS:
        return f"there are {len(options)} options, but only {MAX_OPTIONS} are allowed"
    seen: set[str] = set()
    for option in options:
        if not isinstance(option, str):
            return f"the option {cut(option, 80)} is no text; a compute step with 'map' makes texts of a list"
        if not option.isprintable() or option != option.strip() or not 1 <= len(option) <= MAX_OPTION_CHARS:
            return (
                f"the option {cut(option, 80)} is not 1 to {MAX_OPTION_CHARS} printable characters without spaces "
                "around them"
            )
        if option.casefold() in seen:
            return f"the option {cut(option, 80)} occurs twice (capitals make no difference)"
        seen.add(option.casefold())
    return ""


def addressee_problem(to: Any) -> str:
    """Why this names nobody who is asked; empty if it does."""
    if not isinstance(to, str):
        return f"the addressee {cut(to, 80)} is no text"
    if not to.isprintable() or to != to.strip() or not 1 <= len(to) <= MAX_TO_CHARS:
        return f"the addressee {cut(to, 80)} is not 1 to {MAX_TO_CHARS} printable characters without spaces around them"
    return ""


def ask_output(body: Mapping[str, Any]) -> dict[str, Any]:
    """The schema of the step's output."""
    options = body.get("options")
    answer = body.get("schema") or {"type": "string"}
    if options is not None:
        known = isinstance(options, list) and all(isinstance(option, str) and "$" not in option for option in options)
        answer = {"type": "string", **({"enum": list(options)} if known else {})}
    return {
        "type": "object",
        "properties": {
            "answer": answer,
            "by": {"type": "string"},
            "note": {"type": "string"},
            "expired": {"type": "boolean"},
        },
        "required": ["answer", "by", "note"],
        "additionalProperties": False,
    }


def sample_ask(body: Mapping[str, Any]) -> dict[str, Any]:
    """The body for a simulation, in which nothing is bound: options that bind become samples."""
    options = body.get("options")
    if options is None:
        return dict(body)
    listed = options if isinstance(options, list) else ["<option>"]
    return {**body, "options": [option if not option_problem([option]) else "<option>" for option in listed]}


def check_ask(problems: Problems, body: Mapping[str, Any], template: Template, path: Path) -> None:
    """The problems of an ``ask`` at ``path`` that its bindings leave visible; the rest is found when it asks."""
    bound = {place.path[1] for place in template.places if len(place.path) > 1}  # below the word "ask"
    hint = "see 'Asking a person' in docs/plan-steps.md"
    options, schema, then = body.get("options"), body.get("schema"), body.get("on_timeout", "fail")
    for place in template.places:
        if place.source == "secret":
            problems.add("ask-invalid", (*path, *place.path[1:]), "a question must not show a secret", "remove it")
    if options is not None and schema is not None:
        message = "a question has either options or a schema of a free answer"
        problems.add("ask-invalid", (*path, "schema"), message, "remove one of the two")
    if "options" not in bound and options is not None and (problem := option_problem(options)):
        problems.add("ask-invalid", (*path, "options"), printable(problem, 300), hint)
    if "question" not in bound and not body["question"].strip():
        problems.add("ask-invalid", (*path, "question"), "the question is empty", hint)
    if "to" not in bound and body.get("to") is not None and (problem := addressee_problem(body["to"])):
        problems.add("ask-invalid", (*path, "to"), printable(problem, 300), hint)
    if "on_timeout" in body and body.get("expires_s") is None:
        message = "without expires_s the question never expires"
        problems.add("ask-invalid", (*path, "on_timeout"), message, "add expires_s, or remove on_timeout")
    if "schema" in bound:
        problems.add("ask-invalid", (*path, "schema"), "a schema cannot bind", "write it as it is")
        return
    if schema is not None and len(msgspec.json.encode(schema)) > MAX_SCHEMA_BYTES:
        message = f"the schema has more than {MAX_SCHEMA_BYTES} bytes of JSON"
        problems.add("ask-invalid", (*path, "schema"), message, "ask for less at once")
        return
    faulty = "" if schema is None else ValueSchema(schema).problem()
    if faulty:
        message = f"the schema is no JSON Schema that can be used: {printable(faulty, 300)}"
        problems.add("ask-invalid", (*path, "schema"), message, SCHEMA_HINT)
    if "on_timeout" in bound:
        problems.add("ask-invalid", (*path, "on_timeout"), "the value of on_timeout cannot bind", "write a value")
    elif not isinstance(then, str) and not faulty:
        known = options if "options" not in bound else None
        _check_value(problems, then["value"], known, schema, (*path, "on_timeout"))


def _check_value(problems: Problems, value: Any, options: Any, schema: Any, path: Path) -> None:
    """The value that counts without an answer is a legal answer."""
    if options is not None:
        if value not in options:
            message = f"{cut(value, 80)} is none of the options"
            problems.add("ask-invalid", (*path, "value"), message, "give one of the options")
    else:
        try:
            found = ValueSchema(schema or {"type": "string"})(value)
        except (SchemaUnusable, ValueError, TypeError) as error:
            found = [((), str(error))]
        if found and schema is not None:
            where, message = found[0]
            problems.add("ask-invalid", (*path, "value"), f"{json_path(where)}: {printable(message, 300)}", "")
