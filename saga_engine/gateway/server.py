"""The MCP server of the gateway: requests of the agent's client become calls of its saga."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

from mcp import MCPError
from mcp.server.lowlevel import Server
from mcp_types import INVALID_PARAMS, CallToolRequestParams, PaginatedRequestParams

from saga_engine._version import __version__
from saga_engine.api import Coordinator
from saga_engine.errors import CallFailed, Interrupted, SagaError
from saga_engine.gateway.answers import COMPLETE, pending, refusal, result
from saga_engine.gateway.elicitation import Clients, can_be_asked
from saga_engine.gateway.offer import Offered, offered, servers_in
from saga_engine.gateway.own_tools import INSTRUCTIONS, OWN_TOOLS, call_own, is_own
from saga_engine.gateway.parts import MOST_BYTES
from saga_engine.gateway.visit import is_gone, traced, visit_of
from saga_engine.gateway.work import Call, EndPolicy, Pending, Work
from saga_engine.loggers import logger_of

if TYPE_CHECKING:
    from mcp.server.context import ServerRequestContext

    from saga_engine.tools.registry import ToolRegistry

_log = logger_of("saga_engine.gateway")

#: How often a client that asked for progress hears of a call in flight.
HEARTBEAT_S: Final = 5.0

CallHandler = Callable[[Any, CallToolRequestParams], Awaitable[Any]]


class Offer:
    """What a gateway offers to every agent: the tools of a registry, and its own.

    ``undos``: also those that only undo or probe others.
    """

    def __init__(self, tools: ToolRegistry, *, undos: bool = False) -> None:
        self.tools: Mapping[str, Offered] = offered(tools, undos=undos)
        for server in servers_in(tools):
            server.whole_answers = True
        self._listed = [*(each.declared for each in self.tools.values()), *OWN_TOOLS]

    async def listed(self, _: ServerRequestContext[Any], __: PaginatedRequestParams | None) -> Any:
        """The answer to ``tools/list``. It is the same for every connection, and no call changes it."""
        return {"tools": self._listed, **COMPLETE, "ttlMs": 0, "cacheScope": "private"}

    def server(self, call: CallHandler) -> Server:
        """The SDK's server, which gives the calls to ``call``."""
        return Server(
            "saga", version=__version__, instructions=INSTRUCTIONS, on_list_tools=self.listed, on_call_tool=traced(call)
        )


class Gateway:
    """Serves the tools of a coordinator to the agents of one saga. ``idle_s``: 0 is for ever.

    ``ask_client_s``: how long a client's user is asked about a call that needs approval; 0: only operators are asked.
    ``most_bytes``: a longer answer is given in parts; 0: none is.
    """

    def __init__(
        self,
        coordinator: Coordinator,
        work: Work,
        *,
        at_end: EndPolicy = "keep",
        idle_s: float = 0.0,
        heartbeat_s: float = HEARTBEAT_S,
        offer: Offer | None = None,
        ask_client_s: float = 0.0,
        most_bytes: int = MOST_BYTES,
    ) -> None:
        self.offer = offer or Offer(coordinator.tools)
        self._work = work
        self._at_end: EndPolicy = at_end
        self._idle_s = idle_s
        self._heartbeat_s = heartbeat_s
        self._most_bytes = most_bytes
        self._clients = Clients(coordinator, ask_client_s) if ask_client_s else None
        self._active = 0
        self._touched = asyncio.Event()
        self._calls: set[asyncio.Task[Any]] = set()

    @property
    def active(self) -> bool:
        """Whether an agent waits for an answer, or a call that an agent made is still under way."""
        return bool(self._active or self._calls)

    @property
    def may_be_left(self) -> bool:
        """Whether nothing is lost if this process works on the saga no more: it stays as it is, or has not begun."""
        return not self.active and (self._at_end == "keep" or not self._work.touched)

    async def serve(self, read_stream: Any, write_stream: Any) -> None:
        """Serve a client until it disconnects; then the policy for the end applies."""
        server = self.offer.server(self.call)
        async with self.opened():
            await server.run(read_stream, write_stream, server.create_initialization_options())

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[CallHandler]:
        """What answers the calls of an agent, or of several, in a block; after it the policy for the end applies."""
        idle = asyncio.create_task(self._watch(), name="saga-mcp-idle") if self._idle_s else None
        try:
            yield self.call
        finally:
            if idle is not None:
                idle.cancel()
                await asyncio.wait([idle])
            await asyncio.shield(self._end())

    async def _end(self) -> None:
        await self._work.end(self._at_end)
        for task in self._calls:
            task.cancel()
        await asyncio.gather(*self._calls, return_exceptions=True)

    async def call(self, ctx: ServerRequestContext[Any], params: CallToolRequestParams) -> Any:
        """Answer a call of a tool."""
        arguments = params.arguments or {}
        self._active += 1
        self._touched.set()
        try:
            if is_own(params.name):
                try:
                    return await self._waited(ctx, params.name, call_own(self._work, params.name, arguments))
                except ValueError as error:
                    raise MCPError(code=INVALID_PARAMS, message=str(error)) from None
            tool = self.offer.tools.get(params.name)
            if tool is None:
                raise MCPError(code=INVALID_PARAMS, message=f"Unknown tool: {params.name[:100]}")
            return await self._answered(ctx, tool.of_call(arguments), params)
        except SagaError as error:
            return refusal(error)
        finally:
            self._active -= 1
            self._touched.set()

    async def _answered(self, ctx: ServerRequestContext[Any], tool: Offered, params: CallToolRequestParams) -> Any:
        """The answer to a call of a tool; its client's user is asked first, if that is needed and allowed."""
        clients = self._clients if self._clients is not None and can_be_asked(ctx) else None
        said = None if clients is None else clients.brought(params)
        try:
            first = Call(is_held=clients is None, late="" if said is None else said.word)
            return await self._called(ctx, tool, params, first)
        except Pending as waits:
            if clients is None:
                return pending(waits.saga_id, waits.step, waits.question)
            if said is None and not params.input_responses:
                if (question := clients.question(ctx, params, waits)) is not None:
                    return question
                said = await self._waited(ctx, tool.name, clients.said(ctx, waits), goes_on=False)
            taken = said is None or await self._waited(ctx, tool.name, clients.take(waits, said))
            second = Call(late="" if taken or said is None else said.word)
        try:
            return await self._called(ctx, tool, params, second)
        except Pending as waits:
            return pending(waits.saga_id, waits.step, waits.question)

    async def _called(
        self, ctx: ServerRequestContext[Any], tool: Offered, params: CallToolRequestParams, call: Call
    ) -> Any:
        """The answer to a call. Raises ``Pending``."""
        heard = False
        try:
            output = await self._waited(ctx, tool.name, self._work.call(tool, params.arguments or {}, call))
            heard = not is_gone(ctx)
            return result(tool, output, call.about, self._most_bytes)
        except SagaError as error:
            # Any other error says nothing about the call.
            heard = isinstance(error, CallFailed) and not is_gone(ctx)
            return refusal(error, call.about if call.step else None)
        finally:
            self._work.leave(call, heard=heard)

    async def _waited(self, ctx: ServerRequestContext[Any], name: str, work: Any, *, goes_on: bool = True) -> Any:
        """The end of some work, which ``goes_on`` if the client cancels its request or its connection is lost.

        Progress keeps the request alive. Raises ``Interrupted`` for a client that is gone.
        """
        task: asyncio.Task[Any] = asyncio.ensure_future(work)
        self._calls.add(task)
        task.add_done_callback(self._forget)
        visit = visit_of(ctx)
        left = None if visit is None else asyncio.ensure_future(visit.gone.wait())
        waited = [task] if left is None else [task, left]
        beats = 0
        try:
            while True:
                done, _ = await asyncio.wait(waited, timeout=self._heartbeat_s, return_when=asyncio.FIRST_COMPLETED)
                if task in done:
                    return task.result()
                if done:
                    raise Interrupted("the client is gone")
                beats += 1
                await ctx.session.report_progress(beats, message=f"{name}: no answer yet")
        finally:
            if left is not None:
                left.cancel()
            if not goes_on:
                task.cancel()

    def _forget(self, task: asyncio.Task[Any]) -> None:
        self._calls.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.debug("a request ended with %s", type(error).__name__)

    async def _watch(self) -> None:
        """Apply the policy for the end after a time without calls; the next call opens the saga again, or another."""
        while True:
            self._touched.clear()
            try:
                await asyncio.wait_for(self._touched.wait(), None if self._active else self._idle_s)
            except TimeoutError:
                if not self._active:
                    await self._work.end(self._at_end)
                    await self._touched.wait()
