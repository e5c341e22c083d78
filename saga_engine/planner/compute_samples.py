"""Results of a plan's computations with sample values: a reader sees what is computed, and a slip such as 15 for 0.15.

Samples come from the schemas of outputs; the input has its own values. What has no schema has no sample.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, Final

from saga_engine.errors import BindingUnresolved
from saga_engine.plan import compute, graph
from saga_engine.plan.compiled import Item
from saga_engine.plan.each import ItemScope
from saga_engine.plan.identifiers import words

if TYPE_CHECKING:
    from saga_engine.plan.compiled import CompiledPlan, CompiledStep

_DEPTH: Final = 8
#: Words of a text that is a date.
_DATES: Final = frozenset({"date", "day", "due", "start", "end", "from", "until", "begin", "since", "at", "on"})
_DATE: Final = "2026-01-15"


class _Samples:
    """A scope in which steps have sample outputs, and computations their results."""

    end: Mapping[str, Any] = {}
    saga_id = "saga"
    item: Any = None
    index = 0

    def __init__(self, plan: CompiledPlan) -> None:
        self._plan = plan
        self.input = plan.input
        self.known: dict[str, Any] = {}

    def output(self, step_key: str) -> Any:
        if step_key not in self.known:
            step = self._plan.steps[self._plan.by_key[step_key]]
            each = step.each
            spec = step.spec if each is None else each.item.spec
            if spec is None or spec.output_schema is None or step.builtin == compute.WORD:
                return _unknown()
            made = sample(spec.output_schema, "", 0)
            self.known[step_key] = made if each is None else [made, made]
        return self.known[step_key]

    def params(self, step_key: str) -> Any:  # noqa: ARG002
        return _unknown()

    before = key = secret = params


def _unknown() -> Any:
    raise BindingUnresolved("there is no sample", absent=True)


def computed_samples(plan: CompiledPlan, keys: Collection[str]) -> dict[str, tuple[bool, Any]]:
    """For each computation whether it has a result, and the result or why there is none.

    ``keys``: the steps that compute, or have computations in their params, of which the params are the result; of a
    list, those of the first item.
    """
    scope = _Samples(plan)
    found: dict[str, tuple[bool, Any]] = {}
    for index in graph.sort([step.deps for step in plan.steps]):
        step: CompiledStep = plan.steps[index]
        if step.key not in keys:
            continue
        try:
            if step.builtin == compute.WORD:
                scope.known[step.key] = step.params.resolve(scope)[compute.WORD]
                found[step.key] = True, scope.known[step.key]
            else:
                found[step.key] = True, _params_of(step, scope)
        except BindingUnresolved as error:
            found[step.key] = False, error.message
    return found


def _params_of(step: CompiledStep, scope: _Samples) -> Any:
    if step.each is None:
        return step.params.resolve(scope)
    ((_, items),) = step.params.resolve(scope).items()
    if not isinstance(items, list) or not items:
        return _unknown()
    return step.each.item.params.resolve(ItemScope(scope, Item(step.index, 0, step.key, step.key, items[0])))


def sample(schema: Mapping[str, Any], name: str, at: int, depth: int = 0) -> Any:
    """A value that a schema describes, for the field ``name``; ``at``: its number in a list."""
    if depth > _DEPTH or not isinstance(schema, Mapping):
        return None
    if "const" in schema:
        return schema["const"]
    if isinstance(schema.get("enum"), list) and schema["enum"]:
        return schema["enum"][at % len(schema["enum"])]
    choices = schema.get("anyOf") or schema.get("oneOf")
    kind = schema.get("type")
    if kind is None and isinstance(choices, list) and choices:
        return sample(choices[0], name, at, depth + 1)
    kind = next((each for each in kind if each != "null"), "null") if isinstance(kind, list) else kind
    if kind == "object":
        fields = schema.get("properties")
        some = fields if isinstance(fields, Mapping) else {}
        return {str(key): sample(inner, str(key), at, depth + 1) for key, inner in some.items()}
    if kind == "array":
        items = schema.get("items")
        return [sample(items, name, each, depth + 1) for each in (0, 1)] if isinstance(items, Mapping) else []
    if kind in {"number", "integer"}:
        least = schema.get("minimum")
        return max((100, 40)[at % 2] if kind == "number" else (2, 3)[at % 2], least if isinstance(least, int) else 0)
    if kind == "string":
        dated = str(schema.get("format", "")).startswith("date") or bool(_DATES & set(words(name)))
        time = "T09:00:00+00:00" if schema.get("format") == "date-time" else ""
        return f"{_DATE}{time}" if dated else f"<{name or 'text'}{at or ''}>"
    return True if kind == "boolean" else None
