"""JSON Schemas as checks of single values: an operator's answer, an event's payload, a tool's output.

A schema comes from a plan or from a tool: it never causes a network request, and no pattern of it blocks the process.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

    import jsonschema_rs

Finding = tuple[tuple[str | int, ...], str]

MAX_FINDINGS: Final = 50
_MAX_MESSAGE_CHARS: Final = 400
#: A schema brings the pattern and a value the text: neither may make the other block the process.
_BACKTRACK_LIMIT: Final = 100_000
_REGEX_SIZE_BYTES: Final = 1 << 20


class SchemaUnusable(ValueError):
    """It is no valid JSON Schema; the text says why."""


#: The dialects of JSON Schema, by the end of their names.
_DIALECTS: Final = {
    "draft-04": "Draft4Validator",
    "draft-06": "Draft6Validator",
    "draft-07": "Draft7Validator",
    "2019-09": "Draft201909Validator",
    "2020-12": "Draft202012Validator",
}
_DIALECT: Final = re.compile(r"https?://json-schema\.org/(?:draft/)?([\w-]+)/schema#?")


def _kind(schema: Any) -> str:
    """The validator of the dialect that a schema names with ``$schema``; without one it is Draft 2020-12."""
    named = schema.get("$schema") if isinstance(schema, Mapping) else None
    if named is None:
        return _DIALECTS["2020-12"]
    found = _DIALECT.fullmatch(named) if isinstance(named, str) else None
    if found is None or found[1] not in _DIALECTS:
        raise SchemaUnusable(f"its $schema is {str(named)[:100]!r}; known: {', '.join(_DIALECTS)}")
    return _DIALECTS[found[1]]


def validator(schema: Any, *, formats: bool = False) -> jsonschema_rs.Validator:
    """The compiled schema, in the dialect that it names. Raises ``SchemaUnusable``."""
    import jsonschema_rs

    kind = getattr(jsonschema_rs, _kind(schema))
    try:
        return kind(  # type: ignore[no-any-return] # chosen by its name
            schema,
            validate_formats=formats,
            retriever=_refuse_retrieval,
            pattern_options=jsonschema_rs.FancyRegexOptions(
                backtrack_limit=_BACKTRACK_LIMIT, size_limit=_REGEX_SIZE_BYTES, dfa_size_limit=_REGEX_SIZE_BYTES
            ),
        )
    except (ValueError, TypeError, jsonschema_rs.ReferencingError) as error:
        reason = getattr(error, "message", None) or str(error)
        raise SchemaUnusable(reason[:_MAX_MESSAGE_CHARS]) from error


def _refuse_retrieval(uri: str) -> Any:
    raise LookupError(f"a schema must not refer to another document ({uri[:200]})")


class ValueSchema:
    """Finds what is wrong with a JSON value: pairs of (path inside the value, message). Compiled at the first use."""

    __slots__ = ("_validator", "schema")

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self.schema = schema
        self._validator: jsonschema_rs.Validator | None = None

    def problem(self) -> str:
        """Why the schema itself is unusable; empty if it is not."""
        try:
            self._compiled()
        except SchemaUnusable as error:
            return str(error)
        return ""

    def __call__(self, value: Any) -> Sequence[Finding]:
        """All findings, at most fifty. Raises ``SchemaUnusable``."""
        return faults_of(self._compiled(), value)

    def _compiled(self) -> jsonschema_rs.Validator:
        if self._validator is None:
            self._validator = validator(self.schema)
        return self._validator


def faults_of(compiled: jsonschema_rs.Validator, value: Any) -> Sequence[Finding]:
    """What a compiled schema finds in a value: at most fifty pairs of (path inside the value, message)."""
    errors = itertools.islice(compiled.iter_errors(value), MAX_FINDINGS)
    return [(tuple(error.instance_path), bounded(error.message)) for error in errors]


def bounded(message: str) -> str:
    """A message of a bounded length: it may quote the value."""
    return message if len(message) <= _MAX_MESSAGE_CHARS else message[: _MAX_MESSAGE_CHARS - 1] + "…"
