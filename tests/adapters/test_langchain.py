"""Agents of LangChain and LangGraph, made transactional by wrapping their tool list. The model is scripted."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from langchain_core.language_models.fake_chat_models import FakeMessagesListChatModel
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.runnables import RunnableLambda
from langchain_core.tools import ToolException, tool
from langchain_core.utils.function_calling import convert_to_openai_tool
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from pydantic import BaseModel

from saga_engine import Coordinator, NeedsPerson, RetryPolicy, SyncSession, sync_session
from saga_engine.adapters.langchain import register, saga_tools
from saga_engine.errors import PlanInvalid, SessionDiverged, SettingInvalid, ToolMissing
from tests.adapters import world
from tests.adapters.world import FULL, LOG

ONCE = {"retry": RetryPolicy(max_attempts=1)}


class Room(BaseModel):
    hotel: str
    nights: int = 1


@tool
async def book(what: str, room: Room | None = None) -> dict:
    """Book something.

    Args:
        what: What to book.
        room: A room, if it is one.
    """
    if what in FULL:
        raise ToolException(f"{what} is full")
    LOG.append(f"book {what}" + (f" {room.nights}" if room else ""))
    return {"what": what}


@tool
def cancel(what: str) -> str:
    """Cancel what was booked."""
    if f"no {what}" in FULL:
        raise ToolException("too late")
    LOG.append(f"cancel {what}")
    return "done"


@tool
async def look(at: str) -> str:
    """Look at something."""
    LOG.append(f"look {at}")
    return f"{at}: fine"


@tool
async def send(text: str) -> str:
    """Send a letter."""
    LOG.append(f"send {text}")
    return "sent"


TOOLS = [book, cancel, look, send]


@pytest.fixture(autouse=True)
def fresh() -> None:
    world.reset()


def ours() -> list[Any]:
    return register(
        TOOLS, undo={"book": "cancel"}, reads=["look"], options={name: ONCE for name in ("book", "cancel", "send")}
    )


def turn(*calls: tuple[str, dict[str, Any]]) -> AIMessage:
    """One turn of the model: calls side by side."""
    made = [{"name": name, "args": args, "id": f"c{number}"} for number, (name, args) in enumerate(calls)]
    return AIMessage("" if calls else "all done", tool_calls=made)


class Scripted(FakeMessagesListChatModel):
    """A model that says what it is told to, whatever tools it gets."""

    def bind_tools(self, *_: Any, **__: Any) -> Scripted:
        return self


def agent(tools: list[Any], *turns: AIMessage, handle: Any = None) -> Any:
    """The loop of every such agent: the model, its tools, the model again."""
    model = Scripted(responses=list(turns)).bind_tools(tools)

    async def think(state: MessagesState) -> dict:
        return {"messages": [await model.ainvoke(state["messages"])]}

    def think_now(state: MessagesState) -> dict:
        return {"messages": [model.invoke(state["messages"])]}

    graph = StateGraph(MessagesState)
    graph.add_node("model", RunnableLambda(think_now, think))
    graph.add_node("tools", ToolNode(tools) if handle is None else ToolNode(tools, handle_tool_errors=handle))
    graph.add_edge(START, "model")
    graph.add_conditional_edges("model", tools_condition, {"tools": "tools", END: END})
    graph.add_edge("tools", "model")
    return graph.compile()


ASK = {"messages": [HumanMessage("a trip")]}


async def steps(engine: Coordinator, saga_id: str = "trip") -> list[tuple[str, Any]]:
    return [(step["tool"], step["status"]) for step in (await engine.show(saga_id)).body["steps"]]


async def test_an_agent_is_made_transactional_by_its_tool_list() -> None:
    """Each call of the model is a step with the params that the model gave; the run completes the session."""
    async with Coordinator.open("memory://", ours()) as engine:
        async with engine.session("trip") as session:
            tools = saga_tools(session, TOOLS)
            turns = [
                turn(("look", {"at": "sky"})),
                turn(("book", {"what": "hotel", "room": {"hotel": "Savoy"}})),
                turn(),
            ]
            said = await agent(tools, *turns).ainvoke(ASK)
        assert said["messages"][-1].content == "all done"
        assert [m.content for m in said["messages"] if isinstance(m, ToolMessage)] == ["sky: fine", '{"what": "hotel"}']
        assert await steps(engine) == [("look", "SUCCEEDED"), ("book", "SUCCEEDED")]
        assert (await engine.show("trip")).completed
    assert LOG == ["look sky", "book hotel 1"]


async def test_the_model_sees_the_same_tools() -> None:
    """Name, description and schema of a wrapped tool are those of the tool; ``saga_fetch`` stands beside them."""
    async with Coordinator.open("memory://", ours()) as engine, engine.session("trip") as session:
        for wrapped, original in zip(saga_tools(session, TOOLS, offer_undos=True)[:-1], TOOLS, strict=True):
            seen, meant = convert_to_openai_tool(wrapped)["function"], convert_to_openai_tool(original)["function"]
            assert seen.pop("description").split() == meant.pop("description").split()  # but for its indentation
            assert seen == meant


async def test_undos_are_offered_only_if_asked_for() -> None:
    """The agent's list has no tool that only undoes another one, though it stands in the list that is wrapped."""
    async with Coordinator.open("memory://", ours()) as engine, engine.session("trip") as session:
        usual = [each.name for each in saga_tools(session, TOOLS)]
        every = [each.name for each in saga_tools(session, TOOLS, offer_undos=True)]
    assert usual == ["book", "look", "send", "saga_fetch"]
    assert every == ["book", "cancel", "look", "send", "saga_fetch"]


async def test_an_error_of_the_agent_undoes_its_calls() -> None:
    """Whatever ends the run otherwise than well, all that the model did is undone in reverse."""
    async with Coordinator.open("memory://", ours()) as engine:
        with pytest.raises(RuntimeError, match="out of tokens"):
            async with engine.session("trip") as session:
                turns = [turn(("book", {"what": "flight"})), turn(("book", {"what": "hotel"})), turn()]
                await agent(saga_tools(session, TOOLS), *turns).ainvoke(ASK)
                raise RuntimeError("out of tokens")
        assert (await engine.show("trip")).status == "COMPENSATED"
    assert LOG == ["book flight", "book hotel", "cancel hotel", "cancel flight"]


async def test_a_call_that_was_not_done_is_told_to_the_model() -> None:
    """It comes back as a tool message with the status error, and the model tries something else."""
    FULL.add("Hilton")
    async with Coordinator.open("memory://", ours()) as engine:
        async with engine.session("trip") as session:
            turns = [turn(("book", {"what": "Hilton"})), turn(("book", {"what": ["Savoy"]})), turn()]
            said = await agent(saga_tools(session, TOOLS), *turns).ainvoke(ASK)
        answers = [message for message in said["messages"] if isinstance(message, ToolMessage)]
        assert [message.status for message in answers] == ["error", "error"]
        assert "Hilton is full" in answers[0].text
        assert "$.params.what" in answers[1].text
        assert await steps(engine) == [("book", "FAILED")]


async def test_calls_of_one_turn_are_numbered_in_the_models_order() -> None:
    """They run side by side, and another life of the agent finds each of them at its place."""
    many = [("book", {"what": f"b{number}"}) for number in range(20)]
    async with Coordinator.open("memory://lc-turn", ours()) as engine:
        manager = engine.session("trip")
        session = await manager.__aenter__()
        await agent(saga_tools(session, TOOLS), turn(*many), turn()).ainvoke(ASK)
        session.link.leave()
        await manager.gen.aclose()  # type: ignore[attr-defined]
    assert sorted(LOG) == sorted(f"book b{number}" for number in range(20))
    LOG.clear()
    async with Coordinator.open("memory://lc-turn", ours()) as engine:
        async with engine.session("trip") as session:
            said = await agent(saga_tools(session, TOOLS), turn(*many), turn()).ainvoke(ASK)
        calls = [record["params"] for record in await engine.history("trip") if record["k"] == "CallAdded"]
        assert calls == [args for _, args in many]
        answers = [message.text for message in said["messages"] if isinstance(message, ToolMessage)]
        assert answers == [f'{{"what": "b{number}"}}' for number in range(20)]
    assert LOG == []


@pytest.mark.parametrize("handle", [None, True])
async def test_what_the_model_can_do_nothing_about_ends_the_run(handle: Any) -> None:
    """A divergence is no answer for a model; even a tool node that swallows every error gets no further."""
    async with Coordinator.open(f"memory://lc-other-{handle}", ours()) as engine:
        manager = engine.session("trip")
        session = await manager.__aenter__()
        await agent(saga_tools(session, TOOLS), turn(("book", {"what": "flight"})), turn()).ainvoke(ASK)
        session.link.leave()
        await manager.gen.aclose()  # type: ignore[attr-defined]
    async with Coordinator.open(f"memory://lc-other-{handle}", ours()) as engine:
        with pytest.raises(SessionDiverged):
            async with engine.session("trip") as session:
                turns = [turn(("book", {"what": "ship"})), turn(("book", {"what": "flight"})), turn()]
                await agent(saga_tools(session, TOOLS), *turns, handle=handle).ainvoke(ASK)
        assert await steps(engine) == [("book", "SUCCEEDED")]
        await engine.cancel("trip")
    assert LOG == ["book flight", "cancel flight"]


async def test_a_question_for_a_person_ends_the_run() -> None:
    """The model is not asked what only a person knows; answered, the agent runs again."""

    @tool
    async def slow(what: str) -> str:
        """Never answers."""
        await asyncio.Event().wait()
        return what

    listed = register([slow, cancel], undo={"slow": "cancel"}, options={"slow": {**ONCE, "timeout_s": 0.01}})
    async with Coordinator.open("memory://", listed) as engine:
        with pytest.raises(NeedsPerson):
            async with engine.session("trip") as session:
                await agent(saga_tools(session, [slow]), turn(("slow", {"what": "x"})), turn()).ainvoke(ASK)
        await engine.resolve("trip", 1, "happened", output="x!")
        async with engine.session("trip") as session:
            said = await agent(saga_tools(session, [slow]), turn(("slow", {"what": "x"})), turn()).ainvoke(ASK)
        assert said["messages"][-2].content == "x!"


def test_an_agent_that_blocks() -> None:
    """The same list for ``invoke``: the session lives in a thread of its own."""
    with pytest.raises(LookupError), sync_session("trip", store="memory://", tools=ours()) as session:
        turns = [turn(("book", {"what": "flight"}), ("book", {"what": "hotel"})), turn()]
        said = agent(saga_tools(session, TOOLS), *turns).invoke(ASK, {"max_concurrency": 1})
        assert said["messages"][-1].content == "all done"
        raise LookupError
    assert LOG[:2] == ["book flight", "book hotel"]
    assert sorted(LOG[2:]) == ["cancel flight", "cancel hotel"]


async def test_an_agent_that_blocks_in_an_async_program() -> None:
    """It runs in a thread and calls back into the program's own loop."""
    async with Coordinator.open("memory://", ours()) as engine, engine.session("trip") as session:
        bridge = SyncSession(session, asyncio.get_running_loop())
        run = agent(saga_tools(bridge, TOOLS), turn(("look", {"at": "sky"})), turn())
        await asyncio.to_thread(run.invoke, ASK)
        assert await steps(engine) == [("look", "SUCCEEDED")]


async def test_a_write_that_says_so_without_an_undo_must_be_meant() -> None:
    """A model cannot mend it, so the run ends; named in ``irreversible`` the tool may be called."""
    writes = register(TOOLS, undo={"book": "cancel"}, options={"send": {"effect": "write"}})
    async with Coordinator.open("memory://", writes) as engine:
        with pytest.raises(PlanInvalid):
            async with engine.session("a") as session:
                await agent(saga_tools(session, TOOLS), turn(("send", {"text": "x"})), turn()).ainvoke(ASK)
        async with engine.session("b") as session:
            tools = saga_tools(session, TOOLS, irreversible=(name for name in ["send"]))
            await agent(tools, turn(("send", {"text": "x"})), turn()).ainvoke(ASK)
    assert LOG == ["send x"]


async def test_names_that_mean_nothing_are_refused() -> None:
    """A misspelt undo, and a tool that the coordinator does not have."""
    with pytest.raises(SettingInvalid, match="boook"):
        register(TOOLS, undo={"boook": "cancel"})
    async with Coordinator.open("memory://", register([look], reads=["look"])) as engine, engine.session() as session:
        assert [offered.name for offered in saga_tools(session, ["look"])] == ["look", "saga_fetch"]
        with pytest.raises(ToolMissing):
            saga_tools(session, [book])


async def test_a_tool_that_answers_its_own_errors_still_fails() -> None:
    """``handle_tool_error`` is for a model; a journal must know that nothing was done."""

    @tool
    async def moody(what: str) -> str:
        """Fails."""
        raise ToolException("not today")

    moody.handle_tool_error = True
    async with Coordinator.open("memory://", register([moody], reads=["moody"], options={"moody": ONCE})) as engine:
        async with engine.session("trip") as session:
            await agent(saga_tools(session, [moody]), turn(("moody", {"what": "x"})), turn()).ainvoke(ASK)
        assert await steps(engine) == [("moody", "FAILED")]
