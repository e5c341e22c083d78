"""Held resources between two requests: another call of the saga, a rival's write, a lease that is lost."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from saga_engine import Coordinator, RetryPolicy, ToolContext, ToolError, tool
from saga_engine.api.holds import held
from saga_engine.core.states import COMPENSATED, COMPLETED, ESCALATED
from saga_engine.guards.holds.holding import token_of
from saga_engine.ports import HoldClaim
from saga_engine.stores import open_store
from tests.guards.shop import Shop, holders, opened, plan, waiting
from tests.tools.calls import PATIENCE_S

pytestmark = pytest.mark.virtual_time

Hook = Callable[[str, tuple[Any, ...]], Awaitable[None] | None]


class Between:
    """A guard store that calls a hook before each request about what sagas hold, and another one after it."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self.before: Hook | None = None
        self.after: Hook | None = None

    def __getattr__(self, name: str) -> Any:
        real = getattr(self._store, name)
        if name not in ("hold", "unhold", "leave", "holds", "saga_status"):
            return real

        async def asked(*args: Any) -> Any:
            if self.before is not None and (work := self.before(name, args)) is not None:
                await work
            found = await real(*args)
            if self.after is not None and (work := self.after(name, args)) is not None:
                await work
            return found

        return asked


@pytest.fixture
async def store(monkeypatch: pytest.MonkeyPatch) -> Any:
    opened = open_store("memory://", durability="relaxed")
    await opened.open()
    guards = Between(opened.guard_store())
    monkeypatch.setattr(opened, "guard_store", lambda: guards)
    yield opened
    await opened.close()


# --- two calls of one saga -----------------------------------------------------------------------------------------


async def test_a_call_gives_back_nothing_that_another_call_of_its_saga_uses(store: Any) -> None:
    """It took one of two and waits for the second. Beside it another call passed because of the first: that is kept."""
    shop = Shop("a", "b")
    gate, ship = shop.shut("note"), shop.shut(("take", "a"))
    asks_for_b, used = asyncio.Event(), asyncio.Event()

    @tool(resource=["item:{one}", "item:{two}"], hold="saga", undo="note_again")
    async def swap(one: str, two: str) -> None:
        shop.log.append(("swap", one, two))

    async def before(name: str, args: tuple[Any, ...]) -> None:
        claim = args[1] if name == "hold" else None
        if claim is None or claim.saga != "one":
            return
        if args[0] == token_of("item:b"):
            asks_for_b.set()
            await used.wait()
        elif '"take"' in claim.note:
            await asks_for_b.wait()

    given = dict(durability="relaxed", on_escalation=(), settings=None)
    async with Coordinator.open(store, [*shop.tools(), swap], **given) as c:  # type: ignore[arg-type]
        store.guard_store().before = before
        swaps = {"step_id": 1, "tool": "swap", "params": {"one": "a", "two": "b"}}
        takes = {"step_id": 2, "tool": "take", "params": {"item": "a"}, "depends_on": []}
        one = asyncio.create_task(c.run({"steps": [swaps, takes]}, saga_id="one"))
        await shop.at(("take", "a"))
        rival = asyncio.create_task(c.run(plan(("take", "b"), "note"), saga_id="rival"))
        await shop.at("note")
        used.set()
        await waiting(c, "one")
        assert await holders(c) == {"item:a": "one", "item:b": "rival"}
        ship.set()
        gate.set()
        async with asyncio.timeout(PATIENCE_S):
            assert [(await each).status for each in (one, rival)] == [COMPLETED, COMPLETED]
        assert await store.guard_store().holds() == []


# --- a rival between the read and the hold -------------------------------------------------------------------------


async def test_what_a_rival_wrote_before_the_hold_is_the_before_image(store: Any) -> None:
    """The read came first, then a rival wrote and ended: the undo restores what the rival wrote, not what was read."""
    prices = {"tea": 10}
    made: list[str] = []

    @tool(effect="read")
    async def price(item: str) -> dict[str, Any]:
        return {"n": prices[item]}

    @tool(before=price, undo="put", resource="item:{item}", hold="saga", retry=RetryPolicy(max_attempts=1))
    async def put(item: str, n: int) -> None:
        prices[item] = n

    @tool
    async def nothing() -> None: ...

    @tool(undo=nothing, retry=RetryPolicy(max_attempts=1))
    async def refuse() -> None:
        raise ToolError("no", retryable=False)

    def puts(n: int, *more: Any) -> dict[str, Any]:
        return plan({"tool": "put", "params": {"item": "tea", "n": n}}, *more)

    given = dict(durability="relaxed", on_escalation=(), settings=None)
    async with Coordinator.open(store, [price, put, refuse, nothing], **given) as c:  # type: ignore[arg-type]

        async def before(name: str, args: tuple[Any, ...]) -> None:
            if name == "hold" and args[1].saga == "one" and not made:
                made.append("rival")
                assert (await c.run(puts(20), saga_id="rival")).status == COMPLETED

        store.guard_store().before = before
        result = await c.run(puts(30, {"tool": "refuse"}), saga_id="one")
        assert (result.status, prices) == (COMPENSATED, {"tea": 20})


# --- a lease that is lost ------------------------------------------------------------------------------------------


async def test_a_lease_that_is_lost_after_the_end_cancels_nobody(store: Any) -> None:
    """The saga has ended and gives back what it held: its caller learns the end, and the resource is free."""
    shop = Shop("a")
    lost = []
    async with opened(shop, store) as c:

        async def before(name: str, _: tuple[Any, ...]) -> None:
            if name == "unhold" and not lost:
                lost.append((await c.supervisor.lease()).lose())
                await asyncio.sleep(0)

        store.guard_store().before = before
        async with asyncio.timeout(PATIENCE_S):
            assert (await c.run(plan(("take", "a")), saga_id="one")).status == COMPLETED
        assert lost
        assert await store.guard_store().holds() == []


def family(key: str) -> str:
    return key.split(":", 1)[0].partition(".")[0]


def _tools(log: list[tuple[str, str, int]], known: dict[str, Any]) -> list[Any]:
    """Tools that write each key once, and take a while."""

    async def write(ctx: ToolContext, item: str, delta: int) -> dict[str, Any]:
        if ctx.idempotency_key not in known:
            known[ctx.idempotency_key] = True
            log.append((family(ctx.saga_id), item, delta))
        await asyncio.sleep(0.01)
        return {"item": item}

    soon = RetryPolicy(max_attempts=3, base_s=0.01, max_s=0.01)
    options: dict[str, Any] = {"resource": "item:{item}", "hold": "saga", "retry": soon, "keyed": True}

    @tool(effect="read", resource="item:{item}", hold="saga", retry=soon)
    async def look(item: str) -> dict[str, Any]:
        await asyncio.sleep(0.01)
        return {"item": item}

    @tool(undo="give", **options)
    async def take(item: str, ctx: ToolContext) -> dict[str, Any]:
        return await write(ctx, item, -1)

    @tool(**options)
    async def give(item: str, ctx: ToolContext) -> dict[str, Any]:
        return await write(ctx, item, 1)

    @tool(undo="give", **options | {"resource": ["item:{item}", "item:{to}"]})
    async def move(item: str, to: str, ctx: ToolContext) -> dict[str, Any]:
        return await write(ctx, item, -1)

    @tool(keyed=True, retry=soon)
    async def ship() -> None: ...

    @tool(undo="ship", keyed=True, retry=RetryPolicy(max_attempts=1))
    async def refuse() -> None:
        raise ToolError("no", retryable=False)

    return [look, take, give, move, ship, refuse]


def _plans() -> list[dict[str, Any]]:
    both = {"tool": "move", "params": {"item": "b", "to": "c"}}
    return [
        plan(("look", "a"), ("take", "a"), ("take", "b")),
        plan(("take", "b"), ("look", "a"), "refuse"),
        plan(("look", "a"), {"saga": {"plan": plan(("take", "a"), ("take", "c"))}}, both),
        plan(
            ("take", "c"),
            {"tool": "ship", "kind": "pivot"},
            {"tool": "give", "params": {"item": "c"}, "kind": "retriable"},
        ),
        plan(both, ("take", "a")),
        plan(("take", "a"), {"saga": {"plan": plan(("take", "b"))}}, "refuse"),
    ]


async def _play(store: Any, at: int, side: str) -> int:
    """Six sagas on three items, and a lease that is lost at one request; returns how many requests there were."""
    log: list[tuple[str, str, int]] = []
    known: dict[str, Any] = {}
    count = 0
    plans = _plans()
    given = dict(durability="relaxed", on_escalation=(), settings=None, limits={"max_crashes": 100})
    tools = _tools(log, known)
    async with Coordinator.open(store, tools, **given) as c:  # type: ignore[arg-type]
        lease = await c.supervisor.lease()

        async def settled(number: int, of: Any) -> Any:
            """Run it; of a circle in which all are in doubt, an operator looks at the log."""
            result = await c.run(of, saga_id=f"s{number}")
            while result.status == ESCALATED:
                for asked in result.body["questions"]:
                    assert (asked["kind"], asked["error"]["error_code"]) == ("in-doubt", "resource_held")
                    made = any(key.startswith(f"s{number}:{asked['step_id']}:f:") for key in known)
                    await c.resolve(f"s{number}", str(asked["step_id"]), "happened" if made else "not-happened")
                result = await c.resume(f"s{number}")
            return result

        def lose(name: str, _: tuple[Any, ...]) -> None:
            nonlocal count
            count += 1
            if count == at:
                lease.lose()

        setattr(store.guard_store(), side, lose)
        async with asyncio.timeout(200):
            results = await asyncio.gather(*(settled(n, each) for n, each in enumerate(plans)))
        setattr(store.guard_store(), side, None)
        ends = [each.status for each in results]
        assert {*ends} <= {COMPLETED, COMPENSATED}, ends
        assert await held(c.store) == []
    for item in "abc":
        families = [who for who, what, _ in log if what == item]
        changes = [who for n, who in enumerate(families) if n == 0 or families[n - 1] != who]
        assert len(changes) == len({*changes}), (item, families)
        for who in {*families}:
            if ends[int(who[1:])] == COMPENSATED:
                assert sum(delta for one, what, delta in log if (one, what) == (who, item)) == 0
    return count


@pytest.mark.parametrize("side", ["before", "after"])
@pytest.mark.parametrize("every", [9, pytest.param(1, marks=pytest.mark.slow)])
async def test_a_lease_that_is_lost_at_any_request(monkeypatch: pytest.MonkeyPatch, side: str, every: int) -> None:
    """Law: wherever the lease is lost, all sagas end, nothing is held on, and no two families had an item by turns."""
    at = random.SystemRandom().randint(1, every)
    while True:
        opened = open_store("memory://", durability="relaxed")
        await opened.open()
        guards = Between(opened.guard_store())
        monkeypatch.setattr(opened, "guard_store", lambda guards=guards: guards)
        requests = await _play(opened, at, side)
        await opened.close()
        if requests < at:
            break
        at += every
    assert at > 20


# --- an operator ---------------------------------------------------------------------------------------------------


async def test_an_operator_is_told_once_of_what_is_held_for_too_long(store: Any) -> None:
    """Two processes look; one of them tells, once, who holds what and who waits. A hold of a later saga is told anew."""
    shop = Shop("a")
    gate = shop.shut("note")
    told: list[Any] = []
    given = dict(durability="relaxed", settings=None, on_escalation=told.append)
    tools = shop.tools(note_s=600, hold_max_s=30)
    async with Coordinator.open(store, tools, **given) as c, Coordinator.open(store, tools, **given) as d:  # type: ignore[arg-type]
        await d.supervisor.lease()
        one = asyncio.create_task(c.run(plan(("take", "a"), "note"), saga_id="one"))
        await shop.at("note")
        two = asyncio.create_task(d.run(plan(("take", "a"), "note"), saga_id="two"))
        await waiting(c, "two")
        await asyncio.sleep(25)
        assert told == []
        await asyncio.sleep(100)
        (notice,) = told
        assert (notice.saga_id, notice.kind, notice.options, notice.tool) == ("one", "hold-overdue", (), "take")
        assert "saga one holds the resource 'item:a' for longer than 30 s; 1 wait for it (two)" in str(notice.error)
        assert notice.error["suggestion"].endswith("saga release item:a")
        gate.set()
        await one
        await shop.at("note", 2)
        assert (await two).status == COMPLETED
        assert len(told) == 1


async def test_a_hook_that_fails_is_called_again(store: Any) -> None:
    """A notice that was not delivered is delivered later."""
    shop = Shop("a")
    gate = shop.shut("note")
    told: list[Any] = []

    def hook(question: Any) -> None:
        told.append(question)
        if len(told) == 1:
            raise OSError("no network")

    given = dict(durability="relaxed", settings=None, on_escalation=hook)
    async with Coordinator.open(store, shop.tools(note_s=600, hold_max_s=1), **given) as c:  # type: ignore[arg-type]
        one = asyncio.create_task(c.run(plan(("take", "a"), "note"), saga_id="one"))
        await shop.at("note")
        await asyncio.sleep(300)
        assert len(told) == 2
        gate.set()
        await one


async def test_what_ended_sagas_have_left_is_given_back(store: Any) -> None:
    """Nobody wants it, and yet it is held no more: what a killed process leaves does not stay for ever."""
    shop = Shop("a")
    async with opened(shop, store) as c:
        await c.run(plan(("take", "a")), saga_id="one")
        note = f'{{"token":"{token_of("item:a")}","key":"item:a","saga":"one","step":"1","tool":"take"}}'
        claim = HoldClaim("one", "one", 1, write=True, ticket="one left", note=note)
        assert (await store.guard_store().hold(token_of("item:a"), claim, 1000)).granted
        await asyncio.sleep(10)
        assert await store.guard_store().holds() == []
