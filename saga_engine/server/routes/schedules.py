"""Schedules."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Final

from saga_engine.errors import RequestInvalid, ScheduleNotFound
from saga_engine.server.keys import Answer
from saga_engine.server.operation import Handle, Incoming, Operation

_SHOWN: Final = {200: "The schedule."}


async def list_schedules(incoming: Incoming) -> Answer:
    """All schedules."""
    return Answer({"schedules": [each.to_dict() for each in await incoming.engine.schedules.list()]})


async def show(incoming: Incoming) -> Answer:
    """One schedule."""
    return Answer((await incoming.engine.schedules.get(incoming.path("name"))).to_dict())


async def put(incoming: Incoming) -> Answer:
    """Create or replace a schedule."""
    made = await incoming.engine.schedules.put(
        incoming.path("name"), **incoming.body, check_tools=bool(len(incoming.engine.tools))
    )
    return Answer(made.to_dict())


async def delete(incoming: Incoming) -> Answer:
    """Delete a schedule."""
    try:
        await incoming.engine.schedules.delete(incoming.path("name"))
    except ScheduleNotFound:
        if not incoming.key.repeated:  # else the same request has deleted it
            raise
    return Answer(None, 204)


async def pause(incoming: Incoming) -> Answer:
    """Pause a schedule."""
    why = incoming.body.get("note", "") or f"by {incoming.identity.who}"
    return Answer((await incoming.engine.schedules.pause(incoming.path("name"), why=why)).to_dict())


async def resume(incoming: Incoming) -> Answer:
    """Resume a schedule."""
    return Answer((await incoming.engine.schedules.resume(incoming.path("name"))).to_dict())


async def trigger(incoming: Incoming) -> Answer:
    """Start its saga now."""
    saga_id = await incoming.engine.schedules.trigger(incoming.path("name"), key=incoming.key.id)
    return Answer({"saga_id": saga_id}, 202, {"Location": f"/v1/sagas/{saga_id}"})


async def backfill(incoming: Incoming) -> Answer:
    """Start the sagas of a span of time."""
    since, until = (_moment(incoming.body, name) for name in ("since", "until"))
    found = await incoming.engine.schedules.backfill(incoming.path("name"), since, until)
    return Answer({"sagas": list(found)}, 202, {"Location": "/v1/sagas"})


def _moment(body: dict[str, str], name: str) -> datetime:
    try:
        return datetime.fromisoformat(body[name])
    except ValueError:
        raise RequestInvalid(
            f"{name} is no moment", hint="2026-03-01T00:00:00+00:00", status=422, where=f"body.{name}"
        ) from None


def _on(verb: str, method: str, summary: str, handle: Handle, answers: Mapping[int, str] = _SHOWN) -> Operation:
    """An operation on one schedule."""
    return Operation(
        name=f"{verb}Schedule",
        method=method,
        path="/v1/schedules/{name}" + (f"/{verb}" if method == "POST" else ""),
        summary=summary,
        handle=handle,
        answers=answers,
    )


OPERATIONS: Final = [
    Operation(
        name="listSchedules",
        method="GET",
        path="/v1/schedules",
        summary="List schedules",
        handle=list_schedules,
        answers={200: "All, by name."},
    ),
    _on("show", "GET", "Show a schedule", show),
    _on("put", "PUT", "Create or replace a schedule", put),
    _on("delete", "DELETE", "Delete a schedule; its sagas go on", delete, answers={204: "Deleted."}),
    _on("pause", "POST", "Pause a schedule", pause),
    _on("resume", "POST", "Resume a schedule from now on", resume),
    _on(
        "trigger",
        "POST",
        "Start its saga now",
        trigger,
        answers={202: "The saga."},
    ),
    _on(
        "backfill",
        "POST",
        "Start the sagas of a span of time that have not happened",
        backfill,
        answers={202: "All sagas of that time."},
    ),
]
