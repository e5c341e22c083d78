"""The tools that an agent is offered: those of the MCP servers as the servers declare them, and all others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from saga_engine.errors import SettingInvalid
from saga_engine.plan.tool_spec import ToolSpec, only_helpers
from saga_engine.sources.mcp.call import McpCall
from saga_engine.sources.mcp.cases import When
from saga_engine.sources.mcp.compensation import FIELD as COMPENSATION
from saga_engine.sources.mcp.helpers import ByHand
from saga_engine.sources.mcp.pins import Pins
from saga_engine.sources.mcp.server import McpServer
from saga_engine.tools.decorator import AnyTool
from saga_engine.tools.registry import ToolRegistry

#: Names that begin so are the gateway's own.
OWN: Final = "saga_"


@dataclass(frozen=True, slots=True)
class Offered:
    """A tool as an agent sees it. ``tool``: its name in the engine; ``declared``: its entry in ``tools/list``.

    ``irreversible``: it writes, and no operator has said how that is undone.
    """

    name: str
    tool: str
    declared: dict[str, Any]
    irreversible: bool
    is_read: bool = False
    is_remote: bool = True
    cases: tuple[tuple[When, Offered], ...] = ()

    def of_call(self, params: Mapping[str, Any]) -> Offered:
        """What holds for a call with these params: the first case that it is of, else the tool itself."""
        schema = self.declared.get("inputSchema", {})
        return next((case for when, case in self.cases if when.fits(params, schema)), self)

    @property
    def is_structured(self) -> bool:
        """Whether its answers must have structured content: it declares that, or it is no tool of a server."""
        return not self.is_remote or "outputSchema" in self.declared


def offered(tools: ToolRegistry, *, undos: bool = False) -> dict[str, Offered]:
    """The tools by the names that an agent sees; with ``undos`` also those that only undo or probe.

    A tool of a server has the server's own name for it. Where two tools would have one name, or a name is reserved for
    the gateway, each of them is called ``SERVER__NAME``, so no server can take the place of another one's tool. Raises
    ``SettingInvalid`` if even then two have one name.
    """
    hidden = frozenset[str]() if undos else only_helpers(tools)
    own = [tool for tool in tools if _when(tool) is None]
    listed = [(tool, *_names(tool)) for tool in own if not is_helper(tool) and tool.name not in hidden]
    count = Counter(short for _, short, _ in listed)
    names = {tool.name: long if count[short] > 1 or short.startswith(OWN) else short for tool, short, long in listed}
    found: dict[str, Offered] = {}
    for tool, _, _ in listed:
        name = names[tool.name]
        if name in found or name.startswith(OWN):
            raise SettingInvalid(
                f"the gateway cannot offer {tool.name}: the name {name!r} is taken",
                hint=f"names that begin with {OWN!r} are its own; give the server another name in saga.toml",
                tool=tool.name,
            )
        found[name] = _with_cases(_offer(name, tool, names), tool, tools, names)
    return dict(sorted(found.items()))


def servers_in(tools: Iterable[AnyTool]) -> list[McpServer]:
    """The MCP servers whose tools these are."""
    found = {id(server): server for tool in tools if (server := _server(tool)) is not None}
    return [*found.values()]


def is_helper(tool: AnyTool) -> bool:
    """Whether a tool serves the undos of a manifest, and no agent."""
    function = tool.function
    return isinstance(function, ByHand) or (isinstance(function, McpCall) and function.is_helper)


def _when(tool: AnyTool) -> When | None:
    return tool.function.when if isinstance(tool.function, McpCall) else None


def _with_cases(made: Offered, tool: AnyTool, tools: ToolRegistry, names: Mapping[str, str]) -> Offered:
    """A server's tool with its cases: an agent is offered the tool, and the engine calls the case."""
    function = tool.function
    if not isinstance(function, McpCall) or function.when is not None:
        return made
    cases = [
        (when, _offer(made.name, each, names))
        for each in tools
        if (when := _when(each)) is not None
        and isinstance(each.function, McpCall)
        and (each.function.source, each.function.remote) == (function.source, function.remote)
    ]
    if not cases:
        return made
    hints = {"readOnlyHint": False} if any(not case.is_read for _, case in cases) else {}
    hints |= {"destructiveHint": True} if made.irreversible or any(case.irreversible for _, case in cases) else {}
    declared = {**made.declared, "annotations": {**made.declared.get("annotations", {}), **hints}}
    return replace(made, declared=declared, cases=tuple(cases))


def _names(tool: AnyTool) -> tuple[str, str]:
    """The name that a tool has if no other one has it, and the one that it has otherwise."""
    function, server = tool.function, _server(tool)
    if isinstance(function, McpCall) and server is not None:
        return function.remote, f"{server.name}__{function.remote}"
    return tool.name, f"local__{tool.name}"


def _server(tool: AnyTool) -> McpServer | None:
    source = tool.function.source if isinstance(tool.function, McpCall) else None
    return source if isinstance(source, McpServer) else None


def _offer(name: str, tool: AnyTool, names: Mapping[str, str]) -> Offered:
    spec = tool.spec()
    undo = tool.undo if isinstance(tool.undo, str | None) else getattr(tool.undo, "name", "")
    irreversible = spec.effect == "write" and undo is None and spec.semantic in (None, "never")
    server = _server(tool)
    pins = None if server is None else server.pins()
    declared = _of_spec(spec) if pins is None else _of_server(tool, spec, pins)
    if irreversible:  # whatever its server says of it: a client asks its user before it calls such a tool
        declared["annotations"] = {**declared.get("annotations", {}), "destructiveHint": True}
    elif spec.effect == "write":
        declared["_meta"] = {COMPENSATION: {"tool": names.get(undo or "")}}
    return Offered(name, tool.name, {"name": name, **declared}, irreversible, spec.effect == "read", pins is not None)


def _of_server(tool: AnyTool, spec: ToolSpec, pins: Pins) -> dict[str, Any]:
    """The server's declaration. A param that the engine fills is not the agent's.

    A client may run a tool without asking its user because of ``readOnlyHint``; only the operator's word allows that.
    """
    function = tool.function
    assert isinstance(function, McpCall)
    pin = pins[function.remote]
    made: dict[str, Any] = {
        "description": pin.description,
        "inputSchema": {"type": "object", **(spec.input_schema if function.fills_a_param else pin.input_schema)},
    }
    if pin.output_schema is not None:
        made["outputSchema"] = pin.output_schema
    hints = dict(pin.hints)
    if hints.get("readOnlyHint") and spec.effect != "read":
        hints["readOnlyHint"] = False
    return {**made, "annotations": hints} if hints else made


def _of_spec(spec: ToolSpec) -> dict[str, Any]:
    """A tool of another source; what it says of itself is the operator's word."""
    hints: dict[str, Any] = {"readOnlyHint": spec.effect == "read"}
    return {"description": spec.description, "inputSchema": dict(spec.input_schema), "annotations": hints}
