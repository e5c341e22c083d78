"""What a guard says of a call that it keeps waiting: at once, and never of one that passes at once."""

import asyncio

import pytest

from saga_engine.core.effects import Done, NotDone
from saga_engine.tools.decorator import tool
from tests.guards.world import Stage, guard, step
from tests.tools.calls import PATIENCE_S


class Notes:
    """What was said of one call: True, it waits; False, it is about to be made. A note is durable when ``go`` is set."""

    def __init__(self):
        self.told = []
        self.go = asyncio.Event()
        self.changed = asyncio.Event()

    def __call__(self, _call, waits):
        self.told.append(waits)
        self.changed.set()
        return self._durable()

    async def _durable(self):
        await self.go.wait()  # a note that is durable tells nothing: the call goes on

    async def first(self):
        async with asyncio.timeout(PATIENCE_S):
            await self.changed.wait()
        return list(self.told)


GUARDS = {
    "bulkhead": {"max_concurrency": 1},
    "resource": {"resource": "one"},
    "rate": {"rate": "1/h"},
    "dedupe": {"dedupe_ttl_s": 600},
}


def called(tools, saga, notes):
    return asyncio.create_task(tools.call("act", {"who": "a"}, step(saga, waits=notes)))


@pytest.mark.parametrize("which", GUARDS)
@pytest.mark.parametrize("elsewhere", [False, True])
async def test_a_call_that_cannot_pass_at_once_says_so_at_once(store, which, elsewhere):
    """Also when another process is in its way. The call that passed at once never said that it waits."""
    if elsewhere and which == "bulkhead":
        return  # a bulkhead is of one process
    stage = Stage()

    @tool(**GUARDS[which])
    async def act(who: str):
        return await stage.enter(who)

    here = guard(store, act)
    there = guard(store, act) if elsewhere else here
    first, second = Notes(), Notes()
    first.go.set()
    inside = called(here, "s1", first)
    await stage.until("a")
    waiter = called(there, "s2", second)
    assert await second.first() == [True]
    there.stop_waiting()
    second.go.set()
    turned_away = await waiter
    assert isinstance(turned_away, NotDone)
    assert turned_away.error.error_code == "interrupted"
    stage.let_out("a")
    assert await inside == Done("a")
    assert first.told in ([False], [])
    assert second.told == [True]
    await here.close()
    await there.close()


@pytest.mark.parametrize("which", ["bulkhead", "resource"])
async def test_a_call_whose_turn_has_come_is_made_when_both_notes_are_durable(store, which):
    """The first is written while the call waits, however short that is, the second when its turn has come.

    Nothing is called before.
    """
    stage = Stage()

    @tool(**GUARDS[which])
    async def act(who: str):
        return await stage.enter(who)

    tools = guard(store, act)
    first, second = Notes(), Notes()
    first.go.set()
    inside = called(tools, "s1", first)
    await stage.until("a")
    waiter = called(tools, "s2", second)
    await asyncio.sleep(0)  # it stands in the queue now, and the one before it leaves at once
    stage.let_out("a")
    assert await inside == Done("a")
    assert second.told == [True]
    assert stage.order == ["a"]
    second.go.set()
    await stage.until_true(lambda: stage.order == ["a", "a"])
    assert second.told == [True, False]
    stage.let_out("a")
    assert await waiter == Done("a")
    await tools.close()
