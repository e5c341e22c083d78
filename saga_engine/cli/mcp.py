"""``saga mcp``: the gateway, an MCP server between an agent and its tools."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from saga_engine.cli import exit_codes
from saga_engine.cli.options import DebugOption, StoreOption, ToolsOption

if TYPE_CHECKING:
    from saga_engine.gateway.work import EndPolicy
    from saga_engine.settings import Settings


IdOption = Annotated[
    str | None,
    typer.Option(
        "--id",
        metavar="ID",
        help="The id of the saga. A gateway that starts with it again continues; also SAGA_MCP_ID. Default: new.",
    ),
]
GoalOption = Annotated[str, typer.Option("--goal", metavar="TEXT", help="What the sagas are for, in lists.")]
OnDisconnectOption = Annotated[
    str,
    typer.Option(
        "--on-disconnect",
        metavar="POLICY",
        help="What becomes of an open saga when the client leaves: keep, complete or undo.",
    ),
]
IdleOption = Annotated[
    float,
    typer.Option(
        "--idle", metavar="S", min=0, max=31_536_000, help="The same after S seconds without a call; 0: never."
    ),
]
HoldOption = Annotated[
    float,
    typer.Option("--hold", metavar="S", min=0, max=3600, help="How long a call is held while an operator is asked."),
]
AskClientOption = Annotated[
    float,
    typer.Option(
        "--ask-client",
        metavar="S",
        min=0,
        max=3600,
        help="Let the client's user approve calls, and wait S seconds for the answer; 0: only operators approve.",
    ),
]
MaxAnswerOption = Annotated[
    int,
    typer.Option(
        "--max-answer",
        metavar="BYTES",
        min=0,
        max=1 << 30,
        help="A longer answer is cut, and the agent reads the rest in parts with saga_read; 0: none is cut.",
    ),
]
OfferUndosOption = Annotated[
    bool, typer.Option("--offer-undos", help="Offer the tools that only undo or probe others to the agent as well.")
]
HttpOption = Annotated[
    str | None,
    typer.Option(
        "--http",
        metavar="HOST:PORT",
        help="Serve any number of clients over HTTP, not one on stdin and stdout. Port 0: any; it is printed.",
    ),
]
TokenFileOption = Annotated[
    Path | None,
    typer.Option(
        "--token-file",
        metavar="FILE",
        help="The bearer tokens for --http: a line is TOKEN, or ID TOKEN for one saga alone; else SAGA_MCP_TOKEN.",
    ),
]
AllowHostOption = Annotated[
    list[str] | None,
    typer.Option("--allow-host", metavar="NAME", help="Another name by which clients reach --http."),
]
EngineOption = Annotated[
    bool,
    typer.Option("--engine", help="Serve the engine itself: tools that check, submit, show and undo plans."),
]
MayUseOption = Annotated[
    list[str] | None,
    typer.Option(
        "--may-use", metavar="PART", help="With --engine: a part of the plan format that agents may use; repeatable."
    ),
]
WordsArgument = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="ACTION",
        help="init NAME [-- PROGRAM ARGS… | URL], check [SERVER…], or observe [SERVER…]; without one, serve.",
    ),
]
EnvOption = Annotated[
    list[str] | None,
    typer.Option("--env", metavar="NAME=VALUE", help="With init: a variable of the server; repeatable."),
]
TryOption = Annotated[
    Path | None,
    typer.Option("--try", metavar="FILE", help="With check: make the calls of this file, and undo each."),
]
ToOption = Annotated[
    Path | None, typer.Option("--to", metavar="FILE", help="With observe: add a line of JSON for each call.")
]


def mcp(
    words: WordsArgument = None,
    *,
    name: IdOption = None,
    goal: GoalOption = "",
    on_disconnect: OnDisconnectOption = "keep",
    idle: IdleOption = 0.0,
    hold: HoldOption = 45.0,
    ask_client: AskClientOption = 0.0,
    max_answer: MaxAnswerOption = 1_000_000,
    offer_undos: OfferUndosOption = False,
    http: HttpOption = None,
    token_file: TokenFileOption = None,
    allow_host: AllowHostOption = None,
    engine: EngineOption = False,
    may_use: MayUseOption = None,
    env: EnvOption = None,
    trial: TryOption = None,
    to: ToOption = None,
    tools: ToolsOption = None,
    store: StoreOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="With check: print JSON.")] = False,
    debug: DebugOption = False,  # noqa: ARG001 - read by the command
) -> int:
    """Serve the configured tools to MCP clients, as one saga that can be undone.

    The client starts this command instead of its servers (docs/gateway.md). The agent sees the tools of the MCP
    servers as they are, and saga_savepoint, saga_rollback, saga_status, saga_preview, saga_read and saga_done.

    'saga mcp init NAME -- PROGRAM ARGS…' starts a server and prints its tables for saga.toml; 'saga mcp check' connects
    and says what changed and what the manifests lack; 'saga mcp observe' hands an agent's calls on and lists them.

    Examples:
      saga mcp
      saga mcp --id desk-7 --on-disconnect undo
      SAGA_MCP_TOKEN=… saga mcp --http 127.0.0.1:8321
    """
    from saga_engine.cli.options import registry_for, settings_for
    from saga_engine.errors import SettingInvalid
    from saga_engine.gateway.work import END_POLICIES

    if on_disconnect not in END_POLICIES:
        raise typer.BadParameter(
            f"{on_disconnect!r} is none of {', '.join(END_POLICIES)}", param_hint="--on-disconnect"
        )
    settings = settings_for(store, tools)
    if words or env or trial or to or as_json or (settings.observe and not engine):
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
    from saga_engine.cli.mcp_run import Life, rules_of, run_http, run_stdio

    rules = rules_of(settings, may_use, engine=engine)
    more = {"ask_client_s": ask_client, "most_bytes": max_answer, "offer_undos": offer_undos}
    life = Life.of(name, goal, cast("EndPolicy", on_disconnect), idle, hold, **more)
    if http is None:
        if token_file or allow_host:
            raise typer.BadParameter("--token-file and --allow-host belong to --http", param_hint="--http")
        run_stdio(settings, registry, life, rules)
    else:
        run_http(settings, registry, life, rules, address=http, token_file=token_file, allowed=allow_host or ())
    return exit_codes.COMPLETED


def _action(
    settings: Settings, words: list[str], *, env: list[str], trial: Path | None, to: Path | None, as_json: bool
) -> int:
    """Set up the gateway, or observe."""
    action = words[0] if words else "observe" if settings.observe else ""
    if action == "observe" and settings.observe:
        to = to or Path(str(settings.observe))
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
