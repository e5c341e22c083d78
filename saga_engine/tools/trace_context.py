"""The span in which a tool is called, for the tool and for what it sends. Empty unless spans are exported."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final, NamedTuple, Protocol
from weakref import WeakValueDictionary

_MOST_CHARS: Final = 256


class SpanContext(NamedTuple):
    """A span of a trace, as integers. ``sampled``: it is exported."""

    trace_id: int
    span_id: int
    sampled: bool = True

    @property
    def traceparent(self) -> str:
        """Its W3C form."""
        return f"00-{self.trace_id:032x}-{self.span_id:016x}-{int(self.sampled):02x}"


class CallContext(NamedTuple):
    """The span of the call that is under way, and whether tools send it on."""

    saga_id: str
    step_id: str
    span: SpanContext
    propagate: bool


#: The call that is under way here; None: no call, or spans are off.
CALL: Final[ContextVar[CallContext | None]] = ContextVar("saga_engine_call", default=None)


#: The ``traceparent`` that the request under way came with, over HTTP or MCP or from the shell; empty: none.
CALLER: Final[ContextVar[str]] = ContextVar("saga_engine_caller", default="")


@contextmanager
def called_from(traceparent: object) -> Iterator[None]:
    """Sagas that are submitted within are in the trace of the caller. What is no ``traceparent`` changes nothing.

    W3C Trace Context: a header that is invalid is ignored, never an error of its request.
    """
    if not isinstance(traceparent, str) or len(traceparent) > _MOST_CHARS or parsed(traceparent) is None:
        yield
        return
    ours = CALLER.set(traceparent)
    try:
        yield
    finally:
        CALLER.reset(ours)


class Traced(Protocol):
    """A saga whose spans are made in this process."""

    @property
    def root(self) -> SpanContext:
        """Its first span."""
        ...


#: The sagas of this process whose spans are made, by id, as long as they are driven.
TRACED: Final[WeakValueDictionary[str, Any]] = WeakValueDictionary()


class TraceFields(logging.Filter):
    """Adds ``trace_id`` and ``span_id`` to log records, for a handler's ``addFilter``. It drops none.

    A record that is logged during a call has the ids of its span, and ``saga_id`` and ``step_id``; another one of the
    engine, which has a ``saga_id``, those of the saga's first span.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """See ``logging.Filter``."""
        call = CALL.get()
        if call is not None:
            span: SpanContext | None = call.span
            record.saga_id, record.step_id = call.saga_id, call.step_id
        else:
            saga: Traced | None = TRACED.get(getattr(record, "saga_id", ""))
            span = None if saga is None else saga.root
        if span is not None:
            record.trace_id, record.span_id = f"{span.trace_id:032x}", f"{span.span_id:016x}"
        return True


def sent_on() -> str:
    """The ``traceparent`` that a request of a tool carries; empty: none."""
    call = CALL.get()
    return call.span.traceparent if call is not None and call.propagate else ""


def parsed(traceparent: str) -> SpanContext | None:
    """The span that a ``traceparent`` names; None if it is none (W3C Trace Context)."""
    parts = traceparent.split("-")
    if len(parts) < 4 or [len(part) for part in parts[:4]] != [2, 32, 16, 2] or parts[0] == "ff":
        return None
    if not all(character in "0123456789abcdef" for part in parts[:4] for character in part):
        return None
    if parts[0] == "00" and len(parts) != 4:
        return None
    trace_id, span_id, flags = (int(part, 16) for part in parts[1:4])
    return SpanContext(trace_id, span_id, bool(flags & 1)) if trace_id and span_id else None
