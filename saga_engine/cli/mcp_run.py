"""``saga mcp`` at work: on stdin and stdout, or over HTTP."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from saga_engine.cli import exit_codes
from saga_engine.cli.drive import configured, on_stop_signals, run_lasting, store_opened
from saga_engine.cli.loop_watch import watched
from saga_engine.cli.output import data
from saga_engine.cli.progress import Progress
from saga_engine.errors import SettingInvalid
from saga_engine.execution.ids import check_saga_id, new_saga_id

if TYPE_CHECKING:
    from mcp.server.lowlevel import Server

    from saga_engine.api import Coordinator
    from saga_engine.gateway.door import Token
    from saga_engine.gateway.early import Opening
    from saga_engine.gateway.server import CallHandler, Gateway, Offer
    from saga_engine.gateway.work import EndPolicy, Work
    from saga_engine.planner.settings import PlannerSettings
    from saga_engine.settings import Settings
    from saga_engine.tools.registry import ToolRegistry

#: The variable with the token, which no other user of the machine can read.
TOKEN_VARIABLE = "SAGA_MCP_TOKEN"  # noqa: S105 - its name


class Life(NamedTuple):
    """What the options say of the sagas. ``name``: the id that was given, if any."""

    name: str | None
    goal: str
    at_end: EndPolicy
    idle_s: float
    hold_s: float
    ask_client_s: float = 0.0
    most_bytes: int = 0
    offer_undos: bool = False

    @classmethod
    def of(cls, name: str | None, goal: str, at_end: EndPolicy, idle_s: float, hold_s: float, **more: Any) -> Life:
        """That of the options, and of the variable for the id."""
        return cls(name or os.environ.get("SAGA_MCP_ID") or None, goal, at_end, idle_s, hold_s, **more)

    def gateway(self, coordinator: Coordinator, work: Work, offer: Offer | None = None) -> Gateway:
        """The gateway of one saga."""
        from saga_engine.gateway.server import Gateway

        return Gateway(
            coordinator,
            work,
            at_end=self.at_end,
            idle_s=self.idle_s,
            offer=offer,
            ask_client_s=self.ask_client_s,
            most_bytes=self.most_bytes,
        )

    def own(self) -> str:
        """The id of the process's own saga. Raises ``PlanInvalid``."""
        return check_saga_id(self.name or f"mcp-{new_saga_id()}", "--id")

    def work(self, coordinator: Coordinator, saga_id: str, *, kept: bool) -> Work:
        """The work on one saga."""
        from saga_engine.gateway.work import Work

        return Work(coordinator, saga_id, kept=kept, goal=self.goal, hold_s=self.hold_s)


def rules_of(settings: Settings, may_use: Sequence[str] | None, *, engine: bool) -> PlannerSettings | None:
    """What agents may write into plans: ``[planner]``. None: the tools are served. Raises ``SettingInvalid``."""
    if not engine:
        if may_use:
            raise SettingInvalid("--may-use belongs to --engine", hint="without it, no agent writes a plan")
        return None
    from saga_engine.planner.settings import planner_settings

    flags = {"may_use": may_use} if may_use else None
    return planner_settings(settings.planner, flags, base=settings.origin("planner")[0])


def _face(
    settings: Settings,
    registry: ToolRegistry,
    progress: Progress,
    own: str,
    *,
    rules: PlannerSettings | None,
    undos: bool,
    tools: Callable[[Coordinator, Offer], AbstractAsyncContextManager[CallHandler]],
) -> tuple[Callable[[CallHandler], Server], Opening]:
    """What greets clients, and what opens the store and answers calls; ``tools`` answers them unless it is the engine.

    Raises ``SagaError`` for settings that are wrong, before anything is opened.
    """
    from saga_engine.gateway.engine import EngineFace, engine_server
    from saga_engine.gateway.server import Offer
    from saga_engine.policy.unlisted import with_unlisted

    guards: dict[str, Any] = configured(settings)
    offer = Offer(registry, undos=undos) if rules is None else None
    guards["policy"] = with_unlisted(None, registry, of_agents=True)

    @asynccontextmanager
    async def opening() -> AsyncIterator[CallHandler]:
        async with store_opened(settings, registry, progress, guards, observed=False) as coordinator:
            face = EngineFace(coordinator, own, rules).opened() if offer is None else tools(coordinator, offer)
            async with face as call:
                yield call

    return engine_server if offer is None else offer.server, opening


def run_stdio(settings: Settings, registry: ToolRegistry, life: Life, rules: PlannerSettings | None = None) -> None:
    """Serve the client that started this process; it gets its first answers before the store is open."""
    from saga_engine.gateway.early import Early
    from saga_engine.gateway.stdio import stdio_streams

    progress = Progress("mcp", {}, many=True)
    saga_id = life.own()

    def work(coordinator: Coordinator, offer: Offer) -> AbstractAsyncContextManager[CallHandler]:
        one = life.work(coordinator, saga_id, kept=life.name is not None)
        return life.gateway(coordinator, one, offer).opened()

    server_of, opening = _face(settings, registry, progress, saga_id, rules=rules, undos=life.offer_undos, tools=work)

    async def run() -> None:
        async with stdio_streams() as streams:
            serving = asyncio.create_task(Early(server_of, opening).serve(*streams), name="saga-mcp")

            def stop() -> None:
                if serving.cancelling():
                    os._exit(exit_codes.INTERRUPTED)  # at once; the journal has the intents of the calls in flight
                serving.cancel()

            on_stop_signals(stop)
            await asyncio.wait([serving])
            if not serving.cancelled():
                serving.result()

    with progress.reported_logs():
        run_lasting(run())


def run_http(
    settings: Settings,
    registry: ToolRegistry,
    life: Life,
    rules: PlannerSettings | None = None,
    *,
    address: str,
    token_file: Path | None,
    allowed: Sequence[str],
) -> None:
    """Serve clients over HTTP until SIGTERM or Ctrl-C; they are greeted before the store is open.

    Raises ``SettingInvalid``, and what the opening of the store raises.
    """
    from saga_engine.gateway.door import Door, hosts_for, is_loopback
    from saga_engine.gateway.http import serve_http, url_of
    from saga_engine.listener import bound

    host, port = _address(address)
    tokens = _tokens(token_file)
    if not tokens and not is_loopback(host):
        raise SettingInvalid(
            f"the gateway does not listen at {host} without a token: others on the network could reach it",
            hint=f"set {TOKEN_VARIABLE}, or give --token-file; or listen at 127.0.0.1",
        )
    hosts = hosts_for(host, allowed)
    progress = Progress("mcp", {}, many=True)
    own = life.own()
    tools = partial(_desks, life, own)
    server_of, opening = _face(settings, registry, progress, own, rules=rules, undos=life.offer_undos, tools=tools)
    listening = bound(host, port)
    listening.listen()  # before its address is printed

    async def run() -> None:
        stopped = _told_to_stop()
        data(url_of(listening))
        door = partial(Door, own=own, tokens=tokens, hosts=hosts)
        await serve_http(server_of, door, opening, listening, stopped)

    with listening, progress.reported_logs():
        run_lasting(watched(run(), settings.loop_cpu_s))


def _desks(life: Life, own: str, coordinator: Coordinator, offer: Offer) -> AbstractAsyncContextManager[CallHandler]:
    from saga_engine.gateway.http import Desks

    def gateway(saga_id: str) -> Gateway:
        work = life.work(coordinator, saga_id, kept=saga_id != own or life.name is not None)
        return life.gateway(coordinator, work, offer)

    return Desks(gateway).opened()


def _told_to_stop() -> asyncio.Event:
    stopped = asyncio.Event()

    def stop() -> None:
        if stopped.is_set():
            os._exit(exit_codes.INTERRUPTED)
        stopped.set()

    on_stop_signals(stop)
    return stopped


def _address(given: str) -> tuple[str, int]:
    host, _, port = given.rpartition(":")
    if not host or not port.isdecimal() or len(port) > 5:
        raise SettingInvalid(
            f"--http {given[:80]!r} is no address", hint="HOST:PORT, for example 127.0.0.1:8321 or [::1]:8321"
        )
    return host.removeprefix("[").removesuffix("]"), int(port)


def _tokens(file: Path | None) -> list[Token]:
    from saga_engine.gateway.door import tokens_in

    if file is None:
        given = os.environ.get(TOKEN_VARIABLE, "")
        return tokens_in(given.strip(), TOKEN_VARIABLE) if given.strip() else []
    try:
        return tokens_in(file.read_text("utf-8"), str(file))
    except (OSError, ValueError) as error:
        raise SettingInvalid(f"the tokens in {file} cannot be read: {error}", hint="--token-file FILE") from None
