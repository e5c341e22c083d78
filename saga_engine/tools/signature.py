"""Reads a function's signature: the parameters for the model, those that the engine fills, and the JSON Schema."""

from __future__ import annotations

import functools
import inspect
import json
import operator
import re
import sys
import types
import typing
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Literal

from saga_engine.errors import ToolInvalid
from saga_engine.tools.context import ToolContext

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pydantic import TypeAdapter

KEY_PARAMETER = "idempotency_key"


class Sensitive:
    """Marks a parameter whose values no view shows: ``Annotated[str, Sensitive]`` (docs/tools.md)."""


_ABSENT = inspect.Parameter.empty
#: Annotations whose JSON form is already the value that the function expects.
_PLAIN: frozenset[Any] = frozenset({str, int, float, bool, dict, list, object, type(None), None, Any, _ABSENT})
#: Return annotations that do not describe the output.
_SILENT: tuple[Any, ...] = (_ABSENT, Any, object, None, type(None), dict, list, dict[str, Any], list[Any])


class _Unresolved:
    """An annotation with unknown names."""

    def __init__(self, text: str, reason: str) -> None:
        self.text = text
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Signature:
    """The parameters and the return type of a tool.

    ``context`` names the parameters that get a ``ToolContext``, ``wants_key`` says whether the engine fills
    ``idempotency_key``; neither is in ``input_schema``. ``accepts`` are the parameters that a model may fill, ``None``
    for any name. ``coercions`` convert JSON to the annotated types (a text to a ``datetime.date``). ``sensitive`` are
    the parameters marked so.
    """

    input_schema: dict[str, Any]
    output_schema: dict[str, Any] | None
    context: tuple[str, ...]
    wants_key: bool
    accepts: frozenset[str] | None
    hidden: frozenset[str]
    coercions: Mapping[str, TypeAdapter[Any]]
    sensitive: frozenset[str] = frozenset()


def parameters(fn: Callable[..., Any], label: str) -> Mapping[str, inspect.Parameter]:
    """The parameters of a function that can be passed by name; raises ``ToolInvalid`` if one cannot."""
    try:
        found = inspect.signature(fn).parameters
    except (TypeError, ValueError) as error:
        raise ToolInvalid(
            f"the signature of tool {label!r} cannot be read: {error}",
            hint="wrap it in a function with named parameters",
            tool=label,
        ) from error
    for name, parameter in found.items():
        if parameter.kind is parameter.POSITIONAL_ONLY:
            raise ToolInvalid(
                f"parameter {name!r} of tool {label!r} is positional-only",
                hint="a plan passes params by name: remove the '/' from the signature",
                tool=label,
            )
    return {name: parameter for name, parameter in found.items() if parameter.kind is not parameter.VAR_POSITIONAL}


def read_signature(  # noqa: PLR0917
    fn: Callable[..., Any],
    label: str,
    input_schema: dict[str, Any] | None,
    output_schema: dict[str, Any] | None,
    documented: Mapping[str, str] | None = None,
    filled: tuple[str, ...] = (),
) -> Signature:
    """Analyse a function once; given schemas replace derived ones. Raises ``ToolInvalid``.

    ``documented`` are descriptions of parameters from elsewhere, for a derived schema whose annotations have none.
    ``filled``: parameters that the engine fills, beside its own.
    """
    found = parameters(fn, label)
    if next(iter(found), "") == "self" and not hasattr(fn, "__self__"):
        raise ToolInvalid(
            f"tool {label!r} is a method without its object",
            hint="register the bound method: tools=[desk.book], not tools=[Desk.book]",
            tool=label,
        )
    base = _base_function(fn)
    hints = {name: _resolved(base, parameter.annotation) for name, parameter in found.items()}
    context = tuple(name for name, hint in hints.items() if _is_context(hint))
    _refuse_unfilled(filled, found, input_schema, label)
    fixed = frozenset((*_fixed_keywords(fn), *filled))
    catch_all = next((p for p in found.values() if p.kind is p.VAR_KEYWORD), None)
    visible = {
        name: parameter
        for name, parameter in found.items()
        if parameter is not catch_all and name not in context and name not in fixed and name != KEY_PARAMETER
    }
    coerced = {name: hints[name] for name in visible if not _is_plain(hints[name])}
    wants_key = KEY_PARAMETER in found and KEY_PARAMETER not in fixed
    if input_schema is None:
        adapters = _adapters(coerced, label)
        schema = _derived_schema(visible, hints, adapters, catch_all, label)
        _describe(schema["properties"], hints, documented or {})
    else:
        _refuse_misfit(input_schema, found, set(visible), None if catch_all is None else catch_all.name, label)
        adapters = _adapters({n: h for n, h in coerced.items() if not isinstance(h, _Unresolved)}, label)
        wants_key = wants_key or (catch_all is not None and KEY_PARAMETER in (input_schema.get("properties") or ()))
        schema = _without(input_schema, {*context, *fixed, KEY_PARAMETER} if wants_key else {*context, *fixed})
    if output_schema is None:
        output_schema = _returned_schema(_resolved(base, getattr(base, "__annotations__", {}).get("return", _ABSENT)))
    hidden = {*context, *fixed} | ({KEY_PARAMETER} if wants_key else set())
    accepts = None if catch_all is not None and schema.get("additionalProperties", True) is not False else visible
    if catch_all is not None and accepts is not None:
        accepts = {**visible, **(schema.get("properties") or {})}
    return Signature(
        input_schema=schema,
        output_schema=output_schema,
        context=context,
        wants_key=wants_key,
        accepts=None if accepts is None else frozenset(accepts),
        hidden=frozenset(hidden),
        coercions=adapters,
        sensitive=frozenset(name for name in visible if _is_sensitive(hints[name])),
    )


# --- annotations ---------------------------------------------------------------------------------------------------


def _base_function(fn: Callable[..., Any]) -> Any:
    """The function whose annotations count: inside partials, wrappers, methods and callable objects."""
    while True:
        if isinstance(fn, functools.partial):
            fn = fn.func
        elif hasattr(fn, "__wrapped__"):
            fn = fn.__wrapped__
        elif inspect.ismethod(fn):
            fn = fn.__func__
        elif inspect.isroutine(fn):
            return fn
        else:
            fn = type(fn).__call__


def _fixed_keywords(fn: Callable[..., Any]) -> set[str]:
    """The arguments that a ``functools.partial`` has fixed: the model must not change them."""
    fixed: set[str] = set()
    while isinstance(fn, functools.partial):
        fixed |= fn.keywords.keys()
        fn = fn.func
    return fixed


def _resolved(base: Any, annotation: Any) -> Any:
    """The annotation as an object, evaluated where the function was written."""
    if annotation is _ABSENT or annotation is None:
        return annotation
    names = getattr(base, "__globals__", {})
    cells = getattr(base, "__closure__", None) or ()
    code = getattr(base, "__code__", None)
    inner = {}
    for name, cell in zip(code.co_freevars if code else (), cells, strict=False):
        try:
            inner[name] = cell.cell_contents
        except ValueError:
            continue  # The name is bound only later, so no annotation can refer to it yet.
    holder = types.SimpleNamespace(__annotations__={"it": annotation})
    try:
        return typing.get_type_hints(holder, names, inner, include_extras=True)["it"]
    except Exception as error:  # noqa: BLE001 - evaluating an annotation may run any code
        text = annotation if isinstance(annotation, str) else repr(annotation)
        # ToolContext is often imported for type checkers only.
        return ToolContext if re.search(r"\bToolContext\b", text) else _Unresolved(text, str(error))


def _readable(hint: Any) -> Any:
    """The annotation with every ``typing.TypedDict`` in a form that pydantic reads.

    Before Python 3.12 pydantic accepts only those of ``typing_extensions``, and authors write the others.
    """
    return hint if sys.version_info >= (3, 12) else _rebuilt(hint, ())


def _rebuilt(hint: Any, inside: tuple[Any, ...]) -> Any:
    import typing_extensions

    if typing.is_typeddict(hint) and type(hint).__module__ == "typing" and hint not in inside:
        fields = typing.get_type_hints(hint, include_extras=True)
        required = typing_extensions.Required
        optional = typing_extensions.NotRequired
        kinds = {name: required if name in hint.__required_keys__ else optional for name in fields}
        bare = {name: _without_requirement(field) for name, field in fields.items()}
        made = {name: kinds[name][_rebuilt(field, (*inside, hint))] for name, field in bare.items()}
        # Called like this it has no class statement that a type checker could follow.
        factory: Any = typing_extensions.TypedDict
        rebuilt = factory(hint.__name__, made)
        rebuilt.__doc__ = hint.__doc__
        return rebuilt
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if not args or origin is Literal:
        return hint
    if origin is typing.Annotated:
        first = _rebuilt(args[0], inside)
        return hint if first is args[0] else typing.Annotated[(first, *args[1:])]
    new = tuple(_rebuilt(arg, inside) for arg in args)
    if all(one is other for one, other in zip(new, args, strict=True)):
        return hint
    return functools.reduce(operator.or_, new) if origin in (typing.Union, types.UnionType) else origin[new]


def _without_requirement(field: Any) -> Any:
    marks = (typing.Required, typing.NotRequired)
    return typing.get_args(field)[0] if typing.get_origin(field) in marks else field


def _is_context(hint: Any) -> bool:
    if hint is ToolContext:
        return True
    origin = typing.get_origin(hint)
    if origin is typing.Annotated:
        return _is_context(typing.get_args(hint)[0])
    return origin in (typing.Union, types.UnionType) and any(_is_context(arg) for arg in typing.get_args(hint))


def _marks(extra: Any) -> bool:
    return extra is Sensitive or isinstance(extra, Sensitive)


def _is_sensitive(hint: Any) -> bool:
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Annotated:
        return any(map(_marks, args[1:])) or _is_sensitive(args[0])
    return origin in (typing.Union, types.UnionType) and any(map(_is_sensitive, args))


def _is_plain(hint: Any) -> bool:
    """Whether a JSON value of the right type needs no conversion for this annotation."""
    origin = typing.get_origin(hint)
    args = typing.get_args(hint)
    if origin is Literal:
        return all(isinstance(arg, str | int | None) and not isinstance(arg, Enum) for arg in args)
    if origin is typing.Annotated:
        return _is_plain(args[0]) and all(isinstance(arg, str) or _marks(arg) for arg in args[1:])
    if origin in (dict, list, typing.Union, types.UnionType):
        return all(_is_plain(arg) for arg in args)
    try:
        return hint in _PLAIN
    except TypeError:
        return False


# --- schemas -------------------------------------------------------------------------------------------------------


def _adapters(hints: Mapping[str, Any], label: str) -> dict[str, TypeAdapter[Any]]:
    return {name: _adapter(name, hint, label) for name, hint in hints.items()}


def _adapter(name: str, hint: Any, label: str) -> TypeAdapter[Any]:
    from pydantic import TypeAdapter

    if isinstance(hint, _Unresolved):
        raise ToolInvalid(
            f"the annotation {hint.text!r} of parameter {name!r} of tool {label!r} cannot be resolved: {hint.reason}",
            hint="import or define the type at module level, or pass input_schema",
            tool=label,
        )
    try:
        return TypeAdapter(_readable(hint))
    except Exception as error:
        raise ToolInvalid(
            f"parameter {name!r} of tool {label!r} has a type that cannot come from JSON: {_first_line(error)}",
            hint="use JSON types, dataclasses, TypedDicts or pydantic models, or pass input_schema",
            tool=label,
        ) from error


def _derived_schema(
    visible: Mapping[str, inspect.Parameter],
    hints: Mapping[str, Any],
    coerced: Mapping[str, TypeAdapter[Any]],
    catch_all: inspect.Parameter | None,
    label: str,
) -> dict[str, Any]:
    """The JSON Schema of the visible parameters, with one type adapter each and shared definitions."""
    from pydantic import TypeAdapter

    typed = {name: hints[name] for name in visible if hints[name] is not _ABSENT}
    adapters = {name: coerced.get(name) or _adapter(name, hint, label) for name, hint in typed.items()}
    if catch_all is not None and hints[catch_all.name] is not _ABSENT:
        if typing.get_origin(hints[catch_all.name]) is typing.Unpack:
            raise ToolInvalid(
                f"tool {label!r} unpacks a TypedDict into **{catch_all.name}",
                hint="name the parameters in the signature, or pass input_schema",
                tool=label,
            )
        # The star distinguishes it from every parameter's name.
        adapters["**"] = _adapter(catch_all.name, hints[catch_all.name], label)
    try:
        made, shared = TypeAdapter.json_schemas([(name, "validation", a) for name, a in adapters.items()])
    except Exception as error:
        raise ToolInvalid(
            f"no JSON Schema can be made for the parameters of tool {label!r}: {_first_line(error)}",
            hint="use types that come from JSON, or pass input_schema",
            tool=label,
        ) from error
    schemas = {name: schema for (name, _), schema in made.items()}
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {name: _property(schemas.get(name, {}), p, label) for name, p in visible.items()},
        "additionalProperties": False if catch_all is None else schemas.get("**") or True,
    }
    required = [name for name, parameter in visible.items() if parameter.default is _ABSENT]
    if required:
        schema["required"] = required
    if "$defs" in shared:
        schema["$defs"] = shared["$defs"]
    return schema


def _describe(properties: dict[str, Any], hints: Mapping[str, Any], documented: Mapping[str, str]) -> None:
    """Give each property the text of its annotation, ``Annotated[str, "an IATA code"]``, else of the docstring."""
    for name, schema in properties.items():
        hint = hints[name]
        texts = typing.get_args(hint)[1:] if typing.get_origin(hint) is typing.Annotated else ()
        text = next((text for text in texts if isinstance(text, str)), documented.get(name))
        if text and "description" not in schema:
            properties[name] = {**schema, "description": text}


#: Keywords of JSON Schema that are for readers only (Draft 2020-12, Validation, section 9), and whose values are data
#: or schemas by name.
_TOLD = frozenset({"title", "description", "examples", "$comment"})
_DATA = frozenset({"const", "enum", "default", "required", "dependentRequired"})
_NAMED = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})


def shape(schema: Any) -> Any:
    """A schema without its text for readers: the part that decides whether two tools are the same."""
    if isinstance(schema, list):
        return [shape(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        word: value
        if word in _DATA
        else {name: shape(part) for name, part in value.items()}
        if word in _NAMED and isinstance(value, dict)
        else shape(value)
        for word, value in schema.items()
        if word not in _TOLD
    }


def _property(schema: dict[str, Any], parameter: inspect.Parameter, label: str) -> dict[str, Any]:
    default = parameter.default
    if default is _ABSENT:
        return schema
    if type(default).__module__.partition(".")[0] == "pydantic":
        raise ToolInvalid(
            f"parameter {parameter.name!r} of tool {label!r} has a pydantic Field as its default",
            hint=f"write {parameter.name}: Annotated[TYPE, Field(...)] = VALUE, so that the function stays callable",
            tool=label,
        )
    try:
        return {**schema, "default": json.loads(json.dumps(default, allow_nan=False))}
    except (TypeError, ValueError, RecursionError):
        return schema  # A default that is not JSON concerns only the function.


def _refuse_unfilled(
    filled: tuple[str, ...], found: Mapping[str, inspect.Parameter], schema: dict[str, Any] | None, label: str
) -> None:
    """Refuse a parameter that the engine is to fill and the function does not take."""
    catches_all = any(parameter.kind is parameter.VAR_KEYWORD for parameter in found.values())
    named = {*found, *((schema or {}).get("properties") or () if catches_all else ())}
    unknown = [name for name in filled if name not in named]
    if unknown:
        raise ToolInvalid(
            f"'expect' of tool {label!r} names {unknown[0]!r}, which is no parameter",
            hint="name the parameter that tells the other side what was read",
            tool=label,
        )


def _refuse_misfit(
    schema: dict[str, Any],
    found: Mapping[str, inspect.Parameter],
    visible: set[str],
    catch_all: str | None,
    label: str,
) -> None:
    """Refuse a given schema that allows what the function cannot take, or omits what it needs."""
    named = schema.get("properties") or {}
    unusable = [] if catch_all else [name for name in named if name not in found]
    # A composed schema may name its properties in any of its parts.
    parts = {"$ref", "$dynamicRef", "allOf", "anyOf", "oneOf", "if", "patternProperties"} & schema.keys()
    lacking = [] if parts else [n for n in found if n in visible and n not in named and found[n].default is _ABSENT]
    if unusable or lacking:
        problem = f"names {unusable[0]!r}, which the function does not take" if unusable else f"lacks {lacking[0]!r}"
        raise ToolInvalid(
            f"the input_schema of tool {label!r} {problem}",
            hint="a given schema describes exactly the parameters of the function",
            tool=label,
        )


def _without(schema: dict[str, Any], names: set[str]) -> dict[str, Any]:
    """A copy of a given schema without the parameters that the engine fills."""
    copy = dict(schema)
    if isinstance(copy.get("properties"), dict):
        copy["properties"] = {name: value for name, value in copy["properties"].items() if name not in names}
    if isinstance(copy.get("required"), list):
        copy["required"] = [name for name in copy["required"] if name not in names]
    return copy


def _returned_schema(hint: Any) -> dict[str, Any] | None:
    """The schema of the output, from the return annotation; ``None`` if that says nothing useful."""
    if isinstance(hint, _Unresolved) or any(hint is silent or hint == silent for silent in _SILENT):
        return None
    from pydantic import TypeAdapter

    try:
        schema = TypeAdapter(_readable(hint)).json_schema(mode="serialization")
    except Exception:  # noqa: BLE001 - an annotation that is no JSON type is legal here: the output is checked when it comes
        return None
    return schema or None


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0][:300]
