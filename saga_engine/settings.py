"""Settings: a flag takes precedence over the environment, then ``saga.toml``, then the default.

``saga.toml`` is searched in the working directory and the folders above it; paths in it are relative to its folder. It
can name code that the engine runs, so a file that another user owns or can write to is refused. An operator's file
(``SAGA_CONFIG``, else ``/etc/saga/saga.toml``) is read as well: its policy, its allowed secrets, its options of tools
and its limits hold, and the nearer file can only make them stricter.
"""

from __future__ import annotations

import os
import re
import stat
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Final, NoReturn

from saga_engine.errors import SettingInvalid
from saga_engine.language import LANGUAGES

FILE: Final = "saga.toml"
#: The file of ``observe = true``.
OBSERVED: Final = "saga-observed.jsonl"
#: The operator's file, if ``SAGA_CONFIG`` names no other.
OPERATOR_FILE: Final = Path("/etc/saga/saga.toml")

_LEVEL: Final = re.compile(r"fsync|relaxed|replicated:([1-9])")
_MOST_QUEUED: Final = 10**12
#: The minimum and the maximum limit of a tool's result; a store accepts no value over 512 MB.
OUTPUT_BYTES: Final = (1024, 256 * 2**20)


@dataclass(frozen=True, slots=True)
class SettingsFile:
    """One file that was read: its tables, the folder from which paths in it count, and its name for messages."""

    tables: Mapping[str, Any]
    base: Path
    name: str


@dataclass(frozen=True, slots=True)
class Settings:
    """How sagas are stored and driven. Durations carry their unit in their name.

    ``store``: a store URL. ``tools``: modules or files with tools. ``durability``: ``fsync`` (acknowledged means on
    disk), ``replicated:N`` (and on the disks of N replicas) or ``relaxed``. ``lease_s``: how long a silent process
    keeps its sagas. ``patience_s``: how long an outage of the store is waited out. ``keep_finished_s``: how long
    finished sagas are kept; 0 is for ever. ``queue_limit``: how many sagas may wait for a worker before another one
    is refused; 0 is any number. ``max_output_bytes``: how large a tool's result may be as JSON. ``runtime``: where
    sagas run if not here, ``temporal://HOST:PORT/NAMESPACE``, and ``task_queue``: which of its workers. ``otlp``: where
    OpenTelemetry spans go, ``http://HOST:4318``; empty: nowhere. ``loop_cpu_s``: how much CPU time the event loop of a
    server or a worker may use in one turn before its process ends; 0 is any. ``observe``: sessions of agents stop
    nothing, and what the engine would have done is written to a file: ``true``, or its path (docs/observe.md).
    ``language``: that of the command line, and of the messages of hooks that name none, ``en`` or ``zh``; empty: the
    locale's, and English. (The console follows the browser.)
    """

    store: str = "embedded://.saga"
    tools: tuple[str, ...] = ()
    durability: str = "fsync"
    lease_s: float = 15.0
    patience_s: float = 10.0
    keep_finished_s: float = 30 * 24 * 3600.0
    queue_limit: int = 1_000_000
    max_output_bytes: int = 32 * 2**20
    runtime: str = ""
    task_queue: str = "saga"
    otlp: str = ""
    loop_cpu_s: float = 60.0
    observe: bool | str = False
    language: str = ""
    base: Path = Path()
    #: The tables of ``saga.toml`` that other rooms read: ``[policy]``, ``[tools.NAME]``, ``[http.NAME]``,
    #: ``[mcp.NAME]``, ``[planner]``, ``[escalation]``, ``[trace]``, ``[secrets]``, ``[limits]``, ``[server]``,
    #: ``[retention]``, ``[privacy]``, ``[agents]``; its folder, from which paths in them count; and its name, for
    #: messages.
    policy: Mapping[str, Any] = field(default_factory=dict)
    tool_options: Mapping[str, Any] = field(default_factory=dict)
    http_tools: Mapping[str, Any] = field(default_factory=dict)
    mcp_servers: Mapping[str, Any] = field(default_factory=dict)
    planner: Mapping[str, Any] = field(default_factory=dict)
    escalation: Mapping[str, Any] = field(default_factory=dict)
    trace: Mapping[str, Any] = field(default_factory=dict)
    secrets: Mapping[str, Any] = field(default_factory=dict)
    limits: Mapping[str, Any] = field(default_factory=dict)
    server: Mapping[str, Any] = field(default_factory=dict)
    retention: Mapping[str, Any] = field(default_factory=dict)
    privacy: Mapping[str, Any] = field(default_factory=dict)
    agents: Mapping[str, Any] = field(default_factory=dict)
    file_base: Path = Path()
    file_name: str = FILE
    #: The files, the operator's first. Policies, allowed secrets and options of tools of all of them apply.
    files: tuple[SettingsFile, ...] = ()

    def holding(self, table: str) -> list[SettingsFile]:
        """The files that have this table, the operator's first."""
        return [file for file in self.files if file.tables.get(table)]

    def origin(self, table: str) -> tuple[Path, str]:
        """Folder and name of the file that the field for this table comes from."""
        field = _TABLES[table]
        for file in self.holding(table):
            if file.tables[table] is getattr(self, field):
                return file.base, file.name
        return self.file_base, self.file_name

    @property
    def names_tools(self) -> bool:
        """Whether there is any tool to load: modules and files, HTTP endpoints, or MCP servers."""
        return bool(self.tools or self.http_tools or self.mcp_servers)

    def __post_init__(self) -> None:
        replicas_of(self.durability)
        for name, least, most in (
            ("lease_s", 1.0, 3600.0),
            ("patience_s", 0.1, 86400.0),
            ("keep_finished_s", 0.0, 1e11),
            ("loop_cpu_s", 0.0, 86400.0),
        ):
            value = getattr(self, name)
            if not isinstance(value, int | float) or isinstance(value, bool) or not least <= value <= most:
                raise SettingInvalid(f"{name} must be a number of seconds from {least:g} to {most:g}, not {value!r}")
        for name in ("runtime", "task_queue", "otlp"):
            if not isinstance(getattr(self, name), str):
                raise SettingInvalid(f"{name} must be a text, not {getattr(self, name)!r}")
        if not isinstance(self.observe, bool | str):
            raise SettingInvalid(f"observe must be true, false or the path of a file, not {self.observe!r}")
        if self.language not in ("", *LANGUAGES):
            raise SettingInvalid(f"language cannot be {self.language!r}", hint=f"one of: {', '.join(LANGUAGES)}")
        limit = self.queue_limit
        if not isinstance(limit, int) or isinstance(limit, bool) or not 0 <= limit <= _MOST_QUEUED:
            raise SettingInvalid(f"queue_limit must be a number of sagas from 0 to {_MOST_QUEUED}, not {limit!r}")
        check_output_limit(self.max_output_bytes)


class TableReader:
    """Reads one table of ``saga.toml``, field by field; an unread field is a typing error.

    Every method removes a field, and raises ``SettingInvalid`` for a wrong one. ``where`` names the table in messages,
    and ``context`` is added to the errors. ``of``: the dataclass that declares the fields and their defaults, from
    which the reference of the settings is written: no other field is read, and ``end`` says if one was not read.
    """

    def __init__(self, where: str, table: Any, *, of: type | None = None, **context: Any) -> None:
        self.where = where
        self._context = context
        if not isinstance(table, Mapping):
            raise SettingInvalid(f"{where} must be a table", **context)
        self._left: dict[str, Any] = dict(table)
        self._known: list[str] = []
        self._declared: dict[str, Any] | None = None
        if of is not None:
            self.declare(declared_fields(of))

    def declare(self, defaults: Mapping[str, Any]) -> None:
        """The table has these fields, too."""
        self._declared = {**(self._declared or {}), **defaults}

    def refuse(self, field: str, problem: str, hint: str | None = None) -> NoReturn:
        """Raise the error about a field."""
        raise SettingInvalid(f"{field} of {self.where} {problem}", hint=hint, field=field, **self._context)

    def any(self, field: str, default: Any = None) -> Any:
        """The value unchanged; if it is not given, ``default``, or what the declaration says."""
        self._known.append(field)
        return self._left.pop(field, self.default(field, default))

    def default(self, field: str, given: Any = None) -> Any:
        """``given``, or the default that the declaration says. Raises ``LookupError`` for a field that it lacks."""
        if self._declared is None:
            return given
        if field not in self._declared:
            raise LookupError(f"{field} of {self.where} is not declared")
        return self._declared[field] if given is None else given

    def text(self, field: str, default: str | None = None) -> str:
        """A text; the default if it is not given. Its error does not repeat the value, which may be a secret."""
        value = self.any(field, self.default(field, default) or "")
        if not isinstance(value, str):
            self.refuse(field, f"must be a text, not {type(value).__name__}")
        return value

    def end(self) -> None:
        """Refuse the remaining fields. Raises ``LookupError`` if a declared one was not read."""
        from difflib import get_close_matches

        for unread in self._left:
            near = get_close_matches(unread, self._known, n=1)
            hint = f"did you mean {near[0]}?" if near else f"fields: {', '.join(sorted(self._known))}"
            self.refuse(unread, "means nothing", hint)
        idle = sorted(set(self._declared or ()) - set(self._known))
        if idle:
            raise LookupError(f"{', '.join(idle)} of {self.where}: declared, and not read")


def declared_fields(of: type) -> dict[str, Any]:
    """The fields that a dataclass declares, with their defaults; None: there is none, or it depends on others."""
    found: dict[str, Any] = {}
    for each in fields(of):
        made = each.default if each.default_factory is MISSING else each.default_factory()
        found[each.name] = None if made is MISSING else made
    return found


def check_output_limit(limit: Any) -> None:
    """Raises ``SettingInvalid`` for an invalid ``max_output_bytes``."""
    least, most = OUTPUT_BYTES
    if not isinstance(limit, int) or isinstance(limit, bool) or not least <= limit <= most:
        raise SettingInvalid(f"max_output_bytes must be a number of bytes from {least} to {most}, not {limit!r}")


def replicas_of(durability: str) -> int:
    """How many replicas a level waits for: N of ``replicated:N`` (1 to 9); 0 for ``fsync`` and ``relaxed``.

    Raises ``SettingInvalid`` for anything else.
    """
    found = _LEVEL.fullmatch(durability) if isinstance(durability, str) else None
    if found is None:
        raise SettingInvalid(
            f"durability cannot be {durability!r}",
            hint="fsync, replicated:N (N from 1 to 9), or relaxed",
            durability=str(durability),
        )
    return int(found[1] or 0)


def without_login(url: str) -> str:
    """An address for display: the part before an '@', and behind a '?', may be a key."""
    scheme, separator, rest = url.partition("://")
    _, at, host = rest.rpartition("@")
    return f"{scheme}{separator}{'***@' if at else ''}{host.partition('?')[0]}"


def load(flags: Mapping[str, Any], *, cwd: Path | None = None, environ: Mapping[str, str] = os.environ) -> Settings:
    """The effective settings. ``flags`` that are None or empty were not given. Raises ``SettingInvalid``."""
    start = cwd or Path.cwd()
    settings = Settings(base=start)
    nearest, operator, named = _files(start, environ)
    files = [file for file in (nearest, operator) if file is not None]
    # A file that is named takes precedence over one that is found; of two that are found the nearer one does.
    for file in files if named else reversed(files):
        settings = _apply(settings, file.tables.get("saga", {}), str(file.base / file.name), base=file.base)
        tables = {_TABLES[name]: table for name, table in file.tables.items() if name != "saga"}
        settings = replace(settings, **tables, file_base=file.base, file_name=file.name)
    settings = replace(settings, files=tuple(reversed(files)))
    for name in _TIGHTENED:
        limits = [limit for file in files if (limit := file.tables.get("saga", {}).get(name))]
        settings = replace(settings, **{name: min(limits)}) if limits else settings
    env: dict[str, Any] = {}
    for name in _NAMES:
        text = environ.get(f"SAGA_{name.upper()}")
        if text:
            env[name] = text if name in _TEXTS else _listed(text) if name == "tools" else _number(name, text)
    settings = _apply(settings, env, "the environment", base=start)
    given = {name: value for name, value in flags.items() if value not in (None, (), [])}
    return _apply(settings, given, "the command line", base=start)


def observing(settings: Settings | str | None) -> Path | None:
    """Where sessions that only observe write what they saw; None: sessions are held to everything.

    ``"found"``: the files that every command reads. Raises ``SettingInvalid`` if the operator's file does not allow it.
    """
    found = load({}) if settings == "found" else settings
    path = found.observe if isinstance(found, Settings) else False
    return Path(str(path)) if path and may_observe(str(path)) else None


def may_observe(path: str) -> bool:
    """True: nothing forbids it. Raises ``SettingInvalid`` if the operator's file has rules and does not say it."""
    theirs = operators_file(os.environ)
    rules = {} if theirs is None else theirs.tables
    if (rules.get("policy") or rules.get("limits")) and not rules.get("saga", {}).get("observe"):
        where = "" if theirs is None else str(theirs.base / theirs.name)
        hint = "let the operator say observe = true there, or remove it here"
        raise SettingInvalid(f"sessions cannot only observe ({path}): {where} has rules that hold", hint=hint)
    return True


#: Tables of the file by the field that keeps them.
_TABLES: Final = {
    "policy": "policy",
    "tools": "tool_options",
    "http": "http_tools",
    "mcp": "mcp_servers",
    "planner": "planner",
    "escalation": "escalation",
    "trace": "trace",
    "secrets": "secrets",
    "limits": "limits",
    "server": "server",
    "retention": "retention",
    "privacy": "privacy",
    "agents": "agents",
}
_NAMES: Final = tuple(
    each.name
    for each in fields(Settings)
    if each.name not in ("base", "file_base", "file_name", "files", *_TABLES.values())
)


#: The settings that are whole numbers, of which the smallest counts.
_TIGHTENED: Final = ("queue_limit", "max_output_bytes")
#: The settings that are texts.
_TEXTS: Final = ("store", "durability", "runtime", "task_queue", "otlp", "observe", "language")


def _files(start: Path, environ: Mapping[str, str]) -> tuple[SettingsFile | None, SettingsFile | None, bool]:
    """The nearest file, the operator's file, and whether that one was named."""
    named, theirs = _operators_path(environ)
    found = next((path for folder in (start, *start.parents) if (path := folder / FILE).is_file()), None)
    if found is not None and theirs is not None and found.samefile(theirs):
        found = None
    if found is not None:
        _refuse_foreign(found)
    return None if found is None else _read(found), operators_file(environ), named


def operators_file(environ: Mapping[str, str]) -> SettingsFile | None:
    """The operator's file, which holds for every process; None: there is none. Raises ``SettingInvalid``."""
    named, path = _operators_path(environ)
    if path is None:
        return None
    if not named:
        _refuse_foreign(path)
    file = _read(path)
    _apply(Settings(), file.tables.get("saga", {}), str(path), base=file.base)  # wrong values are refused here
    return file


def _operators_path(environ: Mapping[str, str]) -> tuple[bool, Path | None]:
    """Whether the operator's file was named, and where it is."""
    named = environ.get("SAGA_CONFIG")
    if named and not Path(named).is_file():
        raise SettingInvalid(f"SAGA_CONFIG names {named}, which is no file")
    return bool(named), Path(named) if named else OPERATOR_FILE if OPERATOR_FILE.is_file() else None


def _refuse_foreign(path: Path) -> None:
    """Refuse a file that was not named and that another user could have written: it can name code to run.

    As git does with repositories (``safe.directory``), and for its folder as well, to which its paths are relative.
    Files of root are trusted; under sudo also those of the calling user. A file that ``SAGA_CONFIG`` names is trusted.
    """
    if not hasattr(os, "geteuid"):
        return  # Windows: the owner of a file means little there
    own = os.geteuid()
    trusted = {0, own}
    if own == 0 and os.environ.get("SUDO_UID", "").isdecimal():
        trusted.add(int(os.environ["SUDO_UID"]))
    hint = f"if you trust it, name it: SAGA_CONFIG={path}; else work in another folder"
    for place, found in ((path, path.lstat()), (path, path.stat()), (path.parent, path.parent.stat())):
        if found.st_uid not in trusted:
            raise SettingInvalid(
                f"{place} belongs to another user (uid {found.st_uid}), and it could run code", hint=hint
            )
    if path.stat().st_mode & stat.S_IWOTH:
        raise SettingInvalid(f"every user may write to {path}, and it could run code", hint=f"chmod o-w {path}")


def _read(path: Path) -> SettingsFile:
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise SettingInvalid(f"{path} cannot be read: {error}", hint="it must be TOML with a [saga] table") from error
    for name, table in data.items():
        if name in ("saga", *_TABLES) and not isinstance(table, dict):
            raise SettingInvalid(f"[{name}] in {path} must be a table")
        if name not in ("saga", *_TABLES):
            # An unknown table is a typing error that would disable a guard.
            hint = near(name, ("saga", *_TABLES)) + f"tables: saga, {', '.join(_TABLES)}"
            raise SettingInvalid(f"{path} has an unknown table [{name}]", hint=hint)
    return SettingsFile(data, path.parent, path.name)


def near(name: str, known: Sequence[str], tables: Sequence[str] = ()) -> str:
    """``did you mean X? `` for a name that is like a known one, or like a table; else an empty text."""
    from difflib import get_close_matches

    if found := get_close_matches(name, known, n=1):
        return f"did you mean {found[0]}? "
    found = get_close_matches(name, tables, n=1)
    return f"did you mean the table [{found[0]}]? " if found else ""


def _apply(settings: Settings, values: Mapping[str, Any], source: str, *, base: Path) -> Settings:
    unknown = sorted(set(values) - set(_NAMES))
    if unknown:
        raise SettingInvalid(
            f"{source} sets {', '.join(unknown)}, which is no setting",
            hint=near(unknown[0], _NAMES, [*_TABLES]) + f"settings: {', '.join(_NAMES)}",
        )
    changes: dict[str, Any] = dict(values)
    if "tools" in changes:
        listed = changes["tools"]
        names = [listed] if isinstance(listed, str) else listed
        if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
            raise SettingInvalid(f"tools in {source} must be a list of texts")
        changes["tools"] = tuple(_rooted(name, base) for name in names)
    if "store" in changes:
        if not isinstance(changes["store"], str):
            raise SettingInvalid(f"store in {source} must be a text")
        changes["store"] = _rooted_store(changes["store"], base)
    if changes.get("observe"):
        path = changes["observe"]
        named = {"true": OBSERVED, "1": OBSERVED, "false": "", "0": ""}.get(str(path).lower(), str(path))
        changes["observe"] = named and str(base / named)
    return replace(settings, **changes)


def _rooted(reference: str, base: Path) -> str:
    """A file reference relative to where it was written; a module's name stays as it is."""
    path, colon, name = reference.partition(":")
    if path.endswith(".py") and not Path(path).is_absolute():
        return str(base / path) + colon + name
    return reference


def _rooted_store(url: str, base: Path) -> str:
    prefix = "embedded://"
    if url.startswith(prefix) and not url.removeprefix(prefix).startswith("/"):
        return prefix + str(base / (url.removeprefix(prefix) or ".saga"))
    return url


def _listed(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _number(name: str, text: str) -> float:
    try:
        return int(text) if name in _TIGHTENED else float(text)
    except ValueError as error:
        of = {"queue_limit": " of sagas", "max_output_bytes": " of bytes"}.get(name, " of seconds")
        raise SettingInvalid(f"SAGA_{name.upper()} must be a number{of}, not '{text}'") from error
