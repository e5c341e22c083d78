"""``session(replay=…)``: an agent's own code against an exported trace. Nothing is called, and where they part is told."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import pytest

from saga_engine import CallFailed, Coordinator, Sensitive, ToolError, sync_session, tool
from saga_engine.agents.replaying import replayed
from saga_engine.errors import SessionDiverged, SettingInvalid

LOG: list[str] = []


@pytest.fixture(autouse=True)
def fresh() -> None:
    LOG.clear()


@tool
def cancel(ref: str) -> None:
    """Cancel it."""
    LOG.append(f"cancel {ref}")


@tool(undo=cancel)
def book(what: str, card: Annotated[str, Sensitive] = "") -> dict[str, Any]:
    """Book it."""
    LOG.append(f"book {what}")
    if what == "full":
        raise ToolError("it is full", error_code="full", suggestion="another one")
    return {"ref": what, "text": "x" * 50_000 if what == "big" else ""}


async def agent(s: Any, *items: str) -> list[str]:
    """What the agent got of each call."""
    told = []
    for item in items:
        try:
            told.append((await s.call(book, what=item, card="4111 1111"))["ref"])
        except CallFailed as error:
            told.append(str(error.hint))
    return told


async def exported(path: Path, *items: str, full: bool = True, fails: bool = False) -> Path:
    """The trace of an agent's session."""
    async with Coordinator.open("memory://", [book]) as engine:
        try:
            async with engine.session("s") as s:
                await agent(s, *items)
                if fails:
                    raise LookupError
        except LookupError:
            pass
        file = path / "trace.jsonl"
        file.write_text("".join(f"{line}\n" for line in await engine.trace("s", full=full)))
    LOG.clear()
    return file


@pytest.mark.parametrize("fails", [False, True])
async def test_an_agent_that_goes_the_same_way_is_answered(tmp_path: Path, fails: bool) -> None:
    """Outputs and failures as they were, also of a session that was undone; nothing is called, no store is needed."""
    file = await exported(tmp_path, "a", "full", "b", fails=fails)
    async with replayed(file, [book]) as s:
        assert await agent(s, "a", "full", "b") == ["a", "another one", "b"]
    assert (s.parting, LOG) == (None, [])


async def test_the_call_at_which_they_part_is_told_then_and_now(tmp_path: Path) -> None:
    """Both params, without the values that the trace does not show; a call that was swallowed gets no further."""
    file = await exported(tmp_path, "a", "b", "c")
    with pytest.raises(SessionDiverged, match="call 2: the params of book") as parted:
        async with replayed(file, [book]) as s:
            await agent(s, "a", "B", "c")
    assert s.parting is not None
    told = s.parting.to_dict()
    assert told == {key: parted.value.context[key] for key in ("call", "then", "now")}
    assert (told["call"], told["then"]["params"]["what"], told["now"]["params"]["what"]) == (2, "b", "B")
    assert "4111" not in str(told["then"])
    assert LOG == []


async def test_a_call_too_much_and_one_that_is_missing(tmp_path: Path) -> None:
    """The trace ends before the one, and the agent before the other."""
    file = await exported(tmp_path, "a", "b")
    with pytest.raises(SessionDiverged, match="call 3: the trace ends before it"):
        async with replayed(file, [book]) as more:
            await agent(more, "a", "b", "c")
    with pytest.raises(SessionDiverged, match="made 2 calls before, and now ends after call 1"):
        async with replayed(file, [book]) as fewer:
            await agent(fewer, "a")
    assert more.parting is not None
    assert (more.parting.then, more.parting.call) == (None, 3)
    assert fewer.parting is not None
    assert (fewer.parting.now, fewer.parting.call) == (None, 2)


async def test_an_output_in_its_cut_form_is_no_answer(tmp_path: Path) -> None:
    """The agent would go on with something that it never got."""
    file = await exported(tmp_path, "big", full=False)
    with pytest.raises(SettingInvalid, match="cut form"):
        async with replayed(file, [book]) as s:
            await agent(s, "big")


async def test_a_coordinators_session_and_one_that_blocks_replay_as_well(tmp_path: Path) -> None:
    """The same option at each door."""
    file = await exported(tmp_path, "a")
    async with Coordinator.open("memory://", [book]) as engine, engine.session(replay=file) as s:
        assert await agent(s, "a") == ["a"]

    with sync_session(replay=file, tools=[book]) as blocking:
        assert blocking.call(book, what="a", card="4111 1111")["ref"] == "a"
    assert LOG == []


async def test_a_file_without_that_session_is_refused(tmp_path: Path) -> None:
    """With the sessions that it has."""
    file = await exported(tmp_path, "a")
    with pytest.raises(SettingInvalid, match="has 0 such sessions") as refused:
        async with replayed(file, [book], saga_id="other"):
            pass
    assert "s; give the id" in str(refused.value.hint)
    with pytest.raises(SettingInvalid, match="cannot be read"):
        async with replayed(tmp_path / "none"):
            pass
