"""What a schema costs is known before it is paid."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import pytest

from saga_engine.plan.schema import plan_schema
from saga_engine.plan.schema_cost import MAX_WORK, Cost, TooCostly
from saga_engine.plan.value_schema import SchemaUnusable, Validator, ValueSchema
from tests.support.bombs import REFUSED, chain

JSON: dict[str, Any] = {
    "$defs": {
        "json": {
            "anyOf": [
                {"type": ["string", "number", "boolean", "null"]},
                {"type": "array", "items": {"$ref": "#/$defs/json"}},
                {"type": "object", "additionalProperties": {"$ref": "#/$defs/json"}},
            ]
        }
    },
    "$ref": "#/$defs/json",
}
TREE: dict[str, Any] = {
    "type": "object",
    "properties": {"left": {"$ref": "#"}, "right": {"$ref": "#"}, "value": {"type": "string", "maxLength": 50}},
    "additionalProperties": False,
}


@pytest.mark.parametrize("shape", REFUSED)
def test_a_schema_that_takes_exponential_time_is_refused_when_it_is_read(shape: str) -> None:
    """Whatever doubles in it: the parts with all references written out are counted, not visited."""
    assert ValueSchema(REFUSED[shape]).problem()


def _balanced(depth: int) -> Any:
    return {"value": "x", "left": _balanced(depth - 1), "right": _balanced(depth - 1)} if depth else {"value": "x"}


def _nested(depth: int) -> Any:
    value: Any = "x"
    for at in range(depth):
        value = [value] if at % 2 else {"a": value, "b": [1, None]}
    return value


LARGE: dict[str, Any] = {
    "type": "object",
    "properties": {
        f"table_{at}": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {f"column_{column}": {"type": "string", "maxLength": 99} for column in range(40)},
                "required": [f"column_{column}" for column in range(40)],
                "additionalProperties": False,
            },
        }
        for at in range(60)
    },
}


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        (JSON, _nested(60)),
        (TREE, _balanced(12)),
        (LARGE, {f"table_{at}": [{f"column_{c}": "x" for c in range(40)}] * 20 for at in range(60)}),
        ({"items": {"type": "integer"}}, list(range(250_000))),
        (chain(60, lambda to: {"properties": {"a": to, "b": to}}), {"a": {"b": "x"}}),
        (
            chain(60, lambda to: {"unevaluatedProperties": False, "properties": {"a": to}}, {"type": "string"}),
            {"a": {"a": {}}},
        ),
        (plan_schema(), {"steps": [{"step_id": 1, "tool": "book", "params": {"item": "x"}}]}),
        ({"$ref": "https://json-schema.org/draft/2020-12/schema"}, LARGE),
        ({"type": "string", "pattern": r"^(?!.*secret)[\w ]*$"}, "x" * 2_000),
        ({"enum": [f"country {at}" for at in range(2_000)]}, "country 1999"),
    ],
    ids=["any JSON", "tree", "large", "list", "names", "closed objects", "plans", "JSON Schema", "pattern", "enum"],
)
def test_a_large_schema_and_a_large_value_pass(schema: dict[str, Any], value: Any) -> None:
    """The count refuses bombs, not size: of the properties one applies to a part, and a circle ends with its value."""
    assert not Validator(schema).faults(value)


def _deep(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"allOf": [{"items": {"$ref": "#"}}] * 3}, _deep(15)),
        ({"items": {"allOf": [{"type": "integer"}] * 1_000}}, [1] * 10_000),
        ({"pattern": "(?=(a+)+b)a"}, "a" * 20_000),
        ({"allOf": [{"maxLength": 1_000_000 + at} for at in range(200)]}, "é" * 1_000_000),
        ({"items": {"enum": [{"a": at} for at in range(1_000)]}}, [{"a": 999}] * 1_000),
        ({"patternProperties": {"(?!a)b": True}}, {"a" * 20_000: 1}),
        ({"allOf": [{"uniqueItems": True, "minItems": at} for at in range(100)]}, [[at] for at in range(10_000)]),
    ],
    ids=["circle", "many parts", "lookahead", "long text", "choices", "long name", "unique"],
)
def test_a_check_that_takes_too_much_work_is_not_begun(schema: dict[str, Any], value: Any) -> None:
    """The schema is fine and so is the value, but not the two together: said as a fault, in words."""
    validator = Validator(schema)
    assert [(path, message.partition(":")[0]) for path, message in validator.faults(value)] == [
        ((), "it cannot be checked")
    ]


def test_faults_of_a_large_value_are_found_without_a_copy_for_each() -> None:
    """An error copies its part of the value: of a large one there is the first fault, else that it does not fit."""
    one = Validator({"items": {"type": "string"}}).faults([*["x"] * 30_000, 1, 2])
    assert [path for path, _ in one] == [(30_000,)]
    none = Validator({"items": {"type": "string"}}).faults([*["x"] * 200_000, 1])
    assert none == [((), "it does not fit its schema, and is too large to tell where")]
    many = Validator({"allOf": [{"type": "string"}] * 100}).faults(list(range(20_000)))
    assert many == [((), "it does not fit its schema, and is too large to tell where")]


def test_a_value_that_contains_itself_is_not_followed_for_ever() -> None:
    """A program may pass what no JSON has."""
    value: list[Any] = []
    value.append(value)
    assert "cannot be checked" in Validator(JSON).faults(value)[0][1]


# --- the bound holds -----------------------------------------------------------------------------------------------


def _drawn(dice: random.Random, depth: int) -> Any:
    """A schema that refers to three definitions, deeper only: so nothing runs in a circle in place."""
    if depth <= 0 or dice.random() < 0.1:
        return dice.choice([True, {}, {"type": "string"}, {"type": "array"}])
    made: dict[str, Any] = {}
    for word in dice.sample(sorted(_WORDS), 3):
        made[word] = _WORDS[word](dice, depth - 1)
    return made


def _list(dice: random.Random, depth: int) -> Any:
    return [_drawn(dice, depth) for _ in range(2)]


def _part(dice: random.Random, depth: int) -> Any:
    return {"$ref": f"#/$defs/{dice.choice('abc')}"} if dice.random() < 0.4 else _drawn(dice, depth)


_WORDS: Mapping[str, Any] = {
    "allOf": _list,
    "anyOf": _list,
    "not": _drawn,
    "properties": lambda dice, depth: {name: _part(dice, depth) for name in "xy"},
    "additionalProperties": _part,
    "items": _part,
    "contains": _part,
    "prefixItems": lambda dice, depth: [_part(dice, depth)],
}


def _value(dice: random.Random, depth: int) -> Any:
    if depth <= 0:
        return "s"
    if dice.random() < 0.5:
        return [_value(dice, depth - 1) for _ in range(2)]
    return {name: _value(dice, depth - 1) for name in dice.sample("xyz", 2)}


def _applied(root: Any, schema: Any, value: Any) -> int:
    """How many schemas are applied, counted by doing it, word by word."""
    if not isinstance(schema, dict):
        return 1
    count = 1
    if "$ref" in schema:
        count += _applied(root, root["$defs"][schema["$ref"][-1]], value)
    for word in ("allOf", "anyOf"):
        count += sum(_applied(root, each, value) for each in schema.get(word, ()))
    count += _applied(root, schema["not"], value) if "not" in schema else 0
    if isinstance(value, dict):
        named = schema.get("properties", {})
        for name, part in value.items():
            at = named[name] if name in named else schema.get("additionalProperties")
            count += 0 if at is None else _applied(root, at, part)
    if isinstance(value, list):
        first = schema.get("prefixItems", [])
        for at, part in enumerate(value):
            found = first[at] if at < len(first) else schema.get("items")
            count += 0 if found is None else _applied(root, found, part)
            count += _applied(root, schema["contains"], part) if "contains" in schema else 0
    return count


def test_the_count_is_never_less_than_what_is_done() -> None:
    """For drawn schemas with circles, and drawn values: the bound is at least the count of an evaluation by hand."""
    dice = random.Random(7)
    seen = 0
    for _ in range(300):
        drawn = _drawn(dice, 3)
        schema = {**(drawn if isinstance(drawn, dict) else {}), "$defs": {name: _drawn(dice, 2) for name in "abc"}}
        try:
            cost = Cost(schema)
        except TooCostly:
            continue
        value = _value(dice, 4)
        bound = cost.of(value)
        if bound <= MAX_WORK:
            seen += 1
            assert bound >= _applied(schema, schema, value), (schema, value)
    assert seen > 200


def test_a_reference_that_leads_nowhere_is_refused() -> None:
    """What the count cannot follow, nobody follows."""
    with pytest.raises(SchemaUnusable, match="leads to no place"):
        Validator({"$ref": "#/$defs/nothing"})
