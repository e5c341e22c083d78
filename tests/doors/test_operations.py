"""Each operation of the engine is at every door, or it is written why not."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from saga_engine.api.temporal import TemporalCoordinator
from saga_engine.api.unsupported import Unsupported
from saga_engine.errors import RuntimeUnsupported
from saga_engine.operations.table import OPERATIONS, Operation
from saga_engine.server.routes import operations as routes
from tests.doors.at_doors import DOORS, OWN, At, Why, found_at, vars_of

# --- the measures ----------------------------------------------------------------------------------------------------


def missing(table: Mapping[str, Operation]) -> list[str]:
    """What the doors lack of a table of operations, and have beyond it, without a written reason."""
    served = {each.name for each in routes()}
    lacks = [f"{name}: no route" for name in table if name not in served]
    lacks += [f"{name}: a route of no operation" for name in served - set(table)]
    lacks += [f"{name}: at no door, and no reason" for name in table if name not in DOORS]
    for door in At._fields:
        there, known = found_at(door), {getattr(each, door) for name, each in DOORS.items() if name in table}
        lacks += [f"{name}: not at {door}" for name in known - there if not isinstance(name, Why)]
        lacks += [f"{name}: at {door}, and no operation" for name in there - known - set(OWN[door])]
    return sorted(lacks)


def test_every_operation_is_at_every_door() -> None:
    """A route, a command, a tool and a method; or the reason is written above."""
    assert missing(OPERATIONS) == []
    assert set(DOORS) == set(OPERATIONS)
    for door in At._fields:
        assert set(OWN[door]) <= found_at(door), f"{door} has less beside the operations"


def test_an_operation_that_is_added_in_one_place_is_missed_at_the_others() -> None:
    """In the table; as a route; as a command, a tool or a method."""
    added = {**OPERATIONS, "pruneSagas": Operation("admin", "settles")}
    assert missing(added) == ["pruneSagas: at no door, and no reason", "pruneSagas: no route"]
    without = {name: each for name, each in OPERATIONS.items() if name != "forkSaga"}
    assert missing(without) == [
        "fork: at cli, and no operation",
        "fork: at python, and no operation",
        "forkSaga: a route of no operation",
    ]


def test_temporal_keeps_each_method_of_an_operation_or_refuses_it_by_name() -> None:
    """Nothing is there only sometimes: who writes for both runtimes is told, and meets no ``AttributeError``."""
    named = {each.python for each in DOORS.values() if not isinstance(each.python, Why) and "." not in each.python}
    assert named - vars_of(TemporalCoordinator) == set()


@pytest.mark.parametrize(
    "call",
    [
        lambda client: client.erase("s", by="ada"),
        lambda client: client.send_event("paid", 7, event_id="e"),
        lambda client: client.answer_wait("s", 1, {}),
        lambda client: client.require_waiting("s", 1),
        lambda client: client.events(limit=3),
        lambda client: client.overview(),
        lambda client: client.tool_stats(),
    ],
)
async def test_what_only_a_store_can_do_is_refused_by_name(call: Callable[[Any], Any]) -> None:
    """With what it needs, and the way that leads on."""
    with pytest.raises(RuntimeUnsupported) as refused:
        await call(Unsupported())
    assert refused.value.hint


@pytest.mark.parametrize("name", OPERATIONS)
def test_what_only_reads_is_asked_with_get_or_computes(name: str) -> None:
    """And a token that may only read gets to nothing that writes."""
    (route,) = [each for each in routes() if each.name == name]
    does = OPERATIONS[name]
    assert (route.method == "GET") <= (does.effect == "read")
    assert (does.effect == "read") or does.scope != "read"
    assert route.method not in {"PUT", "DELETE"} or does.effect == "settles"
