"""``[mcp.NAME]`` tables of ``saga.toml``: how to reach a server, and what its tools do."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Literal, cast, get_args
from urllib.parse import urlsplit

from saga_engine.errors import SecretMissing
from saga_engine.language.errors import said
from saga_engine.plan.tool_spec import Effect
from saga_engine.sources.mcp.cases import When, read_when
from saga_engine.sources.mcp.helpers import Helper, read_helper
from saga_engine.sources.mcp.shipped import Manifest, load_manifest, merged
from saga_engine.sources.mcp.tables import Answer, McpCaseTable, McpHelperTable, McpTable, McpToolTable, Protocol
from saga_engine.sources.tables import Fields, image_options, shared_options

IsError = Literal["not-done", "unknown"]
KeyPlace = Literal["meta", "param"]

#: The file with the accepted tools, beside the file with the tables.
LOCK_FILE: Final = "saga.mcp.json"
#: What a missing value of a field is, where null is a value.
ABSENT: Final[Any] = object()

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,31}")
_LOCAL: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,62}")
_ENV: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_HEADER: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_SECRET: Final = re.compile(r"\$secret\.([A-Za-z_][A-Za-z0-9_]{0,127})")
#: The protocol reserves prefixes whose second label is one of its names (MCP 2025-11-25, section *_meta*).
_META: Final = re.compile(
    r"(?!(?:[a-z0-9-]+\.)?(?:modelcontextprotocol|mcp)[./])[a-z0-9][a-z0-9.-]*/[A-Za-z0-9][\w.-]*"
)
#: Headers that belong to the protocol or to the connection.
_RESERVED: Final = frozenset(
    {
        *("host", "content-length", "transfer-encoding", "connection", "content-type", "accept", "accept-encoding"),
        *("mcp-session-id", "mcp-protocol-version", "last-event-id"),
    }
)
_MAX_BYTES: Final = 1 << 30
_MAX_S: Final = 86_400.0


@dataclass(frozen=True, slots=True)
class ToolManifest:
    """What the operator says of one tool of a server.

    ``key``: where the idempotency key goes, a field of ``_meta`` or a param. ``idempotent``: a repeat of a call changes
    nothing more. ``is_error``: what an answer with ``isError`` means; ``refusals``: how the text of one begins that
    means 'not done' in any case. ``absent_error``: a part of such an answer's text that means 'there is nothing'.
    ``absent_output``: the output that means the same. ``images``: the options of a tool whose value another one reads.
    ``helper``: how the tool calls one of the server's. ``ask``: whether an operator approves each forward call; None:
    if nothing takes it back. ``listed``: whether the operator names the tool at all. ``cases``: what holds for some of
    its calls, by the names of the cases; ``when``: of a case, which calls these are.
    """

    name: str
    effect: Effect = "write"
    undo: str | None = None
    probe: str | None = None
    key: tuple[KeyPlace, str] | None = None
    key_ttl_s: float | None = None
    idempotent: bool = False
    is_error: IsError = "unknown"
    refusals: tuple[str, ...] = ()
    absent_error: str = ""
    absent_output: Any = ABSENT
    answer: Answer = "auto"
    tolerates_absence: bool = False
    images: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    helper: Helper | None = None
    ask: bool | None = None
    listed: bool = True
    cases: Mapping[str, ToolManifest] = field(default_factory=dict)
    when: When | None = None

    def __hash__(self) -> int:
        return hash(self.name)

    @property
    def is_final(self) -> bool:
        """Whether nothing takes back what it does, and its manifest does not say whether to ask."""
        if self.ask is not None or self.helper is not None:
            return False
        return self.effect == "write" and self.undo is None and self.options.get("semantic") in (None, "never")

    def links(self) -> dict[str, str | None]:
        """The other tools that it names, by role."""
        images = {role: self.images.get(role) for role in ("before", "undo_absent")}
        return {"undo": self.undo, "probe": self.probe, **images}


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """One ``[mcp.NAME]`` table. ``tools``: the manifest by the server's own names of its tools.

    ``helpers``: its helpers by name. ``manifest``: the shipped one or the file that the tables complete, if any.
    """

    name: str
    command: tuple[str, ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    cwd: Path | None = None
    url: str = ""
    headers: tuple[tuple[str, str], ...] = ()
    protocol: str = "auto"
    start_timeout_s: float = 30.0
    recheck_s: float = 60.0
    max_result_bytes: int = 10_000_000
    lock: Path | None = None
    tools: Mapping[str, ToolManifest] = field(default_factory=dict)
    helpers: Mapping[str, ToolManifest] = field(default_factory=dict)
    manifest: Manifest | None = None

    def __hash__(self) -> int:
        return hash(self.name)


def server_config(name: str, table: Any, *, base: Path, source: str, lock: Path | None) -> ServerConfig:
    """One table, checked. ``base``: the folder of relative paths. Raises ``SettingInvalid``."""
    it = Fields(name, table, source, "mcp", of=McpTable, server=name)
    if not _NAME.fullmatch(name):
        it.refuse("the name", f"cannot be {name!r}", "a letter, then letters, digits, '_' and '-', at most 32")
    command, url = _command(it), it.text("url")
    if bool(command) == bool(url):
        it.refuse("command", "and url: exactly one of them says where the server is", 'command = ["mcp-server-git"]')
    env, headers, cwd = _texts(it, "env", _ENV), _texts(it, "headers", _HEADER), it.text("cwd")
    for field_, given, other in (("env", env, url), ("cwd", cwd, url), ("headers", headers, command)):
        if given and other:
            it.refuse(field_, "has no meaning here", "env and cwd are for a command, headers for a url")
    for header, _ in headers:
        if header.lower() in _RESERVED:
            it.refuse("headers", f"cannot set {header!r}")
    if url:
        _check_url(it, url, secrets=any(_SECRET.search(value) for _, value in headers))
    timeout_s = it.number("timeout_s", at_most=_MAX_S)
    path, manifest = it.text("lock"), load_manifest(it, name, base)
    tools, helpers = merged(it, manifest, it.table("tools") or {}, it.table("helpers") or {})
    made = ServerConfig(
        name=name,
        command=command,
        env=env,
        cwd=base / cwd if cwd else base if command else None,
        url=url,
        headers=headers,
        protocol=it.one_of("protocol", get_args(Protocol)),
        start_timeout_s=it.number("start_timeout_s", at_most=_MAX_S),
        recheck_s=it.number("recheck_s", at_most=_MAX_S),
        max_result_bytes=int(it.number("max_result_bytes", at_most=_MAX_BYTES)),
        lock=base / path if path else lock,
        tools={tool: _tool(name, tool, fields, source, timeout_s) for tool, fields in tools.items()},
        helpers={each: _tool(name, each, fields, source, timeout_s, helps=True) for each, fields in helpers.items()},
        manifest=manifest,
    )
    it.end()
    cases = [(f"{remote}.{name}", case) for remote, tool in made.tools.items() for name, case in tool.cases.items()]
    _refuse_twins(it, [*made.tools.items(), *cases, *made.helpers.items()])
    return made


def filled(text: str, environ: Mapping[str, str], seen: dict[str, str]) -> str:
    """A text with its ``$secret.NAME`` from the environment; ``seen`` gets each. Raises ``SecretMissing``."""

    def value(found: re.Match[str]) -> str:
        name = found[1]
        if name not in environ:
            raise SecretMissing(said("any.secret", name=name), hint=said("any.secret-again", name=name), secret=name)
        seen[name] = environ[name]
        return environ[name]

    return _SECRET.sub(value, text)


def _command(it: Fields) -> tuple[str, ...]:
    given = it.any("command")
    hint = 'command = ["npx", "-y", "@modelcontextprotocol/server-memory"]'
    if not isinstance(given, list | tuple) or not all(isinstance(part, str) and "\0" not in part for part in given):
        it.refuse("command", "must be a list of texts: the program, then its arguments", hint)
    if any(_SECRET.search(part) for part in given):
        it.refuse("command", "holds a secret, which every user of the machine could read", "pass it in env")
    return tuple(given)


def _texts(it: Fields, field_: str, names: re.Pattern[str]) -> tuple[tuple[str, str], ...]:
    table = it.table(field_) or {}
    for name, value in table.items():
        if not names.fullmatch(name) or not isinstance(value, str) or any(char in value for char in "\0\r\n"):
            it.refuse(field_, f"has {name!r}, which must be a name with a text of one line")
    return tuple(table.items())


def _check_url(it: Fields, url: str, *, secrets: bool) -> None:
    try:
        split = urlsplit(url)
        host = split.hostname or ""
        _ = split.port
    except ValueError as error:
        it.refuse("url", f"is no URL: {error}")
    if split.scheme not in ("http", "https") or not host or any(not "!" <= char <= "~" for char in url):
        it.refuse("url", "is no URL of an MCP server", 'url = "https://mcp.example.com/mcp"')
    if "@" in split.netloc or split.fragment or _SECRET.search(url):
        it.refuse("url", "holds credentials or a fragment", 'headers = { Authorization = "Bearer $secret.NAME" }')
    if secrets and split.scheme == "http" and not _is_loopback(host):
        it.refuse("url", "is not encrypted, and a secret is sent there", "use https://")


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


# --- one tool ------------------------------------------------------------------------------------------------------


def _tool(server: str, remote: str, table: Any, source: str, timeout_s: float, *, helps: bool = False) -> ToolManifest:
    kind = f"mcp.{server}.{'helpers' if helps else 'tools'}"
    of = McpHelperTable if helps else McpToolTable
    it = Fields(remote, table, source, kind, of=of, server=server, tool=remote)
    helper = read_helper(it) if helps else None
    name = remote if helps else it.text("name", remote)
    tables = {} if helps else it.table("cases") or {}
    made = _described(it, name, timeout_s, helper, asks=not helps)
    if not usable_name(server, name):
        it.refuse("name", f"cannot be {name!r}", "letters, digits, '_', '.' and '-'; with the server's at most 64")
    cases = {}
    for case, fields in tables.items():
        of_case = Fields(case, fields, source, f"{kind}.{remote}.cases", of=McpCaseTable, server=server, tool=remote)
        when = read_when(of_case)
        if not usable_name(server, f"{name}.{case}"):
            it.refuse("cases", f"has {case!r}, which cannot stand in a plan", "letters, digits, '_', '.' and '-'")
        found = _described(of_case, f"{name}.{case}", timeout_s, None, asks=True)
        cases[case] = replace(found, when=when)
    return replace(made, cases=cases)


def _described(it: Fields, name: str, timeout_s: float, helper: Helper | None, *, asks: bool) -> ToolManifest:
    """What a table says of a tool, of a case, or of a helper."""
    effect = cast("Effect", it.one_of("effect", get_args(Effect)))
    key, key_ttl_s = _key(it)
    absent_error, absent_output = it.text("absent_error"), it.any("absent_output", ABSENT)
    tolerates_absence = it.flag("tolerates_absence")
    if effect == "write" and absent_output is not ABSENT:
        it.refuse("absent_output", "is for probes", 'effect = "read"')
    if effect == "write" and absent_error and not tolerates_absence:
        it.refuse("absent_error", "is for probes and for undos", 'effect = "read", or tolerates_absence = true')
    idempotent = it.flag("idempotent")
    if effect == "read" and (key is not None or idempotent):
        it.refuse("idempotent" if key is None else "key", "has no meaning for a tool that reads")
    if key is not None and idempotent:
        it.refuse("idempotent", "and key: a tool with a key needs no other reason to be repeated")
    is_error, refusals = _meaning(it, effect)
    made = ToolManifest(
        name=name,
        effect=effect,
        undo=it.text("undo") or None,
        probe=it.text("probe") or None,
        key=key,
        key_ttl_s=key_ttl_s,
        idempotent=idempotent,
        is_error=is_error,
        refusals=refusals,
        absent_error=absent_error,
        absent_output=absent_output,
        answer=cast("Answer", it.one_of("answer", get_args(Answer))),
        tolerates_absence=tolerates_absence,
        images=image_options(it),
        options={"timeout_s": timeout_s, **_given(shared_options(it))},
        helper=helper,
        ask=_ask(it) if asks else None,
    )
    it.end()
    return made


def _ask(it: Fields) -> bool | None:
    given = it.any("ask")
    if not isinstance(given, bool | None):
        it.refuse("ask", f"must be true or false, not {given!r}")
    return given


def usable_name(server: str, name: str) -> bool:
    """Whether plans can write the name of a server's tool."""
    return _LOCAL.fullmatch(name) is not None and len(f"{server}.{name}") <= 64


def unlisted(name: str, timeout_s: float = 30.0) -> ToolManifest:
    """What holds for a tool that the operator does not name: it writes, and every call needs an approval."""
    return ToolManifest(name, options={"timeout_s": timeout_s}, listed=False)


def _meaning(it: Fields, effect: Effect) -> tuple[IsError, tuple[str, ...]]:
    """What an answer with ``isError`` means, and how the texts begin that mean 'not done' in any case."""
    usual: IsError = "not-done" if effect == "read" else "unknown"
    given = it.any("is_error", usual)
    if isinstance(given, dict):
        texts = given.get("not-done")
        if (
            given.keys() != {"not-done"}
            or not isinstance(texts, list)
            or not all(isinstance(text, str) and text for text in texts)
        ):
            it.refuse(
                "is_error", "must say how the texts begin that mean 'not done'", 'is_error = { not-done = ["E"] }'
            )
        return "unknown", tuple(texts)
    if given not in ("not-done", "unknown"):
        it.refuse("is_error", f"cannot be {given!r}", "not-done, unknown, or { not-done = [TEXTS] }")
    return given, ()


def _given(options: dict[str, Any]) -> dict[str, Any]:
    """Without the empty defaults: the server's description stands in for a missing one."""
    return {name: value for name, value in options.items() if value not in ("", [], False)}


def _key(it: Fields) -> tuple[tuple[KeyPlace, str] | None, float | None]:
    """The place of the idempotency key, and for how long the server remembers it."""
    table = it.table("key")
    if table is None:
        return None, None
    rest = dict(table)
    ttl_s = rest.pop("ttl_s", None)
    hint = 'key = { meta = "example.com/idempotency-key", ttl_s = 86400 }'
    if len(rest) != 1 or next(iter(rest)) not in ("meta", "param"):
        it.refuse("key", "must say one of meta and param", hint)
    place, name = next(iter(rest.items()))
    if not isinstance(name, str) or not (_META.fullmatch(name) if place == "meta" else name):
        it.refuse("key", f"cannot be sent as {name!r}", f"{hint}: a prefix of your own, '/', and a name")
    return (cast("KeyPlace", place), name), ttl_s


def _refuse_twins(it: Fields, tools: Sequence[tuple[str, ToolManifest]]) -> None:
    names: dict[str, str] = {}
    for remote, tool in tools:
        if tool.name in names:
            it.refuse("tools", f"gives {names[tool.name]!r} and {remote!r} the same name {tool.name!r}")
        names[tool.name] = remote
