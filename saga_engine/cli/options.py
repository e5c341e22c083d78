"""The options that several commands share, and what they add up to."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from saga_engine.settings import Settings
    from saga_engine.tools.registry import ToolRegistry

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
FullOption = Annotated[
    bool, typer.Option("--full", help="Outputs whole, however large. Else those over 31 KiB are in their cut form.")
]
SagaArgument = Annotated[str, typer.Argument(metavar="ID", help="The saga's id.")]
PlanArgument = Annotated[str, typer.Argument(metavar="PLAN", help="A plan file (JSON), or - to read it from stdin.")]
ByOption = Annotated[
    str | None, typer.Option("--by", metavar="WHO", help="Who says so; journalled. Default: the user's name.")
]
NoteOption = Annotated[str, typer.Option("--note", metavar="TEXT", help="Why; journalled.")]


def settings_for(store: str | None = None, tools: list[str] | None = None) -> Settings:
    """The settings in force: flags, then the environment, then ``saga.toml``, then the defaults."""
    from saga_engine.settings import load

    return load({"store": store, "tools": tools})


def registry_for(settings: Settings) -> ToolRegistry:
    """All tools that the settings name, with the options and the secrets that the operator gives them.

    What their modules print goes to stderr. Raises ``ToolInvalid`` and ``SettingInvalid``.
    """
    from saga_engine.cli.output import stdout_kept_clean
    from saga_engine.tools.loading import load_tools
    from saga_engine.tools.registry import ToolRegistry

    found: list[Any] = []
    with stdout_kept_clean():
        for reference in settings.tools:
            found += load_tools(reference, settings.base)
        if settings.http_tools:
            from saga_engine.tools.http import http_tools

            found += http_tools(
                settings.http_tools,
                base=settings.file_base,
                source=settings.file_name,
                allow_private=_allow_private(settings),
            )
        registry = ToolRegistry(found)
    if settings.tool_options:
        from saga_engine.tools.overrides import apply_overrides

        registry = apply_overrides(registry, settings.tool_options, settings.file_name)
    from saga_engine.tools.secrets import allowed_of

    # A plan that is given on the command line may have any author: it gets the secrets that are listed, and no others.
    registry.allow_secrets(allowed_of(settings.secrets, settings.file_name))
    return registry


def _allow_private(settings: Settings) -> list[str]:
    """The addresses that the policy allows although they are not public. Raises ``SettingInvalid``."""
    listed = settings.policy.get("allow_private", [])
    if isinstance(listed, list) and all(isinstance(one, str) for one in listed):
        return listed
    from saga_engine.errors import SettingInvalid

    raise SettingInvalid(
        f"allow_private of [policy] in {settings.file_name} must be a list of texts",
        hint='write allow_private = ["127.0.0.1", "10.1.0.0/16"]',
    )


def plan_source(plan: str) -> bytes | Path:
    """What ``load_plan`` reads: the bytes of stdin for ``-``, else a path."""
    if plan != "-":
        return Path(plan)
    import sys

    from saga_engine.plan.limits import MAX_PLAN_BYTES

    # One byte more than is allowed tells that it is too large; an endless pipe ends here.
    return sys.stdin.buffer.read(MAX_PLAN_BYTES + 1)


def person(by: str | None) -> str:
    """Who answers: ``--by``, else the user's name, else nobody in particular."""
    import os

    return by if by is not None else os.environ.get("USER") or os.environ.get("USERNAME") or ""
