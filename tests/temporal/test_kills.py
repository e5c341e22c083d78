"""Workers that are killed and frozen at exact points; what really happened outside decides who is right."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from temporalio.service import RPCError, RPCStatusCode
from temporalio.testing import ActivityEnvironment

from saga_engine import ToolContext, tool
from saga_engine.core.effects import NotDone, Unknown
from saga_engine.errors import LeaseLost
from saga_engine.plan.limits import MAX_CRASHES
from saga_engine.temporal import payloads, pulse
from saga_engine.temporal.activity_calls import what_came
from saga_engine.testing.faults import VARIABLE, Faults
from saga_engine.testing.ledger import OutsideLedger
from tests.kill.polling import eventually
from tests.kill.world import ENDS, PLANS, TOOLS, World, step
from tests.support.servers import GIVE_UP_S
from tests.temporal.conftest import Place
from tests.temporal.victim import VARIANTS, leave

#: How long a killed worker's calls are left to it. A living one must never be silent for so long, on a busy machine either.
LEASE_S = 5.0
_ROOT = Path(__file__).parents[2]
#: The plans with steps side by side.
_PARALLEL = frozenset({"graph"})
#: How many cases are under way at a time. Most of their time they wait for a lease to end.
_AT_ONCE = 8


class Case(NamedTuple):
    plan: str
    number: int
    when: str


SHORT = {
    "keyed": [
        Case("succeeds", 2, "after"),
        *(Case("fails", number, when) for number in (2, 4) for when in ("before", "after")),
    ],
    "probed": [Case("fails", 2, "after"), Case("fails", 4, "before")],
    "bare": [Case("fails", 2, "before"), Case("fails", 4, "after"), Case("graph", 3, "before")],
}
LONG = [Case(plan, number, when) for plan in PLANS for number in range(1, 6) for when in ("before", "after")]


def _playable(name: str) -> dict[str, Any]:
    """The plan as the official test server can play it: with parallel steps, tries follow each other without a wait.

    When a timer fires during the very turn that cancels it, because a parallel step's answer came first, that server
    refuses the turn, forgets that the turn is open, and gives the workflow no other one for ever (sdk-java issues 2606
    and 3088; a workflow of ten lines shows it, too). Temporal itself takes such a turn. The waits here are of 1 or 2 ms,
    as long as a turn, so most parallel cases met with that. A step alone cannot: while it waits, nothing else comes.
    """
    plan = PLANS[name]
    if name not in _PARALLEL:
        return plan
    retry = {"base_s": 0}
    return plan | {
        "steps": [each | {"retry": retry, "rollback": each["rollback"] | {"retry": retry}} for each in plan["steps"]]
    }


def _timers(histories: list[Any]) -> int:
    return sum(event.HasField("timer_started_event_attributes") for history in histories for event in history.events)


class Scene:
    """One ledger for all cases of a test; workers in processes of their own, and others in this one."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ledger = World.ledger = OutsideLedger(folder / "world.db")
        World.faults = Faults()
        World.folder = folder

    @asynccontextmanager
    async def victim(self, place: Place, variant: str, fault: str = "") -> AsyncIterator[asyncio.subprocess.Process]:
        told = {
            "url": place.url,
            "queue": place.queue,
            "ledger": str(self.ledger.path),
            "folder": str(self.folder),
            "variant": variant,
            "lease_s": LEASE_S,
        }
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.temporal.victim", json.dumps(told)),
            cwd=_ROOT,
            env=os.environ | {VARIABLE: fault},
            stdin=asyncio.subprocess.DEVNULL,
        )
        try:
            yield process
        finally:
            if process.returncode is None:
                process.kill()
            await process.wait()

    async def submitted(self, place: Place, plan: dict[str, Any], name: str) -> str:
        async with place.client(TOOLS["keyed"], lease_s=LEASE_S) as coordinator:
            return (await coordinator.submit(plan, saga_id=place.saga_id(name))).saga_id


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


async def _killed_and_rescued(scene: Scene, place: Place, variant: str, case: Case) -> list[str]:
    """Play one case; returns what the report and the world disagree about, or what else is wrong."""
    plan = _playable(case.plan)
    events = 20 if variant == "keyed" else 0  # some go on in other runs meanwhile
    async with place.client(TOOLS[variant], lease_s=LEASE_S, events=events) as coordinator:
        saga_id = (await coordinator.submit(plan, saga_id=place.saga_id(case.plan))).saga_id
        async with scene.victim(place, variant, f"call:{case.number}:{case.when}") as victim:
            ended = asyncio.create_task(coordinator.wait(saga_id))
            died = asyncio.create_task(victim.wait())
            await asyncio.wait([ended, died], return_when=asyncio.FIRST_COMPLETED)
            reached = died.done()
        async with place.worker(TOOLS[variant], lease_s=LEASE_S):
            outcome = await ended
            person = Person(scene)
            while outcome.status == "ESCALATED":
                outcome = await person.answers(coordinator, outcome)
            histories = await place.replayed(coordinator, saga_id)
    wrong = scene.ledger.compare(outcome, plan)
    if case.plan in _PARALLEL and _timers(histories):
        wrong.append("it had timers, which the test server may be stuck with")
    if reached and victim.returncode != -signal.SIGKILL:
        wrong.append(f"the victim ended with {victim.returncode}")
    # A step of which a person says that it did not happen has failed.
    if outcome.status != ("COMPENSATED" if person.denied else ENDS[case.plan]):
        wrong.append(f"it ended {outcome.status}")
    return [f"{variant} {case}: {text}" for text in wrong]


class Person:
    """Looks at the world, and says what is there."""

    def __init__(self, scene: Scene) -> None:
        self.denied = False
        self._ledger = scene.ledger

    async def answers(self, coordinator: Any, outcome: Any) -> Any:
        question = outcome.body["questions"][0]
        step_id, forward = str(question["step_id"]), question["direction"] == "forward"
        lines = [
            line
            for line in self._ledger.lines(outcome.saga_id, what="applied")
            if line.step_id == step_id and line.direction == question["direction"]
        ]
        if forward:
            said = ("happened", lines[0].output) if lines else ("not-happened", None)
            self.denied |= not lines
        else:
            said = ("happened", None) if lines else ("retry", None)
        mark = question["outlooks"][said[0]]["mark"]
        return await coordinator.resolve(outcome.saga_id, step_id, said[0], output=said[1], by="ada", expect=mark)


async def _all(scene: Scene, new_place: Callable[[], Place], variant: str, cases: list[Case]) -> list[str]:
    gate = asyncio.Semaphore(_AT_ONCE)

    async def one(case: Case) -> list[str]:
        async with gate, asyncio.timeout(GIVE_UP_S):
            return await _killed_and_rescued(scene, new_place(), variant, case)

    return [text for found in await asyncio.gather(*map(one, cases)) for text in found]


@pytest.mark.parametrize("variant", SHORT)
async def test_killed_anywhere(variant: str, scene: Scene, new_place: Callable[[], Place]) -> None:
    """A worker killed before or after a call, forward or backward: nothing happens twice, nothing is lost, none is stuck."""
    assert await _all(scene, new_place, variant, SHORT[variant]) == []


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("variant", list(TOOLS))
async def test_killed_anywhere_in_every_plan(variant: str, scene: Scene, new_place: Callable[[], Place]) -> None:
    """The same at every call of every plan, for every way to settle a doubt."""
    assert await _all(scene, new_place, variant, LONG) == []


async def test_killed_and_restarted_as_another_process(scene: Scene, place: Place) -> None:
    """A worker killed in mid-call and started again, no other worker being there: the saga goes on in the new process."""
    plan = PLANS["fails"]
    saga_id = await scene.submitted(place, plan, "again")
    for fault in ("call:2:after", "call:2:before", ""):
        async with scene.victim(place, "keyed", fault) as victim:
            if fault:
                assert await victim.wait() == -signal.SIGKILL
                continue
            async with place.client(lease_s=LEASE_S) as coordinator:
                outcome = await coordinator.wait(saga_id)
            victim.send_signal(signal.SIGTERM)
            assert await victim.wait() == 0
    assert outcome.status == "COMPENSATED"
    assert scene.ledger.compare(outcome, plan) == []
    in_doubt = [step for step in outcome.body["steps"] if step["attempts"] > 1]
    assert in_doubt, "a kill in mid-call must have left a call in doubt"


async def test_one_attempt_does_not_switch_off_settling_by_key(scene: Scene, new_place: Callable[[], Place]) -> None:
    """``max_attempts = 1``: a call that died with its worker is made once more under its key, and no operator is asked."""
    peek = {"steps": [{"step_id": 1, "tool": "look", "params": {}}]}

    async def settled(plan: dict[str, Any], fault: str, status: str) -> list[str]:
        place = new_place()
        async with place.client(VARIANTS["once"], lease_s=2 * LEASE_S) as coordinator, asyncio.timeout(GIVE_UP_S):
            saga_id = (await coordinator.submit(plan, saga_id=place.saga_id("once"))).saga_id
            async with scene.victim(place, "once", fault) as victim:
                assert await victim.wait() == -signal.SIGKILL
            async with place.worker(VARIANTS["once"], lease_s=2 * LEASE_S):
                outcome = await coordinator.wait(saga_id)
                records = await coordinator.history(saga_id)
                await place.replayed(coordinator, saga_id)
        asked = [f"asked: {record['kind']}" for record in records if record["k"] == "StepEscalated"]
        wrong = [] if plan is peek else scene.ledger.compare(outcome, plan)
        lost = [record for record in records if record["k"] == "StepInDoubt" and record.get("lost")]
        return [f"{fault} {text}" for text in [*asked, *wrong, *([] if len(lost) == 1 else [f"{lost} in doubt"])]] + (
            [] if outcome.status == status else [f"{fault}: it ended {outcome.status}"]
        )

    found = await asyncio.gather(
        settled(PLANS["succeeds"], "call:2:after", "COMPLETED"),
        settled(PLANS["fails"], "call:4:after", "COMPENSATED"),
        settled(peek, "call:1:after", "COMPLETED"),
    )
    assert [text for texts in found for text in texts] == []


async def test_a_probe_that_ends_its_workers_is_asked_three_times(scene: Scene, place: Place) -> None:
    """The law of crash loops: each end counts as a crash and not as an answer, and after three a person is asked."""
    plan = {"steps": [{"step_id": 1, "tool": "vanish", "params": {}}]}
    async with place.client(VARIANTS["fatal"], lease_s=LEASE_S) as coordinator, asyncio.timeout(GIVE_UP_S):
        saga_id = (await coordinator.submit(plan, saga_id=place.saga_id("fatal"))).saga_id
        asked = asyncio.create_task(coordinator.wait(saga_id))
        while not asked.done():
            async with scene.victim(place, "fatal") as victim:
                died = asyncio.create_task(victim.wait())
                await asyncio.wait([asked, died], return_when=asyncio.FIRST_COMPLETED)
        outcome = await asked
        async with place.worker(VARIANTS["fatal"], lease_s=LEASE_S):
            records = await coordinator.history(saga_id)
            await place.replayed(coordinator, saga_id)
    (question,) = outcome.body["questions"]
    assert question["error"]["error_code"] == "takeovers_without_progress"
    assert sum(record.get("lost", False) for record in records) == MAX_CRASHES
    kinds = Counter(record["k"] for record in records)
    assert kinds["ProbeIntended"] == kinds["ProbeFailed"]


async def test_a_frozen_worker_wakes_up_too_late(scene: Scene, place: Place) -> None:
    """A worker frozen in mid-call is settled without it; when it wakes up, what it still does is a repeat under the same key."""
    plan = PLANS["succeeds"]
    saga_id = await scene.submitted(place, plan, "frozen")
    frozen = scene.folder / "frozen"
    async with scene.victim(place, "keyed", f"call:2:before:pause:{frozen}") as victim:
        await eventually(frozen.exists, "the worker to freeze")
        async with place.client(TOOLS["keyed"], lease_s=LEASE_S) as coordinator:
            async with place.worker(TOOLS["keyed"], lease_s=LEASE_S):
                outcome = await coordinator.wait(saga_id)
            victim.send_signal(signal.SIGCONT)
            victim.send_signal(signal.SIGTERM)
            assert await victim.wait() == 0
            assert (await coordinator.show(saga_id, full=True)).to_dict() == outcome.to_dict()
    assert outcome.completed
    assert scene.ledger.compare(outcome, plan) == []


@pytest.mark.slow
async def test_a_worker_frozen_before_it_began_begins_nothing(scene: Scene, place: Place) -> None:
    """A call that a worker had taken when it froze is settled without it; when it wakes up it asks first, and makes no call."""
    saga_id = await scene.submitted(place, {"steps": [step(1), step(2)]}, "asleep")
    frozen = scene.folder / "frozen"
    async with scene.victim(place, "keyed", f"look:1:before:pause:{frozen}") as victim:
        await eventually(frozen.exists, "the worker to freeze")
        async with place.client(TOOLS["keyed"], lease_s=LEASE_S) as coordinator:
            async with place.worker(TOOLS["keyed"], lease_s=LEASE_S):
                outcome = await coordinator.wait(saga_id)
            before = scene.ledger.lines()
            victim.send_signal(signal.SIGCONT)
            victim.send_signal(signal.SIGTERM)
            assert await victim.wait() == 0
    assert outcome.completed
    assert outcome.body["steps"][0]["attempts"] == 2, "the frozen worker must have had the first call"
    assert scene.ledger.lines() == before


async def test_a_call_that_only_waited_when_its_worker_died_is_not_in_doubt(scene: Scene, place: Place) -> None:
    """Nobody is asked about it, and it is made once by the next worker; the call that it waited for is in doubt."""

    @tool(undo="leave", resource="room:{room}", timeout_s=600)
    async def hold(room: str, ctx: ToolContext) -> dict:
        scene.ledger.sent(ctx, "hold", {"room": room})
        return {}

    tools = [hold, leave]
    plan = {"steps": [{"step_id": 1, "tool": "hold", "params": {"room": "blue"}}]}
    async with place.client(tools, lease_s=LEASE_S) as coordinator:
        async with scene.victim(place, "rooms"):
            holder = (await coordinator.submit(plan, saga_id=place.saga_id("holder"))).saga_id
            await eventually(lambda: bool(scene.ledger.lines(holder)), "the first call to begin")
            waiter = (await coordinator.submit(plan, saga_id=place.saga_id("waiter"))).saga_id

            async def told() -> bool:
                found = await coordinator.sagas.client.get_workflow_handle(waiter).describe()
                return any(each.heartbeat_details.payloads for each in found.raw_description.pending_activities)

            await eventually(told, "the worker to say that the second call waits")
        async with place.worker(tools, lease_s=LEASE_S):
            asked, outcome = await coordinator.wait(holder), await coordinator.wait(waiter)
        kinds = [record["k"] for record in await coordinator.history(waiter)]
        await place.replayed(coordinator, waiter)
    assert asked.body["questions"][0]["kind"] == "in-doubt"
    assert outcome.completed
    assert not {"StepInDoubt", "StepEscalated"} & set(kinds)
    assert len(scene.ledger.lines(waiter, what="sent")) == 1


async def test_a_call_begins_only_when_temporal_knows() -> None:
    """A call that waited for a guard is made once the mark is taken back, and not at all if that is not acknowledged."""
    said: list[Any] = []

    class Handle:
        async def heartbeat(self, *details: Any, rpc_timeout: timedelta | None = None) -> None:
            said.append(details)
            if lost and not details:
                raise RPCError("gone", RPCStatusCode.NOT_FOUND, b"")

    class Client:
        def get_async_activity_handle(self, *, task_token: bytes) -> Handle:
            return Handle()

    async def waited() -> None:
        async with pulse.beating() as beats:
            call: Any = None
            assert beats.waits(call, False) is None
            assert beats.waits(call, True) is None
            assert beats.waits(call, True) is None
            await asyncio.sleep(0)
            begun = beats.waits(call, False)
            assert begun is not None
            await begun
            assert beats.waits(call, False) is None
            said.append("called")

    environment = ActivityEnvironment(client=Client())  # type: ignore[arg-type]
    environment.info = dataclasses.replace(environment.info, heartbeat_timeout=timedelta(seconds=15))
    lost = False
    await environment.run(waited)
    assert said == [(payloads.WAITS,), (), "called"]
    lost, said[:] = True, []
    with pytest.raises(LeaseLost):
        await environment.run(waited)
    assert said == [(payloads.WAITS,), ()]


async def test_a_worker_that_slept_may_begin_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The permission to begin a call ends when heartbeats have not come through for as long as Temporal waits for them."""
    now = [100.0]
    monkeypatch.setattr(pulse.time, "clock_gettime", lambda _: now[0])
    environment = ActivityEnvironment()
    environment.info = dataclasses.replace(environment.info, heartbeat_timeout=timedelta(seconds=15))

    async def asked() -> list[str]:
        said = []
        async with pulse.beating() as beats:
            for silent_s in (14.0, 15.0):
                now[0] = 100.0 + silent_s
                try:
                    beats.permit()
                    said.append("may")
                except LeaseLost:
                    said.append("may not")
        return said

    assert await environment.run(asked) == ["may", "may not"]


def test_what_a_lost_activity_tells() -> None:
    """'Not done' is said only where it is certain: nobody had the call, it waited for a guard, or its worker says so."""
    from temporalio.exceptions import ActivityError, ApplicationError, CancelledError, RetryState, TimeoutType
    from temporalio.exceptions import TimeoutError as ActivityTimeout

    def end(cause: BaseException | None, *, probing: bool = False) -> Any:
        error = ActivityError(
            "x",
            scheduled_event_id=1,
            started_event_id=2,
            identity="",
            activity_type="a",
            activity_id="1",
            retry_state=RetryState.NON_RETRYABLE_FAILURE,
        )
        error.__cause__ = cause
        return what_came(error, probing=probing)

    def timeout(kind: TimeoutType, *said: str) -> BaseException:
        return ActivityTimeout("late", type=kind, last_heartbeat_details=said)

    for certain in (
        timeout(TimeoutType.SCHEDULE_TO_START),
        timeout(TimeoutType.HEARTBEAT, payloads.WAITS),
        timeout(TimeoutType.START_TO_CLOSE, payloads.WAITS),
        ApplicationError("slept", type="saga-not-called"),
    ):
        outcome = end(certain)
        assert isinstance(outcome, NotDone)
        assert not outcome.counted
        # That a probe was not made says nothing of the call that it was to ask about.
        assert isinstance(end(certain, probing=True), Unknown)
    for open_end, lost in (
        (timeout(TimeoutType.START_TO_CLOSE), False),
        (timeout(TimeoutType.HEARTBEAT), True),
        (timeout(TimeoutType.SCHEDULE_TO_CLOSE), False),
        (ApplicationError("boom", type="RuntimeError"), False),
        (CancelledError(), True),
        (None, True),
    ):
        outcome = end(open_end)
        assert isinstance(outcome, Unknown)
        assert outcome.lost is lost, "whether its process is gone"
