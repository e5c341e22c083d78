"""The accepted tools of MCP servers, in a file: names, schemas, descriptions, and their digests.

A server can change what a tool means between two runs. The engine offers the tools of this file, and calls a tool only
while the server's own declaration has the same digest.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from saga_engine.errors import SettingInvalid, ValueNotJson
from saga_engine.files import replacing
from saga_engine.plan.values import digest

_VERSION: Final = 1
_MAX_FILE_BYTES: Final = 64 * 2**20
#: A tool whose declaration is longer is refused.
MAX_DECLARATION_CHARS: Final = 256 * 1024
#: Characters that scripts and emoji need, and the line end of other systems.
_HARMLESS: Final = frozenset("\u200c\u200d\r\u00a0\u3000")
#: What a server says of a tool, as far as it is accepted.
_FIELDS: Final = ("description", "inputSchema", "outputSchema")


@dataclass(frozen=True, slots=True)
class PinnedTool:
    """A tool as a server declares it. ``hints``: its annotations, which no digest covers and nothing relies on."""

    name: str
    description: str
    input_schema: dict[str, Any]
    output_schema: dict[str, Any] | None
    hints: dict[str, Any] = field(default_factory=dict)

    @property
    def digest(self) -> str:
        """A hash of everything that a planner or a person relies on."""
        return digest([self.name, self.description, self.input_schema, self.output_schema])[:32]

    @classmethod
    def of(cls, declared: Mapping[str, Any]) -> PinnedTool:
        """A tool of a ``tools/list`` answer. Raises ``ValueError``."""
        name, schema, output = declared.get("name"), declared.get("inputSchema"), declared.get("outputSchema")
        description, hints = declared.get("description") or "", declared.get("annotations") or {}
        if not isinstance(name, str) or not 0 < len(name) <= 256:
            raise ValueError("a tool without a usable name")
        if not isinstance(description, str) or not isinstance(schema, dict) or not isinstance(output, dict | None):
            raise ValueError(f"the tool {name[:100]!r} is no declaration")  # noqa: TRY004 - an answer, no argument
        if len(json.dumps([description, schema, output])) > MAX_DECLARATION_CHARS:
            raise ValueError(f"the declaration of {name[:100]!r} is longer than {MAX_DECLARATION_CHARS:,} characters")
        kept = (
            {key: value for key, value in hints.items() if isinstance(value, bool)} if isinstance(hints, dict) else {}
        )
        tool = cls(name, description, schema, output, kept)
        try:
            _ = tool.digest
        except ValueNotJson as error:
            raise ValueError(f"the declaration of {name[:100]!r} cannot be kept: {error.message[-100:]}") from error
        return tool

    @property
    def hidden(self) -> list[str]:
        """The characters of its name and description that no reader sees, such as ``U+202E``."""
        text = self.name + self.description.replace("\n", "").replace("\t", "")
        return sorted({f"U+{ord(each):04X}" for each in text if not each.isprintable() and each not in _HARMLESS})

    def to_dict(self) -> dict[str, Any]:
        """As in the file."""
        values = dict(zip(_FIELDS, (self.description, self.input_schema, self.output_schema), strict=True))
        return {"digest": self.digest, **values, "annotations": self.hints}


Pins = Mapping[str, PinnedTool]


def read_pins(path: Path) -> dict[str, dict[str, PinnedTool]]:
    """The accepted tools by server; none without a file. Raises ``SettingInvalid`` for a file that was damaged."""
    return _read(path)[0]


def read_left_out(path: Path) -> dict[str, dict[str, str]]:
    """The tools that were left out when the others of their servers were accepted, by server, with the reasons.

    Raises ``SettingInvalid`` for a file that was damaged.
    """
    return _read(path)[1]


def _read(path: Path) -> tuple[dict[str, dict[str, PinnedTool]], dict[str, dict[str, str]]]:
    try:
        if path.stat().st_size > _MAX_FILE_BYTES:
            raise ValueError("it is too large")
        body = json.loads(path.read_text(encoding="utf-8"))
        if body["version"] != _VERSION:
            raise ValueError(f"its version is {body['version']!r}")
        servers = {name: _read_server(tools) for name, tools in body["servers"].items()}
        left_out: dict[str, dict[str, str]] = body.get("left_out", {})
        if not all(isinstance(why, str) for left in left_out.values() for why in left.values()):
            raise ValueError("its left_out is no text for each tool")
    except FileNotFoundError:
        return {}, {}
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise SettingInvalid(
            f"the accepted tools in {path} cannot be read: {str(error)[:300]}",
            hint="write it again: saga tools accept",
            file=str(path),
        ) from error
    return servers, left_out


def _read_server(tools: Mapping[str, Any]) -> dict[str, PinnedTool]:
    found: dict[str, PinnedTool] = {}
    for name, given in tools.items():
        tool = PinnedTool.of({**given, "name": name})
        if tool.digest != given["digest"]:
            raise ValueError(f"the digest of {name!r} does not fit its declaration")
        found[name] = tool
    return found


def write_pins(path: Path, server: str, tools: Pins, left_out: Mapping[str, str] = MappingProxyType({})) -> None:
    """Accept these tools of a server, instead of those that were accepted; other servers keep theirs.

    ``left_out``: tools that it lists and that cannot be used, with the reason. Raises ``SettingInvalid`` if the file
    cannot be read or written.
    """
    accepted, before = _read(path)
    servers = {**accepted, server: dict(tools)}
    left = {name: dict(found) for name, found in {**before, server: left_out}.items() if found}
    made = {name: {tool.name: tool.to_dict() for tool in found.values()} for name, found in sorted(servers.items())}
    body = {"version": _VERSION, "servers": made, **({"left_out": left} if left else {})}
    text = _visible(json.dumps(body, indent=1, ensure_ascii=False, sort_keys=True))
    try:
        with replacing(path, 0o644) as file:  # it is shared like the file with the tables, and holds no secret
            file.write(f"{text}\n".encode())
    except OSError as error:
        raise SettingInvalid(f"{path} cannot be written: {error}", file=str(path)) from error


def _visible(text: str) -> str:
    """The same JSON, in which a reader of a diff sees every character."""
    return "\n".join(
        line if line.isprintable() else "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in line)
        for line in text.split("\n")
    )


@dataclass(frozen=True, slots=True)
class Change:
    """A difference between the accepted tools and those that a server lists."""

    tool: str
    change: str  # added, changed, removed
    fields: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON."""
        return {"tool": self.tool, "change": self.change, "fields": list(self.fields)}


def changes(accepted: Pins, found: Pins) -> list[Change]:
    """What accepting ``found`` would change."""
    made = [Change(name, "removed") for name in accepted if name not in found]
    for name, tool in found.items():
        before = accepted.get(name)
        if before is None:
            made.append(Change(name, "added"))
        elif before.digest != tool.digest:
            old, new = before.to_dict(), tool.to_dict()
            made.append(Change(name, "changed", tuple(each for each in _FIELDS if old[each] != new[each])))
    return sorted(made, key=lambda each: each.tool)
