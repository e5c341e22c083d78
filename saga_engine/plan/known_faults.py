"""The faults of params of which some values are secret, and so unknown until the call is made.

The names of params are known all the same: what a schema says of them alone holds whatever the values are.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from saga_engine.plan.tool_spec import ToolSpec

Fault = tuple[tuple[str | int, ...], str]


def known_faults(spec: ToolSpec, params: Mapping[str, Any], secret: Collection[str]) -> Sequence[Fault]:
    """What is certainly wrong with ``params``; those called as in ``secret`` have markers in place of their values."""
    found = spec.check_params(params)
    if not secret or not found:
        return found
    about_known = [fault for fault in found if fault[0] and fault[0][0] not in secret]
    return about_known or list(_of_names(spec.input_schema, params, (), spec.sensitive))


def _of_names(
    schema: Mapping[str, Any], params: Mapping[str, Any], path: tuple[str, ...], sensitive: Collection[str]
) -> Iterator[Fault]:
    """What the schema's own keywords about names find; references and combinations of schemas are not followed."""
    declared = schema.get("properties")
    properties: Mapping[str, Any] = declared if isinstance(declared, Mapping) else {}
    for name in _names(schema.get("required")):
        if name not in params:
            yield path, f"the parameter {name!r} is missing"
    if schema.get("additionalProperties") is False and not schema.get("patternProperties"):
        for name in params:
            if name not in properties:
                yield (*path, name), f"unknown parameter {name[:100]!r}"
    least, most = schema.get("minProperties"), schema.get("maxProperties")
    if isinstance(least, int | float) and len(params) < least:
        yield path, f"at least {least} parameters are needed"
    if isinstance(most, int | float) and len(params) > most:
        yield path, f"at most {most} parameters are allowed"
    dependent = schema.get("dependentRequired")
    for present, needed in dependent.items() if isinstance(dependent, Mapping) else ():
        for name in _names(needed) if present in params else ():
            if name not in params:
                yield path, f"the parameter {name!r} is missing: {present!r} needs it"
    for name, value in params.items():
        inner = properties.get(name)
        if isinstance(value, Mapping) and isinstance(inner, Mapping) and name not in sensitive:
            yield from _of_names(inner, value, (*path, name), ())


def _names(found: Any) -> Sequence[str]:
    return [name for name in found if isinstance(name, str)] if isinstance(found, list | tuple) else ()
