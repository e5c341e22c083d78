"""A draft of a manifest: tables for the tools of a server that the operator has not described yet.

A server's hints pre-fill them, as comments and as ``effect``. They are claims of the server: nothing relies on them
before an operator has put the tables into ``saga.toml``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator

from saga_engine.plan.values import printable
from saga_engine.sources.mcp.pins import PinnedTool, Pins

_BARE = re.compile(r"[A-Za-z0-9_-]+")


def draft(server: str, pins: Pins, described: Collection[str]) -> str:
    """The tables as TOML; an empty text if every tool is described."""
    return "\n".join(line for name in sorted(pins) if name not in described for line in _table(server, pins[name]))


def _table(server: str, tool: PinnedTool) -> Iterator[str]:
    name = tool.name if _BARE.fullmatch(tool.name) else json.dumps(tool.name)
    first = tool.description.strip().split("\n", 1)[0]
    yield f"[mcp.{server}.tools.{name}]"
    if first:
        yield f"# {printable(first, 110)}"
    if tool.hints.get("readOnlyHint") is True:
        yield 'effect = "read"        # the server says so: check it'
        yield ""
        return
    yield 'effect = "write"'
    yield '# undo = "…"           # the tool that takes it back'
    if tool.hints.get("idempotentHint") is True:
        yield "# the server says that a repeat changes nothing more"
    yield '# is_error = "not-done"  # if an answer with isError means that nothing was done'
    yield ""
