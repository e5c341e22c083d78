"""The settings: fields of the dataclasses that hold them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import msgspec

from saga_engine import settings
from saga_engine.plan.operator_limits import Limits
from saga_engine.planner import settings as planner
from saga_engine.server import settings as server
from saga_engine.server.oidc_settings import OidcSettings
from website.reference.markdown import code, head, prose, table

_ABOUT = """The settings that have a default in the code, with the environment variable that sets each. A flag takes
precedence over the environment, that over `saga.toml`, that over the default; `saga doctor` shows each setting and its
origin. [The command line](../cli.md#options-of-many-commands) says which of two files counts."""
#: The pages of the tables that are no plain settings.
_PAGES = {
    "policy": "../policy.md",
    "tools": "../tools.md#what-the-operator-can-change",
    "http": "../http-tools.md",
    "mcp": "../mcp.md",
    "planner": "../planner.md",
    "escalation": "../escalation.md",
    "trace": "../trace.md#leaving-fields-out",
    "secrets": "../plan-format.md#secrets",
    "limits": "#limits",
    "server": "#server",
    "retention": "../retention.md",
    "privacy": "../privacy.md",
}


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
    names = [name for name in settings._TABLES]  # noqa: C416, SLF001
    rows = [(code(f"[{name}]"), f"[{code(_PAGES[name].split('/')[-1])}]({_PAGES[name]})") for name in names]
    parts = [
        head("Settings", _ABOUT),
        "## `[saga]`",
        _fields(settings.Settings, {name: f"SAGA_{name.upper()}" for name in settings._NAMES}, only=True),  # noqa: SLF001
        "## Other variables",
        table(("variable", "meaning"), [(code(name), meaning) for name, meaning in _VARIABLES.items()]),
        "## Other tables",
        table(("table of `saga.toml`", "described in"), rows),
        "## `[limits]`",
        _fields(Limits),
        "## `[planner]`",
        _fields(planner.PlannerSettings, {field: name for name, field in planner._VARIABLES.items()}),  # noqa: SLF001
        "## `[server]`",
        _fields(server.ServerSettings),
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
    return "\n\n".join(part.strip("\n") for part in parts) + "\n"


def _fields(kind: Any, variables: dict[str, str] | None = None, *, only: bool = False) -> str:
    """What a class says of its fields, each with its type, default and variable. ``only``: those with a variable."""
    rows = []
    for name, annotation, default in _each(kind):
        if name not in _OTHERS and (not only or name in (variables or {})):
            rows.append((code(name), code(annotation), default, code((variables or {}).get(name, ""))))
    return prose(kind.__doc__) + "\n\n" + table(("field", "type", "default", "variable"), rows)


def _each(kind: Any) -> list[tuple[str, str, str]]:
    if dataclasses.is_dataclass(kind):
        return [(field.name, str(field.type), _default(field)) for field in dataclasses.fields(kind)]
    return [(field.name, kind.__annotations__[field.name], _default(field)) for field in msgspec.structs.fields(kind)]


def _default(field: Any) -> str:
    nothing = (dataclasses.MISSING, msgspec.NODEFAULT)
    value = field.default
    if any(value is each for each in nothing):
        if any(field.default_factory is each for each in nothing):
            return "required"
        value = field.default_factory()
    value = dict(value) if isinstance(value, Mapping) else value
    return code(repr(value)) if value not in (None, "", (), {}) else "none"
