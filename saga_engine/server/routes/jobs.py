"""Jobs: actions on many sagas."""

from __future__ import annotations

from typing import Final

from saga_engine.api.operations import NOTE, STATUS
from saga_engine.server.jobs import MAX_SAGAS, Jobs
from saga_engine.server.keys import Answer
from saga_engine.server.operation import Incoming, Operation
from saga_engine.server.schemas import (
    ANY_OBJECT,
    COUNT,
    ID,
    STEP_ID,
    TAGS,
    TEXT,
    TRUTH,
    given,
    is_a,
    listed,
    made_of,
    or_null,
)


def _jobs(incoming: Incoming) -> Jobs:
    found: Jobs = incoming.request.app.state.jobs
    return found


async def create(incoming: Incoming) -> Answer:
    """Begin a job, or preview it."""
    if incoming.body.get("dry_run"):
        incoming.identity.require("read")
        return Answer((await _jobs(incoming).preview(incoming.identity, incoming.body)).to_dict())
    job = await _jobs(incoming).create(incoming.identity, incoming.body, incoming.key.id)
    return Answer(job.shown(), 202, {"Location": f"/v1/jobs/{job.id}"})


async def show(incoming: Incoming) -> Answer:
    """The report of a job."""
    return Answer((await _jobs(incoming).get(incoming.identity, incoming.path("job_id"))).shown())


async def list_jobs(incoming: Incoming) -> Answer:
    """All jobs."""
    return Answer({"jobs": [job.shown() for job in await _jobs(incoming).list(incoming.identity)]})


_PREVIEW: Final = made_of(
    {
        "verb": TEXT,
        "dry_run": TRUTH,
        "sagas": listed(
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
        "taken": COUNT,
        "refused": COUNT,
        "more": TRUTH,
    },
    ["verb", "dry_run", "sagas", "taken", "refused", "more"],
    closed=False,
)
OPERATIONS: Final = [
    Operation(
        name="createJob",
        method="POST",
        path="/v1/jobs",
        summary="Resume, cancel or resolve many sagas",
        about=(
            "The sagas are those in `sagas`, or those that fit `where`. `resolve` gives the `decision` to each open "
            "question that has it as an option, of one `kind` if that is given. A call in doubt whose tool honours no "
            "key is repeated (`retry`) only with `twice`: it may happen twice. With `dry_run` nothing is done: it "
            "says what would happen to each of the first 1000, or why it would be refused; a job for the `sagas` of "
            "this answer acts on just these."
        ),
        handle=create,
        body=made_of(
            {
                "action": {"type": "string", "enum": ["resume", "cancel", "resolve"]},
                "sagas": {"type": "array", "items": ID, "minItems": 1, "maxItems": MAX_SAGAS},
                "where": made_of(
                    {"status": STATUS, "name": TEXT, "tags": TAGS, "tool": TEXT, "asks": TRUTH, "since_ms": COUNT}
                ),
                "decision": TEXT,
                "kind": TEXT,
                "note": NOTE,
                "twice": TRUTH,
                "dry_run": TRUTH,
            },
            ["action"],
        ),
        rules={
            "oneOf": [{"required": ["sagas"]}, {"required": ["where"]}],
            "if": {"properties": {"action": {"const": "resolve"}}},
            "then": {"properties": {"decision": {"minLength": 1}}, "required": ["decision"]},
            "else": {"properties": {"decision": {"maxLength": 0}}},
        },
        answers={202: is_a("Job", "The job; its report is at `Location`."), 200: ("The preview.", _PREVIEW)},
    ),
    Operation(
        name="listJobs",
        method="GET",
        path="/v1/jobs",
        summary="List jobs of the last week",
        handle=list_jobs,
        answers={200: is_a("Jobs", "The last ones first.")},
    ),
    Operation(
        name="showJob",
        method="GET",
        path="/v1/jobs/{job_id}",
        summary="Show a job's report",
        handle=show,
        answers={200: is_a("Job", "The report.")},
        refusals=(404,),
    ),
]
