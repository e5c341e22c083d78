"""The sections of the page of the settings: tables of ``saga.toml``, as their declarations in the code say."""

from __future__ import annotations

import dataclasses
import inspect
import json
import re
from collections.abc import Callable, Iterable, Mapping
from itertools import groupby
from types import NoneType, UnionType
from typing import Any, Final, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints, is_typeddict

from dev.website.reference.markdown import cell, code, marked, prose, table, wrapped
from saga_engine.agents.guards import AgentGuards
from saga_engine.cli.trace_key import TraceTable
from saga_engine.execution.retention import RetentionTable
from saga_engine.hooks import config as hooks
from saga_engine.hooks.tables import EscalationTable, HookTable, LinksTable
from saga_engine.plan.tool_spec import BreakerPolicy, RetryPolicy
from saga_engine.policy.conditions import Condition
from saga_engine.policy.rules import PolicyTable, Rule
from saga_engine.privacy.config import PrivacyTable
from saga_engine.sources.http.table import HttpTable
from saga_engine.sources.mcp.tables import McpCallTable, McpCaseTable, McpHelperTable, McpTable, McpToolTable
from saga_engine.sources.tables import SHARED, ToolTable
from saga_engine.tools import overrides
from saga_engine.tools.decorator import tool
from saga_engine.tools.options import OPTIONS
from saga_engine.tools.overrides import ToolChanges
from saga_engine.tools.secrets import SecretsTable

#: A name of a shared option in a table of a tool that declares its own option of the other name.
_RENAMED: Final = {"before_absent": "absent", "verify_undo": "verify"}
_NAMED: Final = re.compile(r"(?:^|(?<=[.;] ))((?:``\w+``, )*``\w+``): ")


class Part(NamedTuple):
    """A heading, and the declaration of its fields. ``beside``: the one that has shown its other fields.

    ``together``: its docstring says what the fields do together, so it is shown whole.
    """

    heading: str
    kind: Any
    beside: Any = None
    together: bool = False


def _hooks() -> list[Part]:
    return [Part(f'### Hooks with `kind = "{kind}"`', of, HookTable) for kind, (of, _) in hooks._MAKERS.items()]  # noqa: SLF001


#: By the name of a table: the page that explains it, and the parts of its section.
SECTIONS: Final[Mapping[str, tuple[str, list[Part]]]] = {
    "policy": (
        "[policy](../policy.md)",
        [
            Part("## `[policy]`", PolicyTable),
            Part("### `[[policy.rules]]`", Rule),
            Part("### Conditions: `when` of a rule", Condition),
        ],
    ),
    "tools": (
        "[what the operator can change](../tools.md#what-the-operator-can-change)",
        [
            Part("## `[tools.NAME]`", ToolChanges),
            Part("### `retry` of a tool", RetryPolicy, together=True),
            Part("### `breaker` of a tool", BreakerPolicy, together=True),
        ],
    ),
    "http": ("[HTTP tools](../http-tools.md)", [Part("## `[http.NAME]`", HttpTable)]),
    "mcp": (
        "[MCP servers](../mcp.md)",
        [
            Part("## `[mcp.NAME]`", McpTable),
            Part("### `[mcp.NAME.tools.TOOL]`", McpToolTable),
            Part("### `[mcp.NAME.tools.TOOL.cases.CASE]`", McpCaseTable, McpCallTable),
            Part("### `[mcp.NAME.helpers.HELPER]`", McpHelperTable, McpCallTable),
        ],
    ),
    "escalation": (
        "[escalation](../escalation.md) and [chat](../chat.md)",
        [
            Part("## `[escalation]`", EscalationTable),
            Part("### `[[escalation.hooks]]`", HookTable),
            *_hooks(),
            Part("### `[escalation.links]`", LinksTable),
        ],
    ),
    "trace": ("[leaving fields out](../trace.md#leaving-fields-out)", [Part("## `[trace]`", TraceTable)]),
    "secrets": ("[secrets of plans](../plan-format.md#secrets)", [Part("## `[secrets]`", SecretsTable)]),
    "agents": ("[sessions](../sessions.md#guards-against-loops)", [Part("## `[agents]`", AgentGuards)]),
    "retention": ("[retention](../privacy.md#retention)", [Part("## `[retention]`", RetentionTable)]),
    "privacy": ("[privacy](../privacy.md)", [Part("## `[privacy]`", PrivacyTable)]),
}


def section(name: str) -> list[str]:
    """The section of a table: what it is for, the page that explains it, and its fields."""
    page, parts = SECTIONS[name]
    found: list[str] = []
    for part in parts:
        more = f" See {page}." if part is parts[0] else ""
        purpose = prose(part.kind.__doc__) if part.together else wrapped(_purpose(part.kind) + more)
        found += [part.heading, purpose, _fields(part)]
        if part.beside is McpCallTable:
            found.append("Its other fields are those of a tool, without `name`.")
        elif inspect.isclass(part.kind) and issubclass(part.kind, ToolTable):
            found.append(wrapped(_shared()))
    return found


def meanings(docstring: str | None, names: Iterable[str]) -> dict[str, str]:
    """What a docstring says of each of these fields, as ``name``: meaning, or ``one``, ``other``: meaning."""
    known = set(names)
    found: dict[str, str] = {}
    for paragraph in re.split(r"\n\s*\n", docstring or ""):
        text = " ".join(paragraph.split())
        places = [each for each in _NAMED.finditer(text) if set(re.findall(r"\w+", each[1])) <= known]
        for place, after in zip(places, [*places[1:], None], strict=False):
            meaning = text[place.end() : after.start() if after else None].strip().rstrip(".;")
            found |= dict.fromkeys(re.findall(r"\w+", place[1]), meaning)
    return found


def _purpose(kind: Any) -> str:
    return marked(inspect.cleandoc(kind.__doc__ or "").split("\n\n")[0])


def _fields(part: Part) -> str:
    """A row for each field; neighbours that differ in their names alone share one."""
    kind, beside = part.kind, part.beside
    hints, defaults = hints_of(kind), _defaults(kind)
    shown = set() if beside is None else {each.name for each in dataclasses.fields(beside)}
    names = [name for name in defaults if name not in shown]
    said = dict.fromkeys(names, "") if part.together else _meanings(kind, names)
    # A default that depends on others stands in the meaning.
    usuals = {name: "" if defaults[name] == "none" and "default" in said[name] else defaults[name] for name in names}
    rows = [(name, code(toml_type(hints[name])), usuals[name], cell(marked(said[name]))) for name in names]
    merged = [(", ".join(code(row[0]) for row in same), *rest) for rest, same in groupby(rows, key=lambda row: row[1:])]
    return table(("field", "type", "default", "meaning"), merged)


def _defaults(kind: Any) -> dict[str, str]:
    if is_typeddict(kind):
        return dict.fromkeys(overrides._ALLOWED, "")  # noqa: SLF001
    return {each.name: usual(each) for each in dataclasses.fields(kind)}


def usual(field: Any, nothing: tuple[Any, ...] = (dataclasses.MISSING,)) -> str:
    """The default of a field as a cell of a table; ``nothing``: what stands for none."""
    value = field.default
    if any(value is each for each in nothing):
        if any(field.default_factory is each for each in nothing):
            return "required"
        value = field.default_factory()
    value = dict(value) if isinstance(value, Mapping) else value
    plain = isinstance(value, str | int | float | list | tuple | dict)
    return code(_value(value)) if plain and value not in ("", [], (), {}) else "none"


def _value(value: Any) -> str:
    """A value in TOML."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{json.dumps(name)} = {_value(each)}" for name, each in value.items()) + " }"
    return json.dumps(value, ensure_ascii=False)


def _meanings(kind: Any, names: list[str]) -> dict[str, str]:
    """What the class says of its fields, else its bases; of an option of tools, else what ``@tool`` says."""
    said: dict[str, str] = {}
    if kind is ToolChanges or issubclass(kind, ToolTable):
        said = meanings(tool.__doc__, OPTIONS) | meanings(ToolChanges.__doc__, ToolChanges.__annotations__)
    for each in reversed(kind.__mro__):
        said |= meanings(each.__doc__, names)
    mute = [name for name in names if name not in said]
    if mute:
        raise ValueError(f"the docstring of {kind.__name__} does not say what these mean: {', '.join(mute)}")
    return said


def _shared() -> str:
    """The options of every tool that such a table may have."""
    unknown = [name for name in SHARED if _RENAMED.get(name, name) not in overrides._ALLOWED]  # noqa: SLF001
    if unknown:
        raise ValueError(f"{', '.join(unknown)}: no options of [tools.NAME]")
    listed = ", ".join(code(name) for name in SHARED)
    renamed = " ".join(f"{code(here)} is its {code(there)}." for here, there in _RENAMED.items())
    return f"It may also have these [options of every tool](#toolsname): {listed}. {renamed}"


def hints_of(kind: Any) -> dict[str, Any]:
    """The types of the fields of a class; ``Links`` is imported there by type checkers alone."""
    return get_type_hints(kind, localns={"Links": Any})


def toml_type(hint: Any) -> str:
    """A type in the words of the file: what it cannot express is left out."""
    origin, args = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        words = [toml_type(each) for each in args if each is not NoneType and not _of_python(each)]
        return " | ".join(dict.fromkeys(words))
    if origin is Literal:
        return " | ".join(_value(each) for each in args)
    if hint is Any:
        return "any"
    kind = origin or hint
    if issubclass(kind, Mapping) or dataclasses.is_dataclass(kind):
        return "table"
    if issubclass(kind, Iterable) and not issubclass(kind, str):
        return f"list[{toml_type(args[0])}]"
    return str(kind.__name__)


def _of_python(hint: Any) -> bool:
    return get_origin(hint) in (type, get_origin(Callable[..., Any]))
