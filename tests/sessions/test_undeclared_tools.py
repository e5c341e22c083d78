"""Plain functions in a session: nobody has said what they do, so each call is a write that nothing takes back."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from saga_engine import Coordinator, NeedsPerson, sync_session, tool
from saga_engine.agents import undeclared
from saga_engine.errors import PlanInvalid, SettingInvalid, ToolInvalid, ToolMissing

LOG: list[str] = []


@pytest.fixture(autouse=True)
def fresh() -> None:
    LOG.clear()
    undeclared._noted.clear()


def search_web(query: str) -> list[str]:
    LOG.append(f"search {query}")
    return [f"about {query}"]


def add_note(text: str) -> str:
    LOG.append(f"note {text}")
    return text


def remove_note(text: str) -> None:
    LOG.append(f"remove {text}")


@tool(undo=remove_note)
def keep_note(text: str) -> dict[str, str]:
    LOG.append(f"keep {text}")
    return {"text": text}


def test_the_first_minute(tmp_path: Any) -> None:
    """One decorator and nothing else: the call is made, journalled, and answered from the journal the next time."""
    for _ in range(2):
        with sync_session("s", store=f"embedded://{tmp_path}/.saga") as s:

            @s.tool
            def search(query: str) -> str:
                LOG.append(f"search {query}")
                return query.upper()

            assert search("tides") == "TIDES"
    assert LOG == ["search tides"]


async def test_functions_of_the_block_may_come_after_a_life_that_ended() -> None:
    """A session that is open begins before its block has brought its functions: what it did is answered, the rest made."""
    for life in range(2):
        async with Coordinator.open("memory://later", []) as engine:
            with pytest.raises(LookupError):
                async with engine.session("s", on_failure="keep") as s:

                    @s.tool
                    def write(text: str) -> str:
                        LOG.append(text)
                        return text.upper()

                    look = s.tool(search_web, effect="read")
                    assert await write("a") == "A"
                    assert await look("b") == ["about b"]
                    if life:
                        assert await write("c") == "C"
                    raise LookupError
    assert LOG == ["a", "search b", "c"]


async def test_a_tool_that_is_undone_must_be_there_from_the_start() -> None:
    """Nothing could be undone through a stand-in."""
    for life in range(2):
        async with Coordinator.open("memory://undone", []) as engine:
            with pytest.raises(ToolMissing if life else LookupError):
                async with engine.session("s", on_failure="keep") as s:
                    await s.tool(add_note, undo=remove_note)("a")
                    raise LookupError


async def test_it_is_reported_as_left_and_an_operator_is_asked_first() -> None:
    """A failure undoes nothing before an operator has answered: the rest may not be right without what stands."""
    async with Coordinator.open("memory://", [keep_note, add_note]) as engine:
        with pytest.raises(LookupError) as failure:
            async with engine.session("s") as s:
                await s.call(keep_note, text="a")
                await s.call(add_note, text="b")
                raise LookupError
        assert "waits for an operator (session-failed)" in failure.value.__notes__[0]
        assert LOG == ["keep a", "note b"]
        with pytest.raises(NeedsPerson):
            async with engine.session("s"):
                pass
        ended = await engine.resolve("s", 2, "undo")
        assert (ended.status, ended.report["left_in_place"], ended.report["clean"]) == ("WAIVED", [2], False)
    assert LOG == ["keep a", "note b", "remove a"]


async def test_the_agent_runs_again_after_the_answer() -> None:
    """``keep`` gives the session back to its agent, which repeats no call that happened."""
    async with Coordinator.open("memory://", [add_note]) as engine:
        with pytest.raises(LookupError):
            async with engine.session("s") as s:
                await s.call(add_note, text="a")
                raise LookupError
        await engine.resolve("s", 1, "keep")
        async with engine.session("s") as s:
            assert await s.call(add_note, text="a") == "a"
            await s.call(add_note, text="b")
        assert (await engine.show("s")).completed
    assert LOG == ["note a", "note b"]


async def test_an_answer_that_nobody_has_read_yet_is_read_by_the_agent() -> None:
    """``saga resolve`` without a worker only posts it: the next run of the agent goes on at once."""
    async with Coordinator.open("memory://", [add_note]) as engine:
        with pytest.raises(LookupError):
            async with engine.session("s") as s:
                await s.call(add_note, text="a")
                raise LookupError
        await engine.resolve("s", 1, "keep", wait=False)
        async with engine.session("s") as s:
            assert await s.call(add_note, text="a") == "a"
        assert (await engine.show("s")).completed
    assert LOG == ["note a"]


@pytest.mark.parametrize("word", ["undo", "irreversible", "read"])
async def test_one_word_brings_the_undo_without_a_question(word: str) -> None:
    """Who said what a call does is undone as ever: with an explicit ``undo``, an irreversible call, a read."""
    async with Coordinator.open("memory://", [keep_note]) as engine:
        with pytest.raises(LookupError):
            async with engine.session("s", on_failure="undo" if word == "undo" else None) as s:
                await s.call(keep_note, text="a")
                if word == "undo":
                    await s.tool(add_note)("b")
                elif word == "irreversible":
                    await s.tool(add_note, irreversible=True)("b")
                else:
                    await s.tool(effect="read")(search_web)("b")
                raise LookupError
        assert (await engine.show("s")).status == ("COMPENSATED" if word == "read" else "WAIVED")
    assert LOG[-1] == "remove a"


async def test_the_log_has_one_line_for_a_tool_with_the_word_that_is_missing(caplog: pytest.LogCaptureFixture) -> None:
    """Its name may suggest the word; a second call says nothing more."""

    def send(text: str) -> None:
        LOG.append(text)

    with caplog.at_level(logging.WARNING, "saga_engine"):
        tools = [search_web, add_note, remove_note, send]
        async with Coordinator.open("memory://", tools) as engine, engine.session("s") as s:
            for _ in range(2):
                await s.call(search_web, query="a")
                await s.call(add_note, text="a")
                await s.call(send, text="a")
    lines = [record.getMessage() for record in caplog.records if "says nothing of its effect" in record.getMessage()]
    assert [line.partition("back. ")[2] for line in lines] == [
        'If it only reads, say @tool(effect="read")',
        "If 'remove_note' takes it back, say @tool(undo=\"remove_note\")",
        'Name what takes it back: @tool(undo=…), or @tool(effect="read") if it only reads',
    ]


async def test_a_declared_tool_is_still_asked_for_its_undo() -> None:
    """``@tool`` is a declaration: a write without an undo is refused, and so is a plan's step."""

    @tool
    def send(text: str) -> str:
        return text

    async with Coordinator.open("memory://", [send, add_note]) as engine:
        async with engine.session("s") as s:
            with pytest.raises(PlanInvalid, match="nothing says how that is undone"):
                await s.call(send, text="a")
        with pytest.raises(PlanInvalid, match="rollback"):
            await engine.run({"steps": [{"step_id": 1, "tool": "add_note", "params": {"text": "a"}}]})


async def test_a_table_of_settings_may_declare_it() -> None:
    """``effect = "read"`` for a plain function, by its own name; nobody else's word is taken back."""
    options: dict[str, Any] = {"search_web": {"effect": "read"}, "add_note": {"undo": "remove_note"}}
    async with Coordinator.open("memory://", [search_web, add_note, remove_note], tool_options=options) as engine:
        with pytest.raises(LookupError):
            async with engine.session("s") as s:
                await s.call(search_web, query="a")
                await s.call(add_note, text="a")
                raise LookupError
        assert (await engine.show("s")).report["clean"]
    assert LOG == ["search a", "note a", "remove a"]
    for refused in ({"keep_note": {"effect": "read"}}, {"search_*": {"effect": "read"}}):
        with pytest.raises(SettingInvalid, match="only 'write' can be set"):
            async with Coordinator.open("memory://", [search_web, keep_note], tool_options=refused):
                pass


async def test_no_session_says_what_a_tool_does_for_all_others() -> None:
    """A function that the coordinator knows without a declaration stays so: it is declared where it is registered."""
    async with Coordinator.open("memory://", [search_web]) as engine, engine.session("s") as s:
        with pytest.raises(ToolInvalid, match="nobody has said what it does, and here effect 'read'"):
            s.tool(search_web, effect="read")
        await s.call(search_web, query="a")
        assert (await engine.show("s")).body["steps"][0]["kind"] == "irreversible"


async def test_a_call_that_is_meant_to_stay_says_nothing_of_another() -> None:
    """``irreversible`` is said of one call: the other one of the same tool stands undeclared, and a person is asked."""
    async with Coordinator.open("memory://", []) as engine:
        with pytest.raises(LookupError):
            async with engine.session("s") as s:
                await s.tool(add_note)("a")
                await s.tool(add_note, irreversible=True)("b")
                raise LookupError
        assert [each["kind"] for each in (await engine.show("s")).body["questions"]] == ["session-failed"]
