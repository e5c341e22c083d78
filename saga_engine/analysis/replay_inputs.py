"""What a replay reads from the trace instead of from outside: outcomes, and params whose values are incomplete."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, Literal

import msgspec

from saga_engine.analysis.trace_file import TracedRecord
from saga_engine.core import records as r
from saga_engine.core.codec import Stored
from saga_engine.core.effects import (
    FORWARD,
    Ask,
    Blocked,
    Direction,
    Done,
    Drifted,
    ErrorInfo,
    NotDone,
    Outcome,
    Unknown,
)
from saga_engine.core.plan_growth import Added, Growth
from saga_engine.core.redaction import REDACTED
from saga_engine.core.session_records import opening_of
from saga_engine.core.steps import compute, each
from saga_engine.errors import BindingUnresolved
from saga_engine.plan import undo_calls
from saga_engine.plan.comparisons import Truth
from saga_engine.plan.compiled import CompiledPlan, CompiledRollback, CompiledStep, Params, Scope
from saga_engine.plan.conditions import Condition, Conditions
from saga_engine.plan.model import Plan
from saga_engine.plan.preview import brief
from saga_engine.plan.tool_spec import ToolCatalog, ToolSpec

#: Where a record comes from. ``owner``: another process took over. ``message``: from the inbox, a session's agent, or
#: the session that this one is a fork of.
#: ``guard``: a call waits, or waits no more. ``look``: it was looked whether an undo did what it says.
Sort = Literal["decided", "outcome", "message", "owner", "guard", "look"]

_SETTLING: Final = (
    r.StepSucceeded,
    r.StepRetryScheduled,
    r.StepFailed,
    r.StepBlocked,
    r.StepInDoubt,
    r.StepEscalated,
    r.FallbackChosen,
    r.StepDeferred,
    r.ProbeFailed,
)
_MESSAGES: Final = (
    r.CancelRequested,
    r.QuestionResolved,
    r.MessageRefused,
    r.ChildEnded,
    r.EventArrived,
    r.CallAdded,
    r.PartialCompensationRequested,
    r.SessionClosed,
    r.SessionKept,
    r.EffectReused,
    r.EffectTransferred,
    r.UndoRequested,
)


def sorts(records: Iterable[r.AnyRecord]) -> Iterator[Sort]:
    """The origin of each record; the first, which starts the saga, counts as its owner's.

    Some kinds are made both by a decision and of an outcome: they are outcomes if something is in flight.
    """
    records = list(records)
    copied = len(opening_of(records))
    undoes = bool(records) and isinstance(records[0], r.SagaStarted) and bool(records[0].undo_of)
    in_flight: set[tuple[str, Direction]] = set()
    asking: set[str] = set()
    alerting: set[str] = set()
    looking: set[str] = set()
    for at, record in enumerate(records):
        sort: Sort = "decided"
        if isinstance(record, r.SagaStarted | r.SagaResumed):
            sort = "owner"
            in_flight.clear()
            asking.clear()
            alerting.clear()
        elif (
            0 < at <= copied
            or isinstance(record, _MESSAGES)
            or (isinstance(record, r.StepSucceeded) and record.via == "event")
            or (isinstance(record, r.StepsAdded) and record.written is None)
            or (isinstance(record, r.EachExpanded) and undoes)
        ):
            sort = "message"
        elif isinstance(record, r.StepQueued | r.StepBegun):
            sort = "guard"
        elif isinstance(record, r.UndoLooked) or _asks_of_look(record, looking, in_flight):
            sort = "look"
            if getattr(record, "how", "") != "later":
                looking.discard(record.step)  # type: ignore[union-attr]
        elif isinstance(record, r.AlertIntended):
            alerting.add(record.question)
        elif isinstance(record, r.AlertSent | r.AlertFailed) and record.question in alerting:
            sort = "outcome"
            alerting.discard(record.question)
        elif isinstance(record, r.StepIntended | r.ProbeIntended):
            in_flight.add((record.step, record.direction))
        elif isinstance(record, r.PlannerAsked):
            asking.add(record.step)
        elif isinstance(record, r.StepsAdded):
            sort = "outcome"
            asking.clear()
        elif isinstance(record, r.PlannerGaveUp | r.CompensationProposed) and record.step in asking:
            sort = "outcome"
            asking.discard(record.step)
        elif isinstance(record, _SETTLING):
            place = (record.step, getattr(record, "direction", FORWARD))
            if place in in_flight:
                sort = "outcome"
                in_flight.discard(place)
        if getattr(record, "look", ""):
            looking.add(record.step)  # type: ignore[union-attr]
        yield sort


def _asks_of_look(record: r.AnyRecord, looking: set[str], in_flight: set[tuple[str, Direction]]) -> bool:
    """Whether a question comes of what was seen after an undo, and not of a call."""
    if not isinstance(record, r.StepEscalated) or record.direction == FORWARD or record.step not in looking:
        return False
    return record.kind in ("undo-unverified", "drift") and (record.step, record.direction) not in in_flight


def answers(record: Any, *, probe: bool) -> Iterator[Outcome]:
    """Every outcome of which a record like this one can have been made."""
    if isinstance(record, r.StepSucceeded):
        yield Done(record.output, record.via, record.source, record.age_ms, record.after)
        return
    if isinstance(record, r.StepEscalated) and record.found is not None:
        yield Drifted(record.error or ErrorInfo("", ""), record.found)
        return
    error = record.error or ErrorInfo("", "")
    yield Unknown(error)
    yield Unknown(error, sent=False)
    yield Unknown(error, at_work=True)
    yield Unknown(error, lost=True)
    yield Unknown(error, raised=True)
    yield NotDone(error, retryable=True, counted=False)
    for wait_s in (None, getattr(record, "delay_ms", 0) / 1000):
        yield NotDone(error, retryable=True, retry_after_s=wait_s, held=True)
    for retryable in (None, True, False):
        for definite in (False, True):
            yield NotDone(error, retryable, definite)
    yield NotDone(error, once=True)
    if not probe:
        rule = getattr(record, "rule", "")
        yield Blocked(error, rule)
        expires_ms = getattr(record, "expires_ms", None)
        yield Ask(error, getattr(record, "call", ""), ((expires_ms or record.at) - record.at) / 1000, rule)


# --- params ----------------------------------------------------------------------------------------------------------


def _slot(record: r.StepIntended) -> int:
    """Which of the calls of a step in one direction it is."""
    return record.fallback if record.call is None else record.call.entry


def _of_item(record: r.StepIntended) -> bool:
    return record.call is not None and record.call.item >= 0


class _FromTrace(dict[str, Any]):
    """Params as the trace has them. They passed the tool's check on the day, and may be cut or redacted since."""


class Templates:
    """The templates of a saga that is run again; if a value that they need is incomplete, the recorded params count."""

    __slots__ = ("_held", "_recorded", "_redacted", "_undo_calls", "_undo_items")

    def __init__(self, entries: Sequence[TracedRecord], *, redacted: bool) -> None:
        self._redacted = redacted
        self._recorded: dict[tuple[str, Direction, int], dict[str, Any]] = {}
        self._held: dict[tuple[str, type], bool] = {}
        #: Of undos of several calls: how many there were; by entry, the params of each item's call.
        self._undo_calls: dict[str, int] = {}
        self._undo_items: dict[tuple[str, int], dict[int, dict[str, Any]]] = {}
        for entry in entries:
            record, params = entry.record, entry.body.get("params")
            if isinstance(record, r.StepIntended) and record.call is not None:
                self._undo_calls[record.step] = record.call.of
                if record.call.item >= 0:
                    items = self._undo_items.setdefault((record.step, record.call.entry), {})
                    items[record.call.item] = params if isinstance(params, dict) else {}
            if isinstance(record, r.StepIntended) and isinstance(params, dict) and not _of_item(record):
                self._recorded.setdefault((record.step, record.direction, _slot(record)), params)
            elif isinstance(record, r.StepSucceeded) and record.via == compute.VIA:
                self._recorded.setdefault((record.step, FORWARD, 0), {compute.KIND: record.output})
            elif isinstance(record, r.EachExpanded):
                self._recorded.setdefault((record.step, FORWARD, 0), {each.KIND: record.items})
            elif isinstance(record, r.StepSkipped | r.OutputChecked):
                held = isinstance(record, r.OutputChecked) and record.error is not None
                self._held[record.step, type(record)] = held

    def wrap(self, steps: Iterable[CompiledStep]) -> None:
        """Replace the plan's templates by these."""
        for step in steps:
            step.params = self._wrapped(step.params, step.key, FORWARD, 0)
            step.when = self._conditions(step.when, self._held.get((step.key, r.StepSkipped), True))
            step.failed_when = self._conditions(step.failed_when, self._held.get((step.key, r.OutputChecked), False))
            if step.each is not None:  # what its items call is replaced when they are steps
                step.each.when = self._conditions(step.each.when, True)
                step.params.bound = True  # a list without bindings may be redacted, too
                continue
            step.spec = _trusting(step.spec)
            # Fallbacks that are no call of another tool share the step's own undo.
            for number, serving in enumerate(step.servings()):
                if serving is not step:
                    serving.params = self._wrapped(serving.params, step.key, FORWARD, number)
                    serving.spec = _trusting(serving.spec)
                self._wrap_undo(serving.rollback, step.key)
            if step.builtin:
                self._wrap_undo(step.rollback, step.key)

    def _wrap_undo(self, undo: CompiledRollback | None, key: str) -> None:
        if undo is None:
            return
        self._wrap_undo(undo.absent, key)
        calls = (undo, *undo.then)
        lists = [entry for entry, call in enumerate(calls) if call.each is not None]
        counts = {entry: len(self._undo_items.get((key, entry), ())) for entry in lists}
        if lists:  # those that were not reached on the day count as the last list's
            rest = self._undo_calls.get(key, 0) - (len(calls) - len(lists)) - sum(counts.values())
            counts[lists[-1]] += max(rest, 0)
        for entry, call in enumerate(calls):
            call.spec = _trusting(call.spec)
            if call.each is None:
                call.params = self._wrapped(call.params, key, "compensate", entry)
            elif not isinstance(call.params, _Template):
                listed = {undo_calls.WORD: [None] * counts[entry]}
                call.each = _Template(call.each, listed, key, redacted=self._redacted)
                items = self._undo_items.get((key, entry), {})
                call.params = _Template(call.params, None, key, redacted=self._redacted, items=items)

    def _conditions(self, given: Conditions | None, held: bool) -> Conditions | None:
        if given is None or isinstance(given.condition, _Recorded):
            return given
        return given._replace(condition=_Recorded(given, held, redacted=self._redacted and given.bound))

    def _wrapped(self, template: Params, key: str, direction: Direction, fallback: int) -> Params:
        if isinstance(template, _Template):
            return template
        recorded = self._recorded.get((key, direction, fallback))
        own = key if direction != FORWARD else ""
        return _Template(template, recorded, own, redacted=self._redacted)


class _Recorded(Condition):
    """Conditions; if a value that they need is incomplete, what came of them on the day counts."""

    __slots__ = ("_given", "_held", "_redacted")

    def __init__(self, given: Conditions, held: bool, *, redacted: bool) -> None:
        self._given = given
        self._held = held
        self._redacted = redacted

    def evaluate(self, scope: Scope) -> Truth:
        """As on the day."""
        partial = self._redacted or any(_partial(scope, key) for key in self._given.outputs)
        return self._held if partial else self._given.evaluate(scope)


class _Template:
    """One template (:class:`saga_engine.plan.compiled.Params`)."""

    __slots__ = (
        "_items", "_needs", "_recorded", "_redacted", "_template",
        "bound", "outputs", "outputs_or_default", "raw", "secret_params", "secrets",
    )  # fmt: skip

    def __init__(
        self,
        template: Params,
        recorded: dict[str, Any] | None,
        own: str,
        *,
        redacted: bool,
        items: Mapping[int, dict[str, Any]] | None = None,
    ) -> None:
        """``items``: the recorded params of the call for each item of the list of an undo."""
        self._items = items
        self._template = template
        self._recorded = recorded
        self._redacted = redacted
        self.bound, self.secrets, self.outputs, self.raw = (
            template.bound,
            template.secrets,
            template.outputs,
            template.raw,
        )
        self.secret_params = template.secret_params
        self.outputs_or_default = template.outputs_or_default
        # An undo may read from the output of its step what it does not need to.
        self._needs = template.outputs | ({own} if own and template.bound else set())

    def resolve(self, scope: Scope) -> dict[str, Any]:
        """The params of a call. Raises ``BindingUnresolved``."""
        partial = any(_partial(scope, key) for key in self._needs)
        if self._items is not None and (partial or self._redacted):
            return _FromTrace(self._items.get(scope.index, {}))
        if self._recorded is not None and (partial or (self._redacted and self.bound)):
            return _FromTrace(self._recorded)
        # A call that was not made on the day, with incomplete params: only whether it is made counts.
        return _FromTrace() if partial else self._template.resolve(scope)


def _partial(scope: Scope, key: str) -> bool:
    try:
        return isinstance(scope.output(key), Stored)
    except BindingUnresolved:
        return False


def _trusting(spec: ToolSpec | None) -> ToolSpec | None:
    if spec is None:
        return None
    check = spec.check_params
    return replace(spec, check_params=lambda params: () if isinstance(params, _FromTrace) else check(params))


class ReplayedGrowth(Growth):
    """A plan that grows as recorded, with the templates of the replay."""

    __slots__ = ("_templates",)

    def __init__(self, started: r.SagaStarted, catalog: ToolCatalog, plan: Plan, templates: Templates) -> None:
        super().__init__(started, catalog, plan)
        self._templates = templates

    def compile(self, added: Sequence[Added]) -> CompiledPlan:
        """The plan with all additions."""
        made = super().compile(added)
        self._templates.wrap(made.steps)
        return made

    def has_items(self, steps: Sequence[CompiledStep]) -> None:
        """The items of a list have got these steps."""
        self._templates.wrap(steps)

    def call(self, record: r.CallAdded, index: int, by_key: Any) -> CompiledStep:
        """The step of a session's call."""
        made = super().call(record, index, by_key)
        self._templates.wrap([made])
        return made


# --- comparing -------------------------------------------------------------------------------------------------------


def comparable(record: r.AnyRecord) -> r.AnyRecord:
    """A record without what may differ.

    How the waits were spread, and digests of tools (they are reported separately).
    """
    changes: dict[str, Any] = {}
    for name in record.__struct_fields__:
        if name == "delay_ms":
            changes[name] = min(getattr(record, name), 0)
        elif name in ("refs", "tools"):
            changes[name] = {}
    if isinstance(record, r.StepSucceeded) and record.via == each.VIA:
        changes["output"] = None  # those of the items before it, of which a trace may have the cut forms
    if isinstance(record, r.StepIntended):
        changes["params"] = None  # compared as the call has them, bound or not
    return msgspec.structs.replace(record, **changes)


def plain_record(record: Any) -> Any:
    """A record as plain JSON; missing values in their cut form."""
    return msgspec.to_builtins(record, enc_hook=_cut)


def told(record: r.AnyRecord) -> dict[str, Any]:
    """A record for display."""
    fields = plain_record(msgspec.structs.replace(record, refs={}) if hasattr(record, "refs") else record)
    return {name: brief(value) for name, value in fields.items()}


def _cut(value: Any) -> Any:
    if isinstance(value, Stored):
        return value.cut
    raise TypeError(f"{type(value).__name__} is no part of a record")


def alike(one: Any, other: Any) -> bool:
    """Whether two values are the same as far as they are known; a redacted value may have been anything."""
    if (isinstance(one, str) and REDACTED in one) or (isinstance(other, str) and REDACTED in other):
        return True
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(alike(value, other[name]) for name, value in one.items())
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(alike(*pair) for pair in zip(one, other, strict=True))
    return bool(one == other)
