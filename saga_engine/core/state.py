"""The state of a saga: its folded journal.

Nothing but ``evolve`` changes a state, and nothing but records makes it change, so two processes that read the same
journal are in the same state (``core.fold``). *Row N* is a row of the table in docs/guarantees.md, *scenario x* is
``tests/scenarios/x.txt``.

**Three layers.** The saga has a status and a phase; each step has a status; each call, which is a step in one
direction (``Place``), has counters and perhaps a doubt. The tables of ``core/transitions.py`` hold the statuses and
refuse every move that they do not have. The facts below say what the status alone cannot: where a call is, and what is
known of its earlier attempts.

**The phase of a saga.** It runs ``forward``; if a step failed whose plan says ``replan``, it is ``Replanning``, and
no step starts. Once there is a reason to turn around it is ``Turning``, and from ``CompensationStarted`` on it goes
``Backward``, for good. Only a pivot that happened leads back from ``Turning`` (``CompensationRefused``).

**Where a call is.** A call that is under way, and about which no operator has to be asked, is in one of these sets:

* ``in_flight``: a record ordered the ``call`` or its ``probe``, and no outcome is recorded. When the owner changes, a
  call or probe in flight comes into doubt (scenario ``crash-after-intent``). The next owner makes a ``queued`` call,
  which waits for a guard, because it was never made (row 39); and so an ``intended`` one, during which owners ended
  before: it is begun only after its ``StepBegun``.
* ``waiting``: something is due at a time: a retry, the next way to settle a doubt, or a call that an operator wants.
* ``looks``: the engine looks whether an undo did what it says (``core.verified``).
* ``doubts``: the next way to settle the doubt is due now.

What is waited for that is no call is ``pending`` until the record that ends it: a step without a tool that waits
(``StepWaiting``), a model that is asked, or that is to be asked again because it could not be reached. The entry says
what it holds back and when it is due, and so the rest of the core need not know what it is. The turn ends what steps
wait for.

What has no call yet is in ``ready`` (a step whose dependencies have all happened) or in ``undo_ready`` (an undo that no
other undo precedes). What no call can settle is in ``to_escalate``; from the question on it is in ``questions``.
``decide`` looks at these sets only, and neither ``decide`` nor ``evolve`` examines all steps for one call: the cost of
a step does not grow with the saga (``tests/runtime/test_hot_path.py``). The two walks over all steps, at the turn and
at the end, happen once in the life of a saga.

**What is known of a call.** With a ``Doubt``, some attempt may have happened. Only evidence ends it: a response that
speaks of all attempts, a probe, an operator. A later *not done* speaks of its own attempt alone, unless the tool itself
reports it as permanent (row 4, scenario ``fallback-never-in-doubt``). What an outcome left open is part of the doubt,
and ends with it:

* ``sent``: in at least one attempt the request may have left. A connection that was refused proves the opposite
  (scenario ``doubt-never-sent``).
* ``lost``: the last attempt died with its process, or was never made because of that. It gets one more call, even with
  ``max_attempts = 1`` (scenario ``crash-after-intent``).
* ``repeat``: an operator wants the call repeated whatever is known of it. It is ``wanted`` until the next intent, and
  ``made`` from then on (scenario ``doubt-person-retry``).
* ``raised``: how many attempts ended with an exception that is no statement of the tool. One repeat under the same key
  may tell more; a second such end does not get a third (scenario ``doubt-raised``).

An ``Approval`` is independent of that: it permits one exact call for a time, whether or not the call is in doubt (row
22, scenarios ``approval-of-another-saga`` and ``approval-expired``).

**Who owns an effect.** A step that happened has an ``effect``: this saga ``Made`` it, or ``Reused`` that of the saga
that it is a fork of, and may since have transferred it to a fork of its own; or another saga made it and owns it
(``Deduplicated``). Only the owner undoes (row 27), which is why ``undoing`` and not ``rollback`` says whether there is
something to undo (scenarios ``guard-dedupe``, ``fork-reuses``). ``using`` names the fallback that was called: it has a
key of its own, and its own undo (row 30, scenario ``fallback-tool``).

**The way back.** A step is returning from the moment its undo is wanted until that has ended. Meanwhile ``undo_waits``
counts the undos that come before its own: those of its dependents, or in a session that of the call that happened next.
An undo that failed, waits or is in doubt has not ended, and holds back all that follow it (row 8,
``core/evolve/compensation.py``); in a session not what provably has nothing to do with it, while an operator is asked
(``core/undo_ahead.py``, scenario ``session-undo-ahead``). A step whose undo failed or does not exist may get a
``semantic`` compensation: a model is asked once, then its steps are reviewed, are on their way, or have all happened.

**A call that is the undo of another one** (``undo_by_call``) has its key, and is never undone itself. While it is
under way or in doubt, ``undone_by`` holds back the undo of the other step. If it happened, that one is undone; if not,
that one stands as before.

**Change in place.** A state is changed and not copied: a copy for each record would make a saga of N steps cost N²
(docs/decisions/0002-state-in-place.md). Whoever needs an earlier state folds the journal again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from saga_engine.core.codec import Stored
from saga_engine.core.effects import COMPENSATE, FORWARD, Direction
from saga_engine.core.keys import idempotency_key
from saga_engine.core.plan_growth import Added, Growth
from saga_engine.core.records import SagaStarted
from saga_engine.core.state_values import (
    Alerting,
    Backward,
    Deduplicated,
    Ending,
    Flight,
    Made,
    Notice,
    OpenQuestion,
    Phase,
    Place,
    Reminder,
    Replanning,
    Reused,
    StepState,
    Turning,
    Underway,
)
from saga_engine.core.states import ESCALATED, PENDING, SAGA_FINAL, SUCCEEDED
from saga_engine.core.waits import Pending
from saga_engine.errors import BindingUnresolved
from saga_engine.plan.compiled import CompiledCall, CompiledPlan, CompiledRollback, Serving, WithoutList
from saga_engine.plan.undo_calls import undo_call


class State:
    """One saga. See the module's docstring for who may change it."""

    __slots__ = (
        "__weakref__",
        "added",
        "alerts",
        "ask_crashes",
        "ask_later_times",
        "at",
        "calls",
        "denied",
        "depth",
        "digest",
        "doubts",
        "ended_at",
        "ending",
        "epoch",
        "failed",
        "grown",
        "growth",
        "happened",
        "in_flight",
        "input",
        "left_any",
        "lists",
        "looks",
        "notices",
        "open",
        "parent",
        "passed",
        "pending",
        "phase",
        "plan",
        "questions",
        "ready",
        "remaining",
        "reminders",
        "replan_saw",
        "replans",
        "saga_id",
        "seed",
        "sensitive",
        "session",
        "started_at",
        "status",
        "steps",
        "tags",
        "template",
        "to_check",
        "to_escalate",
        "tools",
        "undo_of",
        "undo_open",
        "undo_ready",
        "waiting",
    )

    def __init__(self, started: SagaStarted, plan: CompiledPlan, growth: Growth | None = None) -> None:
        self.saga_id = started.saga_id
        self.plan = plan
        #: How the plan grows; without it nothing can be added to the saga.
        self.growth = growth
        #: The plan is this saga's own: it can grow in place.
        self.grown = False
        self.added: list[Added] = []
        #: The items of steps with ``each``, by the index of the step.
        self.lists: dict[int, list[Any]] = {}
        self.input: Mapping[str, Any] = plan.input
        self.seed = started.seed
        self.digest = started.digest
        self.tools: Mapping[str, str] = started.tools
        #: Params that no view shows, by tool.
        self.sensitive: Mapping[str, list[str]] = started.sensitive
        #: By these the saga is found.
        self.tags = tuple(dict.fromkeys([*plan.tags, *started.tags]))
        self.template = started.template
        self.started_at = self.at = started.at
        self.ended_at = 0
        #: The end is certain, and the steps of ``finally`` run; None: not yet, or the plan has none.
        self.ending: Ending | None = None
        self.epoch = 1
        self.status: str = PENDING
        self.phase: Phase = FORWARD
        #: Steps that were not done and will not be, in that order.
        self.failed: list[int] = []
        self.steps = [StepState(len(step.deps)) for step in plan.steps]
        self.remaining = len(plan.steps)
        self.calls = 0
        self.happened = 0
        self.passed = 0  # how many steps are settled and did not happen
        # Dicts serve as ordered sets: what came first goes first.
        self.ready: dict[int, None] = {step.index: None for step in plan.steps if not step.deps}
        self.in_flight: dict[Place, Flight] = {}
        self.waiting: dict[Place, int] = {}
        #: What is waited for that is no call, by step: one thing at a time.
        self.pending: dict[int, Pending] = {}
        self.doubts: dict[Place, None] = {}
        self.undo_ready: dict[int, None] = {}
        self.undo_open = 0
        self.to_escalate: dict[Place, str] = {}
        #: Undos that are to be looked at, by step, with the time; -1: an operator is asked, or has it made again.
        self.looks: dict[int, int] = {}
        self.to_check: dict[int, None] = {}  # steps that happened, and whose output may mean failure
        #: Steps that did not happen according to an operator, and that have another way left.
        self.denied: dict[int, None] = {}
        self.questions: dict[str, OpenQuestion] = {}
        self.notices: dict[str, Notice] = {}
        self.alerts: dict[str, Alerting] = {}
        self.reminders: dict[str, Reminder] = {}
        #: How many owners in a row ended before a model answered for a step.
        self.ask_crashes: dict[int, int] = {}
        #: How often a model could not be reached and was to be asked again by itself, by step.
        self.ask_later_times: dict[int, int] = {}
        #: How many steps there were when a model was last asked for another way.
        self.replan_saw = 0
        self.replans = 0
        self.left_any = False
        #: A saga whose agent makes its calls as it goes; while it is ``open``, more may come.
        self.session = self.open = started.session
        #: The completed saga that this one undoes. The pivot of that one holds nothing back: it remains.
        self.undo_of = started.undo_of
        #: The saga that waits for this one, and how many are above it.
        self.parent = started.parent
        self.depth = 0 if started.parent is None else started.parent.depth

    @property
    def backward(self) -> bool:
        """Whether the saga has turned around."""
        return isinstance(self.phase, Backward)

    @property
    def turns(self) -> bool:
        """Whether the saga is to turn around, or has turned around."""
        return self.phase != FORWARD and not isinstance(self.phase, Replanning)

    @property
    def reason(self) -> str | None:
        """Why the saga turns or turned around; None: it does not."""
        return self.phase.reason if isinstance(self.phase, (Turning, Backward)) else None

    @property
    def deadline_ms(self) -> int | None:
        """When forward work must end, in Unix ms on the store's clock."""
        return None if self.plan.deadline_s is None else self.started_at + round(self.plan.deadline_s * 1000)

    @property
    def binding_deadline(self) -> int | None:
        """The deadline, unless the saga turns or has turned around, or the pivot has happened."""
        if self.plan.deadline_s is None or self.turns or self.past_pivot or self.ending is not None:
            return None
        return None if self.status in SAGA_FINAL else self.deadline_ms

    def calls_forward(self) -> bool:
        """Whether a forward call, or its probe, is in flight, or something holds the turn: its end is awaited."""
        if self.pending and any(each.holds_turn for each in self.pending.values()):
            return True
        return any(direction == FORWARD for _, direction in self.in_flight)

    def children(self) -> list[int]:
        """The steps that wait for a child saga, or for the undo of one."""
        return [index for index, each in self.pending.items() if each.on == "child"]

    def steps_waiting(self) -> list[Pending]:
        """What steps wait for themselves."""
        return [each for each in self.pending.values() if each.of_step]

    def looks_for_able(self) -> bool:
        """Whether something is pending for which a process is looked for that can do it."""
        return any(each.until for each in self.pending.values())

    def is_returning(self) -> bool:
        """Whether an undo is wanted that has not ended, or is looked at."""
        return bool(self.undo_open or self.looks)

    def is_done(self) -> bool:
        """Whether every step happened that is still wanted, no call can be added, and no rollback has not ended."""
        return not (self.remaining or self.open or self.undo_open or self.looks)

    def is_undone(self) -> bool:
        """Whether every undo has ended, and also every call of a semantic compensation."""
        busy = self.undo_open or self.in_flight or self.waiting or self.doubts or self.questions or self.looks
        return not (busy or (self.pending and any(each.holds_end for each in self.pending.values())))

    @property
    def past_pivot(self) -> bool:
        """Whether the pivot has happened."""
        pivot = self.plan.pivot
        return pivot is not None and self.steps[pivot].status == SUCCEEDED and not self.undo_of

    def acting(self, index: int) -> Serving:
        """The step's current forward call: its own, or the fallback that was chosen."""
        using = self.steps[index].using
        step = self.plan.steps[index]
        return step.fallbacks[using - 1] if using else step

    def next_way(self, index: int, *, unavailable: bool) -> int:
        """The number of the fallback to use when the step's current call failed; 0: there is none.

        An old result or waiting can only replace the step's own tool if that was unreachable; another tool may always
        be tried.
        """
        step, at = self.plan.steps[index], self.steps[index]
        away = at.unavailable if at.using else unavailable
        for number, fallback in enumerate(step.fallbacks[at.using :], at.using + 1):
            if fallback.way == "tool" or away:
                return number
        return 0

    def undoing(self, index: int) -> CompiledRollback | None:
        """The undo of the step's current call; None if it cannot be undone, or if another saga owns the effect."""
        return self.rollback_of(index) if self.owns(index) else None

    def rollback_of(self, index: int) -> CompiledRollback | None:
        """How the step's current call is undone; None: it is not.

        Of an undo of several calls: the call that was intended last, or the first one.
        """
        at = self.steps[index]
        step = self.plan.steps[index]  # as in ``whole_rollback``, for each undo: without a call of its own
        rollback = step.fallbacks[at.using - 1].rollback if at.using else step.rollback
        if rollback is not None and rollback.absent is not None and at.before == {"absent": True}:
            rollback = rollback.absent
        if rollback is None or at.undo_call is None:
            return rollback
        return undo_call(rollback, at.undo_call.place, self.plan.steps[index].key, index)

    def whole_rollback(self, index: int) -> CompiledRollback | None:
        """How the step's current call is undone, with all calls: like a creation, if there was nothing before."""
        using = self.steps[index].using
        step = self.plan.steps[index]
        rollback = step.fallbacks[using - 1].rollback if using else step.rollback
        if rollback is None or rollback.absent is None:
            return rollback
        return rollback.absent if self.steps[index].before == {"absent": True} else rollback

    def owns(self, index: int) -> bool:
        """Whether the effect of a step, if it has one, is this saga's to undo.

        A wait that timed out took nothing, and an undo is never undone.
        """
        effect = self.steps[index].effect
        if type(effect) is Made and effect.via == "timer":
            return False
        if self.steps[index].undoes >= 0:
            return False
        return effect is None or not (isinstance(effect, Deduplicated) or effect.to)

    def rollback(self, index: int) -> CompiledRollback:
        """The undo of a step; the step must have a rollback."""
        rollback = self.rollback_of(index)
        assert rollback is not None
        return rollback

    def serving(self, index: int, direction: Direction) -> CompiledCall:
        """What is called for a step in one direction: its current forward call, or that call's undo."""
        if direction != FORWARD:
            rollback = self.rollback_of(index)
            assert rollback is not None
            return rollback
        using = self.steps[index].using  # as in ``acting``, for each call: without a call of its own
        step = self.plan.steps[index]
        return step.fallbacks[using - 1] if using else step

    def compensates_still(self, index: int) -> bool:
        """Whether the step belongs to a semantic compensation that is still wanted: its other steps go well."""
        stuck = self.plan.steps[index].compensates
        return stuck is not None and isinstance(self.steps[stuck].semantic, Underway)

    def still_wanted(self, index: int, direction: Direction) -> bool:
        """Whether a call in doubt may be repeated to settle it.

        Not one of a semantic compensation that is no longer wanted: it would have an effect that nobody needs.
        """
        return direction == COMPENSATE or self.plan.steps[index].compensates is None or self.compensates_still(index)

    def key(self, index: int, direction: Direction) -> str:
        """The idempotency key of a step in one direction."""
        step = self.steps[index]
        if type(step.effect) is Reused and step.effect.key and direction == FORWARD:
            return step.effect.key
        if step.undoes >= 0 and direction == FORWARD:  # its call is the undo of that step
            return self.key(step.undoes, COMPENSATE)
        undo = 0 if step.undo_call is None else step.undo_call.number
        return idempotency_key(self.saga_id, self.plan.steps[index].key, direction, self.seed, step.using, undo)

    def undo_key(self, index: int, number: int) -> str:
        """The idempotency key of one call of an undo of several calls."""
        return idempotency_key(self.saga_id, self.plan.steps[index].key, COMPENSATE, self.seed, 0, number)

    def approval(self, index: int, direction: Direction) -> str:
        """The digest of the exact call that an operator approved, while that is valid; else an empty text."""
        approval = self.steps[index].call(direction).approval
        return approval.digest if approval and self.at < approval.until else ""

    def expiries(self) -> list[int]:
        """When, in Unix ms, the open questions expire."""
        return [question.expires for question in self.questions.values() if question.expires is not None]

    def overdue(self, now_ms: int, *, alerting: bool) -> bool:
        """Whether a resting saga has something to do: its deadline or an approval has expired, or a reminder is due."""
        dues = [*self.expiries(), *(reminder.due for reminder in self.reminders.values() if alerting)]
        deadline = self.binding_deadline
        return any(due <= now_ms for due in (dues if deadline is None else [*dues, deadline]))

    def next_overdue(self) -> int | None:
        """When, in Unix ms, ``overdue`` becomes true of a saga that rests or is open if nothing else happens."""
        deadline = self.binding_deadline if self.status == ESCALATED or self.open else None
        if deadline is None and not (self.questions or self.reminders):
            return None
        dues = [*self.expiries(), *(reminder.due for reminder in self.reminders.values())]
        return min(dues if deadline is None else [*dues, deadline], default=None)

    def changed(self, tool: str, digest: str) -> bool:
        """Whether a tool's declaration differs from that at the submission of the saga."""
        return self.tools.get(tool, digest) != digest

    def alerts_pending(self, *, alerting: bool) -> bool:
        """Whether notifications of an open question are pending."""
        return alerting and bool(self.alerts)

    def only_waits(self) -> bool:
        """Whether nothing is in flight, so that only time, an operator or another process can move the saga."""
        if self.in_flight or self.ready or self.undo_ready or self.open:
            return False
        told = not any(alert.in_flight for alert in self.alerts.values())
        return told and not (self.pending and any(each.here for each in self.pending.values()))

    def next_due(self, now_ms: int, *, waits: bool = True) -> int | None:
        """When, in Unix ms after ``now_ms``, something becomes due by itself; None: nothing will.

        Without ``waits`` what is pending is left out.
        Call it when ``decide`` has nothing more to do at ``now_ms``: what is overdue waits for others, not for time.
        """
        timed = self.waiting or self.pending or self.alerts or self.plan.deadline_s or self.questions
        if not (timed or self.looks):
            return None
        dues = [due for due in self.looks.values() if due > now_ms]
        dues += [due for due in self.waiting.values() if due > now_ms]
        dues += [look for each in self.pending.values() if waits and (look := each.next_look(now_ms)) is not None]
        dues += [expires for expires in self.expiries() if expires > now_ms]
        dues += [reminder.due for reminder in self.reminders.values() if reminder.due > now_ms]
        dues += [alert.due for alert in self.alerts.values() if not alert.in_flight and alert.due > now_ms]
        deadline = self.binding_deadline
        if deadline is not None and deadline > now_ms:
            dues.append(deadline)
        dues += [self.ending.until] if self.ending is not None and self.ending.until > now_ms else []
        return min(dues) if dues else None


class StateScope(WithoutList):
    """The values that a saga's bindings find. Secrets show as their marker: their values are never journalled."""

    __slots__ = ("_state",)

    def __init__(self, state: State) -> None:
        self._state = state

    @property
    def saga_id(self) -> str:
        """The saga's id."""
        return self._state.saga_id

    @property
    def input(self) -> Mapping[str, Any]:
        """The plan's input."""
        return self._state.input

    @property
    def end(self) -> Mapping[str, Any]:
        """How the saga ends; empty while that is not certain."""
        return {} if self._state.ending is None else self._state.ending.facts

    def output(self, step_key: str) -> Any:
        """The output of a step that happened; raises ``BindingUnresolved``."""
        step = self._step(step_key)
        if step.effect is None:
            raise BindingUnresolved(f"step {step_key} has no output", step=step_key, absent=True)
        return step.output

    def before(self, step_key: str) -> Any:
        """The value before a step's call; raises ``BindingUnresolved`` if there was none, or none was read."""
        image = self._step(step_key).before
        if image is None or isinstance(image, Stored) or "value" not in image:
            raise BindingUnresolved(f"step {step_key} has no value from before its call", step=step_key, absent=True)
        return image["value"]

    def params(self, step_key: str) -> Any:
        """The resolved forward params of a step."""
        return self._state.acting(self._state.plan.by_key[step_key]).params.resolve(self)

    def key(self, step_key: str) -> str:
        """The forward idempotency key of a step."""
        return self._state.key(self._state.plan.by_key[step_key], FORWARD)

    def secret(self, name: str) -> str:
        """The marker that stands for a secret in the journal."""
        return f"$secret.{name}"

    def _step(self, step_key: str) -> StepState:
        return self._state.steps[self._state.plan.by_key[step_key]]
