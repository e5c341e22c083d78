"""``saga mcp init`` and ``saga mcp check``: writing a manifest, and what one lacks."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from saga_engine.cli import exit_codes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from saga_engine.settings import Settings
    from saga_engine.sources.mcp import McpServer
    from saga_engine.sources.mcp.listing import Listing
    from saga_engine.sources.mcp.pins import Pins
    from saga_engine.tools.registry import ToolRegistry


# --- init ----------------------------------------------------------------------------------------------------------


def init(settings: Settings, words: Sequence[str], env: Sequence[str]) -> int:
    """Print the tables of a server from what it lists now. Raises ``SettingInvalid`` and ``ToolInvalid``."""
    from saga_engine.cli.options import servers_of
    from saga_engine.cli.output import data, note, shown
    from saga_engine.sources.mcp import McpServer
    from saga_engine.sources.mcp.draft import described_by, draft, heading
    from saga_engine.sources.mcp.shipped import builtin

    if not words:
        raise typer.BadParameter("write: saga mcp init NAME [-- PROGRAM ARGS… | URL]", param_hint="init")
    name, where = words[0], list(words[1:])
    configured = {server.name: server for server in servers_of(settings)}
    table: dict[str, Any] = {}
    if where:
        if name in configured:
            raise typer.BadParameter(f"saga.toml has a server {name!r} already", param_hint="NAME")
        remote = len(where) == 1 and where[0].startswith(("http://", "https://"))
        table = {"url": where[0]} if remote else {"command": where, "env": _variables(env)}
        server = McpServer(name, base=Path.cwd(), **table)
    elif name in configured:
        server = configured[name]
    else:
        raise typer.BadParameter(f"saga.toml has no server {name!r}: say how to start it, after --", param_hint="NAME")
    listing, about = asyncio.run(_seen(server))
    pins = listing.tools
    known, _ = described_by(pins) if where else ("", [])
    described = {*server.config.tools, *(builtin(known)["tools"] if known else ())}
    parts = [heading(name, table, pins, f"{about}, {len(pins)} tools")] if where else []
    drafted = draft(name, pins, described, listing.undos)
    data("\n".join([*parts, *([drafted] if drafted else [])]).rstrip())
    left = len([tool for tool in pins if tool not in described])
    note(f"{len(pins)} tools, {left} to be described")
    note(f"hint: put the tables into saga.toml, then: saga tools accept {shown(name)}")
    return exit_codes.COMPLETED


def _variables(env: Sequence[str]) -> dict[str, str]:
    made: dict[str, str] = {}
    for each in env:
        name, equals, value = each.partition("=")
        if not equals:
            raise typer.BadParameter(f"{each!r} is not NAME=VALUE", param_hint="--env")
        made[name] = value
    return made


async def _seen(server: McpServer) -> tuple[Listing, str]:
    """What a server lists, and what it is."""
    try:
        listing = await server.listing()
        live = await server.connection().live()
        return listing, f"{live.server or server.name}, protocol {live.protocol}"
    finally:
        await server.close()


# --- check -----------------------------------------------------------------------------------------------------------


def check(settings: Settings, names: Sequence[str], *, trial: Path | None, as_json: bool) -> int:
    """Connect to the servers, and say what their manifests lack. Raises ``SettingInvalid`` and ``ToolInvalid``."""
    from saga_engine.cli.accept import chosen
    from saga_engine.cli.options import registry_for, servers_of
    from saga_engine.cli.output import data, document, note, shown, table

    registry = registry_for(settings)
    servers = chosen(servers_of(settings), names)
    told = asyncio.run(_all(servers, registry))
    tried = asyncio.run(_trial(settings, registry, trial)) if trial is not None else None
    failed = any(one["error"] or any(row["faults"] for row in one["tools"]) for one in told)
    failed = failed or (tried is not None and not tried["as_before"])
    if as_json:
        document({"servers": told, "tried": tried})
        return exit_codes.ERROR if failed else exit_codes.COMPLETED
    rows = [
        [f"{one['server']}.{row['tool']}", row["effect"], row["undo"], "; ".join([*row["faults"], *row["gaps"]])]
        for one in told
        for row in one["tools"]
        if row["effect"] == "write" or row["faults"]
    ]
    if rows:
        data(table(["TOOL", "EFFECT", "UNDO", "MISSING"], rows))
    for each in tried["calls"] if tried else ():
        data(f"{shown(each['tool'])}: {each['outcome']}{': ' + shown(each['about']) if each['about'] else ''}")
    for one in told:
        faults, gaps = (sum(bool(row[kind]) for row in one["tools"]) for kind in ("faults", "gaps"))
        end = f"{len(one['tools'])} tools, {faults} to be mended, {gaps} with something missing"
        note(f"error: {shown(one['error'])}" if one["error"] else f"{one['server']} ({shown(one['about'])}): {end}")
    if tried:
        note("what the reads show is as before" if tried["as_before"] else "not everything is as before")
    return exit_codes.ERROR if failed else exit_codes.COMPLETED


async def _all(servers: Sequence[McpServer], registry: ToolRegistry) -> list[dict[str, Any]]:
    from saga_engine.errors import ToolInvalid

    async def one(server: McpServer) -> dict[str, Any]:
        try:
            listing, about = await _seen(server)
        except ToolInvalid as error:
            return {"server": server.name, "about": "", "error": error.message, "tools": []}
        return {"server": server.name, "about": about, "error": "", "tools": _rows(server, listing.tools, registry)}

    return list(await asyncio.gather(*(one(server) for server in servers)))


def _rows(server: McpServer, pins: Pins, registry: ToolRegistry) -> list[dict[str, Any]]:
    from saga_engine.sources.mcp.pins import changes

    accepted = server.pins() or {}
    changed = {each.tool: each for each in changes(accepted, pins)}
    specs = [spec for name in registry.names() if (spec := registry.spec(name)) is not None]
    serving = {name for spec in specs for name in (spec.undo, spec.undo_absent) if name}
    rows: list[dict[str, Any]] = []
    for remote in sorted({*pins, *accepted}):
        it, change = server.config.tools.get(remote), changed.get(remote)
        faults = []
        if change is not None:
            fields = f" ({', '.join(change.fields)})" if change.fields else ""
            faults.append({"added": "not accepted", "removed": "gone"}.get(change.change, f"changed{fields}"))
        if it is None:
            faults.append("not named: each call is asked about")
        spec = registry.spec(f"{server.name}.{remote if it is None else it.name}")
        gaps = [] if it is None or spec is None else _gaps(server, remote, pins, spec, registry, serving)
        undo = "" if spec is None or spec.undo is None else spec.undo
        effect = "write" if it is None else it.effect
        rows.append({"tool": remote, "effect": effect, "undo": undo, "faults": faults, "gaps": gaps})
    return rows


def _gaps(  # noqa: PLR0917
    server: McpServer, remote: str, pins: Pins, spec: Any, registry: ToolRegistry, serving: set[str]
) -> list[str]:
    """What the manifest of a described tool lacks, and what follows from it."""
    from saga_engine.sources.mcp.helpers import ByHand

    gaps = []
    manifest = server.config.manifest
    tried = manifest.digests.get(remote) if manifest is not None else None
    if tried is not None and remote in pins and pins[remote].digest != tried:
        assert manifest is not None
        gaps.append(f"{manifest.name} was tried with another declaration")
    if spec.effect == "read":
        return gaps
    if spec.undo is None and spec.undo_absent is None and spec.name not in serving:
        function = getattr(registry.get(spec.name), "function", None)
        asked = any(getattr(function, word, False) for word in ("is_final", "is_asked"))
        gaps.append(f"no undo: its effect stays{', and each call of an agent is asked about' if asked else ''}")
    for name in (spec.undo, spec.undo_absent):
        tool = None if name is None else registry.get(name)
        if tool is not None and isinstance(tool.function, ByHand):
            gaps.append(f"{name} is done by hand")
    if not (spec.keyed or spec.probe or spec.sole_writer or spec.remembers):
        gaps.append("no key or probe: a lost answer is asked about")
    return gaps


async def _trial(settings: Settings, registry: ToolRegistry, file: Path | None) -> dict[str, Any]:
    """Make the calls of a file and undo each; says whether what its reads show is as before."""
    from saga_engine.cli.mcp_trial import make_trial

    assert file is not None
    found: Mapping[str, Any] = await make_trial(settings, registry, file)
    return dict(found)
