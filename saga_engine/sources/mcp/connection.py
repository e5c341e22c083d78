"""One server, kept connected: a session for all calls of an event loop, made at the first call and again after a loss.

A server that does not start, or that ends again at once, is tried again after a growing pause, and a call in that
pause is refused without being sent. The connection lives in a task of its own, because the SDK's context managers must
be left in the task that entered them.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final

from saga_engine._version import __version__
from saga_engine.core.scrubbing import scrubber
from saga_engine.errors import SecretMissing
from saga_engine.loggers import logger_of, quoted
from saga_engine.plan.values import printable
from saga_engine.ports.machine_clock import machine_clock
from saga_engine.sources.mcp.listing import Listing, Sieve, list_tools
from saga_engine.sources.mcp.manifest import ServerConfig, filled
from saga_engine.sources.mcp.transport_errors import TOO_LARGE, UNREADABLE

if TYPE_CHECKING:
    from mcp import Client
    from mcp.client._transport import TransportStreams
    from mcp.client.session import ClientSession

_log = logger_of("saga_engine.sources.mcp")

#: The pauses before the next attempt to connect, in seconds; the last of them repeats.
BACKOFF_S: Final = (0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0)
#: A connection that lasted as long as this starts over with the first pause.
_LASTED_S: Final = 10.0
_REASON_CHARS: Final = 500
#: The modes of the SDK for the eras of the protocol.
_MODES: Final = {"auto": "auto", "2025-11-25": "legacy", "2026-07-28": "2026-07-28"}


class NotConnected(Exception):
    """There is no connection, so nothing was sent. ``retry_after_s``: when the next attempt is made."""

    def __init__(self, reason: str, *, retryable: bool, retry_after_s: float | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.retryable = retryable
        self.retry_after_s = retry_after_s


class Live:
    """A connection. ``listing``: what the server lists; ``secrets``: the values that it was given, by name."""

    def __init__(self, client: Client, sieve: Sieve, listing: Listing, secrets: Mapping[str, str]) -> None:
        self.session: ClientSession = client.session
        self.protocol = client.protocol_version
        info = client.server_info
        self.server = "" if info is None else printable(f"{info.name} {info.version}", 200)
        self.listing = listing
        self._sieve = sieve
        self.secrets = secrets
        self._listed_s = machine_clock.monotonic()
        #: Set by the server's notification that its tools changed.
        self.stale = False
        self.lost = asyncio.Event()

    async def current(self, max_age_s: float) -> Listing:
        """The server's tools, listed again if they may have changed. Raises what a request raises."""
        if self.stale or machine_clock.monotonic() - self._listed_s > max_age_s:
            self.stale = False
            began_s = machine_clock.monotonic()
            self.listing = await list_tools(self.session, self._sieve)
            self._listed_s = began_s
        return self.listing


class Connection:
    """The connection of one event loop to one server."""

    def __init__(self, config: ServerConfig) -> None:
        self._config = config
        self._task: asyncio.Task[None] | None = None
        self._ready: asyncio.Future[Live] | None = None
        self._live: Live | None = None
        self._stop = asyncio.Event()
        self._failures = 0
        self._next_s = 0.0
        self._why = ""
        #: How many calls use it now.
        self.in_use = 0

    async def live(self) -> Live:
        """The connection, made if there is none. Raises ``NotConnected``."""
        if self._ready is None:
            pause_s = self._next_s - machine_clock.monotonic()
            if pause_s > 0:
                raise NotConnected(
                    f"{self._why}; the next attempt is in {pause_s:.1f} s", retryable=True, retry_after_s=pause_s
                )
            self._stop = asyncio.Event()
            self._ready = asyncio.get_running_loop().create_future()
            self._task = asyncio.create_task(self._run(self._ready, self._stop), name=f"mcp-{self._config.name}")
        # A call whose time is over leaves the attempt to the calls after it.
        return await asyncio.shield(self._ready)

    def lose(self, live: Live) -> None:
        """Make no more calls over this connection: the server has answered that it is no longer there."""
        live.lost.set()
        if self._live is live:
            self._ready = self._live = None

    async def close(self) -> None:
        """End the connection, and the server if it is a child."""
        task = self._task
        if task is None:
            return
        self._stop.set()
        if self._live is None:
            task.cancel()  # it still waits for the server
        await asyncio.wait([task])

    # --- inside --------------------------------------------------------------------------------------------------

    async def _run(self, ready: asyncio.Future[Live], stop: asyncio.Event) -> None:
        """One connection, from its beginning to its end."""
        began_s = machine_clock.monotonic()
        seen: dict[str, str] = {}
        try:
            async with self._connected(seen) as (live, ended):
                self._live = live
                ready.set_result(live)
                await _first_of(stop, live.lost, *ended)
                self.lose(live)
                if stop.is_set() or machine_clock.monotonic() - began_s > _LASTED_S:
                    self._failures = 0
                else:
                    self._failed("it ended", seen, retryable=True)
        except SecretMissing as error:
            self._not_ready(ready, error.message, seen, retryable=False)
        except Exception as error:  # noqa: BLE001 - a server can fail in any way, and only its own calls may notice
            answered = getattr(error, "code", None) in (UNREADABLE, TOO_LARGE)
            self._not_ready(ready, _reason(error), seen, retryable=True, how="used" if answered else "reached")
        finally:
            if not ready.done():  # this task was cancelled: the loop ends
                self._not_ready(ready, "it was closed", seen, retryable=True)

    def _not_ready(
        self, ready: asyncio.Future[Live], why: str, seen: Mapping[str, str], *, retryable: bool, how: str = "reached"
    ) -> None:
        if ready.done():
            _log.debug("MCP server %s ended with an error: %s", self._config.name, quoted(scrubbed(why, seen)))
            return
        if self._ready is ready:
            self._ready = None
        self._failed(why, seen, retryable=retryable, how=how)
        ready.set_exception(NotConnected(self._why, retryable=retryable))
        ready.exception()  # every caller may have gone

    def _failed(self, why: str, seen: Mapping[str, str], *, retryable: bool, how: str = "reached") -> None:
        """Begin the pause before the next attempt."""
        self._why = f"MCP server {self._config.name!r} cannot be {how}: {scrubbed(why, seen)}"
        if retryable:
            self._next_s = machine_clock.monotonic() + BACKOFF_S[min(self._failures, len(BACKOFF_S) - 1)]
            self._failures += 1
        _log.warning("%s", self._why)

    @asynccontextmanager
    async def _connected(self, seen: dict[str, str]) -> AsyncIterator[tuple[Live, list[asyncio.Event]]]:
        # On the event loop the import would stop the renewal of the lease, with the intent of a call in the journal.
        await asyncio.to_thread(_imported)
        from mcp import Client
        from mcp_types import Implementation, ToolListChangedNotification

        holder: list[Live] = []

        async def on_message(message: Any) -> None:
            if isinstance(message, ToolListChangedNotification) and holder:
                holder[0].stale = True

        async with AsyncExitStack() as stack:
            transport, ended, words = await self._transport(stack, seen)
            sieved = _Sieved(transport)
            client = Client(
                sieved,
                mode=_MODES[self._config.protocol],
                cache=None,
                client_info=Implementation(name="saga-engine", version=__version__),
                message_handler=on_message,
            )
            try:
                async with asyncio.timeout(self._config.start_timeout_s):
                    await stack.enter_async_context(client)
                    listing = await list_tools(client.session, sieved.sieve)
            except TimeoutError as error:
                raise TimeoutError(f"no answer within {self._config.start_timeout_s:g} s{words()}") from error
            except Exception as error:
                raise ConnectionError(f"{_reason(error)}{words()}") from error
            live = Live(client, sieved.sieve, listing, seen)
            holder.append(live)
            yield live, ended

    async def _transport(self, stack: AsyncExitStack, seen: dict[str, str]) -> tuple[Any, list[asyncio.Event], Any]:
        it = self._config
        if it.command:
            from saga_engine.sources.mcp.stdio import StdioTransport

            env = {name: filled(value, os.environ, seen) for name, value in it.env}
            process = StdioTransport(it.name, it.command, env, it.cwd, it.max_result_bytes)
            return process, [process.ended], lambda: f" ({process.last_words})" if process.last_words else ""
        from saga_engine.sources.mcp.http import http_transport

        headers = {name: filled(value, os.environ, seen) for name, value in it.headers}
        client, transport = http_transport(it.url, headers, it.max_result_bytes)
        await stack.enter_async_context(client)
        return transport, [], lambda: ""


class _Sieved:
    """A transport whose messages go through a sieve."""

    def __init__(self, transport: AbstractAsyncContextManager[TransportStreams]) -> None:
        self._transport = transport
        self.sieve: Sieve

    async def __aenter__(self) -> TransportStreams:
        read_stream, write_stream = await self._transport.__aenter__()
        self.sieve = Sieve(read_stream)
        return self.sieve, write_stream

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return await self._transport.__aexit__(kind, error, trace)


def _imported() -> None:
    """Import the SDK and what needs it, which takes seconds on a busy machine."""
    import saga_engine.sources.mcp.http
    import saga_engine.sources.mcp.stdio  # noqa: F401 - they are there from now on


async def _first_of(*events: asyncio.Event) -> None:
    """Wait until one of them is set."""
    waits = [asyncio.create_task(each.wait()) for each in events]
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for each in waits:
            each.cancel()


def scrubbed(text: str, secrets: Mapping[str, str]) -> str:
    """A text with a marker for each secret in it."""
    found = scrubber(secrets)
    return found.text(text) if found else text


def _reason(error: BaseException) -> str:
    """Why it failed; of several errors at once the first."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return printable(str(error) or type(error).__name__, _REASON_CHARS)
