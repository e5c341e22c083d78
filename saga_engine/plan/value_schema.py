"""JSON Schemas as checks of values: a call's params, an operator's answer, an event's payload, a tool's output.

A schema comes from a plan or from a tool: it never causes a network request, and neither it nor a value that is checked
against it blocks the process (``schema_cost``).
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from saga_engine.plan.schema_cost import MAX_WORK, Cost
from saga_engine.plan.values import count_values

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import jsonschema_rs

Finding = tuple[tuple[str | int, ...], str]

MAX_FINDINGS: Final = 50
#: What a schema must be; it stands beside each refusal.
SCHEMA_HINT: Final = (
    "without $schema it must be Draft 2020-12; it may refer to nothing outside itself, and must stay small with all of "
    "its references written out"
)
_MAX_MESSAGE_CHARS: Final = 400
#: A schema brings the pattern and a value the text: neither may make the other block the process.
_BACKTRACK_LIMIT: Final = 100_000
_REGEX_SIZE_BYTES: Final = 1 << 20
#: Every error copies its part of the value, up to 2 us for each value in it, while nothing else has a turn: parts of
#: the schema times values.
_MAX_COPIED: Final = 25_000
_MAX_COPIED_ONCE: Final = 75_000


class SchemaUnusable(ValueError):
    """It is no valid JSON Schema, or one that costs too much; the text says why."""


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


_TOO_MUCH: Final = f"the check of this value against its schema takes more than {MAX_WORK:,} steps"


class Validator:
    """A schema that was found affordable, compiled in the dialect that it names. Raises ``SchemaUnusable``.

    It is the one gate: whoever reads a schema of a plan, a tool, a server or a document compiles it here, and a value
    that would take too much work is refused before it is checked.
    """

    __slots__ = ("_compiled", "_cost")

    def __init__(self, schema: Any, *, formats: bool = False) -> None:
        import jsonschema_rs

        kind = getattr(jsonschema_rs, _kind(schema))
        try:
            self._cost = Cost(schema)
            self._compiled: jsonschema_rs.Validator = kind(
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

    def errors(self, value: Any) -> list[jsonschema_rs.ValidationError]:
        """The library's errors for a value that does not fit, at most fifty. Each of them copies its part of the value.

        Of a large value there is only the first, and of one that is larger still there is none.
        """
        copied = self._cost.applied() * count_values(value, _MAX_COPIED_ONCE)
        if copied <= _MAX_COPIED:
            return list(itertools.islice(self._compiled.iter_errors(value), MAX_FINDINGS))
        if copied > _MAX_COPIED_ONCE:
            return []
        import jsonschema_rs

        try:
            self._compiled.validate(value)
        except jsonschema_rs.ValidationError as error:
            return [error]
        return []

    def faults(
        self, value: Any, explain: Callable[[jsonschema_rs.ValidationError], Sequence[Finding]] | None = None
    ) -> Sequence[Finding]:
        """What is wrong with a value: at most fifty pairs of (path inside the value, message)."""
        if self._cost.of(value) > MAX_WORK:
            return [((), f"it cannot be checked: {_TOO_MUCH}")]
        if self._compiled.is_valid(value):
            return ()
        found = [each for error in self.errors(value) for each in (explain or _told)(error)]
        return found[:MAX_FINDINGS] or [((), "it does not fit its schema, and is too large to tell where")]


def _told(error: jsonschema_rs.ValidationError) -> Sequence[Finding]:
    return [(tuple(error.instance_path), bounded(error.message))]


def _refuse_retrieval(uri: str) -> Any:
    raise LookupError(f"a schema must not refer to another document ({uri[:200]})")


class ValueSchema:
    """Finds what is wrong with a JSON value: pairs of (path inside the value, message). Compiled at the first use."""

    __slots__ = ("_validator", "schema")

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self.schema = schema
        self._validator: Validator | None = None

    def problem(self) -> str:
        """Why the schema itself is unusable; empty if it is not."""
        try:
            self._compiled()
        except SchemaUnusable as error:
            return str(error)
        return ""

    def __call__(self, value: Any) -> Sequence[Finding]:
        """All findings, at most fifty. Raises ``SchemaUnusable``."""
        return self._compiled().faults(value)

    def _compiled(self) -> Validator:
        if self._validator is None:
            self._validator = Validator(self.schema)
        return self._validator


def bounded(message: str) -> str:
    """A message of a bounded length: it may quote the value."""
    return message if len(message) <= _MAX_MESSAGE_CHARS else message[: _MAX_MESSAGE_CHARS - 1] + "…"
