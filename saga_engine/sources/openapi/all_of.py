"""The parts of an ``allOf`` as one schema: what a value must satisfy in each part, it must satisfy in the whole.

Where two parts contradict each other, or one is closed to the properties of the other, the whole is left open: a
document is served by a program that accepts its examples, whatever the document's letter says.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

#: Words that two parts may both have; where their values differ, both stand in an ``allOf``.
_BOTH: Final = ("oneOf", "anyOf", "pattern", "multipleOf", "not")
#: The word for a property that one part calls read only, and another one declares without saying so: it may be sent.
PARTLY: Final = "x-saga-partly-read-only"
_TYPES: Final = {"number": {"integer", "number"}}


def intersected(first: Mapping[str, Any], second: Mapping[str, Any], loosened: Callable[[], None]) -> dict[str, Any]:
    """What satisfies both schemas. ``loosened`` is called where the result accepts more than both."""
    made = dict(first)
    for word, value in second.items():
        if word not in made or made[word] == value:
            made[word] = value
        elif word == "allOf":
            made["allOf"] = [*made["allOf"], *value]
        elif word in _BOTH:
            made["allOf"] = [*made.get("allOf", ()), {word: value}]
        elif word in _RULES:
            found = _RULES[word](made[word], value)
            if found is None:
                del made[word]
                loosened()
            else:
                made[word] = found
    names = [set(_names(each)) for each in (first, second)]
    if names[0] != names[1] and made.get("additionalProperties") is False:
        del made["additionalProperties"]
        loosened()
    return made


def texts(value: Any) -> list[str]:
    """The texts of a list; none if it is no list."""
    return [each for each in value if isinstance(each, str)] if isinstance(value, list) else []


def _names(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    properties = schema.get("properties")
    return properties if isinstance(properties, Mapping) else {}


def _properties(first: Any, second: Any) -> Any:
    if not isinstance(first, Mapping) or not isinstance(second, Mapping):
        return first if isinstance(first, Mapping) else second
    both = {name: _property(first[name], second[name]) for name in first if name in second}
    return {**first, **second, **both}


def _each(first: Any, second: Any) -> Any:
    """Two schemas for one place; a boolean that is true says nothing."""
    if first == second or second is True:
        return first
    return second if first is True else {"allOf": [first, second]}


def _property(first: Any, second: Any) -> Any:
    """A property that both parts have; ``PARTLY`` says that one of them alone calls it read only."""
    made = _each(first, second)
    only = [isinstance(each, Mapping) and each.get("readOnly") is True for each in (first, second)]
    return {**made, PARTLY: True} if isinstance(made, Mapping) and only[0] != only[1] else made


def _types(first: Any, second: Any) -> Any:
    kinds = [
        {k for t in ([v] if isinstance(v, str) else texts(v)) for k in _TYPES.get(t, {t})} for v in (first, second)
    ]
    shared = kinds[0] & kinds[1]
    if "number" in shared:
        shared.discard("integer")
    return (next(iter(shared)) if len(shared) == 1 else sorted(shared)) if shared else None


def _enum(first: Any, second: Any) -> Any:
    if not isinstance(first, list) or not isinstance(second, list):
        return None
    return [each for each in first if each in second] or None


def _most(first: Any, second: Any) -> Any:
    return max(first, second) if _number(first) and _number(second) else None


def _least(first: Any, second: Any) -> Any:
    return min(first, second) if _number(first) and _number(second) else None


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _more(first: Any, second: Any) -> Any:
    if isinstance(first, bool) and isinstance(second, bool):
        return first and second
    return None if False in (first, second) else _each(first, second)


_RULES: Final[Mapping[str, Callable[[Any, Any], Any]]] = {
    "properties": _properties,
    "required": lambda first, second: list(dict.fromkeys([*texts(first), *texts(second)])) or None,
    "type": _types,
    "enum": _enum,
    "const": lambda _first, _second: None,
    "items": _each,
    "additionalProperties": _more,
    "nullable": lambda _first, _second: False,
    "readOnly": lambda _first, _second: True,
    "uniqueItems": lambda _first, _second: True,
    **dict.fromkeys(("minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties"), _most),
    **dict.fromkeys(("maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties"), _least),
}
