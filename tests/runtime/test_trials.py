"""A call that may have ended its process is tried while no bare call is in flight beside it."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from saga_engine import Coordinator, tool
from saga_engine.analysis.replay import Replay
from saga_engine.analysis.trace_file import read
from saga_engine.core import records as r
from saga_engine.core.evolve import evolve
from saga_engine.core.fold import begin
from saga_engine.plan.compiler import compile_plan
from saga_engine.plan.model import load_plan
from saga_engine.runtime import takeover, trials
from saga_engine.tools.registry import ToolRegistry
from tests.kill.polling import eventually
from tests.runtime.threads import in_a_process_of_its_own

_numbers = itertools.count()


class World:
    """The tools of one test, what they began, and the gates at which their calls wait."""

    def __init__(self) -> None:
        self.url = f"memory://trials-{next(_numbers)}"
        self.begun: list[str] = []
        self.fatal: set[str] = set()
        self.gates: dict[str, asyncio.Event] = {}

        @tool(effect="read")
        async def look(item: str) -> dict:
            return {"item": item}

        @tool(undo="back", keyed=True)
        async def poison(item: str) -> dict:
            return await self.called(item)

        @tool(undo="back")
        async def bare(item: str) -> dict:
            return await self.called(item)

        @tool(undo="back", max_concurrency=1)
        async def narrow(item: str) -> dict:
            return await self.called(item)

        @tool(undo="back", keyed=True, resource="door")
        async def locked(item: str) -> dict:
            return await self.called(item)

        @tool(effect="read")
        async def found(item: str) -> dict | None:
            await self.called(f"probe of {item}")
            return {"item": item}

        @tool(undo="back", probe="found")
        async def probed(item: str) -> dict:
            return await self.called(item)

        @tool(keyed=True)
        async def back(item: str) -> dict:
            return {"item": item}

        self.tools = [look, poison, bare, narrow, locked, found, probed, back]

    async def called(self, item: str) -> dict[str, str]:
        self.begun.append(item)
        if item in self.fatal:
            raise KeyboardInterrupt
        if item in self.gates:
            await self.gates[item].wait()
        return {"item": item}

    def gate(self, *items: str) -> None:
        for item in items:
            self.gates[item] = asyncio.Event()

    async def begins(self, item: str) -> None:
        await eventually(lambda: item in self.begun, f"the call of {item}")

    @asynccontextmanager
    async def coordinator(self, **options: Any) -> AsyncIterator[Coordinator]:
        async with Coordinator.open(self.url, self.tools, **options) as coordinator:
            yield coordinator

    async def crash(self, *items: str, name: str = "poison", then: tuple[str, ...] = (), **options: Any) -> None:
        """End a process in the call of each item; ``then`` are the items of the calls that follow it."""
        for item in items:
            self.fatal.add(item)

            async def process(item: str = item) -> None:
                async with self.coordinator(**options) as coordinator:
                    if any(saga.saga_id == item for saga in await coordinator.list()):
                        await coordinator.resume(item)
                    else:
                        await coordinator.run(plan(name, item, *then, deadline_s=3600), saga_id=item)

            ended = await asyncio.to_thread(in_a_process_of_its_own, process)
            assert isinstance(ended, KeyboardInterrupt)
            self.fatal.discard(item)
        self.begun.clear()

    async def others_move(self, coordinator: Coordinator) -> None:
        """Sagas that settle themselves are not held; whatever could begin beside them has had its time."""
        for name in ("poison", "look", "probed"):
            result = await coordinator.run(plan(name, f"other-{next(_numbers)}"))
            assert result.completed


def plan(name: str, *items: str, **options: Any) -> dict[str, Any]:
    steps = [{"step_id": at, "tool": name, "params": {"item": item}} for at, item in enumerate(items, 1)]
    return {"steps": steps, **options}


async def kinds(coordinator: Coordinator, saga_id: str) -> list[str]:
    return [record["k"] for record in await coordinator.history(saga_id)]


@pytest.fixture
def world() -> World:
    return World()


@pytest.mark.parametrize("suspect", ["poison", "probed"])
@pytest.mark.parametrize("all_", [True, False], ids=["resume_all", "work"])
async def test_bare_calls_and_a_suspect_are_kept_apart(world: World, suspect: str, all_: bool) -> None:
    """It waits for those in flight, and those that come wait for it; nothing else waits, and the journals replay."""
    await world.crash("x", name=suspect)
    tried = "x" if suspect == "poison" else "probe of x"
    world.gate(tried, "first")
    async with world.coordinator() as coordinator:
        first = await coordinator.submit(plan("bare", "first", "after"), saga_id="first")
        await world.begins("first")
        again = asyncio.create_task(coordinator.resume_all() if all_ else coordinator.work())
        await eventually(lambda: resumed(coordinator, "x"), "the take-over")
        await world.others_move(coordinator)
        assert tried not in world.begun
        world.gates["first"].set()
        await world.begins(tried)
        second = await coordinator.submit(plan("bare", "second"), saga_id="second")
        await second.journalled()
        await world.others_move(coordinator)
        assert not {"after", "second"} & set(world.begun)
        assert (await kinds(coordinator, "second"))[-1] == "SagaStarted", "nothing is in doubt if the process ends"
        world.gates[tried].set()
        for handle in (first, second):
            assert (await handle.wait()).completed
        assert (await coordinator.wait("x")).completed
        again.cancel()
        await asyncio.gather(again, return_exceptions=True)
        for saga_id in ("x", "first", "second"):
            (trace,) = read(line.encode() + b"\n" for line in await coordinator.trace(saga_id, full=True))
            replay = Replay(trace, coordinator.tools, together_ms=0)
            assert len(list(replay.run())) == len(await coordinator.history(saga_id)) - 1
            assert replay.divergence is None


async def resumed(coordinator: Coordinator, saga_id: str) -> bool:
    return "SagaResumed" in await kinds(coordinator, saga_id)


@asynccontextmanager
async def on_trial(world: World, **options: Any) -> AsyncIterator[Coordinator]:
    """A suspect, x, is in flight."""
    await world.crash("x")
    world.gate("x")
    async with world.coordinator(**options) as coordinator:
        again = asyncio.create_task(coordinator.resume("x"))
        await world.begins("x")
        yield coordinator
        world.gates["x"].set()
        await asyncio.gather(again, return_exceptions=True)


async def test_a_saga_that_is_held_can_be_cancelled(world: World) -> None:
    """A cancel does not wait for the suspect, and the held call is never made."""
    async with on_trial(world) as coordinator:
        held = await coordinator.submit(plan("bare", "held"), saga_id="held")
        await held.journalled()
        result = await coordinator.cancel("held")
        assert result.status == "COMPENSATED"
        assert "StepIntended" not in await kinds(coordinator, "held")
    assert world.begun == ["x"]


async def test_the_deadline_of_a_saga_that_is_held_binds(world: World) -> None:
    """It passes while the suspect is still in flight."""
    async with on_trial(world) as coordinator:
        result = await coordinator.run(plan("bare", "held", deadline_s=0.2))
        assert result.status == "COMPENSATED"
    assert world.begun == ["x"]


async def test_a_coordinator_that_holds_sagas_closes(world: World) -> None:
    """What was held is as its journal says, and goes on elsewhere."""
    async with on_trial(world) as coordinator:
        held = await coordinator.submit(plan("bare", "held", deadline_s=3600), saga_id="held")
        await held.journalled()
        closing = asyncio.create_task(coordinator.close())
        with pytest.raises(Exception, match="interrupted"):
            await held.wait()
        world.gates["x"].set()
        await closing
    assert world.begun == ["x"]
    async with world.coordinator() as coordinator:
        assert (await coordinator.resume("held")).completed


async def test_a_worker_keeps_a_bare_call_that_it_holds(world: World) -> None:
    """A saga that is held does not go back to the queue to wait for its deadline."""
    async with on_trial(world) as coordinator:
        working = asyncio.create_task(coordinator.work())
        await coordinator.submit(plan("bare", "held", deadline_s=3600), saga_id="held", detach=True)
        await eventually(lambda: resumed(coordinator, "held"), "the worker")
        await world.others_move(coordinator)
        world.gates["x"].set()
        assert (await coordinator.wait("held")).completed
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)


async def test_a_long_trial_starves_nobody(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its time is limited: bare calls then begin beside the suspect."""
    monkeypatch.setattr(trials, "TRIAL_S", 0.05)
    async with on_trial(world) as coordinator:
        assert (await coordinator.run(plan("bare", "held"))).completed


async def test_a_saga_that_goes_on_after_its_trial_keeps_no_other_out(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A suspect that saw two ends waits for the outcome of the one that is tried, not for the end of its saga."""
    monkeypatch.setattr(takeover, "TRIAL_S", 3600.0)  # the outcome lets the other in, and not the time
    await world.crash("x", "x", then=("long",))
    await world.crash("y", "y")
    world.gate("x", "long")
    async with world.coordinator() as coordinator:
        working = asyncio.create_task(coordinator.work())
        await world.begins("x")
        await world.others_move(coordinator)
        assert "y" not in world.begun, "they are tried one at a time"
        world.gates["x"].set()
        await world.begins("long")
        assert (await coordinator.wait("y")).completed
        world.gates["long"].set()
        assert (await coordinator.wait("x")).completed
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)


async def test_a_suspect_that_waits_for_a_guard_keeps_no_other_out(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ends no process while it waits, and what it waits for may be the other's."""
    monkeypatch.setattr(takeover, "TRIAL_S", 3600.0)
    await world.crash("x", "x", name="locked", lease_s=1.0)  # so long the dead keep the door
    await world.crash("y", "y")
    world.gate("first")
    async with world.coordinator() as before, world.coordinator() as coordinator:
        first = await before.submit(plan("locked", "first"))
        await world.begins("first")
        working = asyncio.create_task(coordinator.work())
        assert (await coordinator.wait("y")).completed
        await eventually(lambda: is_queued(coordinator, "x"), "the mark of the one that waits")
        world.gates["first"].set()
        assert (await first.wait()).completed
        assert (await coordinator.wait("x")).completed
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)


async def test_a_trial_that_hangs_keeps_no_other_out_for_ever(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its time is limited: then the next suspect that saw two ends has its turn."""
    monkeypatch.setattr(takeover, "DRAIN_S", 0.0)
    monkeypatch.setattr(takeover, "TRIAL_S", 0.0)
    monkeypatch.setattr(trials, "TRIAL_S", 0.05)
    await world.crash("x", "x")
    await world.crash("y", "y")
    world.gate("x")
    async with world.coordinator() as coordinator:
        working = asyncio.create_task(coordinator.work())
        assert (await coordinator.wait("y")).completed
        world.gates["x"].set()
        assert (await coordinator.wait("x")).completed
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)


async def test_a_suspect_does_not_wait_for_ever(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bare call that lasts long delays the trial for a limited time."""
    monkeypatch.setattr(trials, "DRAIN_S", 0.05)
    await world.crash("x")
    world.gate("long")
    async with world.coordinator() as coordinator:
        long = await coordinator.submit(plan("bare", "long"))
        await world.begins("long")
        assert (await coordinator.resume("x")).completed
        world.gates["long"].set()
        assert (await long.wait()).completed


async def test_bare_calls_pass_between_two_trials(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many suspects wait for their turns, what was held goes on when the time of a trial is over."""
    monkeypatch.setattr(trials, "TRIAL_S", 0.05)
    await world.crash("x", "x", "y", "y")
    world.gate("x", "y", "held")
    async with world.coordinator() as coordinator:
        again = asyncio.create_task(coordinator.resume_all())
        await eventually(lambda: {"x", "y"} & set(world.begun), "the first trial")
        held = await coordinator.submit(plan("bare", "held"))
        await world.begins("held")
        world.gates["held"].set()
        assert (await held.wait()).completed
        await eventually(lambda: {"x", "y"} <= set(world.begun), "the second trial")
        assert world.begun.index("held") == 1
        for item in "xy":
            world.gates[item].set()
        await again
        assert [(await coordinator.show(item)).status for item in "xy"] == ["COMPLETED"] * 2


async def test_what_saw_two_ends_is_tried_alone(world: World) -> None:
    """So that the third end incriminates one saga; what saw one end is tried together."""
    await world.crash("a", "b", "x", "x", "y", "y")
    world.gate(*"abxy")
    async with world.coordinator() as coordinator:
        again = asyncio.create_task(coordinator.resume_all())
        for item in "ab":
            await world.begins(item)
        await eventually(lambda: {"x", "y"} & set(world.begun), "the first of two")
        await world.others_move(coordinator)
        (one,) = {"x", "y"} & set(world.begun)
        (other,) = {"x", "y"} - {one}
        world.gates[one].set()
        await world.begins(other)
        for item in "abxy":
            world.gates[item].set()
        await again
        assert [(await coordinator.show(item)).status for item in "abxy"] == ["COMPLETED"] * 4


class Busy:
    """A saga that is driven elsewhere in the loop: it writes while others go on."""

    def __init__(self, name: str, tools: list[Any], *, ends: int = 0) -> None:
        self.state = begin(
            r.SagaStarted(at=0, saga_id=name, plan=None, digest="d", seed="x"),
            compile_plan(load_plan(plan(name, name)), ToolRegistry(tools)),
        )
        for epoch in range(ends):
            evolve(self.state, r.StepIntended(at=1, step="1"))
            if epoch:
                evolve(self.state, r.StepBegun(at=1, step="1"))
            evolve(self.state, r.SagaResumed(at=1, owner="o", epoch=epoch + 2))
        self.intent = [r.StepIntended(at=1, step="1")]
        self.at_rest = False
        self.roused = 0

    def rouse(self) -> None:
        self.roused += self.at_rest


async def test_a_saga_that_is_called_in_while_it_writes_hears_of_it(world: World) -> None:
    """It cannot be roused then, so it is when it begins to wait; and likewise when the door opens."""
    suspect, bare = Busy("poison", world.tools, ends=1), Busy("bare", world.tools)
    kept = trials.Trials(lambda: [suspect, bare])
    kept.join(suspect)
    assert not kept.admits(suspect, suspect.intent), "the other one may have a bare call in flight already"
    assert not kept.admits(bare, bare.intent)
    bare.at_rest = True
    kept.rests(bare)
    assert suspect.roused == 0
    suspect.at_rest = True
    kept.rests(suspect)
    assert suspect.roused == 1
    assert kept.admits(suspect, suspect.intent)
    bare.at_rest = False
    kept.proceeds(suspect)  # nothing of it is in flight any more
    assert bare.roused == 0
    bare.at_rest = True
    kept.rests(bare)
    assert bare.roused == 1
    assert kept.admits(bare, bare.intent)
    kept.gone(suspect)
    assert not kept.active


async def test_a_suspect_that_is_not_repeated_after_all_holds_nobody(world: World) -> None:
    """Its saga decides otherwise, or is given away, while it waits: the door opens at once."""
    suspects = [Busy("poison", world.tools, ends=1) for _ in range(2)]
    bare = Busy("bare", world.tools)
    kept = trials.Trials(lambda: [*suspects, bare])
    for suspect in suspects:
        kept.join(suspect)
        assert not kept.admits(suspect, suspect.intent)
    assert not kept.admits(bare, bare.intent)
    bare.at_rest = True
    kept.frees(suspects[0])
    assert not kept.admits(bare, bare.intent)
    kept.gone(suspects[1])
    assert bare.roused == 1
    assert kept.admits(bare, bare.intent)


async def test_of_those_that_saw_two_ends_and_wait_one_goes_first(world: World) -> None:
    """Bare calls were in flight when both came: the trial begins with the first alone, and the other follows it."""
    suspects = [Busy("poison", world.tools, ends=2) for _ in range(2)]
    bare = Busy("bare", world.tools)
    kept = trials.Trials(lambda: [*suspects, bare])
    for suspect in suspects:
        suspect.at_rest = True
        kept.join(suspect)
        assert not kept.admits(suspect, suspect.intent)
    for driver in (*suspects, bare):
        driver.at_rest = True
        kept.rests(driver)
    assert [suspect.roused for suspect in suspects] == [1, 0]
    first, second = suspects
    assert kept.admits(first, first.intent)
    assert not kept.admits(second, second.intent)
    kept.gone(first)
    assert second.roused == 1
    assert kept.admits(second, second.intent)
    kept.stop()


async def test_a_call_whose_turn_at_a_guard_comes_waits_for_the_trial(world: World) -> None:
    """It waited for a place when the suspect came, so it is not in doubt, and does not begin beside it."""
    await world.crash("x")
    world.gate("x", "first")
    async with world.coordinator() as coordinator:
        first = await coordinator.submit(plan("narrow", "first"))
        await world.begins("first")
        second = await coordinator.submit(plan("narrow", "second"), saga_id="second")
        await eventually(lambda: is_queued(coordinator, "second"), "the mark of the one that waits")
        again = asyncio.create_task(coordinator.resume("x"))
        await eventually(lambda: resumed(coordinator, "x"), "the take-over")
        world.gates["first"].set()
        await world.begins("x")
        assert (await first.wait()).completed
        await world.others_move(coordinator)
        assert "second" not in world.begun
        assert (await kinds(coordinator, "second"))[-1] == "StepQueued"
        world.gates["x"].set()
        assert (await again).completed
        assert (await second.wait()).completed


async def test_a_call_whose_turn_came_begins_when_the_process_stops(world: World) -> None:
    """Draining waits for the calls that have an intent; none of them waits for a trial."""
    await world.crash("x")
    world.gate("x", "first")
    async with world.coordinator() as coordinator:
        first = await coordinator.submit(plan("narrow", "first"))
        await world.begins("first")
        second = await coordinator.submit(plan("narrow", "second"), saga_id="second")
        await eventually(lambda: is_queued(coordinator, "second"), "the mark of the one that waits")
        again = asyncio.create_task(coordinator.resume("x"))
        await eventually(lambda: resumed(coordinator, "x"), "the take-over")
        world.gates["first"].set()
        await world.begins("x")
        assert (await first.wait()).completed
        closing = asyncio.create_task(coordinator.close())
        await world.begins("second")
        world.gates["x"].set()
        await closing
        await asyncio.gather(again, second.wait(), return_exceptions=True)


async def is_queued(coordinator: Coordinator, saga_id: str) -> bool:
    return "StepQueued" in await kinds(coordinator, saga_id)
