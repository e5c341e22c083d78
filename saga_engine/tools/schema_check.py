"""Checks the params of a call against a tool's JSON Schema, before anything runs."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Final

from saga_engine.errors import ToolInvalid
from saga_engine.plan.value_schema import MAX_FINDINGS, SCHEMA_HINT, Finding, SchemaUnusable, Validator, bounded

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import jsonschema_rs
    from pydantic import TypeAdapter


def compile_schema(schema: Any, label: str, what: str = "input_schema", *, formats: bool) -> Validator:
    """Compile a JSON Schema; a ``$ref`` never causes a network request. Raises ``ToolInvalid``."""
    try:
        return Validator(schema, formats=formats)
    except SchemaUnusable as error:
        raise ToolInvalid(
            f"the {what} of tool {label!r} is no JSON Schema that can be used: {error}",
            hint=SCHEMA_HINT,
            tool=label,
        ) from error


_UNSHOWN: Final = "the value does not fit the schema (the parameter is sensitive, so it is not shown)"


class SchemaCheck:
    """Finds the problems in the params of a call: pairs of (path inside the params, message).

    ``hidden`` are the parameters that the engine fills at the call; a plan that sets one gets a finding, even if the
    schema is open. Findings about ``sensitive`` parameters omit their values. ``coercions`` find what a schema cannot
    express (that a text is not a date). The schema is compiled at the first use.
    """

    __slots__ = ("_coercions", "_formats", "_hidden", "_label", "_schema", "_sensitive", "_validator")

    def __init__(
        self,
        label: str,
        schema: dict[str, Any],
        *,
        hidden: frozenset[str] = frozenset(),
        coercions: Mapping[str, TypeAdapter[Any]] | None = None,
        formats: bool = False,
        sensitive: frozenset[str] = frozenset(),
    ) -> None:
        self._sensitive = sensitive
        self._label = label
        self._schema = schema
        self._hidden = hidden
        self._coercions = coercions or {}
        self._formats = formats
        self._validator: Validator | None = None

    def compile(self) -> Validator:
        """The compiled schema; raises ``ToolInvalid``."""
        if self._validator is None:
            self._validator = compile_schema(self._schema, self._label, formats=self._formats)
        return self._validator

    def __call__(self, params: Any) -> Sequence[Finding]:
        """All findings, at most fifty. Raises ``ToolInvalid`` if the schema itself is invalid."""
        validator = self.compile()
        if not isinstance(params, dict):
            return [((), f"params must be an object, not {type(params).__name__}")]
        findings: list[Finding] = [
            ((name,), f"{name!r} is not for a plan to set: it is filled in when the call is made")
            for name in params
            if name in self._hidden
        ]
        try:
            findings += validator.faults(params, self._explain)
        except (ValueError, TypeError) as error:
            return [((), f"params are no JSON: {bounded(str(error))}")]
        if self._coercions:
            findings += self._uncoercible(params, {path[0] for path, _ in findings if path})
        if self._sensitive:
            findings = [(path, _UNSHOWN if path and path[0] in self._sensitive else said) for path, said in findings]
        return findings[:MAX_FINDINGS]

    def _explain(self, error: jsonschema_rs.ValidationError) -> list[Finding]:
        path = tuple(error.instance_path)
        unexpected = getattr(error.kind, "unexpected", None)
        if error.schema_path[-1:] == ["additionalProperties"] and unexpected is not None:
            known = self._known(error.schema_path[:-1])
            here = (
                f"known: {', '.join(sorted(known)[:30])}" if known else "" if path else "the tool takes no parameters"
            )
            return [
                ((*path, name), _unknown(name, known, here)) for name in unexpected if path or name not in self._hidden
            ]
        missing = getattr(error.kind, "property", None)
        if error.schema_path[-1:] == ["required"] and isinstance(missing, str):
            return [(path, f"the parameter {missing!r} is missing")]
        if type(error.kind).__name__.endswith("BacktrackLimitExceeded"):
            return [(path, "cannot be checked: the schema's pattern needs too much backtracking for this text")]
        return [(path, bounded(error.message))]

    def _known(self, schema_path: Sequence[str | int]) -> list[str]:
        """The names that the schema at this place allows; none if a reference hides them."""
        place: Any = self._schema
        for step in schema_path:
            try:
                place = place[step]
            except (KeyError, IndexError, TypeError):
                return []
        properties = place.get("properties") if isinstance(place, dict) else None
        return list(properties) if isinstance(properties, dict) else []

    def _uncoercible(self, params: dict[str, Any], wrong: set[str | int]) -> list[Finding]:
        from pydantic import ValidationError

        findings: list[Finding] = []
        for name, adapter in self._coercions.items():
            if name not in params or name in wrong:
                continue
            try:
                adapter.validate_python(params[name])
            except ValidationError as error:
                details = error.errors(include_url=False, include_input=False, include_context=False)
                findings += [((name, *_inside(params[name], d["loc"])), bounded(d["msg"])) for d in details]
        return findings


def _unknown(name: str, known: Sequence[str], here: str) -> str:
    near = get_close_matches(name[:100], known, n=1)
    parts = [f"unknown parameter {name[:100]!r}", f"did you mean {near[0]!r}?" if near else "", here]
    return "; ".join(part for part in parts if part)


def _inside(value: Any, steps: Sequence[str | int]) -> tuple[str | int, ...]:
    """The part of a pydantic location that exists in the value: it also names branches of unions."""
    path: list[str | int] = []
    for step in steps:
        try:
            value = value[step]
        except (KeyError, IndexError, TypeError):
            break
        path.append(step)
    return tuple(path)


class OutputCheck:
    """Finds the problems in an output that an operator gives for a call. Without a schema every output passes."""

    __slots__ = ("_label", "_schema", "_validator")

    def __init__(self, label: str, schema: dict[str, Any] | None) -> None:
        self._label = label
        self._schema = schema
        self._validator: Validator | None = None

    def __call__(self, output: Any) -> Sequence[Finding]:
        """All findings, at most fifty. Raises ``ToolInvalid`` if the schema itself is invalid."""
        if self._schema is None:
            return ()
        if self._validator is None:
            self._validator = compile_schema(self._schema, self._label, "output_schema", formats=False)
        return self._validator.faults(output)
