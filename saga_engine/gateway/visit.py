"""One request of a client over HTTP: whose saga it is for, and whether the client still waits for the answer."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any, Final

#: Where a request's ASGI scope has it.
KEY: Final = "saga_engine.visit"


@dataclass(slots=True)
class Visit:
    """``saga``: the id of the gateway that it is for; ``gone``: set when the client has left before its answer."""

    saga: str
    gone: asyncio.Event = field(default_factory=asyncio.Event)


def visit_of(ctx: Any) -> Visit | None:
    """The visit of a request; None on stdin and stdout."""
    scope = getattr(ctx.request, "scope", None)
    found = None if scope is None else scope.get(KEY)
    return found if isinstance(found, Visit) else None


def is_gone(ctx: Any) -> bool:
    """Whether the client that made a request has certainly left."""
    visit = visit_of(ctx)
    return visit is not None and visit.gone.is_set()
