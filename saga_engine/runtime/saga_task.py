"""One saga of the supervisor: awake with a task, or asleep with an alarm."""

from __future__ import annotations

import asyncio
from contextvars import Context

from saga_engine.execution.result import SagaResult
from saga_engine.runtime.driver import Link, SagaDriver


class Running:
    """A saga of this process: its current driver and its waiters."""

    __slots__ = (
        "alarm",
        "begun",
        "context",
        "detached",
        "digest",
        "driver",
        "future",
        "journalled",
        "link",
        "lost",
        "queued",
        "reason",
        "task",
        "waking",
    )

    def __init__(self, digest: str, link: Link | None = None, *, queued: bool = False) -> None:
        self.digest = digest
        #: It came from the queue and has no waiter here: if it need not stay, it returns there.
        self.queued = queued
        #: To the agent of a session.
        self.link = link
        self.future: asyncio.Future[SagaResult] = asyncio.get_running_loop().create_future()
        self.driver: SagaDriver | None = None
        #: None while it sleeps; then ``alarm`` wakes it.
        self.task: asyncio.Task[None] | None = None
        self.alarm: asyncio.TimerHandle | None = None
        self.context: Context | None = None
        #: It has been woken, and its task has not started yet.
        self.waking = False
        self.lost = False
        #: It is only being queued.
        self.detached = False
        #: A driver of it has run here.
        self.begun = False
        #: Why it had to be taken over again from its journal here, if that is known.
        self.reason = ""
        #: Resolved when the saga is in the store, for a submission that waits only for that.
        self.journalled: asyncio.Future[None] | None = None

    async def created(self) -> None:
        """Wait until a saga that is only being queued is in the queue, or could not be."""
        assert self.task is not None
        await asyncio.wait([self.task])

    def stay(self) -> None:
        """A caller waits for it here now: it stays until it ends or rests."""
        self.queued = False
        if self.driver is not None:
            self.driver.stay()
