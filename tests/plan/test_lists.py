"""Steps with ``each`` through the public API."""

from __future__ import annotations

from typing import Any

import pytest

from saga_engine import Coordinator, tool
from saga_engine.api.requests import require_no_events
from saga_engine.errors import ForkRefused, RuntimeUnsupported
from saga_engine.plan.compiler import compile_plan
from saga_engine.plan.model import load_plan

ORDER: list[str] = []


@tool(effect="read")
async def find(count: int) -> dict[str, Any]:
    return {"items": [{"room": number} for number in range(count)]}


@tool(undo="cancel")
async def book(room: int, key: str = "") -> dict[str, Any]:
    if room == 3:
        raise ValueError("taken")
    ORDER.append(f"book {room} {key.rpartition(':')[0]}")
    return {"ref": f"ref-{room}"}


@tool
async def cancel(ref: str) -> None:
    ORDER.append(f"cancel {ref}")


TOOLS = [find, book, cancel]


def plan(count: int) -> dict[str, Any]:
    each = {"step_id": "all", "tool": "book", "params": {"room": "$item.room", "key": "$key"}}
    return {
        "steps": [
            {"step_id": 1, "tool": "find", "params": {"count": count}},
            {**each, "each": "$output.step_1.items"},
        ]
    }


async def test_a_list_is_called_item_by_item_and_undone_in_reverse_a_day_later() -> None:
    """Each item has its own key; the undo of the completed saga knows the items, and owns each effect."""
    ORDER.clear()
    async with Coordinator.open("memory://", tools=TOOLS) as engine:
        done = await engine.run(plan(3), saga_id="one")
        assert done.completed
        assert [step["step_id"] for step in done.body["steps"]] == [1, "all", "all[0]", "all[1]", "all[2]"]
        assert done.body["steps"][1]["output"] == [{"ref": "ref-0"}, {"ref": "ref-1"}, {"ref": "ref-2"}]
        await engine.undo("one")
    assert [
        *(f"book {room} one:all[{room}]:f" for room in range(3)),
        *(f"cancel ref-{room}" for room in (2, 1, 0)),
    ] == ORDER


def rooms(*numbers: int, parallel: int = 1, **plan: Any) -> dict[str, Any]:
    """Rooms that are booked without a key as a param, and what depends on them."""
    of = [{"room": number} for number in numbers]
    step = {
        "step_id": "all",
        "tool": "book",
        "params": {"room": "$item.room"},
        "each": {"of": of, "parallel": parallel},
    }
    last = {"step_id": "end", "tool": "find", "params": {"count": 1}, "depends_on": ["all"]}
    return {"steps": [step, last], "on_failure": "pause", **plan}


async def test_a_fork_reuses_the_items_that_happened_and_owns_their_undo() -> None:
    """Other items are called, each once; the old saga undoes what is not reused, and the fork all that it has."""
    ORDER.clear()
    async with Coordinator.open("memory://", tools=TOOLS) as engine:
        old = await engine.run(rooms(0, 1, 3, 4), saga_id="one")
        assert old.status == "ESCALATED"
        done = await engine.fork("one", plan=rooms(1, 5, 0, 1), new_id="two")
        assert done.completed
        sources = {step["step_id"]: step.get("source") for step in done.body["steps"]}
        assert sources == {
            "all": None,
            "all[0]": "one/all[1]",
            "all[1]": None,
            "all[2]": "one/all[0]",
            "all[3]": None,
            "end": None,
        }
        assert done.body["steps"][0]["output"] == [{"ref": f"ref-{number}"} for number in (1, 5, 0, 1)]
        again = await engine.fork("two", plan=rooms(0, 1, 5, 1), new_id="three")
        assert [step["step_id"] for step in again.body["steps"] if not step.get("source")] == ["all", "end"]
        records = await engine.history("three")
        assert [record["k"] for record in records[1:6]] == ["EachExpanded", *["EffectReused"] * 4]
        await engine.undo("three")
    assert [entry.split()[:2] for entry in ORDER] == [
        *(["book", str(number)] for number in (0, 1, 5, 1)),
        *(["cancel", f"ref-{number}"] for number in (1, 5, 1, 0)),
    ]  # fmt: skip


async def test_items_of_several_lanes_are_reused_and_one_may_run_anew() -> None:
    """``run_from`` takes an item; the others of its lane are reused all the same, and the whole plan is forked."""
    ORDER.clear()
    async with Coordinator.open("memory://", tools=TOOLS) as engine:
        await engine.run(rooms(0, 1, 2, 4, parallel=2), saga_id="one")
        fork = await engine.fork("one", run_from="all[0]", dry_run=True)
        assert fork.to_dict()["runs"] == ["all[0]", "all", "end"]
        done = await engine.fork("one", run_from="all[0]")
        assert done.completed
        assert [entry.split()[1] for entry in ORDER] == ["0", "1", "2", "4", "0"]
        with pytest.raises(ForkRefused, match=r"the plan has no step all\[9\]"):
            await engine.fork("one", run_from="all[9]")


def test_temporal_refuses_lists() -> None:
    """What is not tested there is not silently run there."""
    compiled = compile_plan(load_plan(plan(1)), None)
    with pytest.raises(RuntimeUnsupported, match="'each'"):
        require_no_events(step.builtin for step in compiled.steps)
