"""Sessions in the simulation: an agent that calls, rolls back a part, goes on beside that, fails, and comes to an end.

What the agent may have recorded is asked of ``core.session_records``, as the runtime asks it. All else, from crashes to people
who answer at any time, is the simulation's own.
"""

from __future__ import annotations

import random
from typing import Any

from saga_engine.core import fold as folding
from saga_engine.core import records as r
from saga_engine.core import session_records
from saga_engine.core import transitions as t
from saga_engine.core.effects import ErrorInfo
from saga_engine.core.messages import Message
from saga_engine.core.plan_growth import Growth
from saga_engine.core.report import view
from saga_engine.core.state import State
from saga_engine.plan.compiled import CompiledPlan
from saga_engine.plan.compiler import compile_plan
from saga_engine.plan.model import load_plan
from saga_engine.plan.tool_spec import RetryPolicy, ToolSpec
from tests.core.cases import Catalog
from tests.core.simulation import Crash, Simulation
from tests.core.world import Violation

#: How many calls an agent makes at most.
MAX_CALLS = 7
_TURNS = (r.CancelRequested, r.DeadlinePassed, r.CallLimitReached, r.CompensationStarted)


def make_session(dice: random.Random) -> tuple[dict[str, Any], Catalog]:
    """The body of a session, and a tool of its own for each call that may come."""
    specs: list[ToolSpec] = []
    policy = RetryPolicy(max_attempts=dice.randint(1, 3), base_s=1.0, max_s=4.0)
    for number in range(1, MAX_CALLS + 4):
        specs += _tools(dice, str(number), policy)
    body: dict[str, Any] = {"goal": "simulated", "steps": []}
    if dice.random() < 0.25:
        body["deadline_s"] = dice.randint(1, 30)
    if dice.random() < 0.1:
        body["max_tool_calls"] = dice.randint(1, 6)
    return body, Catalog(specs)


def _tools(dice: random.Random, key: str, policy: RetryPolicy) -> list[ToolSpec]:
    return [
        ToolSpec(
            name=f"do_{key}",
            effect="read" if dice.random() < 0.15 else "write",
            keyed=dice.random() < 0.6,
            key_ttl_s=dice.choice([None, None, 12.0]),
            timeout_s=6.0,
            probe=f"probe_{key}" if dice.random() < 0.3 else None,
            retry=policy,
        ),
        ToolSpec(
            name=f"undo_{key}",
            keyed=dice.random() < 0.5,
            tolerates_absence=dice.random() < 0.5,
            probe=f"probe_{key}" if dice.random() < 0.2 else None,
            retry=RetryPolicy(max_attempts=dice.randint(1, 3), base_s=1.0, max_s=2.0),
            input_schema={"type": "object", "properties": {"ref": {}}},
        ),
        ToolSpec(name=f"probe_{key}", effect="read"),
    ]


class SessionSimulation(Simulation):
    """Runs one session under one set of dice."""

    def __init__(self, dice: random.Random, trouble: float = 0.5) -> None:
        super().__init__(dice, trouble)
        keys = [str(number) for number in range(1, MAX_CALLS + 4)]
        ways = ("forward", "compensate")
        self.asked_first = {(key, way) for key in keys for way in ways if dice.random() < 0.06}
        self.irreversible = {key for key in keys if dice.random() < 0.1}
        #: What the agent still means to do.
        self.wishes = dice.randint(2, 9)
        #: How it ended the session. What was lost with its process it says again.
        self.closing: str | None = None
        #: Its session was kept when it failed, and it runs again.
        self.returns = False

    def _case(self) -> tuple[dict[str, Any], Catalog]:
        return make_session(self.dice)

    def _compile(self) -> CompiledPlan:
        # A session's plan grows in place, so each state has its own.
        return compile_plan(load_plan(self.plan_body, session=True), self.catalog)

    def _first(self) -> r.SagaStarted:
        return r.SagaStarted(at=self.now, saga_id="sim", plan=self.plan_body, digest="d", seed="seed", session=True)

    def _begin(self) -> State:
        return folding.begin(self.started, self._compile(), Growth(self.started, self.catalog))

    def _fold(self, records: list[r.AnyRecord]) -> State:
        return folding.fold(records, self._compile(), Growth(self.started, self.catalog))

    # --- the agent -----------------------------------------------------------------------------------------------

    def _agent(self, state: State, *, must: bool = False) -> None:
        """Now and then the agent wants something recorded; it also tries when it is too late for that."""
        if not (must or self.dice.random() < (0.6 if state.undo_open else 0.3)):
            return
        record = self._wish(state) if self.closing is None else self._close(state)
        while record is not None:
            self.machine.take([record])
            record = self._wish_call(state) if isinstance(record, r.CallAdded) and self.dice.random() < 0.4 else None

    def _wish(self, state: State) -> r.AnyRecord | None:
        if self.wishes <= 0:
            return self._end(state)
        luck = self.dice.random()
        if state.undo_open and luck > 0.85:  # it fails amid its roll-back
            self.wishes = 0
            return None
        self.wishes -= 1
        if luck < 0.45:
            return self._wish_call(state)
        unsettled = any(not step.effect and step.status not in (t.FAILED, t.BLOCKED) for step in state.steps)
        if luck < 0.95 and not unsettled and state.steps:
            since = self.dice.randrange(len(state.steps))
            chosen = [step.key for step in state.plan.steps[since:]]
            return session_records.partial_compensation(state, chosen, max(self.now, state.at))
        return None

    def _wish_call(self, state: State) -> r.CallAdded | None:
        if len(state.steps) >= MAX_CALLS:
            return None
        key = str(len(state.steps) + 1)
        spec = self.catalog.spec(f"do_{key}")
        assert spec is not None
        read = spec.effect == "read"
        irreversible = not read and key in self.irreversible
        after = [step.key for step, at in zip(state.plan.steps, state.steps, strict=True) if at.status == t.SUCCEEDED]
        call = r.CallAdded(
            at=0,
            step="",
            tool=spec.name,
            params={"n": key},
            undo=None if read or irreversible else f"undo_{key}",
            undo_params={"ref": "$output.ref"} if spec.keyed else None,
            irreversible=irreversible,
            read=read,
        )
        return session_records.add_call(state, call, after, max(self.now, state.at))

    def _end(self, state: State) -> r.AnyRecord | None:
        if self.dice.random() < 0.5:  # it fails, and its session is kept for another life of it, or a person decides
            return self._keep(state)
        reason = "session-failed" if self.dice.random() < 0.5 else ""
        if reason and self.dice.random() < 0.4:  # it ended while nobody drove the session: a message says so
            self.closing = reason
            self.inbox.append(Message(id="close", kind="close", reason=reason))
            return None
        unsettled = any(not step.effect and step.status not in (t.FAILED, t.BLOCKED) for step in state.steps)
        if not reason and (unsettled or state.undo_open) and not state.turns:
            return None  # it awaits its calls and its roll-back first
        self.closing = reason
        return self._close(state)

    def _keep(self, state: State) -> r.AnyRecord | None:
        ask, idle_ms = self.dice.random() < 0.5, self.dice.choice([0, 0, 1, 20_000])
        self.wishes = self.dice.randint(1, 4)  # of its next life
        error = ErrorInfo("broken", "the agent failed")
        if self.dice.random() < 0.3:  # it ended while nobody drove the session
            number = sum(message.kind == "keep" for message in self.inbox)
            if not number:
                self.inbox.append(Message(id="keep", kind="keep", error=error, ask=ask, idle_ms=idle_ms))
            return None
        return session_records.keep(state, "", error, max(self.now, state.at), ask=ask, idle_ms=idle_ms)

    def _agent_returns(self) -> bool:
        returns, self.returns = self.returns or self.dice.random() < 0.5, False
        return returns

    def _person(self, state: State) -> None:
        """As ever; and for a session that is kept its agent may run again, as a new owner."""
        if any(asked.of_session for asked in state.questions.values()) and self.dice.random() < 0.7:
            self.returns = True
            raise Crash
        super()._person(state)

    def _close(self, state: State) -> r.AnyRecord | None:
        if any(message.kind == "close" for message in self.inbox):
            return None
        return session_records.close(state, self.closing or "", "", max(self.now, state.at))

    def _idle(self, state: State) -> bool:
        if not state.open:
            return False
        self._agent(state, must=True)
        return True

    # --- the laws ------------------------------------------------------------------------------------------------

    def _after(self, state: State, index: int) -> list[int]:
        """The calls that had completed after a call when the way back began, by the journal.

        Those that were in doubt then count as the last, among each other in the order of their making.
        """
        order: list[int] = []
        settled: list[int] = []
        rolling: set[int] = set()
        for record in self.journalled():
            if isinstance(record, r.StepSucceeded | r.QuestionResolved) and record.direction == "forward":
                if isinstance(record, r.StepSucceeded) or record.decision == "happened":
                    order.append(state.plan.by_key[record.step])
            elif isinstance(record, r.PartialCompensationRequested):
                rolling, settled = {state.plan.by_key[key] for key in record.steps}, list(order)
            elif isinstance(record, r.CompensationStarted):
                rolling, settled = set(range(len(state.steps))), list(order)
        open_then = [other for other in range(len(state.steps)) if other not in settled]
        if index in settled:
            later = [*settled[settled.index(index) + 1 :], *open_then]
        else:
            later = [other for other in open_then if other > index]
        return [other for other in later if other in rolling]

    def _check_deadline(self, state: State) -> None:
        super()._check_deadline(state)
        now = max(self.now, state.at)
        if any(
            asked.of_session and asked.expires is not None and asked.expires <= now
            for asked in state.questions.values()
        ):
            raise Violation(f"the session was kept for longer than its bound: {view(state)}")

    def _check_kept(self, state: State) -> None:
        """While a session is kept nothing is added; what a person decides about it comes true."""
        asked: dict[str, str] = {}
        wanted = ""
        for record in self.journalled():
            if isinstance(record, r.SessionKept):
                asked = {record.question: record.kind}
            elif isinstance(record, r.SagaResumed) and record.agent:
                asked = {name: kind for name, kind in asked.items() if kind != "session-kept"}
            elif isinstance(record, r.QuestionResolved) and record.question in asked:
                del asked[record.question]
                if record.decision == "keep":
                    asked[f"{record.question}:kept"] = "session-kept"
                else:
                    wanted = wanted or record.decision
            elif isinstance(record, r.ApprovalExpired) and record.question in asked:
                del asked[record.question]
                wanted = wanted or "undo"
            elif isinstance(record, _TURNS) and not isinstance(record, r.CompensationStarted):
                wanted = wanted or "undo"
            elif isinstance(record, r.CallAdded | r.PartialCompensationRequested | r.SagaCompleted) and asked:
                raise Violation(f"{type(record).__name__}, and the session waits: {asked}")
        if wanted == "undo" and state.status == t.COMPLETED:
            raise Violation(f"the session was to be undone, and completed: {view(state)}")
        if wanted == "close" and state.status == t.COMPENSATED and state.reason == "session-failed":
            raise Violation(f"the session was to end as it was, and was undone: {view(state)}")

    def _check_journal(self, state: State) -> None:
        self._check_kept(state)
        turned = False
        for record in self.journalled():
            if turned and isinstance(record, r.CallAdded):
                raise Violation(f"call {record.step} was added to a session that turns or has turned around")
            turned = turned or isinstance(record, (_TURNS, r.SessionClosed))

    def _check_end(self, state: State) -> None:
        self._check_journal(state)
        if state.status != t.COMPLETED:
            if not state.turns:
                raise Violation(f"the session ended {state.status}, and nobody wanted that: {view(state)}")
            super()._check_end(state)
            return
        report = view(state).plain()["report"]
        for compiled, step in zip(state.plan.steps, state.steps, strict=True):
            stands = bool(self.world.standing.get(compiled.key))
            should = self._should_stand(state, compiled.index)
            accepted = compiled.step_id in report["left_in_place"]
            if stands != should and not (stands and accepted):
                raise Violation(f"completed, and call {compiled.key} is {step.status}, standing: {stands}")
        if state.open or report["failed"] or report["unresolved"]:
            raise Violation(f"completed with open ends: {view(state)}")

    def _should_stand(self, state: State, index: int) -> bool:
        """Whether the effect of a call stands after the session has completed."""
        return state.steps[index].status == t.SUCCEEDED and state.plan.steps[index].kind != "read"
