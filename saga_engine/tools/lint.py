"""Finds tools whose descriptions are too thin for a model to choose and call them correctly.

A working tool may still be called wrongly, because the model that writes the plan knows only its declaration. A finding
never keeps a tool from being used.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, Literal

from saga_engine.plan.schema_types import told_of, unfillable
from saga_engine.plan.tool_spec import ToolCatalog, ToolSpec
from saga_engine.plan.which_undo import registered_undo
from saga_engine.tools.tool_search import words

Severity = Literal["error", "warning", "hint"]

#: A model that sees more tools than this chooses worse; ``select_tools`` offers so many.
MANY_TOOLS: Final = 20
#: A description with fewer distinct words than this (articles and the like aside) says hardly more than the name.
_FEW_WORDS: Final = 3
#: From this share of common words (Jaccard index) two descriptions count as alike.
_ALIKE: Final = 0.85

#: Verbs of tools that change what is there.
_CHANGES: Final = frozenset(
    {"change", "edit", "modify", "overwrite", "patch", "rename", "replace", "set", "update", "write"}
)
_GENERIC: Final = frozenset(
    (
        *("action", "api", "call", "create", "delete", "do", "exec", "execute", "fetch", "function", "get", "handle"),
        *("helper", "job", "main", "manage", "operation", "perform", "process", "query", "request", "run", "send"),
        *("set", "submit", "task", "test", "tool", "update", "util", "utils", "work"),
    )
)
#: Words that any description may have and that do not distinguish tools, in their compared form.
_EMPTY: Final = frozenset(
    words("do execute fetch get handle perform process run detail info information data list result")
)
#: The same in Chinese, which has no spaces between words.
_EMPTY_HAN: Final = re.compile(
    "获取|取得|查询|查看|执行|处理|进行|调用|操作|运行|详情|详细|信息|数据|列表|内容|结果|功能|接口|工具|方法|函数"
)
_HAN: Final = re.compile(r"[\u3400-\u4dbf\u4e00-\u9fff]+")
#: The average number of characters in a Chinese word.
_HAN_WORD: Final = 2
#: Phrases in a description that say when to use a tool.
_WHEN: Final = re.compile(
    r"\b(when|whenever|if|use (it|this)|used (to|for)|only for)\b|用于|当.{1,40}时|如果|使用", re.IGNORECASE
)
#: Texts whose form a name does not determine, by a word in the name, with the missing detail.
_FORMS: Final = {
    word: form
    for named, form in (
        ("date day", "its form (YYYY-MM-DD): annotate datetime.date"),
        ("time timestamp at", "its form and time zone: annotate datetime.datetime"),
        ("id ref", "what it identifies and where it comes from"),
        ("email url uri phone", "its form"),
        ("currency", "its form (ISO 4217, such as EUR)"),
        ("country", "its form (ISO 3166, such as DE)"),
        ("language locale", "its form (BCP 47, such as en-GB)"),
        ("amount", "its form and unit"),
        ("price", "its form and currency"),
        ("code", "which codes there are"),
        ("status type kind mode", "which values there are: annotate a Literal"),
        ("path", "from which folder it counts"),
        ("query filter", "its language, with an example"),
    )
    for word in named.split()
}
#: Numbers that need a unit, and the words in a name that give one.
_MEASURES: Final = frozenset(
    (*("amount", "price", "cost", "total", "duration", "timeout"), *("delay", "size", "weight", "distance"))
)
_UNITS: Final = frozenset(
    (
        *("s", "ms", "us", "sec", "secs", "seconds", "min", "minutes", "hours", "days", "nights", "bytes", "kb", "mb"),
        *("gb", "eur", "usd", "cny", "gbp", "cents", "kg", "g", "m", "km", "cm", "mm", "pct", "percent", "chars"),
        *("items", "pages"),
    )
)
#: Endings of parameters that take a value which another tool has made.
_REFERENCES: Final = frozenset(("id", "ref", "number", "key", "token", "code"))
#: Keywords that constrain a value beyond its bare type.
_TELLING: Final = ("description", "format", "pattern", "enum", "const", "examples", "$ref", "anyOf", "oneOf", "allOf")


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding. ``tool`` is its name, empty for a finding about all; ``error``: a model cannot choose the tool."""

    tool: str
    severity: Severity
    code: str
    message: str
    hint: str

    def to_dict(self) -> dict[str, str]:
        """The finding as one JSON object."""
        return asdict(self)


def lint(catalog: ToolCatalog) -> list[Finding]:
    """All findings, by tool in the order of registration, the most serious first; those about all tools come last."""
    specs = [spec for name in catalog.names() if (spec := catalog.spec(name)) is not None]
    serving = {name for spec in specs for name in (spec.undo, spec.probe, spec.before, spec.undo_absent) if name}
    undoing = {name for spec in specs for name in (spec.undo, spec.undo_absent) if name}
    rank = {"error": 0, "warning": 1, "hint": 2}
    twins = _look_alikes(specs)
    found: list[Finding] = []
    for spec in specs:
        of_tool = [
            *_named(spec),
            *_described(spec, serves=spec.name in serving),
            *twins.get(spec.name, ()),
            *_parameters(spec),
            *_undoable(spec, undoes=spec.name in undoing),
            *_fillable(spec, catalog),
            *_restorable(spec, undoes=spec.name in undoing),
            *_settled(spec),
            *_stated(spec, specs, undoes=spec.name in undoing),
            *_output(spec, specs, undoes=spec.name in undoing),
        ]
        found += sorted(of_tool, key=lambda finding: rank[finding.severity])
    if len(specs) - len(serving) > MANY_TOOLS:
        count = len(specs) - len(serving)
        hint = f"add tags and use_when, so that select_tools can offer the {MANY_TOOLS} tools that match a goal"
        found.append(Finding("", "hint", "many-tools", f"a model must choose among {count} tools", hint))
    return found


# --- the tool as a whole -------------------------------------------------------------------------------------------


def _named(spec: ToolSpec) -> Iterator[Finding]:
    parts = [part for part in re.split(r"[_.\-]+", spec.name.lower()) if part]
    if len(spec.name) < 3 or all(part in _GENERIC for part in parts):
        hint = "use a verb and a noun, such as book_flight or refund_payment"
        yield Finding(spec.name, "warning", "name-generic", "the name does not state what the tool does", hint)


def _described(spec: ToolSpec, *, serves: bool) -> Iterator[Finding]:
    """Check the description. ``serves``: it is an undo or probe, which the engine calls and no model chooses."""
    if not spec.description.strip():
        severity: Severity = "warning" if serves else "error"
        hint = "write a docstring that states the action, its object and its result"
        yield Finding(spec.name, severity, "description-missing", "the tool has no description", hint)
    elif _telling_words(spec.description) < _FEW_WORDS or set(words(spec.description)) <= set(words(spec.name)):
        hint = "state the action, its object and its result"
        yield Finding(spec.name, "warning", "description-thin", "the description adds little to the name", hint)
    if spec.description.strip() and not serves and not spec.use_when and not _WHEN.search(spec.description):
        hint = "add use_when='…', and not_when='…' for the cases in which another tool fits better"
        yield Finding(spec.name, "warning", "when-missing", "the description does not state when to use the tool", hint)


def _telling_words(text: str) -> int:
    """The number of distinct meaningful words: one each in 'get product details' and '获取产品详情'."""
    han = "".join(_HAN.findall(text))
    return len(set(words(_HAN.sub(" ", text))) - _EMPTY) + len(_EMPTY_HAN.sub("", han)) // _HAN_WORD


def _look_alikes(specs: Sequence[ToolSpec]) -> dict[str, list[Finding]]:
    """Tools whose descriptions a model cannot tell apart."""
    bags = [(spec.name, frozenset(words(f"{spec.description} {spec.use_when} {spec.not_when}"))) for spec in specs]
    bags = sorted((bag for bag in bags if len(bag[1]) >= _FEW_WORDS), key=lambda bag: len(bag[1]))
    found: dict[str, list[Finding]] = {}
    for at, (name, bag) in enumerate(bags):
        for other, more in bags[at + 1 :]:
            if len(bag) < _ALIKE * len(more):
                break  # They are sorted by size: all that follow are too large to be alike.
            if len(bag & more) < _ALIKE * len(bag | more):
                continue
            same = bag == more
            message = f"the description is {'the same as' if same else 'almost the same as'} that of {{}}"
            for one, twin in ((name, other), (other, name)):
                hint = "state how the two tools differ, for example in use_when and not_when"
                severity: Severity = "error" if same else "warning"
                found.setdefault(one, []).append(Finding(one, severity, "look-alike", message.format(twin), hint))
    return found


def _undoable(spec: ToolSpec, *, undoes: bool) -> Iterator[Finding]:
    if spec.effect == "write" and spec.undo is None and not undoes and "pivot" not in spec.tags:
        message = "the tool writes and has no undo: a plan can use it only with a rollback or as its pivot"
        hint = "set undo='…', or tag it 'pivot' if its effect cannot be undone, or set effect='read' if it only reads"
        yield Finding(spec.name, "warning", "undo-missing", message, hint)


def _restorable(spec: ToolSpec, *, undoes: bool) -> Iterator[Finding]:
    """A tool that by its name changes what is there can only be undone with the value as it was."""
    verb = re.split(r"[_.\-]+", spec.name.lower())[0]
    if spec.effect == "write" and spec.before is None and verb in _CHANGES and not (undoes or "pivot" in spec.tags):
        message = "the tool seems to change a value, and nothing reads the value before: no undo can restore it"
        hint = "set before='…', a tool that reads the value (docs/before-images.md)"
        yield Finding(spec.name, "hint", "before-missing", message, hint)


def _fillable(spec: ToolSpec, catalog: ToolCatalog) -> Iterator[Finding]:
    """The registered undo gets its params by name, from the params of the call and from its output."""
    undo = None if spec.undo is None else catalog.spec(spec.undo)
    registered = registered_undo(spec)
    if undo is None or spec.before is not None or registered is None or not registered.only_names:
        return
    properties = spec.input_schema.get("properties")
    given = list(properties) if isinstance(properties, dict) else []
    known = None if spec.input_schema.get("additionalProperties", True) is not False else given
    why = unfillable(undo.input_schema, known, spec.output_schema, known=False)
    if not why and known is not None and spec.output_schema is not None:
        missing = [n for n in _required(undo) if n not in known and not told_of(spec.output_schema, n)]
        why = f"it requires {', '.join(missing[:10])}, neither a param of the tool nor in its output" if missing else ""
    if why:
        hint = "give the params of the tool, or the fields of its output, the names of the undo's parameters"
        message = f"the engine cannot fill in the params of the undo {undo.name}: {why}"
        yield Finding(spec.name, "error", "undo-unfillable", message, hint)


def _settled(spec: ToolSpec) -> Iterator[Finding]:
    """A write whose outcome nobody can determine becomes a question to an operator whenever it breaks."""
    settles = spec.keyed or spec.probe or spec.remembers or spec.tolerates_absence or spec.on_doubt == "undo"
    if spec.effect == "write" and not settles:
        message = "nothing can settle a doubt: after a time-out, a 503 or an unexpected exception an operator is asked"
        hint = (
            "accept an idempotency_key, set probe='…', or raise ToolError (or use not_done) if the call did not happen"
        )
        yield Finding(spec.name, "hint", "doubt-unsettled", message, hint)


def refusals_unstated(spec: ToolSpec, undo: ToolSpec | None) -> bool:
    """Whether each refusal of a tool that is a bare exception would ask an operator, and its author may not know."""
    by_key = _cancels_by_key(spec) or (undo is not None and undo.undoes_by_key)
    settles = spec.probe or spec.before or spec.says_refusals or by_key
    return spec.effect == "write" and spec.keyed and not settles


def _cancels_by_key(spec: ToolSpec) -> bool:
    calls = [spec.undo_params or {}, *(call.get("params") or {} for call in spec.undo_then)]
    return all("$key" in params.values() for params in calls)


def _stated(spec: ToolSpec, specs: Sequence[ToolSpec], *, undoes: bool) -> Iterator[Finding]:
    """An exception of a tool with a key is no refusal by itself; an undo that fails asks an operator in any case."""
    undo = next((each for each in specs if each.name == spec.undo), None)
    if refusals_unstated(spec, undo) and not undoes:
        message = "an exception that is no ToolError leaves its call in doubt, so each such refusal asks an operator"
        hint = (
            "raise ToolError for refusals, name their classes in not_done, set raised='not-done' if its module raises "
            "nothing after the call, set probe='…', or let the undo cancel by the key: undo_params={'ref': '$key'}"
        )
        yield Finding(spec.name, "warning", "refusals-unstated", message, hint)


def _output(spec: ToolSpec, specs: Sequence[ToolSpec], *, undoes: bool) -> Iterator[Finding]:
    """Bindings to an undescribed output are guesses."""
    if spec.returns or spec.output_schema is not None:
        return
    hint = "annotate the return type, or add returns='…' or a Returns: section"
    own = spec.input_schema.get("properties", {})
    parts = set(words(spec.name))
    for other in specs:
        if other.name == spec.name:
            continue
        for name in _required(other):
            # flight_id may come from a tool with 'flight' in its name.
            thing, _, last = name.rpartition("_")
            made_here = last in _REFERENCES and bool(set(words(thing)) & parts) and not undoes
            if name not in own and (other.name == spec.undo or made_here):
                message = f"{other.name} may need {name!r} from the output, which has no description"
                yield Finding(spec.name, "warning", "output-unknown", message, hint)
                return
    if spec.effect == "read":
        yield Finding(spec.name, "warning", "output-unknown", "the tool reads, but its output has no description", hint)


def _required(spec: ToolSpec) -> list[str]:
    required = spec.input_schema.get("required")
    return [name for name in required if isinstance(name, str)] if isinstance(required, list) else []


# --- its parameters ------------------------------------------------------------------------------------------------


def _parameters(spec: ToolSpec) -> Iterator[Finding]:
    properties = spec.input_schema.get("properties")
    properties = properties if isinstance(properties, Mapping) else {}
    composed = any(word in spec.input_schema for word in ("$ref", "allOf", "anyOf", "oneOf", "patternProperties"))
    if not properties and not composed and spec.input_schema.get("additionalProperties", True) is not False:
        hint = "name its parameters in the signature, or pass an input_schema"
        yield Finding(
            spec.name, "warning", "params-open", "the tool accepts any parameters, so a model must guess them", hint
        )
    silent = []
    for name, schema in properties.items():
        if not isinstance(schema, Mapping) or _bare(schema):
            hint = f"annotate {name}, or describe it under Args: in the docstring"
            yield Finding(spec.name, "warning", "param-untyped", f"parameter {name!r} has no type", hint)
            continue
        lacks = _lacks(name, schema)
        if lacks:
            hint = f"state {lacks}; or describe it: Annotated[…, Field(description=…)], or Args: in the docstring"
            message = f"parameter {name!r} is a {schema.get('type')} without a format or description"
            yield Finding(spec.name, "warning", "param-undescribed", message, hint)
        elif not any(word in schema for word in _TELLING):
            silent.append(name)
    if silent:
        message = f"these parameters have no description: {', '.join(silent)}"
        yield Finding(spec.name, "hint", "params-plain", message, "describe them under Args: in the docstring")


def _bare(schema: Mapping[str, Any]) -> bool:
    return "type" not in schema and not any(word in schema for word in _TELLING)


def _lacks(name: str, schema: Mapping[str, Any]) -> str:
    """What a parameter with this name must say beyond its type; an empty text if nothing."""
    if any(word in schema for word in _TELLING):
        return ""
    parts = re.findall(r"[a-z]+", re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower())
    if schema.get("type") == "string":
        # The last word decides: order_id is an id.
        return next((_FORMS[part] for part in reversed(parts) if part in _FORMS), "")
    if schema.get("type") in ("integer", "number") and _MEASURES.intersection(parts) and not _UNITS.intersection(parts):
        return "its unit"
    return ""
