"""Exports the spans of sagas, each once, and gives tools the span in which they run.

**Who exports a span.** The process that made the record durable that ends it. Once the receiver has taken the spans of
a saga that has not ended, the process notes in the store how far (a *mark*, for each epoch, off the path of the calls).
Whoever takes the saga over reads the journal, waits for ``grace_s``, in which an owner that lives exports what it has,
reads the marks, and exports what no mark covers. So a span is lost only if a process is killed after the end of a saga
that nobody takes over, or if the receiver is away for too long; and one is exported a second time, with the same ids
and content, only if a process is killed between the receiver's answer and the mark.
"""

from __future__ import annotations

import asyncio
import importlib.util
from collections import deque
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, Self
from urllib.parse import parse_qsl
from weakref import WeakKeyDictionary, WeakValueDictionary

from saga_engine.core.effects import Outcome
from saga_engine.core.records import AnyRecord, SagaStarted
from saga_engine.core.state import State
from saga_engine.errors import SagaError, SettingInvalid
from saga_engine.loggers import logger_of
from saga_engine.telemetry.spans import SagaSpans, Span
from saga_engine.tools.threads import start_in_thread
from saga_engine.tools.trace_context import CALL, TRACED, CallContext, SpanContext

if TYPE_CHECKING:
    from opentelemetry.sdk.trace.export import SpanExporter

    from saga_engine.telemetry.outbox import Outbox

_log = logger_of("saga_engine.telemetry")

#: The name of the marks among the counts of a saga, and how long they are kept if it is none of this store.
_MARKS: Final = "spans"
_MARKS_MS: Final = 7 * 24 * 3600 * 1000
#: How long a coordinator waits at its end for the receiver, and for the last marks.
CLOSE_S: Final = 2.0
_HINT: Final = "pip install 'saga-engine[telemetry]'"


_NUMBERS: Final[Mapping[str, Callable[[str], Any]]] = {
    "sample": float,
    "propagate": lambda text: bool(("0", "1").index(text)),
    "delay_s": float,
    "grace_s": float,
}


class Marks(Protocol):
    """Where the marks are kept: with the saga."""

    async def tally(self, name: str, saga_id: str = "") -> Mapping[str, str]:
        """See ``ports.GuardStore``."""
        ...

    async def tally_set(self, name: str, owner: str, entry: str | None, ttl_ms: int, saga_id: str = "") -> None:
        """See ``ports.GuardStore``."""


class Spans:
    """OpenTelemetry spans for ``Coordinator.open(spans=Spans(...))``.

    ``endpoint``: the OTLP receiver, ``http://HOST:4318``; without it ``OTEL_EXPORTER_OTLP_ENDPOINT`` counts, like all
    ``OTEL_EXPORTER_OTLP_*``. ``exporter``: another ``SpanExporter``. ``sample``: the part of the traces that are
    exported; a caller's own trace decides for its sagas. ``propagate``: HTTP and MCP tools send the ``traceparent`` of
    the call. ``delay_s``: how long spans gather; ``grace_s``: see the module. ``resource``: attributes beside those of
    ``OTEL_RESOURCE_ATTRIBUTES``; ``service.name`` is ``saga-engine`` by default. Close it with ``close``, after the
    coordinators.

    Raises ``SettingInvalid`` without the extra ``telemetry``.
    """

    def __init__(
        self,
        endpoint: str | None = None,
        *,
        exporter: SpanExporter | None = None,
        sample: float = 1.0,
        propagate: bool = False,
        delay_s: float = 1.0,
        grace_s: float = 10.0,
        resource: Mapping[str, str] | None = None,
    ) -> None:
        if importlib.util.find_spec("opentelemetry") is None or importlib.util.find_spec("opentelemetry.sdk") is None:
            raise SettingInvalid("spans need an extra that is not installed", hint=_HINT)
        if not 0 <= sample <= 1:
            raise SettingInvalid(f"sample is a part of the traces, from 0 to 1, not {sample!r}")
        if not (0 <= delay_s <= 3600 and 0 <= grace_s <= 3600):
            raise SettingInvalid(f"delay_s and grace_s are from 0 to 3600 seconds, not {delay_s!r} and {grace_s!r}")
        from saga_engine.telemetry.outbox import Outbox

        self.sample = sample
        self.propagate = propagate
        self.grace_s = grace_s
        named = _service_name() | dict(resource or {})
        self.outbox: Outbox = Outbox(exporter or _otlp(endpoint), named, delay_s)

    @classmethod
    def at(cls, url: str) -> Self:
        """Those of the setting ``otlp``: an endpoint, with the other arguments in its query.

        Raises ``SettingInvalid``.
        """
        endpoint, _, query = url.partition("?")
        known: dict[str, Any] = {}
        for name, text in parse_qsl(query, keep_blank_values=True):
            if name not in _NUMBERS:
                raise SettingInvalid(f"otlp has no option {name[:40]!r}", hint=f"options: {', '.join(_NUMBERS)}")
            try:
                known[name] = _NUMBERS[name](text)
            except ValueError:
                raise SettingInvalid(
                    f"{name} of otlp cannot be {text[:40]!r}", hint="a number; for propagate 0 or 1"
                ) from None
        return cls(endpoint, **known)

    def of(self, marks: Marks, *, names: bool = True) -> CoordinatorSpans:
        """Those of one coordinator, whose store keeps the marks. ``names``: they have the names of plans."""
        return CoordinatorSpans(self, marks, names=names)

    def close(self, within_s: float = 5.0) -> None:
        """Export what waits, for so long at most. It blocks."""
        self.outbox.close(within_s)


def _service_name() -> dict[str, str]:
    import os

    told = "service.name=" in os.environ.get("OTEL_RESOURCE_ATTRIBUTES", "") or "OTEL_SERVICE_NAME" in os.environ
    return {} if told else {"service.name": "saga-engine"}


def _otlp(endpoint: str | None) -> SpanExporter:
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    except ImportError:
        raise SettingInvalid("spans need an extra that is not installed", hint=_HINT) from None
    if endpoint is None:
        return OTLPSpanExporter()
    if not endpoint.startswith(("http://", "https://")):
        raise SettingInvalid(f"{endpoint[:80]!r} is no OTLP receiver", hint="http://HOST:4318")
    path = endpoint.rstrip("/")
    return OTLPSpanExporter(path if path.endswith("/v1/traces") else f"{path}/v1/traces")


class _Parked(NamedTuple):
    """Spans of other owners, until it is known which of them were exported."""

    due: float
    saga: SagaSpans
    spans: list[Span]


class CoordinatorSpans:
    """The spans of one coordinator's sagas. It belongs to one event loop."""

    def __init__(self, spans: Spans, marks: Marks, *, names: bool) -> None:
        self._spans = spans
        self._marks = marks
        self._names = names
        self._of: WeakKeyDictionary[State, SagaSpans] = WeakKeyDictionary()
        self._by_id: WeakValueDictionary[str, SagaSpans] = WeakValueDictionary()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._parked: deque[_Parked] = deque()
        #: How far spans were handed to the outbox and no mark says so yet, by saga and epoch.
        self._handed: dict[tuple[str, int], int] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._recovering: asyncio.Task[None] | None = None

    # --- records -------------------------------------------------------------------------------------------------

    def measure(self, state: State, records: Sequence[AnyRecord]) -> None:
        """Take the records of one append of this process, which drives the saga."""
        saga = self._of.get(state)
        if saga is None:
            first = records[0]
            if type(first) is not SagaStarted:
                return
            saga = self._follow(state, first)
        if saga.sampled and (made := saga.read(state, records)):
            self._hand_over(made)

    def taken_over(self, state: State, records: Sequence[AnyRecord]) -> None:
        """Take the whole journal of a saga that other processes drove, or that was queued."""
        first = records[0]
        if type(first) is not SagaStarted:
            return
        saga = self._follow(state, first)
        if not saga.sampled:
            return
        made = saga.read(state, records)
        assert self._loop is not None
        self._parked.append(_Parked(self._loop.time() + self._spans.grace_s, saga, made))
        if self._recovering is None:
            self._recovering = self._loop.create_task(self._recover(), name="saga-spans")

    def _follow(self, state: State, started: SagaStarted) -> SagaSpans:
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
        saga = SagaSpans(started, self._spans.sample, names=self._names)
        self._of[state] = saga
        self._by_id[saga.saga_id] = TRACED[saga.saga_id] = saga
        return saga

    def _hand_over(self, made: Sequence[Span]) -> None:
        if self._spans.outbox.put(made, self._sent):
            for span in made:
                self._handed[span.saga.saga_id, span.epoch] = span.record + 1

    # --- marks ---------------------------------------------------------------------------------------------------

    def _sent(self, spans: Sequence[Span]) -> None:
        """The receiver has taken them; called in another thread."""
        marks: dict[tuple[str, int], tuple[SagaSpans, int]] = {}
        for span in spans:
            marks[span.saga.saga_id, span.epoch] = span.saga, span.record + 1
        assert self._loop is not None
        try:
            self._loop.call_soon_threadsafe(self._mark, marks)
        except RuntimeError:
            _log.debug("the event loop has ended; the marks of %d sagas were not written", len(marks))

    def _mark(self, marks: Mapping[tuple[str, int], tuple[SagaSpans, int]]) -> None:
        live = {key: to for key, (saga, to) in marks.items() if not saga.ended}
        for key, (_, to) in marks.items():
            if key not in live:
                self._forget(key, to)
        if live:
            task = asyncio.get_running_loop().create_task(self._write(live), name="saga-spans")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def _forget(self, key: tuple[str, int], to: int) -> None:
        if self._handed.get(key) == to:
            del self._handed[key]

    async def _write(self, marks: Mapping[tuple[str, int], int]) -> None:
        writes = (
            self._marks.tally_set(_MARKS, str(epoch), str(to), _MARKS_MS, saga_id)
            for (saga_id, epoch), to in marks.items()
        )
        for error in await asyncio.gather(*writes, return_exceptions=True):
            if isinstance(error, SagaError):
                _log.warning("a mark of spans was not written; a take-over may export them again: %s", error.message)
            elif isinstance(error, Exception):
                _log.error("a mark of spans was not written", exc_info=error)
        for key, to in marks.items():
            self._forget(key, to)

    async def _recover(self) -> None:
        """Export what no mark covers, of sagas that were taken over, each after its time."""
        assert self._loop is not None
        while self._parked:
            await asyncio.sleep(max(self._parked[0].due - self._loop.time(), 0))
            await self._recover_one(self._parked.popleft())
        self._recovering = None

    async def _recover_one(self, parked: _Parked) -> None:
        try:
            marks = await self._marks.tally(_MARKS, parked.saga.saga_id)
        except SagaError as error:
            _log.warning("the marks of spans cannot be read; some may be exported again: %s", error.message)
            marks = {}
        exported = {epoch: int(to) for epoch, to in marks.items() if to.isdecimal()}
        handed, saga_id = self._handed, parked.saga.saga_id
        left = [
            span
            for span in parked.spans
            if span.record >= max(exported.get(str(span.epoch), 0), handed.get((saga_id, span.epoch), 0))
        ]
        if left:
            self._hand_over(left)

    async def close(self) -> None:
        """Export what waits, within ``CLOSE_S``, and write the marks of sagas that go on elsewhere."""
        if self._recovering is not None:
            self._recovering.cancel()
            await asyncio.wait([self._recovering])
        while self._parked:
            await self._recover_one(self._parked.popleft())
        await start_in_thread(partial(self._spans.outbox.flush, CLOSE_S))
        await asyncio.sleep(0)  # what the thread has called soon
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=CLOSE_S)

    # --- calls ---------------------------------------------------------------------------------------------------

    def root_of(self, saga_id: str) -> SpanContext | None:
        """The first span of a saga that is driven here."""
        saga = self._by_id.get(saga_id)
        return None if saga is None else saga.root

    def caller(self, parent: str = "") -> str:
        """The ``traceparent`` of whoever starts a saga: its parent's first span, or the code that submits it."""
        if parent:
            root = self.root_of(parent)
            return "" if root is None else root.traceparent
        from opentelemetry.trace import get_current_span

        here = get_current_span().get_span_context()
        return SpanContext(here.trace_id, here.span_id, here.trace_flags.sampled).traceparent if here.is_valid else ""

    def within(
        self, saga_id: str, step: str, direction: str, call: Coroutine[Any, Any, Outcome]
    ) -> Coroutine[Any, Any, Outcome]:
        """The call, made in the context of its span."""
        saga = self._by_id.get(saga_id)
        here = None if saga is None else saga.current(step, direction)
        return call if here is None else _within(CallContext(saga_id, step, here, self._spans.propagate), call)


async def _within(here: CallContext, call: Coroutine[Any, Any, Outcome]) -> Outcome:
    from opentelemetry import context
    from opentelemetry.trace import NonRecordingSpan, set_span_in_context

    from saga_engine.telemetry.outbox import as_context

    ours = CALL.set(here)
    theirs = context.attach(set_span_in_context(NonRecordingSpan(as_context(here.span))))
    try:
        return await call
    finally:
        context.detach(theirs)
        CALL.reset(ours)
