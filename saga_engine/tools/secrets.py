"""Which secrets of the environment a plan may pass to which tools: the table ``[secrets]`` of ``saga.toml``.

The author of a plan writes ``$secret.NAME``. Without a list, any plan could send any variable of the environment to any
tool that sends its params elsewhere.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, Final

from saga_engine.errors import SettingInvalid
from saga_engine.settings import TableReader

Allowed = Mapping[str, tuple[str, ...]]

#: A glob on names of tools, and the name of a variable; ``*`` matches all.
_TOOLS: Final = re.compile(r"[A-Za-z0-9_.*?-]{1,64}")
_SECRET: Final = re.compile(r"\*|[A-Za-z_][A-Za-z0-9_]{0,127}")
_HINT: Final = 'write allow = { pay_card = ["PAY_TOKEN"] }: names of secrets by name or glob of the tools'


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretsTable:
    """Which secrets of the environment a plan may pass to which tools.

    ``allow``: lists of names of secrets, ``*`` for all, by the name or glob of tools: ``{ pay_card = ["PAY_TOKEN"] }``.
    """

    allow: Mapping[str, list[str]] = field(default_factory=dict)


def allowed_of(table: Mapping[str, Any], source: str) -> Allowed:
    """The parsed table ``[secrets]``. Raises ``SettingInvalid``."""
    reader = TableReader(f"[secrets] in {source}", table, of=SecretsTable)
    allow = reader.any("allow")
    reader.end()
    return allowed_secrets(allow, f"{source}: [secrets] allow")


def allowed_secrets(allow: Any, source: str) -> Allowed:
    """Names of allowed secrets, by name or glob of the tools. Raises ``SettingInvalid``."""
    if not isinstance(allow, Mapping):
        raise SettingInvalid(f"{source} is no table", hint=_HINT)
    found: dict[str, tuple[str, ...]] = {}
    for tools, names in allow.items():
        if not isinstance(tools, str) or not _TOOLS.fullmatch(tools):
            raise SettingInvalid(f"{source}: {tools!r} is no name and no glob of tools", hint=_HINT)
        if not isinstance(names, list | tuple) or not all(isinstance(n, str) and _SECRET.fullmatch(n) for n in names):
            raise SettingInvalid(f"{source}: {tools} must be a list of names of secrets, or ['*']", hint=_HINT)
        found[tools] = tuple(names)
    return found


def secrets_of(tool: str, *lists: Allowed) -> tuple[str, ...]:
    """The names of the secrets that all lists let a plan pass to a tool; ``*`` stands for all."""
    found: set[str] = {"*"}
    for allowed in lists:
        names = {name for tools, listed in allowed.items() if fnmatchcase(tool, tools) for name in listed}
        found = found if "*" in names else names if "*" in found else found & names
    return tuple(sorted(found))
