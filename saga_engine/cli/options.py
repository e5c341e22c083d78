"""The options that several commands share, and their combined values."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from saga_engine.cli.from_table import argument, option

if TYPE_CHECKING:
    from saga_engine.policy.rules import Policy
    from saga_engine.settings import Settings
    from saga_engine.sources.mcp import McpServer
    from saga_engine.tools.registry import ToolRegistry


def complete_ids(incomplete: str) -> list[str]:
    """Ids of sagas that begin so, for the shell."""
    from saga_engine.cli.ids import complete

    return complete(incomplete)


StoreOption = Annotated[
    str | None,
    typer.Option(
        "--store", metavar="URL", help="Where sagas are stored; also SAGA_STORE or saga.toml. Default: embedded://.saga"
    ),
]
ToolsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--tools",
        metavar="REF",
        help="A file.py[:NAME] or module[:NAME] with tools; repeatable; also SAGA_TOOLS or saga.toml.",
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout, for errors too.")]
DebugOption = Annotated[
    bool, typer.Option("--debug", help="Show the traceback of an unexpected error; also SAGA_DEBUG=1.")
]
FullOption = Annotated[bool, option("showSaga", "full", "--full", before="Print ")]
_BEGINNING = ", or a unique beginning of it."
SagaArgument = Annotated[
    str,
    argument("showSaga", "saga_id", metavar="ID", more=_BEGINNING, autocompletion=complete_ids),
]
OptionalSagaArgument = Annotated[
    str | None,
    argument(
        *("showSaga", "saga_id"),
        metavar="ID",
        more=f"{_BEGINNING} Without it, a search: --tag, --name, …",
        autocompletion=complete_ids,
    ),
]
_PLAN = argument("submitSaga", "plan", metavar="PLAN", help="A plan file (JSON), or - to read it from stdin.")
PlanArgument = Annotated[str, _PLAN]
OptionalPlanArgument = Annotated[str | None, _PLAN]
InputOption = Annotated[
    list[str] | None,
    option(
        *("submitSaga", "input", "--input"),
        metavar="K=V",
        help="A value for $input.K: JSON if it is JSON, else a text. Repeatable.",
    ),
]
ByOption = Annotated[
    str | None, typer.Option("--by", metavar="WHO", help="The author, for the journal. Default: the user's name.")
]
NoteOption = Annotated[str, option("cancelSaga", "note", "--note", metavar="TEXT")]


def settings_for(store: str | None = None, tools: list[str] | None = None) -> Settings:
    """The settings in force: flags, then the environment, then ``saga.toml``, then the defaults."""
    from saga_engine.settings import load

    return load({"store": store, "tools": tools})


def registry_for(settings: Settings) -> ToolRegistry:
    """All tools that the settings name, with the operator's options and secrets.

    Output of their modules goes to stderr. Raises ``ToolInvalid`` and ``SettingInvalid``.
    """
    from saga_engine.cli.output import note, stdout_kept_clean
    from saga_engine.tools.loader import load_tools
    from saga_engine.tools.registry import ToolRegistry

    found: list[Any] = []
    with stdout_kept_clean():
        for reference in settings.tools:
            found += load_tools(reference, settings.base)
        if settings.http_tools:
            from saga_engine.sources.http import http_tools

            found += http_tools(
                settings.http_tools,
                base=settings.origin("http")[0],
                source=settings.origin("http")[1],
                allow_private=_written_policy(settings).allow_private,
            )
        for server in servers_of(settings):
            if server.pins() is None:
                note(f"warning: MCP server {server.name} has no accepted tools; saga tools accept {server.name}")
            found += server.tools()
        registry = ToolRegistry(found)
    from saga_engine.api.governing import governing

    files = governing(settings)
    registry = files.configured(registry, strict=True)
    registry.governed = True
    registry.allow_secrets(*files.secrets())
    return registry


def servers_of(settings: Settings) -> list[McpServer]:
    """The MCP servers of the settings; nothing is started. Raises ``SettingInvalid`` and ``ToolInvalid``."""
    if not settings.mcp_servers:
        return []
    from saga_engine.sources.mcp import mcp_servers

    base, source = settings.origin("mcp")
    return mcp_servers(settings.mcp_servers, base=base, source=source)


def policy_of(settings: Settings) -> Policy:
    """The policy of the files: a call must pass the operator's and the project's.

    It also asks about the tools of MCP servers that no manifest names. Raises ``SettingInvalid`` and ``ToolInvalid``.
    """
    from saga_engine.policy.unlisted import with_unlisted

    found = with_unlisted(
        _written_policy(settings), [tool for server in servers_of(settings) for tool in server.tools()]
    )
    assert found is not None
    return found


def _written_policy(settings: Settings) -> Policy:
    from saga_engine.api.governing import governing
    from saga_engine.policy.rules import Policy

    return governing(settings).policy() or Policy()


def has_policy(settings: Settings) -> bool:
    """Whether ``policy_of`` may say anything but yes."""
    return bool(settings.holding("policy") or settings.mcp_servers)


def plan_source(plan: str) -> bytes | Path:
    """The input of ``load_plan``: the bytes of stdin for ``-``, else a path."""
    if plan != "-":
        return _piped(Path(plan)) or Path(plan)
    import sys

    from saga_engine.plan.limits import MAX_PLAN_BYTES

    # One byte more than the limit shows that it is too large; an endless pipe ends here.
    return sys.stdin.buffer.read(MAX_PLAN_BYTES + 1)


def _piped(path: Path) -> bytes | None:
    """The content of a pipe that a shell made, as in ``saga check <(my-planner)``; None if it is not a pipe."""
    if not path.is_fifo():
        return None
    from saga_engine.plan.limits import MAX_PLAN_BYTES

    with path.open("rb") as pipe:
        return pipe.read(MAX_PLAN_BYTES + 1)


def person(by: str | None) -> str:
    """Who answers: ``--by``, else the user's name, which a container or a cron job may know only from its user id."""
    import getpass
    import os

    if by is not None:
        return by
    try:
        return os.environ.get("USER") or getpass.getuser()
    except (OSError, KeyError, ImportError):  # a user id without a name
        return ""
