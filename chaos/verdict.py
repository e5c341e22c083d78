"""The laws that hold for every saga after the run; each violation is a sentence.

The ledger, the engine's report and the journal are compared. Nothing here knows the faults of the run: the laws are the
same without faults.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from chaos import agent, plans, session_laws
from chaos.told import Told
from chaos.tools import make_tools
from chaos.world import ledger_path
from saga_engine import Coordinator, SagaError
from saga_engine.analysis.replay import Replay
from saga_engine.analysis.trace import DeclaredTools
from saga_engine.analysis.trace_file import read, verify
from saga_engine.core import transitions as t
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
        *("ApprovalExpired", "StepSkipped", "OutputChecked"),
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


class Found(NamedTuple):
    """The result: figures, and violations by saga."""

    figures: Counter[str]
    breaches: dict[str, list[str]]


class _ReadLedger(OutsideLedger):
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
    ledger = _ReadLedger(ledger_path(Path(share.folder), share.share))
    found = Found(Counter(), {})
    tools = make_tools()
    laws: dict[str, Callable[[Told], Iterator[str]]] = {
        plans.saga_id(share.seed, number): partial(_plan_laws, plans.plan(share.seed, number), ledger)
        for number in share.numbers
    }
    scripts = [agent.script(share.seed, number) for number in share.sessions]
    laws |= {script.saga_id: partial(_session_laws, script, ledger) for script in scripts}
    for stranger in sorted(ledger.sagas() - laws.keys()):
        found.breaches[stranger] = ["the external system got calls of this saga, but it was not submitted"]
    gate = asyncio.Semaphore(_AT_ONCE)
    async with Coordinator.open(share.url, tools) as coordinator:

        async def one(saga_id: str) -> None:
            async with gate:
                try:
                    told = await _read(coordinator, saga_id)
                except SagaError as error:
                    found.breaches[saga_id] = [f"it cannot be read: {error.code}: {error}"]
                    return
                common = (_end(told), _journal(told, share), _trace(told, tools))
                wrong = [sentence for law in (*common, laws[saga_id](told)) for sentence in law]
                if wrong:
                    found.breaches[saga_id] = wrong
                _count(found.figures, told, ledger.lines(saga_id))

        await asyncio.gather(*map(one, laws))
    return found


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
    figures["cancels"] += kinds["CancelRequested"]
    figures["sessions kept"] += kinds["SessionKept"]
    figures["calls"] += sum(line.what == "sent" for line in lines)
    figures["effects"] += sum(line.what == "applied" and line.direction == "forward" for line in lines)
    figures["undone"] += sum(line.what == "applied" and line.direction == "compensate" for line in lines)
    figures["by-hand"] += sum(line.what == "by-hand" for line in lines)


# --- the laws ------------------------------------------------------------------------------------------------------


def _plan_laws(plan: Mapping[str, Any], ledger: OutsideLedger, told: Told) -> Iterator[str]:
    yield from ledger.compare(told.body, plan)
    yield from _blind_repeats(plan, told)


def _session_laws(script: agent.Script, ledger: OutsideLedger, told: Told) -> Iterator[str]:
    yield from session_laws.breaches(script, ledger, told)
    calls = [
        (step["step_id"], direction, call["tool"]) for step in told.body["steps"] for direction, call in _calls(step)
    ]
    yield from blind_repeats(
        told.history, {(str(step_id), way) for step_id, way, tool in calls if tool.endswith("_bare")}
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
    stays = any(step["kind"] == "irreversible" and step["status"] == t.SUCCEEDED for step in body["steps"])
    if body["status"] == t.WAIVED and not (accepted or stays):
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
    bare = {
        (step["step_id"], direction)
        for step in plan["steps"]
        for direction, tool in (("forward", step["tool"]), ("compensate", step.get("rollback", {}).get("tool", "")))
        if tool.endswith("_bare") and "fallback" not in step
    }
    yield from blind_repeats(told.history, bare)


def blind_repeats(history: Sequence[Mapping[str, Any]], bare: AbstractSet[tuple[str, str]]) -> Iterator[str]:
    """A call that is neither keyed nor probed is repeated only if it is known not to have happened, or by order.

    ``bare``: these calls, by step and direction.
    """
    open_calls: set[tuple[str, str]] = set()
    for record in history:
        place = (record.get("step", ""), record.get("direction", "forward"))
        if place not in bare:
            continue
        if record["k"] == "StepIntended" and place in open_calls:
            yield f"step {place[0]} ({place[1]}) was called again, although the call may have happened"
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
