"""A reader that follows a journal learns that the store went back: after a backup, or a fail-over that lost records."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

import pytest

from saga_engine import Coordinator, Sensitive, tool
from saga_engine.errors import JournalConflict
from saga_engine.runtime import record_stream
from tests.support.servers import key_of


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


@tool
async def charge(card: Annotated[str, Sensitive], amount: int) -> dict:
    """Its answer repeats the card."""
    return {"said": f"charged {card}"}


@pytest.mark.parametrize("secret", [False, True], ids=["plain", "sensitive"])
async def test_a_journal_is_read_in_pages(secret: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader has one page in memory, from wherever it begins, and what is sensitive is hidden as in the history."""
    sizes: list[int] = []
    real = record_stream.read_records

    async def read(*args: Any, **options: Any) -> Any:
        found = await real(*args, **options)
        sizes.append(len(found))
        return found

    monkeypatch.setattr(record_stream, "read_records", read)
    monkeypatch.setattr(record_stream, "PAGE", 2)
    monkeypatch.setattr(record_stream, "_LOOK_PAGE", 2)
    steps = [{"step_id": n, "tool": "back", "kind": "irreversible", "params": {"item": "4711-0815"}} for n in range(6)]
    if secret:
        steps.append(
            {"step_id": 6, "tool": "charge", "kind": "irreversible", "params": {"card": "4711-0815", "amount": 1}}
        )
    async with Coordinator.open("memory://", [back, charge]) as coordinator:
        await coordinator.run({"steps": steps}, saga_id="s1")
        whole = await coordinator.history("s1")
        assert ("4711-0815" in str(whole)) is not secret
        for since in (0, 1, 5, len(whole) - 1, len(whole)):
            assert [record async for record in coordinator.follow("s1", since=since)] == whole[since:]
    assert max(sizes) == 3  # a page, and the last record of the one before
