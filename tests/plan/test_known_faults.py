"""What is certainly wrong with params of which some are secret: all that a schema says of names, and of other values."""

from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from saga_engine.plan.known_faults import known_faults
from saga_engine.plan.tool_spec import ToolSpec

MARK = "$secret.TOKEN"


def spec(schema: dict[str, Any], **others: Any) -> ToolSpec:
    validator = jsonschema_rs.Draft202012Validator(schema)

    def check(params: Any) -> list[tuple[tuple[str | int, ...], str]]:
        return [(tuple(error.instance_path), error.message) for error in validator.iter_errors(params)]

    return ToolSpec("t", input_schema=schema, check_params=check, **others)


CARD = {"type": "object", "properties": {"no": {"type": "string"}}, "required": ["no", "cvc"]}


@pytest.mark.parametrize(
    ("schema", "params", "where"),
    [
        ({"required": ["token", "seat"]}, {"token": MARK}, [()]),
        ({"properties": {"key": {}}, "additionalProperties": False}, {"token": MARK}, [("token",)]),
        ({"minProperties": 2}, {"token": MARK}, [()]),
        ({"maxProperties": 1}, {"token": MARK, "seat": 1}, [()]),
        ({"dependentRequired": {"token": ["user"]}}, {"token": MARK}, [()]),
        ({"properties": {"token": CARD}}, {"token": {"no": MARK}}, [("token",)]),
        # What depends on the secret's value is not known.
        ({"properties": {"token": {"pattern": "^[0-9]+$"}}}, {"token": MARK}, []),
        ({"anyOf": [{"properties": {"token": {"const": "x"}}}]}, {"token": MARK}, []),
        ({"dependentRequired": {"user": ["seat"]}}, {"token": MARK}, []),
        ({"patternProperties": {"^t": {"const": 1}}, "additionalProperties": False}, {"token": MARK}, []),
    ],
)
def test_names_are_known_although_values_are_secret(schema: dict, params: dict, where: list) -> None:
    """A fault of names is found, at its place; one that the value decides is left to the call."""
    assert [path for path, _ in known_faults(spec(schema), params, {"token"})] == where


def test_faults_of_other_values_are_told_first() -> None:
    """A value that is no secret is judged as ever."""
    schema = {"properties": {"seat": {"type": "integer"}}, "required": ["row"]}
    assert [path for path, _ in known_faults(spec(schema), {"token": MARK, "seat": "x"}, {"token"})] == [("seat",)]
    assert len(known_faults(spec(schema), {"token": MARK, "seat": "x"}, ())) == 2


def test_names_inside_a_sensitive_value_are_not_shown() -> None:
    """They may be as telling as its values."""
    closed = {"properties": {"token": {"properties": {}, "additionalProperties": False}}}
    params = {"token": {"diagnosis": MARK}}
    assert len(known_faults(spec(closed), params, {"token"})) == 1
    assert known_faults(spec(closed, sensitive=("token",)), params, {"token"}) == []


_NAMES = st.sampled_from(["token", "a", "b", "c"])
_SCHEMAS = st.fixed_dictionaries(
    {},
    optional={
        "required": st.lists(_NAMES, unique=True),
        "properties": st.dictionaries(_NAMES, st.just({})),
        "additionalProperties": st.booleans(),
        "minProperties": st.integers(0, 4),
        "maxProperties": st.integers(0, 4),
        "dependentRequired": st.dictionaries(_NAMES, st.lists(_NAMES, unique=True)),
    },
)


@given(_SCHEMAS, st.dictionaries(_NAMES, st.just(MARK)))
def test_it_agrees_with_the_validator_about_names(schema: dict, params: dict) -> None:
    """Where a schema speaks of names only, whatever the validator refuses is found, and nothing else."""
    valid = jsonschema_rs.Draft202012Validator(schema).is_valid(params)
    assert bool(known_faults(spec(schema), params, set(params) | {"token"})) is not valid
