"""A reader that follows a journal learns that the store went back: after a backup, or a fail-over that lost records."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from saga_engine import Coordinator, tool
from saga_engine.errors import JournalConflict
from tests.servers import key_of


@tool
async def back(item: str) -> dict:
    return {"item": item}


PLAN = {"steps": [{"step_id": 1, "tool": "wait", "params": {"item": "x"}}]}


@asynccontextmanager
async def read_so_far(
    store: str = "memory://", gate: asyncio.Event | None = None
) -> AsyncIterator[tuple[Coordinator, list[dict[str, Any]], AsyncIterator[dict[str, Any]]]]:
    """A saga whose call is in flight, the records that were read until then, and the stream that brings the others."""
    begun, gate = asyncio.Event(), gate or asyncio.Event()

    @tool(undo="back", keyed=True)
    async def wait(item: str) -> dict:
        begun.set()
        await gate.wait()
        return {"item": item}

    async with Coordinator.open(store, [wait, back]) as coordinator:
        await coordinator.submit(PLAN, saga_id="s1")
        await begun.wait()
        stream = coordinator.follow("s1")
        read = [await anext(stream) for _ in await coordinator.history("s1")]
        yield coordinator, read, stream
        gate.set()


async def test_a_journal_that_became_shorter_is_an_error_for_its_reader(folder) -> None:
    """What was read is void, and the stream says so instead of waiting for ever; read anew, it is the journal that is left."""
    async with read_so_far(folder.url) as (coordinator, read, stream):
        with folder.raw() as raw:
            raw.ltrim(key_of(raw, "journal", "s1"), 0, 0)
        with pytest.raises(JournalConflict, match=f"before seq {len(read)}") as caught:
            await anext(stream)
        assert "saga history s1" in caught.value.hint
        assert await anext(coordinator.follow("s1")) == read[0]


async def test_a_journal_that_grew_again_is_noticed(folder) -> None:
    """It is as long as before, or longer, and yet another one: the last record that was read is not there any more."""
    async with read_so_far(folder.url) as (_, read, stream):
        with folder.raw() as raw:
            key = key_of(raw, "journal", "s1")
            first = raw.lindex(key, 0)
            raw.lset(key, len(read) - 1, first)
            raw.rpush(key, first)
        with pytest.raises(JournalConflict):
            await anext(stream)


async def test_a_position_beyond_the_end_is_refused() -> None:
    """A reader that comes back with the position of before is told; the end itself is a position like any other."""
    gate = asyncio.Event()
    async with read_so_far(gate=gate) as (coordinator, read, _):
        with pytest.raises(JournalConflict, match=f"before seq {len(read) + 1}"):
            await anext(coordinator.follow("s1", since=len(read) + 1))
        waiting = asyncio.ensure_future(anext(coordinator.follow("s1", since=len(read))))
        gate.set()
        assert (await waiting)["seq"] == len(read)
