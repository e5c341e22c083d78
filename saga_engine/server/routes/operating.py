"""For operators: questions, overview, workers, tools, stops."""

from __future__ import annotations

from typing import Final

from saga_engine.api.holds import held, release
from saga_engine.api.stops import go, stop, stops
from saga_engine.errors import SettingInvalid
from saga_engine.execution.stops import scope_of
from saga_engine.server import views
from saga_engine.server.keys import Answer
from saga_engine.server.operation import Incoming, Operation


async def list_questions(incoming: Incoming) -> Answer:
    """The open questions."""
    query = incoming.query
    page = {"limit": query.get("limit", 100), "cursor": query.get("cursor")}
    found, cursor = await views.questions(incoming.engine, **page, to=query.get("to"))
    return Answer({"questions": found, "cursor": cursor})


async def overview(incoming: Incoming) -> Answer:
    """Sagas by status, queue, workers, stops."""
    return Answer(await views.overview(incoming.engine))


async def list_tools(incoming: Incoming) -> Answer:
    """The tools that the server knows."""
    return Answer({"tools": await views.tools(incoming.engine)})


async def list_stops(incoming: Incoming) -> Answer:
    """The stops that hold."""
    return Answer({"stops": [each._asdict() for each in await stops(incoming.engine.store)]})


async def list_holds(incoming: Incoming) -> Answer:
    """What sagas hold."""
    return Answer({"holds": [each.body() for each in await held(incoming.engine.store)]})


async def release_hold(incoming: Incoming) -> Answer:
    """Take a resource, or all that a saga holds, away from it."""
    body, store = incoming.body, incoming.engine.store
    saga_id, resource = body.get("saga_id"), body.get("resource")
    try:
        found = await release(store, saga_id=saga_id, resource=resource)
    except SettingInvalid:
        if not incoming.key.repeated:  # else the same request has done it
            raise
        found = []
    return Answer({"holds": [each.body() for each in found]})


async def stop_calls(incoming: Incoming) -> Answer:
    """Stop forward calls."""
    body = incoming.body
    if incoming.key.repeated:
        held = await stops(incoming.engine.store)
        scope = scope_of(body.get("tool"), body.get("saga_id"))
        said = (scope, incoming.identity.who, body.get("note", ""))
        if any((each.scope, each.by, each.note) == said for each in held):
            return Answer({"stops": [each._asdict() for each in held]})  # this request has stopped them
    found = await stop(
        incoming.engine.store,
        tool=body.get("tool"),
        saga_id=body.get("saga_id"),
        by=incoming.identity.who,
        note=body.get("note", ""),
        tools=lambda: incoming.engine.tools,
    )
    return Answer({"stops": [each._asdict() for each in found]})


async def lift(incoming: Incoming) -> Answer:
    """Lift a stop."""
    body = incoming.body
    found = await go(incoming.engine.store, tool=body.get("tool"), saga_id=body.get("saga_id"))
    return Answer({"stops": [each._asdict() for each in found]})


OPERATIONS: Final = [
    Operation(
        name="listQuestions",
        method="GET",
        path="/v1/questions",
        summary="List the open questions",
        about="Of a page of sagas, the most recently created first; with `to` only what plans ask of that name.",
        handle=list_questions,
        answers={200: "Questions."},
    ),
    Operation(
        name="showOverview",
        method="GET",
        path="/v1/overview",
        summary="Sagas by status, the queue, the workers, the stops",
        handle=overview,
        answers={200: "The overview."},
    ),
    Operation(
        name="listTools",
        method="GET",
        path="/v1/tools",
        summary="List the tools that this server knows",
        handle=list_tools,
        answers={200: "Tools, with counters and breakers of all processes."},
    ),
    Operation(
        name="listStops",
        method="GET",
        path="/v1/stops",
        summary="List the stops that hold",
        handle=list_stops,
        answers={200: "Stops."},
    ),
    Operation(
        name="listHolds",
        method="GET",
        path="/v1/holds",
        summary="List the resources that sagas hold",
        about="By whom, since when, and who waits for them.",
        handle=list_holds,
        answers={200: "Holds, the longest first."},
    ),
    Operation(
        name="releaseHold",
        method="POST",
        path="/v1/release",
        summary="Take a resource away from the saga that holds it, or all that a saga holds",
        about="Others may have it at once. The saga goes on; its later undos of tools with `before` look for drift.",
        handle=release_hold,
        answers={200: "What was taken away."},
    ),
    Operation(
        name="stopCalls",
        method="POST",
        path="/v1/stop",
        summary="Stop forward calls: all, those of a tool, or those of a saga",
        about="In every process, until it is lifted; undos and probes go on.",
        handle=stop_calls,
        answers={200: "The stops that hold now."},
    ),
    Operation(
        name="liftStop",
        method="POST",
        path="/v1/go",
        summary="Lift a stop",
        handle=lift,
        answers={200: "The stops that still hold."},
    ),
]
