"""The settings: fields of the dataclasses that hold them."""

from __future__ import annotations

import dataclasses
from typing import Any

import msgspec

from dev.website.reference import settings_tables
from dev.website.reference.markdown import code, head, prose, table
from dev.website.reference.settings_tables import hints_of, toml_type, usual
from saga_engine import settings
from saga_engine.plan.operator_limits import Limits
from saga_engine.planner import settings as planner
from saga_engine.server import settings as server
from saga_engine.server.oidc_settings import OidcSettings

_ABOUT = """The settings that have a default in the code, with the environment variable that sets each. A flag takes
precedence over the environment, that over `saga.toml`, that over the default; `saga doctor` shows each setting and its
origin. [The command line](../cli.md#settings) says which of two files counts."""

#: What the kinds of classes have in place of a default.
_NOTHING = (dataclasses.MISSING, msgspec.NODEFAULT)
#: Fields that are tables of their own, their names, and what only the environment or the program sets.
_OTHERS = ("quota", "tenants", "inbound", "oidc", "links", "name", "api_key")


#: Variables that are no settings of a table with defaults: what each is, and the page that says more.
_VARIABLES = {
    "SAGA_CONFIG": "the operator's file in place of `/etc/saga/saga.toml`: [the command line](../cli.md)",
    "SAGA_MODEL_API_KEY": "the model's key, in place of the provider's own variable: [planner](../planner.md)",
    "SAGA_PRIVACY_KEYS": "the keyring itself, `NAME:BASE64` with commas: [privacy](../privacy.md)",
    "SAGA_PRIVACY_KEYS_FILE": "the file of the keyring: [privacy](../privacy.md)",
    "SAGA_MCP_ID": "`--id` of `saga mcp`: [gateway](../gateway.md)",
    "SAGA_MCP_TOKEN": "the bearer token of `saga mcp --http`: [gateway](../gateway.md)",
    "SAGA_LOG_LEVEL": "`--log-level` of each command that has it",
    "SAGA_LOG_FORMAT": "`--log-format` of each command that has it",
    "SAGA_DEBUG": "`1`: `--debug` of each command",
    "TRACEPARENT": "the span that a saga of `saga submit` joins: [monitoring](../monitoring.md#traces)",
}


def page() -> str:
    """The page."""
    parts = [
        head("Settings", _ABOUT),
        "## `[saga]`",
        _fields(settings.Settings, {name: f"SAGA_{name.upper()}" for name in settings._NAMES}, only=True),  # noqa: SLF001
        "## Other variables",
        table(("variable", "meaning"), [(code(name), meaning) for name, meaning in _VARIABLES.items()]),
    ]
    for name in settings._TABLES:  # noqa: SLF001
        parts += _PLAIN[name]() if name in _PLAIN else settings_tables.section(name)
    return "\n\n".join(part.strip("\n") for part in parts) + "\n"


def _limits() -> list[str]:
    return ["## `[limits]`", _fields(Limits, page="[options of many commands](../cli.md#settings)")]


def _planner() -> list[str]:
    variables = {field: name for name, field in planner._VARIABLES.items()}  # noqa: SLF001
    return ["## `[planner]`", _fields(planner.PlannerSettings, variables, page="[planner](../planner.md)")]


def _server() -> list[str]:
    return [
        "## `[server]`",
        _fields(server.ServerSettings, page="[server](../server.md)"),
        "### Quotas\n\nFields of `[server]`, for callers without a tenant, and of `[server.tenants.NAME]`.",
        _fields(server.Quota),
        "### `[server.tenants.NAME]`",
        prose(server.Tenant.__doc__)
        + "\n\nThe namespace is the tenant's name if none is given. Its quotas are the fields above.",
        "### `[server.inbound.NAME]`",
        _fields(server.Inbound),
        "### `[server.oidc]`",
        _fields(OidcSettings),
    ]


#: The tables whose docstrings say of some fields what they do together.
_PLAIN = {"limits": _limits, "planner": _planner, "server": _server}


def _fields(kind: Any, variables: dict[str, str] | None = None, *, only: bool = False, page: str = "") -> str:
    """What a class says of its fields, each with its type, default and variable. ``only``: those with a variable.

    ``page``: the page that explains the table.
    """
    rows = []
    for name, annotation, default in _each(kind):
        if name not in _OTHERS and (not only or name in (variables or {})):
            rows.append((code(name), code(annotation), default, code((variables or {}).get(name, ""))))
    told = prose(kind.__doc__) + (f"\n\nSee {page}." if page else "")
    return told + "\n\n" + table(("field", "type", "default", "variable"), rows)


def _each(kind: Any) -> list[tuple[str, str, str]]:
    hints = hints_of(kind)
    found = dataclasses.fields(kind) if dataclasses.is_dataclass(kind) else msgspec.structs.fields(kind)
    return [(field.name, toml_type(hints[field.name]), usual(field, _NOTHING)) for field in found]
