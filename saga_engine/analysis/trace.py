"""A saga's run as lines of JSON that need no store: to view, to audit elsewhere, and to replay (``replay``).

One line is one fact: the header (the saga, its plan and its tools), one for each record of the journal with what a
reader needs beside it, one at the saga's end, and one at the file's. Each carries the hash of the line before. Same
journal, same rules, same tools: the same bytes. docs/trace.md is the format's page.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from saga_engine.analysis.fingerprint import Fingerprints, intended_params
from saga_engine.analysis.trace_file import FORMAT, RENAMED, Chain
from saga_engine.core import records as r
from saga_engine.core import transitions as t
from saga_engine.core.codec import abridge, inflate, refs_of, stored_form
from saga_engine.core.effects import COMPENSATE, FORWARD
from saga_engine.core.evolve import evolve
from saga_engine.core.fold import started_of, state_at_start
from saga_engine.core.masking import is_sensitive, masked_records
from saga_engine.core.plan_growth import plan_of
from saga_engine.core.redaction import REDACTED, Redaction
from saga_engine.core.report import failure, report
from saga_engine.core.state_values import Place
from saga_engine.errors import JournalUnreadable
from saga_engine.plan.absence import read_absence
from saga_engine.plan.tool_spec import After, Effect, OnDoubt, ParamsCheck, RetryPolicy, Semantic, ToolCatalog, ToolSpec
from saga_engine.plan.undo_check import read_undo_check

if TYPE_CHECKING:
    from saga_engine.analysis.trace_signature import TraceKey

#: The status of the attempt that a record settles.
_STATUSES: Final[dict[type, str]] = {
    r.StepSucceeded: "succeeded",
    r.StepRetryScheduled: "retried",
    r.StepFailed: "failed",
    r.StepBlocked: "blocked",
    r.StepInDoubt: "in_doubt",
    r.ProbeFailed: "in_doubt",
    r.StepEscalated: "asked",
    r.FallbackChosen: "failed",
    r.StepDeferred: "deferred",
}
#: The facts of a declaration that decisions depend on.
DECLARED: Final = (
    *("effect", "keyed", "key_ttl_s", "undo", "probe", "timeout_s", "compensates", "tolerates_absence", "remembers"),
    *("told_key", "last_good_s", "semantic", "on_doubt", "undoes_by_key", "input_schema", "output_schema", "digest"),
    *("before", "after", "absent", "undo_absent", "sole_writer", "expect"),
    *("undo_params", "undo_each", "undo_then"),
    *("undo_check", "verify", "verify_within_s", "hold"),
)
#: Those of them that are left out if the tool has no read of before-images, as most have none.
#: Those that are left out where nothing else is declared: how an undo is looked at, and whether resources are held.
_USUAL: Final[Mapping[str, Any]] = {"undo_check": None, "verify": True, "verify_within_s": 0.0, "hold": False}
_OF_UNDOS: Final = frozenset({"undo_params", "undo_each", "undo_then"})
_OF_IMAGES: Final = frozenset({"before", "after", "absent", "undo_absent", "sole_writer", "expect"})


class Export:
    """One file: sagas, one after the other, and its end.

    ``full``: values over 31 KiB whole; else in their cut form, with digest and size. Values that ``redaction`` touches
    are removed before anything is cut or hashed. ``key`` signs the last line.
    """

    __slots__ = ("_chain", "_complete", "_full", "_key", "_redaction", "_sagas")

    def __init__(self, redaction: Redaction | None = None, *, full: bool = False, key: TraceKey | None = None) -> None:
        self._key = key
        self._redaction = redaction or Redaction()
        self._full = full
        self._chain = Chain()
        self._sagas = 0
        self._complete = True

    @property
    def sagas(self) -> int:
        """How many sagas have been written."""
        return self._sagas

    @property
    def lines(self) -> int:
        """How many lines have been made."""
        return self._chain.lines

    @property
    def last(self) -> str:
        """The hash of the last line."""
        return self._chain.last

    @property
    def needs_outputs(self) -> bool:
        """Whether large outputs must be available: to be shown whole, or to be redacted before they are cut."""
        return self._full or bool(self._redaction)

    def saga(self, records: Sequence[r.AnyRecord], catalog: ToolCatalog | None = None) -> list[str]:
        """The lines of one saga; all of them, or none if it is unreadable.

        ``records`` have all their large values restored, except outputs if ``needs_outputs`` is False. ``catalog``: the
        tools whose declarations the header includes, so that the trace can be replayed without them. Raises
        ``JournalUnreadable``.
        """
        masked = is_sensitive(records)
        shown = masked_records(records) if masked else records
        walk = _Walk(shown, self._redaction, full=self._full, masked=masked)
        bodies = [walk.header(catalog), *map(walk.line, shown[1:]), walk.end(len(records))]
        self._sagas += 1
        self._complete = self._complete and bodies[-1]["complete"]
        return [self._chain.line(body) for body in bodies]

    def end(self) -> str:
        """The last line of the file; without it the file was truncated."""
        lines = self._chain.lines + 1
        end = {"type": "end", "sagas": self._sagas, "lines": lines, "complete": self._complete}
        return self._chain.line(end, self._key)


def fill(record: r.AnyRecord, values: Mapping[str, bytes], *, outputs: bool) -> r.AnyRecord:
    """The record with its large values restored; without ``outputs``, a large output stays a reference."""
    refs = refs_of(record)
    if outputs or "output" not in refs:
        return inflate(record, values)
    others = {name: ref for name, ref in refs.items() if name != "output"}
    made = inflate(msgspec.structs.replace(record, refs=others), values) if others else record
    return msgspec.structs.replace(made, refs={"output": refs["output"]})


class _Attempt(NamedTuple):
    """A call or probe in flight: the content of its line when it is settled."""

    at: int
    said: dict[str, Any]


class _Walk:
    """Converts one saga's records to lines; the state is always that before the current record."""

    def __init__(self, records: Sequence[r.AnyRecord], redaction: Redaction, *, full: bool, masked: bool) -> None:
        self._started = started = started_of(records)
        self._records = records
        self._redaction = redaction
        self._masked = masked
        self._full = full
        self._state = state_at_start(started, None)
        self._fingerprints = Fingerprints()
        self._tainted: set[int] = set()
        self._open: dict[Place, _Attempt] = {}

    # --- the lines -------------------------------------------------------------------------------------------------

    def header(self, catalog: ToolCatalog | None) -> dict[str, Any]:
        started, redaction = self._started, self._redaction
        plan = redaction.plan(plan_of(started))
        given = started.input
        shown = None if given is None else redaction.fields("input", given)
        changed = bool(redaction) and (plan != plan_of(started) or shown != given)
        fields: dict[str, Any] = msgspec.to_builtins(msgspec.structs.replace(started, plan=None, input=None, refs={}))
        for name in ("k", "refs"):
            fields.pop(name, None)
        return {
            "type": "saga",
            "format": FORMAT,
            "record": "SagaStarted",
            "saga_id": started.saga_id,
            "goal": plan.get("goal", ""),
            "started_ms": started.at,
            **fields,
            "digest": REDACTED if changed else started.digest,
            "plan": plan,
            "input": shown,
            "tools": started.tools,
            "declared": declared(self._tools(), catalog),
            "full": self._full,
            "redacted": list(redaction.rules),
            **({"masked": True} if self._masked else {}),
        }

    def line(self, record: r.AnyRecord) -> dict[str, Any]:
        state = self._state
        # The fingerprint is that of the state before: none of its parts changes with the intent.
        self._fingerprints.note(state, record)
        fields = self._fields(record)
        body: dict[str, Any] = {
            "type": "fact",
            "saga_id": state.saga_id,
            "record": type(record).__name__,
            "at": record.at,
        }
        if "step" in fields:
            body |= {"step": fields["step"], "direction": getattr(record, "direction", FORWARD)}
        if isinstance(record, r.StepIntended):
            body |= {"type": "intent", **fields, **self._intended(record)}
        elif isinstance(record, r.ProbeIntended):
            body |= {"type": "intent", **fields, **self._probing(record)}
        elif (place := self._place(record)) in self._open and type(record) in _STATUSES:
            body |= {"type": "probe" if self._is_probe(place) else "call", **fields, **self._settled(place, record)}
        else:
            body |= fields
        if isinstance(record, r.SagaResumed):
            body["lost"] = [
                {"step": state.plan.steps[place[0]].key, **self._lost(place)}
                for place in self._open
                if not self._is_unmade(place)
            ]
            self._open.clear()
        evolve(state, abridge(record))
        return body

    def end(self, count: int) -> dict[str, Any]:
        state = self._state
        why = failure(state)
        failed = None if why is None else why.plain()
        if failed is not None and "message" in failed:
            texts = {name: failed[name] for name in ("message", "suggestion") if name in failed}
            failed = {**failed, **self._redaction.error(texts)}
            said = getattr(state.phase, "said", "")
            if said and any(self._redaction.value(root, said) != said for root in ("by", "note")):
                failed["message"] = REDACTED
        return {
            "type": "saga-end",
            "saga_id": state.saga_id,
            "complete": state.status in t.SAGA_FINAL,
            "status": state.status,
            "ended_ms": state.ended_at or None,
            "records": count,
            "report": report(state).plain(),
            "error": failed,
        }

    # --- calls -----------------------------------------------------------------------------------------------------

    def _place(self, record: r.AnyRecord) -> Place:
        index = self._state.plan.by_key.get(getattr(record, "step", ""), -1)
        return index, getattr(record, "direction", FORWARD)

    def _is_probe(self, place: Place) -> bool:
        return self._state.in_flight.get(place) == "probe"

    def _is_unmade(self, place: Place) -> bool:
        return self._state.in_flight.get(place) in ("intended", "queued")

    def _intended(self, record: r.StepIntended) -> dict[str, Any]:
        state = self._state
        place = index, direction = self._place(record)
        params = intended_params(state, record)
        shown = self._redaction.fields("params", params)
        steps = state.plan.steps
        if direction == FORWARD:
            if shown is not params or _is_masked(params) or any(other in self._tainted for other in steps[index].deps):
                self._tainted.add(index)  # a hash of the redacted value would disclose it
            else:
                self._tainted.discard(index)
        said = {**self._call(place), "attempt": record.attempt, **self._large("params", shown)}
        if direction == FORWARD:
            said["fallback"] = record.fallback
            said["fingerprint"] = None if index in self._tainted else self._fingerprints.get(index)
        self._open[place] = _Attempt(record.at, said)
        return {**said, "bound": True} if record.params is not None else said

    def _probing(self, record: r.ProbeIntended) -> dict[str, Any]:
        place = self._place(record)
        said = {**self._call(place), "attempt": record.attempt}
        self._open[place] = _Attempt(record.at, said)
        return said

    def _call(self, place: Place) -> dict[str, Any]:
        index, direction = place
        serving = self._state.serving(index, direction)
        return {
            "name": self._state.plan.steps[index].name,
            "tool": serving.tool,
            "idempotency_key": self._state.key(index, direction),
        }

    def _settled(self, place: Place, record: r.AnyRecord) -> dict[str, Any]:
        attempt = self._open.pop(place)
        status = _STATUSES[type(record)]
        if status == "succeeded" and place[1] == COMPENSATE:
            status = "compensated"
        return {
            **attempt.said,
            "status": status,
            "started_ms": attempt.at,
            "ended_ms": record.at,
            "duration_ms": record.at - attempt.at,
        }

    def _lost(self, place: Place) -> dict[str, Any]:
        said = self._open[place].said
        return {
            "direction": place[1],
            "tool": said["tool"],
            "attempt": said["attempt"],
            "idempotency_key": said["idempotency_key"],
        }

    # --- fields ----------------------------------------------------------------------------------------------------

    def _fields(self, record: r.AnyRecord) -> dict[str, Any]:
        """The record's own fields as the line has them: redacted, cut, and under their names there."""
        kind = type(record).__name__
        fields: dict[str, Any] = msgspec.to_builtins(record)
        for name in ("k", "at", "refs"):
            fields.pop(name, None)
        if isinstance(record, r.StepIntended):
            fields.pop("params", None)  # they are among the fields of the call
        redaction = self._redaction
        if redaction:
            _redact(record, fields, redaction)
        for name, ref in refs_of(record).items():
            shown = ref.summary if ref.brief is None else ref.brief
            fields |= {name: shown, f"{name}_ref": {"digest": ref.digest, "bytes": ref.bytes}}
        if "output" in fields and "output_ref" not in fields:
            fields |= self._large("output", fields["output"])
        if isinstance(record, r.StepSucceeded):
            fields |= {"output": fields.get("output"), "via": record.via}
        for (of, name), other in RENAMED.items():
            if of == kind:
                fields[other] = fields.pop(name)
        return fields

    def _large(self, name: str, value: Any) -> dict[str, Any]:
        """A value, or its cut form with what it is the cut form of."""
        stored = None if self._full else stored_form(value)
        if stored is None:
            return {name: value}
        return {name: stored.cut, f"{name}_ref": {"digest": stored.ref.digest, "bytes": stored.ref.bytes}}

    def _tools(self) -> dict[str, str]:
        found = dict(self._started.tools)
        for record in self._records:
            if isinstance(record, r.StepsAdded | r.CompensationProposed):
                found |= record.tools
            elif isinstance(record, r.CallAdded):
                found[record.tool] = record.tool_digest
                if record.undo is not None:
                    found.setdefault(record.undo, "")
        for call in self._state.plan.calls():
            found.setdefault(call.tool, "")
        return found


def _is_masked(value: Any) -> bool:
    """Whether a value in params was removed before."""
    if isinstance(value, dict):
        return any(map(_is_masked, value.values()))
    if isinstance(value, list):
        return any(map(_is_masked, value))
    return isinstance(value, str) and REDACTED in value


def _redact(record: r.AnyRecord, fields: dict[str, Any], redaction: Redaction) -> None:
    for name in ("note", "by", "reason", "owner", "output"):
        # (Other reasons are codes.)
        if name in fields and (name != "reason" or isinstance(record, r.MessageRefused)):
            fields[name] = redaction.value(name, fields[name])
    for name in ("before", "after", "found"):
        if isinstance(fields.get(name), dict):  # what a read returned
            fields[name] = {part: redaction.value("output", value) for part, value in fields[name].items()}
    if "error" in fields:
        fields["error"] = redaction.error(fields["error"])
    if "steps" in fields and not isinstance(record, r.PartialCompensationRequested):
        fields["steps"] = redaction.steps(fields["steps"])
    if "items" in fields:  # no rule names the place in a tool's params that an item is for
        fields["items"] = [REDACTED] * len(fields["items"])
    if fields.get("reasons"):
        fields["reasons"] = redaction.fields("reason", fields["reasons"])
    if isinstance(record, r.CallAdded):
        fields["params"] = redaction.fields("params", fields["params"])
        if fields.get("undo_params"):
            fields["undo_params"] = redaction.template(fields["undo_params"])
    if fields.get("call"):
        fields["call"] = REDACTED  # the digest of a call, of which all but a few digits may be known
    if "fingerprint" in fields:
        fields["fingerprint"] = REDACTED  # of another saga's call, whose content is unknown


# --- what export and replay share ---------------------------------------------------------------------------------


def declared(names: Mapping[str, str], catalog: ToolCatalog | None) -> dict[str, Any]:
    """The declarations of tools, by name, as far as decisions depend on them."""
    found: dict[str, Any] = {}
    for name in names:
        spec = catalog.spec(name) if catalog is not None else None
        if spec is not None:
            policy = spec.retry
            retry = {"max_attempts": policy.max_attempts, "base_s": policy.base_s, "max_s": policy.max_s}
            said = {fact: getattr(spec, fact) for fact in DECLARED}
            if spec.on_doubt == "ask":  # as it nearly always is
                del said["on_doubt"]
            for fact in ("undoes_by_key", "told_key"):
                if not said[fact]:
                    del said[fact]
            if not (spec.undo_params or spec.undo_each or spec.undo_then):
                said = {fact: value for fact, value in said.items() if fact not in _OF_UNDOS}
            said |= {} if spec.undo_check is None else {"undo_check": spec.undo_check.to_dict()}
            for fact, usual in _USUAL.items():
                if said[fact] == usual:
                    del said[fact]
            if spec.before is None:
                said = {fact: value for fact, value in said.items() if fact not in _OF_IMAGES}
            elif spec.absent is not None:
                said["absent"] = spec.absent.to_dict()
            if spec.expect is None:
                said.pop("expect", None)
            found[name] = said | {"retry": {**retry, "jitter": policy.jitter}}
    return found


def _declaration(
    name: str, said: Mapping[str, Any], check: Callable[[str, dict[str, Any]], ParamsCheck] | None
) -> ToolSpec:
    try:
        made = msgspec.convert({**{fact: said[fact] for fact in DECLARED if fact in said}, "name": name}, _Said)
        retry = msgspec.convert(said.get("retry", {}), RetryPolicy)
        absent = None if made.absent is None else read_absence(made.absent)
        looked = None if made.undo_check is None else read_undo_check(made.undo_check)
    except (msgspec.ValidationError, ValueError) as error:
        raise JournalUnreadable(
            f"what the trace declares of the tool {name[:80]!r} cannot be read: {error}",
            hint="give the tools with --tools",
        ) from error
    spec = ToolSpec(**{**msgspec.structs.asdict(made), "absent": absent, "undo_check": looked}, retry=retry)
    return spec if check is None else replace(spec, check_params=check(name, spec.input_schema))


class DeclaredTools:
    """The tools of a replay: today's, and for missing ones, the trace's declarations.

    ``check`` makes the check of params from a tool's name and schema; without it any params are accepted. Raises
    ``JournalUnreadable`` for an invalid declaration.
    """

    __slots__ = ("_specs", "_today")

    def __init__(
        self,
        header: Mapping[str, Any],
        today: ToolCatalog | None = None,
        check: Callable[[str, dict[str, Any]], ParamsCheck] | None = None,
    ) -> None:
        self._today = today
        self._specs: dict[str, ToolSpec] = {}
        said = header.get("declared")
        for name, facts in said.items() if isinstance(said, dict) else ():
            if isinstance(facts, dict) and (today is None or today.spec(name) is None):
                self._specs[name] = _declaration(name, facts, check)

    def spec(self, name: str) -> ToolSpec | None:
        """The declaration of a tool; None if neither side has one."""
        found = self._today.spec(name) if self._today is not None else None
        return found or self._specs.get(name)

    def names(self) -> list[str]:
        """All names, today's first."""
        return [*(self._today.names() if self._today is not None else ()), *self._specs]

    def as_declared(self) -> list[str]:
        """The names of those that only the trace declares."""
        return list(self._specs)


class _Said(msgspec.Struct):
    """The types of ``DECLARED``."""

    name: str
    effect: Effect = "write"
    keyed: bool = False
    told_key: bool = False
    key_ttl_s: float | None = None
    undo: str | None = None
    probe: str | None = None
    timeout_s: float = 30.0
    compensates: bool = False
    tolerates_absence: bool = False
    undoes_by_key: bool = False
    remembers: bool = False
    last_good_s: float | None = None
    semantic: Semantic | None = None
    on_doubt: OnDoubt = "ask"
    before: str | None = None
    after: After = "read"
    absent: dict[str, Any] | None = None
    undo_absent: str | None = None
    undo_params: dict[str, Any] | None = None
    undo_each: str | None = None
    undo_then: tuple[dict[str, Any], ...] = ()
    sole_writer: bool = False
    expect: str | dict[str, str] | None = None
    undo_check: dict[str, Any] | None = None
    verify: bool = True
    verify_within_s: float = 0.0
    hold: bool = False
    input_schema: dict[str, Any] = msgspec.field(default_factory=lambda: {"type": "object"})
    output_schema: dict[str, Any] | None = None
    digest: str = ""
