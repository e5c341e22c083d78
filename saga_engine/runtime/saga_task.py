"""One saga of the supervisor: awake with a task, or asleep with an alarm."""

from __future__ import annotations

import asyncio
from contextvars import Context
from dataclasses import dataclass, field

from saga_engine.execution.result import Handle, SagaResult
from saga_engine.runtime.driver import SagaDriver
from saga_engine.runtime.link import Link


@dataclass(slots=True, eq=False)
class Running:
    """A saga of this process: its current driver, and the handle of those who wait for it."""

    saga_id: str
    #: Of a new saga, whose handle learns when it is journalled.
    digest: str = ""
    #: To the agent of a session.
    link: Link | None = None
    #: It came from the queue and has no waiter here: if it need not stay, it returns there.
    queued: bool = False
    #: It is only being queued.
    detached: bool = False
    future: asyncio.Future[SagaResult] = field(init=False)
    handle: Handle = field(init=False)
    driver: SagaDriver | None = None
    #: None while it sleeps; then ``alarm`` wakes it.
    task: asyncio.Task[None] | None = None
    alarm: asyncio.TimerHandle | None = None
    context: Context | None = None
    #: It has been woken, and its task has not started yet.
    waking: bool = False
    #: Its lease was lost, and its task has been cancelled for that.
    lost: bool = False
    #: A driver of it has run here.
    begun: bool = False
    #: Why it had to be taken over again from its journal here, if that is known.
    reason: str = ""

    def __post_init__(self) -> None:
        self.future = asyncio.get_running_loop().create_future()
        self.handle = Handle(self.saga_id, self.future, journalled=not self.digest)

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
