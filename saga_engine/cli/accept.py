"""``saga tools accept``: accepts the tools that MCP servers list now."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from saga_engine.cli import exit_codes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from saga_engine.settings import Settings
    from saga_engine.sources.mcp import McpServer
    from saga_engine.sources.mcp.listing import Listing
    from saga_engine.sources.mcp.pins import PinnedTool


def accept(settings: Settings, names: Sequence[str], *, dry_run: bool, manifest: bool, as_json: bool) -> int:
    """Connect to the servers, show the changes, and write them unless ``dry_run``.

    Raises ``SettingInvalid`` for an unknown server. A server that cannot be reached, and a tool that cannot be used,
    are reported, and the exit code is 1; the others are accepted.
    """
    from saga_engine.cli.options import servers_of
    from saga_engine.cli.output import data, document, note, shown, table
    from saga_engine.sources.mcp.draft import draft as drafted

    servers = chosen(servers_of(settings), names)
    found = asyncio.run(_all(servers))
    told: list[dict[str, Any]] = []
    failed, rows, drafts = False, [], []
    for server, (listing, why) in zip(servers, found, strict=True):
        if listing is None:
            failed = True
            note(f"error: {shown(why)}")
            told.append({"server": server.name, "error": why})
            continue
        pins, left_out = usable(server, listing)
        changed = _changed(server, pins, left_out, dry_run=dry_run)
        failed = failed or (dry_run and bool(changed)) or bool(left_out)
        told.append({"server": server.name, "tools": len(pins), "changes": [each.to_dict() for each in changed]})
        if left_out:
            told[-1]["left_out"] = left_out
        if hidden := {name: tool.hidden for name, tool in pins.items() if tool.hidden}:
            told[-1]["hidden"] = hidden
        rows += [
            [f"{server.name}.{each.tool}", each.change, ", ".join(each.fields), _described(server, each.tool)]
            for each in changed
        ]
        undos = {name: undo for name, undo in listing.undos.items() if name in pins and undo in pins}
        if undos:
            told[-1]["undos"] = undos
        drafts.append(drafted(server.name, pins, server.config.tools, undos))
    if as_json:
        document({"servers": told, "dry_run": dry_run})
    elif manifest:
        data("\n".join(text for text in drafts if text).rstrip())
    elif rows:
        data(table(["TOOL", "CHANGE", "FIELDS", "MANIFEST"], rows))
    if not as_json:
        for one in told:
            for name, characters in one.get("hidden", {}).items():
                told_of = f"{one['server']}.{shown(name)} ({', '.join(characters[:5])})"
                note(f"warning: its name or description has characters that nobody sees: {told_of}")
            for name, why in one.get("left_out", {}).items():
                note(f"error: {one['server']}.{shown(name)} is left out, it cannot be used: {shown(why)}")
            if "error" not in one:
                note(_summary(one, dry_run=dry_run))
    return exit_codes.ERROR if failed else exit_codes.COMPLETED


def _summary(one: dict[str, Any], *, dry_run: bool) -> str:
    count = len(one["changes"])
    changes = f"{count} change{'' if count == 1 else 's'}" if count else "nothing changed"
    end = "; not accepted (--dry-run)" if dry_run and count else "; accepted" if count else ""
    return f"{one['server']}: {one['tools']} tools, {changes}{end}"


def chosen(servers: list[McpServer], names: Sequence[str]) -> list[McpServer]:
    """The servers with these names; all without names. Raises ``SettingInvalid``."""
    from saga_engine.errors import SettingInvalid

    known = {server.name: server for server in servers}
    for name in names:
        if name not in known:
            hint = f"servers: {', '.join(known)}" if known else "declare it in saga.toml: [mcp.NAME]"
            raise SettingInvalid(f"there is no MCP server {name!r}", hint=hint, server=name)
    if not known:
        raise SettingInvalid("no MCP servers are configured", hint="declare them in saga.toml: [mcp.NAME]")
    return [known[name] for name in names] or servers


async def _all(servers: Sequence[McpServer]) -> list[tuple[Any, str]]:
    """What each server lists, or why it cannot be listed."""
    from saga_engine.errors import ToolInvalid

    async def one(server: McpServer) -> tuple[Any, str]:
        try:
            return await server.listing(), ""
        except ToolInvalid as error:
            return None, error.message
        finally:
            await server.close()

    return list(await asyncio.gather(*(one(server) for server in servers)))


def usable(server: McpServer, listing: Listing) -> tuple[dict[str, PinnedTool], dict[str, str]]:
    """What a server lists and the engine can use, and what is left out, with the reason.

    A tool whose name cannot stand in a plan is accepted: its table gives it another one.
    """
    _, unusable = server.usable(listing.tools)
    broken = {name: why for name, why in unusable.items() if server.can_be_named(name)}
    pins = {name: tool for name, tool in listing.tools.items() if name not in broken}
    return pins, {**listing.unreadable, **broken}


def _changed(server: McpServer, pins: Any, left_out: Mapping[str, str], *, dry_run: bool) -> list[Any]:
    from saga_engine.sources.mcp.pins import changes, read_left_out, write_pins

    changed = changes(server.pins() or {}, pins)
    assert server.config.lock is not None
    known = read_left_out(server.config.lock).get(server.name, {})
    if not dry_run and (changed or server.pins() is None or left_out != known):
        write_pins(server.config.lock, server.name, pins, left_out)
    return changed


def _described(server: McpServer, tool: str) -> str:
    named = server.config.tools.get(tool)
    return "not named: each call is asked about" if named is None else named.effect
