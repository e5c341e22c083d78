"""The settings of the server: the table ``[server]`` of ``saga.toml`` and the options of `saga serve`."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from saga_engine.errors import SettingInvalid
from saga_engine.plan.costs import why_no_budget
from saga_engine.server.oidc_settings import OidcSettings, oidc_settings
from saga_engine.server.signatures import SCHEMES, standard_key
from saga_engine.settings import TableReader

if TYPE_CHECKING:
    from saga_engine.hooks.links import Links

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,31}", re.ASCII)
_LOOPBACK_NAMES: Final = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True, slots=True)
class Quota:
    """What a tenant may use; 0: any number. Settings that give neither say nothing of a quota: what is stored holds.

    ``live_sagas``: sagas that have not ended. ``steps_per_s``: steps that are added to its sagas, for each second.
    ``max_cost_per_day``: how much all calls may cost in a day (UTC), by unit: ``{ usd = 100 }``. All are counted in the
    store, for all processes together.
    """

    live_sagas: int = 0
    steps_per_s: float = 0.0
    max_cost_per_day: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Tenant:
    """A tenant: its sagas are in a ``namespace`` of the store of their own, and its workers serve that one."""

    name: str
    namespace: str
    quota: Quota | None = None


@dataclass(frozen=True, slots=True)
class Inbound:
    """A system that sends signed events: how they are signed, and where their name and key are in the body.

    ``secret_env``: the variables with its secret; several while one is replaced. ``event``, or the text at
    ``event_field``, is the event's name, and the value at ``key_field`` its key.
    """

    name: str
    scheme: str
    secret_env: tuple[str, ...]
    key_field: str
    event: str = ""
    event_field: str = ""
    tolerance_s: float = 300.0
    tenant: str = ""

    def secrets(self, environ: Mapping[str, str]) -> list[str]:
        """Its secrets. Raises ``SettingInvalid`` if there is none, or one with which nothing can be verified."""
        found = [text for name in self.secret_env if (text := environ.get(name))]
        if not found:
            names = ", ".join(self.secret_env)
            raise SettingInvalid(f"no secret of [server.inbound.{self.name}] is set: {names}", hint="set the variable")
        for text in found if self.scheme == "standard" else ():
            try:
                standard_key(text)
            except ValueError:
                raise SettingInvalid(
                    f"a secret of [server.inbound.{self.name}] is no base64", hint="whsec_… as its sender shows it"
                ) from None
        return found


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """How the server listens, whom it lets in, and what a caller may use.

    ``auth``: ``token``, or ``none`` (on the loopback only: any local program is an admin). ``allowed_hosts``: names by
    which it is reached, beside the loopback's and addresses; ``allowed_origins``: other sites whose pages may call it.
    ``public_url``: its address as others see it, for callback URLs. ``request_timeout_s``: how long a request may take
    to arrive, and ``write_timeout_s`` how long its client may take to read the answer, or 64 KiB of it.
    ``requests_per_s`` and ``burst`` limit each token. ``max_connections`` limits the connections of all, and
    ``max_connections_each`` those of one address. ``max_streams`` and ``max_waits`` limit the open streams and the
    requests with ``?wait=`` of all, ``max_streams_each`` and ``max_waits_each`` those of one token. ``max_wait_s``: the
    longest ``?wait=``.
    ``oidc``: whose tokens are accepted beside those of the store. ``links``: what reads the links that hooks send.
    """

    host: str = "127.0.0.1"
    port: int = 8800
    auth: str = "token"
    allowed_hosts: tuple[str, ...] = ()
    allowed_origins: tuple[str, ...] = ()
    public_url: str = ""
    max_body_bytes: int = 9 * 2**20
    request_timeout_s: float = 20.0
    write_timeout_s: float = 30.0
    requests_per_s: float = 100.0
    burst: int = 200
    max_connections: int = 2000
    max_connections_each: int = 1000
    max_streams: int = 500
    max_streams_each: int = 50
    max_waits: int = 500
    max_waits_each: int = 50
    max_wait_s: float = 60.0
    quota: Quota | None = None
    tenants: Mapping[str, Tenant] = field(default_factory=dict)
    inbound: Mapping[str, Inbound] = field(default_factory=dict)
    oidc: OidcSettings | None = None
    links: Links | None = None

    def __post_init__(self) -> None:
        if self.auth not in ("token", "none"):
            raise SettingInvalid(f"auth of [server] cannot be {self.auth!r}", hint="token, or none (loopback only)")
        if self.auth == "none" and not self.on_loopback:
            raise SettingInvalid(
                f"a server without tokens does not listen on {self.host}: anybody there could run its tools",
                hint="leave out --auth none and make tokens with `saga token create`, or listen on 127.0.0.1",
            )
        for name, least, most in _NUMBERS:
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
                raise SettingInvalid(f"{name} of [server] must be a number from {least:g} to {most:g}, not {value!r}")
        for origin in (*self.allowed_origins, *([self.public_url] if self.public_url else [])):
            if not re.fullmatch(r"https?://[^/?#\s]+(/[^?#\s]*)?", origin):
                raise SettingInvalid(f"{origin!r} is no address of a site", hint="https://console.example.com")

    @property
    def on_loopback(self) -> bool:
        """Whether only programs of this machine reach it."""
        if self.host in _LOOPBACK_NAMES:
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False


_NUMBERS: Final = (
    ("port", 0, 65535),
    ("max_body_bytes", 1024, 256 * 2**20),
    ("request_timeout_s", 0.1, 3600),
    ("write_timeout_s", 0.1, 3600),
    ("requests_per_s", 0.1, 1e6),
    ("burst", 1, 1_000_000),
    ("max_connections", 1, 1_000_000),
    ("max_connections_each", 1, 1_000_000),
    ("max_streams", 0, 1_000_000),
    ("max_streams_each", 0, 1_000_000),
    ("max_waits", 0, 1_000_000),
    ("max_waits_each", 0, 1_000_000),
    ("max_wait_s", 0, 3600),
)
_WHOLE: Final = (
    "port",
    "max_body_bytes",
    "burst",
    "max_connections",
    "max_connections_each",
    "max_streams",
    "max_streams_each",
    "max_waits",
    "max_waits_each",
)


def server_settings(table: Mapping[str, Any], source: str, **given: Any) -> ServerSettings:
    """The settings of a table ``[server]``; ``given`` that are None were not given. Raises ``SettingInvalid``."""
    reader = TableReader(f"[server] in {source}", table)
    found: dict[str, Any] = {}
    for name in ("host", "auth", "public_url"):
        found[name] = reader.text(name, getattr(_DEFAULTS, name))
    for name in ("allowed_hosts", "allowed_origins"):
        found[name] = _texts(reader, name)
    for name, least, most in _NUMBERS:
        found[name] = _number(reader, name, getattr(_DEFAULTS, name), least, most, whole=name in _WHOLE)
    found["quota"] = _quota(reader)
    found["tenants"] = {name: _tenant(name, body, source) for name, body in _tables(reader, "tenants")}
    found["inbound"] = {name: _inbound(name, body, source) for name, body in _tables(reader, "inbound")}
    table_of_oidc = reader.any("oidc", None)
    found["oidc"] = None if table_of_oidc is None else oidc_settings(table_of_oidc, source)
    reader.end()
    for each in found["inbound"].values():
        if each.tenant and each.tenant not in found["tenants"]:
            raise SettingInvalid(f"[server.inbound.{each.name}] names the tenant {each.tenant!r}, which is none")
    return ServerSettings(**found | {name: value for name, value in given.items() if value not in (None, [], ())})


def _tables(reader: TableReader, name: str) -> list[tuple[str, Any]]:
    tables = reader.any(name, {})
    if not isinstance(tables, Mapping):
        reader.refuse(name, "must be tables", f"[server.{name}.NAME]")
    for each in tables:
        if not _NAME.fullmatch(each):
            raise SettingInvalid(f"{each!r} is no name in {reader.where}", hint="1 to 32 letters, digits, '-' and '_'")
    return [*tables.items()]


def _inbound(name: str, body: Any, source: str) -> Inbound:
    reader = TableReader(f"[server.inbound.{name}] in {source}", body)
    scheme, key_field = reader.text("scheme"), reader.text("key_field")
    event, event_field = reader.text("event"), reader.text("event_field")
    found = Inbound(
        name,
        scheme,
        _texts(reader, "secret_env"),
        key_field,
        event,
        event_field,
        _number(reader, "tolerance_s", 300.0, 1, 86400),
        reader.text("tenant"),
    )
    if scheme not in SCHEMES:
        reader.refuse("scheme", f"cannot be {scheme!r}", ", ".join(SCHEMES))
    if not found.secret_env:
        reader.refuse("secret_env", "is missing", 'secret_env = ["SHOP_WEBHOOK_SECRET"]')
    if not key_field:
        reader.refuse("key_field", "is missing", 'key_field = "data.order_id"')
    if bool(event) == bool(event_field):
        reader.refuse("event", "or event_field must be given, and not both", 'event = "paid"')
    reader.end()
    return found


def _tenant(name: str, body: Any, source: str) -> Tenant:
    reader = TableReader(f"[server.tenants.{name}] in {source}", body)
    namespace = reader.text("namespace", name)
    if not re.fullmatch(r"[A-Za-z0-9_-]{1,32}", namespace):
        reader.refuse("namespace", "is no namespace of a store", "1 to 32 letters, digits, '-' and '_'")
    quota = _quota(reader)
    reader.end()
    return Tenant(name, namespace, quota)


def _quota(reader: TableReader) -> Quota | None:
    """The quota, if any of it is given: 0 lifts what was set before, and no word leaves it."""
    names = ("live_sagas", "steps_per_s", "max_cost_per_day")
    said = {name: value for name in names if (value := reader.any(name)) is not None}
    given = TableReader(reader.where, said)
    costs = given.any("max_cost_per_day", {})
    if why := why_no_budget(costs):
        reader.refuse("max_cost_per_day", f"is no budget: {why}", "write { usd = 100 }")
    live = int(_number(given, "live_sagas", 0, 0, 1e9, whole=True))
    quota = Quota(live, _number(given, "steps_per_s", 0.0, 0, 1e9), dict(costs))
    return quota if said else None


def _number(reader: TableReader, name: str, default: float, least: float, most: float, *, whole: bool = False) -> float:
    value = reader.any(name, default)
    fits = isinstance(value, int if whole else int | float) and not isinstance(value, bool)
    if not fits or not least <= value <= most:
        reader.refuse(name, f"must be a {'whole ' if whole else ''}number from {least:g} to {most:g}, not {value!r}")
    return float(value) if not whole else int(value)


def _texts(reader: TableReader, name: str) -> tuple[str, ...]:
    value = reader.any(name, [])
    if not isinstance(value, list) or not all(isinstance(each, str) and each for each in value):
        reader.refuse(name, "must be a list of texts")
    return tuple(value)


_DEFAULTS: Final = ServerSettings()
