"""Manifests in files: those that come with the package (``builtin:NAME``), and an operator's own.

A file has the tables ``tools`` and ``helpers`` of a server. A table of ``saga.toml`` for the same tool completes it
field by field; one for the same helper replaces it. A shipped manifest also says with which version of its server it
was tried (``tried``), and the digests of the tools that this version listed.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Final

from saga_engine.sources.tables import Fields

_PREFIX: Final = "builtin:"
_FOLDER: Final = Path(__file__).parent / "manifests"
_MAX_BYTES: Final = 4 * 2**20
#: In texts of a file, the name of the server in saga.toml: two servers of one kind share no resource.
_SERVER: Final = "@server"


@dataclass(frozen=True, slots=True)
class Manifest:
    """The tables of a file. ``name``: as ``saga.toml`` names it; ``package``, ``version``: what it was tried with."""

    name: str
    tools: Mapping[str, Any]
    helpers: Mapping[str, Any]
    package: str = ""
    version: str = ""
    digests: Mapping[str, str] = field(default_factory=dict)


def builtin_names() -> list[str]:
    """The manifests that come with the package."""
    return sorted(file.stem for file in _FOLDER.glob("*.toml"))


@cache
def builtin(name: str) -> Mapping[str, Any]:
    """The tables of one of them. Raises ``KeyError``."""
    if name not in builtin_names():
        raise KeyError(name)
    return tomllib.loads((_FOLDER / f"{name}.toml").read_text(encoding="utf-8"))


def load_manifest(it: Fields, server: str, base: Path) -> Manifest | None:
    """What the field ``manifest`` names; None without it. Raises ``SettingInvalid``."""
    name = it.text("manifest")
    if not name:
        return None
    tables = _tables(it, name, base)
    tried = tables.get("tried", {})
    known = {"tools", "helpers", "tried"}
    wrong = next((key for key, value in tables.items() if key not in known or not isinstance(value, dict)), None)
    if wrong is not None:
        it.refuse("manifest", f"{name!r} has {wrong!r}, which means nothing", "it has the tables tools and helpers")
    return Manifest(
        name,
        _named(tables.get("tools", {}), server),
        _named(tables.get("helpers", {}), server),
        tried.get("package", ""),
        tried.get("version", ""),
        tried.get("digests", {}),
    )


def merged(
    it: Fields, manifest: Manifest | None, tools: Mapping[str, Any], helpers: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The tables of the manifest, completed by those of ``saga.toml``."""
    if manifest is None:
        return dict(tools), dict(helpers)
    made = dict(manifest.tools)
    for name, table in tools.items():
        if not isinstance(table, Mapping):
            it.refuse("tools", f"has {name!r}, which must be a table")
        shipped = made.get(name, {})
        cases = {**shipped.get("cases", {}), **table["cases"]} if isinstance(table.get("cases"), Mapping) else None
        made[name] = {**shipped, **table} | ({} if cases is None else {"cases": cases})
    return made, {**manifest.helpers, **helpers}


def _tables(it: Fields, name: str, base: Path) -> Mapping[str, Any]:
    if name.startswith(_PREFIX):
        try:
            return builtin(name.removeprefix(_PREFIX))
        except KeyError:
            choices = ", ".join(_PREFIX + each for each in builtin_names())
            it.refuse("manifest", f"{name!r} does not come with the package", f"{choices}, or the path of a file")
    try:
        file = base / name
        if file.stat().st_size > _MAX_BYTES:
            raise ValueError("it is too large")
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        it.refuse("manifest", f"{name!r} cannot be read: {error}", 'manifest = "builtin:filesystem", or a file')


def _named(value: Any, server: str) -> Any:
    """The tables with the server's name in them."""
    if isinstance(value, str):
        return value.replace(_SERVER, server)
    if isinstance(value, dict):
        return {name: _named(each, server) for name, each in value.items()}
    return [_named(each, server) for each in value] if isinstance(value, list) else value
