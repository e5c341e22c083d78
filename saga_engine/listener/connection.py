"""One connection: HTTP/1.1 of uvicorn and h11, with a bound for everything that its client can make it hold."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Any, ClassVar, Final

import h11
from uvicorn.protocols.http.flow_control import CLOSE_HEADER
from uvicorn.protocols.http.h11_impl import H11Protocol

from saga_engine.listener.bounds import Bounds
from saga_engine.listener.crowd import Crowd
from saga_engine.loggers import logger_of

_log = logger_of("saga_engine.listener")

#: Data is parsed in parts of this size, so that what comes ahead of its turn is seen before it is held.
_PART: Final = 32 * 1024
#: A client that reads so much of an answer in time may take as long again for as much more.
_LEAST_READ: Final = 64 * 1024
#: Where the state of a request has its connection.
_KEY: Final = "saga_engine.connection"
_FULL: Final = (
    b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: text/plain; charset=utf-8\r\ncontent-length: 21\r\n"
    b"retry-after: 5\r\nconnection: close\r\n\r\ntoo many connections\n"
)


class _Told(logging.LoggerAdapter[logging.Logger]):
    """The log of uvicorn's part: what a client sends that is no request is worth no warning, as anybody can send it."""

    @property
    def level(self) -> int:
        """As of a logger."""
        return self.logger.level or logging.WARNING

    def warning(self, msg: object, *args: Any, **more: Any) -> None:
        """At ``info``."""
        self.info(msg, *args, **more)


class Connection(H11Protocol):
    """A client that takes too long to send or to read is cut off, however slowly it goes on.

    Nothing is written before the client has read what was written before: an answer that nobody reads is held once.
    """

    bounds: ClassVar[Bounds]
    crowd: ClassVar[Crowd]
    address = ""
    _arriving: asyncio.TimerHandle | None = None
    _writing: asyncio.TimerHandle | None = None
    _unread = 0
    _is_refused = False
    _has_too_much = False

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self.logger = _Told(_log, {})  # type: ignore[assignment]  # what the engine's log leaves out, it leaves out, too

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take it in, unless there are too many."""
        self.app_state = {**self.app_state, _KEY: self}
        super().connection_made(transport)
        self.address = self.client[0] if self.client else ""
        if not self.crowd.admits(self):
            self._is_refused = True
            transport.write(_FULL)
            transport.close()
            return
        transport.set_write_buffer_limits(high=0)  # so that it is told of each byte that is not read
        self._stand()

    def data_received(self, data: bytes) -> None:
        """Take what the client sends, as far as it may be held."""
        for first in range(0, len(data), _PART):
            if self._is_refused or self._has_too_much or self.transport.is_closing():
                self.flow.pause_reading()
                return
            super().data_received(data[first : first + _PART])
        self._stand()

    def handle_events(self) -> None:
        """Begin with a request that has arrived."""
        before = self.cycle
        super().handle_events()
        if self.cycle is not before and _is_ambiguous(self.headers):
            self._end_after_this()
        if self._is_busy() and len(self.conn.trailing_data[0]) > self.bounds.ahead_bytes:
            self._has_too_much = True
            self._end_after_this()

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        super().on_response_complete()
        self._stand()

    def connection_lost(self, exc: Exception | None) -> None:
        """Its place is free."""
        super().connection_lost(exc)
        self.crowd.gone(self)
        for timer in (self._arriving, self._writing):
            if timer is not None:
                timer.cancel()
        self._arriving = self._writing = None

    def cut(self, why: str) -> None:
        """Close it now; what is not written is dropped."""
        _log.info("a connection from %s was cut off: %s", self.address or "a client", why)
        self.transport.abort()

    # --- what the client sends ---------------------------------------------------------------------------------------

    def _is_busy(self) -> bool:
        """Whether the client waits for an answer to a request that has arrived."""
        return self.cycle is not None and not self.cycle.response_complete and not self.cycle.more_body

    def _end_after_this(self) -> None:
        """Close the connection after the answer to the request that came last; the client is told."""
        self.cycle.keep_alive = False
        if CLOSE_HEADER not in self.cycle.scope["headers"]:
            self.cycle.scope["headers"] = [*self.cycle.scope["headers"], CLOSE_HEADER]

    def _stand(self) -> None:
        """It waits for its client, or its client for it."""
        if self._is_busy():
            self.crowd.works(self)
        else:
            self.crowd.waits(self)
        # After an answer uvicorn waits ``idle_s`` for the first byte of another request.
        is_arriving = self.conn.their_state in (h11.IDLE, h11.SEND_BODY) and self.timeout_keep_alive_task is None
        if is_arriving and self._arriving is None:
            self._arriving = self.loop.call_later(self.bounds.arrive_s, self._late)
        elif not is_arriving and self._arriving is not None:
            self._arriving.cancel()
            self._arriving = None

    def _late(self) -> None:
        self._arriving = None
        self.cut("its request did not arrive in time")

    # --- what the client reads ---------------------------------------------------------------------------------------

    @property
    def is_unread(self) -> bool:
        """Whether something that was written waits for the client to read it."""
        return self._writing is not None

    def pause_writing(self) -> None:
        """Something that was written has not been read."""
        super().pause_writing()
        self._watch_reading()

    def resume_writing(self) -> None:
        """All of it has been read."""
        super().resume_writing()
        if self._writing is not None:
            self._writing.cancel()
            self._writing = None

    def _watch_reading(self) -> None:
        self._unread = self.transport.get_write_buffer_size()
        self._writing = self.loop.call_later(self.bounds.write_s, self._slow)

    def _slow(self) -> None:
        self._writing = None
        if self._unread - self.transport.get_write_buffer_size() < _LEAST_READ:
            self.cut("its client does not read the answer")
        else:
            self._watch_reading()


def connection_of(scope: Mapping[str, Any]) -> Connection | None:
    """The connection of a request; None: it came to the application in another way."""
    found: Connection | None = scope.get("state", {}).get(_KEY)
    return found


def _is_ambiguous(headers: list[tuple[bytes, bytes]]) -> bool:
    """Whether a proxy may see another end of the request: RFC 9112 has the connection closed after the answer."""
    return {b"content-length", b"transfer-encoding"} <= {name for name, _ in headers}
