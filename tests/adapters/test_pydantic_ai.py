"""Agents of pydantic-ai, made transactional by wrapping their tool list. The model is scripted."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import BaseModel
from pydantic_ai import Agent, ModelRetry, RunContext, Tool, ToolReturn
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from saga_engine import Coordinator, NeedsPerson, RetryPolicy
from saga_engine.adapters.pydantic_ai import register, saga_tools
from saga_engine.errors import PlanInvalid, SessionDiverged, SettingInvalid, ToolInvalid, ToolMissing
from tests.adapters import world
from tests.adapters.world import FULL, LOG

ONCE = {"retry": RetryPolicy(max_attempts=1)}


class Room(BaseModel):
    hotel: str
    nights: int = 1


async def book(what: str, room: Room | None = None) -> dict[str, str]:
    """Book something.

    Args:
        what: What to book.
        room: A room, if it is one.
    """
    if what in FULL:
        raise ValueError(f"{what} is full")
    if what == "anything":
        raise ModelRetry("say what")
    LOG.append(f"book {what}" + (f" {room.nights}" if room else ""))
    return {"what": what}


def cancel(what: str) -> str:
    """Cancel what was booked."""
    LOG.append(f"cancel {what}")
    return "done"


def look(at: str) -> ToolReturn:
    """Look at something."""
    LOG.append(f"look {at}")
    return ToolReturn(return_value=f"{at}: fine", metadata={"only": "for the program"})


async def send(text: str) -> str:
    """Send a letter."""
    LOG.append(f"send {text}")
    return "sent"


TOOLS: list[Any] = [Tool(book), cancel, look, send]


@pytest.fixture(autouse=True)
def fresh() -> None:
    world.reset()


def ours() -> list[Any]:
    return register(
        TOOLS, undo={"book": "cancel"}, reads=["look"], options={name: ONCE for name in ("book", "cancel", "send")}
    )


def turn(*calls: tuple[str, dict[str, Any]]) -> ModelResponse:
    """One turn of the model: calls side by side."""
    return ModelResponse([ToolCallPart(name, args) for name, args in calls] if calls else [TextPart("all done")])


SEEN: list[AgentInfo] = []


def agent(tools: list[Any], *turns: ModelResponse) -> Agent[None, str]:
    said: Iterator[ModelResponse] = iter(turns)

    def model(_messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        SEEN.append(info)
        return next(said)

    return Agent(FunctionModel(model), tools=tools)


async def steps(engine: Coordinator, saga_id: str = "trip") -> list[tuple[str, Any]]:
    return [(step["tool"], step["status"]) for step in (await engine.show(saga_id)).body["steps"]]


def answers(result: Any) -> list[Any]:
    return [part for message in result.all_messages() for part in message.parts if isinstance(part, ToolReturnPart)]


async def test_an_agent_is_made_transactional_by_its_tool_list() -> None:
    """Each call of the model is a step with the params that the model gave; the run completes the session."""
    turns = [turn(("look", {"at": "sky"})), turn(("book", {"what": "hotel", "room": {"hotel": "Savoy"}})), turn()]
    existing = agent(TOOLS, *turns)
    async with Coordinator.open("memory://", ours()) as engine:
        async with engine.session("trip") as session:
            with existing.override(tools=saga_tools(session, TOOLS)):
                result = await existing.run("a trip")
        assert result.output == "all done"
        assert [part.content for part in answers(result)] == ["sky: fine", {"what": "hotel"}]
        assert await steps(engine) == [("look", "SUCCEEDED"), ("book", "SUCCEEDED")]
        assert (await engine.show("trip")).completed
    assert LOG == ["look sky", "book hotel 1"]


async def test_the_model_sees_the_same_tools() -> None:
    """Name, description and schema of a wrapped tool are those of the tool; ``saga_fetch`` stands beside them."""
    async with Coordinator.open("memory://", ours()) as engine, engine.session("trip") as session:
        for tools in (saga_tools(session, TOOLS, offer_undos=True), TOOLS):
            await agent(tools, turn()).run("?")
        wrapped, original = (
            {t.name: (t.description, t.parameters_json_schema) for t in info.function_tools} for info in SEEN[-2:]
        )
        assert wrapped.pop("saga_fetch")
        assert wrapped == original


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
                await agent(saga_tools(session, TOOLS), *turns).run("a trip")
                raise RuntimeError("out of tokens")
        assert (await engine.show("trip")).status == "COMPENSATED"
    assert LOG == ["book flight", "book hotel", "cancel hotel", "cancel flight"]


async def test_a_call_that_was_not_done_is_told_to_the_model() -> None:
    """A failed result for what was not done, a retry for params that do not fit or where the tool wants one."""
    FULL.update({"Hilton", "Ritz"})
    turns = [
        turn(("book", {"what": "Hilton"})),
        turn(("book", {"what": "Ritz"})),  # a failed call costs the model none of its retries
        turn(("book", {"what": "anything"})),
        turn(("book", {"what": "Savoy"})),
        turn(("book", {"what": ["Plaza"]})),
        turn(("book", {"what": "Plaza"})),
        turn(),
    ]
    async with Coordinator.open("memory://", ours()) as engine:
        async with engine.session("trip") as session:
            result = await agent(saga_tools(session, TOOLS), *turns).run("a trip")
        assert [(part.outcome, part.content) for part in answers(result)] == [
            ("failed", "book: Hilton is full"),
            ("failed", "book: Ritz is full"),
            ("retried", "book: say what"),
            ("success", {"what": "Savoy"}),
            ("retried", '$.params.what: ["Plaza"] is not of type "string"'),
            ("success", {"what": "Plaza"}),
        ]
        assert await steps(engine) == [("book", "FAILED")] * 3 + [("book", "SUCCEEDED")] * 2


async def test_calls_of_one_turn_are_numbered_in_the_models_order() -> None:
    """They run side by side, and another life of the agent finds each of them at its place."""
    many = [("book", {"what": f"b{number}"}) for number in range(20)]
    async with Coordinator.open("memory://pa-turn", ours()) as engine:
        manager = engine.session("trip")
        session = await manager.__aenter__()
        await agent(saga_tools(session, TOOLS), turn(*many), turn()).run("a trip")
        session.link.leave()
        await manager.gen.aclose()  # type: ignore[attr-defined]
    assert sorted(LOG) == sorted(f"book b{number}" for number in range(20))
    LOG.clear()
    async with Coordinator.open("memory://pa-turn", ours()) as engine:
        async with engine.session("trip") as session:
            result = await agent(saga_tools(session, TOOLS), turn(*many), turn()).run("a trip")
        assert [part.content for part in answers(result)] == [args for _, args in many]
        calls = [record["params"] for record in await engine.history("trip") if record["k"] == "CallAdded"]
        assert calls == [args for _, args in many]
    assert LOG == []


async def test_what_the_model_can_do_nothing_about_ends_the_run() -> None:
    """A divergence is no answer for a model."""
    async with Coordinator.open("memory://pa-other", ours()) as engine:
        manager = engine.session("trip")
        session = await manager.__aenter__()
        await agent(saga_tools(session, TOOLS), turn(("book", {"what": "flight"})), turn()).run("a trip")
        session.link.leave()
        await manager.gen.aclose()  # type: ignore[attr-defined]
    async with Coordinator.open("memory://pa-other", ours()) as engine:
        with pytest.raises(SessionDiverged):
            async with engine.session("trip") as session:
                await agent(saga_tools(session, TOOLS), turn(("book", {"what": "ship"}))).run("a trip")
        assert await steps(engine) == [("book", "SUCCEEDED")]
    assert LOG == ["book flight"]


async def test_a_question_for_a_person_ends_the_run() -> None:
    """The model is not asked what only a person knows; answered, the agent runs again."""

    async def slow(what: str) -> str:
        """Never answers."""
        await asyncio.Event().wait()
        return what

    listed = register([slow, cancel], undo={"slow": cancel}, options={"slow": {**ONCE, "timeout_s": 0.01}})
    async with Coordinator.open("memory://", listed) as engine:
        with pytest.raises(NeedsPerson):
            async with engine.session("trip") as session:
                await agent(saga_tools(session, [slow]), turn(("slow", {"what": "x"})), turn()).run("?")
        await engine.resolve("trip", 1, "happened", output="x!")
        async with engine.session("trip") as session:
            result = await agent(saga_tools(session, [slow]), turn(("slow", {"what": "x"})), turn()).run("?")
        assert [part.content for part in answers(result)] == ["x!"]


async def test_a_tool_of_which_nothing_is_said_is_called_and_left() -> None:
    """Its call counts as a write that nothing takes back: an operator is asked when the agent fails."""
    async with Coordinator.open("memory://", ours()) as engine:
        with pytest.raises(LookupError):
            async with engine.session("a") as session:
                await agent(saga_tools(session, TOOLS), turn(("send", {"text": "x"})), turn()).run("?")
                raise LookupError
        assert (await engine.show("a")).body["questions"][0]["kind"] == "session-failed"
        assert (await engine.resolve("a", 1, "undo")).report["left_in_place"] == [1]


async def test_a_write_that_says_so_without_an_undo_must_be_meant() -> None:
    """A model cannot mend it, so the run ends; named in ``irreversible`` the tool may be called."""
    writes = register(TOOLS, undo={"book": "cancel"}, options={"send": {"effect": "write"}})
    async with Coordinator.open("memory://", writes) as engine:
        with pytest.raises(PlanInvalid):
            async with engine.session("a") as session:
                await agent(saga_tools(session, TOOLS), turn(("send", {"text": "x"}))).run("?")
        async with engine.session("b") as session:
            await agent(saga_tools(session, TOOLS, irreversible=["send"]), turn(("send", {"text": "x"})), turn()).run(
                "?"
            )
    assert LOG == ["send x"]


async def test_what_cannot_be_registered_is_refused() -> None:
    """A misspelt undo, a tool that needs the agent's context, and a tool that the coordinator does not have."""

    def inner(ctx: RunContext[None], what: str) -> str:
        """Needs the run."""
        return what

    with pytest.raises(SettingInvalid, match="boook"):
        register(TOOLS, undo={"boook": "cancel"})
    with pytest.raises(ToolInvalid, match="RunContext"):
        register([inner])
    async with Coordinator.open("memory://", register([look], reads=["look"])) as engine, engine.session() as session:
        assert [offered.name for offered in saga_tools(session, ["look"])] == ["look", "saga_fetch"]
        with pytest.raises(ToolMissing):
            saga_tools(session, [book])
