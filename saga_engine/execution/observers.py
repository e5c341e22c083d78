"""Observers receive durable records, in a thread and within a time limit; meters measure them, in the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

from saga_engine.core.masking import Mask, learn, mask_of, masked_record
from saga_engine.core.records import AnyRecord
from saga_engine.core.state import State
from saga_engine.loggers import logger_of
from saga_engine.ports import Meter, Observer, Tracing

_log = logger_of("saga_engine")

#: How long an observer may take for the records of one append before the engine stops waiting for it.
OBSERVER_LIMIT_S: Final = 5.0
#: Starts work in a thread that may be abandoned.
InThread = Callable[[Callable[[], Any]], asyncio.Future[Any]]


class Observers:
    """All observers and meters of a process. Each receives one append at a time, in the order of the journals."""

    def __init__(
        self,
        observers: Sequence[Observer],
        in_thread: InThread,
        *,
        meters: Sequence[Meter] = (),
        spans: Tracing | None = None,
        limit_s: float = OBSERVER_LIMIT_S,
    ) -> None:
        self._spans = spans
        self._each = [_Observed(observer, in_thread, limit_s) for observer in observers]
        self._meters = tuple(meters)

    def __bool__(self) -> bool:
        return bool(self._each or self._meters or self._spans)

    @property
    def listening(self) -> bool:
        """Whether there are observers."""
        return bool(self._each)

    def measure(self, state: State, records: Sequence[AnyRecord]) -> None:
        """Have all meters take records that ``state`` has in it. Raises none of their exceptions."""
        for meter in self._meters:
            try:
                meter.measure(state, records)
            except Exception:  # noqa: BLE001 - a fault of the monitoring is no fault of the saga's
                _log.exception("meter %r failed", type(meter).__qualname__)

    def trace(self, state: State, records: Sequence[AnyRecord]) -> None:
        """Make spans of records of a saga that is driven here. Raises no exception of theirs."""
        if self._spans is not None:
            try:
                self._spans.measure(state, records)
            except Exception:  # noqa: BLE001 - as in ``measure``
                _log.exception("the spans of saga %s failed", state.saga_id)

    def taken_over(self, state: State, records: Sequence[AnyRecord]) -> None:
        """Tell of a saga's journal, before it is continued here. Raises no exception of theirs."""
        if self._spans is not None:
            try:
                self._spans.taken_over(state, records)
            except Exception:  # noqa: BLE001 - as in ``measure``
                _log.exception("the spans of saga %s failed", state.saga_id)

    async def tell(self, saga_id: str, records: Sequence[AnyRecord]) -> None:
        """Notify all of them, each within its time limit. Raises none of their exceptions."""
        for each in self._each:
            await each.tell(saga_id, records)


class MaskedObservers:
    """The observers of one saga, which see no sensitive value of it."""

    __slots__ = ("_mask", "_observers")

    def __init__(self, observers: Observers) -> None:
        self._observers = observers
        self._mask: Mask | None = None

    async def tell(self, state: State, records: Sequence[AnyRecord]) -> None:
        """Notify all of them of records that ``state`` has in it."""
        self._observers.measure(state, records)
        self._observers.trace(state, records)
        if self._observers.listening:
            await self._observers.tell(state.saga_id, self._masked(state, records) if state.sensitive else records)

    def _masked(self, state: State, records: Sequence[AnyRecord]) -> Sequence[AnyRecord]:
        if self._mask is None:
            self._mask = mask_of(state)
        assert self._mask is not None, "something is sensitive"
        self._mask.mark(state.sensitive)
        for record in records:
            learn(self._mask, state, record)
        return [masked_record(self._mask, state, record) for record in records]


class _Observed:
    """One observer. While a call that timed out still runs, the observer misses records.

    The engine does not wait twice.
    """

    def __init__(self, observer: Observer, in_thread: InThread, limit_s: float) -> None:
        self._observer = observer
        self._in_thread = in_thread
        self._limit_s = limit_s
        self._turn = asyncio.Lock()
        self._running: asyncio.Future[Any] | None = None
        self._late = False
        self._missed = 0

    async def tell(self, saga_id: str, records: Sequence[AnyRecord]) -> None:
        async with self._turn:
            # One that a lost lease left behind may still be within its time.
            if self._running is not None and not self._late:
                await self._ended()
            if self._late:
                self._missed += len(records)
                return
            self._running = self._in_thread(partial(self._call, saga_id, records))
            await self._ended()

    async def _ended(self) -> None:
        assert self._running is not None
        done, _ = await asyncio.wait([self._running], timeout=self._limit_s)
        if done:
            self._running = None
            return
        self._late = True
        _log.error("observer %r takes longer than %g s: it misses records until it returns", self._name, self._limit_s)
        self._running.add_done_callback(self._back)

    def _back(self, _: asyncio.Future[Any]) -> None:
        _log.warning("observer %r has returned; it missed %d records", self._name, self._missed)
        self._late, self._running, self._missed = False, None, 0

    def _call(self, saga_id: str, records: Sequence[AnyRecord]) -> None:
        for record in records:
            try:
                self._observer(saga_id, record)
            except BaseException:  # noqa: BLE001 - a listener's fault is no fault of the saga's, and ends no process
                _log.exception("observer %r failed on %s", self._name, type(record).__name__)

    @property
    def _name(self) -> str:
        return getattr(self._observer, "__qualname__", None) or type(self._observer).__qualname__
