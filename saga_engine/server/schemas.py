"""JSON Schemas of what the API takes and gives."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from saga_engine.operations.params import ANY_OBJECT, COUNT, ID, PLAN, TEXT, made_of
from saga_engine.operations.params import STATUS as OF_STATUS

Schema = Mapping[str, Any]

TRUTH: Final[Schema] = {"type": "boolean"}
STATUS: Final[Schema] = {name: each for name, each in OF_STATUS.items() if name != "description"}


def given(**properties: Any) -> Schema:
    """An object that the API gives: all these fields, and perhaps others."""
    return made_of(properties, list(properties), closed=False)


def listed(items: Schema) -> Schema:
    """A list."""
    return {"type": "array", "items": items}


def ref(name: str) -> Schema:
    """One of the ``COMPONENTS``."""
    return {"$ref": f"#/components/schemas/{name}"}


def told(about: str, schema: Schema | None = None) -> Schema:
    """The value with what it means, for the document and the reference; without a schema it may be anything."""
    return {**(schema or {}), "description": about}


def or_null(schema: Schema) -> Schema:
    """The value may be null."""
    return {"anyOf": [schema, {"type": "null"}]}


STEP_ID: Final[Schema] = {"type": ["string", "integer"], "description": "The id of a step, as in the plan."}
COMPONENTS: Final[Mapping[str, Schema]] = {
    "Problem": made_of(
        {
            "type": TEXT,
            "title": TEXT,
            "status": {"type": "integer"},
            "detail": TEXT,
            "code": TEXT,
            "verdict": {"type": "string", "enum": ["fix", "retry", "resume", "conflict"]},
            "where": TEXT,
            "hint": TEXT,
            "context": ANY_OBJECT,
            "problems": listed(ref("PlanProblem")),
        },
        ["type", "title", "status", "detail", "code"],
        closed=False,
        about="An error (RFC 9457); docs/reference/errors.md lists the codes.",
    ),
    "PlanProblem": given(code=TEXT, path=TEXT, message=TEXT, hint=TEXT),
    "Saga": made_of(
        {
            "saga_id": ID,
            "status": STATUS,
            "goal": TEXT,
            "started_ms": COUNT,
            "ended_ms": or_null(COUNT),
            "steps": told("each step, in the order of the plan", listed(ref("Step"))),
            "questions": told("open questions", listed(ref("OpenQuestion"))),
            "answers": told(
                "who answered earlier ones; not in the output of a command that ran the saga itself",
                listed(ref("Answered")),
            ),
            "counts": told(
                "of the steps that can leave an effect: how many there are, whose effect stands (whatever became of "
                "an undo), and which are in doubt. Every view counts so; reads, undos and `finally` are not counted",
                given(steps=COUNT, in_effect=COUNT, in_doubt=COUNT),
            ),
            "report": told(
                "lists of step ids: `compensated`, `failed`, `unresolved`, `left_in_place`, and if they apply "
                "`semantic`, `skipped`, `continued`, `dropped`; and `clean`",
                ANY_OBJECT,
            ),
            "error": told(
                "why it did not simply complete: `code`, and if known `step_id`, `error_code`, `message`, `suggestion`",
                or_null(ANY_OBJECT),
            ),
        },
        ["saga_id", "status", "goal", "steps", "questions", "report"],
        closed=False,
        about="A saga, as `saga show --json` prints it.",
    ),
    "Step": made_of(
        {
            "step_id": STEP_ID,
            "name": TEXT,
            "tool": TEXT,
            "kind": TEXT,
            "status": TEXT,
            "attempts": COUNT,
            "params": told("those of the call; secrets as their markers"),
            "idempotency_key": or_null(TEXT),
            "output": told("what it returned, or its cut form"),
            "output_ref": told("`digest` (SHA-256 of the JSON) and `bytes` of an output in its cut form", ANY_OBJECT),
            "error": told("null once the call happened", or_null(ANY_OBJECT)),
            "started_ms": or_null(COUNT),
            "ended_ms": or_null(COUNT),
            "took_ms": told("the calls' own time"),
            "compensation": told(
                "null, or the undo with the same fields; of an undo of several calls also `calls`",
                or_null(ANY_OBJECT),
            ),
            "via": told("how the outcome is known, unless the step's own call returned it"),
            "source": told("whose result it has"),
            "age_ms": told("the age of that result"),
            "fallback": told("`number` and `tool` of the fallback that is used"),
            "deferred": told("that it waits until its tool is available again"),
            "compensates": told("the step that it compensates for"),
            "compensated_by_others": told("that other steps compensated for it"),
            "undoes": told("the step that its call took back"),
            "undone_by": told("the step whose call took it back"),
            "handed_to": told("the fork or undo that has its effect"),
            "before": told("what a read showed before the call"),
            "after": told("what a read showed after it"),
            "next_try_ms": told("when it is tried again"),
            "model_asked_ms": told("when a model is asked about it again"),
            "waits": told("what it waits for, and until when"),
            "came": told("the events that came so far"),
            "on_late": told("the tool that a late event would call"),
            "child": told("the child saga that it runs"),
            "verified": told("of an undo: that a look after it saw it done"),
            "traceback": told("where its tool raised"),
        },
        ["step_id", "status"],
        closed=False,
        about="A step of a saga; from `via` on only what applies.",
    ),
    "Answered": given(
        question_id=TEXT,
        step_id=STEP_ID,
        kind=TEXT,
        decision=told("`expired`: nobody answered in time", TEXT),
        by=TEXT,
        note=TEXT,
        at_ms=COUNT,
    ),
    "OpenQuestion": made_of(
        {
            "question_id": TEXT,
            "step_id": STEP_ID,
            "tool": TEXT,
            "direction": TEXT,
            "kind": TEXT,
            "options": told("the decisions that answer it", listed(TEXT)),
            "outlooks": told("of each answer what follows from it, with its `mark`"),
            "asked_ms": COUNT,
            "text": told("what a plan asks", TEXT),
            "to": told("whom it asks", TEXT),
            "params": told("of the call", or_null(ANY_OBJECT)),
            "called_ms": told("when the call was made"),
            "idempotency_key": told("that of the call"),
            "error": or_null(ANY_OBJECT),
            "call": told("of an approval the digest of the call"),
            "rule": told("of an approval the rule that asks"),
            "expires_ms": told("until when an answer counts"),
            "steps": told("of a semantic compensation what it would do"),
            "before": told("of drift the value before the call"),
            "after": told("the value as the call left it"),
            "found": told("the value now"),
            "undo_call": told("which call of an undo of several"),
        },
        ["question_id", "step_id", "kind", "options"],
        closed=False,
        about="An open question of a saga; a field that does not apply is left out.",
    ),
    "SagaHead": given(
        saga_id=ID,
        status=STATUS,
        created_ms=COUNT,
        changed_ms=COUNT,
        owner=or_null(TEXT),
        records=COUNT,
        waiting_messages=COUNT,
        summary=ANY_OBJECT,
    ),
    "SagaPage": given(sagas=listed(ref("SagaHead")), cursor=or_null(TEXT)),
    "Record": made_of(
        {"seq": COUNT, "k": TEXT, "at": COUNT},
        ["seq", "k"],
        closed=False,
        about="A record of a journal (docs/semantics.md).",
    ),
    "History": given(saga_id=ID, records=listed(ref("Record")), next=COUNT, ended=TRUTH),
    "Question": made_of(
        {"saga_id": ID, "question_id": TEXT, "step_id": STEP_ID, "kind": TEXT, "options": listed(TEXT), "asks": TEXT},
        ["saga_id"],
        closed=False,
        about="An open question, with what an operator needs to know; or a saga that cannot be read (`error`).",
    ),
    "QuestionPage": given(questions=listed(ref("Question")), cursor=or_null(TEXT)),
    "Checked": given(valid=TRUTH, problems=listed(ref("PlanProblem"))),
    "Rehearsal": given(clean=TRUTH, summary=ANY_OBJECT, goes_well=ANY_OBJECT, scenarios=listed(ANY_OBJECT)),
    "Planned": made_of({"plan": PLAN}, ["plan"], closed=False),
    "Undo": made_of({"saga_id": ID}, ["saga_id"], closed=False),
    "Fork": made_of({"saga_id": ID}, ["saga_id"], closed=False),
    "EventReceipt": given(event_id=TEXT, disposition=TEXT, repeated=TRUTH, saga_id=TEXT, step=TEXT, late_saga=TEXT),
    "Event": given(
        name=TEXT, key=TEXT, event_id=TEXT, at_ms=COUNT, disposition=TEXT, saga_id=TEXT, step=TEXT, payload={}
    ),
    "Events": given(events=listed(ref("Event"))),
    "TemplateNames": given(templates=listed(given(name=TEXT, versions=listed(COUNT)))),
    "Template": given(name=TEXT, version=COUNT, plan=PLAN, input_schema=or_null(ANY_OBJECT)),
    "Schedule": given(
        name=TEXT,
        template=TEXT,
        cron=TEXT,
        time_zone=TEXT,
        every_s=COUNT,
        input=or_null(ANY_OBJECT),
        tags=listed(TEXT),
        overlap=TEXT,
        catch_up=TEXT,
        pause_after=COUNT,
        paused=TRUTH,
        why=TEXT,
        next_ms=or_null(COUNT),
        recent=listed(TEXT),
        begun=COUNT,
        skipped=COUNT,
    ),
    "Schedules": given(schedules=listed(ref("Schedule"))),
    "Tools": given(tools=listed(ANY_OBJECT)),
    "Overview": given(
        now_ms=COUNT,
        sagas=ANY_OBJECT,
        queue=ANY_OBJECT,
        workers=listed(ANY_OBJECT),
        owners=ANY_OBJECT,
        rules={"type": "object", "additionalProperties": {"type": "object", "additionalProperties": TEXT}},
        differing=listed(
            given(
                part={"type": "string", "enum": ["policy", "limits", "secrets", "quota"]},
                groups=listed(given(digest=TEXT, processes=listed(given(owner=TEXT)))),
            )
        ),
        stops=listed({}),
    ),
    "Stop": given(scope=TEXT, by=TEXT, note=TEXT, at_ms=COUNT),
    "Stops": given(stops=listed(ref("Stop"))),
    "Hold": given(
        resource=TEXT,
        saga_id=ID,
        alone=TRUTH,
        since_ms=COUNT,
        by=TEXT,
        tool=TEXT,
        step_id=TEXT,
        max_s=or_null({"type": "number"}),
        overdue=TRUTH,
        waiting=listed(given(saga_id=TEXT, since_ms=COUNT)),
    ),
    "Holds": given(holds=listed(ref("Hold"))),
    "Job": given(
        id=TEXT,
        status={"type": "string", "enum": ["running", "ended"]},
        action=TEXT,
        by=TEXT,
        sagas=COUNT,
        worked=COUNT,
        counts={"type": "object", "additionalProperties": COUNT},
        successes=listed(ID),
        failures=listed(given(saga_id=TEXT, code=TEXT, message=TEXT)),
        decision=TEXT,
        kind=TEXT,
        note=TEXT,
        twice=TRUTH,
        created_ms=COUNT,
        ended_ms=COUNT,
    ),
    "Jobs": given(jobs=listed(ref("Job"))),
    "Started": given(saga_id=ID),
    "StartedAll": given(sagas=listed(ID)),
    "EventTaken": given(event_id=TEXT, repeated=TRUTH),
    "Callback": given(url=TEXT, expires_ms=COUNT),
    "CalledBack": given(saga_id=TEXT, step=TEXT, late_saga=TEXT),
    "Erased": given(
        saga_id=TEXT,
        erased=given(by=TEXT, why=TEXT, at_ms={"type": "integer"}),
        sagas=told("All that are erased now.", listed(TEXT)),
        unreached=told("What still holds something of it.", listed(TEXT)),
    ),
    "JobPreview": given(
        verb=TEXT,
        dry_run=TRUTH,
        sagas=listed(
            given(
                saga_id=TEXT,
                status=TEXT,
                refused=or_null(ANY_OBJECT),
                undoes=COUNT,
                settles=COUNT,
                remains=COUNT,
                answers=listed(given(step_id=STEP_ID, kind=TEXT, then=TEXT)),
            )
        ),
        taken=COUNT,
        refused=COUNT,
        more=TRUTH,
    ),
}
