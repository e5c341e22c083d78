"""The golden sagas: how each is left in the store by the version that writes it, and how every later one continues it.

A story that was published is never changed: its journal stands in the folder of its version. A new version adds stories.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, NamedTuple

from saga_engine import Coordinator
from saga_engine.errors import SagaError
from tests.golden import world
from tests.scenarios.player import Process

Do = Callable[[Coordinator, str], Awaitable[Any]]
POLICY = {
    "rules": [
        {
            "name": "large",
            "verdict": "ask",
            "tools": ["pay"],
            "when": [{"param": "amount", "op": ">", "value": 100}],
            "expires_s": 315_360_000,  # what is written is answered years later
        }
    ]
}
OPTIONS: dict[str, Any] = {"tools": world.TOOLS, "on_escalation": (), "policy": POLICY, "keep_finished_s": 0}
SESSION: dict[str, Any] = {"goal": "an agent's trip", "on_failure": "keep"}


class Story(NamedTuple):
    """``leave`` runs until the saga stands in the store; ``dies`` kills its process at a record, as ``Player`` does."""

    name: str
    leave: Do
    then: Do
    ends: str
    dies: tuple[str, str, str, str] | None = None


def step(key: str, tool: str, params: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A step that depends on the one before it."""
    return {"step_id": key, "tool": tool, "params": params, **more}


FLIGHT, HOTEL = step("flight", "book", {"what": "flight"}), step("hotel", "book", {"what": "hotel"})
ATTIC = step("attic", "book", {"what": "attic"})
LABEL = step("label", "stick", {"item": "tea", "label": "new"})
PAY = step("pay", "pay", {"card": "4111", "amount": 40}, timeout_s=5)
DEAR = step("pay", "pay", {"card": "4111", "amount": 400})
WAIT = {
    "step_id": "paid",
    "wait": {"event": "paid", "key": "k", "on_late": {"tool": "refund", "params": {"receipt": "late"}}},
    "rollback": {"tool": "refund", "params": {"receipt": "$output.step_paid.receipt"}},
}
BOTH = {"step_id": "both", "wait": {"all": [{"event": "shipped", "key": "k"}, {"event": "packed", "key": "k"}]}}
ASK = {"step_id": "which", "ask": {"question": "Which room?", "options": ["cellar", "loft"]}}
NOTICE = [step("notice", "look", {"what": "$end.status"})]
EACH = {
    "step_id": "rooms",
    "tool": "book",
    "params": {"what": "$item.room"},
    "each": {"of": "$output.step_found.rooms", "parallel": 2, "on_error": "collect"},
}
FOUND = step("found", "look", {"what": "rooms"}, kind="read")
PARTS = step(
    "flight",
    "book",
    {"what": "flight"},
    rollback={
        "tool": "unbook_part",
        "params": {"part": "$item.part"},
        "each": "$output.step_flight.parts",
        "then": [{"tool": "unbook", "params": {"ref": "$output.step_flight.ref"}}],
    },
)


def run(*steps: dict[str, Any], **more: Any) -> Do:
    """Submit a plan and wait until it ends, needs somebody, or its process dies."""

    async def leave(coordinator: Coordinator, saga_id: str) -> None:
        with suppress(SagaError):
            await coordinator.run({"goal": saga_id, "steps": list(steps), **more}, saga_id=saga_id, tags=["golden"])

    return leave


def waits(*steps: dict[str, Any], until: str, **more: Any) -> Do:
    """Submit a plan and leave when its journal has a record of a kind."""

    async def leave(coordinator: Coordinator, saga_id: str) -> None:
        await coordinator.submit({"goal": saga_id, "steps": list(steps), **more}, saga_id=saga_id, tags=["golden"])
        async for record in coordinator.follow(saga_id):
            if record["k"] == until:
                return

    return leave


async def half(coordinator: Coordinator, saga_id: str) -> None:
    await waits(FLIGHT, BOTH, until="StepWaiting")(coordinator, saga_id)
    await coordinator.send_event("shipped", "k", {"at": "noon"})
    async for record in coordinator.follow(saga_id):
        if record["k"] == "EventArrived":
            return


async def child(coordinator: Coordinator, saga_id: str) -> None:
    await waits(CHILD, HOTEL, until="StepWaiting")(coordinator, saga_id)
    await coordinator.wait(f"{saga_id}.trip")


async def detached(coordinator: Coordinator, saga_id: str) -> None:
    await coordinator.submit({"steps": [FLIGHT]}, saga_id=saga_id, detach=True)


async def agent(coordinator: Coordinator, saga_id: str) -> None:
    with suppress(RuntimeError):
        async with coordinator.session(saga_id, **SESSION) as session:
            await session.call("look", {"what": "a flight"})
            point = session.savepoint()
            await session.call("book", {"what": "boat"})
            await session.rollback(point)
            await session.call("book", {"what": "flight"})
            raise RuntimeError("the agent's process fails")


async def agent_again(coordinator: Coordinator, saga_id: str) -> None:
    async with coordinator.session(saga_id, **SESSION) as session:
        await session.call("look", {"what": "a flight"})
        point = session.savepoint()
        await session.call("book", {"what": "boat"})
        await session.rollback(point)
        await session.call("book", {"what": "flight"})
        await session.call("book", {"what": "hotel"})


async def scheduled(coordinator: Coordinator, saga_id: str) -> None:
    await coordinator.templates.put(saga_id, {"steps": [FLIGHT]}, input_schema={"type": "object"})
    await coordinator.schedules.put(saga_id, template=saga_id, cron="0 9 * * *", time_zone="Europe/Berlin")
    await coordinator.run(template=saga_id, saga_id=saga_id)


async def triggered(coordinator: Coordinator, saga_id: str) -> None:
    assert [each.name for each in await coordinator.schedules.list()] == [saga_id]
    await coordinator.run(template=f"{saga_id}@1", saga_id=f"{saga_id}-again")
    assert (await coordinator.show(f"{saga_id}-again")).completed


async def undone(coordinator: Coordinator, saga_id: str) -> None:
    await run(FLIGHT, HOTEL)(coordinator, saga_id)
    await coordinator.undo(saga_id)


async def nothing(coordinator: Coordinator, saga_id: str) -> None:
    """It has ended: it is only read."""


async def resume(coordinator: Coordinator, saga_id: str) -> None:
    await coordinator.resume(saga_id)


async def worker(coordinator: Coordinator, saga_id: str) -> None:
    task = asyncio.create_task(coordinator.work())
    await coordinator.wait(saga_id)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def fork(coordinator: Coordinator, saga_id: str) -> None:
    made = await coordinator.fork(saga_id, plan={"steps": [FLIGHT, HOTEL]}, new_id=f"{saga_id}-fork")
    assert made.completed
    reused = [each["k"] for each in await coordinator.history(f"{saga_id}-fork")].count("EffectReused")
    assert reused == 1, "the flight of the old saga is kept"


async def undo(coordinator: Coordinator, saga_id: str) -> None:
    assert (await coordinator.undo(saga_id)).status == "COMPENSATED"


def resolve(key: str, decision: str, **more: Any) -> Do:
    async def then(coordinator: Coordinator, saga_id: str) -> None:
        await coordinator.resolve(saga_id, key, decision, by="kim", **more)
        await coordinator.wait(saga_id)

    return then


async def event(coordinator: Coordinator, saga_id: str) -> None:
    await coordinator.send_event("paid", "k", {"receipt": "r-1"})
    await coordinator.resume(saga_id)


async def other_half(coordinator: Coordinator, saga_id: str) -> None:
    await coordinator.send_event("packed", "k", {"at": "night"})
    await coordinator.resume(saga_id)


async def child_event(coordinator: Coordinator, saga_id: str) -> None:
    await coordinator.resolve(f"{saga_id}.trip", "which", "loft")
    await coordinator.resume(saga_id)


async def cancel(coordinator: Coordinator, saga_id: str) -> None:
    await coordinator.cancel(saga_id, by="kim")


def after(kind: str, key: str, direction: str = "forward") -> tuple[str, str, str, str]:
    """The process dies when this record is durable."""
    return ("after", kind, key, direction)


CHILD = {"step_id": "trip", "saga": {"plan": {"steps": [FLIGHT, ASK]}, "input": {}}}
STORIES = [
    Story(
        "completed", run(FOUND, FLIGHT, step("last", "look", {"what": "end"}), **{"finally": NOTICE}), undo, "COMPLETED"
    ),
    Story("compensated", run(FLIGHT, ATTIC), nothing, "COMPENSATED"),
    Story("paused", run(FLIGHT, ATTIC, on_failure="pause"), fork, "COMPENSATED"),
    Story("killed-in-a-call", run(FLIGHT, HOTEL), resume, "COMPLETED", after("StepSucceeded", "flight")),
    Story("killed-before-the-call", run(FLIGHT, HOTEL), resume, "COMPLETED", after("SagaStarted", "")),
    Story(
        "killed-in-an-undo", run(FLIGHT, ATTIC), resume, "COMPENSATED", after("StepIntended", "flight", "compensate")
    ),
    Story(
        "killed-in-a-half-undo",
        run(PARTS, ATTIC),
        resume,
        "COMPENSATED",
        after("StepSucceeded", "flight", "compensate"),
    ),
    Story("killed-in-a-list", run(FOUND, EACH), resume, "COMPLETED", after("EachExpanded", "rooms")),
    Story(
        "killed-in-a-bare-call",
        run(FLIGHT, PAY),
        resolve("pay", "happened", output={"receipt": "r"}),
        "COMPLETED",
        after("StepIntended", "pay"),
    ),
    Story("accepted", run(FLIGHT, PAY), resolve("pay", "accept"), "WAIVED", after("StepIntended", "pay")),
    Story("approval", run(FLIGHT, DEAR), resolve("pay", "approve"), "COMPLETED"),
    Story("denied", run(FLIGHT, DEAR), resolve("pay", "deny"), "COMPENSATED"),
    Story("asked", run(FLIGHT, ASK, HOTEL), resolve("which", "loft"), "COMPLETED"),
    Story("waiting", waits(FLIGHT, WAIT, until="StepWaiting"), event, "COMPLETED"),
    Story("waiting-and-cancelled", waits(FLIGHT, WAIT, until="StepWaiting"), cancel, "COMPENSATED"),
    Story("waiting-for-two", half, other_half, "COMPLETED"),
    Story("sleeping", waits(FLIGHT, {"step_id": "nap", "sleep": 60}, until="StepWaiting"), resume, "COMPLETED"),
    Story("child", child, child_event, "COMPLETED"),
    Story("queued", detached, worker, "COMPLETED"),
    Story(
        "image",
        run(step("price", "set_price", {"item": "tea", "price": 12}), ATTIC),
        resume,
        "COMPENSATED",
        after("StepFailed", "attic"),
    ),
    Story("verified", run(step("price", "set_price", {"item": "oil", "price": 8}), ATTIC), nothing, "COMPENSATED"),
    Story(
        "killed-before-the-look",
        run(step("price", "set_price", {"item": "rice", "price": 4}), ATTIC),
        resume,
        "COMPENSATED",
        after("StepSucceeded", "price", "compensate"),
    ),
    Story("undo-unverified", run(LABEL, ATTIC), resolve("label", "undone"), "COMPENSATED"),
    Story("agent", agent, agent_again, "COMPLETED"),
    Story("template", scheduled, triggered, "COMPLETED"),
    Story("undone-later", undone, nothing, "COMPLETED"),
    Story("large", run(step("text", "report", {"lines": 4000}), FLIGHT), undo, "COMPLETED"),
]


async def left(url: str, story: Story, **more: Any) -> None:
    """Leave a story in the store, by a process of its own."""
    process = await Process.start(url, {**OPTIONS, **more})
    process.store.dies = story.dies
    try:
        await story.leave(process.coordinator, story.name)
    finally:
        assert process.store.faults.dead == (story.dies is not None), f"{story.name}: its process did not die there"
        await process.end()
