"""One run of a saga through the pure engine, with simulated tools and chosen faults: no clock, no randomness, no I/O.

The simulated tools do what their declarations say. A keyed tool that is called again with its key has one effect; a
probe tells the truth; a read has no effect; an undo removes the effect of its step, and one of several calls does so
with the last of them. Time passes only while the saga waits, while a response is awaited in vain, and while a process
is down.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple

import msgspec

from saga_engine.core import expected, images
from saga_engine.core import records as r
from saga_engine.core import transitions as t
from saga_engine.core.decide import Capabilities
from saga_engine.core.effects import (
    COMPENSATE,
    FORWARD,
    Blocked,
    CallTool,
    Direction,
    Done,
    Drifted,
    ErrorInfo,
    LookAfterUndo,
    NotDone,
    Outcome,
    Probe,
    ReadBefore,
    Unknown,
)
from saga_engine.core.fold import begin, fold
from saga_engine.core.images import Image
from saga_engine.core.machine import FixedMeans, Machine
from saga_engine.core.messages import Message, answer
from saga_engine.core.settling import facts
from saga_engine.core.state import State
from saga_engine.core.state_values import OpenQuestion
from saga_engine.core.steps import ask, child
from saga_engine.core.steps import wait as events
from saga_engine.core.undo_call import UndoCall
from saga_engine.core.waiting_records import ChildEnd
from saga_engine.core.waits import Pending
from saga_engine.plan.compiled import CompiledFallback, CompiledPlan
from saga_engine.plan.effort import spend
from saga_engine.plan.sample_outputs import Outputs, failing, skipping, without_result
from saga_engine.plan.tool_spec import ToolSpec

FaultKind = Literal[
    "refused",
    "refused-all",
    "unavailable",
    "blocked",
    "lost-happened",
    "lost-not-happened",
    "raised-happened",
    "raised-not-happened",
    "silent",
    "crash-happened",
    "crash-not-happened",
    "changed",
    "drift",
    "lied",
    "cancel",
    "deadline",
    "unanswered",
    "no-event",
    "not-computable",
    "child-undone",
    "skipped",
    "output-fails",
]
#: An exception that is no statement of a tool: its call is in doubt if it has a key or a probe.
RAISED: Final[tuple[FaultKind, ...]] = ("raised-happened", "raised-not-happened")
#: How long it takes until another process takes over from one that died: a lease, by default.
DOWNTIME_MS: Final = 15_000
#: The maximum number of calls, and as many for each step, of a saga that comes to rest.
_MAX_CALLS: Final = 20_000
_MOST_DEFERRED: Final = 2
_MAX_CALLS_PER_STEP: Final = 50
_START_MS: Final = 1_000_000
#: No operators, no model: every stuck step becomes a question.
_ALONE: Final = FixedMeans(Capabilities(alerting=False))
_CODE: Final = "rehearsed"
#: The value that a step changes: before its call, after it, and when somebody else has changed it.
_BEFORE: Final = {"value": "before"}
_OTHER: Final = {"value": "another"}
#: The same when some calls of its undo have happened.
_HALF: Final = {"value": "between"}


def _left(step: int) -> Image:
    """The value as the call of a step leaves it."""
    return {"value": f"after {step}"}


class Fault(NamedTuple):
    """A fault at one step's call in one direction; ``call`` is the number of the call in an undo of several.

    ``refused``: its own tool refuses permanently, and so do its first ``way`` fallbacks; ``refused-all``: all of its
    fallbacks, too. ``unavailable``: not done, retryable, until the attempts are used up. ``blocked``: the policy
    refuses. ``lost-…``: it happened or not, and the response is lost, once. ``raised-…``: it happened or not, and its
    tool raises an exception that is no statement of its own, at each attempt. ``silent``: it happened, and neither tool
    nor probe ever responds. ``crash-…``: the process dies before the outcome is journalled. ``drift``: before the undo
    somebody else changes what the step changed. ``changed``: somebody changes what its call expects. ``lied``: the undo
    says that it was done, and does nothing.
    ``cancel``, ``deadline``: right after the step happened.
    ``unanswered``: nobody answers what the step asks. ``no-event``: what it waits for never comes. ``not-computable``:
    its computation has no result. ``child-undone``: its child saga fails and is undone; backward, the child cannot be
    undone. ``skipped``: its ``when`` does not hold. ``output-fails``: its ``failed_when`` holds.
    """

    kind: FaultKind
    step: int
    direction: Direction = FORWARD
    call: int = 0
    way: int = 0


class Played(NamedTuple):
    """Where a saga came to rest: its state, and the external effects.

    ``standing`` are steps whose effect exists, without those of ``finally``; ``twice`` those whose effect existed twice
    at some time. ``order``: the steps in the order in which they happened; ``undone``: those whose undo was called, and
    how many calls it has; ``half``: how many calls, of how many, happened of the undos that did not end.
    ``calls`` counts calls of tools and probes. ``rested`` is False if the saga did not come to rest, which is a defect
    of the engine.
    """

    state: State
    standing: tuple[int, ...]
    twice: tuple[int, ...]
    order: tuple[int, ...]
    undone: Mapping[int, int]
    half: Mapping[int, tuple[int, int]]
    calls: int
    rested: bool


def play(plan: CompiledPlan, outputs: Outputs, faults: tuple[Fault, ...]) -> Played:
    """Run a plan (as ``plan.sample_outputs`` made it) until it ends or an operator is needed.

    Questions of the engine are not answered; those of the plan are, unless a fault says otherwise: with the first
    option, or with a sample value.
    """
    return _Run(plan, outputs, faults).to_rest()


class _World:
    """The external effects, by step; and what the remote side of each call remembers, by key."""

    def __init__(self) -> None:
        self.standing: dict[int, int] = {}
        self.twice: dict[int, None] = {}
        #: The calls that happened of the undos that did not end.
        self.half: dict[int, set[int]] = {}
        self.undo_calls: dict[int, int] = {}
        self._applied: dict[str, int] = {}

    def happened(self, key: str) -> bool:
        return key in self._applied

    def apply(self, effect: CallTool, spec: ToolSpec, key: str, now: int, part: UndoCall) -> bool:
        """A call arrives; returns whether it is done. ``part``: which call of the undo it is."""
        if spec.effect == "read" or self._remembers(spec, key, now):
            return True
        step = effect.step
        if effect.direction == FORWARD:
            self.standing[step] = self.standing.get(step, 0) + 1
            if self.standing[step] > 1:
                self.twice[step] = None
        elif self.standing.get(step) and part.number not in self.half.get(step, ()):
            done = self.half.setdefault(step, set())
            done.add(part.number)
            self.undo_calls[step] = part.of
            if len(done) == part.of:
                self.standing[step] -= 1
                del self.half[step]
        elif not spec.tolerates_absence:
            return False
        self._applied[key] = now
        return True

    def _remembers(self, spec: ToolSpec, key: str, now: int) -> bool:
        if not spec.keyed or key not in self._applied:
            return False
        return spec.key_ttl_s is None or now - self._applied[key] < spec.key_ttl_s * 1000


class _Run:
    """One saga, from its start to its rest."""

    def __init__(self, plan: CompiledPlan, outputs: Outputs, faults: tuple[Fault, ...]) -> None:
        for fault in faults:
            if fault.kind in _CHANGES:
                plan = _CHANGES[fault.kind](plan, fault.step)
        self._plan = plan
        self._outputs = outputs
        at_calls = [fault for fault in faults if fault.kind not in _AFTERWARDS and fault.kind not in _CHANGES]
        self._faults = {(fault.step, fault.direction, fault.call): fault for fault in at_calls}
        self._after = {fault.step: fault.kind for fault in faults if fault.kind in _AFTERWARDS}
        self._fired: dict[Fault, int] = {}
        self._now = _START_MS
        self._world = _World()
        started = r.SagaStarted(
            at=self._now, saga_id="rehearsal", plan=None, digest="", seed="0", tools=plan.tool_digests
        )
        self._records: list[r.AnyRecord] = [started]
        self._machine = Machine(begin(started, plan), _ALONE)
        self._queue: deque[CallTool | Probe] = deque()
        self._order: dict[int, None] = {}
        self._undone: dict[int, int] = {}
        #: The steps of ``finally`` begin here: their effects are wanted however the saga ends.
        self._first_last = len(plan.steps)
        self._calls = 0

    def to_rest(self) -> Played:
        most = _MAX_CALLS + _MAX_CALLS_PER_STEP * len(self._plan.steps)
        rested = False
        while self._calls < most:
            spend()
            self._decide()
            if self._answer() or self._arrive():
                continue
            if self._state.status in t.SAGA_FINAL or self._state.status == t.ESCALATED:
                rested = True
                break
            if self._queue:
                self._perform(self._queue.popleft())
                continue
            due = self._state.next_due(self._now)
            if due is None:
                break
            self._now = due
        world = self._world
        return Played(
            state=self._state,
            standing=tuple(sorted(step for step, count in world.standing.items() if count and step < self._first_last)),
            twice=tuple(world.twice),
            order=tuple(self._order),
            undone=dict(self._undone),
            half={step: (len(done), world.undo_calls[step]) for step, done in world.half.items()},
            calls=self._calls,
            rested=rested,
        )

    def _answer(self) -> bool:
        """Answer what the plan asks, once nothing else moves; whether anything changed."""
        if self._queue or self._state.status in t.SAGA_FINAL:
            return False
        for asked in self._state.questions.values():
            if asked.kind != ask.KIND:
                continue
            if not self._fails(asked.step):
                self._settle(self._answer_to(asked))
                self._order[asked.step] = None
                self._afterwards(asked.step)
                return True
            if asked.expires is not None and asked.expires > self._now:
                self._now = asked.expires
                return True
        return False

    def _arrive(self) -> bool:
        """Bring the event that a step waits for, once no call is left to be made; whether anything changed."""
        for index, wait in () if self._queue else self._state.pending.items():
            if wait.on == "event" and not self._fails(index):
                self._events_come(index, wait)
                if self._plan.steps[index].kind != "read":
                    self._world.standing[index] = 1
                self._order[index] = None
                self._afterwards(index)
                return True
            if wait.on == "child":
                self._child_ends(index, wait)
                return True
        return False

    def _events_come(self, index: int, wait: Pending) -> None:
        """The event of a wait; of a wait for several the first one, or all."""
        for entry, name in enumerate(wait.events() if wait.word == "all" else wait.events()[:1]):
            record = events.came(self._state, index, entry, events.Event("simulated", *name, None), self._now)
            if isinstance(record, r.StepSucceeded):
                record = msgspec.structs.replace(record, output=self._outputs[index, 0])
            self._settle(record)

    def _child_ends(self, index: int, wait: Pending) -> None:
        """A child saga, or the undo of one, ends well unless a fault says otherwise: then nothing of it is left."""
        saga_id, key = wait.about["saga"], self._plan.steps[index].key
        self._calls += 1
        forward = wait.direction == FORWARD
        if self._fails(index, wait.direction):
            error = ErrorInfo("child_undone", f"child saga {saga_id} did not complete")
            end = ChildEnd(saga_id, t.COMPENSATED if forward else "", error=error)
        elif forward:
            end = ChildEnd(saga_id, t.COMPLETED, self._outputs[index, 0])
            if self._plan.steps[index].kind != "read":
                self._world.standing[index] = 1
            self._order[index] = None
        else:
            end = ChildEnd(saga_id, t.COMPENSATED)
            self._world.standing[index] = 0
        if not forward:
            self._undone[index] = 1
        self._settle(child.ended(self._state, key, end, self._now))
        if end.status == t.COMPLETED:
            self._afterwards(index)

    def _answer_to(self, asked: OpenQuestion) -> r.QuestionResolved:
        sample = self._outputs[asked.step, 0]["answer"]
        free = asked.schema is not None
        return r.QuestionResolved(
            at=self._now,
            question=asked.id,
            step=self._plan.steps[asked.step].key,
            decision=asked.options[0],
            output=sample if free else None,
        )

    @property
    def _state(self) -> State:
        return self._machine.state

    def _settle(self, record: r.AnyRecord) -> None:
        self._machine.take([record])

    def _decide(self) -> None:
        machine = self._machine
        again = True

        def admits(_: Sequence[r.AnyRecord]) -> bool:
            # What comes right after a computation comes before anything else is decided.
            return not any(type(record) is r.StepSucceeded for record in machine.said().records[given:])

        while again:
            given = len(machine.said().records)
            ready = machine.ready(self._now, admits if self._after else None)
            computed = False
            self._records += ready.records
            for effect in machine.durable(ready):
                if isinstance(effect, CallTool | Probe):
                    self._queue.append(effect)
                elif isinstance(effect, ReadBefore):
                    machine.learn(effect, _BEFORE, self._now, 0.5)
                elif isinstance(effect, LookAfterUndo):
                    machine.learn(effect, self._after_undo(effect), self._now, 0.5)
            for record in ready.records[given:]:
                if type(record) is r.StepSucceeded:  # a computation: no call makes it
                    computed = True
                    step = self._plan.by_key[record.step]
                    self._order[step] = None
                    self._afterwards(step)
            again = bool(ready.looks or computed or machine.said().records)

    # --- effects ---------------------------------------------------------------------------------------------------

    def _perform(self, effect: CallTool | Probe) -> None:
        fault = self._fault(effect)
        if fault is not None and fault.kind in ("crash-happened", "crash-not-happened"):
            self._crash(effect, happened=fault.kind == "crash-happened")
            return
        outcome = self._probe(effect, fault) if isinstance(effect, Probe) else self._call(effect, fault)
        if type(outcome) is Unknown and not outcome.raised:
            self._now += round(self._state.serving(effect.step, effect.direction).timeout_s * 1000)
        self._machine.learn(effect, outcome, self._now, 0.5)
        record = self._machine.said().records[-1]
        if type(record) is r.StepSucceeded and effect.direction == FORWARD and effect.step < self._first_last:
            self._order[effect.step] = None
            self._afterwards(effect.step)

    def _fails(self, step: int, direction: Direction = FORWARD) -> bool:
        """Whether a built-in step does not do what it waits for."""
        return (step, direction, 0) in self._faults

    def _part(self, effect: CallTool | Probe) -> UndoCall:
        """Which call of its undo a call is; one forward is the only one."""
        made = self._state.steps[effect.step].undo_call if effect.direction == COMPENSATE else None
        return UndoCall(0, 1) if made is None else made

    def _fault(self, effect: CallTool | Probe) -> Fault | None:
        """The fault that applies to this call, if one does."""
        fault = self._faults.get((effect.step, effect.direction, self._part(effect).number))
        if fault is None:
            return None
        fired = self._fired.get(fault, 0)
        _, policy = facts(self._state, effect.step, effect.direction)
        if type(effect) is Probe and (fault.kind in ("changed", "drift", "lied") or fault.kind in RAISED):
            return None
        own = effect.direction == COMPENSATE or self._state.steps[effect.step].using <= fault.way
        strikes = {
            "refused": own,
            "refused-all": True,
            "unavailable": own and fired < policy.max_attempts,
            "blocked": True,
            # A deferred step is not abandoned: it waits until there is a response, however long that takes.
            "drift": True,
            "changed": own,
            "raised-happened": own,
            "raised-not-happened": own,
            "silent": own and self._state.steps[effect.step].deferred < _MOST_DEFERRED,
        }.get(fault.kind, fired == 0)
        if not strikes:
            return None
        self._fired[fault] = fired + 1
        return fault

    def _call(self, effect: CallTool, fault: Fault | None) -> Outcome:
        kind = fault.kind if fault is not None else ""
        if kind == "blocked":
            return Blocked(ErrorInfo(_CODE, "the policy refuses it"), rule=_CODE)
        if kind == "changed":
            return expected.changed(self._state, effect.step, _OTHER)
        serving = self._state.acting(effect.step)
        if effect.direction == COMPENSATE and images.guards_undo(self._state, effect.step):
            found = _OTHER if kind == "drift" else self._image(effect.step)
            judged = images.judge(self._state.steps[effect.step], found, sole_writer=False)
            if judged == "drift":
                return Drifted(ErrorInfo("drift", "somebody else changed it since"), found)
            if judged == "restored":
                return Done(None, "unchanged")
        if effect.direction == COMPENSATE:
            self._undone[effect.step] = self._part(effect).of
        elif type(serving) is CompiledFallback and serving.way == "cached" and not kind:
            return Done(self._output(effect), "cache", "", 0)
        self._calls += 1
        if kind in ("refused", "refused-all"):
            return NotDone(ErrorInfo(_CODE, "the tool says no"), retryable=False, definite=True)
        if kind == "unavailable":
            return NotDone(ErrorInfo(_CODE, "it cannot be reached"), retryable=True)
        if kind == "lied":
            return Done({"ok": True})
        happens = kind not in ("lost-not-happened", "raised-not-happened")
        if happens and not self._apply(effect):
            return NotDone(ErrorInfo(_CODE, "there is nothing to undo"), retryable=False, definite=True)
        if kind in RAISED:
            probed = serving.spec is not None and serving.spec.probe is not None
            return Unknown(ErrorInfo(_CODE, "the tool raised", retryable=False if probed else None), raised=True)
        if kind:
            return Unknown(ErrorInfo(_CODE, "no answer came"))
        watched = effect.direction == FORWARD and serving.before is not None
        return Done(self._output(effect), after=_left(effect.step) if watched else None)

    def _image(self, step: int) -> dict[str, Any]:
        if step in self._world.half:
            return _HALF
        if self._world.standing.get(step):
            return _left(step)
        known: dict[str, Any] = self._state.steps[step].before
        return known if expected.expects(self._state, step) else _BEFORE

    def _after_undo(self, effect: LookAfterUndo) -> Image | Outcome:
        """What is there after an undo; a tool that only says that it undid something has left it there."""
        stands = bool(self._world.standing.get(effect.step))
        if effect.by == "before":
            return self._image(effect.step)
        if effect.by == "check":
            return {"value": None} if stands else {"absent": True}
        done = NotDone(ErrorInfo(_CODE, "it did not happen"), retryable=True, definite=True)
        return done if stands else Done({"ok": True})

    def _probe(self, effect: Probe, fault: Fault | None) -> Outcome:
        self._calls += 1
        spec, _ = facts(self._state, effect.step, effect.direction)
        if fault is None and spec.probe is None and images.reads_settle(self._state, effect.step, effect.direction):
            return images.settled(self._state, effect.step, effect.direction, self._image(effect.step))
        # Without a probe de-duplication is asked, and it never got the outcome.
        if fault is not None or spec.probe is None:
            return Unknown(ErrorInfo(_CODE, "it cannot tell"))
        if self._world.happened(self._state.key(effect.step, effect.direction)):
            return Done(self._output(effect))
        return NotDone(ErrorInfo(_CODE, "it did not happen"), retryable=True, definite=True)

    def _apply(self, effect: CallTool) -> bool:
        spec, _ = facts(self._state, effect.step, effect.direction)
        key = self._state.key(effect.step, effect.direction)
        other = self._state.steps[effect.step].undoes
        if other >= 0 and effect.direction == FORWARD:  # it is the undo of that step
            effect = CallTool(other, COMPENSATE, effect.attempt)
        return self._world.apply(effect, spec, key, self._now, self._part(effect))

    def _output(self, effect: CallTool | Probe) -> object:
        if effect.direction == COMPENSATE:
            return {"ok": True}
        return self._outputs[effect.step, self._state.steps[effect.step].using]

    # --- what comes from outside -------------------------------------------------------------------------------------

    def _crash(self, effect: CallTool | Probe, *, happened: bool) -> None:
        """The process dies with calls in flight: all of them happened, or none. Another one folds the journal."""
        for lost in (effect, *self._queue) if happened else ():
            self._calls += 1
            if type(lost) is CallTool:
                self._apply(lost)
        self._queue.clear()
        self._now += DOWNTIME_MS
        self._machine = Machine(fold(self._records, self._plan), _ALONE)
        self._settle(r.SagaResumed(at=self._now, owner="another", epoch=self._state.epoch + 1))

    def _afterwards(self, step: int) -> None:
        kind = self._after.get(step)
        if kind == "cancel":
            self._settle(answer(self._state, Message(id="cancel", kind="cancel"), self._now))
        elif kind == "deadline":
            self._now = max(self._now, self._state.deadline_ms or 0)


#: Faults that lie in the plan's own values.
_CHANGES: Final = {"not-computable": without_result, "skipped": skipping, "output-fails": failing}
_AFTERWARDS: Final = frozenset({"cancel", "deadline"})
