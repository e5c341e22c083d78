"""The plan's JSON Schema, derived from the models: for editors, people, and models that write plans."""

from __future__ import annotations

import functools
import json
from typing import Any

_EXAMPLE: dict[str, Any] = {
    "task_id": "trip-42",
    "goal": "Book a flight and a hotel for one night.",
    "input": {"guest": "Ada"},
    "steps": [
        {
            "step_id": 1,
            "name": "book_flight",
            "tool": "airline_api",
            "params": {"flight": "CA1234", "passenger": "$input.guest"},
            "rollback": {"tool": "airline_api_cancel", "params": {"order_id": "$output.step_1.order_id"}},
        },
        {
            "step_id": 2,
            "name": "book_hotel",
            "tool": "hotel_api",
            "params": {"hotel": "Hilton", "note": "arrives with order {$output.step_1.order_id}"},
            "rollback": {"tool": "hotel_api_cancel", "params": {"booking_ref": "$output.step_2.booking_ref"}},
        },
    ],
}


def plan_schema() -> dict[str, Any]:
    """The JSON Schema (Draft 2020-12) of a plan's form; it does not check the order of steps or the tools."""
    made: dict[str, Any] = json.loads(_text())
    return made


@functools.cache
def _text() -> str:
    """Derived once in a process, which takes longer than the rest of a request to a model; each caller has a copy."""
    from saga_engine.plan.model import Plan

    schema = Plan.model_json_schema()
    _untitle(schema)
    whole = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Saga plan, version 1",
        **schema,
        "examples": [_EXAMPLE],
    }
    return json.dumps(whole)


def _untitle(node: Any) -> None:
    """Remove the titles that only repeat a field's name."""
    if isinstance(node, dict):
        # A title is a text; a property with this name is a schema.
        if isinstance(node.get("title"), str):
            del node["title"]
        for value in node.values():
            _untitle(value)
    elif isinstance(node, list):
        for value in node:
            _untitle(value)
