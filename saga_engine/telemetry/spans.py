"""The spans of one saga, from its records: the same ones in whatever process reads them.

Trace id and span ids come from the saga's seed and from the place of a record in its journal; times are those of the
records. So a process that takes a saga over continues its trace, ends what another one began, and can make again what
that one did not export. A span holds ids, names of tools, codes and times, and nothing else that a plan, a model or a
tool wrote.

A saga has a short span at its start, the parent of all others, so that no span lacks its parent while the saga is
under way; one for each attempt of a call, an undo or a probe, and for each answer of a model; a short one for each
question; and one for the whole at its end, with the turns of the saga as events.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2b
from itertools import chain
from typing import Any, Final, NamedTuple

from saga_engine.core import records as r
from saga_engine.core.effects import FORWARD
from saga_engine.core.questions import OPTIONS
from saga_engine.core.state import State
from saga_engine.plan.undo_calls import undo_call
from saga_engine.telemetry import span_names as n
from saga_engine.tools.trace_context import SpanContext, parsed

Attributes = dict[str, Any]
#: Events of the last span; of more than these the later ones are not in it.
MOST_EVENTS: Final = 128
_HALF: Final = 1 << 64
_EVENTS: Final[Mapping[type[Any], str]] = {
    r.CancelRequested: "saga.cancel_requested",
    r.DeadlinePassed: "saga.deadline_passed",
    r.CallLimitReached: "saga.call_limit_reached",
    r.SagaEscalated: "saga.escalated",
    r.FinallyStarted: "saga.finally",
}
_ENDS: Final[Mapping[type[Any], str]] = {
    r.StepFailed: "failed",
    r.FallbackChosen: "failed",
    r.StepBlocked: "blocked",
    r.StepRetryScheduled: "retry",
    r.StepDeferred: "deferred",
    r.StepInDoubt: "in_doubt",
    r.CompensationRequested: "in_doubt",
    r.StepUnsettled: "in_doubt",
    r.StepEscalated: "asked",
    r.ProbeFailed: "unknown",
}

#: The engine's own answers to questions, and none.
_DECISIONS: Final = frozenset(chain.from_iterable(OPTIONS.values())) | {"ask-again", "expired"}


class Event(NamedTuple):
    """Something that happened during a span."""

    name: str
    at_ms: int
    attributes: Attributes


class Span(NamedTuple):
    """A span that has ended. ``record``: the place of the record that ended it, in the journal of ``saga``.

    ``epoch``: that of the owner that made this record durable.
    """

    saga: SagaSpans
    epoch: int
    record: int
    name: str
    span_id: int
    parent: SpanContext | None
    start_ms: int
    end_ms: int
    attributes: Attributes
    error: bool = False
    events: Sequence[Event] = ()
    link: SpanContext | None = None


class _Open:
    """A span that has begun."""

    __slots__ = ("at", "attributes", "events", "name", "record")

    def __init__(self, record: int, at: int, name: str, attributes: Attributes) -> None:
        self.record = record
        self.at = at
        self.name = name
        self.attributes = attributes
        self.events: list[Event] = []


class SagaSpans:
    """Reads the records of a saga, each once and in their order, and makes its spans.

    ``names``: these have the name of its plan.
    """

    __slots__ = (
        "__weakref__",
        "_events",
        "_made",
        "_names",
        "_open",
        "_root",
        "_seed",
        "_start",
        "count",
        "ended",
        "epoch",
        "root",
        "saga_id",
        "sampled",
    )

    def __init__(self, started: r.SagaStarted, sample: float, *, names: bool = True) -> None:
        self.saga_id = started.saga_id
        self._names = names
        self._seed = f"{started.seed}\0{started.saga_id}\0"
        caller = parsed(started.traceparent)
        # A child has its own trace: it may be long, and undone on its own. Its first span has a link.
        self._root = None if started.parent else caller
        trace_id = self._id("", 16) if self._root is None else self._root.trace_id
        self.sampled = self._root.sampled if self._root is not None else trace_id % _HALF < sample * _HALF
        self.root = SpanContext(trace_id, self._id("0", 8), self.sampled)
        self._start = started
        self._open: dict[tuple[str, str], _Open] = {}
        self._events: list[Event] = []
        self._made: list[Span] = []
        #: How many records were read, the epoch of their last owner, and whether the saga is over.
        self.count = 0
        self.epoch = 1
        self.ended = False

    def read(self, state: State, records: Sequence[r.AnyRecord]) -> list[Span]:
        """The spans that end with these records, which ``state`` has in it."""
        made: list[Span] = []
        self._made = made
        for record in records:
            saw = _SAW.get(type(record))
            if saw is not None:
                saw(self, state, record)
            self.count += 1
        return made

    def current(self, step: str, direction: str) -> SpanContext | None:
        """The span of the call that is under way; of a saga that is not exported the first one stands for it."""
        if not self.sampled:
            return self.root
        found = self._open.get((step, direction))
        return None if found is None else SpanContext(self.root.trace_id, self._id(str(found.record), 8), self.sampled)

    # --- making --------------------------------------------------------------------------------------------------

    def _id(self, part: str, size: int) -> int:
        return int.from_bytes(blake2b(f"{self._seed}{part}".encode(), digest_size=size).digest()) or 1

    def _begin(self, key: tuple[str, str], at: int, name: str, attributes: Attributes) -> None:
        self._open[key] = _Open(self.count, at, name, {n.SAGA: self.saga_id, **attributes})

    def _end(
        self, key: tuple[str, str], at: int, outcome: str, error: str = "", more: Attributes | None = None
    ) -> None:
        """End a span, if it has begun: of an outcome without a call there is none."""
        begun = self._open.pop(key, None)
        if begun is None:
            return
        attributes = {**begun.attributes, n.OUTCOME: outcome, **(more or {})}
        if error:
            attributes[n.ERROR_TYPE] = error
        made = Span(
            self,
            self.epoch,
            self.count,
            begun.name,
            self._id(str(begun.record), 8),
            self.root,
            begun.at,
            at,
            attributes,
            bool(error),
            begun.events,
        )
        self._made.append(made)

    def _note(self, name: str, at: int, attributes: Attributes | None = None) -> None:
        if len(self._events) < MOST_EVENTS:
            self._events.append(Event(name, at, attributes or {}))

    def _name(self, state: State) -> str:
        return state.plan.name if self._names else ""

    # --- the records ---------------------------------------------------------------------------------------------

    def _on_started(self, state: State, record: r.SagaStarted) -> None:
        kind = "fork" if record.fork_of else "undo" if record.undo_of else "child" if record.parent else "plan"
        attributes = {n.SAGA: self.saga_id, n.KIND: "session" if record.session else kind}
        if record.template:
            attributes[n.TEMPLATE] = record.template
        link = parsed(record.traceparent) if record.parent else None
        name = f"saga {self._name(state)}".strip()
        at = record.at
        root = Span(self, 1, 0, name, self.root.span_id, self._root, at, at, attributes, link=link)
        self._made.append(root)

    def _on_resumed(self, _: State, record: r.SagaResumed) -> None:
        self.epoch = record.epoch
        for key, begun in list(self._open.items()):
            waits = bool(begun.events) and begun.events[-1].name == "saga.queued"
            self._end(key, record.at, "not_made" if waits else "in_doubt", "" if waits else "answer_lost")
        self._note("saga.resumed", record.at, {n.EPOCH: record.epoch})

    def _on_intended(self, state: State, record: r.StepIntended) -> None:
        index = state.plan.by_key[record.step]
        step = state.plan.steps[index]
        if step.builtin:
            return
        if record.direction != FORWARD:
            whole = state.whole_rollback(index)
            if whole is not None and record.call is not None:
                whole = undo_call(whole, record.call.place, record.step, index)
            tool = "" if whole is None else whole.tool
        else:
            tool = step.fallbacks[record.fallback - 1].tool if record.fallback else step.tool
        self._begin_call(record, tool, {n.CALL_ID: f"{self.saga_id}/{record.step}/{record.direction}/{record.attempt}"})

    def _begin_call(self, record: Any, tool: str, more: Attributes) -> None:
        attributes = {
            n.OPERATION: n.EXECUTE_TOOL,
            n.TOOL_NAME: tool,
            n.TOOL_TYPE: "function",
            n.STEP: record.step,
            n.DIRECTION: record.direction,
            n.ATTEMPT: record.attempt,
            **more,
        }
        self._begin((record.step, record.direction), record.at, f"{n.EXECUTE_TOOL} {tool}", attributes)

    def _on_probe(self, state: State, record: r.ProbeIntended) -> None:
        index = state.plan.by_key[record.step]
        serving = state.acting(index) if record.direction == FORWARD else state.rollback_of(index)
        self._begin_call(record, "" if serving is None else serving.tool, {n.KIND: "probe"})

    def _on_delay(self, _: State, record: r.StepQueued | r.StepBegun) -> None:
        begun = self._open.get((record.step, record.direction))
        if begun is not None:
            begun.events.append(Event("saga.queued" if type(record) is r.StepQueued else "saga.begun", record.at, {}))

    def _on_succeeded(self, _: State, record: r.StepSucceeded) -> None:
        more = {} if record.via == "call" else {n.VIA: record.via}
        self._end((record.step, record.direction), record.at, "succeeded", more=more)

    def _on_end(self, _: State, record: Any) -> None:
        error = getattr(record, "error", None)
        code = "" if error is None else error.error_code
        outcome = _ENDS[type(record)]
        approval = type(record) is r.StepEscalated and record.kind == "approval"
        key = (record.step, getattr(record, "direction", FORWARD))
        self._end(key, record.at, outcome, "" if approval else code or outcome)

    def _on_asked(self, state: State, record: r.StepEscalated | r.SessionKept) -> None:
        if type(record) is r.StepEscalated:
            self._on_end(state, record)
        attributes = {n.QUESTION: record.question, n.QUESTION_KIND: record.kind, n.STEP: record.step}
        at, span_id = record.at, self._id(str(self.count), 8)
        self._note("saga.question", at, attributes)
        attributes = {n.SAGA: self.saga_id, **attributes}
        asked = Span(self, self.epoch, self.count, f"question {record.kind}", span_id, self.root, at, at, attributes)
        self._made.append(asked)

    def _on_answered(self, _: State, record: r.QuestionResolved | r.ApprovalExpired) -> None:
        decision = record.decision if type(record) is r.QuestionResolved else "expired"
        if decision not in _DECISIONS:
            decision = "answer"  # one of the plan's own options: its words are in no span
        self._note("saga.answer", record.at, {n.QUESTION: record.question, n.DECISION: decision})

    def _on_looked(self, _: State, record: r.UndoLooked) -> None:
        self._note("saga.undo_looked", record.at, {n.STEP: record.step, n.OUTCOME: record.how})

    def _on_planner(self, _: State, record: r.PlannerAsked) -> None:
        attributes = {n.OPERATION: n.PLAN, n.STEP: record.step, n.REASON: record.purpose}
        self._begin(("", "plan"), record.at, n.PLAN, attributes)

    def _on_advice(self, _: State, record: Any) -> None:
        written, error = record.written, getattr(record, "error", None)
        used: Attributes = {}
        if written is not None:
            used = {n.MODEL: written.model, n.TOKENS_IN: written.tokens_in, n.TOKENS_OUT: written.tokens_out}
        code = "" if error is None else error.error_code
        self._end(("", "plan"), record.at, "failed" if code else "succeeded", code, used)

    def _on_turned(self, _: State, record: r.CompensationStarted) -> None:
        self._note("saga.compensation", record.at, {n.REASON: record.reason})

    def _on_event(self, _: State, record: Any) -> None:
        self._note(_EVENTS[type(record)], record.at)

    def _on_over(self, state: State, record: Any) -> None:
        self.ended = True
        status = state.status.lower()
        attributes = {n.OPERATION: n.WORKFLOW, n.SAGA: self.saga_id, n.STATUS: status}
        name = self._name(state)
        if name:
            attributes[n.AGENT_NAME] = name
        failed = type(record) is not r.SagaCompleted
        if failed:
            attributes[n.ERROR_TYPE] = state.reason or status
        whole = Span(
            self,
            self.epoch,
            self.count,
            f"{n.WORKFLOW} {name}".strip(),
            self._id("whole", 8),
            self.root,
            self._start.at,
            record.at,
            attributes,
            failed,
            tuple(self._events),
        )
        self._made.append(whole)


_SAW: Final[Mapping[type[Any], Callable[[SagaSpans, State, Any], None]]] = {
    r.SagaStarted: SagaSpans._on_started,  # noqa: SLF001 - the table of this module's class
    r.SagaResumed: SagaSpans._on_resumed,  # noqa: SLF001
    r.StepIntended: SagaSpans._on_intended,  # noqa: SLF001
    r.ProbeIntended: SagaSpans._on_probe,  # noqa: SLF001
    r.StepQueued: SagaSpans._on_delay,  # noqa: SLF001
    r.StepBegun: SagaSpans._on_delay,  # noqa: SLF001
    r.StepSucceeded: SagaSpans._on_succeeded,  # noqa: SLF001
    **dict.fromkeys(_ENDS, SagaSpans._on_end),  # noqa: SLF001
    r.StepEscalated: SagaSpans._on_asked,  # noqa: SLF001
    r.SessionKept: SagaSpans._on_asked,  # noqa: SLF001
    r.UndoLooked: SagaSpans._on_looked,  # noqa: SLF001
    r.QuestionResolved: SagaSpans._on_answered,  # noqa: SLF001
    r.ApprovalExpired: SagaSpans._on_answered,  # noqa: SLF001
    r.PlannerAsked: SagaSpans._on_planner,  # noqa: SLF001
    r.PlannerGaveUp: SagaSpans._on_advice,  # noqa: SLF001
    r.CompensationProposed: SagaSpans._on_advice,  # noqa: SLF001
    r.StepsAdded: SagaSpans._on_advice,  # noqa: SLF001
    r.CompensationStarted: SagaSpans._on_turned,  # noqa: SLF001
    **dict.fromkeys(_EVENTS, SagaSpans._on_event),  # noqa: SLF001
    r.SagaCompleted: SagaSpans._on_over,  # noqa: SLF001
    r.SagaCompensated: SagaSpans._on_over,  # noqa: SLF001
    r.SagaWaived: SagaSpans._on_over,  # noqa: SLF001
}
