"""Schemas that plans bring for single values."""

import pytest

from saga_engine.plan.value_schema import SchemaUnusable, ValueSchema


def test_a_schema_finds_what_is_wrong_and_where() -> None:
    """Each fault is told with its place inside the value; a value that fits has none."""
    schema = ValueSchema({"type": "object", "properties": {"seats": {"type": "integer"}}, "required": ["seats"]})
    assert not schema({"seats": 2})
    assert [path for path, _ in schema({"seats": "two"})] == [("seats",)]
    assert [path for path, _ in schema({})] == [()]


@pytest.mark.parametrize("schema", [{"type": "texts"}, {"pattern": 5}, {"$ref": "https://example.org/other.json"}])
def test_a_schema_that_is_none_or_lies_elsewhere_is_known_before_it_is_used(schema: dict) -> None:
    """A schema of a plan is hostile: a fault of its own is said, and it never makes a request."""
    assert ValueSchema(schema).problem()
    with pytest.raises(SchemaUnusable):
        ValueSchema(schema)(1)


def test_a_pattern_cannot_block_the_process() -> None:
    """A pattern with catastrophic backtracking finds the value faulty, and ends."""
    assert ValueSchema({"type": "string", "pattern": r"^(a|aa)+(?=b)\1$"})("a" * 200)
