"""``saga mcp``: the gateway, an MCP server between an agent and its tools."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from saga_engine.cli import exit_codes
from saga_engine.cli.options import DebugOption, StoreOption, ToolsOption

if TYPE_CHECKING:
    from saga_engine.gateway.work import EndPolicy
    from saga_engine.settings import Settings
    from saga_engine.tools.registry import ToolRegistry


def mcp(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="ACTION",
            help="init NAME [-- PROGRAM ARGS… | URL], check [SERVER…], or observe [SERVER…]; without one, serve.",
        ),
    ] = None,
    *,
    name: Annotated[
        str | None,
        typer.Option(
            "--id",
            metavar="ID",
            help="The id of the saga. A gateway that starts with it again continues; also SAGA_MCP_ID. Default: new.",
        ),
    ] = None,
    goal: Annotated[str, typer.Option("--goal", metavar="TEXT", help="What the sagas are for, in lists.")] = "",
    on_disconnect: Annotated[
        str,
        typer.Option(
            "--on-disconnect",
            metavar="POLICY",
            help="What becomes of an open saga when the client leaves: keep, complete or undo.",
        ),
    ] = "keep",
    idle: Annotated[
        float,
        typer.Option(
            "--idle", metavar="S", min=0, max=31_536_000, help="The same after S seconds without a call; 0: never."
        ),
    ] = 0.0,
    hold: Annotated[
        float,
        typer.Option(
            "--hold", metavar="S", min=0, max=3600, help="How long a call is held while an operator is asked."
        ),
    ] = 45.0,
    env: Annotated[
        list[str] | None,
        typer.Option("--env", metavar="NAME=VALUE", help="With init: a variable of the server; repeatable."),
    ] = None,
    trial: Annotated[
        Path | None,
        typer.Option("--try", metavar="FILE", help="With check: make the calls of this file, and undo each."),
    ] = None,
    to: Annotated[
        Path | None, typer.Option("--to", metavar="FILE", help="With observe: add a line of JSON for each call.")
    ] = None,
    tools: ToolsOption = None,
    store: StoreOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="With check: print JSON.")] = False,
    debug: DebugOption = False,  # noqa: ARG001 - read by the command
) -> int:
    """Serve the configured tools to an MCP client on stdin and stdout, as one saga that can be undone.

    The client starts this command instead of its servers (docs/gateway.md). The agent sees the tools of the MCP
    servers as they are, and saga_savepoint, saga_rollback, saga_status, saga_preview and saga_done.

    'saga mcp init NAME -- PROGRAM ARGS…' starts a server and prints its tables for saga.toml; 'saga mcp check' connects
    and says what changed and what the manifests lack; 'saga mcp observe' hands an agent's calls on and lists them.

    Examples:
      saga mcp
      saga mcp --id desk-7 --on-disconnect undo
    """
    from saga_engine.cli.options import registry_for, settings_for
    from saga_engine.errors import SettingInvalid
    from saga_engine.gateway.work import END_POLICIES

    if on_disconnect not in END_POLICIES:
        raise typer.BadParameter(
            f"{on_disconnect!r} is none of {', '.join(END_POLICIES)}", param_hint="--on-disconnect"
        )
    settings = settings_for(store, tools)
    if words or env or trial or to or as_json:
        return _action(settings, words or [], env=env or [], trial=trial, to=to, as_json=as_json)
    if settings.runtime:
        from saga_engine.errors import RuntimeUnsupported

        raise RuntimeUnsupported("the gateway does not run on Temporal, which has no sessions", hint="use a store")
    registry = registry_for(settings)
    if not len(registry):
        raise SettingInvalid(
            "there is no tool to serve",
            hint="declare servers in saga.toml ([mcp.NAME]) and accept their tools: saga tools accept",
        )
    import os

    name = name or os.environ.get("SAGA_MCP_ID") or None
    _run(settings, registry, name, goal, cast("EndPolicy", on_disconnect), idle, hold)
    return exit_codes.COMPLETED


def _action(
    settings: Settings, words: list[str], *, env: list[str], trial: Path | None, to: Path | None, as_json: bool
) -> int:
    """Set up the gateway, or observe."""
    action = words[0] if words else ""
    if action not in ("init", "check", "observe"):
        raise typer.BadParameter(f"{action!r} is none of init, check, observe", param_hint="ACTION")
    for option, given, of in (
        ("--env", env, "init"),
        ("--try", trial, "check"),
        ("--json", as_json, "check"),
        ("--to", to, "observe"),
    ):
        if given and action != of:
            raise typer.BadParameter(f"only 'saga mcp {of}' has it", param_hint=option)
    if action == "observe":
        from saga_engine.cli.mcp_observe import observe

        return observe(settings, words[1:], to)
    from saga_engine.cli.mcp_setup import check, init

    if action == "init":
        return init(settings, words[1:], env)
    return check(settings, words[1:], trial=trial, as_json=as_json)


def _run(  # noqa: PLR0917 - the options
    settings: Settings,
    registry: ToolRegistry,
    name: str | None,
    goal: str,
    at_end: EndPolicy,
    idle_s: float,
    hold_s: float,
) -> None:
    import asyncio
    import os

    from saga_engine.cli.drive import configured, on_stop_signals, store_opened
    from saga_engine.cli.limits import limits_of
    from saga_engine.cli.progress import Progress
    from saga_engine.execution.ids import check_saga_id, new_saga_id
    from saga_engine.gateway.server import Gateway
    from saga_engine.gateway.stdio import stdio_streams
    from saga_engine.gateway.work import Work

    progress = Progress("mcp", {}, many=True)
    guards: dict[str, Any] = configured(settings) | {"limits": limits_of(settings)}
    saga_id = check_saga_id(name or f"mcp-{new_saga_id()}", "--id")

    async def run() -> None:
        async with (
            stdio_streams() as (read_stream, write_stream),
            store_opened(settings, registry, progress, guards, observed=False) as coordinator,
        ):
            work = Work(coordinator, saga_id, kept=name is not None, goal=goal, hold_s=hold_s)
            gateway = Gateway(coordinator, work, at_end=at_end, idle_s=idle_s)
            serving = asyncio.create_task(gateway.serve(read_stream, write_stream), name="saga-mcp")

            def stop() -> None:
                if serving.cancelling():
                    os._exit(exit_codes.INTERRUPTED)  # at once; the journal has the intents of the calls in flight
                serving.cancel()

            on_stop_signals(stop)
            await asyncio.wait([serving])
            if not serving.cancelled():
                serving.result()

    with progress.reported_logs():
        asyncio.run(run())
