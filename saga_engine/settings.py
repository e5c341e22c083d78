"""Settings: a flag wins over the environment, that over ``saga.toml``, that over the default.

``saga.toml`` is looked for in the working directory and the folders above it; paths in it are relative to its folder.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Final

from saga_engine.errors import SettingInvalid

FILE: Final = "saga.toml"

_LEVEL: Final = re.compile(r"fsync|relaxed|replicated:([1-9])")
_MOST_QUEUED: Final = 10**12


@dataclass(frozen=True, slots=True)
class Settings:
    """How sagas are stored and driven. Durations carry their unit in their name.

    ``store``: a store URL. ``tools``: modules or files with tools. ``durability``: ``fsync`` (acknowledged means on
    disk), ``replicated:N`` (and on the disks of N replicas) or ``relaxed``. ``lease_s``: how long a silent process
    keeps its sagas. ``patience_s``: how long an outage of the store is waited out. ``keep_finished_s``: how long
    finished sagas are kept; 0 is for ever. ``queue_limit``: how many sagas may wait for a worker before another one
    is refused; 0 is any number. ``engine``: where sagas run if not here, ``temporal://HOST:PORT/NAMESPACE``, and
    ``task_queue``: which of its workers.
    """

    store: str = "embedded://.saga"
    tools: tuple[str, ...] = ()
    durability: str = "fsync"
    lease_s: float = 15.0
    patience_s: float = 10.0
    keep_finished_s: float = 30 * 24 * 3600.0
    queue_limit: int = 1_000_000
    engine: str = ""
    task_queue: str = "saga"
    base: Path = Path()
    #: The tables of ``saga.toml`` that other rooms read: ``[policy]``, ``[tools.NAME]``, ``[http.NAME]``,
    #: ``[planner]``, ``[escalation]``, ``[trace]``, ``[secrets]``; its folder, from which paths in them count; and its
    #: name, for messages.
    policy: Mapping[str, Any] = field(default_factory=dict)
    tool_options: Mapping[str, Any] = field(default_factory=dict)
    http_tools: Mapping[str, Any] = field(default_factory=dict)
    planner: Mapping[str, Any] = field(default_factory=dict)
    escalation: Mapping[str, Any] = field(default_factory=dict)
    trace: Mapping[str, Any] = field(default_factory=dict)
    secrets: Mapping[str, Any] = field(default_factory=dict)
    file_base: Path = Path()
    file_name: str = FILE

    @property
    def names_tools(self) -> bool:
        """Whether there is any tool to load: modules and files, or HTTP endpoints."""
        return bool(self.tools or self.http_tools)

    def __post_init__(self) -> None:
        replicas_of(self.durability)
        for name, least, most in (
            ("lease_s", 1.0, 3600.0),
            ("patience_s", 0.1, 86400.0),
            ("keep_finished_s", 0.0, 1e11),
        ):
            value = getattr(self, name)
            if not isinstance(value, int | float) or isinstance(value, bool) or not least <= value <= most:
                raise SettingInvalid(f"{name} must be a number of seconds from {least:g} to {most:g}, not {value!r}")
        for name in ("engine", "task_queue"):
            if not isinstance(getattr(self, name), str):
                raise SettingInvalid(f"{name} must be a text, not {getattr(self, name)!r}")
        limit = self.queue_limit
        if not isinstance(limit, int) or isinstance(limit, bool) or not 0 <= limit <= _MOST_QUEUED:
            raise SettingInvalid(f"queue_limit must be a number of sagas from 0 to {_MOST_QUEUED}, not {limit!r}")


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


def load(flags: Mapping[str, Any], *, cwd: Path | None = None, environ: Mapping[str, str] = os.environ) -> Settings:
    """The settings in force. ``flags`` that are None or empty were not given. Raises ``SettingInvalid``."""
    start = cwd or Path.cwd()
    settings = Settings(base=start)
    path = _find(start, environ)
    if path is not None:
        tables = _read(path)
        settings = _apply(settings, tables.pop("saga", {}), str(path), base=path.parent)
        settings = replace(settings, **_foreign(tables, path), file_base=path.parent, file_name=path.name)
    env: dict[str, Any] = {}
    for name in _NAMES:
        text = environ.get(f"SAGA_{name.upper()}")
        if text:
            env[name] = text if name in _TEXTS else _listed(text) if name == "tools" else _number(name, text)
    settings = _apply(settings, env, "the environment", base=start)
    given = {name: value for name, value in flags.items() if value not in (None, (), [])}
    return _apply(settings, given, "the command line", base=start)


#: Tables of the file by the field that keeps them.
_TABLES: Final = {
    "policy": "policy",
    "tools": "tool_options",
    "http": "http_tools",
    "planner": "planner",
    "escalation": "escalation",
    "trace": "trace",
    "secrets": "secrets",
}
_NAMES: Final = tuple(
    each.name for each in fields(Settings) if each.name not in ("base", "file_base", "file_name", *_TABLES.values())
)


#: The settings that are texts.
_TEXTS: Final = ("store", "durability", "engine", "task_queue")


def _find(start: Path, environ: Mapping[str, str]) -> Path | None:
    named = environ.get("SAGA_CONFIG")
    if named:
        path = Path(named)
        if not path.is_file():
            raise SettingInvalid(f"SAGA_CONFIG names {named}, which is no file")
        return path
    for folder in (start, *start.parents):
        path = folder / FILE
        if path.is_file():
            return path
    return None


def _read(path: Path) -> dict[str, Any]:
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise SettingInvalid(f"{path} cannot be read: {error}", hint="it must be TOML with a [saga] table") from error
    for name, table in data.items():
        if name in ("saga", *_TABLES) and not isinstance(table, dict):
            raise SettingInvalid(f"[{name}] in {path} must be a table")
    return data


def _foreign(tables: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """The tables that other rooms read. A table that nobody reads is a typing error that would switch off a guard."""
    unknown = sorted(set(tables) - set(_TABLES))
    if unknown:
        raise SettingInvalid(
            f"{path} has [{unknown[0]}], which nobody reads", hint=f"tables: saga, {', '.join(_TABLES)}"
        )
    return {_TABLES[name]: table for name, table in tables.items()}


def _apply(settings: Settings, values: Mapping[str, Any], source: str, *, base: Path) -> Settings:
    unknown = sorted(set(values) - set(_NAMES))
    if unknown:
        raise SettingInvalid(
            f"{source} sets {', '.join(unknown)}, which is no setting", hint=f"settings: {', '.join(_NAMES)}"
        )
    changes: dict[str, Any] = dict(values)
    if "tools" in changes:
        listed = changes["tools"]
        names = [listed] if isinstance(listed, str) else list(listed)
        if not all(isinstance(name, str) for name in names):
            raise SettingInvalid(f"tools in {source} must be a list of texts")
        changes["tools"] = tuple(_rooted(name, base) for name in names)
    if "store" in changes:
        if not isinstance(changes["store"], str):
            raise SettingInvalid(f"store in {source} must be a text")
        changes["store"] = _rooted_store(changes["store"], base)
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
        return int(text) if name == "queue_limit" else float(text)
    except ValueError as error:
        of = " of sagas" if name == "queue_limit" else " of seconds"
        raise SettingInvalid(f"SAGA_{name.upper()} must be a number{of}, not '{text}'") from error
