"""Limits inside one process: calls of one tool at once, and one at a time per resource."""

import asyncio

import pytest

from saga_engine.core.effects import Done, NotDone
from saga_engine.tools.decorator import tool
from saga_engine.tools.limits import KeyedLocks, resource_key, resource_locks
from saga_engine.tools.registry import ToolRegistry
from tests.tools.calls import PATIENCE_S, a_call


class Gate:
    """A tool's body that tells who is inside and waits to be let out."""

    def __init__(self):
        self.inside = []
        self.order = []
        self.most = 0
        self.exits = {}
        self.changed = asyncio.Event()

    async def enter(self, who):
        self.inside.append(who)
        self.order.append(who)
        self.most = max(self.most, len(self.inside))
        self.exits[who] = asyncio.Event()
        self.changed.set()
        try:
            await self.exits[who].wait()
        finally:
            self.inside.remove(who)
        return who

    async def until(self, who):
        async with asyncio.timeout(PATIENCE_S):
            while who not in self.exits:
                self.changed.clear()
                await self.changed.wait()

    def let_out(self, who):
        self.exits[who].set()


async def settle():
    """Let everything run that can run now."""
    for _ in range(20):
        await asyncio.sleep(0)


async def test_calls_of_one_resource_run_one_after_the_other_in_order():
    """Requirement A3 inside a process: same key, one at a time, first come first served; other keys are free."""
    gate = Gate()

    @tool(resource="user:{user_id}")
    async def pay(user_id: int, who: str):
        return await gate.enter(who)

    @tool(resource=lambda params: f"user:{params['user']}")
    async def refund(user: int, who: str):
        return await gate.enter(who)

    registry = ToolRegistry(pay, refund)
    tasks = [
        asyncio.create_task(registry.call("pay", {"user_id": 1, "who": "a"}, a_call())),
        asyncio.create_task(registry.call("refund", {"user": 1, "who": "b"}, a_call())),
        asyncio.create_task(registry.call("pay", {"user_id": 1, "who": "c"}, a_call())),
        asyncio.create_task(registry.call("pay", {"user_id": 2, "who": "other"}, a_call())),
    ]
    await settle()
    assert sorted(gate.inside) == ["a", "other"]
    for who in ("a", "b", "c"):
        gate.let_out(who)
        await settle()
    gate.let_out("other")
    assert await asyncio.gather(*tasks) == [Done(who) for who in ("a", "b", "c", "other")]
    assert [who for who in gate.order if who != "other"] == ["a", "b", "c"]
    assert len(resource_locks()) == 0


async def test_max_concurrency_bounds_the_calls_of_one_tool():
    """Requirement B2 inside a process: never more at once, also through two registries."""
    gate = Gate()

    @tool(max_concurrency=2)
    async def act(who: int):
        return await gate.enter(who)

    registries = [ToolRegistry(act), ToolRegistry(act)]
    tasks = [asyncio.create_task(registries[who % 2].call("act", {"who": who}, a_call())) for who in range(5)]
    for who in range(5):
        await gate.until(who)
        gate.let_out(who)
    assert await asyncio.gather(*tasks) == [Done(who) for who in range(5)]
    assert gate.most == 2


async def test_waiting_for_a_limit_is_not_the_tool_s_time():
    """A call that waits longer than its time-out has not timed out: it has not begun."""
    gate = Gate()

    @tool(max_concurrency=1, resource="one")
    async def act(who: str):
        return await gate.enter(who) if who == "first" else who

    registry = ToolRegistry(act)
    first = asyncio.create_task(registry.call("act", {"who": "first"}, a_call()))
    await gate.until("first")
    second = asyncio.create_task(registry.call("act", {"who": "second"}, a_call(timeout_s=0.01)))
    longer = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_later(0.05, longer.set_result, None)
    await longer
    gate.let_out("first")
    assert await second == Done("second")
    assert await first == Done("first")


async def test_a_cancelled_waiter_gives_up_its_place():
    """Whoever is cancelled while waiting is not called, and those behind it move up."""
    gate = Gate()

    @tool(resource="one")
    async def act(who: str):
        return await gate.enter(who)

    registry = ToolRegistry(act)
    tasks = {w: asyncio.create_task(registry.call("act", {"who": w}, a_call())) for w in ("a", "b", "c")}
    await settle()
    assert [len(queue) for queue in resource_locks()._waiting.values()] == [2]
    tasks["b"].cancel()
    await settle()
    assert [len(queue) for queue in resource_locks()._waiting.values()] == [1]
    gate.let_out("a")
    await gate.until("c")
    gate.let_out("c")
    assert await tasks["c"] == Done("c")
    assert tasks["b"].cancelled()
    assert gate.order == ["a", "c"]
    assert len(resource_locks()) == 0


async def test_a_turn_that_comes_with_the_cancellation_is_passed_on():
    """A waiter that is given the key and cancelled in the same moment does not take the key with it."""
    locks = KeyedLocks()
    got = []

    async def hold(who):
        async with locks.hold("k"):
            got.append(who)

    async with locks.hold("k"):
        second, third = asyncio.create_task(hold("second")), asyncio.create_task(hold("third"))
        await settle()
    second.cancel()  # Its turn is set and not yet taken.
    await settle()
    assert got == ["third"]
    assert third.done()
    assert len(locks) == 0


async def test_a_failed_call_gives_its_limits_back():
    """Errors and time-outs free the resource and the place."""

    @tool(resource="one", max_concurrency=1)
    async def act(how: str):
        if how == "hang":
            await asyncio.Event().wait()
        if how == "raise":
            raise ValueError
        return how

    registry = ToolRegistry(act)
    await registry.call("act", {"how": "hang"}, a_call(timeout_s=0.001))
    await registry.call("act", {"how": "raise"}, a_call())
    assert await registry.call("act", {"how": "fine"}, a_call()) == Done("fine")


async def test_a_resource_that_cannot_be_computed_stops_the_call():
    """Without its key a call could run beside another: it is not made."""
    called = []

    def broken(params):
        raise KeyError("user")

    for resource in ("user:{user}", broken, lambda params: 7):

        @tool(resource=resource)
        async def act(**params):
            called.append(params)

        outcome = await ToolRegistry(act).call("act", {}, a_call())
        assert isinstance(outcome, NotDone)
        assert (outcome.error.error_code, outcome.retryable) == ("resource_invalid", False)
    assert not called


async def test_a_resource_function_may_say_that_nothing_is_touched():
    """``None`` is no resource: nothing to wait for."""

    @tool(resource=lambda params: None)
    async def act():
        return 1

    assert await ToolRegistry(act).call("act", {}, a_call()) == Done(1)


@pytest.mark.parametrize(
    ("params", "defaults", "key"),
    [
        ({"a": "x", "b": 1}, {}, "x:1"),
        ({"a": "{b}", "b": None}, {}, "{b}:null"),
        ({"a": "x"}, {"b": 2}, "x:2"),
        ({"a": {"z": 1, "y": 2}, "b": [True]}, {}, '{"y": 2, "z": 1}:[true]'),
    ],
)
def test_a_template_is_filled_with_values_that_stay_data(params, defaults, key):
    """Values are never read as templates, and defaults stand in for what a plan leaves out."""
    assert resource_key("{a}:{b}", params, defaults) == key


def test_limits_hold_in_one_event_loop_after_another():
    """A tool that was limited in a loop that has ended is limited, and free, in the next."""

    @tool(max_concurrency=1, resource="r")
    async def act():
        await asyncio.sleep(0)
        return 1

    registry = ToolRegistry(act)

    async def main():
        return await asyncio.gather(*(registry.call("act", {}, a_call()) for _ in range(3)))

    assert asyncio.run(main()) == asyncio.run(main()) == [Done(1)] * 3
