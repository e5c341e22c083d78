"""A result that is too long for one answer: the agent reads it in parts, from the journal, also in another life."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from mcp import MCPError

from saga_engine import tool
from saga_engine.gateway.parts import PART_CHARS, fits
from saga_engine.stores import open_store
from saga_engine.testing.faults import Faults, FaultyStore
from tests.gateway.agents import MANIFEST, Agent, about, agent, engine
from tests.mcp.servers import World


async def read(it: Agent, call: str, offset: int = 0) -> str:
    """The rest of a result, part by part."""
    found = ""
    while True:
        part = await it.done("saga_read", call=call, offset=offset)
        assert len(part["text"]) <= PART_CHARS
        found += part["text"]
        if "next_offset" not in part:
            return found
        offset = part["next_offset"]


async def test_a_long_result_is_read_in_parts(tmp_path: Path) -> None:
    """The answer is its beginning and says how to go on. The next gateway of the saga reads it too; others do not."""
    world = World(tmp_path)
    async with engine(world.server(tools=MANIFEST)) as coordinator:
        async with agent(coordinator, most_bytes=60_000) as it:
            assert len((await it.call("large", chars=50_000)).content[0].text) == 50_000
            answer = await it.call("large", chars=65_000)
            assert (answer.is_error, about(answer)["cut"]) == (
                False,
                {"total_chars": 65_000, "next_offset": PART_CHARS},
            )
            note, beginning = (block.text for block in answer.content)
            assert ('saga_read {"call": "2", "offset": 20000}' in note, beginning) == (True, "x" * PART_CHARS)
            assert beginning + await read(it, "2", PART_CHARS) == "x" * 65_000
        async with agent(coordinator) as it:
            assert await read(it, "2") == "x" * 65_000
            assert await read(it, "2", 70_000) == ""
            for call in ("3", "0", "desk", "2\x00"):
                assert "saga-not-found" in await it.refused("saga_read", call=call)
            for wrong in ({}, {"call": 2}, {"call": "2", "offset": -1}, {"call": "2", "offset": True}):
                with pytest.raises(MCPError, match="takes call, offset"):
                    await it.call("saga_read", **wrong)
        async with agent(coordinator, "other") as it:
            assert "saga-not-found" in await it.refused("saga_read", call="2")


async def test_a_long_structured_result_is_told_as_done() -> None:
    """Its beginning has not the form that the tool declares, so it comes as an error that says that nothing is wrong."""
    made: list[int] = []

    @tool(undo="remove")
    async def report(rows: int) -> dict[str, Any]:
        made.append(rows)
        return {"cells": ["ä"] * rows}

    @tool
    async def remove(rows: int) -> None:
        made.remove(rows)

    async with (
        engine(tools=[report, remove]) as coordinator,
        agent(coordinator, most_bytes=10_000) as it,
    ):
        assert await it.done("report", rows=3) == {"cells": ["ä"] * 3}
        assert "the call was done" in await it.refused("report", rows=50_000)
        assert json.loads(await read(it, "2")) == {"cells": ["ä"] * 50_000}
        assert [each["call"] for each in (await it.done("saga_rollback"))["undone"]] == ["2", "1"]
        assert made == []


async def test_parts_are_read_without_the_other_results(tmp_path: Path) -> None:
    """The store is asked for one large value, once for all parts of it."""
    faults = Faults()
    store = FaultyStore(open_store("memory://"), faults)
    async with (
        engine(World(tmp_path).server(tools=MANIFEST), store=store) as coordinator,
        agent(coordinator, most_bytes=60_000) as it,
    ):
        for chars in (100_000, 200_000, 300_000):
            await it.call("large", chars=chars)
        before = faults.counts["values"]
        assert len(await read(it, "2")) == 200_000
        assert faults.counts["values"] == before + 1


@pytest.mark.parametrize(
    ("text", "most", "expected"), [("x" * 100, 0, True), ("x" * 100, 99, False), ("\x00" * 1000, 5_900, False)]
)
def test_the_size_is_that_of_the_json(text: str, most: int, expected: bool) -> None:
    """Escapes count."""
    assert fits({"content": [{"type": "text", "text": text}], "isError": False}, most) is expected
