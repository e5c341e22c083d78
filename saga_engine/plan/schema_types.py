"""Derives from a JSON Schema whether a place in a value exists and which type it has; in doubt, says nothing.

This is not validation (the tool's own check does that); it lets a plan be checked before the values are known.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

#: Keywords by which the schema of a nested place may differ from what its parents say.
_BRANCHING = frozenset(
    {
        "allOf",
        "anyOf",
        "dependentSchemas",
        "if",
        "not",
        "oneOf",
        "unevaluatedItems",
        "unevaluatedProperties",
        "$dynamicRef",
    }
)
#: Keywords that apply to a value as a whole: a fault that they find may lie in any part of it.
_WHOLE = _BRANCHING | {"const", "contains", "enum", "uniqueItems"}
_MAX_HOPS = 32


_NONE: Final = "none of its parameters ({}) is known to be a param or an output field of the call"


class Absent:
    """The type of ``ABSENT``."""


#: The schema excludes that the place exists.
ABSENT: Final = Absent()


def properties(schema: dict[str, Any]) -> dict[str, Any]:
    """The schemas of an object's fields, by name."""
    found = schema.get("properties")
    return found if isinstance(found, dict) else {}


def _target(root: dict[str, Any], node: Any) -> Any:
    """The node itself, or the target of its local ``$ref``; ``None`` if that is unknown."""
    for _ in range(_MAX_HOPS):
        if not isinstance(node, dict) or "$ref" not in node:
            return node
        reference = node["$ref"]
        if not isinstance(reference, str) or not reference.startswith("#"):
            return None
        node = root
        for part in reference[1:].split("/")[1:]:
            name = part.replace("~1", "/").replace("~0", "~")
            if not isinstance(node, dict) or name not in node:
                return None
            node = node[name]
    return None


def _alone(node: Any) -> Any:
    """Reduce ``anyOf`` of one branch and null, the usual form of an optional value, to that branch."""
    if isinstance(node, dict) and isinstance(node.get("anyOf"), list) and "properties" not in node:
        branches = [branch for branch in node["anyOf"] if branch != {"type": "null"}]
        if len(branches) == 1 and len(node["anyOf"]) == 2:
            return branches[0]
    return node


def locate(root: dict[str, Any], path: Iterable[str | int]) -> Any:
    """The schema of the place at ``path``: a dict, ``ABSENT``, or ``None`` if the schema leaves it open."""
    node = _settled(root, root)
    for part in path:
        if node is None or isinstance(node, Absent):
            return node
        if _BRANCHING & node.keys():
            return None
        types = node.get("type")
        wanted = "object" if isinstance(part, str) else "array"
        if isinstance(types, str | list) and wanted not in ([types] if isinstance(types, str) else types):
            return ABSENT
        node = _settled(root, _property(node, part) if isinstance(part, str) else _item(node, part))
    return node


def _settled(root: dict[str, Any], node: Any) -> Any:
    # An optional value may be a reference to a schema that is itself optional.
    for _ in range(3):
        node = _alone(_target(root, node))
    if node is False:
        return ABSENT
    return node if isinstance(node, dict | Absent) else None


def _property(node: dict[str, Any], name: str) -> Any:
    properties = node.get("properties")
    if isinstance(properties, dict) and name in properties:
        return properties[name]
    if node.get("patternProperties"):
        return None
    return node.get("additionalProperties")


def _item(node: dict[str, Any], index: int) -> Any:
    first = node.get("prefixItems")
    if isinstance(first, list) and first:
        if index < 0:
            return None
        if index < len(first):
            return first[index]
    return node.get("items")


def types(
    root: dict[str, Any], node: Any, depth: int = 0, seen: dict[int, frozenset[str] | None] | None = None
) -> frozenset[str] | None:
    """The JSON types that a schema allows, ``integer`` as ``number``; ``None`` if it does not say.

    ``seen``: what was found so far, by place. References may double at each step: no place is looked at twice.
    """
    seen = {} if seen is None else seen
    for _ in range(_MAX_HOPS):
        if not isinstance(node, dict) or "$ref" not in node:
            break
        node = _target(root, node)
    if not isinstance(node, dict) or depth > 8:
        return None
    if id(node) not in seen:
        seen[id(node)] = None  # while it is looked at, and if it leads to itself
        seen[id(node)] = _types(root, node, depth, seen)
    return seen[id(node)]


def _types(
    root: dict[str, Any], node: dict[str, Any], depth: int, seen: dict[int, frozenset[str] | None]
) -> frozenset[str] | None:
    given = node.get("type")
    if isinstance(given, str | list):
        names = [given] if isinstance(given, str) else given
        return frozenset("number" if name == "integer" else str(name) for name in names)
    for keyword in ("anyOf", "oneOf"):
        branches = node.get(keyword)
        if isinstance(branches, list) and branches:
            found: frozenset[str] = frozenset()
            for branch in branches[:100]:
                of_branch = types(root, branch, depth + 1, seen)
                if of_branch is None:
                    return None
                found |= of_branch
            return found
    if "const" in node:
        return frozenset({type_of(node["const"])})
    if isinstance(node.get("enum"), list):
        return frozenset(type_of(value) for value in node["enum"])
    return None


def type_of(value: Any) -> str:
    """The JSON type of a plain value, ``integer`` as ``number``."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int | float):
        return "number"
    return "string" if isinstance(value, str) else "array" if isinstance(value, list) else "object"


def checks_whole(root: dict[str, Any], path: Iterable[str | int]) -> bool:
    """Whether a fault at ``path`` may be in a value below it (also if the schema cannot tell)."""
    node = _target(root, root)
    for part in path:
        if not isinstance(node, dict) or _BRANCHING & node.keys():
            return True
        node = _target(root, _property(node, part) if isinstance(part, str) else _item(node, part))
    return not isinstance(node, dict) or bool(_WHOLE & node.keys())


def unfillable(
    undo: dict[str, Any], given: Collection[str] | None, output: dict[str, Any] | None, *, known: bool
) -> str:
    """Why a registered undo with this input schema would be called without its parameters; empty if it would not.

    The engine fills the parameters that it finds by name in the params of the call (``given``; None: any) and in its
    ``output``. ``known``: an output about which nothing is known counts as having none of them.
    """
    if "$ref" in undo or not _BRANCHING.isdisjoint(undo):
        return ""
    properties = undo.get("properties")
    if not isinstance(properties, dict):
        return "" if known else "it names no parameters"
    if not properties:
        return "it accepts any parameters and names none" if undo.get("additionalProperties", True) is not False else ""
    if given is None or any(name in given for name in properties):
        return ""
    required = undo.get("required")
    if output is None:
        # A missing required one is found when the undo is called.
        return "" if known or (isinstance(required, list) and required) else _NONE.format(", ".join(properties))
    if any(told_of(output, name) for name in properties):
        return ""
    return _NONE.format(", ".join(list(properties)[:10]))


def told_of(schema: dict[str, Any], name: str) -> bool:
    """Whether a schema says that an object may have this field, or does not list its fields at all.

    Stricter than ``locate``: if the schema lists fields and is silent about others, there are no others.
    """
    node = _target(schema, schema)
    if not isinstance(node, dict) or any(word in node for word in ("patternProperties", *_BRANCHING)):
        return True
    properties = node.get("properties")
    if isinstance(properties, dict) and properties and "additionalProperties" not in node:
        return name in properties
    return locate(schema, (name,)) is not ABSENT
