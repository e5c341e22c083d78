"""A whole saga in one thread: the pure core, a model of the journal, a model of the outside world, a person, and dice.

Everything that can go wrong is drawn from ``dice``, so a seed reproduces a run. The simulation raises ``Violation`` the
moment one of the engine's laws is broken; mutants of the core are caught by it (test_mutants).
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Sequence
from typing import Any

from saga_engine.core import codec
from saga_engine.core import decide as deciding
from saga_engine.core import evolve as evolving
from saga_engine.core import fold as folding
from saga_engine.core import records as r
from saga_engine.core import transitions as t
from saga_engine.core.effects import (
    COMPENSATE,
    FORWARD,
    Alert,
    Ask,
    AskPlanner,
    Blocked,
    CallTool,
    Done,
    ErrorInfo,
    LookAfterUndo,
    NotDone,
    Outcome,
    ReadBefore,
    Unknown,
)
from saga_engine.core.machine import FixedMeans, Machine, Result
from saga_engine.core.messages import Message, answer
from saga_engine.core.plan_growth import Growth
from saga_engine.core.question_view import proposed_steps
from saga_engine.core.report import view
from saga_engine.core.state import State
from saga_engine.core.state_values import Deduplicated
from saga_engine.plan.compiled import CompiledPlan
from saga_engine.plan.compiler import compile_plan
from saga_engine.plan.model import load_plan
from saga_engine.plan.tool_spec import ToolSpec
from tests.core.cases import SPARE, Catalog, make_case, undone_by_own_words
from tests.core.marks import mark_of
from tests.core.simulated_guards import Guarded
from tests.core.simulated_replanning import Replanning
from tests.core.world import Journal, Violation, World, dump, exceptions_before, key_sent_ms, place_of

MAX_CYCLES = 2000
MAX_CRASHES = 20
#: Calls that were intended, and have not begun.
UNMADE = ("intended", "queued")


class Crash(Exception):
    """The process died here."""


class Simulation(Guarded, Replanning):
    """Runs one saga under one set of dice; ``trouble`` in [0, 1] is how much goes wrong."""

    def __init__(self, dice: random.Random, trouble: float = 0.5) -> None:
        self.dice = dice
        self.trouble = trouble
        self.plan_body, self.catalog = self._case()
        self.plan = self._compile()
        self.world = self._world()(self.catalog)
        self.world.by_own_words = undone_by_own_words(self.plan_body)
        self.journal = Journal()
        self.now = 1_000_000
        self.intended: set[tuple[int, str, int]] = set()
        self.begun: set[tuple[Any, ...]] = set()
        self.started = self._first()
        self.growth = Growth(self.started, self.catalog)
        self.capabilities = deciding.Capabilities(
            planner=dice.random() < 0.7, semantic=dice.choice(["approve", "auto", "never"])
        )
        self.spare = iter(range(SPARE))
        self.allowed_compensations: set[str] = set()
        self.cycles = 0
        self.crashes = 0
        self.cancelled = False
        steps = [step.key for step in self.plan.steps]
        #: Calls for which the policy wants a person's word, and what people said: until when it counts.
        self.asked_first = {(key, way) for key in steps for way in (FORWARD, COMPENSATE) if dice.random() < 0.1}
        self.approved: dict[str, int] = {}
        #: When a guard first refused a call of a step, by the way that was used.
        self.held_since: dict[tuple[str, int], int] = {}
        self.raising: set[tuple[str, str, str]] = set()  # calls that ended with an exception which says nothing
        self.inbox: list[Message] = []  # durable: a message leaves it in the append that answers it

    # --- what is simulated ---------------------------------------------------------------------------------------

    def _case(self) -> tuple[dict[str, Any], Catalog]:
        return make_case(self.dice)

    def _world(self) -> type[World]:
        """The outside world; a part of the simulation that has more to say of it adds its own."""
        return World

    def _compile(self) -> CompiledPlan:
        return compile_plan(load_plan(self.plan_body), self.catalog)

    def _first(self) -> r.SagaStarted:
        return r.SagaStarted(
            at=self.now,
            saga_id="sim",
            plan=self.plan_body,
            digest="d",
            seed="seed",
            undos=self.plan.undos,
            reads=sorted(self.plan.reads),
        )

    def _begin(self) -> State:
        return folding.begin(self.started, self.plan, self.growth)

    def _fold(self, records: list[r.AnyRecord]) -> State:
        return folding.fold(records, self.plan, self.growth)

    def _agent(self, state: State) -> None:
        """What a session's agent wants recorded; a plan has none."""

    def _agent_returns(self) -> bool:
        """Whether a session's agent runs again with the new owner."""
        return False

    def _idle(self, state: State) -> bool:
        """Whether there is somebody to wait for although nothing is under way, and nothing asked."""
        return False

    # --- one owner -----------------------------------------------------------------------------------------------

    def run(self) -> State:
        """Until the saga has ended; raises ``Violation``."""
        state = self._begin()
        pending: list[r.AnyRecord] = [self.started]
        while True:
            with contextlib.suppress(Crash):
                state = self._own(state, pending)
            if self.journal.data and self._folded().status in t.SAGA_FINAL:
                state = self._folded()
                break
            state, pending = self._take_over()
            if state.status in t.SAGA_FINAL:
                break
            self._bump()
        self._check_end(state)
        return state

    def _bump(self) -> None:
        self.cycles += 1
        if self.cycles > MAX_CYCLES:
            raise Violation(f"the saga does not come to rest: {view(self._folded())}")

    def _take_over(self) -> tuple[State, list[r.AnyRecord]]:
        if not self.journal.data:
            return self._begin(), [self.started]
        state = self._folded()
        if state.status in t.SAGA_FINAL:
            return state, []
        self.now += self.dice.choice([0, 10, 5000, 15000])
        for step in list(self.world.at_work):  # a thread ends with its process at the latest
            if self.dice.random() < 0.5:
                self.world.ended(step)
            self.world.at_work.pop(step, None)
        self.journal.epoch += 1
        resumed = r.SagaResumed(at=self.now, owner="o", epoch=self.journal.epoch, agent=self._agent_returns())
        waited = [
            (place, state.steps[place[0]].call(place[1])) for place, kind in state.in_flight.items() if kind in UNMADE
        ]
        never_made = [(place, call, call.tries) for place, call in waited if not call.doubt]
        evolving.evolve(state, resumed)
        for place, call, tries in never_made:
            if call.doubt or call.tries != tries - 1 or place not in state.waiting:
                raise Violation(f"{place}: the call only waited when its process ended, and counts as made")
        return state, [resumed]

    def _own(self, state: State, pending: list[r.AnyRecord]) -> State:
        epoch = self.journal.epoch
        seq = len(self.journal.data)
        in_flight: list[Any] = []
        machine = self.machine = Machine(state, FixedMeans(self.capabilities, catalog=self.catalog))
        machine.begin(pending)
        while True:
            self._bump()
            self._outside_message(state)
            if state.questions and self.dice.random() < 0.1:
                self._person(state)
            answered = len(self.inbox)
            for message in self.inbox:
                machine.hear(message, max(self.now, state.at))
            self._agent(state)
            ready = machine.ready(max(self.now, state.at), self._round)
            if ready.records:
                self._maybe_crash()
                seq = self._append(state, epoch, seq, ready.records)
                del self.inbox[:answered]
                self._maybe_crash()
            for effect in machine.durable(ready):
                if not isinstance(effect, ReadBefore | LookAfterUndo):
                    self._check_turn(state, effect)
                    self.intended.add(place_of(effect))
                in_flight.append(effect)
            if state.status in t.SAGA_FINAL:
                return state
            if in_flight:
                effect = in_flight.pop(self.dice.randrange(len(in_flight)))
                if isinstance(effect, CallTool) and (record := self._waits(state, effect)) is not None:
                    if isinstance(record, r.StepQueued | r.StepBegun):
                        in_flight.append(effect)
                    continue
                if isinstance(effect, AskPlanner) and self.dice.random() < 0.4:  # it takes its time
                    in_flight.append(effect)
                    continue
                self._perform(state, effect)
                continue
            self._check_deadline(state)
            due = state.next_due(max(self.now, state.at))
            if due is not None and (state.status != t.ESCALATED or self.dice.random() < 0.5):
                self.now = max(due, self.now)
            elif state.questions:
                self._person(state)
            elif self._idle(state):
                continue
            elif due is None:
                raise Violation(f"nothing to wait for and not at an end: {view(state)}")

    def _round(self, _found: Sequence[r.AnyRecord]) -> bool:
        self._bump()
        return True

    def _append(self, state: State, epoch: int, seq: int, records: Sequence[r.AnyRecord]) -> int:
        values: dict[str, bytes] = {}
        data = [codec.encode(record, values) for record in records]
        for record in records:
            if isinstance(record, r.StepDeferred) and record.in_doubt:
                self._check_key(state, record)
            held = isinstance(record, r.StepRetryScheduled | r.StepInDoubt) and not record.counted
            if held and record.error.error_code == "breaker_open":  # (one that counted has waited as long as it may)
                place = record.step, state.steps[state.plan.by_key[record.step]].using
                self.held_since.setdefault(place, record.at)
            anew = isinstance(record, r.QuestionResolved) and record.decision in ("retry", "undo")
            if anew or isinstance(record, r.StepDeferred):
                # The call begins anew, and so does its wait for guards.
                step = record.question.rsplit(":", 2)[0] if isinstance(record, r.QuestionResolved) else record.step
                self.held_since = {at: since for at, since in self.held_since.items() if at[0] != step}
        if not self.journal.append(epoch, seq, data):
            raise Violation("an append of the only owner was refused")
        if self.dice.random() < 0.1 and not self.journal.append(epoch, seq, data):
            raise Violation("asked again with the same records, the journal must say 'already there'")
        folded = self._folded()
        if dump(folded) != dump(state):
            raise Violation(f"live state and folded journal differ:\n{dump(state)}\n{dump(folded)}")
        return seq + len(data)

    def _folded(self) -> State:
        return self._fold(self.journalled())

    def journalled(self) -> list[r.AnyRecord]:
        return [codec.decode(data) for data in self.journal.data]

    def _maybe_crash(self) -> None:
        if self.crashes < MAX_CRASHES and self.dice.random() < 0.12 * self.trouble:
            self.crashes += 1
            raise Crash

    # --- the outside ---------------------------------------------------------------------------------------------

    def _perform(self, state: State, effect: Any) -> None:
        if isinstance(effect, Alert):
            self._maybe_crash()
            failed = ErrorInfo("down", "no line") if self.dice.random() < 0.2 else None
            self._learned(effect, failed, self._tick(state), 0.5)
            return
        if isinstance(effect, ReadBefore):
            self._read(state, effect)
            return
        if isinstance(effect, LookAfterUndo):
            self._maybe_crash()
            seen = self._after_undo(state, effect)
            self._maybe_crash()
            self._learned(effect, seen, self._tick(state), self.dice.random())
            return
        if place_of(effect) not in self.intended:
            raise Violation("an effect without its intent")
        if isinstance(effect, AskPlanner):
            self._ask_planner(state, effect)
            return
        compiled = state.plan.steps[effect.step]
        if compiled.kind == "pivot" and effect.direction == FORWARD:
            self._check_pivot(state, compiled.key)
        if isinstance(effect, CallTool) and state.in_flight[effect.step, effect.direction] in UNMADE:
            raise Violation(f"{compiled.key}: a call is made that the journal says was not begun")
        serving = state.serving(effect.step, effect.direction)
        spec = self.catalog.spec(serving.tool)
        assert spec is not None
        if compiled.compensates is not None and compiled.key not in self.allowed_compensations:
            raise Violation(f"{compiled.key} makes up for another step, and nobody allowed it")
        if not isinstance(effect, CallTool):
            outcome = self._probe(*self._place(state, effect.step, effect.direction), spec)
        elif effect.direction == COMPENSATE and isinstance(self._folded().steps[effect.step].effect, Deduplicated):
            raise Violation(f"{compiled.key}: undone although its effect is another saga's")
        elif getattr(serving, "way", "") == "cached":
            outcome = self._last_good()
        else:
            refused = self._gate(state, effect, compiled.key, spec)
            outcome = refused or self._call(
                *self._place(state, effect.step, effect.direction), spec, state.key(effect.step, effect.direction)
            )
        self._maybe_crash()
        self._learned(effect, outcome, self._tick(state), self.dice.random())

    def _place(self, state: State, index: int, direction: str) -> tuple[str, str]:
        """The step of which a call makes or undoes the effect, and which of the two."""
        return state.plan.steps[index].key, direction

    def _noted(self, record: r.AnyRecord) -> r.AnyRecord:
        """A call waits for a guard, or waits no more."""
        self.machine.take([record])
        return record

    def _learned(self, effect: Any, result: Result, now: int, dice: float) -> r.AnyRecord:
        """An effect has an outcome; returns its record."""
        self.machine.learn(effect, result, now, dice)
        return self.machine.said().records[-1]

    def _read(self, state: State, effect: ReadBefore) -> None:
        """What a read shows of the value that a call is about to change; nothing here has any."""
        raise NotImplementedError

    def _after_undo(self, state: State, effect: LookAfterUndo) -> Any:
        """What a look after an undo shows: here the undo's own probe is asked."""
        spec = state.serving(effect.step, COMPENSATE).spec
        assert effect.by == "probe"
        assert spec is not None
        return self._probe(*self._place(state, effect.step, COMPENSATE), spec)

    def _tick(self, state: State) -> int:
        self.now = max(self.now, state.at) + self.dice.choice([0, 1, 700])
        return self.now

    def _gate(self, state: State, effect: CallTool, step: str, spec: ToolSpec) -> Outcome | None:
        """A policy: some calls need a person's word, and now and then it refuses one."""
        if (step, effect.direction) in self.asked_first:
            digest = f"{step}:{effect.direction}:{spec.name}"
            if state.approval(effect.step, effect.direction) != digest:
                return Ask(ErrorInfo("approval_required", "may it?"), digest, expires_s=4.0, rule="ask")
            if self.approved.get(digest, 0) <= state.at:
                raise Violation(f"{digest} was called, and nobody's approval of it is valid")
        if self.dice.random() < 0.04 * self.trouble:
            return Blocked(ErrorInfo("policy_denied", "never"), rule="deny")
        return None

    def _last_good(self) -> Outcome:
        if self.dice.random() < 0.5:
            return Done({"ref": "old"}, "cache", "", 1000)
        return NotDone(ErrorInfo("no_last_good", "nothing kept"), retryable=False, definite=True)

    def _call(self, step: str, direction: str, spec: ToolSpec, key: str) -> Outcome:
        self.world.leave_alone(step)
        self.world.knock(step, spec, key)
        luck = self.dice.random()
        if (step, direction, spec.name) in self.raising and self.dice.random() < 0.6:
            luck = 0.09 * self.trouble  # what raised once mostly raises again
        if direction == FORWARD and spec.remembers and not self.world.times and self.dice.random() < 0.2:
            self.world.elsewhere.add(step)
            return Done({"ref": f"ref-{step}"}, "deduplicated", "another")
        if self.world.remembers(key, spec, self.now) and luck > 0.40 * self.trouble:
            if luck < 0.55 * self.trouble:  # refused at the door, before anybody looked at the key
                return NotDone(ErrorInfo("unauthorized", "who are you?"), retryable=False, definite=False)
            luck = 1.0
        if luck < 0.02 * self.trouble:
            return Unknown(ErrorInfo("unreachable", "it never left"), sent=False)
        if luck < 0.04 * self.trouble and spec.effect != "read":
            # (Its request arrives now: the engine promises that the key is known as long as the time-out lasts.)
            self.world.at_work[step] = lambda now=self.now: self.world.apply(step, direction, spec, key, now)
            return Unknown(ErrorInfo("timeout", "its thread goes on"), at_work=True)
        states = spec.keyed or spec.probe is not None  # of such tools an exception that says nothing is no refusal
        if luck < 0.10 * self.trouble:  # some of them, because the worker died that had the call
            raised = states and luck > 0.08 * self.trouble and self.raising.add((step, direction, spec.name)) is None
            return Unknown(ErrorInfo("timeout", "no answer"), lost=luck < 0.06 * self.trouble, raised=raised)
        if luck < 0.25 * self.trouble:
            self.world.apply(step, direction, spec, key, self.now)
            raised = states and luck > 0.19 * self.trouble and self.raising.add((step, direction, spec.name)) is None
            error = ErrorInfo("timeout", "no answer, but it happened")
            return Unknown(error, lost=luck < 0.15 * self.trouble, raised=raised)
        if luck < 0.40 * self.trouble:
            return NotDone(ErrorInfo("busy", "later"), retryable=True, definite=self.dice.random() < 0.5)
        if luck < 0.55 * self.trouble:
            happened = direction == FORWARD and self.world.standing.get(step)
            return NotDone(ErrorInfo("no", "never"), retryable=False, definite=not happened)
        return Done(self.world.apply(step, direction, spec, key, self.now))

    def _probe(self, step: str, direction: str, spec: ToolSpec) -> Outcome:
        self.world.leave_alone(step)
        luck = self.dice.random()
        if luck < 0.3 * self.trouble:  # some of them, because the worker died that asked
            return Unknown(ErrorInfo("probe", "cannot tell"), lost=luck < 0.1 * self.trouble)
        if self.world.happened(step, direction):
            return Done({"ref": f"ref-{step}"})
        if spec.probe is None:  # the engine's own memory knows what came back, not what never happened
            return Unknown(ErrorInfo("no_probe", "nothing is remembered"))
        return NotDone(ErrorInfo("no", "did not happen"), retryable=True, definite=True)

    # --- people --------------------------------------------------------------------------------------------------

    def _outside_message(self, state: State) -> None:
        if self.dice.random() < (
            0.3 if any(each.here and each.about == "replan" for each in state.pending.values()) else 0.02
        ):
            number = next(self.spare, None)
            if number is not None:
                self.inbox.append(Message(id=f"a{number}", kind="amend", steps=self._new_steps(number)))
        if not self.cancelled and self.dice.random() < 0.03 * self.trouble * 2:
            self.cancelled = True
            self.inbox.append(Message(id="m", kind="cancel", by="somebody"))

    def _person(self, state: State) -> None:
        """A person who looks at the world before answering."""
        now = max(self.now, state.at)
        questions = [asked for asked in state.questions.values() if asked.expires is None or asked.expires > now]
        if not questions or any(message.kind == "resolve" for message in self.inbox):
            return  # an answer is on its way
        question = self.dice.choice(questions)
        step = state.plan.steps[question.step].key
        key = state.key(question.step, question.direction)
        spec = state.acting(question.step).spec
        if self.dice.random() < 0.5:  # people look when it is over
            self.world.ended(step)
        self.world.at_work.pop(step, None)
        of, way = self._place(state, question.step, question.direction)
        options = [option for option in question.options if self._truthful(option, of, way, key, spec)]
        decision = self.dice.choice(options)
        if decision == "approve" and question.kind == "compensation":
            steps = proposed_steps(state, question.step) or ()
            self.allowed_compensations |= {str(added["step_id"]) for added in steps}
        elif decision == "approve":
            self.approved[question.call] = question.expires or 0
        if decision in ("undone", "happened") and question.direction == COMPENSATE:
            self.world.standing[step] = 0
        elif decision == "happened" and way == COMPENSATE:
            self.world.standing[of] = 0
        output = None
        if decision == "happened" and way == FORWARD:
            if state.plan.steps[question.step].kind != "read":
                self.world.standing[step] = 1  # if it did not stand, the person did it by hand
                self.world.made_by[step] = (
                    state.acting(question.step).tool or f"do_{step}"
                )  # a step that waits has no tool
            output = self._told(step)
        mark = mark_of(state, question, decision)
        message = Message(
            id="d",
            kind="resolve",
            step=step,
            decision=decision,
            output=output,
            by="p",
            question=question.id,
            expect=mark,
        )
        if not isinstance(answer(state, message, state.at), r.QuestionResolved):
            raise Violation(f"a legal answer was refused: {message}")
        self.inbox.append(message)

    def _told(self, step: str) -> dict[str, Any]:
        """What a person says that a call returned."""
        return {"ref": f"ref-{step}"}

    def _truthful(self, option: str, step: str, direction: str, key: str, spec: ToolSpec | None) -> bool:
        stands = bool(self.world.standing.get(step))
        if direction == FORWARD:
            if option == "not-happened":
                return not stands
            if option == "retry":
                return not stands or bool(spec and spec.key_ttl_s is None and self.world.remembers(key, spec, self.now))
            return True
        return stands or option not in ("retry", "not-happened", "undo")

    # --- the laws at the end -------------------------------------------------------------------------------------

    def _check_key(self, state: State, deferred: r.StepDeferred) -> None:
        """A call in doubt waits only for a repeat that still arrives while its key is remembered."""
        index = state.plan.by_key[deferred.step]
        spec = state.acting(index).spec
        assert spec is not None
        first = key_sent_ms(self.journalled(), deferred.step)
        arrives_ms = deferred.at + deferred.delay_ms + round(spec.timeout_s * 1000) - first
        if not spec.keyed or (spec.key_ttl_s is not None and arrives_ms > spec.key_ttl_s * 1000):
            raise Violation(f"{deferred.step} waits in doubt for a repeat that nobody would recognise")

    def _check_doubts(self) -> None:
        """What an undo is to settle is not asked of a person."""
        to_undo: set[str] = set()
        for record in self.journalled():
            if isinstance(record, r.CompensationRequested):
                to_undo.add(record.step)
            elif isinstance(record, r.StepEscalated) and record.kind == "in-doubt" and record.step in to_undo:
                given_up = record.error is not None and record.error.error_code == "takeovers_without_progress"
                if not given_up:
                    raise Violation(f"the undo of {record.step} was to settle its doubt, and a person is asked")

    def _check_end(self, state: State) -> None:
        self._check_replans()
        self._check_doubts()
        shown = view(state).plain()
        statuses = {str(step["step_id"]): step["status"] for step in shown["steps"] if step["kind"] != "finally"}
        kinds = {step.key: step.kind for step in state.plan.steps}
        standing = {step for step, count in self.world.standing.items() if count and kinds[step] != "finally"}
        if state.status == t.COMPLETED:
            dropped = {key for added in state.added for key in added.addition.dropped}
            wanted = set(statuses) - dropped - self._passed_over(statuses, dropped)
            missing = {key for key in wanted if kinds[key] != "read"} - standing - self.world.elsewhere
            if missing or {statuses[key] for key in wanted} - {t.SUCCEEDED} or standing & dropped:
                raise Violation(f"completed, but {missing} does not stand: {shown}")
            return
        report = shown["report"]
        left = {str(step) for step in report["left_in_place"]}
        if report["failed"] or report["unresolved"]:
            raise Violation(f"ended with open ends: {shown}")
        semantic = {str(step) for step in report.get("semantic", ())}
        compensates = {key for key in statuses if kinds[key] == "compensation"}
        accepted = {
            said.step
            for said in self.journalled()
            if isinstance(said, r.QuestionResolved) and said.decision == "accept"
        }
        for step in state.plan.steps:
            if step.compensates is None or step.key not in standing - accepted:
                continue
            if state.plan.steps[step.compensates].key not in semantic:
                raise Violation(f"{step.key} makes up for nothing and stands, and nobody accepted that")
        for step in state.plan.steps:
            stuck = step.compensates
            if stuck is not None and state.plan.steps[stuck].key in semantic and step.key not in standing:
                raise Violation(f"{step.key} was to make up for another step, which counts as done, and does not stand")
        if standing - left - semantic - compensates:
            raise Violation(f"{state.status}, but {standing - left} stands and nobody is told: {shown}")
        unasked = any(
            isinstance(record, r.StepUnsettled) and record.error.error_code == "takeovers_without_progress"
            for record in self.journalled()
        )
        if state.status == t.COMPENSATED and (left or report["clean"] != (not (semantic or unasked))):
            raise Violation(f"compensated, but not clean: {shown}")
        for step in report["compensated"]:
            if self.world.standing.get(str(step)) and str(step) not in semantic:
                raise Violation(f"{step} is reported compensated and stands")

    # --- the laws on the way -------------------------------------------------------------------------------------

    def _check_deadline(self, state: State) -> None:
        """Nothing is in flight, and all that can be decided is: a deadline that has passed has turned the saga around."""
        deadline = self.plan_body.get("deadline_s")
        if deadline is None or state.turns or state.past_pivot or state.ending is not None:
            return
        if max(self.now, state.at) >= self.started.at + deadline * 1000:
            raise Violation(f"the deadline went by, and nothing came of it: {view(state)}")

    def _check_turn(self, state: State, effect: Any) -> None:
        """No step is undone while one that comes before it on the way back stands, or may stand, and is to be undone."""
        if isinstance(effect, CallTool) and effect.direction == FORWARD and state.steps[effect.step].forward.doubt:
            key = state.plan.steps[effect.step].key
            if exceptions_before(self.journalled(), key) > 1:
                raise Violation(f"{key}: called a third time after two exceptions that say nothing")
        if not isinstance(effect, CallTool) or effect.direction == FORWARD:
            return
        for other in self._after(state, effect.step):
            compiled, step = state.plan.steps[other], state.steps[other]
            settled = step.status in (t.RESOLVED, t.COMPENSATED, t.FAILED, t.BLOCKED)
            to_undo = state.undoing(other) is not None or compiled.semantic
            if step.forward.doubt and not settled:
                raise Violation(f"{state.plan.steps[effect.step].key} is undone, and {compiled.key} is in doubt")
            if self.world.standing.get(compiled.key) and to_undo and not settled:
                raise Violation(f"{state.plan.steps[effect.step].key} is undone, and {compiled.key} stands")

    def _after(self, state: State, index: int) -> list[int]:
        """The steps that depended on a step, in whatever way."""
        found: dict[int, None] = {}
        stack = [index]
        while stack:
            for other in state.plan.steps[stack.pop()].dependents:
                if other not in found:
                    found[other] = None
                    stack.append(other)
        return list(found)
