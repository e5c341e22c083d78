"""``saga inspect``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from saga_engine.cli import exit_codes
from saga_engine.cli.options import DebugOption, JsonOption

FilesArgument = Annotated[
    list[Path] | None,
    typer.Argument(metavar="[FILE…]", help="What was observed. Default: the file of 'observe' in the settings."),
]
_SinceOption = Annotated[
    str | None, typer.Option("--since", metavar="AGE", help="Only what happened within AGE: 5m, 2h or 7d.")
]


def inspect(
    files: FilesArgument = None,
    *,
    since: _SinceOption = None,
    as_json: JsonOption = False,
    debug: DebugOption = False,  # noqa: ARG001 - read by the command
) -> int:
    """Sum up what observed agents did, and draft the tables of saga.toml for their tools.

    Sessions with observe = true, and saga mcp observe, write the files (docs/observe.md). Nothing is called or changed.

    Examples:
      saga inspect
      saga inspect --since 7d calls.jsonl
    """
    from saga_engine.agents.observed_file import draft, summed, told
    from saga_engine.cli.options import settings_for
    from saga_engine.cli.output import data, document, note, shown
    from saga_engine.cli.times import age_ms, local
    from saga_engine.ports.machine_clock import machine_clock
    from saga_engine.settings import OBSERVED

    paths = files or [Path(str(settings_for(None, None).observe or OBSERVED))]
    since_ms = 0 if since is None else round(machine_clock.time() * 1000 - age_ms(since, "--since"))
    found = summed(paths, since_ms=since_ms)
    if as_json:
        document(found.to_dict())
        return exit_codes.COMPLETED
    data(f"{local(found.first_ms)} to {local(found.last_ms)}")
    for line in told(found):
        data(shown(line))
    tables = draft(found)
    if tables:
        note("a draft for saga.toml:")
        data(tables.rstrip())
    return exit_codes.COMPLETED
