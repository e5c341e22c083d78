"""Sessions for agents that are not coroutines: one event loop in a thread of its own, with the same engine.

Every call of a ``SyncSession`` is a call of the same ``Session``, run in that loop, with this thread waiting for it.
Several threads may call at once. Calls are numbered as they arrive, so an agent whose threads race cannot be resumed
strictly.
"""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, overload

from saga_engine.agents.replaying import replayed
from saga_engine.api import Coordinator
from saga_engine.errors import Interrupted
from saga_engine.execution.result import SagaResult
from saga_engine.runtime.session import Savepoint, Session
from saga_engine.runtime.session_calls import NumberedOutput, Undo, by_name, params_of
from saga_engine.runtime.session_options import Diverging, OnFailure
from saga_engine.tools.decorator import Tool

if TYPE_CHECKING:
    from saga_engine.plan.tool_spec import Effect
    from saga_engine.ports import Store
    from saga_engine.tools.registry import ToolRegistry

_T = TypeVar("_T")
_F = TypeVar("_F", bound=Callable[..., Any])


class SyncSession:
    """A ``Session`` whose methods block, for code that runs in another thread than the session's event loop.

    ``sync_session`` makes one with a loop of its own. In an async program a blocking agent runs in a thread, with
    ``SyncSession(session, asyncio.get_running_loop())``. The methods raise the errors of ``Session``'s, and
    ``RuntimeError`` in the loop's own thread, which would wait for itself.
    """

    def __init__(self, session: Session, loop: asyncio.AbstractEventLoop) -> None:
        #: The session behind it; it belongs to the event loop.
        self.session = session
        self._loop = loop

    @property
    def saga_id(self) -> str:
        """The id of the session's saga."""
        return self.session.saga_id

    @property
    def divergence(self) -> str | None:
        """How a resumed agent diverged, as a message."""
        return self.session.divergence

    def call(
        self,
        tool: str | Callable[..., Any],
        /,
        params: Mapping[str, Any] | None = None,
        *,
        undo: str | Callable[..., Any] | Undo | tuple[str, Mapping[str, Any]] | None = None,
        irreversible: bool = False,
        timeout_s: float | None = None,
        **named: Any,
    ) -> Any:
        """Run ``Session.call`` and wait for it."""
        call = functools.partial(self.session.call, tool, params, undo=undo, irreversible=irreversible)
        return self.run(lambda: call(timeout_s=timeout_s, **named))

    def numbered_call(
        self, tool: str | Callable[..., Any], params: Mapping[str, Any], *, irreversible: bool = False
    ) -> NumberedOutput:
        """Run ``Session.numbered_call`` and wait for it."""
        return self.run(lambda: self.session.numbered_call(tool, params, irreversible=irreversible))

    def ask(
        self,
        question: str,
        *,
        options: Sequence[str] | None = None,
        schema: Mapping[str, Any] | None = None,
        expires_s: float | None = None,
        on_timeout: Mapping[str, Any] | None = None,
        to: str | None = None,
    ) -> Any:
        """Run ``Session.ask`` and wait for it."""
        ask = functools.partial(self.session.ask, question, options=options, schema=schema)
        return self.run(lambda: ask(expires_s=expires_s, on_timeout=on_timeout, to=to))

    def step(self, word: str, body: Any) -> Any:
        """Run ``Session.step`` and wait for it."""
        return self.run(lambda: self.session.step(word, body))

    def sleep(self, duration: float | str | None = None, *, until: str | None = None) -> None:
        """Run ``Session.sleep`` and wait for it."""
        self.run(lambda: self.session.sleep(duration, until=until))

    def wait_for(
        self,
        event: str | None = None,
        *,
        first: Sequence[str | Mapping[str, Any]] | None = None,
        all_of: Sequence[str | Mapping[str, Any]] | None = None,
        key: str | int | None = None,
        schema: Mapping[str, Any] | None = None,
        timeout_s: float | None = None,
        on_timeout: Mapping[str, Any] | None = None,
        undo: tuple[str, Mapping[str, Any]] | None = None,
        on_late: tuple[str, Mapping[str, Any]] | None = None,
    ) -> Any:
        """Run ``Session.wait_for`` and wait for it."""
        wait_for = functools.partial(self.session.wait_for, event, first=first, all_of=all_of, key=key, schema=schema)
        in_vain = functools.partial(wait_for, timeout_s=timeout_s, on_timeout=on_timeout)
        return self.run(lambda: in_vain(undo=undo, on_late=on_late))

    def saga(
        self,
        plan: Any = None,
        *,
        template: str | None = None,
        input: Mapping[str, Any] | None = None,  # noqa: A002 - the plan's own word
    ) -> Any:
        """Run ``Session.saga`` and wait for it."""
        return self.run(lambda: self.session.saga(plan, template=template, input=input))

    @overload
    def tool(
        self, function: _F, /, *, undo: Any = None, irreversible: bool = False, effect: Effect | None = None
    ) -> _F: ...

    @overload
    def tool(
        self, function: None = None, /, *, undo: Any = None, irreversible: bool = False, effect: Effect | None = None
    ) -> Callable[[_F], _F]: ...

    def tool(
        self,
        function: Any = None,
        /,
        *,
        undo: Any = None,
        irreversible: bool = False,
        effect: Effect | None = None,
    ) -> Any:
        """``Session.tool``, with a function that blocks."""
        if function is None:
            return functools.partial(self.tool, undo=undo, irreversible=irreversible, effect=effect)
        given = function if effect is None else Tool(function, effect=effect)

        async def bring() -> None:
            self.session.bring(undo, given)

        self.run(bring)
        inner = getattr(given, "function", given)
        signature = by_name(inner)

        @functools.wraps(inner)
        def call(*args: Any, **named: Any) -> Any:
            return self.call(given, params_of(signature, args, named), undo=undo, irreversible=irreversible)

        return call

    def savepoint(self) -> Savepoint:
        """``Session.savepoint``."""

        async def point() -> Savepoint:
            return self.session.savepoint()

        return self.run(point)

    def rollback(self, to: Savepoint | None = None) -> SagaResult | None:
        """Run ``Session.rollback`` and wait for it."""
        return self.run(lambda: self.session.rollback(to))

    def run(self, work: Callable[[], Coroutine[Any, Any, _T]]) -> _T:
        """Run ``work`` in the session's event loop and wait for it."""
        if asyncio._get_running_loop() is self._loop:  # noqa: SLF001 - the public one raises where there is none
            raise RuntimeError("a blocking call in the session's own event loop would wait for itself: use its session")
        return asyncio.run_coroutine_threadsafe(work(), self._loop).result()


@contextmanager
def sync_session(
    saga_id: str | None = None,
    *,
    store: str | Store = "embedded://.saga",
    tools: Iterable[Any] | ToolRegistry = (),
    goal: str = "",
    on_divergence: Diverging = "strict",
    on_failure: OnFailure | None = None,
    idle_s: float | None = None,
    deadline_s: float | None = None,
    max_tool_calls: int | None = None,
    tags: Sequence[str] = (),
    observe: bool | None = None,
    replay: str | Path | None = None,
    **options: Any,
) -> Iterator[SyncSession]:
    """A session for a blocking agent.

    ``with sync_session("trip", tools=[book, cancel]) as s: s.call("book", what="hotel")``

    ``options`` are the other arguments of ``Coordinator.open``; the rest are those of ``Coordinator.session``. An
    exception that leaves the block is raised again after the session was compensated, or kept (``on_failure``).
    Raises the errors of ``Coordinator.open`` and ``Coordinator.session``.
    """

    @asynccontextmanager
    async def opened() -> AsyncIterator[Session]:
        if replay is not None:  # no store is opened
            async with replayed(replay, tools, saga_id=saga_id) as again:
                yield again
            return
        async with (
            Coordinator.open(store, tools, **options) as coordinator,
            coordinator.session(
                saga_id,
                goal=goal,
                on_divergence=on_divergence,
                on_failure=on_failure,
                idle_s=idle_s,
                deadline_s=deadline_s,
                max_tool_calls=max_tool_calls,
                tags=tags,
                observe=observe,
            ) as session,
        ):
            yield session

    bridge = _Bridge(opened())
    try:
        session = bridge.begin()
    except BaseException:
        bridge.leave(Interrupted("the session was left before it had begun"))
        raise
    try:
        yield session
    except BaseException as error:
        bridge.end(error)
        raise
    bridge.end(None)


class _Bridge:
    """A thread with an event loop that opens a session, keeps it open while its block runs elsewhere, and closes it."""

    def __init__(self, manager: AbstractAsyncContextManager[Session]) -> None:
        self._manager = manager
        self._begun: Future[SyncSession] = Future()
        self._left: Future[BaseException | None] = Future()
        self._ended: Future[None] = Future()
        # A daemon: a program that is interrupted twice must be able to end, as if it had crashed.
        self._thread = threading.Thread(target=self._run, name="saga-session", daemon=True)

    def begin(self) -> SyncSession:
        """Open the session. Raises the error that prevents it."""
        self._thread.start()
        return self._begun.result()

    def leave(self, error: BaseException | None) -> None:
        """Record that the block was left, and how."""
        self._left.set_result(error)

    def end(self, error: BaseException | None) -> None:
        """Leave the block and wait until the session is closed. Raises its errors."""
        self.leave(error)
        self._ended.result()

    def _run(self) -> None:
        try:
            asyncio.run(self._live())
        except BaseException as error:  # noqa: BLE001 - it is raised again in the thread that waits
            (self._ended if self._begun.done() else self._begun).set_exception(error)
        else:
            self._ended.set_result(None)

    async def _live(self) -> None:
        session = await self._manager.__aenter__()
        self._begun.set_result(SyncSession(session, asyncio.get_running_loop()))
        error = await asyncio.wrap_future(self._left)
        # Passed to the session and never raised in this task: an interrupt would end the loop before the undos.
        await self._manager.__aexit__(type(error) if error else None, error, error.__traceback__ if error else None)
