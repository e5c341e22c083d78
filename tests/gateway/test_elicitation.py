"""A client's user is asked about a call that needs approval: only if the operator allows it, and for that call alone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from mcp_types import CallToolRequest, CallToolRequestParams, ElicitRequestFormParams, ElicitResult
from pydantic import TypeAdapter

from saga_engine import Coordinator, tool
from tests.gateway.agents import Agent, about, agent, engine

ERAS = ["legacy", "2026-07-28"]
RULES = {"rules": [{"name": "ask", "tools": ["book"], "verdict": "ask"}]}


class User:
    """The user of a client; ``says``: what becomes of the next question."""

    def __init__(self, says: ElicitResult | Callable[[], Any]) -> None:
        self.says = says
        self.asked: list[str] = []

    async def __call__(self, _: Any, params: Any) -> ElicitResult:
        assert isinstance(params, ElicitRequestFormParams)
        self.asked.append(params.message)
        return self.says if isinstance(self.says, ElicitResult) else await self.says()


def answer(word: str) -> ElicitResult:
    return ElicitResult(action="accept", content={"answer": word})


class Desk:
    """A world of Python tools, and an engine whose policy asks about each booking."""

    def __init__(self) -> None:
        self.rooms: list[str] = []

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[Coordinator]:
        @tool(undo="cancel")
        async def book(guest: str) -> dict[str, str]:
            self.rooms.append(guest)
            return {"guest": guest}

        @tool(tolerates_absence=True)
        async def cancel(guest: str) -> None:
            self.rooms.remove(guest)

        async with engine(tools=[book, cancel], policy=RULES) as coordinator:
            yield coordinator


async def open_questions(coordinator: Coordinator) -> list[str]:
    return [each["kind"] for each in (await coordinator.show("desk")).body["questions"]]


@pytest.mark.parametrize("mode", ERAS)
async def test_the_user_approves_one_call(mode: Any) -> None:
    """The question is in the journal before the client hears of it; the answer counts for that one call."""
    desk = Desk()
    async with desk.opened() as coordinator:

        async def look() -> ElicitResult:
            assert await open_questions(coordinator) == ["approval"]
            assert desk.rooms == ["Ann"] * (len(user.asked) - 1)
            return answer("approve")

        user = User(look)
        async with agent(coordinator, mode=mode, user=user, ask_client_s=600) as it:
            assert about(await it.call("book", guest="Ann"))["call"] == "1"
            assert 'book {"guest": "Ann"}' in user.asked[0]
            user.says = ElicitResult(action="decline")
            assert "pending" in await it.refused("book", guest="Bo")
            assert await open_questions(coordinator) == ["approval"]
        told = [each for each in await coordinator.history("desk") if each.get("by") == "client"]
        assert len(told) == 1
    assert desk.rooms == ["Ann"]


@pytest.mark.parametrize("mode", ERAS)
@pytest.mark.parametrize(
    "says",
    [
        ElicitResult(action="decline"),
        ElicitResult(action="cancel"),
        ElicitResult(action="accept", content={}),
        ElicitResult(action="accept", content={"answer": "happened"}),
        ElicitResult(action="decline", content={"answer": "approve"}),
    ],
    ids=["decline", "cancel", "empty", "other", "both"],
)
async def test_whatever_else_the_client_says_leaves_the_question_open(mode: Any, says: ElicitResult) -> None:
    """An operator is asked as before, and the same call then gets the result."""
    desk, user = Desk(), User(says)
    async with desk.opened() as coordinator, agent(coordinator, mode=mode, user=user, ask_client_s=600) as it:
        assert "pending" in await it.refused("book", guest="Ann")
        assert (await open_questions(coordinator), desk.rooms, len(user.asked)) == (["approval"], [], 1)
        await coordinator.resolve("desk", 1, "approve")
        assert await it.done("book", guest="Ann") == {"guest": "Ann"}
        assert len(user.asked) == 1


@pytest.mark.parametrize("mode", ERAS)
async def test_the_user_denies_a_call(mode: Any) -> None:
    """It is not made, as after an operator's no."""
    desk, user = Desk(), User(answer("deny"))
    async with desk.opened() as coordinator, agent(coordinator, mode=mode, user=user, ask_client_s=600) as it:
        said = await it.refused("book", guest="Ann")
        assert "pending" not in said
        assert desk.rooms == []


async def test_a_user_who_takes_too_long() -> None:
    """The call is pending, and the question open."""
    desk, user = Desk(), User(asyncio.Event().wait)
    async with desk.opened() as coordinator, agent(coordinator, mode="legacy", user=user, ask_client_s=0.01) as it:
        assert "pending" in await it.refused("book", guest="Ann")
        assert await open_questions(coordinator) == ["approval"]


@pytest.mark.parametrize("mode", ERAS)
async def test_nobody_is_asked_without_leave(mode: Any) -> None:
    """The user of the client need not be an operator: unless the operator allows it, only operators are asked."""
    desk, user = Desk(), User(answer("approve"))
    async with desk.opened() as coordinator, agent(coordinator, mode=mode, user=user) as it:
        assert "pending" in await it.refused("book", guest="Ann")
        assert (user.asked, desk.rooms) == ([], [])


@pytest.mark.parametrize("mode", ERAS)
async def test_a_client_that_cannot_ask(mode: Any) -> None:
    """It gets what waits as before."""
    desk = Desk()
    async with desk.opened() as coordinator, agent(coordinator, mode=mode, ask_client_s=600) as it:
        assert "pending" in await it.refused("book", guest="Ann")


async def asked(it: Agent, name: str, /, arguments: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """A request of the newer era as it is, and the answer as it comes."""
    params = CallToolRequestParams(name=name, arguments=arguments, **fields)
    made: dict[str, Any] = await it.client.session.send_request(
        CallToolRequest(params=params), TypeAdapter(dict[str, Any])
    )
    return made


async def test_an_answer_counts_for_the_question_that_was_asked() -> None:
    """A forged state, a state of another question, or one that was used approves nothing."""
    desk, user = Desk(), User(answer("approve"))
    yes = {"approval": answer("approve")}
    async with (
        desk.opened() as coordinator,
        agent(coordinator, mode="2026-07-28", user=user, ask_client_s=600) as it,
    ):
        first = (await asked(it, "book", {"guest": "Ann"}))["requestState"]
        for state in ("", "approve", first + "x"):
            told = await asked(it, "book", {"guest": "Ann"}, request_state=state, input_responses=yes)
            assert (told["isError"], desk.rooms) == (True, [])
        await coordinator.resolve("desk", 1, "deny")
        await it.refused("book", guest="Ann")  # it hears of the no
        second = (await asked(it, "book", {"guest": "Bo"}))["requestState"]
        told = await asked(it, "book", {"guest": "Bo"}, request_state=first, input_responses=yes)
        assert (told["isError"], desk.rooms) == (True, [])
        told = await asked(it, "book", {"guest": "Bo"}, request_state=second, input_responses=yes)
        assert (told["isError"], desk.rooms) == (False, ["Bo"])
        third = await asked(it, "book", {"guest": "Bo"}, request_state=second, input_responses=yes)
        assert (third["isError"], desk.rooms) == (True, ["Bo"])
