"""Sends spans to a receiver, in a thread of its own. The sagas never wait for it.

What the receiver does not take is sent again, in its order. While it is away spans wait here, up to a limit; beyond
that the newest are dropped, counted, and logged once.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from saga_engine.loggers import logger_of

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.sdk.trace.export import SpanExporter

    from saga_engine.telemetry.spans import Span
    from saga_engine.tools.trace_context import SpanContext

_log = logger_of("saga_engine.telemetry")

#: How many spans may wait, and how many are sent at a time.
MOST_WAITING: Final = 50_000
_BATCH: Final = 512
#: After a failure the pause doubles, from the delay up to this.
_MOST_PAUSE_S: Final = 30.0


class Outbox:
    """``delay_s``: how long spans gather before they are sent. ``sent`` is told of what the receiver has taken."""

    def __init__(self, exporter: SpanExporter, attributes: dict[str, str], delay_s: float) -> None:
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.util.instrumentation import InstrumentationScope

        from saga_engine._version import __version__

        self._exporter = exporter
        self._delay_s = delay_s
        self._resource = Resource.create(attributes)
        self._scope = InstrumentationScope("saga_engine", __version__)
        self._waiting: deque[tuple[Span, Callable[[Sequence[Span]], None]]] = deque()
        self._has = threading.Event()
        self._urgent = threading.Event()
        self._idle = threading.Condition()
        self._failing = self._closing = False
        self._thread: threading.Thread | None = None
        self.dropped = 0

    def put(self, spans: Sequence[Span], sent: Callable[[Sequence[Span]], None]) -> bool:
        """Queue spans; False: there is no room. It waits for nothing; ``sent`` is called in the thread."""
        if len(self._waiting) + len(spans) > MOST_WAITING:
            if not self.dropped:
                _log.error("the receiver of spans takes too little: %d wait, and further ones are lost", MOST_WAITING)
            self.dropped += len(spans)
            return False
        for span in spans:
            self._waiting.append((span, sent))
        if not self._has.is_set():
            self._has.set()
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="saga-spans", daemon=True)
                self._thread.start()
        return True

    def flush(self, within_s: float) -> bool:
        """Send what waits, now. False: the receiver has not taken all of it in this time."""
        deadline = time.monotonic() + within_s
        self._urgent.set()
        with self._idle:
            while self._waiting and time.monotonic() < deadline:
                self._idle.wait(min(0.05, max(deadline - time.monotonic(), 0)))
        if not self._closing:
            self._urgent.clear()
        return not self._waiting

    def close(self, within_s: float) -> None:
        """Send what waits, within this time, and end the thread. What is left then is lost, and logged."""
        if not self.flush(within_s):
            self.dropped += len(self._waiting)
            _log.error("%d spans were not taken by their receiver", len(self._waiting))
        self._closing = True
        self._urgent.set()
        self._has.set()
        self._exporter.shutdown()
        if self._thread is not None:
            self._thread.join(within_s)

    # --- the thread ----------------------------------------------------------------------------------------------

    def _run(self) -> None:
        pause_s = self._delay_s
        while True:
            self._has.wait()
            if self._closing:
                return
            self._urgent.wait(pause_s)
            if self._closing:
                return
            pause_s = self._delay_s if self._send() else min(max(pause_s, 0.1) * 2, _MOST_PAUSE_S)
            if self._failing and self._urgent.is_set():
                time.sleep(0.05)  # it is flushed: tried again soon, but not without end

    def _send(self) -> bool:
        """Send all that waits; False: the receiver has refused a batch, which stays the first one."""
        while self._waiting:
            batch = [self._waiting[at] for at in range(min(len(self._waiting), _BATCH))]
            if self._closing or not self._export([self._readable(span) for span, _ in batch]):
                return False
            for _ in batch:
                self._waiting.popleft()
            for sent in {id(told): told for _, told in batch}.values():
                sent([span for span, told in batch if told is sent])
        self._has.clear()
        if self._waiting:  # one came between the two
            self._has.set()
        with self._idle:
            self._idle.notify_all()
        return True

    def _export(self, spans: Sequence[ReadableSpan]) -> bool:
        from opentelemetry.sdk.trace.export import SpanExportResult

        try:
            taken = self._exporter.export(spans) is SpanExportResult.SUCCESS
        except Exception as error:  # noqa: BLE001 - whatever a receiver's client raises, it is tried again
            taken = False
            if not self._failing:
                _log.warning("the receiver of spans failed: %s: %s", type(error).__name__, error)
        if taken is self._failing:
            _log.log(*((logging.INFO, "the receiver takes spans again") if taken else _REFUSED))
        self._failing = not taken
        return taken

    def _readable(self, span: Span) -> ReadableSpan:
        from opentelemetry.sdk.trace import Event, ReadableSpan
        from opentelemetry.trace import Link, Status, StatusCode

        status = Status(StatusCode.ERROR) if span.error else Status()
        here = span.saga.root._replace(span_id=span.span_id)
        return ReadableSpan(
            span.name,
            as_context(here),
            None if span.parent is None else as_context(span.parent),
            self._resource,
            span.attributes,
            [Event(each.name, each.attributes, each.at_ms * 1_000_000) for each in span.events],
            () if span.link is None else [Link(as_context(span.link))],
            status=status,
            start_time=span.start_ms * 1_000_000,
            end_time=span.end_ms * 1_000_000,
            instrumentation_scope=self._scope,
        )


_REFUSED: Final = (logging.WARNING, "the receiver does not take spans; they wait, and the sagas go on")


def as_context(of: SpanContext) -> Any:
    """As OpenTelemetry has it."""
    from opentelemetry import trace

    flags = trace.TraceFlags(int(of.sampled))
    return trace.SpanContext(of.trace_id, of.span_id, is_remote=False, trace_flags=flags)
