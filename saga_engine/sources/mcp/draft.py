"""A draft of a manifest: tables for the tools of a server that the operator has not described yet.

A server's hints and the names of its tools pre-fill them, as comments and as ``effect``. They are claims of the server:
nothing relies on them before an operator has put the tables into ``saga.toml``.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Collection, Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from types import MappingProxyType
from typing import Final

from saga_engine.errors import SettingInvalid
from saga_engine.plan.name_guesses import back_of, probe_of
from saga_engine.plan.values import printable
from saga_engine.sources.mcp.manifest import server_config, usable_name
from saga_engine.sources.mcp.pins import PinnedTool, Pins
from saga_engine.sources.mcp.shipped import builtin, builtin_names
from saga_engine.sources.toml import key, value

_FOREIGN: Final = re.compile(r"[^A-Za-z0-9_.-]+")
#: The characters of a tool's name with its server's.
_MOST_CHARS: Final = 64


#: What a shipped manifest leaves to an operator, and what spares the question: in comments, as it needs a folder.
_CURES: Final[Mapping[str, tuple[str, ...]]] = {
    "filesystem": (
        "# This server cannot delete: an operator is asked about each file that an agent created and that is undone.",
        "# With a folder that the server may write, on the same file system, it is moved there instead. Uncomment:",
        "# [mcp.{server}.helpers.remove_created]",
        '# tool = "move_file"',
        '# params = {{ source = "{{path}}", destination = "/PATH/OF/A/FOLDER/{{idempotency_key}}" }}',
    )
}


def heading(server: str, table: Mapping[str, object], pins: Pins, about: str) -> str:
    """The table of a server, with the shipped manifest that describes it."""
    lines = [f"[mcp.{server}]", f"# {printable(about, 200)}"]
    for name, given in table.items():
        if given:
            lines.append(f"{name} = {value(given)}")
    known, differing = described_by(pins)
    if known:
        lines.append(f'manifest = "builtin:{known}"')
        version = builtin(known)["tried"]["version"]
        if differing:
            lines.append(f"# It was tried with version {version}, which declares {', '.join(differing)} otherwise.")
        lines += [each.format(server=server) for each in _CURES.get(known, ())]
    return "\n".join([*lines, ""])


def described_by(pins: Pins) -> tuple[str, list[str]]:
    """The shipped manifest for these tools, and which of them it was not tried with; an empty name if there is none."""
    for name in builtin_names():
        tools, tried = builtin(name)["tools"], builtin(name)["tried"].get("digests")
        writes = [tool for tool, table in tools.items() if table.get("effect") != "read"]
        if pins and set(writes) <= set(pins) and len(set(tools) & set(pins)) * 4 >= len(pins) * 3:
            # A manifest that was held against a published schema has no digests.
            return name, sorted(tool for tool in pins if tried and tried.get(tool) != pins[tool].digest)
    return "", []


def draft(server: str, pins: Pins, described: Collection[str], undos: Mapping[str, str] = MappingProxyType({})) -> str:
    """The tables as TOML, each of which loads; an empty text if every tool is described.

    ``undos``: by tool, the one that takes back what it does, as the server says.
    """
    made: list[str] = []
    for name in sorted(pins):
        if name not in described:
            table = "\n".join(_table(server, pins[name], pins, undos.get(name, "")))
            why = _loads(server, table)
            made.append(table if not why else f"# No table for {printable(name, 100)}: {printable(why, 200)}\n")
    return "\n".join(made)


def _table(server: str, tool: PinnedTool, pins: Pins, claimed: str) -> Iterator[str]:
    first = tool.description.strip().split("\n", 1)[0]
    yield f"[mcp.{server}.tools.{key(tool.name)}]"
    if first:
        yield f"# {printable(first, 110)}"
    if not usable_name(server, tool.name):
        yield f"name = {value(_other_name(server, tool.name, pins))}           # its own cannot stand in a plan"
    if tool.hints.get("readOnlyHint") is True:
        yield 'effect = "read"        # the server says so: check it'
        yield ""
        return
    yield 'effect = "write"'
    if claimed:
        back = claimed if usable_name(server, claimed) else _other_name(server, claimed, pins)
        yield f"undo = {value(back)}        # the server says so: check it"
    else:
        back = back_of(tool.name, pins)
        yield f"# undo = {value(back or '…')}           # the tool that takes it back" + (
            ": a guess by its name" if back else ""
        )
    look = probe_of(tool.name, pins)
    if look:
        yield f"# probe = {value(look)}           # the tool that tells whether it happened: a guess by its name"
    if tool.hints.get("idempotentHint") is True:
        yield "# idempotent = true     # the server says that a repeat changes nothing more"
    yield '# is_error = "not-done"  # if an answer with isError means that nothing was done'
    yield ""


def _other_name(server: str, name: str, pins: Pins) -> str:
    """A name that plans can write, for a tool whose own they cannot; no other tool of the server has it."""
    plain = _plain(name)
    others = sum(_plain(other) == plain for other in pins)
    if plain not in pins and others < 2 and usable_name(server, plain):
        return plain
    mark = sha256(name.encode("utf-8", "replace")).hexdigest()[:6]
    return f"{plain[: _MOST_CHARS - len(server) - len(mark) - 2]}_{mark}"


def _plain(name: str) -> str:
    found = _FOREIGN.sub("_", name).strip("_.-")
    return found if found and not found[0].isdigit() else f"_{found}"


def _loads(server: str, text: str) -> str:
    """Why a table cannot be put into ``saga.toml``; empty if it can."""
    try:
        tools = tomllib.loads(text)["mcp"][server]["tools"]
        server_config(server, {"command": ["-"], "tools": tools}, base=Path(), source="the draft", lock=None)
    except (SettingInvalid, tomllib.TOMLDecodeError) as error:
        return str(error)
    return ""
