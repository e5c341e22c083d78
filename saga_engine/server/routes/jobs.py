"""Jobs: actions on many sagas."""

from __future__ import annotations

from typing import Final

from saga_engine.server.jobs import Jobs
from saga_engine.server.keys import Answer
from saga_engine.server.operation import Incoming, Operation


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
        answers={202: "The job; its report is at `Location`.", 200: "The preview."},
    ),
    Operation(
        name="listJobs",
        method="GET",
        path="/v1/jobs",
        summary="List jobs of the last week",
        handle=list_jobs,
        answers={200: "The last ones first."},
    ),
    Operation(
        name="showJob",
        method="GET",
        path="/v1/jobs/{job_id}",
        summary="Show a job's report",
        handle=show,
        answers={200: "The report."},
    ),
]
