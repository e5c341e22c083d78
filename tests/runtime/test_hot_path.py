"""What a step may cost, counted and not timed: round trips, and work that must not grow with the saga."""

from __future__ import annotations

import asyncio
import random
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import saga_engine.stores
from saga_engine import Coordinator, ToolError, tool
from saga_engine.core import decide as deciding
from saga_engine.core import records as r
from saga_engine.core import search_terms
from saga_engine.core.decide import decide
from saga_engine.core.effects import CallTool, Done
from saga_engine.core.evolve import evolve
from saga_engine.core.fold import begin
from saga_engine.core.interpret import interpret
from saga_engine.execution.clock import StoreClock
from saga_engine.plan.compiler import compile_plan
from saga_engine.plan.model import load_plan
from saga_engine.plan.tool_spec import ToolSpec
from saga_engine.ports import AppendReply, Entry
from saga_engine.runtime.journal import drivable, read_records
from saga_engine.runtime.writer import JournalWriter
from saga_engine.stores import open_store
from saga_engine.telemetry import Spans
from tests.core.simulation import Simulation
from tests.support.chains import back, chain, forth


@tool(undo="back")
async def refuse() -> dict:
    raise ToolError("no")


class Counting:
    """A store that counts its group commits and their entries."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self.commits: list[int] = []
        #: What the guards asked the store, by verb.
        self.asked: Counter[str] = Counter()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def append(self, owner: str, entries: Sequence[Entry]) -> AppendReply:
        self.commits.append(len(entries))
        return await self._store.append(owner, entries)

    def guard_store(self) -> Any:
        return CountingGuards(self._store.guard_store(), self.asked)


class CountingGuards:
    """The shared state of guards; counts what it is asked."""

    def __init__(self, guards: Any, asked: Counter[str]) -> None:
        self._guards = guards
        self._asked = asked

    def __getattr__(self, name: str) -> Any:
        verb = getattr(self._guards, name)

        def counted(*args: Any, **options: Any) -> Any:
            self._asked[name] += 1
            return verb(*args, **options)

        return counted


#: Tasks that set timers as time passes, and no more of them for more calls: a slow machine gives them the time.
BY_THE_CLOCK = frozenset({"saga-lease", "saga-audit"})


class Effort:
    """What the event loop is asked for: tasks and timers, by whose they are."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.tasks: Counter[str] = Counter()
        self.timers = 0
        loop = asyncio.get_running_loop()
        call_at = loop.call_at

        def counted_task(loop: asyncio.AbstractEventLoop, coroutine: Any, **options: Any) -> asyncio.Task[Any]:
            task = asyncio.Task(coroutine, loop=loop, **options)
            self.tasks[coroutine.__qualname__] += 1
            return task

        def counted_timer(*args: Any, **options: Any) -> asyncio.TimerHandle:
            task = asyncio.current_task(loop)
            self.timers += task is None or task.get_name() not in BY_THE_CLOCK
            return call_at(*args, **options)

        loop.set_task_factory(counted_task)
        monkeypatch.setattr(loop, "call_at", counted_timer)

    def clear(self) -> None:
        self.tasks.clear()
        self.timers = 0


@pytest.fixture
async def counting():
    store = Counting(open_store("memory://"))
    await store.open()
    yield store
    await store.close()


#: A rule that matches none of the calls here, and has to be asked about each.
RULES = {"rules": [{"name": "odd", "when": [{"param": "ref", "op": "==", "value": "odd"}], "verdict": "deny"}]}


@pytest.fixture
async def durable(tmp_path):
    """The real server, so that the client's own tasks and timers are the real ones, too."""
    store = Counting(open_store(f"embedded://{tmp_path}"))
    await store.open()
    yield store
    await store.close()


async def test_n_steps_cost_n_plus_one_durable_writes(counting) -> None:
    """The result of a step and the intent of the next share an append; creation shares the first intent's."""
    async with Coordinator.open(counting, [forth, back]) as coordinator:
        await coordinator.run(chain("forth", "forth", "forth"))
    assert len(counting.commits) == 4


async def test_a_compensation_costs_one_write_a_call(counting) -> None:
    """Two steps happen, the third fails, two are undone: five calls, six writes."""
    async with Coordinator.open(counting, [forth, back, refuse]) as coordinator:
        await coordinator.run(chain("forth", "forth", "refuse"))
    assert len(counting.commits) == 6


async def test_sagas_that_wait_together_share_a_commit(counting) -> None:
    """A hundred sagas at once need far fewer round trips than appends."""
    async with Coordinator.open(counting, [forth, back]) as coordinator:
        await asyncio.gather(*(coordinator.run(chain("forth", "forth")) for _ in range(100)))
    assert sum(counting.commits) == 300
    assert len(counting.commits) < 100


async def test_a_commit_is_bounded(counting) -> None:
    """However many sagas append in one moment, no commit has more than 512 entries, and every saga gets its answer."""
    await counting.open()
    writer = JournalWriter(counting, StoreClock())
    acks = await asyncio.gather(*(writer.append(Entry(f"s{number}", 0, 1, [b"x"])) for number in range(2000)))
    assert {ack.code for ack in acks} == {"missing"}
    assert 256 <= max(counting.commits) <= 512  # while no other is under way, half of that
    assert sum(counting.commits) == 2000


async def test_a_sequential_saga_needs_no_task_for_a_call(counting) -> None:
    """One task drives the saga; its calls run in that task."""
    tasks: set[int] = set()

    @tool(undo="back")
    async def note() -> dict:
        tasks.add(id(asyncio.current_task()))
        return {"ref": "x"}

    async with Coordinator.open(counting, [note, back]) as coordinator:
        await coordinator.run(chain("note", "note", "note"))
    assert len(tasks) == 1


@pytest.mark.parametrize("guarded", [False, True])
@pytest.mark.parametrize("fails", [False, True])
async def test_a_step_costs_an_append_and_nothing_else(durable, monkeypatch, fails: bool, guarded: bool) -> None:
    """Forward and back, with breaker, bulkhead and policy or without: an append a call and one more, no task for a call.

    The timers are those of the appends: a tool that does not wait needs no alarm.
    """
    guards = {"policy": RULES, "tool_options": {"*": {"breaker": True, "max_concurrency": 8}}} if guarded else {}
    names = ["forth"] * 40 + (["refuse"] if fails else [])
    calls = 81 if fails else 40
    async with Coordinator.open(durable, [forth, back, refuse], lease_s=3600, **guards) as coordinator:
        await coordinator.run(chain(*names))  # what is done once for each process is done
        durable.commits.clear()
        durable.asked.clear()
        effort = Effort(monkeypatch)
        await coordinator.run(chain(*names))
        assert len(durable.commits) == calls + 1
        assert sum(durable.commits) == calls + 1
        # Whatever the number of calls: a look at all breakers now and then, one failure counted, statistics.
        assert set(durable.asked) <= {"breakers", "count", "breaker_outcome"}
        assert durable.asked["breakers"] < calls / 4
        # One task for each append and one for the saga, whatever they are called; a task for a call would double that.
        assert calls + 2 <= effort.tasks.total() < (calls + 2) + calls / 4, effort.tasks
        # A slow machine looks at the breakers more often meanwhile; a timer for each call would double this.
        assert effort.timers < (calls + 1) * 1.5
        asyncio.get_running_loop().set_task_factory(None)


async def test_guards_that_let_a_call_pass_at_once_cost_no_append(counting) -> None:
    """A free resource, a place and a rate with room: nothing is recorded of a wait that did not happen."""

    @tool(undo="back", resource="desk:{item}", max_concurrency=1, rate="1000000/s")
    async def take(item: str) -> dict:
        return {"ref": item}

    plan = {"steps": [{"step_id": n, "tool": "take", "params": {"item": "x"}} for n in range(5)]}
    async with Coordinator.open(counting, [take, back]) as coordinator:
        await coordinator.run(plan)
        history = [
            record["k"] for saga in await coordinator.list() for record in await coordinator.history(saga.saga_id)
        ]
    assert len(counting.commits) == 6
    assert "StepQueued" not in history


async def test_a_tool_that_waits_has_an_alarm_and_others_have_none(counting, monkeypatch) -> None:
    """Only what waits can run out of time: the alarm is set when a tool first waits."""

    @tool(undo="back", timeout_s=0.5)  # so short that each call would have a timer of its own
    async def run() -> dict:
        return {"ref": "x"}

    @tool(undo="back", timeout_s=0.5)
    async def wait() -> dict:
        await asyncio.sleep(0)
        return {"ref": "x"}

    async with Coordinator.open(counting, [run, wait, back], lease_s=3600) as coordinator:
        await coordinator.run(chain("run", "wait"))
        effort = Effort(monkeypatch)
        await coordinator.run(chain("run", "run", "run", "run"))
        without = effort.timers
        effort.clear()
        await coordinator.run(chain("wait", "wait", "wait", "wait"))
        assert effort.timers == without + 4
        asyncio.get_running_loop().set_task_factory(None)


async def test_a_call_that_guards_do_not_keep_goes_the_short_way(counting) -> None:
    """And one that a rule matches, or whose tool rests, is authorized in full: the short way lets nothing slip through."""
    rules = {"rules": [{"name": "no nines", "when": [{"param": "n", "op": "==", "value": 9}], "verdict": "deny"}]}
    made: list[int] = []

    @tool(undo="unmake", breaker=True)
    async def make(n: int) -> dict:
        made.append(n)
        if n == 7:
            raise OSError(5, "broken")
        return {"n": n}

    @tool
    async def unmake(n: int) -> dict:
        return {"n": n}

    def plan(*numbers: int) -> dict[str, Any]:
        steps = [{"step_id": at, "tool": "make", "params": {"n": n}} for at, n in enumerate(numbers)]
        return {"steps": [{**step, "retry": {"max_attempts": 1}} for step in steps]}

    async with Coordinator.open(counting, [make, unmake], policy=rules, limits={"guard_wait_s": 0}) as coordinator:
        assert (await coordinator.run(plan(1, 2))).completed
        blocked = await coordinator.run(plan(3, 9))
        assert (blocked.status, made) == ("COMPENSATED", [1, 2, 3])
        for _ in range(3):
            await coordinator.run(plan(7))
        assert made.count(7) == 3
        resting = await coordinator.run(plan(8))
        assert (resting.status, made.count(8)) == ("COMPENSATED", 0)
        stats = (await coordinator.tool_stats())["make"]
        assert (stats["calls"], stats["done"], stats["blocked"], stats["rejected"]) == (8, 3, 1, 1)


def test_a_glance_says_what_the_long_look_would(monkeypatch) -> None:
    """Whenever ``decide`` takes a saga for quiet, all that it would otherwise look at gives nothing, now and later."""
    glance = deciding._is_quiet
    seen: Counter[bool] = Counter()

    def checked(state: Any) -> bool:
        quiet = glance(state)
        if quiet:
            seen[state.backward] += 1
            monkeypatch.setattr(deciding, "_is_quiet", lambda _: False)
            for now in (state.at, state.at + 10**10):
                assert not decide(state, now, deciding.Capabilities(planner=True))
            monkeypatch.setattr(deciding, "_is_quiet", checked)
        return quiet

    monkeypatch.setattr(deciding, "_is_quiet", checked)
    for seed in range(300):
        dice = random.Random(seed)
        Simulation(dice, dice.choice([0.3, 0.6, 1.0])).run()
    assert seen[False] > 300
    assert seen[True] > 100


class Catalog:
    def spec(self, name: str) -> ToolSpec | None:
        return ToolSpec(name=name, keyed=True)

    def names(self) -> list[str]:
        return []


def work_per_step(length: int, *, wide: bool) -> float:
    """Python calls that decide, evolve and interpret make for each step of a saga that fails at its end and is undone."""
    steps = [
        {"step_id": number, "tool": "t", "rollback": {"tool": "u", "params": {"ref": f"$output.step_{number}.ref"}}}
        for number in range(length)
    ]
    if wide:
        steps = [{**step, "depends_on": []} for step in steps]
    plan = load_plan({"steps": steps})
    compiled = compile_plan(plan, Catalog())
    state = begin(r.SagaStarted(at=1, saga_id="s", plan={}, digest="d", seed="e"), compiled)
    calls = 0

    def count(_frame: Any, event: str, _arg: Any) -> None:
        nonlocal calls
        calls += event == "call"

    def follow() -> None:
        queue = []
        while True:
            found = decide(state, 1)
            for record in found:
                evolve(state, record)
                if isinstance(record, r.StepIntended):
                    queue.append(CallTool(state.plan.by_key[record.step], record.direction, record.attempt))
            if found:
                continue
            if not queue:
                return
            evolve(state, interpret(state, queue.pop(), Done({"ref": 1}), 1, 0.5))
            if state.remaining == 1 and not state.turns:
                evolve(state, r.CancelRequested(at=1))

    sys.setprofile(count)
    try:
        follow()
    finally:
        sys.setprofile(None)
    assert state.status == "COMPENSATED"
    return calls / length


@pytest.mark.parametrize("wide", [False, True])
def test_the_cost_of_a_step_does_not_grow_with_the_saga(wide: bool) -> None:
    """Ten times as many steps, the same work for each, forward and backward."""
    assert work_per_step(2000, wide=wide) < 1.2 * work_per_step(200, wide=wide)


def test_the_search_terms_of_a_plan_are_found_once_and_again_if_it_grows(monkeypatch) -> None:
    """Sagas of one plan share them; a plan with one more step has those of its tool, too."""
    found: list[int] = []
    look = search_terms._tools_from
    monkeypatch.setattr(search_terms, "_tools_from", lambda state, at: found.append(at) or look(state, at))
    steps = [{"step_id": at, "tool": name, "kind": "irreversible"} for at, name in enumerate("abac")]
    plan, longer = (compile_plan(load_plan({"steps": some}), Catalog()) for some in (steps[:3], steps))
    sagas = [begin(r.SagaStarted(at=1, saga_id=name, plan={}, digest="d", seed="e"), plan) for name in "xy"]
    assert [search_terms.terms_of(saga) for saga in sagas] == [["*", "tool:a", "tool:b"]] * 2
    assert len(found) == 1
    plan.steps.append(longer.steps[3])
    assert search_terms.terms_of(sagas[0]) == ["*", "tool:a", "tool:b", "tool:c"]
    assert search_terms.terms_from(sagas[0], 3) == ["tool:c"]


class Frames:
    """Counts the calls of the engine's own Python functions, beside those of the store and of tasks by the clock.

    ``room``: only those of that room.
    """

    def __init__(self, room: str = "") -> None:
        self.count = 0
        self._room = str(Path(saga_engine.__file__).parent / room)
        self._store = str(Path(saga_engine.stores.__file__).parent)

    def __enter__(self) -> Self:
        sys.setprofile(self._see)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)

    def _see(self, frame: Any, event: str, _arg: Any) -> None:
        name = frame.f_code.co_filename
        if event == "call" and name.startswith(self._room) and not name.startswith(self._store):
            task = asyncio.current_task() if asyncio._get_running_loop() is not None else None
            self.count += task is None or task.get_name() not in BY_THE_CLOCK


async def frames_per_step(
    coordinator: Coordinator, names: Sequence[str], calls: int, status: str, wanted: float = 0
) -> float:
    """The least of some runs: on a busy machine a run does what follows from time as well, so as many as are wanted."""
    plan = load_plan(chain(*names))
    await coordinator.run(plan)  # what is done once for each plan is done
    counts = []
    while len(counts) < 3 or (len(counts) < 20 and min(counts) / calls >= wanted > 0):
        with Frames() as frames:
            outcome = await coordinator.run(plan)
        assert outcome.status == status
        counts.append(frames.count)
    return min(counts) / calls


async def test_what_the_engine_does_for_a_call_has_a_budget(counting) -> None:
    """Function calls, forward and backward: whoever adds one to each step finds it here, and says what it is for.

    A call counts once for each time that it runs: a coroutine that waited counts again. (What is beyond 82 is
    the one count of steps, for the head of a saga whose status changes, and what a busy machine does by the clock in
    each run. One function more for each step is more than half a call.)
    """
    async with Coordinator.open(counting, [forth, back, refuse], lease_s=3600) as coordinator:
        forward = await frames_per_step(coordinator, ["forth"] * 50, 50, "COMPLETED", 64.5)
        both = await frames_per_step(coordinator, ["forth"] * 50 + ["refuse"], 101, "COMPENSATED", 82.5)
    assert forward < 64.5
    assert both < 82.5


@tool(undo="unbook")
async def book(city: str, nights: int, guest: dict) -> dict:
    return {"order": 1}


@tool
async def unbook(order: int) -> dict:
    return {}


def booking(number: int, step: str) -> dict[str, Any]:
    """A plan as an agent sends it; ``step``: the beginning of the ids of its steps."""
    guest = {"name": f"Guest {number}", "email": f"{number}@example.com"}
    return {
        "steps": [
            {"step_id": f"{step}{at}", "tool": "book", "params": {"city": "Lisbon", "nights": number, "guest": guest},
             "rollback": {"tool": "unbook", "params": {"order": f"$output.step_{step}{at}.order"}}}
            for at in range(3)
        ]
    }  # fmt: skip


async def test_what_a_new_plan_costs_has_a_budget(counting) -> None:
    """Function calls beyond those for a plan that was run before: with other values, and with steps never seen before.

    Without what is known of its shape a plan with other values would cost as much as one with other steps.
    """
    async with Coordinator.open(counting, [book, unbook], lease_s=3600) as coordinator:

        async def least(plans: Sequence[Any]) -> int:
            for plan in plans[:3]:  # its shape is known then
                await coordinator.run(plan)
            counts = []
            for plan in plans[3:]:
                with Frames() as frames:
                    assert (await coordinator.run(plan)).completed
                counts.append(frames.count)
            return min(counts)

        same = await least([load_plan(booking(0, "s"))] * 8)
        values = await least([booking(number, "s") for number in range(1, 9)])
        steps = await least([booking(1, f"of{number}-") for number in range(8)])
    assert values - same < 180
    assert steps - same < 810


async def test_what_a_call_of_a_session_costs_has_a_budget(counting) -> None:
    """Function calls: of an agent that calls its tools one by one."""
    async with (
        Coordinator.open(counting, [forth, back], lease_s=3600) as coordinator,
        coordinator.session("s") as agent,
    ):
        await agent.call("forth")
        counts = []
        for _ in range(5):
            with Frames() as frames:
                for _ in range(10):
                    await agent.call("forth")
            counts.append(frames.count)
    assert min(counts) / 10 < 345


async def test_spans_cost_nothing_when_off_and_little_when_on(counting) -> None:
    """Off: the same function calls and not one of the room of the spans. On: a bounded number for each step."""
    exporter = InMemorySpanExporter()
    spans = Spans(exporter=exporter, delay_s=3600)
    async with (
        Coordinator.open(counting, [forth, back, refuse], lease_s=3600) as off,
        Coordinator.open(counting, [forth, back, refuse], lease_s=3600, spans=spans) as on,
    ):
        plain = await frames_per_step(off, ["forth"] * 50, 50, "COMPLETED")
        with Frames("telemetry") as frames:
            await off.run(chain(*["forth"] * 50))
        spanned = await frames_per_step(on, ["forth"] * 50, 50, "COMPLETED")
    spans.close()
    assert frames.count == 0
    assert spanned - plain < 24
    assert len(exporter.get_finished_spans()) == 4 * 52


async def test_the_whole_cost_of_a_step_does_not_grow_with_the_saga(counting) -> None:
    """Not only the core's: also what the driver, the performer and the writer do for a step."""
    async with Coordinator.open(counting, [forth, back, refuse], lease_s=3600) as coordinator:
        short = await frames_per_step(coordinator, ["forth"] * 10, 10, "COMPLETED")
        long = await frames_per_step(coordinator, ["forth"] * 500, 500, "COMPLETED")
        assert long < 1.05 * short
        short = await frames_per_step(coordinator, ["forth"] * 10 + ["refuse"], 21, "COMPENSATED")
        long = await frames_per_step(coordinator, ["forth"] * 500 + ["refuse"], 1001, "COMPENSATED")
        assert long < 1.05 * short


async def frames_of_a_take_over(coordinator: Coordinator, length: int) -> int:
    """What the engine does to make a queued saga's state of its journal, once its plan is known."""
    handle = await coordinator.submit(chain(*["forth"] * length), detach=True)
    records = await read_records(coordinator.store, handle.saga_id)
    await drivable(handle.saga_id, records, coordinator.tools)
    with Frames() as frames:
        state = await drivable(handle.saga_id, records, coordinator.tools)
    assert len(state.plan.steps) == length
    return frames.count


async def test_a_queued_saga_of_a_known_plan_costs_the_same_whatever_its_length(counting) -> None:
    """Whether it is large, and which tools it needs, is not found by a look at each of its steps."""
    async with Coordinator.open(counting, [forth, back]) as coordinator:
        assert await frames_of_a_take_over(coordinator, 60) == await frames_of_a_take_over(coordinator, 3)


async def test_ten_thousand_steps_in_one_saga(tmp_path) -> None:
    """The largest plan there may be runs through."""
    async with Coordinator.open(f"embedded://{tmp_path}", [forth, back]) as coordinator:
        outcome = await coordinator.run(chain(*["forth"] * 10_000))
    assert outcome.completed
