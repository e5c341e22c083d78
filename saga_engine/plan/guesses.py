"""Finds values that the author of a plan has guessed: fields that no tool declares, and ids that nobody gave.

A model that does not know a value writes a plausible one. An id that stands in no goal, input or description of a tool
can only come from a call, so it must be bound. Names, dates, amounts and words are the author's to choose.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from saga_engine.errors import Problem
from saga_engine.plan import jsonpath, schema_types
from saga_engine.plan.bindings import Template
from saga_engine.plan.compiler import checked_draft
from saga_engine.plan.identifiers import ID_WORDS, MAYBE_WORDS, is_opaque, names_id, words
from saga_engine.plan.param_values import ParamValues
from saga_engine.plan.problems import known_names
from saga_engine.plan.undo_calls import written_undos
from saga_engine.plan.values import cut, json_path, printable

if TYPE_CHECKING:
    from saga_engine.plan.compiled import CompiledFallback, CompiledRollback, CompiledStep, Serving
    from saga_engine.plan.draft import Draft
    from saga_engine.plan.model import Plan
    from saga_engine.plan.param_values import Written
    from saga_engine.plan.problems import Path
    from saga_engine.plan.tool_spec import ToolCatalog, ToolSpec

_NONE: Final[Mapping[str, Any]] = {}
UNDECLARED: Final = "binding-undeclared"
INVENTED: Final = "value-invented"

_MAX_FOUND: Final = 20
_MAX_CHARS: Final = 200_000
_MAX_DEPTH: Final = 12
#: Words of parameters whose ids the caller chooses.
_FREE: Final = frozenset({"idempotency", "correlation", "trace", "nonce", "dedupe", "request", "external", "client"})
_ADDRESS: Final = re.compile(r"\d{1,3}(\.\d{1,3}){3}")
_PLACEHOLDER: Final = re.compile(
    r"<[^<>]+>|\[[^\[\]]+\]|(?:to ?be ?|tbd|todo|placeholder|replace|your[_-]|unknown[_-]|example[_-]|dummy|x{3,}).*"
    r"|.*(?:from|of)[_ -]step.*|step[_-]?\w+[._-](?:output|result|id).*",
    re.IGNORECASE,
)
_UUID: Final = re.compile(r"[0-9a-fA-F]{8}-[0-9a-fA-F-]{13,28}")


@dataclass(frozen=True, slots=True)
class Given:
    """What an author was told: texts and values from which a literal may come, and the ``input`` of the plan.

    ``outputs`` are those of steps that have happened, by their keys: what they have is known, whatever is declared.
    """

    values: Sequence[Any]
    input: Mapping[str, Any]
    outputs: Mapping[str, Any] = field(default_factory=dict)


def guesses(plan: Plan, catalog: ToolCatalog, given: Given) -> list[Problem]:
    """The values of a valid plan that its author has guessed, at most ``_MAX_FOUND``."""
    made = checked_draft(plan, catalog)
    finder = _Finder(made, catalog, given)
    # A param that several values reach is named once.
    invented = {problem.path: problem for step in made.steps for problem in finder.invented(step)}
    return [*undeclared_in(made, given.outputs), *invented.values()][:_MAX_FOUND]


# --- paths ---------------------------------------------------------------------------------------------------------


def undeclared(plan: Plan, catalog: ToolCatalog) -> list[Problem]:
    """The bindings of a plan to fields that the schema of the output does not mention, although it lists fields."""
    return undeclared_in(checked_draft(plan, catalog))[:_MAX_FOUND]


def undeclared_in(made: Draft, outputs: Mapping[str, Any] = _NONE) -> list[Problem]:
    """The same for a draft; ``outputs`` as in ``Given``."""
    known = {problem.path for problem in made.problems.listed()}
    found: list[Problem] = []
    for some in made.bound.values():
        for template, _, base, _ in some:
            for place in template.places:
                path = json_path((*base, *place.path))
                if place.source != "output" or place.tail is None or place.tail.selectors or path in known:
                    continue
                if place.step in outputs and _has(outputs[place.step], place.tail.path):
                    continue
                step = made.steps[made.by_key[place.step]]
                inner = place.tail.path
                if step.index in made.each and base[:2] != ("steps", step.index):  # a list of outputs
                    if made.each[step.index].collect or len(inner) < 2:
                        continue
                    inner = inner[1:]
                specs = [step.spec, *(each.spec for each in step.fallbacks if each.way == "tool")]
                if all(spec is not None and _is_declared(spec, inner) for spec in specs):
                    continue
                schema = step.spec.output_schema if step.spec is not None else None
                names = list((schema or {}).get("properties") or {})
                hint = known_names(names, f"fields in the output of {printable(step.tool, 80)}")
                message = f"{cut(place.text, 120)}: {cut(step.tool, 80)} does not declare that it returns this"
                found.append(Problem(UNDECLARED, path, message, hint))
    return found


def _has(output: Any, path: Sequence[str | int]) -> bool:
    try:
        jsonpath.follow(output, tuple(path))
    except jsonpath.Mismatch:
        return False
    return True


def _is_declared(spec: ToolSpec, path: Sequence[str | int]) -> bool:
    """Whether an output may have this place. A schema that lists fields and says nothing of others has no others."""
    if spec.output_schema is None:
        return True
    for length, part in enumerate(path):
        node = schema_types.locate(spec.output_schema, path[:length])
        if not isinstance(node, dict) or node.get("type") not in {None, "object"}:
            return True
        if isinstance(part, str) and not schema_types.told_of({**spec.output_schema, **node}, part):
            return False
    return True


# --- literals ------------------------------------------------------------------------------------------------------


class _Finder:
    """Finds invented ids in the steps of one plan."""

    def __init__(self, made: Draft, catalog: ToolCatalog, given: Given) -> None:
        self._made = made
        self._given = given
        specs = [spec for name in catalog.names() if (spec := catalog.spec(name)) is not None]
        self._returned = {spec.name: frozenset(_fields(spec.output_schema)) for spec in specs}
        texts = [*given.values, given.input]
        for spec in specs:
            texts += [spec.description, spec.use_when, spec.not_when, spec.returns, _without_names(spec.input_schema)]
            texts += [_without_names(spec.output_schema)]
        self._text = _flat(texts)[:_MAX_CHARS]
        self._plain = _squeezed(self._text)
        own = {name: value for name, value in made.plan.input.items() if name not in given.input}
        self._values = ParamValues(made, own)

    def invented(self, step: CompiledStep) -> Iterator[Problem]:
        """The ids in the calls of a step that nobody gave."""
        before = self._before(step)
        path: Path = ("steps", step.index)
        each = self._made.each.get(step.index)
        items = None if each is None else each.of
        calls: list[tuple[Path, CompiledStep | CompiledFallback]] = [(path, step)]
        calls += [((*path, "fallback", at), other) for at, other in enumerate(step.fallbacks) if other.way == "tool"]
        for place, call in calls:
            own_params = call is step or call.params is not step.params
            if own_params and not step.builtin and isinstance(call.params, Template):
                for found in self._values.of(call.params, (*place, "params"), items):
                    if self._is_invented(found.value, found.name, call.tool, before):
                        yield self._problem(found, call.tool, before)
            for inner, undo in written_undos(call.rollback, (*place, "rollback")):
                yield from self._in_undo(undo, (*inner, "params"), step, call, items)
        if step.late is not None:
            yield from self._in_undo(step.late, (*path, "wait", "on_late", "params"), step, step, None)

    def _before(self, step: CompiledStep) -> list[CompiledStep]:
        return [each for each in self._made.steps if each.index != step.index and each.index < step.index]

    def _in_undo(
        self, undo: CompiledRollback, path: Path, step: CompiledStep, of: Serving, items: Template | None
    ) -> Iterator[Problem]:
        """The ids in a call that undoes: what it acts on is what the step did, so an id is bound and has no default."""
        assert isinstance(undo.params, Template)
        before = [*self._before(step), step]
        items = undo.each if isinstance(undo.each, Template) else items
        spec = of.spec
        registered = spec.undo_params if spec is not None and spec.undo == undo.tool else None
        bound = {name for name, value in (registered or {}).items() if isinstance(value, str) and value[:1] == "$"}
        for found in self._values.of(undo.params, path, items):
            name, top = found.name, str(found.path[len(path)])
            schema = None if undo.spec is None else schema_types.locate(undo.spec.input_schema, (top,))
            marked = top in bound or (isinstance(schema, Mapping) and schema.get("format") == "uuid")
            same = of.params.raw.get(top) == found.value  # the step itself acted on it
            if same or self._is_given(found.value):
                continue
            if marked or names_id(name) or self._is_invented(found.value, name, undo.tool, before):
                yield self._problem(found, undo.tool, before)

    def _problem(self, found: Written, tool: str, before: Sequence[CompiledStep]) -> Problem:
        source = self._source(found.name, tool, before)
        what = f"{cut(found.value, 80)} for '{cut(found.name, 80)}'"
        message = f"{what} stands in no goal, input or description of a tool"
        hint = f"bind the output of {source}" if source else "bind it, or look it up with a tool that reads"
        return Problem(INVENTED, json_path(found.path), message, f"{hint}; never make up an id")

    def _is_invented(self, value: str | int, name: str, tool: str, before: Sequence[CompiledStep]) -> bool:
        parts = words(name)
        last = parts[-1] if parts else ""
        exact = any(self._returns(each.tool, name, parts) for each in before)
        if self._is_given(value) or (_FREE & set(parts) and not exact):
            return False
        if isinstance(value, str) and _UUID.fullmatch(value.strip()):
            return True
        if last not in ID_WORDS and not exact:
            return False
        if isinstance(value, int):
            return last in ID_WORDS and (exact or (value > _SMALL and bool(self._source(name, tool, before))))
        if _PLACEHOLDER.fullmatch(value.strip()) or _squeezed(value) == _squeezed(name):
            return True
        if exact and last in MAYBE_WORDS and _ADDRESS.fullmatch(value.strip()):
            return True
        return is_opaque(value) and (exact or bool(self._source(name, tool, before)))

    def _returns(self, tool: str, name: str, parts: Sequence[str]) -> bool:
        """Whether a tool returns what this parameter takes: the field of its name, or the id of the thing it names."""
        fields = self._returned.get(tool, frozenset())
        last = parts[-1] if parts else ""
        if name in fields and (last in ID_WORDS or last in MAYBE_WORDS):
            return True
        for each in fields:
            field = words(each)
            if len(field) > 1 and field[-1] in ID_WORDS and field[:-1] == list(parts):
                return True
        return False

    def _is_given(self, value: str | int) -> bool:
        if isinstance(value, int):
            return re.search(rf"(?<!\d){abs(value)}(?!\d)", self._text) is not None
        wanted = _squeezed(value)
        if len(wanted) > _SHORT:
            if wanted in self._plain:
                return True
        elif self._has_word(value.strip()):
            return True
        # An id that the author composed of given parts, as in CA1234-2026.
        parts = [part for part in re.split(r"[^0-9A-Za-z]+", value) if any(char.isdigit() for char in part)]
        composed = len(parts) > 0 and len(parts[0]) < len(value)
        return composed and all(len(part) > 1 and self._has_word(part) for part in parts)

    def _has_word(self, word: str) -> bool:
        # Texts without spaces between words may stand right beside it.
        return re.search(rf"(?<![0-9a-z]){re.escape(word.casefold())}(?![0-9a-z])", self._text) is not None

    def _source(self, name: str, tool: str, before: Sequence[CompiledStep]) -> str:
        """Whatever returns such a value: an earlier step, else another tool; empty if nothing is known to."""
        related = _related(name)
        for exactly in (True, False):
            for each in reversed(before):
                fields = self._returned.get(each.tool)
                if fields is not None and (name in fields if exactly else related & fields):
                    return f"step {each.key} ({printable(each.tool, 80)})"
        for each in reversed(before):
            spec = each.spec
            if spec is not None and spec.output_schema is None:
                return f"step {each.key} ({printable(each.tool, 80)})"
        others = [other for other, fields in self._returned.items() if other != tool and name in fields]
        return printable(others[0], 80) if others else ""


#: Whole numbers up to this are counts and positions as often as ids.
_SMALL: Final = 99
_SHORT: Final = 3


def _related(name: str) -> frozenset[str]:
    """Names of output fields that a parameter most likely takes: 'id' for 'vm_id', 'ref' for 'booking_ref'."""
    last = (words(name) or [""])[-1]
    return frozenset({last, name} if last in ID_WORDS else {name})


def _fields(schema: Any, depth: int = 0) -> Iterator[str]:
    """The names of all fields that a schema declares, at any depth."""
    if depth > _MAX_DEPTH:
        return
    if isinstance(schema, list):
        for item in schema:
            yield from _fields(item, depth + 1)
    if not isinstance(schema, Mapping):
        return
    properties = schema.get("properties")
    if isinstance(properties, Mapping):
        yield from (str(name) for name in properties)
        for item in properties.values():
            yield from _fields(item, depth + 1)
    for keyword in ("items", "prefixItems", "anyOf", "oneOf", "allOf", "additionalProperties"):
        yield from _fields(schema.get(keyword), depth + 1)
    for item in (schema.get("$defs") or {}).values() if isinstance(schema.get("$defs"), Mapping) else ():
        yield from _fields(item, depth + 1)


def _without_names(schema: Any) -> list[Any]:
    """The texts and values in a schema that an author may take over: descriptions, choices, defaults, examples."""
    found: list[Any] = []
    stack: list[tuple[Any, int]] = [(schema, 0)]
    while stack:
        node, depth = stack.pop()
        if isinstance(node, Mapping) and depth <= _MAX_DEPTH:
            for key, item in node.items():
                if key in {"description", "enum", "const", "default", "examples", "example", "pattern", "title"}:
                    found.append(item)
                if isinstance(item, Mapping | list):
                    stack.append((item, depth + 1))
        elif isinstance(node, list) and depth <= _MAX_DEPTH:
            stack += [(item, depth + 1) for item in node]
    return found


def _flat(values: Iterable[Any]) -> str:
    """All texts and numbers in some values, in one form."""
    parts: list[str] = []
    stack: list[Any] = list(values)
    while stack:
        value = stack.pop()
        if isinstance(value, Mapping):
            stack += [*value.keys(), *value.values()]
        elif isinstance(value, list | tuple):
            stack += value
        elif isinstance(value, str | int | float) and not isinstance(value, bool):
            parts.append(str(value))
    return unicodedata.normalize("NFKC", "\n".join(parts)).casefold()


def _squeezed(text: str) -> str:
    """A text without everything that people write differently: case, spaces, dashes."""
    return re.sub(r"[\W_]+", "", unicodedata.normalize("NFKC", text).casefold())
