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
from saga_engine.plan.problems import known_names
from saga_engine.plan.undo_calls import written_undos
from saga_engine.plan.values import cut, json_path, printable

if TYPE_CHECKING:
    from saga_engine.plan.compiled import CompiledFallback, CompiledStep
    from saga_engine.plan.draft import Draft
    from saga_engine.plan.model import Plan
    from saga_engine.plan.problems import Path
    from saga_engine.plan.tool_spec import ToolCatalog, ToolSpec

_NONE: Final[Mapping[str, Any]] = {}
UNDECLARED: Final = "binding-undeclared"
INVENTED: Final = "value-invented"

_MAX_FOUND: Final = 20
_MAX_CHARS: Final = 200_000
_MAX_DEPTH: Final = 12
#: The last word of a parameter that holds an id. Those of the second set hold one only if an earlier step returns it.
_ID_WORDS: Final = frozenset(
    {"id", "ids", "uuid", "guid", "ref", "refs", "reference", "arn", "handle", "locator", "pnr"}
)
_MAYBE_WORDS: Final = frozenset(
    {"number", "no", "code", "key", "token", "ip", "address", "endpoint", "sku", "iban", "account"}
)
#: Words of parameters whose ids the caller chooses.
_FREE: Final = frozenset({"idempotency", "correlation", "trace", "nonce", "dedupe", "request", "external", "client"})
_ADDRESS: Final = re.compile(r"\d{1,3}(\.\d{1,3}){3}")
_WORD: Final = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|[0-9]+")
#: Dates, times, amounts, versions and networks: values that are written and not looked up.
_WRITTEN: Final = re.compile(
    r"\d{1,4}[-/.]\d{1,2}([-/.]\d{1,4})?|\d{4}-\d\d-\d\d[T ].*|\d{1,2}:\d\d(:\d\d)?.*"
    r"|[+-]?[\d.,' ]+\s?[A-Za-z%€$£¥]{0,4}|v?\d+(\.\d+)+|[\d.]+/\d+|P(\d+[A-Z])*(T.*)?"
)
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
    invented = (problem for step in made.steps for problem in finder.invented(step))
    return [*undeclared_in(made, given.outputs), *invented][:_MAX_FOUND]


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

    def invented(self, step: CompiledStep) -> Iterator[Problem]:
        """The ids in the calls of a step that nobody gave."""
        before = self._before(step)
        path: Path = ("steps", step.index)
        calls: list[tuple[Path, CompiledStep | CompiledFallback]] = [(path, step)]
        calls += [((*path, "fallback", at), each) for at, each in enumerate(step.fallbacks) if each.way == "tool"]
        for place, call in calls:
            own_params = call is step or call.params is not step.params
            if own_params and isinstance(call.params, Template):
                yield from self._in_params(call.params.raw, (*place, "params"), call.tool, before, "")
            for inner, undo in written_undos(call.rollback, (*place, "rollback")):
                yield from self._in_params(undo.params.raw, (*inner, "params"), undo.tool, [*before, step], "")

    def _before(self, step: CompiledStep) -> list[CompiledStep]:
        return [each for each in self._made.steps if each.index != step.index and each.index < step.index]

    def _in_params(
        self, value: Any, path: Path, tool: str, before: Sequence[CompiledStep], name: str
    ) -> Iterator[Problem]:
        if isinstance(value, Mapping):
            for key, item in value.items():
                yield from self._in_params(item, (*path, key), tool, before, str(key))
        elif isinstance(value, list):
            for at, item in enumerate(value):
                yield from self._in_params(item, (*path, at), tool, before, name)
        else:
            literal = self._literal(value)
            if literal is not None and self._is_invented(literal, name, tool, before):
                source = self._source(name, tool, before)
                message = f"{cut(literal, 80)} for '{cut(name, 80)}' stands in no goal, input or description of a tool"
                hint = f"bind the output of {source}" if source else "bind it, or look it up with a tool that reads"
                yield Problem(INVENTED, json_path(path), message, f"{hint}; never make up an id")

    def _literal(self, value: Any) -> Any:
        """A value as the author wrote it: also one that stands in the author's own input."""
        if isinstance(value, str) and (found := re.fullmatch(r"\$input\.(\w+)", value)):
            own = self._made.plan.input
            return own.get(found[1]) if found[1] not in self._given.input else None
        if isinstance(value, str) and re.match(r"\$(output|input|saga|key|secret)(?!\w)", value):
            return None
        return value if isinstance(value, str | int) and not isinstance(value, bool) else None

    def _is_invented(self, value: str | int, name: str, tool: str, before: Sequence[CompiledStep]) -> bool:
        words = _words(name)
        last = words[-1] if words else ""
        exact = any(self._returns(each.tool, name, words) for each in before)
        if self._is_given(value) or (_FREE & set(words) and not exact):
            return False
        if isinstance(value, str) and _UUID.fullmatch(value.strip()):
            return True
        if last not in _ID_WORDS and not exact:
            return False
        if isinstance(value, int):
            return last in _ID_WORDS and (exact or (value > _SMALL and bool(self._source(name, tool, before))))
        if _PLACEHOLDER.fullmatch(value.strip()) or _squeezed(value) == _squeezed(name):
            return True
        if exact and last in _MAYBE_WORDS and _ADDRESS.fullmatch(value.strip()):
            return True
        return _is_opaque(value) and (exact or bool(self._source(name, tool, before)))

    def _returns(self, tool: str, name: str, words: Sequence[str]) -> bool:
        """Whether a tool returns what this parameter takes: the field of its name, or the id of the thing it names."""
        fields = self._returned.get(tool, frozenset())
        last = words[-1] if words else ""
        if name in fields and (last in _ID_WORDS or last in _MAYBE_WORDS):
            return True
        for each in fields:
            parts = _words(each)
            if len(parts) > 1 and parts[-1] in _ID_WORDS and parts[:-1] == list(words):
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


def _is_opaque(value: str) -> bool:
    """Whether a text looks like an id that a machine has made: one word with a digit, no date, no amount."""
    text = value.strip()
    if not text or re.search(r"\s", text) or len(text) > 200 or not any(char.isdigit() for char in text):
        return False
    if text.isdecimal():
        return len(text) > 4 and not re.fullmatch(r"(19|20)\d{6}", text)
    return _WRITTEN.fullmatch(text) is None


def _words(name: str) -> list[str]:
    return [word.lower() for word in _WORD.findall(name)]


def _related(name: str) -> frozenset[str]:
    """Names of output fields that a parameter most likely takes: 'id' for 'vm_id', 'ref' for 'booking_ref'."""
    last = (_words(name) or [""])[-1]
    return frozenset({last, name} if last in _ID_WORDS else {name})


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
