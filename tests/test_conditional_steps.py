"""Steps with conditions through the public API: a completed saga with a skipped step is undone in reverse."""

from __future__ import annotations

import asyncio
from typing import Any

from saga_engine import Coordinator, tool

ORDER: list[str] = []


@tool(undo="release")
async def reserve(thing: str) -> dict[str, Any]:
    return {"ref": thing}


@tool
async def release(ref: str) -> None:
    ORDER.append(f"undo of {ref} begins")
    for _ in range(200):  # another one would begin meanwhile
        await asyncio.sleep(0)
    ORDER.append(f"undo of {ref} ends")


def step(key: str, **more: Any) -> dict[str, Any]:
    return {"step_id": key, "tool": "reserve", "params": {"thing": key}, **more}


async def test_the_undo_of_a_completed_saga_keeps_its_order_through_a_skipped_step() -> None:
    """What follows a skipped step is undone before what precedes it, a day later as well; the skipped step counts as none."""
    ORDER.clear()
    no = [{"value": "$output.step_a.ref", "op": "!=", "to": "a"}]
    plan = {"steps": [step("a"), step("b", when=no), step("c", depends_on=["b"])]}
    async with Coordinator.open("memory://", tools=[reserve, release]) as engine:
        done = await engine.run(plan, saga_id="one")
        assert done.completed
        assert done.body["report"]["skipped"] == ["b"]
        await engine.undo("one")
    assert [f"undo of {key} {what}" for key in "ca" for what in ("begins", "ends")] == ORDER
