"""An MCP server as a source of tools: the accepted tools as tools of the engine, and their connections."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from saga_engine.errors import SettingInvalid, ToolInvalid
from saga_engine.loggers import logger_of
from saga_engine.plan.values import printable
from saga_engine.sources.mcp.call import McpCall
from saga_engine.sources.mcp.helpers import ByHand, Helper
from saga_engine.sources.mcp.listing import Listing
from saga_engine.sources.mcp.manifest import LOCK_FILE, ServerConfig, ToolManifest, server_config, unlisted, usable_name
from saga_engine.sources.mcp.messages import without_nulls
from saga_engine.sources.mcp.pins import Pins, read_left_out, read_pins
from saga_engine.sources.tables import COMPOSED
from saga_engine.tools.decorator import AnyTool, Tool

if TYPE_CHECKING:
    from saga_engine.sources.mcp.connection import Connection

_log = logger_of("saga_engine.sources.mcp")

#: A longer description is for no model.
_MAX_DESCRIPTION_CHARS = 8000


class McpServer:
    """A server whose tools plans and sessions may call, for ``Coordinator.open(sources=[…])``.

    The fields are those of an ``[mcp.NAME]`` table (docs/mcp.md): ``McpServer("git", command=["mcp-server-git"],
    tools={"git_commit": {"undo": "git_reset"}})``. ``lock``: the file with the accepted tools, written by
    ``saga tools accept``; without one, what the server lists when the coordinator opens is accepted for its life.

    Raises ``SettingInvalid`` and ``ToolInvalid``. It connects at the first call.
    """

    def __init__(
        self,
        name: str,
        *,
        lock: str | Path | None = None,
        base: Path | None = None,
        source: str = "sources",
        **table: Any,
    ) -> None:
        if find_spec("mcp") is None:
            raise ToolInvalid("MCP servers need the package mcp", hint="pip install 'saga-engine[mcp]'", server=name)
        base = Path.cwd() if base is None else base
        self._config = server_config(name, table, base=base, source=source, lock=None if lock is None else base / lock)
        self._source = source
        #: Whether outputs of forward calls hold the whole answer, from which ``results.answer_of`` makes it again.
        self.whole_answers = False
        self._pins: Pins | None = None
        self._connections: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Connection] = (
            weakref.WeakKeyDictionary()
        )

    @property
    def name(self) -> str:
        """Its name: the beginning of the names of its tools."""
        return self.config.name

    @property
    def config(self) -> ServerConfig:
        """Its declaration."""
        return self._config

    # --- tools ---------------------------------------------------------------------------------------------------

    def pins(self) -> Pins | None:
        """The accepted tools; None if there are none yet. Raises ``SettingInvalid``."""
        if self._pins is None and self.config.lock is not None:
            self._pins = read_pins(self.config.lock).get(self.name)
        return self._pins

    async def open(self) -> None:
        """Without a file of accepted tools, accept what the server lists now. Raises ``ToolInvalid``."""
        if self.config.lock is None and self._pins is None:
            self._pins = await self.listed()
        elif self.pins() is None:
            _log.warning("MCP server %s has no accepted tools: saga tools accept %s", self.name, self.name)

    async def listed(self) -> Pins:
        """The tools that the server lists now and that can be read. Raises ``ToolInvalid`` if it cannot be reached."""
        return (await self.listing()).tools

    async def listing(self) -> Listing:
        """What the server lists now. Raises ``ToolInvalid`` if it cannot be reached."""
        from saga_engine.sources.mcp.connection import NotConnected

        try:
            live = await self.connection().live()
        except NotConnected as error:
            raise ToolInvalid(error.reason, hint="start it by hand to see why", server=self.name) from error
        return live.listing

    def tools(self) -> list[AnyTool]:
        """The accepted tools that can be used; what an unusable one lacks is logged, and costs the others nothing.

        Raises ``SettingInvalid`` for tables that name no tool or the same one twice; none if nothing was accepted yet.
        """
        pins = self.pins()
        if pins is None:
            return []
        self._check_names(pins)
        found, unusable = self.usable(pins)
        for remote, why in unusable.items():
            _log.warning("MCP server %s: the tool %s cannot be used: %s", self.name, printable(remote, 100), why)
        return found

    def usable(self, pins: Pins) -> tuple[list[AnyTool], dict[str, str]]:
        """Each tool and helper that can be used, and why the others cannot: their schemas are not ours."""
        named = {remote: self._manifest(remote) for remote in pins}
        helpers = {
            name: it for name, it in self.config.helpers.items() if it.helper and self._can_help(it.helper, pins)
        }
        cases = {f"{remote}.{name}": (remote, case) for remote, name, case in self._cases(pins)}
        manifests = [*named.values(), *(case for _, case in cases.values()), *helpers.values()]
        local = {it.name: f"{self.name}.{it.name}" for it in manifests if it is not None}
        found: dict[str, AnyTool] = {}
        unusable: dict[str, str] = {}
        for remote, it in named.items():
            if it is None:
                unusable[remote] = "its name cannot stand in a plan: give it one in its table, name = …"
                continue
            try:
                tool = self._tool(remote, it, pins, local)
                tool.spec()  # checks the schemas
                found[remote] = tool
            except ToolInvalid as error:
                unusable[remote] = error.message
        for name, (remote, case) in cases.items():
            if remote in found:
                found[name] = self._tool(remote, case, pins, local)
            else:
                unusable[name] = f"the tool {remote!r} cannot be used"
        made = [*found.values(), *(self._helper(it, pins, local) for it in helpers.values())]
        return _without_missing_links(made, found, unusable, f"{self.name}."), unusable

    def _cases(self, pins: Pins) -> list[tuple[str, str, ToolManifest]]:
        """The cases of accepted tools: tool, name, and what the operator says of it."""
        tools = {remote: it for remote, it in self.config.tools.items() if remote in pins}
        return [(remote, name, case) for remote, it in tools.items() for name, case in it.cases.items()]

    def _check_names(self, pins: Pins) -> None:
        """Raise ``SettingInvalid`` for tables of tools that do not exist, and for two tools of one name."""
        left_out = {} if self.config.lock is None else read_left_out(self.config.lock).get(self.name, {})
        for remote in self.config.tools:
            if remote not in pins and remote not in left_out and not self._is_shipped(remote):
                near = get_close_matches(remote, pins, n=3)
                raise SettingInvalid(
                    f"[mcp.{self.name}.tools.{remote}] in {self._source}: the server has no such tool",
                    hint=f"did you mean {', '.join(near)}?" if near else f"saga tools accept {self.name}",
                    server=self.name,
                    tool=remote,
                )
        taken: dict[str, str] = {}
        for remote in pins:
            it = self._manifest(remote)
            if it is not None and taken.setdefault(it.name, remote) != remote:
                raise SettingInvalid(
                    f"two tools of MCP server {self.name!r} are called {it.name!r}: {taken[it.name]!r} and {remote!r}",
                    hint="give one of them another name in the manifest",
                    server=self.name,
                )
        for name in self.config.helpers.keys() & taken.keys():
            raise SettingInvalid(
                f"[mcp.{self.name}.helpers.{name}] in {self._source}: the server has a tool {name!r}",
                hint="give the helper another name",
                server=self.name,
            )

    def _is_shipped(self, remote: str) -> bool:
        """Whether a table is of a manifest that serves several versions of the server."""
        return self.config.manifest is not None and remote in self.config.manifest.tools

    def _can_help(self, helper: Helper, pins: Pins) -> bool:
        return not helper.tool or helper.tool in pins

    def can_be_named(self, remote: str) -> bool:
        """Whether plans can name a tool: by the server's name of it, or by that of its table."""
        return self._manifest(remote) is not None

    def _manifest(self, remote: str) -> ToolManifest | None:
        given = self.config.tools.get(remote)
        if given is not None:
            return given
        return unlisted(remote) if usable_name(self.name, remote) else None

    def _tool(self, remote: str, it: ToolManifest, pins: Pins, local: Mapping[str, str]) -> AnyTool:
        pin = pins[remote]
        schema = {"type": "object", **without_nulls(pin.input_schema)}
        if it.when is not None:
            schema = it.when.narrowed(schema)
        if it.key is not None and it.key[0] == "param":
            schema = _without(schema, it.key[1])
        if not COMPOSED & schema.keys() and "properties" in schema:
            schema.setdefault("additionalProperties", False)
        description = printable(pin.description.replace("\n", " "), _MAX_DESCRIPTION_CHARS)
        output = without_nulls(pin.output_schema) if it.answer == "auto" else None
        made = {"description": description, "input_schema": schema, "output_schema": output}
        return self._made(McpCall(self, remote, pin.digest, it, output), it, local, made)

    def _helper(self, it: ToolManifest, pins: Pins, local: Mapping[str, str]) -> AnyTool:
        helper = it.helper
        assert helper is not None
        name = f"{self.name}.{it.name}"
        if helper.by_hand is not None:
            function: Any = ByHand(name, helper.by_hand)
            about = "An undo that no tool of the server makes. It is for manifests, not for plans."
        else:
            function = McpCall(self, helper.tool, pins[helper.tool].digest, it)
            about = f"Calls {self.name}.{helper.tool} for undos and reads of a manifest. It is not for plans."
        return self._made(function, it, local, {"description": about, "input_schema": helper.input_schema()})

    def _made(self, function: Any, it: ToolManifest, local: Mapping[str, str], usual: Mapping[str, Any]) -> AnyTool:
        return Tool(
            function,
            **{
                **usual,
                **it.options,
                "name": f"{self.name}.{it.name}",
                "effect": it.effect,
                "raised": "unknown" if it.effect == "write" else None,  # its manifest says what is a refusal
                "keyed": it.key is not None or it.idempotent,
                "key_ttl_s": it.key_ttl_s,
                **it.images,
                "undo_then": [
                    {**call, "tool": local.get(call.get("tool", ""), call.get("tool"))}
                    for call in it.images.get("undo_then", ())
                ],
                **{role: None if name is None else local.get(name, name) for role, name in it.links().items()},
                "tolerates_absence": it.tolerates_absence,
            },
        )

    # --- connections ---------------------------------------------------------------------------------------------

    def connection(self) -> Connection:
        """The connection of the running event loop."""
        from saga_engine.sources.mcp.connection import Connection

        loop = asyncio.get_running_loop()
        found = self._connections.get(loop)
        if found is None:
            found = self._connections[loop] = Connection(self.config)
        return found

    async def close(self) -> None:
        """End the connection of the running event loop, unless another coordinator has a call in flight there."""
        found = self._connections.get(asyncio.get_running_loop())
        if found is not None and not found.in_use:
            await found.close()


def mcp_servers(table: Mapping[str, Any], *, base: Path, source: str) -> list[McpServer]:
    """The servers of the ``[mcp.NAME]`` tables of ``source``, a file in ``base``; their accepted tools lie beside it.

    Nothing is started. Raises ``SettingInvalid``, and ``ToolInvalid`` if the package ``mcp`` is not installed.
    """
    made: list[McpServer] = []
    for name, fields in table.items():
        if not isinstance(fields, dict):
            raise SettingInvalid(f"[mcp.{name}] in {source} must be a table")
        given = dict(fields)
        made.append(McpServer(name, lock=given.pop("lock", LOCK_FILE), base=base, source=source, **given))
    return made


def _without_missing_links(
    made: list[AnyTool], found: Mapping[str, AnyTool], unusable: dict[str, str], prefix: str
) -> list[AnyTool]:
    """The tools without those that name an unusable one as undo, probe or reader; these are then unusable, too."""
    remotes = {tool.name: remote for remote, tool in found.items()}
    gone = {f"{prefix}{remote}" for remote in unusable}
    while True:
        for tool in made:
            links = (tool.undo, tool.probe, tool.before, tool.undo_absent)
            missing = next((link for link in links if isinstance(link, str) and link in gone), None)
            if missing is not None:
                gone.add(tool.name)
                unusable[remotes.get(tool.name, tool.name)] = f"it needs {missing}, which cannot be used"
                break
        else:
            return made
        made = [tool for tool in made if tool.name not in gone]


def _without(schema: dict[str, Any], param: str) -> dict[str, Any]:
    """A schema without the param that the engine fills."""
    properties = {name: value for name, value in schema.get("properties", {}).items() if name != param}
    required: Sequence[str] = schema.get("required", ())
    return {**schema, "properties": properties, "required": [name for name in required if name != param]}
