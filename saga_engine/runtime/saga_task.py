"""One saga of the supervisor: awake with a task, or asleep with an alarm."""

from __future__ import annotations

import asyncio
from contextvars import Context

from saga_engine.execution.result import Handle, SagaResult
from saga_engine.runtime.driver import Link, SagaDriver


class Running:
    """A saga of this process: its current driver, and the handle of those who wait for it."""

    __slots__ = (
        "alarm",
        "begun",
        "context",
        "detached",
        "digest",
        "driver",
        "future",
        "handle",
        "link",
        "lost",
        "queued",
        "reason",
        "saga_id",
        "task",
        "waking",
    )

    def __init__(
        self,
        saga_id: str,
        *,
        digest: str = "",
        link: Link | None = None,
        queued: bool = False,
        detached: bool = False,
    ) -> None:
        """``digest``: of a new saga, whose handle learns when it is journalled."""
        self.saga_id = saga_id
        self.digest = digest
        #: It came from the queue and has no waiter here: if it need not stay, it returns there.
        self.queued = queued
        #: It is only being queued.
        self.detached = detached
        #: To the agent of a session.
        self.link = link
        self.future: asyncio.Future[SagaResult] = asyncio.get_running_loop().create_future()
        self.handle = Handle(saga_id, self.future, journalled=not digest)
        self.driver: SagaDriver | None = None
        #: None while it sleeps; then ``alarm`` wakes it.
        self.task: asyncio.Task[None] | None = None
        self.alarm: asyncio.TimerHandle | None = None
        self.context: Context | None = None
        #: It has been woken, and its task has not started yet.
        self.waking = False
        self.lost = False
        #: A driver of it has run here.
        self.begun = False
        #: Why it had to be taken over again from its journal here, if that is known.
        self.reason = ""

    @property
    def asleep(self) -> bool:
        """Whether it waits for a distant timer and holds no task."""
        return self.alarm is not None

    def stay(self) -> None:
        """A caller waits for it here now: it stays until it ends or rests."""
        self.queued = False
        if self.driver is not None:
            self.driver.stay()

    def fail(self, error: Exception) -> None:
        """Pass an error to the waiters, if there are any."""
        if not self.future.done():
            self.future.set_exception(error)
            self.future.exception()  # if it has no waiter, its journal says so: asyncio need not warn
