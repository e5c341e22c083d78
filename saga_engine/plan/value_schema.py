"""JSON Schemas (Draft 2020-12) as checks of single values: an operator's answer, an event's payload, a tool's output.

A schema comes from a plan or from a tool: it never causes a network request, and no pattern of it blocks the process.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import jsonschema_rs

Finding = tuple[tuple[str | int, ...], str]

MAX_FINDINGS: Final = 50
_MAX_MESSAGE_CHARS: Final = 400
#: A schema brings the pattern and a value the text: neither may make the other block the process.
_BACKTRACK_LIMIT: Final = 100_000
_REGEX_SIZE_BYTES: Final = 1 << 20


class SchemaUnusable(ValueError):
    """It is no valid JSON Schema; the text says why."""


def validator(schema: Any, *, formats: bool = False) -> jsonschema_rs.Validator:
    """The compiled schema. Raises ``SchemaUnusable``."""
    import jsonschema_rs

    try:
        return jsonschema_rs.Draft202012Validator(
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
