"""One request of a client over HTTP: whose saga it is for, and whether the client still waits for the answer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from saga_engine.tools.trace_context import called_from

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


def traced(call: Callable[[Any, Any], Awaitable[Any]]) -> Callable[[Any, Any], Awaitable[Any]]:
    """The handler of calls: a saga that begins within one is in the trace that the client's ``_meta`` names."""

    async def handle(ctx: Any, params: Any) -> Any:
        with called_from((ctx.meta or {}).get("traceparent")):
            return await call(ctx, params)

    return handle


@contextmanager
def telling_gone(visit: Visit | None, tell: Callable[[], None]) -> Iterator[None]:
    """Tell when the client leaves in this block."""
    if visit is None:
        yield
        return
    gone = asyncio.ensure_future(visit.gone.wait())
    gone.add_done_callback(lambda ended: None if ended.cancelled() else tell())
    try:
        yield
    finally:
        gone.cancel()


def is_gone(ctx: Any) -> bool:
    """Whether the client that made a request has certainly left."""
    visit = visit_of(ctx)
    return visit is not None and visit.gone.is_set()
