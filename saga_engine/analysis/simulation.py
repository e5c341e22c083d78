"""Simulates a plan with one fault at a time: the pure engine, over every single failure point.

Nothing is called. Each scenario is one run with simulated tools (``simulator``) that stops where the saga ends or an
operator is needed; no question of the engine is answered and no model helps. The result is for people, before an agent
spends money. It states in words what fails, how the saga ends, which effects then remain, and which questions an
operator would get.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple

from saga_engine.analysis.simulator import RAISED, Fault, FaultKind, Played, play
from saga_engine.core import transitions as t
from saga_engine.core.effects import COMPENSATE, FORWARD, Direction
from saga_engine.core.question_view import asked_tool
from saga_engine.plan.compiled import CompiledPlan, CompiledStep
from saga_engine.plan.sample_outputs import rehearsable
from saga_engine.plan.undo_looks import look_of

#: The maximum number of failure points.
MAX_POINTS: Final = 2_000
#: The maximum of failure points times steps: it bounds the time, because one scenario runs through all steps.
MAX_WORK: Final = 250_000

ScenarioVerdict = Literal["clean", "asks", "left"]
#: The meaning of each verdict.
VERDICTS: Final[dict[ScenarioVerdict, str]] = {
    "clean": "completed, or compensated with no remaining effect",
    "asks": "the saga waits for an operator; the effects that exist meanwhile are listed",
    "left": "an unintended effect remains, and nothing can undo it",
}

_WORDS: Final[dict[FaultKind, str]] = {
    "refused": "the call fails permanently",
    "refused-all": "the call and all its fallbacks fail permanently",
    "unavailable": "the tool is unavailable for all attempts",
    "blocked": "the policy refuses the call",
    "lost-happened": "the call happens, and its response is lost or the tool raises (a KeyError, a decode error)",
    "lost-not-happened": "the call does not happen, and there is no response",
    "raised-happened": "the call happens, and its tool raises what is no statement of it, each time",
    "raised-not-happened": "the call does not happen, and its tool raises what is no statement of it, each time",
    "silent": "the call happens, and no attempt or probe gets a response",
    "crash-happened": "the process dies after the call, before its outcome is journalled",
    "crash-not-happened": "the process dies before the call happens",
    "changed": "somebody else changes the value that it expects",
    "drift": "somebody else changes the value",
    "lied": "it says that it was done, and does nothing",
    "cancel": "the saga is cancelled right after it",
    "deadline": "the deadline passes right after it",
    "unanswered": "nobody answers what it asks",
    "no-event": "the event that it waits for does not come",
    "not-computable": "its computation has no result",
    "child-undone": "its child saga fails and is undone",
    "skipped": "its conditions do not hold",
    "output-fails": "its output means failure",
}
#: How a built-in step fails, by its word.
_FAILS: Final[dict[str, FaultKind]] = {
    "ask": "unanswered",
    "compute": "not-computable",
    "saga": "child-undone",
    "wait": "no-event",
}
_UNDO_WORDS: Final[dict[FaultKind, str]] = {
    "child-undone": "{} cannot be made",
    "refused": "{} fails permanently",
    "lost-happened": "{} happens, and its response is lost or its tool raises",
    "lost-not-happened": "{} does not happen, and there is no response",
    "crash-happened": "the process dies after {}",
    "crash-not-happened": "the process dies before {} happens",
    "drift": "somebody else changes the value before {}",
    "lied": "{} says that it was done, and does nothing",
}
#: Questions about a step that is known not to have been done.
_NOT_DONE: Final = frozenset({"step-failed", "tool-changed"})


@dataclass(frozen=True, slots=True)
class Asked:
    """A question that an operator would get; ``options`` are the legal answers."""

    step_id: int | str
    tool: str
    direction: Direction
    kind: str
    options: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON."""
        return {
            "step_id": self.step_id,
            "tool": self.tool,
            "direction": self.direction,
            "kind": self.kind,
            "options": list(self.options),
        }


@dataclass(frozen=True, slots=True)
class HalfUndone:
    """A step whose undo of ``of`` calls stopped between two of them; ``done``: how many happened."""

    step_id: int | str
    done: int
    of: int

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON."""
        return {"step_id": self.step_id, "done": self.done, "of": self.of}


@dataclass(frozen=True, slots=True)
class Scenario:
    """One failure point and its consequences.

    ``fault`` is the kind of ``simulator.Fault``, empty for the run without a fault; ``direction`` distinguishes a
    step's call from its undo; ``what`` is both in words. ``status``: where the saga rests. ``reason``: why it turned
    around, as ``State.reason``. ``standing``: ids of steps whose effect remains although the saga did not complete;
    ``twice``: of those whose effect existed twice, which would be a defect. ``calls`` of tools and probes.
    ``undo_call``: which call (from 0) of an undo of how many fails. ``fallback``: the one whose undo fails; 0: that of
    the step's own tool. ``half_undone``: of the standing ones, those of whose undo some calls happened.
    """

    fault: FaultKind | Literal[""]
    step_id: int | str | None
    step_name: str
    direction: Direction
    what: str
    status: str
    reason: str
    verdict: ScenarioVerdict
    standing: tuple[int | str, ...]
    twice: tuple[int | str, ...]
    asked: tuple[Asked, ...]
    calls: int
    undo_call: tuple[int, int] | None = None
    fallback: int = 0
    half_undone: tuple[HalfUndone, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON."""
        return {
            "fault": self.fault,
            "step_id": self.step_id,
            "step_name": self.step_name,
            "direction": self.direction,
            "what": self.what,
            "status": self.status,
            "reason": self.reason,
            "verdict": self.verdict,
            "standing": list(self.standing),
            "twice": list(self.twice),
            "asked": [asked.to_dict() for asked in self.asked],
            "calls": self.calls,
            "undo_call": None if self.undo_call is None else {"number": self.undo_call[0], "of": self.undo_call[1]},
            "fallback": self.fallback,
            "half_undone": [half.to_dict() for half in self.half_undone],
        }


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """All scenarios of a plan. ``goes_well`` is the run without a fault; it is no failure point and is not counted.

    A large plan is simulated at ``steps_played`` of its ``steps``, spread evenly; ``left_out`` failure points were
    omitted.
    """

    goes_well: Scenario
    scenarios: tuple[Scenario, ...]
    steps: int
    steps_played: int
    left_out: int

    def count(self, verdict: ScenarioVerdict) -> int:
        """How many scenarios have this verdict."""
        return sum(scenario.verdict == verdict for scenario in self.scenarios)

    @property
    def clean(self) -> bool:
        """Whether the plan completes without faults, and no single fault leaves an unintended effect.

        An operator may have to be asked.
        """
        return self.goes_well.status == t.COMPLETED and not self.count("left")

    def summary(self) -> str:
        """The counts in one line."""
        total, asks, left = len(self.scenarios), self.count("asks"), self.count("left")
        line = (
            f"{total} failure point{_s(total)}: {self.count('clean')} clean, {asks} ask{'s' if asks == 1 else ''} an "
            f"operator, {left} leave{'s' if left == 1 else ''} an effect"
        )
        if self.left_out:
            line += (
                f"; {self.left_out} more were left out: {self.steps_played} of {self.steps} steps were simulated, the "
                "first, the last and others spread evenly"
            )
        return line

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON."""
        return {
            "clean": self.clean,
            "summary": {
                "points": len(self.scenarios),
                "left_out": self.left_out,
                "steps": self.steps,
                "steps_played": self.steps_played,
                **{verdict: self.count(verdict) for verdict in VERDICTS},
            },
            "goes_well": self.goes_well.to_dict(),
            "scenarios": [scenario.to_dict() for scenario in self.scenarios],
        }


def rehearse(plan: CompiledPlan, *, max_points: int = MAX_POINTS, max_work: int = MAX_WORK) -> Rehearsal:
    """Simulate every single failure point of a plan that was compiled with its tools.

    ``max_points``: scenarios at most; ``max_work``: scenarios times steps at most. At least the first step, the last
    one and the pivot are always simulated. Steps whose conditions exclude each other are simulated apart.
    """
    from saga_engine.analysis.branches import branches  # a saga that runs needs it not

    apart = branches(plan)
    found = [_rehearsed(each, max_points // len(apart), max_work // len(apart)) for each in apart]
    return found[0] if len(found) == 1 else _together(found)


def _together(found: Sequence[Rehearsal]) -> Rehearsal:
    """The results of all branches; of a failure that several of them have, the worst."""
    worse = list(VERDICTS)
    scenarios: dict[tuple[Any, ...], Scenario] = {}
    for each in (scenario for rehearsal in found for scenario in rehearsal.scenarios):
        place = (each.fault, each.step_id, each.direction, each.undo_call, each.fallback)
        if place not in scenarios or worse.index(each.verdict) > worse.index(scenarios[place].verdict):
            scenarios[place] = each
    return Rehearsal(
        goes_well=next((each.goes_well for each in found if each.goes_well.status != t.COMPLETED), found[0].goes_well),
        scenarios=tuple(scenarios.values()),
        steps=found[0].steps,
        steps_played=max(each.steps_played for each in found),
        left_out=max(each.left_out for each in found),
    )


def _rehearsed(plan: CompiledPlan, max_points: int, max_work: int) -> Rehearsal:
    stage = _Stage(plan)
    points = {step.index: list(stage.points(step)) for step in stage.plan.all_steps()}
    chosen = _chosen([len(found) for found in points.values()], plan.pivot, min(max_points, max_work // len(points)))
    played = [point for index in sorted(chosen, key=stage.place) for point in points[index]]
    whole = stage.plan.with_final()
    return Rehearsal(
        goes_well=_scenario(whole, None, stage.well),
        scenarios=tuple(_scenario(whole, point, stage.play(*point.faults)) for point in played),
        steps=len(points),
        steps_played=len(chosen),
        left_out=sum(len(found) for found in points.values()) - len(played),
    )


def _chosen(counts: Sequence[int], pivot: int | None, most: int) -> Sequence[int]:
    """The steps whose failure points are simulated: all, or as many as the limits allow, spread evenly."""
    steps = len(counts)
    if sum(counts) <= most:
        return range(steps)
    always = {0, steps - 1} | (set() if pivot is None else {pivot})
    others = max(most // max(counts) - len(always), 0)
    return sorted(always | {at * (steps - 1) // (others + 1) for at in range(1, others + 1)})


# --- the failure points --------------------------------------------------------------------------------------------


class _Point(NamedTuple):
    """A fault; before the undo of a step can fail, something must turn the saga around (``first``).

    ``of``: how many calls that undo has. ``fallback``: the one that is undone; it is used because of one more fault.
    """

    fault: Fault
    first: tuple[Fault, ...] = ()
    of: int = 1
    fallback: int = 0

    @property
    def faults(self) -> tuple[Fault, ...]:
        return (*self.first, self.fault)


class _Undo(NamedTuple):
    """An undo that is called: what turns the saga around so late that it is, and how many calls it has."""

    first: tuple[Fault, ...]
    of: int


class _Stage:
    """A simulated plan, and the results of its runs without a fault in an undo."""

    def __init__(self, plan: CompiledPlan) -> None:
        self.plan, self._outputs = rehearsable(plan)
        self.well = self.play()
        steps = self.well.state.steps
        last = (step.index for step in self.plan.final if step.index < len(steps))
        self._reached = frozenset(self.well.order).union(at for at in last if steps[at].status == t.SUCCEEDED)
        #: The steps whose undo is called, each with the number of the fallback that is undone (0: none).
        self._undos: dict[tuple[int, int], _Undo] = {}
        for first in self._turns():
            turn = () if first is None else (first,)
            run = self.play(*turn) if turn else self.well
            for index, calls in run.undone.items():
                self._undos.setdefault((index, run.state.steps[index].using), _Undo(turn, calls))
        self._undo_fallbacks()

    def play(self, *faults: Fault) -> Played:
        """One run."""
        return play(self.plan, self._outputs, faults)

    def place(self, index: int) -> tuple[int, int]:
        """Where a step is listed: the items of a list stand behind it."""
        item = self.plan.steps[index].item if index < len(self.plan.steps) else None
        return (index, -1) if item is None else (item.parent, item.number)

    def _undo_fallbacks(self) -> None:
        """Find the undos of fallbacks: all steps that have one use it, and the saga turns around."""
        ways = [len(step.fallbacks) for step in self.plan.steps]
        for way in range(1, max(ways, default=0) + 1):
            for first in self._turns():
                turn = () if first is None else (first,)
                held = -1 if first is None or first.kind in ("cancel", "deadline") else first.step
                used = {at: Fault("refused", at, way=way - 1) for at, ends in enumerate(ways) if ends >= way}
                used.pop(held, None)
                run = self.play(*turn, *used.values())
                for index, calls in run.undone.items():
                    if index in used and run.state.steps[index].using == way:
                        self._undos.setdefault((index, way), _Undo((used[index], *turn), calls))

    def _turns(self) -> Iterator[Fault | None]:
        """What may turn the saga around when as many effects as possible exist."""
        order, pivot = self.well.order, self.plan.pivot
        if self.well.state.status != t.COMPLETED:
            yield None  # it fails even without a fault
            return
        last = order[-1] if pivot is None else pivot
        yield Fault(_FAILS.get(self.plan.steps[last].builtin, "refused-all"), last)
        before = order[: order.index(last) + (pivot is None)]
        if before:
            yield Fault("cancel", before[-1])

    def _may_end(self, step: CompiledStep) -> bool:
        """Whether the step ends by itself if nothing comes; a question is at least told to operators."""
        waits = step.builtin == "wait" and step.params.raw["wait"].get("timeout_s") is None
        return not waits or self.plan.deadline_s is not None

    def points(self, step: CompiledStep) -> Iterator[_Point]:
        """The failure points of one step; none if its turn never comes."""
        index = step.index
        last = step.kind == "finally"
        if index not in self._reached:
            return
        kinds: list[FaultKind] = ["refused", "refused-all"] if step.fallbacks else ["refused"]
        kinds += ["unavailable", "blocked", "lost-not-happened", "crash-not-happened"]
        if step.builtin:
            may_fail = step.builtin in _FAILS and step.items < 0 and self._may_end(step)
            kinds = [_FAILS[step.builtin]] if may_fail else []
        elif step.kind != "read":  # whether a read happened makes no difference
            kinds += ["lost-happened", "silent", "crash-happened"]
            kinds += RAISED if step.spec is not None and (step.spec.keyed or step.spec.probe) else ()
        if step.before is not None and step.before.expect is not None:
            kinds.append("changed")
        if step.when is not None:
            kinds.append("skipped")
        if step.failed_when is not None:
            kinds.append("output-fails")
        if not last:  # neither stops the steps of ``finally``
            kinds.append("cancel")
        if self.plan.deadline_s is not None and not last and index != self.well.order[-1]:
            kinds.append("deadline")
        for kind in kinds:
            yield _Point(Fault(kind, index))
        for way in range(len(step.fallbacks) + 1):
            if (undo := self._undos.get((index, way))) is not None:
                yield from _undo_points(step, way, undo)


def _undo_points(step: CompiledStep, way: int, undo: _Undo) -> Iterator[_Point]:
    """The failure points of the undo of a step, or of its fallback: of each of its calls."""
    serving = step.fallbacks[way - 1] if way else step
    watched = serving.before is not None
    looked = undo.of == 1 and bool(look_of(serving, serving.rollback, image=True))
    for call in range(undo.of):
        for kind in _UNDO_WORDS:
            if (kind == "child-undone") is not (step.child is not None):
                continue
            if kind == "drift" and (call or not watched):  # once the undo has begun, the value is its own
                continue
            if kind == "lied" and not looked:
                continue  # nothing would tell
            yield _Point(Fault(kind, step.index, COMPENSATE, call), undo.first, undo.of, way)


# --- what comes of them --------------------------------------------------------------------------------------------


def _scenario(plan: CompiledPlan, point: _Point | None, run: Played) -> Scenario:
    state = run.state
    step = None if point is None else plan.steps[point.fault.step]
    completed = state.status == t.COMPLETED
    return Scenario(
        fault="" if point is None else point.fault.kind,
        step_id=None if step is None else step.step_id,
        step_name="" if step is None else step.name,
        direction=FORWARD if point is None else point.fault.direction,
        what=_what(plan, point),
        status=state.status,
        reason=state.reason or "",
        verdict=_verdict(run),
        standing=() if completed else tuple(plan.steps[index].step_id for index in run.standing),
        twice=tuple(plan.steps[index].step_id for index in run.twice),
        asked=tuple(
            Asked(
                step_id=plan.steps[question.step].step_id,
                tool=asked_tool(state, question.step, question.direction),
                direction=question.direction,
                kind=question.kind,
                options=question.options,
            )
            for question in state.questions.values()
        ),
        calls=run.calls,
        undo_call=None if point is None or point.of == 1 else (point.fault.call, point.of),
        fallback=0 if point is None else point.fallback,
        half_undone=()
        if completed
        else tuple(HalfUndone(plan.steps[index].step_id, *half) for index, half in run.half.items()),
    )


def _verdict(run: Played) -> ScenarioVerdict:
    state = run.state
    if run.twice or not run.rested:
        return "left"
    if any(run.state.plan.steps[index].semantic for index in run.standing) and state.status != t.COMPLETED:
        return "left"  # a model may find something that makes up for it, or may not: nothing undoes it
    if state.status == t.ESCALATED:
        # A step that was not done, past the pivot: it can be retried, but the effects before it remain in any case.
        stuck = state.past_pivot and any(question.kind in _NOT_DONE for question in state.questions.values())
        return "left" if stuck and run.standing else "asks"
    return "left" if run.standing and state.status != t.COMPLETED else "clean"


def _what(plan: CompiledPlan, point: _Point | None) -> str:
    if point is None:
        return "no failure"
    fault, step = point.fault, plan.steps[point.fault.step]
    if fault.direction == FORWARD:
        late = step.late if fault.kind == "no-event" else None
        return _WORDS[fault.kind] if late is None else f"{_WORDS[fault.kind]} in time; {late.tool} if it comes later"
    which = f"call {fault.call + 1} of {point.of} of " if point.of > 1 else ""
    whose = "the child saga of " if step.child is not None else ""
    words = _UNDO_WORDS[fault.kind].format(f"{which}the undo of {whose}step {step.step_id}")
    before = []
    for first in point.first:
        turn = plan.steps[first.step].step_id
        if first.step == fault.step and first.kind == "refused":
            before.append(f"step {turn} uses fallback {point.fallback}")
        else:
            before.append(
                f"the saga is cancelled after step {turn}" if first.kind == "cancel" else f"step {turn} fails"
            )
    return ", ".join([*before, words])


def _s(count: int) -> str:
    return "" if count == 1 else "s"
