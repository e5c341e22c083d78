"""A trace run again: today's engine is given what came from outside, and must decide what was decided.

A journal holds two sorts of records. Some were *given*: the answers of tools, of hooks and of a model, messages, and
what a session's agent asked for. The others were *decided*. The pure engine folds the journal; wherever something was
decided it is asked at the recorded time, and wherever an outcome was judged it is asked whether it could have judged so.
No tool is called, no clock is read. The first difference ends the replay: what comes after it did not happen.

What a journal does not tell is left open, and only what no choice of it explains is a difference:

* which outcomes were looked at together before the next decision (those at most ``TOGETHER_MS`` apart may have been);
* the tool's very answer: that a record *can* be made of some answer with this error is enough;
* whether the process had hooks and a planner: what it decided tells (``Means``), anew for each owner;
* how the waits were spread: ``delay_ms`` is not compared, but for whether there is another try at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, Literal, NamedTuple

import msgspec

from saga_engine.core import records as r
from saga_engine.core import transitions as t
from saga_engine.core.codec import Stored, abridge
from saga_engine.core.decide import Means, decide
from saga_engine.core.effects import (
    FORWARD,
    Ask,
    AskPlanner,
    Blocked,
    CallTool,
    Direction,
    Done,
    ErrorInfo,
    NotDone,
    Outcome,
    Probe,
    Unknown,
)
from saga_engine.core.evolve import evolve
from saga_engine.core.fingerprint import intended_params
from saga_engine.core.growth import Added, Growth
from saga_engine.core.judge import Advice, judge, judge_advice, judge_alert
from saga_engine.core.messages import Message, answer
from saga_engine.core.redaction import REDACTED
from saga_engine.core.state import State, StateScope
from saga_engine.core.trace import plan_of, serving_of, state_at_start
from saga_engine.core.trace_file import Entry, Trace
from saga_engine.errors import BindingUnresolved, JournalUnreadable, PlanInvalid, SagaError, ToolMissing
from saga_engine.plan.brief import brief
from saga_engine.plan.compiled import CompiledPlan, CompiledRollback, CompiledStep, Params, Scope
from saga_engine.plan.compiling import compile_plan
from saga_engine.plan.tooling import ToolCatalog, ToolSpec

#: Outcomes that are not further apart than this may have been looked at together.
TOGETHER_MS: Final = 1000
_MEANS: Final = tuple(
    Means(alerting, planner, semantic)
    for alerting in (True, False)
    for planner in (False, True)
    for semantic in ("approve", "auto", "never")
)
#: ``owner``: another process took over. ``message``: from the inbox, or from a session's agent.
Sort = Literal["decided", "outcome", "message", "owner"]
_SETTLING: Final = (
    r.StepSucceeded,
    r.StepRetryScheduled,
    r.StepFailed,
    r.StepBlocked,
    r.StepInDoubt,
    r.StepEscalated,
    r.FallbackChosen,
    r.StepParked,
    r.ProbeFailed,
)
_MESSAGES: Final = (
    r.CancelRequested,
    r.DecisionMade,
    r.MessageRefused,
    r.CallAdded,
    r.RolledBack,
    r.SessionClosed,
    r.StepTakenOver,
)


class Moment(NamedTuple):
    """A record that today's engine agrees with: the line of the trace it stands in, and where it comes from."""

    line: int
    sort: Sort
    record: r.AnyRecord
    body: Mapping[str, Any]


class Divergence(NamedTuple):
    """Where today's engine goes another way. ``recorded`` and ``today`` are records as plain JSON, cut to be shown.

    ``recorded`` is empty where nothing was decided, ``today`` where nothing would be.
    """

    line: int
    at: int
    what: str
    recorded: list[dict[str, Any]]
    today: list[dict[str, Any]]

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON."""
        return self._asdict()


class _Differs(Exception):
    """Today's engine goes another way."""

    def __init__(self, what: str, today: Iterable[r.AnyRecord], *, recorded: bool = True) -> None:
        super().__init__(what)
        self.what = what
        self.today = list(today)
        self.recorded = recorded


class Replay:
    """One trace, run again with ``catalog``, the tools of today, and with ``plan`` in the place of its own if given.

    Raises ``PlanInvalid`` (a new plan is checked in full), ``ToolMissing``, ``JournalUnreadable``.
    """

    def __init__(
        self, trace: Trace, catalog: ToolCatalog, plan: Any = None, *, together_ms: int = TOGETHER_MS
    ) -> None:
        self.divergence: Divergence | None = None
        self._trace = trace
        self._entries = trace.entries
        self._catalog = catalog
        self._together_ms = together_ms
        self._means: Sequence[Means] = _MEANS
        self._require_tools(plan)
        started, state = _begun(trace, catalog, plan)
        self._templates = _Templates(trace)
        self._templates.wrap(state.plan.steps)
        state.growth = _Growth(started, catalog, self._templates)
        self._state = state
        self._sorts = list(_sorts(self._entries))
        self._last_decided = [False] * (len(self._entries) + 1)
        for at in range(len(self._entries) - 1, -1, -1):
            later = self._last_decided[at + 1] and self._sorts[at] != "owner"
            self._last_decided[at] = later or self._sorts[at] == "decided"

    @property
    def state(self) -> State:
        """The saga as far as it was run again."""
        return self._state

    def run(self) -> Iterator[Moment]:
        """Every record that today's engine agrees with, in order; afterwards ``divergence`` says why it ended early."""
        at = 1
        while at < len(self._entries):
            sort = self._sorts[at]
            try:
                count = self._decided(at) if sort == "decided" else self._given(at, sort)
            except _Differs as differs:
                self._diverge(at, differs)
                return
            except (SagaError, LookupError, AssertionError) as error:
                self._diverge(at, _Differs(f"today's engine cannot take it: {type(error).__name__}: {error}", ()))
                return
            for entry in self._entries[at : at + count]:
                yield Moment(entry.line, sort, entry.record, entry.body)
            at += count

    def _diverge(self, at: int, differs: _Differs) -> None:
        entry = self._entries[min(at, len(self._entries) - 1)]
        self.divergence = Divergence(
            line=entry.line,
            at=entry.record.at,
            what=differs.what,
            recorded=[_told(entry.record)] if differs.recorded else [],
            today=[_told(record) for record in differs.today],
        )

    # --- what was decided ------------------------------------------------------------------------------------------

    def _decided(self, at: int) -> int:
        """One round of decisions; returns how many records it has."""
        now = self._entries[at].record.at
        self._require_asked_before(at, now)
        agreed: dict[int, list[Means]] = {}
        rounds = self._asked(now)
        for means, found in rounds:
            if found and self._matches(at, found):
                agreed.setdefault(len(found), []).append(means)
        if not agreed:
            what = "today's engine decides otherwise" if rounds[0][1] else "today's engine decides nothing here"
            raise _Differs(what, rounds[0][1])
        count = max(agreed)
        self._means = agreed[count]
        for entry in self._entries[at : at + count]:
            evolve(self._state, abridge(entry.record))
        after = at + count
        more = after < len(self._entries) and self._sorts[after] == "decided" and self._entries[after].record.at == now
        if not more:
            self._require_silence(now, "today's engine decides more at this point", after)
        return count

    def _asked(self, now: int) -> list[tuple[Means, Sequence[r.AnyRecord]]]:
        """What today's engine decides now, with each of the means that the process may have had."""
        state = self._state
        asks = state.alerts or state.reminders or state.to_escalate or state.to_replan is not None
        if not asks:  # then it makes no difference
            found = decide(state, now, self._means[0])
            return [(means, found) for means in self._means]
        return [(means, decide(state, now, means)) for means in self._means]

    def _matches(self, at: int, found: Sequence[r.AnyRecord]) -> bool:
        entries = self._entries[at : at + len(found)]
        if len(entries) < len(found) or any(sort != "decided" for sort in self._sorts[at : at + len(found)]):
            return False
        return all(self._same(entry, record) for entry, record in zip(entries, found, strict=True))

    def _require_silence(self, now: int, what: str, at: int) -> None:
        """Decide was asked here, and nothing was decided."""
        rounds = self._asked(now)
        silent = [means for means, found in rounds if not found]
        if not silent:
            ended = at >= len(self._entries)
            raise _Differs(f"{what}{', where the trace ends' if ended else ''}", rounds[0][1], recorded=not ended)
        self._means = silent

    def _require_asked_before(self, at: int, now: int) -> None:
        """If so much time has passed since the last outcome or message, decide was asked right after that."""
        before = self._entries[at - 1].record.at
        if self._sorts[at - 1] in ("outcome", "message") and at > 1 and now - before > self._together_ms:
            self._require_silence(before, f"today's engine decides {now - before} ms earlier", at)

    # --- what was given --------------------------------------------------------------------------------------------

    def _given(self, at: int, sort: Sort) -> int:
        entry = self._entries[at]
        if sort == "owner":
            self._means = _MEANS
        elif sort == "outcome":
            before = self._sorts[at - 1]
            # (A process that was stopping decided nothing any more.)
            if self._last_decided[at] and before == "message" and at > 1:
                self._require_silence(self._entries[at - 1].record.at, "today's engine decides before this", at)
            elif self._last_decided[at] and before == "outcome":
                self._require_asked_before(at, entry.record.at)
            self._judge(entry)
        elif sort == "message":
            self._answer(entry)
        evolve(self._state, abridge(entry.record))
        return 1

    def _judge(self, entry: Entry) -> None:
        record = entry.record
        if isinstance(record, r.AlertSent | r.AlertFailed):
            error = record.error if isinstance(record, r.AlertFailed) else None
            today = judge_alert(self._state, record.question, error, record.at, 0.5, record.again_ms)
            self._require_same(entry, [today])
        elif isinstance(record, r.StepsAdded | r.RemedyProposed | r.PlannerGaveUp):
            self._judge_advice(entry, record)
        else:
            self._require_same(entry, self._judgements(record))

    def _judgements(self, record: Any) -> list[r.AnyRecord]:
        """All that today's engine could make of answers like the one that was recorded."""
        state = self._state
        index = state.plan.by_key[record.step]
        call = state.steps[index].call(record.direction)
        kind = Probe if call.phase == "probing" else CallTool
        effect = kind(index, record.direction, call.attempt)
        return [judge(state, effect, outcome, record.at, 0.5) for outcome in _answers(abridge(record), kind is Probe)]

    def _judge_advice(self, entry: Entry, record: r.StepsAdded | r.RemedyProposed | r.PlannerGaveUp) -> None:
        if self._trace.redacted or isinstance(record, r.PlannerGaveUp):
            return  # what the model wrote is not all there
        purpose: Literal["compensate", "replan"] = "replan" if isinstance(record, r.StepsAdded) else "compensate"
        step = self._state.to_replan if isinstance(record, r.StepsAdded) else self._state.plan.by_key[record.step]
        effect = AskPlanner(-1 if step is None else step, purpose)
        assert record.written is not None or isinstance(record, r.RemedyProposed)
        advice = Advice(record.steps, record.written or r.Written(""))
        rounds = [
            (means, judge_advice(self._state, effect, advice, self._catalog, means, record.at)) for means in self._means
        ]
        agreed = [means for means, today in rounds if self._same(entry, today)]
        if not agreed:
            raise _Differs("today's engine judges the model's steps otherwise", [rounds[0][1]])
        self._means = agreed

    def _answer(self, entry: Entry) -> None:
        """A message is judged again, as far as the journal has what it said."""
        record = entry.record
        if isinstance(record, r.CancelRequested):
            message = Message(id=record.message, kind="cancel", by=record.by, note=record.note)
        elif isinstance(record, r.DecisionMade):
            message = Message(
                id=record.message,
                kind="decide",
                by=record.by,
                note=record.note,
                step=record.step,
                decision=record.decision,
                output=record.output,
                question=record.question,
            )
            if "output" in record.refs or self._trace.redacted:
                return
        elif isinstance(record, r.StepsAdded) and not self._trace.redacted:
            steps = list(record.steps)
            message = Message(id=record.message, kind="amend", by=record.by, note=record.note, steps=steps)
        else:
            return  # of a refused message only the refusal is there; a session's agent is always heard
        self._require_same(entry, [answer(self._state, message, record.at)])

    # --- comparing -------------------------------------------------------------------------------------------------

    def _require_same(self, entry: Entry, today: Sequence[r.AnyRecord]) -> None:
        if not any(self._same(entry, each) for each in today):
            raise _Differs("today's engine settles it otherwise", dict.fromkeys(map(_Once, today)) and _distinct(today))

    def _same(self, entry: Entry, today: r.AnyRecord) -> bool:
        if type(entry.record) is not type(today):
            return False
        if isinstance(today, r.StepIntended) and not self._same_call(entry, today):
            return False
        recorded, now = _comparable(abridge(entry.record)), _comparable(today)
        if recorded == now:
            return True
        return self._trace.redacted and _alike(_plain(recorded), _plain(now))

    def _same_call(self, entry: Entry, today: r.StepIntended) -> bool:
        """The tool and the params, also where the journal has none because nothing in them binds."""
        state = self._state
        index = state.plan.by_key.get(today.step)
        if index is None or serving_of(state, index, today.direction).tool != entry.body.get("tool"):
            return False
        recorded, params = entry.body.get("params"), intended_params(state, today)
        if "params_ref" in entry.body or recorded == params:
            return True
        return self._trace.redacted and _alike(recorded, params)

    def _require_tools(self, plan: Any) -> None:
        """Raises ``ToolMissing`` for a tool that the saga may need and the catalog has not."""
        if plan is not None:
            return  # compiling it tells
        state = state_at_start(_started(self._trace), None)
        for entry in self._entries[1:]:
            evolve(state, abridge(entry.record))
        needed: set[str] = set()
        for call in state.plan.calls():
            needed.add(call.tool)
            if call.rollback is not None:
                needed.add(call.rollback.tool)
        missing = sorted(name for name in needed if self._catalog.spec(name) is None)
        if missing:
            raise ToolMissing(
                f"the trace of saga {self._trace.saga_id} does not declare the tools {', '.join(missing)}",
                hint="give the tools with --tools, here or when it is exported; none of them is called",
                saga_id=self._trace.saga_id,
                tools=missing,
            )
