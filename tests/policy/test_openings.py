"""The first lines of a program: a coordinator that is opened, and a plan as a model wrote it."""

from __future__ import annotations

import json

import pytest

from saga_engine import Coordinator, tool
from saga_engine.errors import PlanInvalid


@pytest.mark.parametrize("fence", ["```json\n{}\n```", "Plan\n```\n{}\n```", "\n```\n {} \n```\n"])
async def test_a_plan_in_a_fence_is_read_as_json(fence: str) -> None:
    """As models write it, and nothing around it: a text with other words is no plan, and no file either."""
    text = fence.replace("{}", json.dumps({"steps": [{"step_id": 1, "tool": "look"}]}))

    @tool(effect="read")
    async def look() -> dict:
        return {}

    async with Coordinator.open("memory://", [look]) as engine:
        if fence.startswith("Plan"):
            with pytest.raises(PlanInvalid, match="there is no such file"):
                await engine.run(text)
        else:
            assert (await engine.run(text)).completed


async def test_a_coordinator_that_is_not_opened_says_what_to_write() -> None:
    """A program that forgets ``async with`` learns it from each way in which it may go on."""
    forgotten = Coordinator.open("memory://")
    with pytest.raises(AttributeError, match=r"async with Coordinator\.open\(…\) as coordinator"):
        _ = forgotten.run
    with pytest.raises(TypeError, match="async with"):
        await forgotten
    with pytest.raises(TypeError, match="async with"), forgotten:
        pass
    async with forgotten as coordinator:
        assert await coordinator.list() == []
