"""The laws that hold for every saga after the run; each violation is a sentence.

The ledger, the engine's report and the journal are compared. Nothing here knows the faults of the run: the laws are the
same without faults.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from dev.chaos import (
    agent,
    child_laws,
    event_laws,
    late_laws,
    list_laws,
    plan_laws,
    plans,
    session_laws,
    stop_laws,
    ticking,
    value_laws,
)
from dev.chaos.stop_laws import read_requests, requests_path
from dev.chaos.stops import Window
from dev.chaos.told import Told
from dev.chaos.tools import make_tools
from dev.chaos.values import Entry, read_log, values_path
from dev.chaos.world import LATE, UNDO, ledger_path, root_of
from saga_engine import Coordinator, SagaError
from saga_engine.analysis.replay import Replay
from saga_engine.analysis.trace import DeclaredTools
from saga_engine.analysis.trace_file import read, verify
from saga_engine.core import transitions as t
from saga_engine.ports import ListedEvent
from saga_engine.testing.ledger import Line, OutsideLedger
from saga_engine.tools.registry import ToolRegistry
from saga_engine.tools.schema_check import SchemaCheck

#: Outcomes of a process that was frozen in between may be processed together although they are minutes apart.
_TOGETHER_MS = 3_600_000
#: Records after which a call that is neither keyed nor probed may be made again: it was not made or not done, another
#: one replaces it, or an operator orders it.
_ALLOWS_ANOTHER = frozenset(
    {"StepQueued", "StepRetryScheduled", "StepBlocked", "QuestionResolved", "FallbackChosen", "StepDeferred"}
)
#: Records after which it may have happened.
_MAY_HAVE_HAPPENED = frozenset({"StepIntended", "StepBegun"})
#: Records of a step that change neither. (A permanent success or failure is not made again without another record.)
_CHANGES_NEITHER = frozenset(
    {
        *("StepSucceeded", "StepWaiting", "StepFailed", "StepInDoubt", "StepEscalated", "StepUnsettled"),
        *("ApprovalExpired", "StepSkipped", "OutputChecked", "ChildEnded", "EventArrived", "UndoLooked"),
        *("ProbeIntended", "ProbeFailed", "CompensationRequested", "CompensationStarted"),
        *(
            "CallAdded",
            "EachExpanded",
            "EffectReused",
            "PlannerAsked",
            "PlannerGaveUp",
            "CompensationProposed",
            "SessionKept",
        ),
    }
)
#: The kinds that the law of repeats covers; a test compares it with all kinds.
CHECKED_KINDS = _ALLOWS_ANOTHER | _MAY_HAVE_HAPPENED | _CHANGES_NEITHER
_AT_ONCE = 16
#: A call: its step, its direction, and its place in an undo of several.
Place = tuple[str, str, int]


class Share(NamedTuple):
    """The sagas of one ledger, to be checked by one process. Times are Unix ms of the store's clock."""

    url: str
    folder: str
    share: int
    seed: int
    begun_ms: int
    ended_ms: int
    numbers: list[int]
    sessions: list[int]
    ticks: list[str]
    stops: Sequence[Window] = ()


class Found(NamedTuple):
    """The result: figures, and violations by saga."""

    figures: Counter[str]
    breaches: dict[str, list[str]]


class ReadLedger(OutsideLedger):
    """A ledger without further writes, read once."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._by_saga: dict[str, list[Line]] = {}
        for line in super().lines():
            self._by_saga.setdefault(line.saga_id, []).append(line)

    def lines(self, saga_id: str | None = None, *, what: Any = None) -> Sequence[Line]:
        found = self._by_saga.get(saga_id, []) if saga_id else [one for each in self._by_saga.values() for one in each]
        return [line for line in found if what is None or line.what == what]

    def sagas(self) -> set[str]:
        return set(self._by_saga)


def check(share: Share) -> Found:
    """Check all sagas of a share."""
    return asyncio.run(_check(share))


async def _check(share: Share) -> Found:
    async with Coordinator.open(share.url, make_tools()) as coordinator:
        return await Checking(share, coordinator).all()


class Checking:
    """The check of one share."""

    def __init__(self, share: Share, coordinator: Coordinator) -> None:
        folder = Path(share.folder)
        self._share = share
        self._coordinator = coordinator
        self._tools = coordinator.tools
        self._ledger = ReadLedger(ledger_path(folder, share.share))
        self._values: dict[str, list[Entry]] = {}  # by the saga of the plan: of its children and its undo as well
        for entry in read_log(values_path(folder, share.share)):
            self._values.setdefault(root_of(entry.register.partition("/")[0]), []).append(entry)
        self._requests = read_requests(requests_path(folder, share.share))
        self._scripts = {each.saga_id: each for each in (agent.script(share.seed, at) for at in share.sessions)}
        self._numbers = {plans.saga_id(share.seed, number): number for number in share.numbers}
        known = {*self._scripts, *self._numbers, *share.ticks}
        self._found = Found(Counter(), _strangers(share, self._ledger, known, self._numbers))
        self._gate = asyncio.Semaphore(_AT_ONCE)
        self._late: dict[str, list[str]] = {}  # the sagas that handle late events, by the saga that had waited

    async def all(self) -> Found:
        """Check every saga."""
        for saga_id in await late_laws.all_late(self._coordinator):
            self._late.setdefault(root_of(saga_id), []).append(saga_id)
        await asyncio.gather(*map(self._one, (*self._numbers, *self._scripts, *self._share.ticks)))
        return self._found

    async def _one(self, saga_id: str) -> None:
        async with self._gate:
            try:
                told = await _read(self._coordinator, saga_id)
            except SagaError as error:
                self._found.breaches[saga_id] = [f"it cannot be read: {error.code}: {error}"]
                return
            wrong = self._engine(told)
            plan = None
            if saga_id in self._scripts:
                wrong += _session_laws(self._scripts[saga_id], self._ledger, told)
            elif saga_id in self._share.ticks:
                wrong += [*self._ledger.compare(told.body, ticking.PLAN), *_blind_repeats(ticking.PLAN, told)]
            else:
                plan = plans.plan(self._share.seed, self._numbers[saga_id])
                wrong += await self._plan(told, plan)
            _count(self._found.figures, told, self._ledger.lines(saga_id))
            if told.body.get("undone_by") and plan is not None:
                wrong += await self._undo(told, plan)
            if wrong:
                self._found.breaches[saga_id] = wrong

    def _engine(self, told: Told) -> list[str]:
        """What holds for every saga."""
        stops, requests = self._share.stops, self._requests.get(told.body["saga_id"], ())
        self._found.figures.update(stop_laws.figures(stops, requests))
        stopped = stop_laws.breaches(stops, requests, told)
        return [*_end(told), *_journal(told, self._share), *_trace(told, self._tools), *stopped]

    async def _plan(self, told: Told, plan: Mapping[str, Any]) -> list[str]:
        saga_id = told.body["saga_id"]
        channels = plans.channels(plan, saga_id) or [(plans.EVENT, saga_id)]
        events = [event for channel in channels for event in await self._coordinator.events(*channel)]
        errand = plans.errand(self._share.seed, self._numbers[saga_id])
        wrong = [*self._ledger.compare(child_laws.own_steps(told.body, plan), plan)]
        wrong += [*_blind_repeats(plan, told), *self._value_laws(told)]
        wrong += plan_laws.breaches(plan, errand.events, self._ledger, told, events)
        wrong += list_laws.breaches(plan, told)
        self._found.figures.update(plan_laws.figures(told) + list_laws.figures(told) + event_laws.figures(plan, told))
        return wrong + await self._children(told, plan) + await self._late_sagas(told, plan, events)

    async def _late_sagas(self, told: Told, plan: Mapping[str, Any], events: Sequence[ListedEvent]) -> list[str]:
        """The sagas that handle the late events of a saga: each is a saga like any other."""
        wrong: list[str] = []
        late: list[Told] = []
        for saga_id in self._late.get(told.body["saga_id"], ()):
            each = await _read(self._coordinator, saga_id)
            late.append(each)
            _count(self._found.figures, each, self._ledger.lines(saga_id))
            own = each.history[0]["plan"]
            said = [*self._engine(each), *self._ledger.compare(each.body, own), *_blind_repeats(own, each)]
            wrong += [f"its late saga {saga_id}: {sentence}" for sentence in said]
        self._found.figures["late events handled"] += len(late)
        return wrong + list(late_laws.breaches(plan, told, events, late, self._ledger))

    def _value_laws(self, told: Told, origin: Told | None = None) -> list[str]:
        log = self._values.get(root_of(told.body["saga_id"]), [])
        self._found.figures.update(value_laws.figures(told, log))
        return list(value_laws.breaches(told, log, origin))

    async def _undo(self, told: Told, plan: Mapping[str, Any]) -> list[str]:
        undo_id = str(told.body["undone_by"])
        try:
            undo = await _read(self._coordinator, undo_id)
        except SagaError as error:
            return [f"its undo {undo_id} cannot be read: {error.code}: {error}"]
        _count(self._found.figures, undo, self._ledger.lines(undo_id))
        self._found.figures["undos of completed sagas"] += 1
        wrong = [*self._engine(undo), *self._value_laws(undo, told)]
        mine = [each._replace(body=child_laws.own_steps(each.body, plan)) for each in (told, undo)]
        wrong += plan_laws.undo_breaches(plan, self._ledger, *mine)
        wrong += _blind_repeats(plan, undo)
        return [f"its undo: {sentence}" for sentence in wrong]

    async def _children(self, parent: Told, plan: Mapping[str, Any]) -> list[str]:
        begun = child_laws.ids_of(parent, plan)
        wrong: list[str] = []
        for child_id, step_id in begun.items():
            try:
                child = await _read(self._coordinator, child_id)
                undo_id = child.body.get("undone_by")
                undo = await _read(self._coordinator, undo_id) if undo_id else None
            except SagaError as error:
                wrong.append(f"its child {child_id} cannot be read: {error.code}: {error}")
                continue
            own = child_laws.plans_of(plan)[step_id]
            self._found.figures["children"] += 1
            _count(self._found.figures, child, self._ledger.lines(child_id))
            said = [*self._engine(child), *self._value_laws(child)]
            said += [*self._ledger.compare(child.body, own), *_blind_repeats(own, child)]
            if undo is not None:
                said += await self._undo(child, own)
            wrong += [f"its child {child_id}: {sentence}" for sentence in said]
            last = child_id == [each for each, step in begun.items() if step == step_id][-1]
            wrong += child_laws.breaches(parent, step_id, child, undo, last=last)
        return wrong


def _strangers(share: Share, ledger: ReadLedger, known: set[str], numbers: Mapping[str, int]) -> dict[str, list[str]]:
    """Sagas of the external system that nobody submitted; undos and children belong to those that somebody did."""
    undos = {f"{saga_id}{UNDO}" for saga_id, number in numbers.items() if plans.errand(share.seed, number).undo}
    roots = {saga_id: root_of(saga_id) for saga_id in ledger.sagas()}
    children = {saga_id for saga_id, root in roots.items() if ("." in saga_id or LATE in saga_id) and root in numbers}
    said = "the external system got calls of this saga, but it was not submitted"
    return {stranger: [said] for stranger in sorted(ledger.sagas() - {*known, *undos, *children})}


async def _read(coordinator: Coordinator, saga_id: str) -> Told:
    outcome = await coordinator.show(saga_id)
    history = await coordinator.history(saga_id)
    lines = await coordinator.trace(saga_id, full=True)
    return Told(outcome.to_dict(), history, [line.encode() + b"\n" for line in lines])


def _count(figures: Counter[str], told: Told, lines: Sequence[Line]) -> None:
    figures[str(told.body["status"])] += 1
    kinds = told.kinds()
    figures["records"] += len(told.history)
    owners = [record["owner"] for record in told.history if record["k"] == "SagaResumed"]
    figures["taken up"] += len(owners)
    figures["by another owner than before"] += sum(old != new for old, new in pairwise(owners))
    figures["questions"] += kinds["StepEscalated"]
    figures["answers"] += kinds["QuestionResolved"]
    figures["retries"] += kinds["StepRetryScheduled"]
    figures["doubts"] += kinds["StepInDoubt"]
    figures["held by a breaker"] += sum(
        record["k"] == "StepRetryScheduled" and record["error"]["error_code"] == "breaker_open"
        for record in told.history
    )
    figures["cancels"] += kinds["CancelRequested"]
    figures["sessions kept"] += kinds["SessionKept"]
    figures["taken back by agents"] += sum("undone_by" in step for step in told.body["steps"])
    figures["calls"] += sum(line.what == "sent" for line in lines)
    figures["effects"] += sum(line.what == "applied" and line.direction == "forward" for line in lines)
    figures["undone"] += sum(line.what == "applied" and line.direction == "compensate" for line in lines)
    figures["by-hand"] += sum(line.what == "by-hand" for line in lines)


# --- the laws ------------------------------------------------------------------------------------------------------


def _session_laws(script: agent.Script, ledger: OutsideLedger, told: Told) -> Iterator[str]:
    yield from session_laws.breaches(script, ledger, told)
    calls = [
        (step["step_id"], direction, call["tool"]) for step in told.body["steps"] for direction, call in _calls(step)
    ]
    yield from blind_repeats(
        told.history, {(str(step_id), way, 0) for step_id, way, tool in calls if tool.endswith("_bare")}
    )


def _calls(step: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    yield "forward", step
    if step["compensation"] is not None:
        yield "compensate", step["compensation"]


def _end(told: Told) -> Iterator[str]:
    """It has ended, nothing is open, and it is unfinished only if an operator accepted that."""
    body = told.body
    if body["status"] not in t.SAGA_FINAL:
        yield f"it has not ended: {body['status']}"
        return
    if body["questions"]:
        yield "it has ended, but it has open questions"
    for name in ("failed", "unresolved"):
        if body["report"][name]:
            yield f"it has ended, but its report lists as {name}: {body['report'][name]}"
    accepted = told.decided("accept")
    # (A call that takes another one back is not undone, and leaves nothing.)
    finals = [step for step in body["steps"] if step["kind"] == "irreversible" and "undoes" not in step]
    stays = any(step["status"] == t.SUCCEEDED for step in finals)
    accepted = accepted or any(record["k"] == "UndoRequested" and record.get("accepted") for record in told.history)
    # (What its child left, the laws of children ask about.)
    left = any(step.get("child", {}).get("left") for step in body["steps"])
    if body["status"] == t.WAIVED and not (accepted or stays or left):
        yield "it is WAIVED, but no operator accepted anything, and nothing irreversible happened"
    if body["status"] == t.COMPENSATED and stays:
        yield "it is COMPENSATED, but something irreversible happened"


def _journal(told: Told, share: Share) -> Iterator[str]:
    """Owners follow each other with increasing epochs, and all times are those of the store's clock."""
    epochs = [record["epoch"] for record in told.history if record["k"] == "SagaResumed"]
    if epochs != sorted(set(epochs)):
        yield f"the epochs of its owners are {epochs}"
    times = [record["at"] for record in told.history]
    if times != sorted(times):
        yield "the times in its journal decrease"
    if times[0] < share.begun_ms or times[-1] > share.ended_ms:
        yield f"its journal runs from {times[0]} to {times[-1]}, the run from {share.begun_ms} to {share.ended_ms}"


def _blind_repeats(plan: Mapping[str, Any], told: Told) -> Iterator[str]:
    bare: set[Place] = set()
    for step in (*plan["steps"], *plan.get("finally", ())):
        if "fallback" in step:
            continue
        keys = [step["step_id"]]
        if "each" in step:
            keys = [key for each in told.body["steps"] if (key := each["step_id"]).startswith(f"{step['step_id']}[")]
        rollback = step.get("rollback", {})
        undos = [rollback, *rollback.get("then", ())]
        calls = [("forward", 0, step), *(("compensate", at, undo) for at, undo in enumerate(undos))]
        # (``when_absent`` may have other calls in their places.)
        bare |= {
            (key, way, at)
            for key in keys
            for way, at, call in calls
            if call.get("tool", "").endswith("_bare") and not ("when_absent" in rollback and at)
        }
    yield from blind_repeats(told.history, bare)


def blind_repeats(history: Sequence[Mapping[str, Any]], bare: AbstractSet[Place]) -> Iterator[str]:
    """A call that is neither keyed nor probed is repeated only if it is known not to have happened, or by order.

    ``bare``: these calls, by step, direction, and the place in an undo of several.
    """
    open_calls: set[Place] = set()
    undoing: dict[str, int] = {}
    for record in history:
        step, way = record.get("step", ""), record.get("direction", "forward")
        if record["k"] == "StepIntended" and way == "compensate":
            undoing[step] = record.get("call", {}).get("number", 0)
        place = (step, way, undoing.get(step, 0) if way == "compensate" else 0)
        if place not in bare:
            continue
        if record["k"] == "StepIntended" and place in open_calls:
            yield f"step {step} ({way}) was called again, although the call may have happened"
        if record["k"] in _MAY_HAVE_HAPPENED:
            open_calls.add(place)
        elif record["k"] in _ALLOWS_ANOTHER:
            open_calls.discard(place)


def _trace(told: Told, tools: ToolRegistry) -> Iterator[str]:
    """The journal verifies as a trace, and the pure engine makes the same decisions again."""
    checked = verify(told.trace)
    if checked.broken is not None:
        yield f"its trace is broken: {checked.broken}"
        return
    for trace in read(told.trace):
        replay = Replay(trace, DeclaredTools(trace.header, tools, SchemaCheck), together_ms=_TOGETHER_MS)
        for _ in replay.run():
            pass
        if replay.divergence is not None:
            yield f"its replay diverges at line {replay.divergence.line}: {replay.divergence.what}"
