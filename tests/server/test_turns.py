"""Whatever a request brings, the event loop goes on: no turn of it takes a large part of the work that a request makes.

What is measured is the processor time of this process between two turns, so a busy machine fails no test.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from saga_engine import Coordinator, tool
from saga_engine.execution import plan_cache
from saga_engine.execution.incoming import MAX_VALUES
from tests.server.harness import JSON, TOOLS, serving
from tests.support.turns import Turns


@tool(undo="unpack")
async def pack(items: dict) -> dict[str, str]:
    return {"ref": "p"}


@tool
async def unpack(ref: str) -> None:
    """Its undo."""


def bound(count: int, each: int) -> list[dict[str, Any]]:
    """Steps with so many bindings each."""
    steps: list[dict[str, Any]] = [{"step_id": 0, "tool": "pack", "params": {"items": {}}}]
    for at in range(1, count):
        items = {f"k{k}": f"$output.step_{at - 1}.ref" for k in range(each)}
        steps.append({"step_id": at, "tool": "pack", "params": {"items": items}, "depends_on": [at - 1]})
    return steps


def many(count: int, tool: str = "book") -> list[dict[str, Any]]:
    """Steps beside each other."""
    return [{"step_id": at, "tool": tool, "params": {"item": "x"}, "depends_on": []} for at in range(count)]


def chained(count: int) -> list[dict[str, Any]]:
    """Steps that are added to a saga, one behind the other."""
    return [{"step_id": f"a{at}", "tool": "book", "params": {"item": "x"}} for at in range(count)]


#: A step that waits for a person.
ASK = {"step_id": 1, "ask": {"question": "?", "options": ["yes"]}}


def plan(steps: list[dict[str, Any]], **more: Any) -> bytes:
    return json.dumps({"plan": {"steps": steps}, **more}).encode()


def text(values: list[str], count: int) -> bytes:
    """Steps that are none, written again and again."""
    return f'{{"plan":{{"steps":[{",".join(values * count)}]}}}}'.encode()


#: What is asked, at which place, and the status of the answer.
DOORS: dict[str, tuple[str, str, Callable[[], bytes], int]] = {
    "a check of bindings": ("POST", "/v1/check", lambda: plan(bound(150, 50)), 200),
    "a check of many steps": ("POST", "/v1/check", lambda: plan(many(2_000)), 200),
    "a check of wrong steps": ("POST", "/v1/check", lambda: plan(many(6_000, "no tool")), 200),
    "more values than any plan has": ("POST", "/v1/check", lambda: text(["[]"], 1_200_000), 413),
    "more members than any plan has": (
        "POST",
        "/v1/check",
        lambda: json.dumps({"plan": dict.fromkeys(map(str, range(400_000)), 1)}).encode(),
        413,
    ),
    "almost as many": ("POST", "/v1/check", lambda: text(["{}", "[]", "1", '"x"'], (MAX_VALUES - 10) // 4), 200),
    "the last member twice": (
        "POST",
        "/v1/check",
        lambda: b'{"plan":{' + b"".join(b'"%d":1,' % at for at in range(100_000)) + b'"99999":1}}',
        400,
    ),
    "a simulation": ("POST", "/v1/simulate", lambda: plan(many(40)), 200),
    "a submission": ("POST", "/v1/sagas", lambda: plan(bound(150, 50)), 202),
    "an addition": ("POST", "/v1/sagas/s/amend", lambda: json.dumps({"steps": chained(1_000)}).encode(), 202),
    "a small addition to a large saga": (
        "POST",
        "/v1/sagas/large/amend",
        lambda: json.dumps({"steps": chained(1)}).encode(),
        202,
    ),
    "a template": ("PUT", "/v1/templates/new", lambda: plan(many(1_500)), 200),
    "a saga of a template": ("POST", "/v1/sagas", lambda: b'{"template": "large"}', 202),
    "children of a template": (
        "POST",
        "/v1/sagas",
        lambda: plan([{"step_id": at, "saga": {"template": "large"}, "depends_on": []} for at in range(3)]),
        202,
    ),
    "a view": ("GET", "/v1/sagas/large", lambda: b"", 200),
}
#: A turn may take such a part of the whole. (Before, it was nearly all of it at each of these doors.)
PART = 1 / 4


@pytest.mark.parametrize("name", DOORS)
async def test_no_turn_takes_long_whatever_a_request_brings(name: str) -> None:
    """Each door that reads, checks, compiles, simulates or shows a plan: the loop has many turns meanwhile."""
    method, path, body, status = DOORS[name]
    data = body()
    async with Coordinator.open("memory://", [*TOOLS, pack, unpack], durability="relaxed") as engine:
        await engine.submit({"steps": [ASK]}, saga_id="s", detach=True)
        if "large" in path:
            await engine.submit({"steps": many(2_500)}, saga_id="large", detach=True)
        if b'"large"' in data:
            await engine.templates.put("large", {"steps": many(1_500)})
        async with serving(engine) as server:
            headers = {**(await server.api()).headers, **JSON}
            turns = Turns()
            found = await server.client.request(method, path, content=data, headers=headers)
            turns.end()
    assert found.status_code == status, found.text[:500]
    assert turns.longest < turns.whole * PART, f"{turns.longest:.3f} of {turns.whole:.3f} s in {turns.count} turns"


async def test_no_turn_takes_long_when_a_large_saga_is_taken_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that continues a saga, and has not seen its plan before, compiles it beside the loop."""
    monkeypatch.setattr(plan_cache, "MAX_BYTES", 0)
    async with Coordinator.open("memory://", TOOLS, durability="relaxed") as engine:
        await engine.submit({"steps": [ASK, *chained(1_500)]}, saga_id="asked", detach=True)
        turns = Turns()
        found = await engine.cancel("asked")
        turns.end()
    assert found.status == "COMPENSATED"
    assert turns.longest < turns.whole * PART, f"{turns.longest:.3f} of {turns.whole:.3f} s in {turns.count} turns"
