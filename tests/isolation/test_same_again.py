"""Drift that no value shows: another saga wrote the value, and it is the same again (A → B → A)."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from saga_engine import Coordinator, RetryPolicy, SagaResult, ToolError, tool
from saga_engine.errors import NeedsPerson, StoreUnavailable
from saga_engine.guards.chain import GuardedTools
from saga_engine.stores.guards import RedisGuards
from tests.support.servers import EmbeddedFolder

ONCE = RetryPolicy(max_attempts=2, base_s=0.001, max_s=0.001)
LOCKED: dict[str, Any] = {"resource": "price:{item}", "retry": ONCE}
X, Y = "x", "y"


class Shop:
    """Prices, and what happens at the gate of a plan."""

    def __init__(self) -> None:
        self.prices: dict[str, int] = {"tea": 10}
        self.reads = 0
        self.gate: Callable[[], Awaitable[Any]] | None = None
        self.refuses = self.loses = self.lies = 0

    def tools(self) -> list[Any]:
        shop = self

        @tool(effect="read", retry=ONCE)
        async def read_price(item: str) -> dict:
            shop.reads += 1
            return {"price": shop.prices[item]}

        @tool(before=read_price, undo="set_price", **LOCKED)
        async def set_price(item: str, price: int) -> dict:
            if shop.refuses:
                shop.refuses -= 1
                raise ToolError("not now", retryable=True)
            shop.prices[item] = price
            if shop.loses:
                shop.loses -= 1
                raise ConnectionError("the line is dead")
            return {}

        @tool(undo="lower", **LOCKED)
        async def raise_price(item: str, by: int) -> dict:
            shop.prices[item] += by
            return {}

        @tool(**LOCKED)
        async def lower(item: str, by: int) -> dict:
            shop.prices[item] -= by
            return {}

        @tool(undo="lower", **LOCKED)
        async def refused(item: str, price: int) -> dict:
            raise ToolError("closed", retryable=False)

        @tool
        async def gate() -> dict:
            if shop.gate is not None:
                await shop.gate()
            raise ToolError("no", retryable=False)

        return [read_price, set_price, raise_price, lower, refused, gate]


def step(step_id: Any, tool_name: str = "set_price", price: int = 12, **more: Any) -> dict[str, Any]:
    return {"step_id": step_id, "tool": tool_name, "params": {"item": "tea", "price": price}, **more}


GATE = {"step_id": "gate", "tool": "gate", "kind": "pivot"}


@pytest.fixture
def shop() -> Shop:
    return Shop()


@pytest.fixture
async def coordinator(shop: Shop) -> AsyncIterator[Coordinator]:
    async with Coordinator.open("memory://", shop.tools(), durability="relaxed", on_escalation=()) as coordinator:
        yield coordinator


async def rival(c: Coordinator, *prices: int, saga_id: str = Y) -> None:
    """A saga that writes these, one after the other."""
    steps = [step(number, price=price, depends_on=[number - 1][: number - 1]) for number, price in enumerate(prices, 1)]
    assert (await c.run({"steps": steps}, saga_id=saga_id)).status == "COMPLETED"


async def undone(c: Coordinator, plan: dict[str, Any], meanwhile: Callable[[], Awaitable[Any]]) -> SagaResult:
    """A saga that has completed, and is undone."""
    assert (await c.run(plan, saga_id=X)).status == "COMPLETED"
    await meanwhile()
    found = await c.undo(X)
    assert isinstance(found, SagaResult)
    return found


async def failed(c: Coordinator, shop: Shop, plan: dict[str, Any], meanwhile: Callable[[], Awaitable[Any]]) -> Any:
    """A saga whose last step fails."""
    shop.gate = meanwhile
    return await c.run({"steps": [*plan["steps"], GATE]}, saga_id=X)


async def _in_session(c: Coordinator, meanwhile: Callable[[], Awaitable[Any]], *, savepoint: bool) -> SagaResult:
    async with c.session(X) as session:
        place = session.savepoint()
        await session.call("set_price", item="tea", price=12)
        await meanwhile()
        with contextlib.suppress(NeedsPerson):
            await session.rollback(place if savepoint else None)
        if savepoint:
            return await c.show(X)
    return await c.show(X)


NAMED = {"rollback": {"tool": "set_price", "params": {"item": "tea", "price": "$before.price"}}}
#: Ways in which a saga comes to undo what it wrote: 12 instead of 10.
WAYS: dict[str, Callable[[Coordinator, Shop, Callable[[], Awaitable[Any]]], Awaitable[Any]]] = {
    "undo": lambda c, _, meanwhile: undone(c, {"steps": [step(1)]}, meanwhile),
    "failure": lambda c, shop, meanwhile: failed(c, shop, {"steps": [step(1)]}, meanwhile),
    "named": lambda c, shop, meanwhile: failed(c, shop, {"steps": [step(1, **NAMED)]}, meanwhile),
    "fallback": lambda c, shop, meanwhile: failed(
        c, shop, {"steps": [step(1, "refused", fallback={"tool": "set_price"})]}, meanwhile
    ),
    "each": lambda c, _, meanwhile: undone(
        c,
        {
            "steps": [
                {"step_id": 1, "each": {"of": ["tea"]}, "tool": "set_price", "params": {"item": "$item", "price": 12}}
            ]
        },
        meanwhile,
    ),
    "child": lambda c, _, meanwhile: undone(
        c, {"steps": [{"step_id": 1, "saga": {"plan": {"steps": [step(1)]}}}]}, meanwhile
    ),
    "session": lambda c, _, meanwhile: _in_session(c, meanwhile, savepoint=False),
    "savepoint": lambda c, _, meanwhile: _in_session(c, meanwhile, savepoint=True),
}


async def questions(c: Coordinator) -> list[tuple[str, dict[str, Any]]]:
    """All that is asked, with the saga that asks."""
    heads = await c.list()
    return [(head.saga_id, each) for head in heads for each in (await c.show(head.saga_id)).body["questions"]]


@pytest.mark.parametrize("way", WAYS)
async def test_what_another_saga_put_back_is_drift(coordinator: Coordinator, shop: Shop, way: str) -> None:
    """However the undo begins, it is not made: the question names the saga that wrote, and what its undo needs."""
    going = asyncio.create_task(WAYS[way](coordinator, shop, lambda: rival(coordinator, 20, 12)))
    async with asyncio.timeout(60):
        while not (asked := await questions(coordinator)):  # noqa: ASYNC110 -- a parent waits for what its child asks
            await asyncio.sleep(0.005)
    ((saga_id, question),) = asked
    assert (question["kind"], shop.prices) == ("drift", {"tea": 12})
    assert question["found"]["value"] == {"price": 12}
    assert "saga y (step 2) wrote the same resource" in question["error"]["message"]
    assert "`saga undo y`" in question["error"]["suggestion"]
    assert (await coordinator.resolve(saga_id, question["step_id"], "undo")).status in {"COMPENSATED", "RUNNING"}
    assert shop.prices == {"tea": 10}
    going.cancel()
    await asyncio.gather(going, return_exceptions=True)


@pytest.mark.parametrize("way", WAYS)
async def test_without_a_rival_nobody_is_asked(coordinator: Coordinator, shop: Shop, way: str) -> None:
    """What a saga and its family write, or wrote before it, is no drift; nor is what others only tried."""
    await rival(coordinator, 10)

    async def tries() -> None:
        await coordinator.run({"steps": [step(1, "refused")]})

    await WAYS[way](coordinator, shop, tries)
    assert (await questions(coordinator), shop.prices) == ([], {"tea": 10})


async def test_the_rival_is_undone_first(coordinator: Coordinator, shop: Shop) -> None:
    """As the question advises: then the undo needs nobody, and neither does one that begins after that."""
    result = await undone(coordinator, {"steps": [step(1)]}, lambda: rival(coordinator, 20, 12))
    assert result.status == "ESCALATED"
    assert (await coordinator.undo(Y)).status == "COMPENSATED"
    assert (await coordinator.resolve("x-undo", 1, "retry")).status == "COMPENSATED"
    assert shop.prices == {"tea": 10}


async def test_a_rival_that_failed_is_no_drift(coordinator: Coordinator, shop: Shop) -> None:
    """What it wrote it has taken back itself, and the value is as the step left it."""

    async def fails() -> None:
        assert (await coordinator.run({"steps": [step(1, price=20), GATE]}, saga_id=Y)).status == "COMPENSATED"

    result = await undone(coordinator, {"steps": [step(1)]}, fails)
    assert (result.status, shop.prices) == ("COMPENSATED", {"tea": 10})


async def test_a_rival_that_is_under_way_is_drift(coordinator: Coordinator, shop: Shop) -> None:
    """Nobody knows how it ends: its cancellation comes first."""
    async with coordinator.session(Y) as session:

        async def writes() -> None:
            await session.call("set_price", item="tea", price=20)
            await session.call("set_price", item="tea", price=12)

        result = await undone(coordinator, {"steps": [step(1)]}, writes)
        (question,) = result.body["questions"]
        assert "and is RUNNING" in question["error"]["message"]
        assert "`saga cancel y`" in question["error"]["suggestion"]


async def test_a_rival_that_is_being_undone_is_waited_for(coordinator: Coordinator, shop: Shop) -> None:
    """Nobody is told to undo it again."""

    async def writes() -> None:
        await rival(coordinator, 20)
        shop.refuses = 99
        assert (await coordinator.undo(Y)).status == "ESCALATED"
        shop.refuses = 0

    result = await undone(coordinator, {"steps": [step(1)]}, writes)
    (question,) = result.body["questions"]
    assert "and is undoing that" in question["error"]["message"]
    assert "wait for saga y-undo" in question["error"]["suggestion"]


async def test_the_saga_that_owns_the_write_is_named(coordinator: Coordinator, shop: Shop) -> None:
    """What a fork has taken over is undone by its undo; its own undo knows where the write stands in the list."""
    shop.gate = lambda: rival(coordinator, 20, 12, saga_id=Y)
    paused = await coordinator.run({"steps": [step(1), GATE], "on_failure": "pause"}, saga_id=X)
    assert paused.status == "ESCALATED"
    shop.gate = None
    forked = await coordinator.fork(X, plan={"steps": [step(1)]})
    assert forked.status == "COMPLETED"
    result = await coordinator.undo(forked.saga_id)
    assert isinstance(result, SagaResult)
    (question,) = result.body["questions"]
    assert "saga y (step 2)" in question["error"]["message"]


async def test_a_key_that_is_made_of_a_secret_is_the_same_at_the_undo(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The undo asks for the resource that the call has locked; its key is nowhere in the question."""
    monkeypatch.setenv("ITEM", "hush-tea")
    shop.prices["hush-tea"] = 10
    secret = step(1, params={"item": "$secret.ITEM", "price": 12})
    allowed = {"*": ["*"]}
    async with Coordinator.open("memory://", shop.tools(), on_escalation=(), secrets=allowed, settings=None) as c:
        assert (await c.run({"steps": [secret]}, saga_id=X)).status == "COMPLETED"
        await c.run({"steps": [step(1, params={"item": "hush-tea", "price": 12})]}, saga_id=Y)
        result = await c.undo(X)
        assert isinstance(result, SagaResult)
        (question,) = result.body["questions"]
        assert "saga y (step 1)" in question["error"]["message"]
        assert "hush-tea" not in str(result.to_dict())


async def test_a_resource_that_its_function_cannot_tell_lets_no_undo_pass() -> None:
    """Nobody knows who wrote it: an operator is asked."""
    values, broken = {"n": 1}, list[int]()

    def key(params: Any) -> str:
        if broken:
            raise ValueError("no key today")
        return "n"

    @tool(effect="read")
    async def look() -> dict:
        return dict(values)

    @tool(before=look, undo="put_back", resource=key)
    async def put(n: int) -> None:
        values["n"] = n

    @tool
    async def put_back(n: int) -> None:
        values["n"] = n

    async with Coordinator.open("memory://", [look, put, put_back], durability="relaxed", on_escalation=()) as c:
        assert (await c.run({"steps": [{"step_id": 1, "tool": "put", "params": {"n": 2}}]}, saga_id=X)).status
        broken.append(1)
        result = await c.undo(X)
        assert isinstance(result, SagaResult)
        assert (result.body["questions"][0]["error"]["error_code"], values) == ("resource_invalid", {"n": 2})


async def test_nothing_is_asked_of_the_store_without_need(
    coordinator: Coordinator, shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One question for the undo of a tool with before and resource; none forward, and none for another tool."""
    asked: list[str] = []
    known = RedisGuards.writes

    async def counted(self: RedisGuards, resource: str) -> Any:
        asked.append(resource)
        return await known(self, resource)

    monkeypatch.setattr(RedisGuards, "writes", counted)
    raised = {"step_id": 1, "tool": "raise_price", "params": {"item": "tea", "by": 3}}
    assert (await coordinator.run({"steps": [raised, GATE]})).status == "COMPENSATED"
    assert (await coordinator.run({"steps": [step(1)]}, saga_id=X)).status == "COMPLETED"
    assert asked == []
    assert (await coordinator.undo(X)).status == "COMPENSATED"
    assert asked == ["price:tea"]


async def test_an_answer_holds_for_the_writes_that_it_saw(coordinator: Coordinator, shop: Shop) -> None:
    """The undo is retried without another question; a later write is asked about, though the value is the same."""
    result = await undone(coordinator, {"steps": [step(1)]}, lambda: rival(coordinator, 20, 12))
    shop.refuses = 1  # the undo needs another attempt
    assert (await coordinator.resolve("x-undo", 1, "undo")).status == "COMPENSATED"
    assert (result.status, shop.refuses, shop.prices) == ("ESCALATED", 0, {"tea": 10})


async def test_a_write_after_the_answer_is_asked_about_again(coordinator: Coordinator, shop: Shop) -> None:
    """An operator has permitted to overwrite what the question told of, and no more."""
    await undone(coordinator, {"steps": [step(1)]}, lambda: rival(coordinator, 20, 12))
    await rival(coordinator, 30, 12, saga_id="z")
    result = await coordinator.resolve("x-undo", 1, "undo")
    (question,) = result.body["questions"]
    assert (result.status, shop.prices) == ("ESCALATED", {"tea": 12})
    assert "saga z (step 2)" in question["error"]["message"]
    assert (await coordinator.resolve("x-undo", 1, "undo")).status == "COMPENSATED"


async def test_a_drift_that_shows_names_the_writer_as_well(coordinator: Coordinator, shop: Shop) -> None:
    """An operator who undid it by hand is not asked about the value of that question once more."""
    result = await undone(coordinator, {"steps": [step(1)]}, lambda: rival(coordinator, 20))
    (question,) = result.body["questions"]
    assert "neither as the step found it" in question["error"]["message"]
    assert "saga y (step 1) wrote" in question["error"]["message"]
    result = await coordinator.resolve("x-undo", 1, "undone")
    assert (result.status, result.body["questions"]) == ("COMPENSATED", [])


async def test_a_lost_answer_keeps_its_place(coordinator: Coordinator, shop: Shop) -> None:
    """A call in doubt that is repeated keeps its first image, so what was written between the attempts is drift."""
    shop.loses = 1
    saga = asyncio.create_task(coordinator.run({"steps": [step(1)]}, saga_id=X))
    async with asyncio.timeout(60):
        while not await questions(coordinator):  # noqa: ASYNC110 -- the saga asks whether it happened
            await asyncio.sleep(0.005)
    await saga
    await rival(coordinator, 20, 12)
    assert (await coordinator.resolve(X, 1, "happened", output={})).status == "COMPLETED"
    result = await coordinator.undo(X)
    assert isinstance(result, SagaResult)
    assert result.status == "ESCALATED"


async def test_a_write_that_has_no_undo_stays(coordinator: Coordinator, shop: Shop) -> None:
    """A tool without a before-image counts as well, and what cannot be undone is called that."""

    async def writes() -> None:
        steps = [
            {"step_id": 1, "tool": "raise_price", "params": {"item": "tea", "by": 3}},
            {"step_id": 2, "tool": "raise_price", "params": {"item": "tea", "by": 5}},
            {"step_id": 3, "tool": "lower", "params": {"item": "tea", "by": 8}, "kind": "pivot", "depends_on": [1, 2]},
        ]
        assert (await coordinator.run({"steps": steps}, saga_id=Y)).status == "COMPLETED"

    result = await undone(coordinator, {"steps": [step(1)]}, writes)
    (question,) = result.body["questions"]
    assert "saga y (step 3) wrote" in question["error"]["message"]
    assert "and that stays" in question["error"]["message"]


async def test_a_store_that_does_not_tell_lets_no_undo_pass(
    coordinator: Coordinator, shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is tried again: an undo is not made while nobody knows who has written."""
    known = GuardedTools.rivals
    refused = []

    async def once(self: GuardedTools, *given: Any) -> Any:
        if not refused:
            refused.append(shop.prices["tea"])
            raise StoreUnavailable("it is away")
        return await known(self, *given)

    monkeypatch.setattr(GuardedTools, "rivals", once)
    result = await undone(coordinator, {"steps": [step(1)]}, lambda: asyncio.sleep(0))
    assert (refused, result.status, shop.prices) == ([12], "COMPENSATED", {"tea": 10})


async def test_what_nobody_asks_for_is_not_kept(shop: Shop) -> None:
    """Without a tool that reads before it writes there is no list, and no undo looks for one."""

    @tool(undo="down", resource="n")
    async def up() -> None: ...

    @tool(resource="n")
    async def down() -> None: ...

    @tool
    async def fail() -> None:
        raise ToolError("no", retryable=False)

    async with Coordinator.open("memory://", [up, down, fail], durability="relaxed") as c:
        steps = [{"step_id": 1, "tool": "up"}, {"step_id": 2, "tool": "fail", "kind": "pivot", "depends_on": [1]}]
        assert (await c.run({"steps": steps})).status == "COMPENSATED"
        assert await c.store.guard_store().writes("n") == []


@pytest.mark.parametrize("privacy", [None, {"k1": bytes(range(32))}], ids=["plain", "sealed"])
def test_stores_of_disk_know_it_in_another_process(tmp_path: Path, privacy: dict[str, bytes] | None) -> None:
    """The writes are in the store, so whoever undoes later knows of them; in a sealed store as well."""
    shop = Shop()

    async def run(url: str) -> None:
        def opened() -> Any:
            return Coordinator.open(url, shop.tools(), durability="relaxed", on_escalation=(), privacy=privacy)

        async with opened() as c:
            assert (await c.run({"steps": [step(1)]}, saga_id=X)).status == "COMPLETED"
        async with opened() as c:
            await rival(c, 20, 12)
        async with opened() as c:
            result = await c.undo(X)
            assert isinstance(result, SagaResult)
            assert result.status == "ESCALATED"
            assert "saga y (step 2)" in result.body["questions"][0]["error"]["message"]

    with EmbeddedFolder(tmp_path / "saga") as folder:
        asyncio.run(run(folder.url))
