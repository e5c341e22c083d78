"""A worker: takes sagas from the queue and drives them, up to a configured number at once.

It requests no more than it has room for, so excess sagas wait in the store for any other worker. A saga that waits for
a timer is released and costs nothing here. The worker also searches for dead owners: their sagas return to the queue
when their lease has ended, or at once if they are provably dead.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Final

import msgspec

from saga_engine.errors import Interrupted, LeaseLost, SagaError, SettingInvalid, StoreRefused, StoreUnavailable
from saga_engine.execution.event_loops import happens
from saga_engine.execution.owner import parse, provably_dead, this_process
from saga_engine.execution.result import Handle, SagaResult
from saga_engine.loggers import logger_of
from saga_engine.ports import Hint, Store, Taken, Taking
from saga_engine.ports.machine_clock import machine_clock
from saga_engine.runtime.due_times import AT_ONCE
from saga_engine.runtime.events import BeginLate, Events
from saga_engine.runtime.lease import Lease
from saga_engine.runtime.retention import Purging, keep_purging
from saga_engine.runtime.supervisor import Supervisor
from saga_engine.runtime.ticks import Ticks

_log = logger_of("saga_engine.worker")

#: How long, in seconds, an idle worker waits before it asks again: doubling while there is nothing to do.
_ASK_AGAIN_S: Final = (0.02, 0.25)
#: As long as the store tells it of work, it need not ask so often: only a lost hint waits for this.
_LISTENING_S: Final = 1.0
#: Hints within this time, in seconds, are one request.
_HINTS_APART_S: Final = 0.01
#: The interval, in seconds, at which it searches for dead owners and reports.
_LOOK_ROUND_S: Final = 1.0
_REPORT_TTL_MS: Final = 5_000
#: The interval, in seconds, at which it verifies the store's durability, and looks for events that no saga settled.
_VERIFIED_EVERY_S: Final = 5.0
#: A live process renews its lease within this (see ``Lease``), and some time to spare.
_RENEWED_WITHIN_MS: Final = 1_300
#: How often, in seconds, it looks after an owner that is dead here until that has not renewed its lease for so long,
#: and after how long it says that somebody renews it.
_LOOK_AGAIN_S: Final = 0.25
_RENEWED_ON_S: Final = 5.0
#: How long a worker that ends tries to release what it does not drive, in seconds.
_GIVE_BACK_S: Final = 1.0
#: At most so many sagas come with one response.
_TAKE_AT_ONCE: Final = 256
#: Different reasons why sagas could not be driven here, each logged once.
_MAX_TOLD: Final = 1000


class Report(msgspec.Struct, frozen=True):
    """A worker's report for ``saga top``. The numbers from ``begun`` on count since its start.

    ``driving``: sagas it holds. ``under_way``: calls in flight. ``begun``: effects. ``taken``: sagas from the queue.
    ``returned``: sagas that went back there to wait. ``ended``: sagas by final status. ``refused``: sagas that it could
    not drive because a tool or a secret is missing.
    """

    host: str
    pid: int
    started_ms: int
    concurrency: int
    partitions: Sequence[int]
    driving: int
    under_way: int
    begun: int
    taken: int
    returned: int
    refused: int
    ended: dict[str, int]


def served(count: int, concurrency: int, partitions: Iterable[int] | None) -> list[int]:
    """The partitions of the queue that a worker serves, of ``count``. Raises ``SettingInvalid``."""
    chosen = sorted(set(range(count) if partitions is None else partitions))
    if concurrency < 1:
        raise SettingInvalid("a worker needs a concurrency of 1 or more", concurrency=concurrency)
    if not chosen or not 0 <= chosen[0] <= chosen[-1] < count:
        raise SettingInvalid(
            f"the store has the partitions 0 to {count - 1}, and a worker serves at least one of them",
            hint="omit the partitions to serve all",
            partitions=chosen,
        )
    return chosen


class Worker:
    """Drives up to ``concurrency`` sagas of ``partitions`` at a time. ``run`` it once."""

    def __init__(
        self,
        store: Store,
        supervisor: Supervisor,
        *,
        concurrency: int,
        partitions: Sequence[int],
        begin_late: BeginLate,
        ticks: Ticks | None = None,
        purging: Purging | None = None,
    ) -> None:
        self._ticks = ticks
        self._purging = purging
        self._work = store.work()
        self._supervisor = supervisor
        self._events = Events(store, supervisor, begin_late)
        self._concurrency = concurrency
        self._partitions = list(partitions)
        self._stopping = asyncio.Event()
        self._finished = asyncio.Event()
        self._room = asyncio.Event()
        self._listening = False
        self._hinted = False
        self._owner = ""
        self._active = 0
        self._nonce = ""
        self._away = False
        self._counts: Counter[str] = Counter()
        self._ended: Counter[str] = Counter()
        self._told: set[str] = set()
        #: Owners that are dead here, by the time when that was first seen.
        self._suspects: dict[str, float] = {}
        self._started_ms = 0

    @property
    def taking(self) -> bool:
        """Whether it takes sagas now: it has a lease, the store answers, and nobody has stopped it."""
        return bool(self._started_ms) and not (self._away or self._stopping.is_set())

    async def stop(self) -> None:
        """Take nothing more, and have ``run`` return. The supervisor drains the driven sagas when it closes."""
        self._stopping.set()
        self._room.set()
        await self._finished.wait()

    async def run(self) -> Report:
        """Take and drive sagas until ``stop``. Waits for as long as an outage of the store lasts.

        Returns the last report; sagas that are drained later are not counted in it. Raises ``Interrupted`` if the
        coordinator is being closed already.
        """
        if self._supervisor.closing:
            self._finished.set()
            raise Interrupted("the coordinator is closing", hint="open another one")
        rounds = [asyncio.create_task(each, name="saga-worker-rounds") for each in self._chores()]
        turns = asyncio.create_task(self._take_turns(), name="saga-worker-turns")
        hints = asyncio.create_task(self._listen(), name="saga-worker-hints")
        beside = [*rounds, hints]
        if self._purging is not None:
            beside.append(asyncio.create_task(keep_purging(self._purging, self._stopping), name="saga-worker-purging"))
        try:
            await asyncio.shield(turns)
        except asyncio.CancelledError:
            # A request whose response is not awaited would take sagas that no process drives.
            self._stopping.set()
            self._room.set()
            await turns
            raise
        finally:
            self._stopping.set()  # a client may swallow the one cancellation that is sent
            turns.cancel()
            for task in beside:
                task.cancel()
            try:
                await asyncio.gather(turns, *beside, return_exceptions=True)
                await self._give_back()
            finally:
                self._finished.set()  # also if it is cancelled once more: the code that stops it waits for this
        return self._report(str(this_process()))

    # --- taking --------------------------------------------------------------------------------------------------

    async def _take_turns(self) -> None:
        loop = asyncio.get_running_loop()
        pause_s = _ASK_AGAIN_S[0]
        while not self._stopping.is_set():
            self._room.clear()  # before it is counted: a saga that ends during the request is noticed
            free = self._concurrency - self._active
            if free <= 0:
                # Not for ever: a little room that long sagas leave is room as well.
                await happens(self._room, _ASK_AGAIN_S[1])
                continue
            asked_s = loop.time()
            taking = await self._ask(min(free, _TAKE_AT_ONCE))
            if taking is not None and taking.sagas:
                pause_s = _ASK_AGAIN_S[0]
                if len(taking.sagas) == min(free, _TAKE_AT_ONCE) < free:
                    continue  # there may be more
            else:
                pause_s = min(pause_s * 2, _LISTENING_S if self._listening else _ASK_AGAIN_S[1])
            await happens(self._room, self._until_next(taking, pause_s))
            if self._hinted:
                self._hinted = False
                await happens(self._stopping, asked_s + _HINTS_APART_S - loop.time())

    async def _listen(self) -> None:
        try:
            await self._work.listen(list(self._partitions), self._heard)
        except Exception:  # noqa: BLE001 - without hints it asks more often
            self._heard(None)
            _log.exception("no hints of work; asking for it instead")

    def _heard(self, hint: Hint | None) -> None:
        """Ask at once, or look at a saga's messages: the store says that there is something."""
        self._listening = hint is not None
        if hint is None or not hint.owner:
            self._hinted = True
            self._room.set()
        elif hint.owner == self._owner:
            self._supervisor.notify(hint.saga_id)

    def _until_next(self, taking: Taking | None, pause_s: float) -> float:
        if taking is None or taking.next_due_ms is None:
            return pause_s
        if self._counts["refused"]:
            return pause_s  # what was refused here is offered again at its time: workers that can drive it come first
        return min(pause_s, max((taking.next_due_ms - taking.now_ms) / 1000, _ASK_AGAIN_S[0]))

    async def _ask(self, limit: int) -> Taking | None:
        """Take some sagas and start to drive them; None if the store, or our lease, is unavailable."""
        if not self._nonce:
            self._partitions.append(self._partitions.pop(0))  # each partition is the first to be served in its turn
        try:
            lease = await self._lease()
            partitions = self._covered(lease)
            if not partitions:
                return None
            # The same nonce until there was a response: what a lost one took is ours, and must not stay undriven.
            self._nonce = self._nonce or secrets.token_hex(8)
            taking = await self._work.take(lease.owner, self._nonce, limit, partitions)
        except (StoreUnavailable, StoreRefused) as error:
            if not self._away:
                _log.warning("no work can be had; asking on: %s", error)
            self._away = True
            return None
        if self._away:
            _log.warning("work can be had again")
            self._away = False
        self._nonce = ""
        if not taking.alive:
            lease.lose(taking.ended)
            if not taking.sagas:
                return None
        self._supervisor.clock.set(taking.now_ms)
        for taken in taking.sagas:
            self._begin(taken, lease.owner)
        return taking

    def _begin(self, taken: Taken, owner: str) -> None:
        if self._stopping.is_set():
            self._supervisor.pending.add(taken.saga_id, taken.epoch, AT_ONCE)
            return
        try:
            handle = self._supervisor.adopt(taken, owner)
        except Interrupted:
            return  # the coordinator is being closed, and releases it
        self._active += 1
        self._counts["taken"] += 1
        handle.when_done(partial(self._done, handle))

    def _covered(self, lease: Lease) -> Sequence[int]:
        """Its partitions, but for those of a server that is away: what it took from there is nobody's in the end."""
        return [number for number in self._partitions if lease.covers(number)]

    async def _lease(self) -> Lease:
        lease = await self._supervisor.lease()
        self._owner = lease.owner
        self._started_ms = self._started_ms or self._supervisor.clock.now_ms()  # only now the store's clock is known
        return lease

    async def _give_back(self) -> None:
        """Before the end: release what is ours and not driven, also what a request took whose response was lost."""
        try:
            async with asyncio.timeout(_GIVE_BACK_S):
                if self._nonce:
                    self._supervisor.pending.unsure()  # the request itself may still be on its way to the store
                    lease = await self._supervisor.lease()
                    for taken in (await self._work.take(lease.owner, self._nonce, 0, self._covered(lease))).sagas:
                        self._supervisor.pending.add(taken.saga_id, taken.epoch, AT_ONCE)
                await self._supervisor.pending.settle()
        except (TimeoutError, SagaError) as error:
            _log.warning("sagas could not be given back yet: %s", error or "the store does not answer")

    def _done(self, handle: Handle) -> None:
        self._active -= 1
        if self._active <= self._concurrency * 3 // 4:  # not one round trip for each saga that ends
            self._room.set()
        found = handle.found()
        if isinstance(found, SagaResult):
            if found.ended:
                self._ended[found.status] += 1
                _log.info(
                    "saga %s ended: %s",
                    found.saga_id,
                    found.status,
                    extra={"saga_id": found.saga_id, "status": found.status},
                )
            else:
                self._counts["returned"] += 1
        elif isinstance(found, Exception) and not isinstance(found, LeaseLost | Interrupted | StoreUnavailable):
            self._refused(found)

    def _refused(self, error: Exception) -> None:
        self._counts["refused"] += 1
        reason = f"{type(error).__name__} {getattr(error, 'context', {}).get('tools', '')}"
        if reason not in self._told and len(self._told) < _MAX_TOLD:
            self._told.add(reason)
            _log.warning("a saga went back into the queue, and so will others for the same reason: %s", error)

    # --- looking after the others --------------------------------------------------------------------------------

    def _chores(self) -> Iterator[Coroutine[Any, Any, None]]:
        """What it does besides its sagas, each in its own time: what one of them needs may be away for the others."""
        yield self._regularly(self._reclaim, hurried=self._suspects_lately)
        yield self._regularly(self._tell)
        yield self._regularly(self._tell_again, _VERIFIED_EVERY_S)
        yield self._regularly(self._supervisor.verify_store, _VERIFIED_EVERY_S, first_s=_VERIFIED_EVERY_S)
        if self._ticks is not None:
            yield self._regularly(self._ticks.fire)

    async def _regularly(
        self,
        chore: Callable[[], Awaitable[None]],
        every_s: float = _LOOK_ROUND_S,
        *,
        first_s: float = 0.0,
        hurried: Callable[[], bool] = lambda: False,
    ) -> None:
        if first_s:
            await happens(self._stopping, first_s)
        while not self._stopping.is_set():
            try:
                await chore()
            except (StoreUnavailable, StoreRefused) as error:
                _log.info("a worker's chore has to wait: %s", error)
            except Exception:  # noqa: BLE001 - the next round may do better, and sagas of the dead wait for it
                _log.exception("a worker's chore failed")
            await happens(self._stopping, _LOOK_AGAIN_S if hurried() else every_s)

    async def _tell_again(self) -> None:
        """Bring sagas the events of which their senders could not tell them."""
        await self._events.tell_again(self._covered(await self._lease()))

    async def _reclaim(self) -> None:
        """Put the sagas of dead owners back into the queue.

        If this machine is a clone that was made while it ran, a process that is dead here may live on the other one,
        and renew its lease: its sagas are left to it.
        """
        lease = await self._supervisor.lease()
        partitions = self._covered(lease)
        suspects, self._suspects = self._suspects, {}
        for owner, ttl_ms in (await self._work.owners(partitions)).items():
            if owner == lease.owner:
                continue
            dead = ttl_ms > 0 and provably_dead(owner)
            if dead:
                self._suspects[owner] = suspects.get(owner, machine_clock.boottime())
                self._tell_of_clone(owner)
            if ttl_ms == 0 or dead:
                count = await self._work.reclaim(owner, partitions, dead=dead, silent_ms=_RENEWED_WITHIN_MS)
                if count:
                    _log.warning("%d sagas of %s, which is gone, are back in the queue", count, owner)
                    self._room.set()

    def _suspects_lately(self) -> bool:
        """Whether an owner was found dead a moment ago: its lease may still be too fresh to show it."""
        return any(machine_clock.boottime() - since_s < _RENEWED_ON_S for since_s in self._suspects.values())

    def _tell_of_clone(self, owner: str) -> None:
        if (
            machine_clock.boottime() - self._suspects[owner] < _RENEWED_ON_S
            or owner in self._told
            or len(self._told) >= _MAX_TOLD
        ):
            return
        self._told.add(owner)
        _log.warning(
            "%s runs no more here, and yet its lease is renewed: its sagas are left to it (is this a clone?)", owner
        )

    async def _tell(self) -> None:
        owner = (await self._lease()).owner
        await self._work.report(owner, msgspec.json.encode(self._report(owner)), _REPORT_TTL_MS)

    def _report(self, owner: str) -> Report:
        me = parse(owner)
        driving, under_way, begun = self._supervisor.count()
        return Report(
            host="" if me is None else me.host,
            pid=0 if me is None else me.pid,
            started_ms=self._started_ms,
            concurrency=self._concurrency,
            partitions=sorted(self._partitions),
            driving=driving,
            under_way=under_way,
            begun=begun,
            taken=self._counts["taken"],
            returned=self._counts["returned"],
            refused=self._counts["refused"],
            ended=dict(self._ended),
        )
