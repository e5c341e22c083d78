"""Fault injection: a process is killed, stopped or given a false answer at an exact point, as often as a test wants.

A fault is a short text, so that a child process can receive it through its environment::

    SAGA_FAULT=append:3:before            SIGKILL right before the third append leaves the process
    SAGA_FAULT=append:3:after             … right after the store has acknowledged it
    SAGA_FAULT=call:2:after:raise         the second tool call has taken effect, and its answer is lost
    SAGA_FAULT=append:1:after:pause:/f    touch the file /f, then SIGSTOP: the process freezes there
    SAGA_FAULT=append:2:before,call:1:after    several, separated by commas

``POINT:N:WHEN[:ACTION[:ARGUMENT]]``. Points are the verbs of a store (``append``, ``acquire``, ``renew``, …), which
``FaultyStore`` counts, those of its guards and its queue (``guard_claim``, ``work_take``, …), and those that a tool
counts with ``Faults.at``, by convention ``call``, around the effect::

    faults = Faults.from_environment()

    @tool(undo="cancel")
    def book(item: str, ctx: ToolContext) -> dict:
        with faults.at("call"):
            return hotel.book(item, request_id=ctx.idempotency_key)

    store = FaultyStore(open_store("embedded://.saga"), faults)
    async with Coordinator.open(store, tools=[book, cancel]) as coordinator: ...

``Faults.counts`` holds the number of points after a run without faults. The engine contains no code for faults.
"""

from __future__ import annotations

import os
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, cast

from saga_engine.errors import SettingInvalid, StoreUnavailable
from saga_engine.ports import PAGE_START

if TYPE_CHECKING:
    from saga_engine.ports import (
        Acquired,
        AppendReply,
        DocumentStore,
        EndedStore,
        Entry,
        EventStore,
        GuardStore,
        Head,
        Held,
        PagePlace,
        Query,
        Renewal,
        SealStore,
        SearchPlace,
        Store,
        StorePromise,
        ValueStore,
        WorkStore,
    )

When = Literal["before", "after"]
Action = Callable[["Fault"], None]

VARIABLE: Final = "SAGA_FAULT"
#: The point that tools count.
CALL: Final = "call"
_HINT: Final = "POINT:N:before|after[:ACTION[:ARGUMENT]], for example append:3:before or call:2:after:raise"


class Fault(NamedTuple):
    """One fault: at the ``number``-th arrival (counted from 1) at ``point``, before or after its action."""

    point: str
    number: int
    when: When
    action: str = "kill"
    argument: str = ""

    def __str__(self) -> str:
        words = [self.point, str(self.number), self.when]
        if self.argument or self.action != "kill":
            words.append(self.action)
        return ":".join([*words, self.argument] if self.argument else words)

    @classmethod
    def parse(cls, text: str) -> Fault:
        """The fault that a text describes. Raises ``SettingInvalid``."""
        point, _, rest = text.strip().partition(":")
        number, _, rest = rest.partition(":")
        when, _, rest = rest.partition(":")
        action, _, argument = rest.partition(":")
        if not point or not number.isdecimal() or int(number) < 1 or when not in ("before", "after"):
            raise SettingInvalid(f"{text!r} is no fault", hint=_HINT)
        return cls(point, int(number), cast("When", when), action or "kill", argument)


class Faults:
    """The faults of one process, and its count of the points it has come to. Safe to use from several threads.

    ``faults``: a text as in the module's docstring, or ``Fault``s. ``actions`` adds to the actions ``kill``, ``pause``
    and ``raise``, by name. Raises ``SettingInvalid`` for an invalid text or an unknown action.
    """

    def __init__(self, faults: str | Sequence[Fault] = (), *, actions: Mapping[str, Action] | None = None) -> None:
        if isinstance(faults, str):
            faults = [Fault.parse(text) for text in faults.split(",") if text.strip()]
        self._actions: Mapping[str, Action] = {"kill": _kill, "pause": _pause, "raise": _raise, **(actions or {})}
        for fault in faults:
            if fault.action not in self._actions:
                raise SettingInvalid(
                    f"{fault.action!r} is no action of a fault", hint=f"actions: {', '.join(self._actions)}"
                )
        self._waiting = {(fault.point, fault.number, fault.when): fault for fault in faults}
        self._lock = threading.Lock()
        #: How often each point was reached so far.
        self.counts: Counter[str] = Counter()
        #: The faults that took place, in order. (A killed process cannot report.)
        self.fired: list[Fault] = []

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] = os.environ) -> Faults:
        """The faults in ``SAGA_FAULT``; none if it is not set."""
        return cls(environ.get(VARIABLE, ""))

    @contextmanager
    def at(self, point: str) -> Iterator[None]:
        """Enclose the action of a point. *After* applies even if the action has failed with an ``Exception``."""
        with self._lock:
            self.counts[point] += 1
            number = self.counts[point]
        self._come_true(point, number, "before")
        try:
            yield
        except Exception:
            self._come_true(point, number, "after")
            raise
        self._come_true(point, number, "after")

    def _come_true(self, point: str, number: int, when: When) -> None:
        fault = self._waiting.get((point, number, when))
        if fault is not None:
            self.fired.append(fault)
            self._actions[fault.action](fault)


def _kill(_: Fault) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _pause(fault: Fault) -> None:
    """Signal by the file that the point was reached; the process that waits for it sends SIGCONT later."""
    if fault.argument:
        Path(fault.argument).touch()
    os.kill(os.getpid(), signal.SIGSTOP)


def _raise(fault: Fault) -> None:
    """The error of a broken connection: *unknown* for a tool's call, 'cannot be reached' for a store."""
    if fault.point == CALL:
        raise ConnectionError(f"injected: {fault}")
    raise StoreUnavailable(f"injected: {fault}", hint="this is a test", url="")


class FaultyStore:
    """Any store, with faults around each of its verbs; the point's name is the verb's.

    *Before* an append nothing has left the process; *after* it the store has acknowledged it, but the engine does not
    know that yet.
    """

    def __init__(self, inner: Store, faults: Faults) -> None:
        self.inner = inner
        self.faults = faults
        self.url = inner.url
        self.stops_seen = inner.stops_seen

    async def open(self) -> None:
        """As the inner store."""
        with self.faults.at("open"):
            await self.inner.open()

    async def close(self) -> None:
        """As the inner store."""
        with self.faults.at("close"):
            await self.inner.close()

    async def verify(self) -> None:
        """As the inner store."""
        with self.faults.at("verify"):
            await self.inner.verify()

    async def promise(self) -> StorePromise:
        """As the inner store."""
        with self.faults.at("promise"):
            return await self.inner.promise()

    async def open_lease(
        self, owner: str, ttl_ms: int, partitions: Sequence[int] | None = None, note: bytes = b""
    ) -> int:
        """As the inner store."""
        with self.faults.at("open_lease"):
            return await self.inner.open_lease(owner, ttl_ms, partitions, note)

    async def renew(self, owner: str, ttl_ms: int) -> Renewal:
        """As the inner store."""
        with self.faults.at("renew"):
            return await self.inner.renew(owner, ttl_ms)

    def renew_blocking(
        self, owner: str, ttl_ms: int, limit_s: float, held: Mapping[str, Sequence[str]] | None = None
    ) -> Renewal:
        """As the inner store."""
        with self.faults.at("renew_blocking"):
            return self.inner.renew_blocking(owner, ttl_ms, limit_s, held)

    async def close_lease(self, owner: str, *, clean: bool = False, partitions: Sequence[int] | None = None) -> None:
        """As the inner store."""
        with self.faults.at("close_lease"):
            await self.inner.close_lease(owner, clean=clean, partitions=partitions)

    async def acquire(self, saga_id: str, owner: str, dead_owner: str | None = None) -> Acquired | Held:
        """As the inner store."""
        with self.faults.at("acquire"):
            return await self.inner.acquire(saga_id, owner, dead_owner)

    async def release(self, saga_id: str, epoch: int, due_ms: int = 0) -> None:
        """As the inner store."""
        with self.faults.at("release"):
            await self.inner.release(saga_id, epoch, due_ms)

    async def reserve(self, saga_id: str, digest: str, of: str, ttl_ms: int) -> str:
        """As the inner store."""
        with self.faults.at("reserve"):
            return await self.inner.reserve(saga_id, digest, of, ttl_ms)

    async def append(self, owner: str, entries: Sequence[Entry]) -> AppendReply:
        """As the inner store."""
        with self.faults.at("append"):
            return await self.inner.append(owner, entries)

    async def read(self, saga_id: str, start: int = 0, most: int = 0) -> Sequence[bytes]:
        """As the inner store."""
        with self.faults.at("read"):
            return await self.inner.read(saga_id, start, most)

    async def values(self, saga_id: str, digests: Sequence[str]) -> Mapping[str, bytes]:
        """As the inner store."""
        with self.faults.at("values"):
            return await self.inner.values(saga_id, digests)

    async def head(self, saga_id: str) -> Head:
        """As the inner store."""
        with self.faults.at("head"):
            return await self.inner.head(saga_id)

    async def page(self, status: str, at: PagePlace = PAGE_START) -> tuple[Sequence[Head], PagePlace | None]:
        """As the inner store."""
        with self.faults.at("page"):
            return await self.inner.page(status, at)

    async def list(self, status: str | None = None, limit: int = 1000) -> Sequence[Head]:
        """As the inner store."""
        with self.faults.at("list"):
            return await self.inner.list(status, limit)

    async def search(self, query: Query, after: SearchPlace | None = None) -> tuple[Sequence[Head], SearchPlace | None]:
        """As the inner store."""
        with self.faults.at("search"):
            return await self.inner.search(query, after)

    async def post(self, saga_id: str, message: bytes, *, spare_ms: int = 5_000) -> Head:
        """As the inner store."""
        with self.faults.at("post"):
            return await self.inner.post(saga_id, message, spare_ms=spare_ms)

    async def messages(self, saga_id: str) -> Sequence[bytes]:
        """As the inner store."""
        with self.faults.at("messages"):
            return await self.inner.messages(saga_id)

    def guard_store(self) -> GuardStore:
        """That of the inner store, with a fault point around each verb: ``guard_claim``, ``guard_remember``, ..."""
        return cast("GuardStore", _FaultyVerbs(self.inner.guard_store(), self.faults, "guard"))

    def documents(self) -> DocumentStore:
        """The named documents, with the same faults."""
        return cast("DocumentStore", _FaultyVerbs(self.inner.documents(), self.faults, "document"))

    def value_store(self) -> ValueStore:
        """That of the inner store, with a fault point around each verb: ``value_put`` and ``value_get``."""
        return cast("ValueStore", _FaultyVerbs(self.inner.value_store(), self.faults, "value"))

    def event_store(self) -> EventStore:
        """That of the inner store, with a fault point around each verb: ``event_send``, ``event_register``, ..."""
        return cast("EventStore", _FaultyVerbs(self.inner.event_store(), self.faults, "event"))

    def ended(self) -> EndedStore:
        """That of the inner store, with a fault point around each verb: ``ended_purge``, ``ended_hold``, ..."""
        return cast("EndedStore", _FaultyVerbs(self.inner.ended(), self.faults, "ended"))

    def work(self) -> WorkStore:
        """That of the inner store, with a fault point around each verb: ``work_take``, ``work_reclaim``, ..."""
        return cast("WorkStore", _FaultyVerbs(self.inner.work(), self.faults, "work"))

    def seals(self) -> SealStore:
        """That of the inner store, with a fault point around each verb: ``seal_replace`` and ``seal_erase``."""
        return cast("SealStore", _FaultyVerbs(self.inner.seals(), self.faults, "seal"))


class _FaultyVerbs:
    """Any set of verbs, with faults around each; the point's name is the kind's and the verb's."""

    def __init__(self, inner: Any, faults: Faults, kind: str) -> None:
        self._inner = inner
        self._faults = faults
        self._kind = kind

    def __getattr__(self, name: str) -> Any:
        verb = getattr(self._inner, name)
        if not callable(verb):
            return verb

        async def faulty(*args: Any, **options: Any) -> Any:
            with self._faults.at(f"{self._kind}_{name}"):
                return await verb(*args, **options)

        return faulty
