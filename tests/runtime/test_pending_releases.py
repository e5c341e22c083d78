"""Sagas that this process owns and does not drive: the store hears of them as soon as it can."""

import gc
import weakref

import pytest

from saga_engine import Coordinator
from saga_engine.errors import StoreRefused, StoreUnavailable, ToolMissing
from tests.kill.polling import eventually
from tests.runtime.sleeping import PLAN, TOOLS, asleep
from tests.runtime.taking import ONE, give_back, take
from tests.support.servers import key_of


class Outage:
    """Verbs of the store that fail; the answer to ``acquire`` is lost after it has happened."""

    def __init__(self, store, monkeypatch) -> None:
        self.down = {"append", "release"}
        for verb in ("append", "release", "acquire"):
            monkeypatch.setattr(store, verb, self._wrapped(verb, getattr(store, verb)))

    def _wrapped(self, verb, real):
        async def call(*args, **named):
            if verb in self.down and verb != "acquire":
                raise StoreUnavailable("away")
            answer = await real(*args, **named)
            if verb in self.down:
                raise StoreUnavailable("the answer is lost")
            return answer

        return call


async def _owned_by_nobody(coordinator: Coordinator, saga_id: str) -> None:
    async def is_free() -> bool:
        return not (await coordinator.store.head(saga_id)).owner

    await eventually(is_free, "the saga to be nobody's")


@pytest.mark.parametrize("answer_lost", [False, True])
async def test_what_an_outage_stopped_is_given_up_without_a_worker(monkeypatch, answer_lost) -> None:
    """Its owner lives and drives it no more: nobody else could, until this process ends. At whatever epoch it is ours."""
    async with Coordinator.open("memory://", [take, give_back]) as coordinator:
        await coordinator.submit(ONE, saga_id="s1", detach=True)
        outage = Outage(coordinator.store, monkeypatch)
        with pytest.raises(StoreUnavailable):
            await coordinator.resume("s1")
        if answer_lost:
            outage.down.add("acquire")
            with pytest.raises(StoreUnavailable):
                await coordinator.resume("s1")
        assert (await coordinator.store.head("s1")).owner
        outage.down.clear()
        await _owned_by_nobody(coordinator, "s1")


async def test_a_saga_with_damaged_keys_delays_no_other_release(monkeypatch, folder) -> None:
    """The release of one saga is refused for as long as its keys are damaged; those behind it are made all the same."""
    async with Coordinator.open(folder.url, [take, give_back]) as coordinator:
        outage = Outage(coordinator.store, monkeypatch)
        for saga_id in ("damaged", "s1"):
            outage.down.clear()
            await coordinator.submit(ONE, saga_id=saga_id, detach=True)
            outage.down.add("acquire")
            with pytest.raises(StoreUnavailable):
                await coordinator.resume(saga_id)
        with folder.raw() as raw:
            head = key_of(raw, "head", "damaged")
            raw.delete(head)
            raw.set(head, "of another program")
        outage.down.clear()
        await _owned_by_nobody(coordinator, "s1")
        with pytest.raises(StoreRefused):
            await coordinator.store.release("damaged", 1)


async def test_a_sleeper_that_another_taking_replaced_is_not_forgotten() -> None:
    """Who waits for a saga hears of its end also when it was taken from the queue anew while it drove."""
    async with Coordinator.open("memory://", TOOLS) as coordinator:
        handle = await coordinator.submit(PLAN, saga_id="s1")
        await asleep(coordinator, "s1")
        store, supervisor = coordinator.store, coordinator.supervisor
        owner = (await supervisor.lease()).owner
        await store.release("s1", (await store.head("s1")).epoch, 1)  # as another process of this owner would
        (taken,) = (await store.work().take(owner, "a request", 1, range(store.work().count))).sagas
        supervisor.adopt(taken, owner)
        before = supervisor.find("s1")
        await asleep(coordinator, "s1")
        assert supervisor.find("s1") is before
        assert not handle.done()
        await coordinator.cancel("s1")
        assert (await handle.wait()).status == "COMPENSATED"


async def test_a_tool_that_is_registered_later_is_known() -> None:
    """A plan that was compiled without one of its tools is compiled anew."""
    async with Coordinator.open("memory://later", [take, give_back]) as coordinator:
        await coordinator.submit(ONE, saga_id="s1", detach=True)
    async with Coordinator.open("memory://later", [give_back]) as other:
        with pytest.raises(ToolMissing):
            await other.resume("s1")
        other.tools.add(take)
        assert (await other.resume("s1")).completed


async def test_one_who_looks_in_again_and_again_leaves_nothing_behind() -> None:
    """A wait that is given up is forgotten, however long the saga goes on."""
    async with Coordinator.open("memory://", TOOLS) as coordinator:
        handle = await coordinator.submit(PLAN, saga_id="s1")
        await asleep(coordinator, "s1")
        waiting = handle.wait()
        waiter = weakref.ref(waiting.send(None))
        waiting.close()
        gc.collect()
        assert waiter() is None
