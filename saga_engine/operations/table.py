"""The operations of the engine: for each what a caller needs, what it takes, does and gives, and how it refuses.

All doors are made from this table. ``server`` gives an operation a route, ``gateway`` some of them a tool, ``cli`` a
command, and ``Coordinator`` has a method, which is held against it. The name is that of the HTTP operation. A door adds
its path or name, its texts, and how it shows the answer; ``tests/doors/test_operations.py`` says why an operation, or a
param of one, is at no other door.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple

from saga_engine.operations import params as p
from saga_engine.operations.params import Schema, made_of, told
from saga_engine.plan.limits import MAX_EVENTS, MAX_GOAL_CHARS

#: What every operation can raise: the journals cannot be reached or written, or this process ends.
EVERY: Final = (
    *("store-unavailable", "store-refused", "durability-insufficient", "runtime-unavailable", "lease-lost"),
    *("interrupted", "journal-unreadable"),
)
#: ``write``: asked twice, it happens twice, unless a key or an id says that it is the same. ``settles``: asked again,
#: it changes nothing more.
Effect = Literal["read", "write", "settles"]


class Operation(NamedTuple):
    """What a caller needs for it, and what it does. ``scope`` empty: what it gets is signed.

    ``params``: what it takes, as JSON Schema, and of these the ``required`` ones; a door may describe one in its own
    words, and takes a schema's ``default`` as its own. ``rules``: what holds between them, as JSON Schema.
    ``result``, ``preview``: what it gives, and with ``dry_run``: names of schemas; empty: nothing, or a stream.
    ``errors``: the codes of its own errors, beside ``EVERY``.
    """

    scope: Literal["", "read", "submit", "resolve", "admin"]
    effect: Effect
    params: Mapping[str, Schema] = {}
    required: Sequence[str] = ()
    rules: Mapping[str, Any] = {}
    result: str = ""
    preview: str = ""
    errors: Sequence[str] = ()


_OF: Final[Mapping[str, Schema]] = {"saga_id": p.SAGA}
_ACT: Final[Mapping[str, Schema]] = {**_OF, "wait": p.WAIT}
#: Of a saga that is read: it is not there, its key was destroyed, or nobody here has it.
_UNREAD: Final = ("saga-not-found", "saga-erased", "key-missing", "seal-broken")
_CHECK: Final[Mapping[str, Schema]] = {"plan": p.PLAN, "input": p.INPUT}
_SCOPE: Final[Mapping[str, Schema]] = {"tool": p.TOOL, "saga_id": p.OF_SAGA}
_ONE_AT_MOST: Final[Schema] = {"not": {"required": ["tool", "saga_id"]}}
_SCHEDULE: Final[Mapping[str, Schema]] = {"name": p.SCHEDULE}
_TEMPLATE: Final[Mapping[str, Schema]] = {
    "reference": told(p.REFERENCE, "A template: its latest version, or the one after the @.")
}
_OF_SCHEDULE: Final = ("schedule-not-found", "setting-invalid")
_OF_TEMPLATE: Final = ("template-not-found", "setting-invalid")

_SAGAS: Final[Mapping[str, Operation]] = {
    "submitSaga": Operation(
        "submit",
        "write",
        {
            **_CHECK,
            "template": p.TEMPLATE,
            "saga_id": told(p.ID, "The saga's id. Default: the plan's task_id, or a new one."),
            "tags": p.TAGS,
            "wait": p.WAIT,
        },
        rules={"oneOf": [{"required": ["plan"]}, {"required": ["template"]}]},
        result="Saga",
        errors=(
            "plan-invalid",
            "value-not-json",
            "template-not-found",
            "saga-exists",
            "saga-erased",
            "queue-full",
            "setting-invalid",
            "tool-missing",
            "secret-missing",
            "extension-missing",
        ),
    ),
    "searchSagas": Operation(
        "read",
        "read",
        {
            "status": p.STATUS,
            "name": p.OF_PLAN,
            "tag": p.WITH_TAG,
            "tool": p.WITH_TOOL,
            "asks": p.ASKS,
            "since_ms": p.SINCE_MS,
            "limit": p.LIMIT,
            "cursor": p.CURSOR,
        },
        result="SagaPage",
        errors=("setting-invalid",),
    ),
    "showSaga": Operation(
        "read",
        "read",
        {**_ACT, "full": p.FULL, "step": told(p.TEXT, "The output of this step alone.")},
        ("saga_id",),
        result="Saga",
        errors=_UNREAD,
    ),
    "showHistory": Operation(
        "read",
        "read",
        {**_OF, "after": {**p.AFTER, "default": -1}, "limit": p.LIMIT, "full": p.FULL},
        ("saga_id",),
        result="History",
        errors=_UNREAD,
    ),
    "streamSaga": Operation(
        "read",
        "read",
        {**_OF, "after": p.AFTER, "stops": told(p.TRUTH, "The operators' stops that may hold the saga as well.")},
        ("saga_id",),
        errors=_UNREAD,
    ),
    "cancelSaga": Operation(
        "resolve",
        "settles",
        {**_ACT, "note": p.NOTE},
        ("saga_id",),
        result="Saga",
        errors=(*_UNREAD, "cancel-refused"),
    ),
    "resolveSaga": Operation(
        "resolve",
        "settles",
        {
            **_ACT,
            "step_id": told(p.STEP, "The id of the step that the question is about."),
            "decision": p.DECISION,
            "output": {"description": "With 'happened': what the call returned. With 'answer': the answer."},
            "note": p.NOTE,
            "expect": p.EXPECT,
        },
        ("saga_id", "step_id", "decision"),
        result="Saga",
        errors=(*_UNREAD, "decision-refused", "step-unknown"),
    ),
    "amendSaga": Operation(
        "submit",
        "write",
        {**_ACT, "steps": p.STEPS, "note": p.NOTE},
        ("saga_id", "steps"),
        result="Saga",
        errors=(*_UNREAD, "amend-refused", "plan-invalid", "tool-missing"),
    ),
    "undoSaga": Operation(
        "resolve",
        "settles",
        {
            **_ACT,
            "accept": told(p.TRUTH, "Undo it although steps without an undo remain; the report names them."),
            "dry_run": told(p.TRUTH, "Only show what would be undone and what would remain."),
            "note": p.NOTE,
        },
        ("saga_id",),
        result="Saga",
        preview="Undo",
        errors=(*_UNREAD, "undo-refused", "tool-missing"),
    ),
    "forkSaga": Operation(
        "submit",
        "write",
        {
            **_ACT,
            "plan": told(p.PLAN, "The corrected plan. Default: the plan of the saga."),
            "run_from": told(
                p.STEP, "Run this step (or make this call of a session) anew, and all that depends on it."
            ),
            "new_id": told(p.ID, "The new saga's id. Default: the same one for the same fork."),
            "dry_run": told(p.TRUTH, "Only show what would be reused and what would run."),
        },
        ("saga_id",),
        result="Saga",
        preview="Fork",
        errors=(*_UNREAD, "fork-refused", "plan-invalid", "saga-exists", "tool-missing"),
    ),
    "resumeSaga": Operation(
        "resolve", "settles", _ACT, ("saga_id",), result="Saga", errors=(*_UNREAD, "resume-refused", "lease-held")
    ),
    "eraseSaga": Operation(
        "admin",
        "settles",
        {
            **_OF,
            "why": told(p.TEXT, "The reason; it stays readable."),
            "family": told(p.TRUTH, "Erase the sagas that hold copies as well."),
        },
        ("saga_id", "why"),
        result="Erased",
        errors=("saga-not-found", "erase-refused"),
    ),
    "checkPlan": Operation("read", "read", _CHECK, ("plan",), result="Checked"),
    "simulatePlan": Operation(
        "read", "read", _CHECK, ("plan",), result="Rehearsal", errors=("plan-invalid", "value-not-json")
    ),
    "makePlan": Operation(
        "submit",
        "read",
        {
            "goal": {
                **p.TEXT,
                "minLength": 1,
                "maxLength": MAX_GOAL_CHARS,
                "description": "What is wanted, in a sentence.",
            },
            "input": p.INPUT,
            "answers": {
                "type": "object",
                "additionalProperties": told(p.TEXT, "The answer to a question of the model, by name."),
            },
            "revise": told(p.PLAN, "A plan of which the goal is a change; shows the difference."),
        },
        ("goal",),
        result="Planned",
        errors=(
            *("planner-unavailable", "planner-failed", "planner-asks", "planner-needs", "goal-impossible"),
            *("model-unreachable", "plan-invalid", "setting-invalid"),
        ),
    ),
}

_EVENTS: Final[Mapping[str, Operation]] = {
    "sendEvent": Operation(
        "submit",
        "write",
        {
            "name": told(p.EVENT, "The name of the event, as in the plan's 'wait' step."),
            "key": told(p.KEY, "Its key. Default of a 'wait' step: the saga's id."),
            "payload": {"description": "The payload (JSON)."},
            "event_id": told(p.TEXT, "The sender's id: an event that is sent again under it counts once."),
        },
        ("name", "key"),
        result="EventReceipt",
        errors=("event-refused",),
    ),
    "listEvents": Operation(
        "read",
        "read",
        {
            "name": told(p.TEXT, "Only events of this name."),
            "key": told(p.TEXT, "Only those with this key."),
            "limit": told(p.LIMIT, "How many at most."),
        },
        result="Events",
        errors=("event-refused",),
    ),
    "receiveEvent": Operation(
        "",
        "write",
        {"source": {"type": "string", "pattern": "^[A-Za-z0-9][A-Za-z0-9_-]{0,31}$"}},
        ("source",),
        result="EventTaken",
        errors=("event-refused", "signature-invalid"),
    ),
    "makeCallback": Operation(
        "submit",
        "write",
        {
            **_OF,
            "step_id": told(p.STEP, "The id of the step that waits."),
            "entry": {
                "type": "integer",
                "minimum": 0,
                "maximum": MAX_EVENTS - 1,
                "description": "Of a step that waits for several events: which of them, from 0 in the plan's order.",
            },
            "expires_s": {"type": "number", "exclusiveMinimum": 0, "maximum": 31 * 24 * 3600},
        },
        ("saga_id", "step_id"),
        result="Callback",
        errors=(*_UNREAD, "event-refused"),
    ),
    "callBack": Operation(
        "",
        "write",
        {"token": {"type": "string", "pattern": "^[A-Za-z0-9._-]+$"}},
        ("token",),
        result="CalledBack",
        errors=("event-refused", "signature-invalid", "step-unknown"),
    ),
}

_OPERATING: Final[Mapping[str, Operation]] = {
    "createJob": Operation(
        "resolve",
        "write",
        {
            "action": {"type": "string", "enum": ["resume", "cancel", "resolve"]},
            "sagas": p.SAGAS,
            "where": made_of(
                {
                    "status": p.STATUS,
                    "name": p.OF_PLAN,
                    "tags": {**p.TAGS, "items": told(p.TAG, "Only sagas with this tag.")},
                    "tool": p.WITH_TOOL,
                    "asks": p.ASKS,
                    "since_ms": p.SINCE_MS,
                }
            ),
            "decision": told(p.TEXT, "The answer to each question."),
            "kind": told(p.TEXT, "Only questions of this kind, as in-doubt."),
            "note": p.NOTE,
            "twice": told(p.TRUTH, "'retry' also a call that may happen twice."),
            "dry_run": told(p.TRUTH, "Show what would happen to each saga; nothing changes."),
        },
        ("action",),
        {
            "oneOf": [{"required": ["sagas"]}, {"required": ["where"]}],
            "if": {"properties": {"action": {"const": "resolve"}}},
            "then": {"properties": {"decision": {"minLength": 1}}, "required": ["decision"]},
            "else": {"properties": {"decision": {"maxLength": 0}}},
        },
        result="Job",
        preview="JobPreview",
        errors=("setting-invalid",),
    ),
    "listJobs": Operation("read", "read", result="Jobs"),
    "showJob": Operation(
        "read",
        "read",
        {"job_id": {"type": "string", "pattern": "^j[0-9a-f]{15}$"}},
        ("job_id",),
        result="Job",
        errors=("job-not-found",),
    ),
    "listQuestions": Operation(
        "read",
        "read",
        {"limit": {**p.LIMIT, "maximum": 200}, "cursor": p.CURSOR, "to": p.TO},
        result="QuestionPage",
        errors=("setting-invalid",),
    ),
    "showOverview": Operation("read", "read", result="Overview"),
    "streamOverview": Operation("read", "read"),
    "listTools": Operation("read", "read", result="Tools"),
    "listStops": Operation("read", "read", result="Stops"),
    "listHolds": Operation("read", "read", result="Holds"),
    "releaseHold": Operation(
        "admin",
        "settles",
        {"resource": {"type": "string", "minLength": 1, "maxLength": 1000}, "saga_id": p.ID},
        rules={"oneOf": [{"required": ["resource"]}, {"required": ["saga_id"]}]},
        result="Holds",
        errors=("setting-invalid",),
    ),
    "stopCalls": Operation(
        "admin",
        "settles",
        {**_SCOPE, "note": p.NOTE},
        rules=_ONE_AT_MOST,
        result="Stops",
        errors=("setting-invalid",),
    ),
    "liftStop": Operation("admin", "settles", _SCOPE, rules=_ONE_AT_MOST, result="Stops", errors=("setting-invalid",)),
}

_STORED: Final[Mapping[str, Operation]] = {
    "listSchedules": Operation("read", "read", result="Schedules"),
    "showSchedule": Operation("read", "read", _SCHEDULE, ("name",), result="Schedule", errors=_OF_SCHEDULE),
    "putSchedule": Operation(
        "admin",
        "settles",
        {
            **_SCHEDULE,
            "template": told(p.REFERENCE, "What it starts: NAME or NAME@VERSION."),
            "cron": {**p.TEXT, "default": "", "description": "Minute, hour, day of month, month, day of week."},
            "time_zone": {**p.TEXT, "default": "UTC", "description": "The zone of `cron`."},
            "every_s": {
                **p.COUNT,
                "maximum": 10**9,
                "default": 0,
                "description": "Instead of `cron`, an interval in seconds.",
            },
            "input": p.INPUT,
            "tags": {**p.TAGS, "items": told(p.TAG, "A word by which its sagas are found.")},
            "overlap": {
                "type": "string",
                "enum": ["skip", "buffer-one", "allow", "cancel"],
                "default": "skip",
                "description": "While its last saga runs: skip, buffer-one, allow or cancel.",
            },
            "catch_up": {
                "type": "string",
                "enum": ["one", "none", "all"],
                "default": "one",
                "description": "Of the ticks that no worker fired: one, all or none.",
            },
            "pause_after": {
                **p.COUNT,
                "maximum": 1000,
                "default": 3,
                "description": "Pause after N escalations in a row; 0: never.",
            },
        },
        ("name", "template"),
        {
            "oneOf": [
                {"required": ["cron"], "properties": {"cron": {"minLength": 1}, "every_s": {"maximum": 0}}},
                {"required": ["every_s"], "properties": {"cron": {"maxLength": 0}, "every_s": {"minimum": 1}}},
            ]
        },
        result="Schedule",
        errors=("template-not-found", "setting-invalid", "plan-invalid"),
    ),
    "deleteSchedule": Operation("admin", "settles", _SCHEDULE, ("name",), errors=_OF_SCHEDULE),
    "pauseSchedule": Operation(
        "admin",
        "settles",
        {**_SCHEDULE, "note": told(p.NOTE, "Why; 'show' repeats it.")},
        ("name",),
        result="Schedule",
        errors=_OF_SCHEDULE,
    ),
    "resumeSchedule": Operation("admin", "settles", _SCHEDULE, ("name",), result="Schedule", errors=_OF_SCHEDULE),
    "triggerSchedule": Operation(
        *("submit", "write", _SCHEDULE, ("name",)),
        result="Started",
        errors=(*_OF_SCHEDULE, "template-not-found", "plan-invalid", "queue-full"),
    ),
    "backfillSchedule": Operation(
        "admin",
        "write",
        {**_SCHEDULE, "since": told(p.MOMENT, "The first moment."), "until": told(p.MOMENT, "The last moment.")},
        ("name", "since", "until"),
        result="StartedAll",
        errors=(*_OF_SCHEDULE, "template-not-found", "plan-invalid", "queue-full"),
    ),
    "listTemplates": Operation("read", "read", result="TemplateNames"),
    "showTemplate": Operation("read", "read", _TEMPLATE, ("reference",), result="Template", errors=_OF_TEMPLATE),
    "putTemplate": Operation(
        "admin",
        "settles",
        {
            "reference": told(p.REFERENCE, "The template's name."),
            "plan": p.PLAN,
            "input_schema": told(p.ANY_OBJECT, "The JSON Schema of the input."),
        },
        ("reference", "plan"),
        result="Template",
        errors=("setting-invalid", "plan-invalid"),
    ),
    "deleteTemplate": Operation("admin", "settles", _TEMPLATE, ("reference",), errors=_OF_TEMPLATE),
}

OPERATIONS: Final[Mapping[str, Operation]] = {**_SAGAS, **_EVENTS, **_OPERATING, **_STORED}
