"""Schedules."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

from saga_engine.api.operations import INPUT, NOTE
from saga_engine.errors import RequestInvalid, ScheduleNotFound
from saga_engine.server.keys import Answer
from saga_engine.server.operation import Incoming, Operation
from saga_engine.server.schemas import REFERENCE, TAGS, TEXT, Schema, is_a, made_of

_MOMENT: Final[Schema] = {"type": "string", "format": "date-time"}


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


def _on(verb: str, method: str, summary: str, handle: Any, **options: Any) -> Operation:
    """An operation on one schedule."""
    settings: dict[str, Any] = {
        "refusals": (404, 422),
        "answers": {200: is_a("Schedule", "The schedule.")},
    }
    return Operation(
        name=f"{verb}Schedule",
        method=method,
        path="/v1/schedules/{name}" + (f"/{verb}" if method == "POST" else ""),
        summary=summary,
        handle=handle,
        **settings | options,
    )


OPERATIONS: Final = [
    Operation(
        name="listSchedules",
        method="GET",
        path="/v1/schedules",
        summary="List schedules",
        handle=list_schedules,
        answers={200: is_a("Schedules", "All, by name.")},
    ),
    _on("show", "GET", "Show a schedule", show),
    _on(
        "put",
        "PUT",
        "Create or replace a schedule",
        put,
        body=made_of(
            {
                "template": REFERENCE,
                "cron": TEXT,
                "time_zone": TEXT,
                "every_s": {"type": "integer", "minimum": 0, "maximum": 10**9},
                "input": INPUT,
                "tags": TAGS,
                "overlap": {"type": "string", "enum": ["skip", "buffer-one", "allow", "cancel"]},
                "catch_up": {"type": "string", "enum": ["one", "none", "all"]},
                "pause_after": {"type": "integer", "minimum": 0, "maximum": 1000},
            },
            ["template"],
        ),
        rules={
            "oneOf": [
                {
                    "required": ["cron"],
                    "properties": {"cron": {"minLength": 1}, "every_s": {"maximum": 0}},
                },
                {
                    "required": ["every_s"],
                    "properties": {"cron": {"maxLength": 0}, "every_s": {"minimum": 1}},
                },
            ]
        },
    ),
    _on("delete", "DELETE", "Delete a schedule; its sagas go on", delete, answers={204: ("Deleted.", None)}),
    _on("pause", "POST", "Pause a schedule", pause, body=made_of({"note": NOTE}), may_lack_body=True),
    _on("resume", "POST", "Resume a schedule from now on", resume, body=made_of({}), may_lack_body=True),
    _on(
        "trigger",
        "POST",
        "Start its saga now",
        trigger,
        answers={202: is_a("Started", "The saga.")},
        body=made_of({}),
        may_lack_body=True,
    ),
    _on(
        "backfill",
        "POST",
        "Start the sagas of a span of time that have not happened",
        backfill,
        body=made_of({"since": _MOMENT, "until": _MOMENT}, ["since", "until"]),
        answers={202: is_a("StartedAll", "All sagas of that time.")},
    ),
]
