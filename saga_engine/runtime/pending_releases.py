"""Pending releases: sagas that this process owns and does not drive, until the store has recorded it.

A saga is released when its driver has ended in an outage or a defect. A release is pending if the store could not be
reached, or if the response was lost that would have made a saga ours. Until it is done the saga stands still, because
its owner seems to be alive.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from saga_engine.errors import SagaError, SagaNotFound, StoreUnavailable
from saga_engine.loggers import logger_of
from saga_engine.ports import Store, parts_of

_log = logger_of("saga_engine")

#: How long, in seconds, a request to the store may take before the release is pending.
_PATIENCE_S = 1.0
#: The epoch of a saga that may be ours: the response that would say so was lost.
_UNKNOWN = -1
#: The interval, in seconds, at which pending releases are repeated.
_AGAIN_S = 1.0


class PendingReleases:
    """Pending releases, by saga. ``owner`` returns this process's owner; ``drives`` whether it drives a saga now."""

    def __init__(self, store: Store, owner: Callable[[], str], drives: Callable[[str], bool]) -> None:
        self._store = store
        self._part_of = parts_of(store)
        self._owner = owner
        self._drives = drives
        self._pending: dict[str, tuple[int, int]] = {}
        self._unsure = False
        self._timer: asyncio.TimerHandle | None = None
        self._settling: asyncio.Task[None] | None = None

    @property
    def none(self) -> bool:
        """Whether this process owns nothing that it does not drive, as far as it can know."""
        return not (self._pending or self._unsure)

    async def release(self, saga_id: str, epoch: int, due_ms: int) -> None:
        """Release a saga that needs a worker at ``due_ms``; it is pending if the store cannot be reached."""
        try:
            await asyncio.wait_for(self._store.release(saga_id, epoch, due_ms), _PATIENCE_S)
        except (SagaError, TimeoutError) as error:
            self.add(saga_id, epoch, due_ms)
            _log.info("saga %s could not be given up yet (%s)", saga_id, error)

    def add(self, saga_id: str, epoch: int, due_ms: int) -> None:
        """Add a pending release of a saga that is ours. The latest epoch of a saga counts."""
        known = self._pending.get(saga_id)
        if known is None or (known[0] != _UNKNOWN and known[0] <= epoch):
            self._pending[saga_id] = (epoch, due_ms)
        self._settle_soon()

    def add_unsure(self, saga_id: str, due_ms: int) -> None:
        """Add a pending release of a saga that may be ours, at an unknown epoch."""
        self._pending[saga_id] = (_UNKNOWN, due_ms)  # it covers every epoch that was known before
        self._settle_soon()

    def unsure(self) -> None:
        """This process may own sagas that it does not know of: when its lease ends, others must search for them."""
        self._unsure = True

    def clear(self) -> None:
        """Drop all pending releases: when the lease ended, its sagas lost their owner."""
        self._pending.clear()

    async def settle(self) -> None:
        """Do the pending releases. Raises the first error; what failed is still pending.

        Neither a server that is unavailable nor a saga with damaged keys delays the releases of other sagas.
        """
        away: set[int] = set()
        errors: list[SagaError] = []
        for saga_id, release in list(self._pending.items()):
            part = self._part_of(saga_id)
            if part in away or (release[0] == _UNKNOWN and self._drives(saga_id)):
                continue  # its driver may still fail before it has learned at which epoch the saga is ours
            try:
                await self._settle_one(saga_id, *release)
            except SagaError as error:
                errors.append(error)
                if isinstance(error, StoreUnavailable):
                    away.add(part)
                continue
            if self._pending.get(saga_id) == release:
                del self._pending[saga_id]
        if errors:
            raise errors[0]

    async def _settle_one(self, saga_id: str, epoch: int, due_ms: int) -> None:
        if epoch == _UNKNOWN:
            try:
                head = await self._store.head(saga_id)
            except SagaNotFound:
                return
            if head.owner != self._owner() or self._drives(saga_id):
                return  # it is not ours, or not a pending release any more
            epoch = head.epoch
        await self._store.release(saga_id, epoch, due_ms)

    async def settle_at_the_end(self) -> None:
        """Try once more at the end; workers find what is still pending then."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._settling is not None:
            self._settling.cancel()
            await asyncio.gather(self._settling, return_exceptions=True)
            self._settling = None
        if not self._pending:
            return
        try:
            await asyncio.wait_for(self.settle(), _PATIENCE_S)
        except (SagaError, TimeoutError) as error:
            _log.info("sagas could not be given up (%s); workers find them", error)

    def _settle_soon(self) -> None:
        if self._timer is not None or self._settling is not None:
            return
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return  # the loop was torn down under a saga: workers find it
        self._timer = loop.call_later(_AGAIN_S, self._settle_now)

    def _settle_now(self) -> None:
        self._timer = None
        task = asyncio.create_task(self._settle_and_again(), name="saga-releases")
        self._settling = None if task.done() else task  # an eager task may have ended already

    async def _settle_and_again(self) -> None:
        try:
            await self.settle()
        except SagaError as error:
            _log.info("sagas could not be given up yet (%s)", error)
        finally:
            self._settling = None
        if self._pending:
            self._settle_soon()
