"""A small catalog of tools for the tests of this room: declarations only, with the real schema validator behind them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jsonschema_rs

from saga_engine.errors import Problem
from saga_engine.plan.compiler import check_plan
from saga_engine.plan.model import load_plan
from saga_engine.plan.tool_spec import ToolSpec


class Catalog:
    """A :class:`saga_engine.plan.tool_spec.ToolCatalog` of the given declarations."""

    def __init__(self, *specs: ToolSpec) -> None:
        self._specs = {spec.name: spec for spec in specs}

    def spec(self, name: str) -> ToolSpec | None:
        return self._specs.get(name)

    def names(self) -> Sequence[str]:
        return list(self._specs)

    def without(self, name: str) -> Catalog:
        return Catalog(*(spec for spec in self._specs.values() if spec.name != name))


def declare(name: str, params: dict[str, Any] | None = None, **others: Any) -> ToolSpec:
    """A tool whose params are checked against ``params``, a JSON Schema."""
    schema = params or {"type": "object"}
    validator = jsonschema_rs.Draft202012Validator(schema)

    def check(value: Any) -> list[tuple[tuple[str | int, ...], str]]:
        return [(tuple(error.instance_path), error.message) for error in validator.iter_errors(value)]

    return ToolSpec(name, input_schema=schema, check_params=check, digest=f"digest of {name}", **others)


def closed(required: Sequence[str] = (), **properties: Any) -> dict[str, Any]:
    """The schema of an object with exactly these fields."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }


TEXT = {"type": "string"}
NUMBER = {"type": "integer"}

TRAVEL = Catalog(
    declare(
        "airline_api",
        closed(["flight", "date"], flight=TEXT, date=TEXT, seats=NUMBER),
        undo="airline_api_cancel",
        output_schema=closed(["order_id"], order_id=TEXT, price=NUMBER, legs={"type": "array", "items": TEXT}),
    ),
    declare("airline_api_cancel", closed(["order_id"], order_id=TEXT, date=TEXT)),
    declare("hotel_api", closed(["hotel"], hotel=TEXT, nights=NUMBER, note=TEXT), undo="hotel_api_cancel"),
    declare("hotel_api_cancel", closed(["booking_ref"], booking_ref=TEXT)),
    declare("search", closed([], query=TEXT, limit=NUMBER), effect="read"),
    declare("weather", closed([], query=TEXT), effect="read", last_good_s=60.0),
    declare("tweet", closed(["text"], text=TEXT)),
    declare("any", undo="undo_any"),
    declare("undo_any"),
    declare("lost", undo="nowhere"),
    declare("peeking", undo="search"),
    declare("narrow", undo="greedy", output_schema=closed([], id=TEXT)),
    declare("redacting", effect="read", redact=("card.number",)),
    declare("hidden", undo="loose", output_schema=closed([], id=TEXT)),
    declare("loose", {"type": "object", "properties": {}, "additionalProperties": True}),
    declare("apart", undo="optional", output_schema=closed([], id=TEXT)),
    declare("optional", closed([], ticket=TEXT)),
    declare("greedy", closed(["ticket"], ticket=TEXT)),
)


def problems(steps: Any, catalog: Catalog = TRAVEL, **plan: Any) -> list[Problem]:
    """What is wrong with a plan of these steps; ids 1, 2, … where a step has none."""
    numbered = [{"step_id": index + 1, **step} for index, step in enumerate(steps)]
    return check_plan(load_plan({"steps": numbered, **plan}), catalog)


def codes(steps: Any, catalog: Catalog = TRAVEL, **plan: Any) -> list[str]:
    """The codes of what is wrong, in order."""
    return [problem.code for problem in problems(steps, catalog, **plan)]


def places(steps: Any, catalog: Catalog = TRAVEL, **plan: Any) -> list[tuple[str, str]]:
    """Code and path of what is wrong, in order."""
    return [(problem.code, problem.path) for problem in problems(steps, catalog, **plan)]
