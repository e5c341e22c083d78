"""The payloads that pass through Temporal: inputs of workflows, orders to activities, and answers. Plain JSON.

Names and fields are only ever added: next year's workers replay today's histories.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from saga_engine.core.codec import decode, inflate
from saga_engine.core.effects import Ask, Blocked, Done, ErrorInfo, NotDone, Outcome, Unknown
from saga_engine.core.fold import started_of as first_of
from saga_engine.core.interpret import Advice
from saga_engine.core.records import AnyRecord, SagaStarted, Written
from saga_engine.core.submission import Submission
from saga_engine.errors import JournalUnreadable
from saga_engine.ports import Call

#: The fields of a call that stay where it is made: functions.
_LOCAL: Final = frozenset({"permit", "waits", "standing"})
#: The names by which Temporal knows the workflow and its activities.
WORKFLOW: Final = "Saga"
CALL: Final = "saga_call"
ALERT: Final = "saga_alert"
ASK: Final = "saga_ask"
CAPABILITIES: Final = "saga_capabilities"
LEARN: Final = "saga_learn"
#: The heartbeat details of a call while a guard keeps it waiting: nothing has been called.
WAITS: Final = "waits"
#: The type of an activity's failure that means that the call was never begun.
NOT_CALLED: Final = "saga-not-called"
#: The field of a workflow's memo: ``digest`` (of plan and input) and ``status``.
MEMO: Final = "saga"
#: The maximum part of a journal, in bytes, in the answer to one query.
PAGE_BYTES: Final = 1 << 20
#: Payloads that are not offloaded must stay below Temporal's limit of 2 MB, with space for their wrapping.
MOST_INLINE_BYTES: Final = 1_500_000


class Begin(msgspec.Struct, frozen=True, omit_defaults=True):
    """The input of a workflow: everything that its decisions may depend on, beside its history.

    ``started`` is the first record; the workflow sets its ``at`` when it begins. ``declared`` are the declarations of
    the tools that the plan may call, from the submission, and ``fresh`` those that a worker has since reported as
    changed. ``lease_s``: how long a silent worker keeps a call, in seconds. ``events``: after this number of events in
    its history the workflow is continued in another run (0: when Temporal suggests it). ``offloads``: large payloads
    are stored beside Temporal. A continued run carries ``journal`` and ``values`` (both packed), and the number of
    earlier ``runs``.
    """

    started: dict[str, Any]
    declared: dict[str, Any] = {}
    fresh: dict[str, Any] = {}
    lease_s: float = 15.0
    events: int = 0
    offloads: bool = False
    journal: str = ""
    values: dict[str, str] = {}
    runs: int = 0


class Order(msgspec.Struct, frozen=True, omit_defaults=True):
    """One call to make.

    ``way`` is ``call``, ``probe``, ``read`` (after an undo), or ``cached`` (the last good result, up to ``max_age_s``
    old).

    ``params`` may hold marks for secrets, made with ``nonce``, which occurs nowhere else in them. ``digest`` is that of
    the declaration that the decision was based on. ``step_id`` is the step's id in the plan, for the log. ``private``:
    the saga contains a sensitive value. The worker knows the params of this call only, so its log gets no message of an
    error.
    """

    way: str
    tool: str
    params: dict[str, Any]
    call: dict[str, Any]
    digest: str = ""
    max_age_s: float = 0.0
    nonce: str = ""
    secrets: list[str] = []
    step_id: int | str = ""
    private: bool = False


def read_begin(body: Mapping[str, Any]) -> Begin:
    """The input of a workflow. Raises ``JournalUnreadable``."""
    try:
        return msgspec.convert(body, Begin)
    except msgspec.ValidationError as error:
        raise JournalUnreadable(
            f"the workflow's input is none of a saga: {error}", hint="a newer engine started it"
        ) from error


def first_body(submission: Submission) -> dict[str, Any]:
    """The first record, as JSON and without its time."""
    body: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(submission.started(0)))
    return body


def started_of(begin: Begin, at_ms: int) -> SagaStarted:
    """The first record, of a workflow that begins at ``at_ms`` (Unix ms). Raises ``JournalUnreadable``."""
    return first_of([decode(msgspec.json.encode({**begin.started, "at": at_ms}))])


# --- bytes -----------------------------------------------------------------------------------------------------------


def pack(data: bytes) -> str:
    """Bytes as a short text."""
    return base64.b64encode(zlib.compress(data)).decode()


def unpack(text: str) -> bytes:
    """The bytes of ``pack``."""
    return zlib.decompress(base64.b64decode(text))


def whole_records(journal: Sequence[bytes], values: Mapping[str, bytes]) -> list[AnyRecord]:
    """Records with their large values restored."""
    return [inflate(decode(data), values) for data in journal]


def pack_journal(records: Sequence[bytes]) -> str:
    """A journal as one text."""
    return pack(b"\n".join(records))  # one line of JSON each


def unpack_journal(text: str) -> list[bytes]:
    """The records of ``pack_journal``."""
    return unpack(text).split(b"\n")


# --- calls -----------------------------------------------------------------------------------------------------------


def call_fields(call: Call) -> dict[str, Any]:
    """A call as plain JSON; fields with their defaults are omitted."""
    usual = Call._field_defaults
    given = call._replace(budget=None)._asdict()
    budget = None if call.budget is None else call.budget()
    found = {
        name: value
        for name, value in given.items()
        if name not in _LOCAL and (name not in usual or value != usual[name])
    }
    return found if budget is None else {**found, "budget": dict(budget)}  # what it is now: the worker has no state


def read_call(fields: Mapping[str, Any]) -> Call:
    """The call; the worker that makes it sets its ``permit``."""
    known = {name: value for name, value in fields.items() if name in Call._fields and name not in _LOCAL}
    for name in ("resources", "undoes"):
        if known.get(name) is not None:
            known[name] = tuple(known[name])
    if (budget := known.get("budget")) is not None:
        known["budget"] = lambda: budget
    return Call(**known)


# --- outcomes --------------------------------------------------------------------------------------------------------

_KINDS: Final[dict[str, type[Outcome]]] = {
    "done": Done,
    "not-done": NotDone,
    "unknown": Unknown,
    "blocked": Blocked,
    "ask": Ask,
}
_NAMES: Final = {kind: name for name, kind in _KINDS.items()}


def outcome_body(outcome: Outcome) -> dict[str, Any]:
    """An outcome as plain JSON."""
    fields = {name: value for name, value in outcome._asdict().items() if name != "error"}
    if not isinstance(outcome, Done):
        fields["error"] = msgspec.to_builtins(outcome.error)
    return {"is": _NAMES[type(outcome)], **fields}


def read_outcome(body: Mapping[str, Any]) -> Outcome | None:
    """The outcome; None if the answer is not one."""
    kind = _KINDS.get(str(body.get("is")))
    if kind is None:
        return None
    usual = kind._field_defaults  # (a record omits a field that *is* its default; a text from JSON is another object)
    fields = {name: value for name, value in body.items() if name in kind._fields}
    fields = {name: value for name, value in fields.items() if name not in usual or value != usual[name]}
    if "error" in fields:
        fields["error"] = read_error(fields["error"])
    return kind(**fields)


def read_error(body: Any) -> ErrorInfo:
    """An error that an activity reports."""
    return msgspec.convert(body, ErrorInfo)


def advice_body(advice: Advice | ErrorInfo, declared: Mapping[str, Any]) -> dict[str, Any]:
    """A model's answer, and the declarations of its steps' tools."""
    if isinstance(advice, ErrorInfo):
        return {"failed": msgspec.to_builtins(advice)}
    return {
        "steps": [dict(step) for step in advice.steps],
        "written": None if advice.written is None else msgspec.to_builtins(advice.written),
        "error": None if advice.error is None else msgspec.to_builtins(advice.error),
        "declared": dict(declared),
        "dropped": dict(advice.dropped),
    }


def read_advice(body: Mapping[str, Any]) -> Advice | ErrorInfo:
    """A model's answer."""
    if "failed" in body:
        return read_error(body["failed"])
    written = body.get("written")
    error = body.get("error")
    return Advice(
        body["steps"],
        None if written is None else msgspec.convert(written, Written),
        None if error is None else read_error(error),
        body.get("dropped", {}),
    )
