"""What holds for every tool holds at the gateway's door: breakers, limits, memory and the operator's stop."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from saga_engine import BreakerPolicy, Coordinator, RetryPolicy, tool
from saga_engine.api.stops import go, stop, stops
from saga_engine.guards import stops as held_calls
from tests.gateway.agents import about, agent, engine


class Desk:
    """A world of Python tools; ``check_in`` waits for ``go_on``; ``most``: so many calls of it were under way at once."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.inside, self.most = 0, 0
        self.asked = asyncio.Event()
        self.go_on = asyncio.Event()

    def tools(self) -> list[Any]:
        @tool(undo="unbook")
        async def book(guest: str) -> dict[str, str]:
            self.done.append(f"book {guest}")
            return {"guest": guest}

        @tool(tolerates_absence=True)
        async def unbook(guest: str) -> None:
            self.done.append(f"unbook {guest}")

        @tool(effect="read", retry=RetryPolicy(max_attempts=1), breaker=BreakerPolicy(failures=2, open_s=3600))
        async def ask(guest: str) -> dict[str, str]:
            self.done.append(f"ask {guest}")
            raise ConnectionError("no way there")

        @tool(undo="unbook", max_concurrency=1)
        async def check_in(guest: str) -> dict[str, str]:
            self.inside += 1
            self.most = max(self.most, self.inside)
            self.asked.set()
            await self.go_on.wait()
            self.inside -= 1
            return {"guest": guest}

        @tool(undo="unbook", dedupe_ttl_s=3600)
        async def order(guest: str) -> dict[str, str]:
            self.done.append(f"order {guest}")
            return {"guest": guest}

        return [book, unbook, ask, check_in, order]


async def queued(coordinator: Coordinator, saga_id: str, step: str) -> None:
    """Wait until the journal says that a call is held."""
    async for record in coordinator.follow(saga_id):
        if record["k"] == "StepQueued" and str(record["step"]) == step:
            return


async def test_an_operators_stop_holds_an_agents_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """A held call is not made until the go; a rollback goes on meanwhile; no tool of an agent lifts the stop."""
    monkeypatch.setattr(held_calls, "POLL_S", 0.01)
    desk = Desk()
    async with engine(tools=desk.tools()) as coordinator, agent(coordinator) as it:
        await it.done("book", guest="Ann")
        await stop(coordinator.store, by="kim")
        held = asyncio.create_task(it.call("book", guest="Bo"))
        await queued(coordinator, "desk", "2")
        assert not [name for name in await it.names() if {"stop", "go"} & {*name.split("_")}]
        assert desk.done == ["book Ann"]
        assert [each.scope for each in await stops(coordinator.store)] == ["all"]
        await go(coordinator.store)
        assert not (await held).is_error
        assert desk.done == ["book Ann", "book Bo"]
        await stop(coordinator.store, by="kim")
        assert len((await it.done("saga_rollback"))["undone"]) == 2
        assert desk.done[2:] == ["unbook Bo", "unbook Ann"]
        await go(coordinator.store)


async def test_a_breaker_that_one_agent_opens_refuses_another_ones_call() -> None:
    """An open breaker answers at once; the tool is not called, whichever agent asks."""
    desk = Desk()
    async with (
        engine(tools=desk.tools()) as coordinator,
        agent(coordinator) as it,
        agent(coordinator, "other") as other,
    ):
        for _ in range(2):
            await it.refused("ask", guest="Ann")
        assert "breaker_open" in await other.refused("ask", guest="Bo")
        assert desk.done == ["ask Ann", "ask Ann"]
        assert not (await other.call("book", guest="Bo")).is_error


async def test_a_limit_holds_for_the_calls_of_all_agents() -> None:
    """``max_concurrency`` counts the calls of every agent of the process; one that waits is not refused."""
    desk = Desk()
    async with (
        engine(tools=desk.tools()) as coordinator,
        agent(coordinator) as it,
        agent(coordinator, "other") as other,
    ):
        first = asyncio.create_task(it.call("check_in", guest="Ann"))
        await desk.asked.wait()
        await other.done("book", guest="Bo")
        second = asyncio.create_task(other.call("check_in", guest="Bo"))
        await queued(coordinator, "other", "2")
        desk.go_on.set()
        assert [(await each).is_error for each in (first, second)] == [False, False]
        assert desk.most == 1


async def test_agents_share_the_memory_of_a_result() -> None:
    """An identical call of another agent gets the known result; the effect is not that agent's: nothing of it is left."""
    desk = Desk()
    async with (
        engine(tools=desk.tools()) as coordinator,
        agent(coordinator) as it,
        agent(coordinator, "other") as other,
    ):
        assert await it.done("order", guest="Ann") == {"guest": "Ann"}
        await it.done("saga_done")
        told = await other.call("order", guest="Ann")
        assert (told.structured_content, about(told)["saga_id"]) == ({"guest": "Ann"}, "other")
        preview = await other.done("saga_preview")
        assert (preview["would_undo"], preview["would_remain"]) == ([], [])
        assert (await other.done("saga_status"))["standing"] == 0
        report = await other.done("saga_rollback")
        assert (report["undone"], report["left"], report["clean"]) == ([], [], True)
        assert desk.done == ["order Ann"]


async def test_what_the_saga_of_one_agent_holds_another_agent_waits_for() -> None:
    """It is told who holds it and may decide; when the first saga has been undone, its call is made."""
    desk = Desk()

    @tool(undo="unbook", resource="guest:{guest}", hold="saga")
    async def invite(guest: str) -> dict[str, str]:
        desk.done.append(f"invite {guest}")
        return {"guest": guest}

    async with (
        engine(tools=[*desk.tools(), invite], limits={"guard_wait_s": 0}) as coordinator,
        agent(coordinator) as it,
        agent(coordinator, "other") as other,
    ):
        await it.done("invite", guest="Ann")
        refused = await other.call("invite", guest="Ann")
        assert refused.is_error
        assert "saga desk holds the resource 'guest:Ann'" in str(refused.content)
        await it.done("saga_rollback")
        await other.done("invite", guest="Ann")
        assert desk.done == ["invite Ann", "unbook Ann", "invite Ann"]
