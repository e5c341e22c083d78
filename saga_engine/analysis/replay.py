"""A trace run again: today's engine is given what came from outside, and must decide what was decided.

A journal holds two sorts of records. Some were *given*: the answers of tools, of hooks and of a model, messages, and
what a session's agent asked for. The others were *decided*. The pure engine folds the journal; wherever something was
decided it is asked at the recorded time, and wherever an outcome was interpreted, whether it could have done so.
No tool is called, no clock is read. The first difference ends the replay: what comes after it did not happen.

What a journal does not tell is left open, and only what no choice of it explains is a difference:

* which outcomes were looked at together before the next decision (those at most ``TOGETHER_MS`` apart may have been);
* the tool's very answer: that a record *can* be made of some answer with this error is enough;
* whether the process had hooks and a planner: what it decided tells (``Capabilities``), anew for each owner;
* how long a bare call, or one that may have ended its process, was held back for the sake of other sagas;
* how the waits were spread: ``delay_ms`` is not compared, but for whether there is another try at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import takewhile
from typing import Any, Final, Literal, NamedTuple

import msgspec

from saga_engine.analysis.fingerprint import intended_params
from saga_engine.analysis.replay_inputs import (
    ReplayedGrowth,
    Sort,
    Templates,
    alike,
    answers,
    comparable,
    plain_record,
    sorts,
    told,
)
from saga_engine.analysis.trace import declared
from saga_engine.analysis.trace_file import Trace, TracedRecord
from saga_engine.core import decide as deciding
from saga_engine.core import evolve as evolving
from saga_engine.core import interpret as interpreting
from saga_engine.core import messages
from saga_engine.core import records as r
from saga_engine.core.codec import abridge
from saga_engine.core.crash_loops import orders_bare, suspicion
from saga_engine.core.decide import Capabilities
from saga_engine.core.effects import FORWARD, AskPlanner, CallTool, Direction, NotDone, Probe
from saga_engine.core.fold import begin, started_of, state_at_start
from saga_engine.core.images import wants_image
from saga_engine.core.messages import Message
from saga_engine.core.outlooks import needs_mark, outlook
from saga_engine.core.plan_growth import compile_started, load_started
from saga_engine.core.state import State
from saga_engine.core.state_values import Replanning
from saga_engine.core.waits import Pending
from saga_engine.errors import SagaError, SettingInvalid, ToolMissing
from saga_engine.plan.compiler import compile_plan
from saga_engine.plan.model import load_plan
from saga_engine.plan.preview import brief
from saga_engine.plan.tool_spec import ToolCatalog

#: Outcomes that are not further apart than this may have been processed together.
TOGETHER_MS: Final = 1000
_CAPABILITIES: Final = tuple(
    Capabilities(alerting, planner, semantic)
    for alerting in (True, False)
    for planner in (False, True)
    for semantic in ("approve", "auto", "never")
)


class Moment(NamedTuple):
    """A record that today's engine agrees with: its line in the trace, and its origin."""

    line: int
    sort: Sort
    record: r.AnyRecord
    body: Mapping[str, Any]


class Divergence(NamedTuple):
    """The point where today's engine diverges. ``recorded`` and ``today`` are records as plain JSON, cut for display.

    An intent shows its tool and its params, even if the journal has none because they contain no bindings. ``recorded``
    is empty if nothing was decided, ``today`` if nothing would be.
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
    """Today's engine diverges."""

    def __init__(self, what: str, today: Iterable[r.AnyRecord], *, recorded: bool = True) -> None:
        super().__init__(what)
        self.what = what
        self.today = list(today)
        self.recorded = recorded


class Replay:
    """One trace, run again with ``catalog``, the tools of today, and with ``plan`` in place of its own if given.

    Raises ``PlanInvalid`` (a new plan is checked in full), ``ToolMissing``, ``JournalUnreadable``.
    """

    def __init__(self, trace: Trace, catalog: ToolCatalog, plan: Any = None, *, together_ms: int = TOGETHER_MS) -> None:
        self.divergence: Divergence | None = None
        self._trace = trace
        self._entries = [entry._replace(record=abridge(entry.record)) for entry in trace.entries]
        self._catalog = catalog
        self._together_ms = together_ms
        self._capabilities: Sequence[Capabilities] = _CAPABILITIES
        if plan is None:  # else compiling the new plan tells
            self._require_tools()
        self._state = _begun(trace, self._entries, catalog, plan)
        self._sorts: list[Sort] = list(sorts(entry.record for entry in self._entries))
        self._last_decided = [False] * (len(self._entries) + 1)
        for at in range(len(self._entries) - 1, -1, -1):
            later = self._last_decided[at + 1] and self._sorts[at] != "owner"
            self._last_decided[at] = later or self._sorts[at] == "decided"

    @property
    def state(self) -> State:
        """The saga as far as it was run again."""
        return self._state

    @property
    def records(self) -> list[r.AnyRecord]:
        """The trace's records; values that it does not have whole are ``codec.Stored``."""
        return [entry.record for entry in self._entries]

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
        at = min(at, len(self._entries) - 1)
        entry = self._entries[at]
        self.divergence = Divergence(
            line=entry.line,
            at=entry.record.at,
            what=differs.what,
            recorded=[self._recorded(each) for each in self._round(at)] if differs.recorded else [],
            today=[self._today(record) for record in differs.today],
        )

    def _round(self, at: int) -> list[TracedRecord]:
        """The records at this point: all that one round decided, or the one record that was given."""
        first = self._entries[at]
        if self._sorts[at] != "decided":
            return [first]
        rest = zip(self._entries[at:], self._sorts[at:], strict=True)
        return [
            entry
            for entry, _ in takewhile(lambda pair: pair[1] == "decided" and pair[0].record.at == first.record.at, rest)
        ]

    def _recorded(self, entry: TracedRecord) -> dict[str, Any]:
        shown = told(entry.record)
        if not isinstance(entry.record, r.StepIntended):
            return shown
        call = {name: brief(entry.body[name]) for name in ("tool", "params", "params_ref") if name in entry.body}
        return shown | call

    def _today(self, record: r.AnyRecord) -> dict[str, Any]:
        shown = told(record)
        if not isinstance(record, r.StepIntended) or record.step not in self._state.plan.by_key:
            return shown
        tool = self._state.serving(self._state.plan.by_key[record.step], record.direction).tool
        return shown | {"tool": tool, "params": brief(plain_record(intended_params(self._state, record)))}

    # --- what was decided ------------------------------------------------------------------------------------------

    def _decided(self, at: int) -> int:
        """One round of decisions; returns how many records it has."""
        now = self._entries[at].record.at
        self._require_asked_before(at, now)
        agreed: dict[int, list[Capabilities]] = {}
        rounds = self._asked(now)
        for capabilities, found in rounds:
            if count := self._matches(at, found):
                agreed.setdefault(count, []).append(capabilities)
        if not agreed:
            what = "today's engine decides otherwise" if rounds[0][1] else "today's engine decides nothing here"
            raise _Differs(what, rounds[0][1])
        count = max(agreed)
        self._capabilities = agreed[count]
        for entry in self._entries[at : at + count]:
            evolving.evolve(self._state, entry.record)
        after = at + count
        more = after < len(self._entries) and self._sorts[after] == "decided" and self._entries[after].record.at == now
        if not more:
            self._require_silence(now, "today's engine decides more at this point", after)
        return count

    def _asked(self, now: int) -> list[tuple[Capabilities, Sequence[r.AnyRecord]]]:
        """What today's engine decides now, with each of the means that the process may have had."""
        state = self._state
        asks = bool(state.alerts or state.reminders or state.to_escalate or state.looks_for_able())
        if not (asks or isinstance(state.phase, Replanning)):  # then it makes no difference
            found = deciding.decide(state, now, self._capabilities[0])
            return [(capabilities, found) for capabilities in self._capabilities]
        return [(capabilities, deciding.decide(state, now, capabilities)) for capabilities in self._capabilities]

    def _matches(self, at: int, found: Sequence[r.AnyRecord]) -> int:
        """How many records of the trace these are; 0: they differ.

        An intent that needs a before-image is left out as long as that has not been read.
        """
        first = at
        for record in found:
            decided = at < len(self._entries) and self._sorts[at] == "decided"
            if wants_image(self._state, record):
                at += decided and self._same_read(self._entries[at], record)
            elif decided and self._same(self._entries[at], record):
                at += 1
            else:
                return 0
        return at - first

    def _same_read(self, entry: TracedRecord, today: Any) -> bool:
        """Whether the record is this intent with its before-image, or what follows if that could not be read."""
        record: Any = entry.record
        if getattr(record, "step", "") != today.step:
            return False
        if isinstance(record, r.StepIntended):
            return record.before is not None and self._same(entry, msgspec.structs.replace(today, before=record.before))
        if getattr(record, "error", None) is None:
            return False
        unread = (NotDone(record.error, retryable) for retryable in (True, False))
        return any(
            self._same(entry, interpreting.interpret_read(self._state, today, why, record.at, 0.5)) for why in unread
        )

    def _require_silence(self, now: int, what: str, at: int) -> None:
        """Decide was called here, and nothing was decided, or nothing that might be done at once."""
        rounds = self._asked(now)
        silent = [capabilities for capabilities, found in rounds if not found or self._may_be_held(found)]
        if not silent:
            ended = at >= len(self._entries)
            raise _Differs(f"{what}{', where the trace ends' if ended else ''}", rounds[0][1], recorded=not ended)
        self._capabilities = silent

    def _require_asked_before(self, at: int, now: int) -> None:
        """If so much time has passed since the last outcome or message, decide was called right after that."""
        before = self._entries[at - 1].record.at
        if self._sorts[at - 1] in ("outcome", "message") and at > 1 and now - before > self._together_ms:
            self._require_silence(before, f"today's engine decides {now - before} ms earlier", at)

    def _may_be_held(self, found: Sequence[r.AnyRecord]) -> bool:
        """Whether a process may have waited with this: sagas of others are not told (``runtime/trials.py``)."""
        if all(wants_image(self._state, record) for record in found):
            return True  # the values that the calls change are being read
        return any(suspicion(self._state, record) or orders_bare(self._state, record) for record in found)

    # --- what was given --------------------------------------------------------------------------------------------

    def _given(self, at: int, sort: Sort) -> int:
        entry = self._entries[at]
        if sort == "owner":
            self._capabilities = _CAPABILITIES
        elif sort == "outcome":
            before = self._sorts[at - 1]
            # (A process that was stopping decided nothing any more.)
            if self._last_decided[at] and before == "message" and at > 1:
                self._require_silence(self._entries[at - 1].record.at, "today's engine decides before this", at)
            elif self._last_decided[at] and before == "outcome":
                self._require_asked_before(at, entry.record.at)
            self._interpret(entry)
        elif sort == "message":
            self._answer(entry)
        evolving.evolve(self._state, entry.record)
        return 1

    def _interpret(self, entry: TracedRecord) -> None:
        record = entry.record
        if isinstance(record, r.AlertSent | r.AlertFailed):
            error = record.error if isinstance(record, r.AlertFailed) else None
            today = interpreting.interpret_alert(self._state, record.question, error, record.at, 0.5, record.again_ms)
            self._require_same(entry, [today])
        elif isinstance(record, r.StepsAdded | r.CompensationProposed | r.PlannerGaveUp):
            self._interpret_advice(entry, record)
        else:
            self._require_same(entry, self._interpretations(record))

    def _interpretations(self, record: Any) -> list[r.AnyRecord]:
        """Every record that today's engine could make of outcomes like the recorded one."""
        state = self._state
        index = state.plan.by_key[record.step]
        direction: Direction = getattr(record, "direction", FORWARD)
        call = state.steps[index].call(direction)
        kind = Probe if state.in_flight.get((index, direction)) == "probe" else CallTool
        effect = kind(index, direction, call.attempt)
        made = [
            interpreting.interpret(state, effect, outcome, record.at, 0.5)
            for outcome in answers(record, probe=kind is Probe)
        ]
        return [_looked_as(record, each) for each in made]

    def _interpret_advice(
        self, entry: TracedRecord, record: r.StepsAdded | r.CompensationProposed | r.PlannerGaveUp
    ) -> None:
        if self._trace.redacted or isinstance(record, r.PlannerGaveUp):
            return  # the trace does not have everything that the model wrote
        purpose: Literal["compensate", "replan"] = "replan" if isinstance(record, r.StepsAdded) else "compensate"
        if isinstance(record, r.StepsAdded):
            step = self._state.phase.step if isinstance(self._state.phase, Replanning) else -1
        else:
            step = self._state.plan.by_key[record.step]
        effect = AskPlanner(step, purpose)
        assert record.written is not None or isinstance(record, r.CompensationProposed)
        reasons = record.reasons if isinstance(record, r.StepsAdded) else {}
        advice = interpreting.Advice(record.steps, record.written or r.Written(""), dropped=reasons)
        rounds = [
            (
                capabilities,
                interpreting.interpret_advice(self._state, effect, advice, self._catalog, capabilities, record.at),
            )
            for capabilities in self._capabilities
        ]
        agreed = [capabilities for capabilities, today in rounds if self._same(entry, today)]
        if not agreed:
            raise _Differs("today's engine reviews the model's steps otherwise", [rounds[0][1]])
        self._capabilities = agreed

    def _answer(self, entry: TracedRecord) -> None:
        """A message is checked again, as far as the journal has its content."""
        record = entry.record
        if isinstance(record, r.CancelRequested):
            message = Message(id=record.message, kind="cancel", by=record.by, note=record.note)
        elif isinstance(record, r.QuestionResolved):
            message = Message(
                id=record.message,
                kind="resolve",
                by=record.by,
                note=record.note,
                step=record.step,
                decision=record.decision,
                output=record.output,
                question=record.question,
                expect=self._mark(record),
            )
            if "output" in record.refs or self._trace.redacted:
                return
        elif isinstance(record, r.StepSucceeded | r.EventArrived):
            if "output" in record.refs or self._trace.redacted:
                return
            message = _event_of(self._state.pending[self._state.plan.by_key[record.step]], record)
        elif isinstance(record, r.EffectTransferred) and record.message:
            message = Message(id=record.message, kind="transfer", steps=list(record.steps), to=record.to)
        elif isinstance(record, r.StepsAdded) and record.message and not self._trace.redacted:
            steps = list(record.steps)
            message = Message(id=record.message, kind="amend", by=record.by, note=record.note, steps=steps)
        else:
            return  # of a refused message only the refusal is known; a session's agent is always accepted
        self._require_same(entry, [_looked_as(record, messages.answer(self._state, message, record.at))])

    def _mark(self, record: r.QuestionResolved) -> str:
        """The mark of an answer that needs one: whoever gave it knew what follows."""
        asked = self._state.questions.get(record.question)
        if asked is None or not needs_mark(self._state, asked, record.decision):
            return ""
        return str(outlook(self._state, asked, record.decision)["mark"])

    # --- comparing -------------------------------------------------------------------------------------------------

    def _require_same(self, entry: TracedRecord, today: Sequence[r.AnyRecord]) -> None:
        if not any(self._same(entry, each) for each in today):
            raise _Differs("today's engine settles it otherwise", _distinct(today))

    def _same(self, entry: TracedRecord, today: r.AnyRecord) -> bool:
        if type(entry.record) is not type(today):
            return False
        if isinstance(today, r.StepIntended) and not self._same_call(entry, today):
            return False
        recorded, now = comparable(entry.record), comparable(today)
        if recorded == now:
            return True
        return self._trace.redacted and alike(plain_record(recorded), plain_record(now))

    def _same_call(self, entry: TracedRecord, today: r.StepIntended) -> bool:
        """The tool and the params, even if the journal has none because they contain no bindings."""
        state = self._state
        index = state.plan.by_key.get(today.step)
        if index is None or state.serving(index, today.direction).tool != entry.body.get("tool"):
            return False
        recorded, params = entry.body.get("params"), intended_params(state, today)
        if "params_ref" in entry.body or recorded == params:
            return True
        return self._trace.redacted and alike(recorded, params)

    def _require_tools(self) -> None:
        """Raises ``ToolMissing`` for a tool that the saga may need and the catalog lacks."""
        missing = sorted(name for name in tools_of(self._trace) if self._catalog.spec(name) is None)
        if missing:
            raise ToolMissing(
                f"the trace of saga {self._trace.saga_id} does not declare the tools {', '.join(missing)}",
                hint="give the tools with --tools, here or when it is exported; none of them is called",
                saga_id=self._trace.saga_id,
                tools=missing,
            )


def tools_of(trace: Trace) -> set[str]:
    """The names of all tools that the trace's saga may call, including those of added steps."""
    state = state_at_start(started_of([trace.entries[0].record]), None)
    names = {call.tool for call in state.plan.calls()}
    for entry in trace.entries:
        record = entry.record
        if isinstance(record, r.CallAdded):
            names |= {record.tool, *(call["tool"] for call in record.undo_then)}
            names |= {record.undo} if record.undo is not None else set()
        elif isinstance(record, r.StepsAdded | r.CompensationProposed):
            names.update(record.tools, record.undos.values())
            for step in record.steps:
                names |= _tools_of_step(step)
    return names - {""}  # of built-in steps


class Changed(NamedTuple):
    """A tool whose declaration has changed since that day.

    ``facts`` names what differs from the trace's declaration; digests are empty if none is known.
    """

    tool: str
    recorded: str
    today: str
    facts: list[str]

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON."""
        return self._asdict()


def changed_tools(trace: Trace, catalog: ToolCatalog) -> list[Changed]:
    """The tools of a trace whose declarations have changed since it was recorded or exported."""
    digests: dict[str, str] = {}
    for entry in trace.entries:
        if isinstance(entry.record, r.SagaStarted | r.StepsAdded | r.CompensationProposed):
            digests |= entry.record.tools
        elif isinstance(entry.record, r.CallAdded) and entry.record.tool_digest:
            digests[entry.record.tool] = entry.record.tool_digest
    said = trace.header.get("declared")
    found: list[Changed] = []
    for name in sorted(tools_of(trace)):
        spec = catalog.spec(name)
        if spec is None:
            continue
        recorded = digests.get(name, "")
        before = said.get(name) if isinstance(said, dict) else None
        now = declared({name: ""}, catalog)[name]
        facts = [fact for fact, value in now.items() if isinstance(before, dict) and before.get(fact) != value]
        if facts or (recorded and recorded != spec.digest):
            found.append(Changed(name, recorded, spec.digest, facts))
    return found


def _tools_of_step(step: Any) -> set[str]:
    if not isinstance(step, dict):
        return set()
    fallback = step.get("fallback", ())
    below = [step.get("rollback"), step.get("when_absent"), *(fallback if isinstance(fallback, list) else [fallback])]
    then = step.get("then")
    below += then if isinstance(then, list) else []
    found = {step["tool"]} if isinstance(step.get("tool"), str) else set()
    return found.union(*map(_tools_of_step, below))


def _looked_as(recorded: Any, today: r.AnyRecord) -> r.AnyRecord:
    """Whether an undo is looked at depends on tools' options that a trace does not have."""
    look = getattr(recorded, "look", "")
    return msgspec.structs.replace(today, look=look) if look and type(today) is type(recorded) else today


def _begun(trace: Trace, entries: Sequence[TracedRecord], catalog: ToolCatalog, plan: Any) -> State:
    """The state after the first record, with the trace's plan or with another one, and with the replay's templates."""
    started = started_of([trace.entries[0].record])
    if plan is None:
        loaded = load_started(started)
        compiled = compile_started(started, catalog, loaded)
    else:
        if started.session:
            raise SettingInvalid(
                f"saga {started.saga_id} is a session: it has no plan to change", hint="leave --plan out"
            )
        loaded = load_plan(plan)
        compiled = compile_plan(loaded, catalog, input=started.input)
        started = msgspec.structs.replace(started, undos=compiled.undos, reads=sorted(compiled.reads))
    templates = Templates(entries, redacted=trace.redacted)
    templates.wrap(compiled.steps)
    return begin(started, compiled, ReplayedGrowth(started, catalog, loaded, templates))


def _event_of(wait: Pending, record: r.StepSucceeded | r.EventArrived) -> Message:
    """The message that brought the event of a record."""
    payload = record.output
    if isinstance(record, r.StepSucceeded) and record.entry is not None:
        payload = (payload[record.entry] if wait.word == "all" else payload)["payload"]
    name, key = wait.events()[record.entry or 0]
    return Message(id=record.source, kind="event", step=record.step, event=name, key=key, output=payload)


def _distinct(records: Sequence[r.AnyRecord]) -> list[r.AnyRecord]:
    """Each once: several outcomes may lead to the same record."""
    found: list[r.AnyRecord] = []
    for record in records:
        if comparable(record) not in map(comparable, found):
            found.append(record)
    return found
