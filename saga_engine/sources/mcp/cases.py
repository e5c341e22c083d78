"""Cases of a tool: a tool that reads, writes and deletes, by the value of a param, is several tools to the engine.

Each case is a tool of its own, ``SERVER.TOOL.CASE``. It calls the same tool of the server, with the same params; the
schema of its params admits only those of its case. The gateway offers the server's tool alone, and finds the case.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from saga_engine.plan.values import canonical
from saga_engine.sources.tables import Fields

_HINT: Final = 'when = { mode = "create" }, or { mode = ["list", "show"] }'


@dataclass(frozen=True, slots=True)
class When:
    """Which calls are of a case: the values that each param may have, and the params that they are ``without``."""

    values: Mapping[str, tuple[Any, ...]]
    without: tuple[str, ...] = ()

    def __hash__(self) -> int:
        return hash((tuple(self.values), self.without))

    def fits(self, params: Mapping[str, Any], schema: Mapping[str, Any]) -> bool:
        """Whether a call is of the case. A param that it leaves out has the default of the tool's schema."""
        return not params.keys() & set(self.without) and all(
            canonical(params.get(name, _default(schema, name))) in [canonical(each) for each in values]
            for name, values in self.values.items()
        )

    def narrowed(self, schema: Mapping[str, Any]) -> dict[str, Any]:
        """The schema of the params of such a call."""
        properties = {name: each for name, each in schema.get("properties", {}).items() if name not in self.without}
        required = list(schema.get("required", ()))
        for name, values in self.values.items():
            properties[name] = {"allOf": [properties.get(name, {}), {"enum": [*values]}]}
            left_out = canonical(_default(schema, name)) in [canonical(each) for each in values]
            if not left_out and name not in required:
                required.append(name)
        return {**schema, "properties": properties, "required": required}


def read_when(it: Fields) -> When:
    """The fields ``when`` and ``without``. Raises ``SettingInvalid``."""
    table, without = it.table("when") or {}, it.any("without")
    if not isinstance(without, list) or not all(isinstance(name, str) for name in without):
        it.refuse("without", "must be a list of params", 'without = ["paths"]')
    if not table and not without:
        it.refuse("when", "must say which calls are of the case", _HINT)
    values: dict[str, tuple[Any, ...]] = {}
    for name, given in table.items():
        listed = given if isinstance(given, list) else [given]
        if not listed or not all(isinstance(each, str | bool | int) for each in listed):
            it.refuse("when", f"cannot compare {name!r} with {given!r}", _HINT)
        values[name] = tuple(listed)
    return When(values, tuple(without))


def _default(schema: Mapping[str, Any], name: str) -> Any:
    """What the server takes for a param that a call leaves out."""
    declared = schema.get("properties", {}).get(name)
    return declared.get("default") if isinstance(declared, Mapping) else None
