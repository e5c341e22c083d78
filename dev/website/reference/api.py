"""The public names, with their signatures and docstrings."""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, get_type_hints

import msgspec

import saga_engine
from dev.website.reference.markdown import WIDTH, cell, code, head, marked, prose, table
from dev.website.reference.settings_tables import meanings
from saga_engine.tools.options import ToolOptions

_ABOUT = """Every public name of `saga_engine`, with its signature and meaning. [Python](../python-api.md) shows how
they are used together, in examples that the tests run. What stands here and there keeps its meaning
([versions](../versions.md)); other names of the package may change with any version."""

#: The chapters, and their names in reading order. Every public name is in one.
CHAPTERS: Final[Mapping[str, tuple[str, ...]]] = {
    "Running sagas": ("Coordinator", "Handle", "Plan", "run_sync"),
    "Results": ("SagaResult", "StepResult", "CallResult", "Failure"),
    "Sessions": ("Session", "SyncSession", "sync_session", "Savepoint", "Undo"),
    "Tools": (
        "tool",
        "Tool",
        "ToolContext",
        "ToolRegistry",
        "Sensitive",
        "RetryPolicy",
        "BreakerPolicy",
        "select_tools",
    ),
    "Policy and operators": ("Policy", "Rule", "Escalation", "Question"),
    "Exceptions": (
        "SagaError",
        "PlanInvalid",
        "CallFailed",
        "CallBlocked",
        "NeedsPerson",
        "ToolError",
        "OutcomeUnknown",
    ),
    "Version": ("__version__",),
}
#: Methods without an underscore that other rooms of the engine call, and programs do not.
INTERNAL: Final[Mapping[str, frozenset[str]]] = {
    "Coordinator": frozenset({"drives", "takes_sagas", "ownership"}),
    "Handle": frozenset({"ended", "found", "journalled", "set_journalled", "when_done"}),
    "Session": frozenset(
        {
            *("at_rest", "begin", "begin_call", "bring", "close", "ended", "finish", "given_up", "keep", "knows"),
            *("numbered_call", "open_calls", "outcome", "outputs", "people_told", "recall", "repeat", "rest"),
            *("turned", "turned_away", "unheard_calls"),
        }
    ),
    "SyncSession": frozenset({"numbered_call", "run"}),
    "Tool": frozenset({"defaults", "hidden_params", "keyed", "redaction", "signature"}),
    "ToolRegistry": frozenset({"allow_secrets", "become", "drop", "limit_outputs", "probe", "read", "call", "missing"}),
    "Policy": frozenset({"concerning", "tightened", "unmatched"}),
    "Plan": frozenset({"json_bytes"}),
}
#: Classes whose objects the engine makes.
_MADE = {"Coordinator", "Handle", "SagaResult", "StepResult", "CallResult", "Failure", "Session", "SyncSession"}
_MADE |= {"Savepoint", "Question", "ToolContext", "Tool", "Plan"}


def page() -> str:
    """The page. Raises ``ValueError`` if a public name is in no chapter, or an internal one does not exist."""
    placed = [name for names in CHAPTERS.values() for name in names]
    if sorted(placed) != sorted(saga_engine.__all__):
        raise ValueError(f"in one of both only: {sorted(set(placed) ^ set(saga_engine.__all__))}")
    gone = [f"{name}.{each}" for name, every in INTERNAL.items() for each in every if not hasattr(_public(name), each)]
    if gone:
        raise ValueError(f"there is no {gone}")
    parts = [head("API", _ABOUT)]
    for chapter, names in CHAPTERS.items():
        parts.append(f"## {chapter}")
        parts += [part for name in names for part in _described(name)]
    return "\n\n".join(part.strip("\n") for part in parts if part) + "\n"


def _public(name: str) -> Any:
    return getattr(saga_engine, name)


def _described(name: str) -> Iterator[str]:
    value = _public(name)
    yield f"### `{name}`"
    if not callable(value):
        yield "The version of the installed package, a text."
        return
    if inspect.isclass(value):
        yield from _class(name, value)
        return
    yield _signature(name, value)
    if name != "tool":
        yield prose(value.__doc__)
        return
    yield _without_fields(value.__doc__)
    yield _options()


def _class(name: str, value: type) -> Iterator[str]:
    parents = [base.__name__ for base in value.__bases__ if base.__name__ in saga_engine.__all__]
    if parents:
        yield "A subclass of " + ", ".join(f"[`{parent}`](#{parent.lower()})" for parent in parents) + "."
    if name not in _MADE:
        yield _signature(name, value)
    yield _without_fields(value.__doc__) if name == "Coordinator" else prose(value.__doc__)
    if name == "Plan":
        yield "Its fields are those of the [plan schema](plan-schema.md)."
    else:
        yield _fields(value)
    for each, member in _members(name, value):
        yield from _member(each, member)


def _fields(value: type) -> str:
    rows: list[tuple[str, str, str]] = []
    if dataclasses.is_dataclass(value):
        rows = [(code(f.name), code(str(f.type)), _default(f)) for f in dataclasses.fields(value)]
    elif issubclass(value, msgspec.Struct):
        hints = get_type_hints(value)
        rows = [(code(f.name), code(_type(hints[f.name])), _default(f)) for f in msgspec.structs.fields(value)]
    elif issubclass(value, tuple):
        defaults = getattr(value, "_field_defaults", {})
        kinds = value.__annotations__
        rows = [(code(n), code(_bare(kinds[n])), code(repr(defaults[n])) if n in defaults else "") for n in kinds]
    return table(("field", "type", "default"), rows) if rows else ""


def _default(field: Any) -> str:
    nothing = (dataclasses.MISSING, msgspec.NODEFAULT)
    if not any(field.default is each for each in nothing):
        return code(repr(field.default))
    factory = field.default_factory
    return "" if any(factory is each for each in nothing) else code(repr(factory()))


def _type(annotation: Any) -> str:
    text = (
        annotation.__name__ if isinstance(annotation, type) and not hasattr(annotation, "__args__") else str(annotation)
    )
    return (
        text.replace("typing.", "")
        .replace("saga_engine.core.effects.", "")
        .replace("saga_engine.core.views.", "")
        .replace("NoneType", "None")
    )


def _bare(annotation: Any) -> str:
    return getattr(annotation, "__forward_arg__", None) or str(annotation)


def _members(name: str, value: type) -> Iterator[tuple[str, Any]]:
    """The methods and properties of a class and of the engine's classes that it inherits from, in their order."""
    seen: set[str] = set()
    parents = {each for base in value.__bases__ if base.__name__ in saga_engine.__all__ for each in dir(base)}
    for kind in value.__mro__:
        if not kind.__module__.startswith("saga_engine"):
            continue
        for each in vars(kind):
            member = inspect.getattr_static(value, each)
            plain = getattr(member, "__func__", member)
            own = (
                inspect.isfunction(plain) or isinstance(member, property) or type(member).__name__ == "cached_property"
            )
            if each.startswith("_") or each in seen or not own or each in INTERNAL.get(name, ()) or each in parents:
                continue
            seen.add(each)
            yield each, member


def _member(name: str, member: Any) -> Iterator[str]:
    yield f"#### `{name}`"
    plain = getattr(member, "fget", None) or getattr(member, "func", None)
    if plain is not None:
        returns = inspect.signature(plain).return_annotation
        yield f"```py\n{name}: {_text(returns)}\n```"
        yield prose(plain.__doc__)
        return
    if isinstance(member, classmethod):
        yield _signature(name, member.__func__, "@classmethod\n")
    else:
        yield _signature(name, member)
    docstring = getattr(member, "__doc__", None) or member.__func__.__doc__
    if name != "open":
        yield prose(docstring)
        return
    yield prose(docstring)
    arguments = [each for each in inspect.signature(member.__func__).parameters if each != "cls"]
    said = meanings(saga_engine.Coordinator.__doc__, arguments)
    if unsaid := set(arguments) - said.keys():
        raise ValueError(f"the docstring of Coordinator does not say what these mean: {', '.join(sorted(unsaid))}")
    rows = [(code(each), cell(marked(said[each]))) for each in arguments]
    yield "Its arguments:\n\n" + table(("argument", "meaning"), rows)


def _without_fields(docstring: str | None) -> str:
    """The paragraphs of a docstring that say no field's meaning."""
    parts = re.split(r"\n\s*\n", inspect.cleandoc(docstring or ""))
    return prose("\n\n".join(part for part in parts if not re.match(r"``\w+``(?:, ``\w+``)*: ", part)))


def _text(annotation: Any) -> str:
    return annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)


def _signature(name: str, value: Any, before: str = "") -> str:
    """A signature as it stands in the code, without ``self``, in as many lines as it needs."""
    function = inspect.unwrap(value) if inspect.isfunction(value) else value
    found = inspect.signature(value)
    params = [each for each in found.parameters.values() if each.name not in ("self", "cls")]
    found = found.replace(parameters=[p.replace(annotation=_Shown(p.annotation)) for p in params])
    returns = (
        ""
        if inspect.isclass(value) or found.return_annotation is found.empty
        else f" -> {_text(found.return_annotation)}"
    )
    words = [*_params(found.parameters.values())]
    begin = "" if inspect.isclass(value) else "async def " if inspect.iscoroutinefunction(function) else "def "
    line = f"{begin}{name}({', '.join(words)}){returns}"
    if len(line) > WIDTH - 20:
        line = f"{begin}{name}(\n" + "".join(f"    {word},\n" for word in words) + f"){returns}"
    return f"```py\n{before}{line}\n```"


class _Shown:
    """An annotation whose representation is its text."""

    def __init__(self, annotation: Any) -> None:
        self.text = "" if annotation is inspect.Parameter.empty else _text(annotation)


def _params(params: Any) -> Iterator[str]:
    """Each parameter as it is written, with the marks before and after those that have only a place or only a name."""
    last = None
    starred = False
    for each in params:
        if last is each.POSITIONAL_ONLY and each.kind is not each.POSITIONAL_ONLY:
            yield "/"
        if each.kind is each.KEYWORD_ONLY and not starred:
            starred = True
            yield "*"
        starred = starred or each.kind is each.VAR_POSITIONAL
        mark = {each.VAR_POSITIONAL: "*", each.VAR_KEYWORD: "**"}.get(each.kind, "")
        kind = f": {each.annotation.text}" if each.annotation.text else ""
        default = "" if each.default is each.empty else f" = {each.default!r}" if kind else f"={each.default!r}"
        yield f"{mark}{each.name}{kind}{default}"
        last = each.kind
    if last is inspect.Parameter.POSITIONAL_ONLY:
        yield "/"


def _options() -> str:
    kinds = ToolOptions.__annotations__
    said = meanings(saga_engine.tool.__doc__, kinds)
    if unsaid := kinds.keys() - said.keys():
        raise ValueError(f"the docstring of tool does not say what these mean: {', '.join(sorted(unsaid))}")
    rows = [(code(name), code(_bare(kind)), cell(marked(said[name]))) for name, kind in kinds.items()]
    return "Its options:\n\n" + table(("option", "type", "meaning"), rows)
