"""Sagas: submit, find, show, follow."""

from __future__ import annotations

from typing import Final

from starlette.responses import Response

from saga_engine.core.states import SAGA_FINAL
from saga_engine.execution.result import shown
from saga_engine.server import acts
from saga_engine.server.keys import Answer
from saga_engine.server.operation import Incoming, Operation
from saga_engine.server.streams import overview_stream, saga_stream


async def submit(incoming: Incoming) -> Answer:
    """Submit a plan or a template."""
    key = incoming.request.headers.get("idempotency-key")
    found, _ = await acts.submit(incoming.desk, incoming.identity, incoming.body, key)
    found = await acts.settled(incoming.desk, incoming.identity, found, incoming.wait_s)
    return Answer(await shown(found), 202, {"Location": f"/v1/sagas/{found.saga_id}"}, found.saga_id)


async def search(incoming: Incoming) -> Answer:
    """A page of sagas."""
    query = incoming.query
    page = await incoming.engine.search(
        status=query.get("status"),
        name=query.get("name"),
        tags=query.get("tag", ()),
        tool=query.get("tool"),
        asks=query.get("asks", False),
        since_ms=query.get("since_ms", 0),
        limit=query.get("limit", 100),
        cursor=query.get("cursor"),
    )
    return Answer({"sagas": [head.view().plain() for head in page.sagas], "cursor": page.cursor})


async def show(incoming: Incoming) -> Answer:
    """A saga as it is, or once it has ended or needs an operator."""
    full = incoming.query.get("full", False)
    found = await incoming.engine.show(incoming.saga_id, full=full)
    if incoming.wait_s:
        found = await acts.settled(incoming.desk, incoming.identity, found, incoming.wait_s)
        found = await incoming.engine.show(found.saga_id, full=True) if full else found
    return Answer(await shown(found, full=full))


async def history(incoming: Incoming) -> Answer:
    """Records of the journal."""
    engine, saga_id = incoming.engine, incoming.saga_id
    after, limit = incoming.query.get("after", -1), incoming.query.get("limit", 100)
    records = await engine.history(saga_id, full=incoming.query.get("full", False))
    page = records[after + 1 : after + 1 + limit]
    ended = (await engine.store.head(saga_id)).status in SAGA_FINAL
    following = page[-1]["seq"] if page else max(after, 0)
    return Answer(
        {"saga_id": saga_id, "records": page, "next": following, "ended": ended and after + 1 + limit >= len(records)}
    )


async def stream(incoming: Incoming) -> Response:
    """The records of a saga as they become durable."""
    return await saga_stream(incoming)


async def streamed_overview(incoming: Incoming) -> Response:
    """The overview whenever it changes."""
    return await overview_stream(incoming)


OPERATIONS: Final = [
    Operation(
        name="submitSaga",
        method="POST",
        path="/v1/sagas",
        summary="Submit a plan or a template",
        about=(
            "The saga is durable when this answers; workers run it. The same id with the same plan and input is the "
            "saga that exists, and with another plan a conflict. `Idempotency-Key` chooses the id if the request "
            "and the plan name none."
        ),
        handle=submit,
        answers={202: "The saga, as it is now."},
    ),
    Operation(
        name="searchSagas",
        method="GET",
        path="/v1/sagas",
        summary="Find sagas",
        about="The most recently created first; all conditions hold.",
        handle=search,
        answers={200: "A page."},
    ),
    Operation(
        name="showSaga",
        method="GET",
        path="/v1/sagas/{saga_id}",
        summary="Show a saga",
        handle=show,
        without=("step",),
        answers={200: "The saga."},
    ),
    Operation(
        name="showHistory",
        method="GET",
        path="/v1/sagas/{saga_id}/history",
        summary="Show records of a saga's journal",
        handle=history,
        answers={200: "Records; `next` is the `after` of the next page."},
    ),
    Operation(
        name="streamSaga",
        method="GET",
        path="/v1/sagas/{saga_id}/stream",
        summary="Follow a saga: server-sent events",
        about=(
            "Each record is an event `record` with its seq as id; a client that reconnects with `Last-Event-ID` misses "
            "none and gets none twice. `end` follows the last record of a saga that has ended. With `stops`, an event "
            "`stops` has the operators' stops that may hold the saga: at first, and whenever they have changed."
        ),
        handle=stream,
        headers={"Last-Event-ID": {"type": "string", "pattern": "^[0-9]{1,10}$"}},
        answers={200: "Events."},
        refusals=(409,),  # more follow it than the server lets
        streams=True,
    ),
    Operation(
        name="streamOverview",
        method="GET",
        path="/v1/stream",
        summary="Follow the overview: server-sent events",
        about="An event `overview` with the body of GET /v1/overview, whenever it changes.",
        handle=streamed_overview,
        answers={200: "Events."},
        streams=True,
    ),
]
