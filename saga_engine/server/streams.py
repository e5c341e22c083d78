"""Server-sent events: records of a saga, resumable by their seq, the stops that may hold it, and the overview."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from typing import Any, Final

import msgspec
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from saga_engine.api.stops import Stop, stops
from saga_engine.errors import RequestInvalid, SagaError, StoreUnavailable
from saga_engine.listener import connection_of
from saga_engine.ports import Store
from saga_engine.server import views
from saga_engine.server.operation import Incoming
from saga_engine.server.problems import problem_of

#: A comment is sent after so many seconds of silence. The token is checked as often, also while events come.
BEAT_S: Final = 10.0
_LOOK_S: Final = 1.0
_OPENING: Final = b"retry: 1000\n\n"


def event(name: str, body: Any, event_id: int | None = None) -> bytes:
    """One event. Its JSON has no line breaks."""
    head = b"" if event_id is None else b"id: %d\n" % event_id
    return head + f"event: {name}\n".encode() + b"data: " + msgspec.json.encode(body, enc_hook=str) + b"\n\n"


async def saga_stream(incoming: Incoming) -> StreamingResponse:
    """The records after ``Last-Event-ID``, else after ``after``, else all; then those to come, until the saga ends."""
    saga_id, after = incoming.saga_id, _after(incoming)
    head = await incoming.engine.store.head(saga_id)
    if after >= head.length:
        raise RequestInvalid(
            f"saga {saga_id} has no record {after}",
            hint="begin without Last-Event-ID",
            where="last-event-id",
            status=409,
        )

    async def records() -> AsyncGenerator[bytes, None]:
        async for record in incoming.engine.follow(saga_id, since=after + 1):
            yield event("record", record, record["seq"])
        yield event("end", {"saga_id": saga_id})

    if not incoming.query.get("stops"):
        return _response(incoming, records())
    return _response(incoming, _both(records(), _stops(incoming.engine.store, saga_id)))


def may_hold(stop: Stop, saga_id: str) -> bool:
    """Whether a stop is of this saga, of all, or of a tool: which tools a saga calls may change."""
    kind, _, name = stop.scope.partition(":")
    return kind != "saga" or name == saga_id


async def _stops(store: Store, saga_id: str) -> AsyncGenerator[bytes, None]:
    """The stops that may hold a saga: those of now, and whenever they have changed."""
    last: list[Stop] | None = None
    while True:
        now = [stop for stop in await stops(store) if may_hold(stop, saga_id)]
        if now != last:
            last = now
            yield event("stops", {"stops": [stop._asdict() for stop in now]})
        await asyncio.sleep(_LOOK_S)


async def _both(
    events: AsyncGenerator[bytes, None], beside: AsyncGenerator[bytes, None]
) -> AsyncGenerator[bytes, None]:
    """The events of both as they come, until ``events`` ends."""
    coming = {source: asyncio.ensure_future(_next(source)) for source in (events, beside)}
    try:
        while True:
            done, _ = await asyncio.wait(coming.values(), return_when=asyncio.FIRST_COMPLETED)
            for source in [source for source, task in coming.items() if task in done]:
                found = coming[source].result()
                if found is None:
                    return
                coming[source] = asyncio.ensure_future(_next(source))
                yield found
    finally:
        for source, task in coming.items():
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError, SagaError):
                await task
            await source.aclose()


async def overview_stream(incoming: Incoming) -> StreamingResponse:
    """The overview, whenever something in it but the time has changed."""

    async def overviews() -> AsyncGenerator[bytes, None]:
        last: dict[str, Any] | None = None
        while True:
            now = await views.overview(incoming.engine)
            steady = {name: value for name, value in now.items() if name not in ("now_ms", "queue")}
            steady["queued"] = now["queue"]["queued"]
            if steady != last:
                last = steady
                yield event("overview", now)
            await asyncio.sleep(_LOOK_S)

    return _response(incoming, overviews())


def _after(incoming: Incoming) -> int:
    given = incoming.request.headers.get("last-event-id")
    if given is None:
        return int(incoming.query.get("after", -1))
    if not given.isascii() or not given.isdecimal() or len(given) > 10:
        raise RequestInvalid("Last-Event-ID is the seq of a record", where="last-event-id")
    return int(given)


def _response(incoming: Incoming, events: AsyncGenerator[bytes, None]) -> StreamingResponse:
    # Counted before the response begins, so that one too many is refused with a problem.
    stack = contextlib.ExitStack()
    stack.enter_context(incoming.desk.place(incoming.desk.streams, incoming.identity))
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return _Stream(incoming, stack, _beating(incoming, events), headers=headers, media_type="text/event-stream")


class _Stream(StreamingResponse):
    """A response that gives back its place among the open streams, however it ends.

    Beside what it writes, the token is looked at: a client that does not read keeps no stream open without one.
    """

    def __init__(self, incoming: Incoming, stack: contextlib.ExitStack, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._incoming = incoming
        self._stack = stack

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._stack:
            looking = asyncio.create_task(self._look(), name="saga-server-stream")
            try:
                await super().__call__(scope, receive, send)
            finally:
                looking.cancel()

    async def _look(self) -> None:
        incoming, connection = self._incoming, connection_of(self._incoming.request.scope)
        known = True
        while connection is not None:
            await asyncio.sleep(BEAT_S if known else _LOOK_S)
            with contextlib.suppress(StoreUnavailable):  # then the next look may tell
                known = known and await incoming.desk.still_known(incoming.request)
            if not known and connection.is_unread:  # a client that reads is told the end of the stream
                connection.cut("its token is not valid any more")


async def _next(events: AsyncGenerator[bytes, None]) -> bytes | None:
    """The next event; None: there are no more. A task cannot end with ``StopAsyncIteration``."""
    return await anext(events, None)


async def _beating(incoming: Incoming, events: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
    """The events, with comments between them while nothing comes; until the server stops or the token is revoked."""
    yield _OPENING
    draining = asyncio.ensure_future(incoming.desk.draining.wait())
    coming: asyncio.Future[bytes | None] | None = None
    loop = asyncio.get_running_loop()
    checked_s = loop.time()
    try:
        while True:
            if coming is None:
                coming = asyncio.ensure_future(_next(events))
            either: list[asyncio.Future[Any]] = [coming, draining]
            await asyncio.wait(either, timeout=BEAT_S, return_when=asyncio.FIRST_COMPLETED)
            if not coming.done() or loop.time() - checked_s >= BEAT_S:
                if draining.done() or not await incoming.desk.still_known(incoming.request):
                    return
                checked_s = loop.time()
            if coming.done():
                found, coming = coming.result(), None
                if found is None:
                    return
                yield found
            else:
                yield b": \n\n"
    except SagaError as error:
        yield event("problem", problem_of(error))
    finally:
        for task in (coming, draining):
            if task is not None:
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError, SagaError):
                    await task
        await events.aclose()
