"""Tools that a session's agent brings and that the coordinator did not know."""

from __future__ import annotations

from typing import Any

import pytest

from saga_engine import Coordinator, sync_session, tool
from saga_engine.errors import PlanInvalid, ToolInvalid, ToolMissing

LOG: list[str] = []


@pytest.fixture(autouse=True)
def fresh() -> None:
    LOG.clear()


def mine(life: str = "") -> tuple[Any, Any]:
    """A call and its undo, new functions each time, as a program has them that starts again."""

    async def note(text: str) -> dict:
        """Write a note."""
        LOG.append(f"{life}{text}")
        return {"text": text}

    async def erase(text: str) -> None:
        LOG.append(f"{life}-{text}")

    return note, erase


async def test_a_function_that_nobody_registered_is_a_tool_of_the_session(caplog: pytest.LogCaptureFixture) -> None:
    """It is called, journalled and undone like any other, and the log says that only this process knows it."""
    note, erase = mine()
    async with Coordinator.open("memory://", []) as engine:
        with pytest.raises(LookupError):
            async with engine.session("s") as s:
                wrapped = s.tool(note, undo=erase)
                assert await wrapped("a") == {"text": "a"}
                assert await wrapped(text="b") == {"text": "b"}
                raise LookupError
        assert (await engine.show("s")).status == "COMPENSATED"
    assert LOG == ["a", "b", "-b", "-a"]
    assert "the tool 'note' is known in this process only" in caplog.text


async def test_as_a_decorator() -> None:
    """``@s.tool``, also above ``@tool`` with its options."""
    async with Coordinator.open("memory://", []) as engine, engine.session("s") as s:

        @s.tool
        @tool(effect="read")
        async def look(at: str) -> str:
            return f"{at}!"

        @s.tool
        @tool
        async def send(text: str) -> str:
            return text

        assert await look("sky") == "sky!"
        with pytest.raises(PlanInvalid, match="nothing says how that is undone"):
            await send("x")


async def test_another_process_waits_for_the_agent_and_says_so() -> None:
    """Without its tool a session is neither settled nor undone elsewhere: the error names what is needed, and it stays."""
    note, erase = mine()
    async with Coordinator.open("memory://brought", []) as engine:
        with pytest.raises(LookupError):
            async with engine.session("s", on_failure="keep") as s:
                await s.tool(note, undo=erase)("a")
                raise LookupError
    async with Coordinator.open("memory://brought", []) as engine:
        with pytest.raises(ToolMissing, match="note"):
            async with engine.session("s"):
                pass
        with pytest.raises(ToolMissing, match="the message is recorded"):
            await engine.cancel("s")
        assert (await engine.show("s")).body["session"] == "open"
        assert LOG == ["a"]
        brought = tool(undo=mine("2: ")[1])(mine("2: ")[0])
        with pytest.raises(Exception, match=r"has ended|being undone"):
            async with engine.session("s", tools=[brought]) as s:
                await s.call(brought, text="b")
        assert (await engine.resume("s")).status == "COMPENSATED"
    assert LOG == ["a", "2: -a"]


async def test_the_next_life_brings_its_own_functions() -> None:
    """In the same process, too: the new function takes the place of the old one."""
    async with Coordinator.open("memory://", []) as engine:
        for life in ("1: ", "2: "):
            note, erase = mine(life)
            with pytest.raises(LookupError):
                async with engine.session("s", on_failure="keep") as s:
                    wrapped = s.tool(note, undo=erase)
                    await wrapped("a")
                    if life == "2: ":
                        await wrapped("b")
                    raise LookupError
        assert (await engine.resolve("s", 2, "undo")).status == "COMPENSATED"
    assert LOG == ["1: a", "2: b", "2: -b", "2: -a"]


async def test_two_sessions_do_not_share_a_name() -> None:
    """Else the calls of one would go to the function of the other."""
    async with Coordinator.open("memory://", []) as engine, engine.session("one") as one, engine.session("two") as two:
        one.tool(mine()[0])
        with pytest.raises(ToolInvalid, match="note"):
            two.tool(mine()[0])


async def test_a_tool_of_the_coordinator_stays_its_own() -> None:
    """A function with the name of a registered tool is that tool, as ever."""
    note, erase = mine("theirs: ")
    async with Coordinator.open("memory://", [tool(undo=erase)(note)]) as engine, engine.session("s") as s:
        await s.tool(mine()[0])("a")
    assert LOG == ["theirs: a"]


def test_agents_that_block_bring_tools_too(tmp_path: Any) -> None:
    """``SyncSession.tool`` registers what nobody knows."""

    def note(text: str) -> str:
        LOG.append(text)
        return text

    def erase(text: str) -> None:
        LOG.append(f"-{text}")

    with pytest.raises(LookupError), sync_session("s", store=f"embedded://{tmp_path}/.saga") as s:
        s.tool(note, undo=erase)("a")
        raise LookupError
    assert LOG == ["a", "-a"]


async def test_a_second_function_of_a_name_is_refused_in_one_life() -> None:
    """Else the first wrapper would call the second function."""
    async with Coordinator.open("memory://", []) as engine, engine.session("s") as s:
        first = s.tool(mine("1: ")[0])
        with pytest.raises(ToolInvalid, match="two different tools are called 'note'"):
            s.tool(mine("2: ")[0])
        await first("a")
    assert LOG == ["1: a"]


async def test_the_name_is_free_when_its_session_has_ended() -> None:
    """A function made for each session, as in a server, serves one after the other; a session that is kept keeps it."""
    async with Coordinator.open("memory://", []) as engine:
        for number in ("1: ", "2: "):
            async with engine.session(f"s{number[0]}") as s:
                await s.tool(mine(number)[0])("a")
        with pytest.raises(LookupError):
            async with engine.session("s3", on_failure="keep") as s:
                await s.tool(mine("3: ")[0])("a")
                raise LookupError
        async with engine.session("s4") as s:
            with pytest.raises(ToolInvalid, match="another session's agent"):
                s.tool(mine("4: ")[0])
    assert LOG == ["1: a", "2: a", "3: a"]


async def test_a_declaration_holds_for_one_session() -> None:
    """Another session that says nothing of the same function does not get the effect that the first one said."""
    look = mine()[0]
    async with Coordinator.open("memory://", []) as engine, engine.session("one") as one, engine.session("two") as two:
        one.tool(look, effect="read")
        with pytest.raises(ToolInvalid, match="another session's agent has the tool 'note' otherwise"):
            two.tool(look)


async def test_the_next_life_may_bring_its_tools_in_its_block() -> None:
    """What ``@s.tool`` brings cannot be there when the session is opened, and only then must it be."""
    async with Coordinator.open("memory://later", []) as engine:
        with pytest.raises(LookupError):
            async with engine.session("s", on_failure="keep") as s:
                await s.tool(mine()[0])("a")
                raise LookupError
    async with Coordinator.open("memory://later", []) as engine:
        async with engine.session("s") as s:
            note = s.tool(mine("2: ")[0])
            await note("a")
            await note("b")
        assert (await engine.show("s")).completed
    assert LOG == ["a", "2: b"]


async def test_an_undo_with_its_params_is_brought_too() -> None:
    """As ``(tool, params)`` and as ``Undo``."""
    note, erase = mine()
    async with Coordinator.open("memory://", []) as engine:
        with pytest.raises(LookupError):
            async with engine.session("s") as s:
                await s.tool(note, undo=(erase, {"text": "$output.text"}))("a")
                raise LookupError
        assert (await engine.show("s")).status == "COMPENSATED"
    assert LOG == ["a", "-a"]


async def test_open_fields_are_params_and_open_arguments_are_refused() -> None:
    """``**fields`` are params by their names; what has no name is no param."""

    async def create(kind: str, *rest: str, **fields: str) -> str:
        return f"{kind} {rest} {sorted(fields)}"

    async with Coordinator.open("memory://", []) as engine, engine.session("s") as s:
        wrapped = s.tool(create, effect="read")
        assert await wrapped("note", title="a", text="b") == "note () ['text', 'title']"
        with pytest.raises(TypeError, match="too many positional"):
            await wrapped("note", "a")
