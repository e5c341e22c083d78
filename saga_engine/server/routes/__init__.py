"""The operations of the API, by what they are about."""

from __future__ import annotations

from saga_engine.server.operation import Operation
from saga_engine.server.routes import actions, events, inbound, jobs, operating, plans, sagas, schedules, templates


def operations() -> list[Operation]:
    """All operations."""
    rooms = (sagas, actions, plans, events, inbound, templates, schedules, operating, jobs)
    return [operation for room in rooms for operation in room.OPERATIONS]
