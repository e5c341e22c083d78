"""What a model sees of large results, of errors and of tools, with LangChain and pydantic-ai."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from langchain_core.tools import StructuredTool, ToolException
from pydantic_ai import Agent, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from saga_engine import Coordinator, Session, SyncSession, sync_session, tool
from saga_engine.adapters import langchain, pydantic_ai
from saga_engine.adapters.results import ERROR_CHARS, RESULT_BYTES, page
from saga_engine.errors import SettingInvalid, ToolError

ROWS = [{"id": number, "text": f"row {number} " + "x" * 90} for number in range(3000)]
LETTER = "".join(f"{number:06d}" for number in range(60_000))


@tool(
    effect="read",
    use_when="an order is looked up",
    not_when="the customer is looked up",
    returns="all its rows",
)
async def rows() -> dict:
    """Read the rows."""
    return {"rows": ROWS, "name": "order"}


@tool(effect="read")
async def letter() -> str:
    """Read a letter."""
    return LETTER


@tool(effect="read")
async def breaks(how: str = "") -> str:
    """Always fails."""
    raise ToolError("no " * 40_000, error_code="down", retryable=False)


TOOLS = [rows, letter, breaks]
NAMES = ["rows", "letter", "breaks"]


def size(value: Any) -> int:
    return len(json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode())


async def ask_pydantic(session: Session, *calls: tuple[str, dict[str, Any]]) -> list[Any]:
    """The results that a model of pydantic-ai sees."""
    turns = iter(calls)

    def model(_messages: Any, _info: AgentInfo) -> ModelResponse:
        call = next(turns, None)
        return ModelResponse([TextPart("done") if call is None else ToolCallPart(*call)])

    agent = Agent(FunctionModel(model), tools=pydantic_ai.saga_tools(session, NAMES))
    parts = [part for message in (await agent.run("go")).all_messages() for part in message.parts]
    return [part.content for part in parts if isinstance(part, ToolReturnPart)]


async def ask_langchain(session: Session, *calls: tuple[str, dict[str, Any]]) -> list[Any]:
    """The results that a model of LangChain sees."""
    offered = {each.name: each for each in langchain.saga_tools(session, NAMES)}
    return [await offered[name].ainvoke(params) for name, params in calls]


ASK: list[Callable[..., Any]] = [ask_pydantic, ask_langchain]


@pytest.mark.parametrize("ask", ASK)
async def test_a_large_result_is_cut_and_read_in_pages(ask: Callable[..., Any]) -> None:
    """A model sees at most ``RESULT_BYTES`` of a result, and reads the whole of it page by page, by reference."""
    async with Coordinator.open("memory://", TOOLS) as engine, engine.session("s") as session:
        first, text = await ask(session, ("rows", {}), ("letter", {}))
        assert size(ROWS) > 300_000
        assert size(first) <= RESULT_BYTES
        assert size(text) <= RESULT_BYTES
        assert (first["saga_ref"], text["saga_ref"]) == ("call-1", "call-2")
        assert first["cut"]["rows"]["total"] == 3000

        found: list[Any] = []
        offset: int | None = 0
        while offset is not None:
            params = {"ref": first["saga_ref"], "path": "$.rows", "offset": offset}
            (part,) = await ask(session, ("saga_fetch", params))
            assert size(part) <= RESULT_BYTES
            found += part["value"]
            offset = part["next_offset"]
        assert found == ROWS

        (part,) = await ask(session, ("saga_fetch", {"ref": "call-2", "offset": len(LETTER) - 12}))
        assert (part["value"], part["next_offset"]) == (LETTER[-12:], None)
        (part,) = await ask(session, ("saga_fetch", {"ref": "call-1", "path": "$.rows[7].text"}))
        assert part["value"] == ROWS[7]["text"]
        assert len((await engine.show("s")).body["steps"]) == 2  # reading a page is no call of the saga


@pytest.mark.parametrize("ask", ASK)
async def test_what_is_not_there_is_told_to_the_model(ask: Callable[..., Any]) -> None:
    """An unknown reference, a path that is none, and an offset past the end say what there is."""
    async with Coordinator.open("memory://", TOOLS) as engine, engine.session("s") as session:
        wrong = [
            {"ref": "call-9"},
            {"ref": "call-1", "path": "rows"},
            {"ref": "call-1", "path": "$.nope"},
            {"ref": "call-1", "offset": 9},
        ]
        told = (await ask(session, ("rows", {}), *(("saga_fetch", params) for params in wrong)))[1:]
        for text, words in zip(told, ["call-1", "$.field", "$ is the whole", "0 to 2"], strict=True):
            assert words in text


@pytest.mark.parametrize("ask", ASK)
async def test_an_error_is_cut_too(ask: Callable[..., Any]) -> None:
    """The text of a tool's error is bounded, whatever the tool says."""
    async with Coordinator.open("memory://", TOOLS) as engine, engine.session("s") as session:
        (told,) = await ask(session, ("breaks", {"how": "badly"}))
        assert told.startswith("breaks: no no")
        assert len(told) <= ERROR_CHARS


async def test_the_choice_of_tools_has_the_words_of_their_declaration() -> None:
    """``use_when``, ``not_when`` and ``returns`` are in the description that a model reads."""
    wanted = (
        "Read the rows.\nUse when: an order is looked up\nNot when: the customer is looked up\nReturns: all its rows"
    )
    async with Coordinator.open("memory://", TOOLS) as engine, engine.session("s") as session:
        for offered in (langchain.saga_tools(session, NAMES), pydantic_ai.saga_tools(session, NAMES)):
            texts = {each.name: each.description for each in offered}
            assert texts["rows"] == wanted
            assert texts["letter"] == "Read a letter."
            assert set(texts) == {*NAMES, "saga_fetch"}


async def test_a_limit_of_ones_own() -> None:
    """``result_bytes`` is the limit; None passes results whole and offers no ``saga_fetch``; others are refused."""
    async with Coordinator.open("memory://", TOOLS) as engine, engine.session("s") as session:
        for adapter in (langchain, pydantic_ai):
            whole = adapter.saga_tools(session, ["rows"], result_bytes=None)
            assert [each.name for each in whole] == ["rows"]
            with pytest.raises(SettingInvalid):
                adapter.saga_tools(session, NAMES, result_bytes=10)
        small = langchain.saga_tools(session, ["rows"], result_bytes=600)[0]
        assert size(await small.ainvoke({})) <= 600


def test_blocking_agents_read_pages_too() -> None:
    """The tools of a ``SyncSession`` cut and page in the same way."""
    with sync_session("s", store="memory://", tools=TOOLS) as session:
        assert isinstance(session, SyncSession)
        offered = {each.name: each for each in langchain.saga_tools(session, NAMES)}
        cut = offered["rows"].invoke({})
        assert size(cut) <= RESULT_BYTES
        read = offered["saga_fetch"].invoke({"ref": cut["saga_ref"], "path": "$.name"})
        assert read["value"] == "order"
        assert "call-1" in offered["saga_fetch"].invoke({"ref": "nonsense"})


async def test_a_reference_is_valid_when_the_agent_runs_again() -> None:
    """A restored conversation may hold references of an earlier life."""
    async with Coordinator.open("memory://", TOOLS) as engine:
        async with engine.session("s") as session:
            (first,) = await ask_pydantic(session, ("rows", {}))
        async with engine.session("s") as session:
            assert (await session.call("rows"))["name"] == "order"
            assert page(session, first["saga_ref"], "$.name")["value"] == "order"


async def test_an_own_tool_with_the_name_is_refused() -> None:
    """Else the model would call one and get the other."""

    def saga_fetch(ref: str) -> str:
        """Mine."""
        raise ToolException(ref)

    mine = StructuredTool.from_function(saga_fetch)
    listed = langchain.register([mine], reads=["saga_fetch"])
    async with Coordinator.open("memory://", listed) as engine, engine.session("s") as session:
        with pytest.raises(SettingInvalid, match="saga_fetch"):
            langchain.saga_tools(session, [mine])
