"""``saga serve``: the HTTP API and the console."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from saga_engine.cli import exit_codes
from saga_engine.cli.options import DebugOption, StoreOption, ToolsOption

if TYPE_CHECKING:
    import asyncio

    from saga_engine.api import Coordinator
    from saga_engine.hooks.links import Links
    from saga_engine.ports import Meter
    from saga_engine.server.settings import ServerSettings
    from saga_engine.settings import Settings
    from saga_engine.telemetry import Metrics
    from saga_engine.tools.registry import ToolRegistry


def serve(
    *,
    host: Annotated[
        str | None, typer.Option("--host", metavar="ADDRESS", help="Where to listen. Default: 127.0.0.1.")
    ] = None,
    port: Annotated[
        int | None,
        typer.Option("--port", metavar="N", min=0, max=65535, help="Default: 8800; 0: any free port."),
    ] = None,
    auth: Annotated[
        str | None,
        typer.Option("--auth", metavar="HOW", help="token (default), or none: anybody on this machine; loopback only."),
    ] = None,
    allow_host: Annotated[
        list[str] | None,
        typer.Option("--allow-host", metavar="NAME", help="A name by which the server is reached. Repeatable."),
    ] = None,
    worker: Annotated[bool, typer.Option("--worker", help="Also run sagas from the queue, with the tools.")] = False,
    demo: Annotated[
        bool,
        typer.Option("--demo", help="Show sagas of a travel agency in memory, on a temporary store, without a token."),
    ] = False,
    tools: ToolsOption = None,
    store: StoreOption = None,
    debug: DebugOption = False,  # noqa: ARG001 - read by the command
) -> int:
    """Serve the HTTP API (/v1) and the console, until Ctrl-C or SIGTERM.

    Workers run the sagas that are submitted here; the tools are only needed to check plans, unless --worker runs them,
    too. Beyond the loopback it needs tokens: 'saga token create'. The address is printed on stdout.

    Examples:
      saga serve --tools tools.py
      saga serve --host 0.0.0.0 --allow-host saga.example.com
      saga serve --auth none --worker --tools tools.py
      saga serve --demo
    """
    from saga_engine.cli.options import registry_for, settings_for
    from saga_engine.errors import RuntimeUnsupported, SettingInvalid

    _require_extra()
    if demo:
        if store or tools or worker or auth:
            raise typer.BadParameter("it has its own store and tools, and asks nobody", param_hint="--demo")
        _demo(host, port)
        return exit_codes.COMPLETED
    settings = settings_for(store, tools)
    if settings.runtime:
        raise RuntimeUnsupported("the server does not show sagas in Temporal", hint="use Temporal's own UI")
    from saga_engine.server.settings import server_settings

    chosen = server_settings(
        settings.server,
        settings.origin("server")[1],
        host=host,
        port=port,
        auth=auth,
        allowed_hosts=tuple(allow_host or ()),
        links=_links(settings),
    )
    for source in chosen.inbound.values():
        source.secrets(os.environ)
    registry = registry_for(settings)
    if worker and not len(registry):
        raise SettingInvalid(
            "a worker without tools can run no saga", hint="give them with --tools, or leave out --worker"
        )
    _run(settings, registry, chosen, worker=worker)
    return exit_codes.COMPLETED


def _require_extra() -> None:
    from saga_engine.errors import SettingInvalid

    if importlib.util.find_spec("starlette") is None or importlib.util.find_spec("uvicorn") is None:
        raise SettingInvalid(
            "the server needs an extra that is not installed", hint="pip install 'saga-engine[server]'"
        )


def _links(settings: Settings) -> Links | None:
    """What reads the links that hooks send; None without [escalation.links]."""
    from saga_engine.hooks.config import links_from

    base, source = settings.origin("escalation")
    return links_from(settings.escalation, source=source, base=base)


def _demo(host: str | None, port: int | None) -> None:
    """Serve the demo, whose sagas are gone when it ends."""
    import signal
    import tempfile

    from saga_engine.server.demo import POLICY, Agency, fill, tools_of
    from saga_engine.server.settings import server_settings
    from saga_engine.settings import Settings
    from saga_engine.tools.registry import ToolRegistry

    signal.signal(signal.SIGTERM, signal.default_int_handler)  # until the event loop has one: the folder goes, too
    with tempfile.TemporaryDirectory(prefix="saga-demo-") as folder:
        settings = Settings(store=f"embedded://{folder}/store", durability="relaxed")
        chosen: ServerSettings = server_settings({}, "--demo", host=host, port=port, auth="none")
        guards: dict[str, Any] = {"policy": POLICY, "on_escalation": (), "settings": None}  # the page has the questions
        _run(settings, ToolRegistry(tools_of(Agency())), chosen, worker=True, guards=guards, fill=fill)


def _run(
    settings: Settings,
    registry: ToolRegistry,
    chosen: ServerSettings,
    *,
    worker: bool,
    guards: dict[str, Any] | None = None,
    fill: Callable[[Coordinator], Awaitable[Any]] | None = None,
) -> None:
    """``guards``: in place of what the settings configure; ``fill``: submits sagas before the server listens."""
    import asyncio

    from saga_engine.cli.drive import configured, freeze_loaded, on_stop_signals, store_opened
    from saga_engine.cli.loop_watch import watched
    from saga_engine.cli.output import data, note
    from saga_engine.cli.progress import Progress
    from saga_engine.errors import Interrupted
    from saga_engine.listener import Listener, address_of, bound
    from saga_engine.server.app import create_app
    from saga_engine.server.listen import serve as served

    progress = Progress("serve", {}, many=True)
    metrics = _metrics()
    meters = () if metrics is None else (metrics,)
    guards = configured(settings) if guards is None else guards
    listening = bound(chosen.host, chosen.port)

    async def run() -> None:
        starting = asyncio.current_task()
        assert starting is not None
        on_stop_signals(lambda: None if starting.cancelling() else _cancel(starting))
        async with (
            store_opened(settings, registry, progress, guards, observed=False, meters=meters) as coordinator,
            _tenants(settings, registry, chosen, guards, meters) as engines,
        ):
            app = create_app(coordinator, chosen, engines=engines, metrics=metrics)
            await _require_tokens(app.state.desk, note)
            if fill is not None:
                await fill(coordinator)
            working = asyncio.create_task(coordinator.work(), name="saga-serve-worker") if worker else None

            def started(listener: Listener) -> None:
                def stop() -> None:
                    if listener.should_exit:
                        os._exit(exit_codes.INTERRUPTED)  # at once; the journal has the intents of the calls in flight
                    app.state.desk.draining.set()
                    listener.should_exit = True

                on_stop_signals(stop)
                data(address_of(listening))
                note(f"serve: listening on {address_of(listening)}; Ctrl-C ends it")

            try:
                await served(app, listening, on_started=started)
            finally:
                if working is not None:
                    working.cancel()
                    await asyncio.wait([working])

    freeze_loaded()
    with progress.reported_logs():
        try:
            asyncio.run(watched(run(), settings.loop_cpu_s))
        except asyncio.CancelledError:
            raise Interrupted("stopped before it listened") from None


def _cancel(task: asyncio.Task[None]) -> None:
    task.cancel()


def _metrics() -> Metrics | None:
    """What this process measures with; None without the extra."""
    if importlib.util.find_spec("prometheus_client") is None:
        return None
    from saga_engine.telemetry import Metrics

    return Metrics()


@asynccontextmanager
async def _tenants(
    settings: Settings,
    registry: ToolRegistry,
    chosen: ServerSettings,
    guards: dict[str, Any],
    meters: Sequence[Meter],
) -> AsyncIterator[dict[str, Coordinator]]:
    """The coordinators of the tenants, each on its namespace of the store."""
    from contextlib import AsyncExitStack
    from dataclasses import replace

    from saga_engine.cli.drive import store_opened
    from saga_engine.cli.progress import Progress

    async with AsyncExitStack() as stack:
        found = {}
        for tenant in chosen.tenants.values():
            there = replace(settings, store=_in_namespace(settings.store, tenant.namespace))
            progress = Progress("serve", {}, many=True)
            opening = store_opened(there, registry, progress, guards, observed=False, meters=meters)
            found[tenant.name] = await stack.enter_async_context(opening)
        yield found


def _in_namespace(url: str, namespace: str) -> str:
    """The URL of a store with another namespace."""
    from urllib.parse import parse_qsl, urlencode

    address, _, query = url.partition("?")
    pairs = [(name, value) for name, value in parse_qsl(query, keep_blank_values=True) if name != "namespace"]
    return f"{address}?{urlencode([*pairs, ('namespace', namespace)])}"


async def _require_tokens(desk: Any, note: Any) -> None:
    """Raises ``SettingInvalid`` for a server that nobody could use, or that anybody beyond this machine could."""
    from saga_engine.errors import SettingInvalid

    if desk.settings.auth == "none":
        note("warning: anybody on this machine may do everything here (--auth none)")
        return
    if desk.oidc is None and not await desk.tokens.any():
        hint = "saga token create NAME --scope admin"
        if not desk.settings.on_loopback:
            raise SettingInvalid(f"there is no token, so nobody could use {desk.settings.host}", hint=hint)
        note(f"hint: there is no token yet; {hint}")
