"""The view of a saga has one description: its structs. What they make is what earlier versions showed, byte for byte."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema_rs
import msgspec
import pytest

from saga_engine.core.codec import abridge, decode
from saga_engine.core.evolve import evolve
from saga_engine.core.fold import state_at_start
from saga_engine.core.report import abridged, sources, view
from saga_engine.core.state import State
from saga_engine.core.views import SagaView
from saga_engine.server.schemas import COMPONENTS
from tests.core.digest import KINDS, journal

GOLDEN = sorted(Path(__file__).parents[1].glob("golden/*/seen.jsonl"))


def shown_before() -> Iterator[dict[str, Any]]:
    """What each published version showed of its sagas; at the first of them a view was a dictionary made by hand."""
    for path in GOLDEN:
        for line in path.read_text(encoding="utf-8").splitlines():
            yield json.loads(line)[2]["show"]


def states(name: str, seed: int) -> Iterator[State]:
    """The state of a random saga after each of its records."""
    state = None
    for record in map(decode, journal(name, seed)):
        if state is None:
            state = state_at_start(record, None)
        else:
            evolve(state, abridge(record))
        yield state


def strict() -> jsonschema_rs.Validator:
    """The schema of a saga with no field but those that it names."""
    closed = {
        name: {**schema, "additionalProperties": False} if "properties" in schema else schema
        for name, schema in COMPONENTS.items()
    }
    return jsonschema_rs.Draft202012Validator({"$ref": "#/components/schemas/Saga", "components": {"schemas": closed}})


def test_the_structs_make_what_was_shown() -> None:
    """Law: the JSON of a view is unchanged: the same fields in the same order, and none where one was absent."""
    found = [*shown_before()]
    assert len(found) > 30
    for body in found:
        made = msgspec.convert(body, SagaView).plain()
        assert json.dumps(made) == json.dumps(body)


@pytest.mark.parametrize("name", KINDS)
def test_every_view_fits_its_schema(name: str) -> None:
    """Law: whatever a saga does, its view is what the document of the API says, with no field that it does not name."""
    schema, seen = strict(), 0
    for seed in range(3):
        for state in states(name, seed):
            whole = view(state)
            for shown in (whole, abridged(whole, sources(state))):
                body = shown.plain()
                assert [error.message for error in schema.iter_errors(body)] == []
                assert msgspec.convert(json.loads(json.dumps(body)), SagaView).plain() == body
                seen += 1
    assert seen > 10
