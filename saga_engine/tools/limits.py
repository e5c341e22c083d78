"""The notation of a tool's limits: keys of resources, and rates.

This module only parses them; ``guards`` enforces them.
"""

from __future__ import annotations

import json
import re
import string
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Literal

#: The return value of a function of the params: no resource, one, or several.
ResourceFunction = Callable[[Mapping[str, Any]], "str | Sequence[str] | None"]
ResourceKey = str | Sequence[str] | ResourceFunction
#: Who holds the resources of a call until its end, beside the call itself.
Hold = Literal["saga"]

_PERIODS_US: Final = {"s": 1_000_000, "min": 60_000_000, "h": 3_600_000_000, "d": 86_400_000_000}
_RATE: Final = re.compile(r"([0-9]{1,7})/(s|min|h|d)")
_MAX_PER_PERIOD: Final = 1_000_000


def parse_rate(text: str) -> tuple[int, int]:
    """The pace of a rate such as ``10/s`` or ``100/h``: (microseconds between two calls, calls at once).

    It is for the generic cell rate algorithm (ITU-T I.371). A tenth of the calls may come at once and the others are
    spread evenly, so that no period of this length, wherever it begins, has more calls than the rate allows.

    Raises ``ValueError`` for anything else than a whole number from 1 to 1,000,000 per ``s``, ``min``, ``h`` or ``d``.
    """
    found = _RATE.fullmatch(text) if isinstance(text, str) else None
    if found is None or not 1 <= int(found[1]) <= _MAX_PER_PERIOD:
        raise ValueError(f"{text!r} is no rate: write a whole number per s, min, h or d, such as '10/s'")
    calls, period_us = int(found[1]), _PERIODS_US[found[2]]
    burst = max(1, calls // 10)
    return -(-period_us // (calls - burst + 1)), burst


def template_fields(template: str) -> list[str]:
    """The parameter names in a resource template such as ``user:{user_id}``.

    Raises ``ValueError`` for anything but plain names in braces: attributes, indexes, formats and conversions would let
    a value decide which code runs.
    """
    names: list[str] = []
    for _, name, spec, conversion in string.Formatter().parse(template):
        if name is None:
            continue
        if spec or conversion or not name.isidentifier():
            raise ValueError(f"'{{{name}}}' is not a plain parameter name")
        names.append(name)
    return names


def templates_of(resource: str | Sequence[str] | None) -> tuple[str, ...]:
    """The templates of a resource that is no function."""
    return () if resource is None else (resource,) if isinstance(resource, str) else tuple(resource)


class ResourceParamMissing(ValueError):
    """A template names a parameter for which the call has no value."""


def resource_keys(resource: ResourceKey, params: Mapping[str, Any], defaults: Mapping[str, Any]) -> list[str]:
    """The keys of the resources that a call with these params uses; none if there is nothing to wait for.

    Raises ``ResourceParamMissing`` if a parameter of a template has no value, ``TypeError`` if a function returns
    anything but text; and whatever the function itself raises.
    """
    if isinstance(resource, str):
        return [_filled(resource, params, defaults)]
    if not callable(resource):
        return [_filled(template, params, defaults) for template in resource]
    found = resource(params)
    if found is None:
        return []
    keys: list[Any] = list(found) if isinstance(found, list | tuple) else [found]
    for key in keys:
        if not isinstance(key, str):
            raise TypeError(f"the resource function returned {type(key).__name__}, not a text")
    return keys


def _filled(template: str, params: Mapping[str, Any], defaults: Mapping[str, Any]) -> str:
    values: dict[str, str] = {}
    for name in template_fields(template):
        if name in params:
            value = params[name]
        elif name in defaults:
            value = defaults[name]
        else:
            raise ResourceParamMissing(f"the resource {template!r} needs the parameter {name!r}")
        values[name] = value if isinstance(value, str) else json.dumps(value, sort_keys=True, default=str)
    return template.format_map(values)
