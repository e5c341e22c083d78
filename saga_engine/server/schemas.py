"""JSON Schemas of what the API takes and gives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import NoneType
from typing import Any, Final

import msgspec

from saga_engine.core.views import Entry, HeadView, SagaView
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
#: The structs of views that have another name in the document.
_NAMES: Final = {
    "SagaView": "Saga",
    "StepResult": "Step",
    "UndoResult": "StepUndo",
    "UndoCallResult": "UndoCall",
    "ErrorInfo": "CallError",
    "QuestionView": "OpenQuestion",
    "Answer": "Answered",
    "ReportView": "Report",
    "HeadView": "SagaHead",
    "Entry": "Record",
}


def _described(types: Sequence[type]) -> dict[str, Schema]:
    """The JSON Schemas of structs; what is given may get new fields, and a default is left out where it holds."""
    _, found = msgspec.json.schema_components(types, ref_template="#/components/schemas/{name}")
    return {_NAMES.get(name, name): _plain(schema) for name, schema in found.items()}


def _plain(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_plain(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    made = {name: _plain(value) for name, value in schema.items() if name not in ("title", "default")}
    if isinstance(schema.get("$ref"), str):
        of = schema["$ref"].rpartition("/")[2]
        made["$ref"] = f"#/components/schemas/{_NAMES.get(of, of)}"
    if made.get("type") == "object" and not {"properties", "additionalProperties"} & made.keys():
        made["additionalProperties"] = True
    if "enum" in made and all(isinstance(each, str) for each in made["enum"]):
        made["type"] = "string"
    if isinstance(schema.get("default", 0), NoneType) and "anyOf" in made:  # it is never null: it is left out
        left = [each for each in made.pop("anyOf") if each != {"type": "null"}]
        made = {**(left[0] if len(left) == 1 else {"anyOf": left}), **made}
    if isinstance(made.get("description"), str):
        made["description"] = made["description"].partition("\n\n")[0].replace("``", "`")
    return made


_VIEWS: Final = {
    **(_views := _described((SagaView, HeadView, Entry))),
    # A token that may not read is given these alone, and of the report nothing.
    "Saga": {**_views["Saga"], "required": ["saga_id", "status", "goal", "steps", "questions", "report"]},
    "Report": {name: value for name, value in _views["Report"].items() if name != "required"},
}

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
    **_VIEWS,
    "SagaPage": given(sagas=listed(ref("SagaHead")), cursor=or_null(TEXT)),
    "History": given(saga_id=ID, records=listed(ref("Record")), next=COUNT, ended=TRUTH),
    "Question": made_of(
        {
            "saga_id": ID,
            "status": STATUS,
            "goal": TEXT,
            "session": TRUTH,
            **_VIEWS["OpenQuestion"]["properties"],
            "step_name": TEXT,
            "asks": TEXT,
            "standing": listed(ANY_OBJECT),
            "waiting_messages": COUNT,
        },
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
