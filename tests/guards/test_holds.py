"""Resources that sagas hold: one holder at a time, from the first call to the end; no circle waits for ever."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

from saga_engine import CallFailed, Coordinator, tool
from saga_engine.api.holds import concerning, held, release
from saga_engine.core.states import COMPENSATED, COMPLETED, ESCALATED, WAIVED
from saga_engine.errors import SettingInvalid, ToolInvalid
from saga_engine.guards.holds.holding import token_of
from saga_engine.ports import HoldClaim
from saga_engine.stores import open_store
from tests.guards.shop import SHIP, Shop, holders, opened, plan, waiting
from tests.guards.world import poll
from tests.tools.calls import PATIENCE_S

# --- one holder, to the end ----------------------------------------------------------------------------------------


async def test_a_saga_holds_what_it_names_until_its_end() -> None:
    """The second saga waits between two calls of the first, and goes on when that has ended."""
    shop = Shop("a")
    gate = shop.shut("note")
    async with opened(shop) as c:
        first = asyncio.create_task(c.run(plan(("take", "a"), "note", ("put", "a")), saga_id="one"))
        await shop.at("note")
        second = asyncio.create_task(c.run(plan(("take", "a")), saga_id="two"))
        await waiting(c, "two")
        assert await holders(c) == {"item:a": "one"}
        assert shop.log == [("take", "a")]
        gate.set()
        assert [(await each).status for each in (first, second)] == [COMPLETED, COMPLETED]
        assert shop.log == [("take", "a"), ("put", "a"), ("take", "a")]
        assert await holders(c) == {}


async def test_it_is_released_after_the_undos() -> None:
    """A saga that is undone keeps it until its undos are done; a rival gets the value as it was."""
    shop = Shop("a")
    gate = shop.shut(("give", "a"))
    async with opened(shop) as c:
        first = asyncio.create_task(c.run(plan(("take", "a"), "refuse"), saga_id="one"))
        await shop.at(("give", "a"))
        second = asyncio.create_task(c.run(plan(("take", "a")), saga_id="two"))
        await waiting(c, "two")
        gate.set()
        assert [(await each).status for each in (first, second)] == [COMPENSATED, COMPLETED]
        assert shop.log == [("take", "a"), ("give", "a"), ("take", "a")]
        assert shop.stock == {"a": 0}


async def test_two_agents_that_read_and_write_sell_nothing_twice() -> None:
    """Both read; the younger gives way when both want to write, is undone, and its agent is told who holds it."""
    shop = Shop("a")
    sold, told = [], []
    both = asyncio.Barrier(2)

    async def agent(c: Any, name: str) -> None:
        async with c.session(name) as s:
            stock = (await s.call("look", item="a"))["n"]
            await both.wait()
            if stock:
                await s.call("take", item="a")
                sold.append(name)

    async with opened(shop) as c:
        done = await asyncio.gather(agent(c, "x"), agent(c, "y"), return_exceptions=True)
        told = [each for each in done if each is not None]
        assert len(sold) == 1
        assert shop.stock == {"a": 0}
        (error,) = told
        assert isinstance(error, CallFailed)
        assert error.error_code == "resource_held"
        assert f"saga {sold[0]} holds" in str(error)
        statuses = {name: (await c.show(name)).status for name in ("x", "y")}
        assert statuses.pop(sold[0]) == COMPLETED
        assert [*statuses.values()] == [COMPENSATED]
        assert await holders(c) == {}


async def test_readers_share() -> None:
    """Two sagas that read hold it at once; a writer waits for both."""
    shop = Shop("a")
    gate = shop.shut("note")
    async with opened(shop) as c:
        readers = [asyncio.create_task(c.run(plan(("look", "a"), "note"), saga_id=name)) for name in ("r1", "r2")]
        await shop.at("note", 2)
        writer = asyncio.create_task(c.run(plan(("take", "a")), saga_id="w"))
        await waiting(c, "w")
        assert sorted(each.saga for each in await held(c.store)) == ["r1", "r2"]
        gate.set()
        assert {(await each).status for each in (*readers, writer)} == {COMPLETED}


async def test_it_is_held_over_a_wait_for_people_and_in_another_process() -> None:
    """A saga that rests on a question holds it; whoever continues it is the same holder."""
    shop = Shop("a")
    ask = {"ask": {"question": "really?", "options": ["yes"]}}
    async with opened(shop) as c:
        waits = plan(("take", "a"), ask, ("put", "a"))
        await c.submit(waits, saga_id="one")

        async def rests() -> bool:
            return (await c.show("one")).status == ESCALATED

        await poll(rests)
        async with opened(shop, c.store) as other:
            assert await holders(other) == {"item:a": "one"}
            second = asyncio.create_task(other.run(plan(("take", "a")), saga_id="two"))
            await waiting(other, "two")
            await other.resolve("one", "2", "yes", by="me")
            assert (await other.resume("one")).status == COMPLETED
            assert (await second).status == COMPLETED
        assert shop.log == [("take", "a"), ("put", "a"), ("take", "a")]


# --- deadlocks -----------------------------------------------------------------------------------------------------


async def _circle(shop: Shop, c: Any, names: list[str], gate: asyncio.Event, *more: Any) -> dict[str, str]:
    items = sorted(shop.stock)
    tasks = {}
    for at, name in enumerate(names):
        steps = (("take", items[at]), "note", ("take", items[(at + 1) % len(items)]), *more)
        tasks[name] = asyncio.create_task(c.run(plan(*steps), saga_id=name))
        await shop.at("note", at + 1)
    gate.set()
    async with asyncio.timeout(PATIENCE_S):
        return {name: (await task).status for name, task in tasks.items()}


@pytest.mark.parametrize("size", [2, 3, 5])
async def test_of_a_circle_the_youngest_is_undone(size: int) -> None:
    """Each holds one and wants the next: the last one gives way and is undone, all others complete."""
    shop = Shop(*(f"i{number}" for number in range(size)))
    shop.stock = dict.fromkeys(shop.stock, 2)
    gate = shop.shut("note")
    async with opened(shop) as c:
        names = [f"s{number}" for number in range(size)]
        found = await _circle(shop, c, names, gate)
        assert found.pop(names[-1]) == COMPENSATED
        assert {*found.values()} == {COMPLETED}
        assert await holders(c) == {}
        body = (await c.show(names[-1])).body
        assert body["error"]["error_code"] == "resource_held"
        assert "s0 holds the resource 'item:i0'" in body["error"]["message"]
        assert sum(shop.stock.values()) == 2 * size - 2 * (size - 1)


async def test_a_saga_behind_its_pivot_is_not_undone() -> None:
    """The younger has shipped: it waits, and the older one, which may be undone, gives way after its time."""
    shop = Shop("a", "b")
    shop.stock = {"a": 2, "b": 2}
    old, ship = shop.shut("note"), shop.shut("ship")
    async with opened(shop, limits={"guard_wait_s": 1}) as c:
        one = asyncio.create_task(c.run(plan(("take", "a"), "note", ("take", "b")), saga_id="one"))
        await shop.at("note")
        shipped = plan(("take", "b"), SHIP, {"tool": "give", "params": {"item": "a"}, "kind": "retriable"})
        two = asyncio.create_task(c.run(shipped, saga_id="two"))
        await shop.at("ship")
        ship.set()
        await waiting(c, "two")
        assert (await c.show("two")).status == "RUNNING"
        old.set()
        async with asyncio.timeout(PATIENCE_S):
            assert (await one).status == COMPENSATED
            found = await two
        if found.status == ESCALATED:  # both had waited as long as they may
            await c.resolve("two", "3", "retry", by="me")
            found = await c.resume("two")
        assert found.status == COMPLETED
        assert (await c.show("one")).body["error"]["error_code"] == "resource_held"


async def test_who_waits_in_vain_after_a_pivot_asks() -> None:
    """A bounded wait of a step that must happen ends with a question, as any other failure of it does."""
    shop = Shop("a")
    gate = shop.shut("note")
    async with opened(shop, limits={"guard_wait_s": 0.05}) as c:
        one = asyncio.create_task(c.run(plan(("take", "a"), "note"), saga_id="one"))
        await shop.at("note")
        shipped = plan(SHIP, {"tool": "give", "params": {"item": "a"}, "kind": "retriable"})
        found = await c.run(shipped, saga_id="two")
        assert found.status == ESCALATED
        (question,) = found.body["questions"]
        assert question["error"]["error_code"] == "resource_held"
        assert "saga one holds" in question["error"]["message"]
        gate.set()
        assert (await one).status == COMPLETED
        await c.resolve("two", "2", "retry", by="me")
        assert (await c.resume("two")).status == COMPLETED


async def test_who_holds_nothing_waits_although_it_is_younger() -> None:
    """It can be in no circle. After its time the call was not done, and its saga is undone."""
    shop = Shop("a")
    gate = shop.shut("note")
    async with opened(shop, limits={"guard_wait_s": 0.05}) as c:
        one = asyncio.create_task(c.run(plan(("take", "a"), "note"), saga_id="one"))
        await shop.at("note")
        found = await c.run(plan(("take", "a")), saga_id="two")
        assert found.status == COMPENSATED
        assert found.body["error"]["error_code"] == "resource_held"
        gate.set()
        assert (await one).status == COMPLETED


async def test_a_call_of_several_resources_waits_with_none_of_them() -> None:
    """It takes all or none, so that two calls which want the same two are in no circle, and nobody is undone."""
    shop = Shop("a", "b")
    shop.stock = {"a": 9, "b": 9}
    gate = shop.shut("note")

    @tool(resource=["item:{one}", "item:{two}"], hold="saga", undo="note_again")
    async def swap(one: str, two: str) -> None:
        shop.log.append(("swap", one, two))

    swaps = {"tool": "swap", "params": {"one": "a", "two": "b"}}
    given = dict(durability="relaxed", on_escalation=(), settings=None)
    async with Coordinator.open("memory://", [*shop.tools(), swap], **given) as c:  # type: ignore[arg-type]
        one = asyncio.create_task(c.run(plan(("take", "b"), "note", ("take", "a")), saga_id="one"))
        await shop.at("note")
        two = asyncio.create_task(c.run(plan(swaps), saga_id="two"))
        await waiting(c, "two")
        assert await holders(c) == {"item:b": "one"}
        gate.set()
        assert [(await each).status for each in (one, two)] == [COMPLETED, COMPLETED]
        assert shop.log == [("take", "b"), ("take", "a"), ("swap", "a", "b")]


# --- families and undos --------------------------------------------------------------------------------------------


async def test_parent_and_child_are_one_holder() -> None:
    """A child passes what its parent holds, and the parent keeps what the child took, until the parent's end."""
    shop = Shop("a", "b")
    shop.stock = {"a": 9, "b": 9}
    gate = shop.shut("note")
    async with opened(shop) as c:
        child = {"saga": {"plan": plan(("take", "a"), ("take", "b"))}}
        one = asyncio.create_task(c.run(plan(("take", "a"), child, "note"), saga_id="one"))
        await shop.at("note")
        assert await holders(c) == {"item:a": "one", "item:b": "one"}
        two = asyncio.create_task(c.run(plan(("take", "b")), saga_id="two"))
        await waiting(c, "two")
        gate.set()
        assert [(await each).status for each in (one, two)] == [COMPLETED, COMPLETED]
        assert await holders(c) == {}


async def test_the_undo_of_a_child_is_the_same_holder() -> None:
    """A parent that is undone has its child undone, whose undos touch what the parent holds."""
    shop = Shop("a")
    async with opened(shop) as c:
        child = {"saga": {"plan": plan(("take", "a"))}}
        async with asyncio.timeout(PATIENCE_S):
            assert (await c.run(plan(("take", "a"), child, "refuse"), saga_id="one")).status == COMPENSATED
        assert shop.stock == {"a": 1}
        assert await holders(c) == {}


async def test_an_undo_saga_passes_what_its_saga_has_not_given_back() -> None:
    """The process died between the end and the release: the undo of that saga is the same family."""
    shop = Shop("a")
    async with opened(shop) as c:
        await c.run(plan(("take", "a")), saga_id="one")
        await _left_over(c, "item:a", "one")
        gate = shop.shut(("give", "a"))
        undo = asyncio.create_task(c.undo("one", by="me"))
        await shop.at(("give", "a"))
        assert {each.saga for each in await held(c.store)} == {"one-undo"}
        two = asyncio.create_task(c.run(plan(("take", "a")), saga_id="two"))
        await waiting(c, "two")
        gate.set()
        assert (await undo).status == COMPENSATED
        assert (await two).status == COMPLETED
        assert shop.log == [("take", "a"), ("give", "a"), ("take", "a")]
        assert await holders(c) == {}


async def _left_over(c: Any, key: str, saga_id: str) -> None:
    """What a process leaves that dies between the end of a saga and the release."""
    note = f'{{"token":"{token_of(key)}","key":"{key}","saga":"{saga_id}","step":"1","tool":"take"}}'
    claim = HoldClaim(saga_id, saga_id, 1, write=True, ticket=f"{saga_id} left", note=note)
    assert (await c.store.guard_store().hold(token_of(key), claim, 1000)).granted


async def test_what_a_dead_process_has_not_given_back_is_free() -> None:
    """A waiter finds that the holder has ended, or is no more, and takes it."""
    shop = Shop("a", "b")
    async with opened(shop) as c:
        await c.run(plan(("take", "a")), saga_id="one")
        await _left_over(c, "item:a", "one")
        await _left_over(c, "item:b", "never-was")
        async with asyncio.timeout(PATIENCE_S):
            assert (await c.run(plan(("take", "b"), ("put", "a")), saga_id="two")).status == COMPLETED
        assert await holders(c) == {}
        assert [*await c.store.guard_store().holds()] == []


async def test_an_undo_goes_before_those_that_wait() -> None:
    """Of those that wait for it, one that takes something back gets it first, and is not undone."""
    shop = Shop("a")
    gate, back = shop.shut("note"), shop.shut("refuse")
    async with opened(shop) as c:
        # Its resource was taken away from `old` by an operator; others had it since, and wait for it.
        old = asyncio.create_task(c.run(plan(("take", "a"), "refuse"), saga_id="old"))
        await shop.at("refuse")
        assert [each.saga for each in await release(c.store, resource="item:a")] == ["old"]
        one = asyncio.create_task(c.run(plan(("put", "a"), "note"), saga_id="one"))
        await shop.at("note")
        two = asyncio.create_task(c.run(plan(("take", "a")), saga_id="two"))
        await waiting(c, "two")
        back.set()
        await waiting(c, "old", "two")
        (listed,) = await held(c.store)
        assert [who for who, _ in listed.waiting] == ["old", "two"]
        gate.set()
        assert [(await each).status for each in (old, one, two)] == [COMPENSATED, COMPLETED, COMPLETED]
        assert shop.log == [("take", "a"), ("put", "a"), ("give", "a"), ("take", "a")]


# --- operators -----------------------------------------------------------------------------------------------------


async def test_an_operator_takes_it_away() -> None:
    """Another saga has it then; the first one waits for it at its next call, and both end."""
    shop = Shop("a")
    gate = shop.shut("note")
    async with opened(shop, hold_max_s=0.000001) as c:
        one = asyncio.create_task(c.run(plan(("take", "a"), "note", ("put", "a")), saga_id="one"))
        await shop.at("note")
        two = asyncio.create_task(c.run(plan(("put", "a")), saga_id="two"))
        await waiting(c, "two")
        (listed,) = concerning(await held(c.store), "two")
        assert (listed.saga, listed.tool, listed.step, listed.alone, listed.overdue) == ("one", "take", "1", True, True)
        assert [each.resource for each in await release(c.store, saga_id="one")] == ["item:a"]
        assert (await two).status == COMPLETED
        gate.set()
        assert (await one).status == COMPLETED
        for wrong in ({"saga_id": "one"}, {"resource": "item:a"}, {}, {"saga_id": "one", "resource": "item:a"}):
            with pytest.raises(SettingInvalid):
                await release(c.store, **wrong)  # type: ignore[arg-type]


async def test_a_cancelled_saga_waits_no_more() -> None:
    """A saga that waits in line is cancelled at once, and its place is free."""
    shop = Shop("a", "b")
    gate = shop.shut("note")
    async with opened(shop) as c:
        one = asyncio.create_task(c.run(plan(("take", "a"), "note"), saga_id="one"))
        await shop.at("note")
        two = asyncio.create_task(c.run(plan(("take", "a")), saga_id="two"))
        await waiting(c, "two")
        await c.cancel("two", by="me")
        async with asyncio.timeout(PATIENCE_S):
            assert (await two).status in (COMPENSATED, WAIVED)
        gate.set()
        assert (await one).status == COMPLETED


async def test_the_plan_may_name_the_resource() -> None:
    """A key that the step names is held like that of the tool."""
    shop = Shop("a", "b")
    gate = shop.shut("note")
    async with opened(shop) as c:
        step = {"tool": "take", "params": {"item": "a"}, "resource": "order:7"}
        one = asyncio.create_task(c.run(plan(step, "note"), saga_id="one"))
        await shop.at("note")
        assert await holders(c) == {"item:a": "one", "order:7": "one"}
        gate.set()
        await one
        assert await holders(c) == {}


async def test_a_key_with_a_secret_is_not_shown() -> None:
    """What is listed shows the marker; the key itself is nowhere in the store."""
    shop = Shop("a")
    gate = shop.shut("note")

    @tool(resource="card:{card}", hold="saga", sensitive=["card"], undo="note_again")
    async def pay(card: str) -> None: ...

    given = dict(durability="relaxed", on_escalation=(), settings=None)
    async with Coordinator.open("memory://", [*shop.tools(), pay], **given) as c:  # type: ignore[arg-type]
        one = asyncio.create_task(
            c.run(plan({"tool": "pay", "params": {"card": "4111-secret"}}, "note"), saga_id="one")
        )
        await shop.at("note")
        (listed,) = await held(c.store)
        assert "4111" not in listed.resource
        assert "4111" not in str(await c.store.guard_store().holds())
        gate.set()
        await one


def test_a_declaration_that_means_nothing() -> None:
    """``hold`` without a resource, and times without ``hold``, are refused by name."""
    for options in ({"hold": "saga"}, {"resource": "r", "hold": "step"}, {"resource": "r", "hold_max_s": 5},
                    {"resource": "r", "hold": "saga", "hold_max_s": 0}):  # fmt: skip
        with pytest.raises(ToolInvalid, match="hold"):

            @tool(**options)  # type: ignore[arg-type]
            async def act() -> None: ...


# --- what it costs -------------------------------------------------------------------------------------------------


class Asked:
    """A guard store that counts what it is asked."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self.count: Counter[str] = Counter()

    def __getattr__(self, name: str) -> Any:
        real = getattr(self._store, name)

        def asked(*args: Any, **named: Any) -> Any:
            self.count[name] += 1
            return real(*args, **named)

        return asked


async def test_what_a_hold_costs(monkeypatch: pytest.MonkeyPatch) -> None:
    """One request more for each call, one for each resource at the end; nothing for tools without it."""
    shop = Shop("a")
    found: dict[Any, Counter[str]] = {}
    for hold in (None, "saga"):
        store = open_store("memory://", durability="relaxed")
        await store.open()
        asked = Asked(store.guard_store())
        monkeypatch.setattr(store, "guard_store", lambda asked=asked: asked)
        async with opened(shop, store, hold=hold) as c:
            assert (await c.run(plan(("take", "a"), ("put", "a"), ("look", "a")))).status == COMPLETED
        found[hold] = asked.count
        await store.close()
    assert found["saga"] - found[None] == Counter(hold=3, unhold=1)
    assert not found[None].keys() & {"hold", "unhold", "holds", "leave"}
