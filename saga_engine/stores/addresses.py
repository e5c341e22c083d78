"""Addresses with several hosts: ``redis+sentinel://`` and ``redis+cluster://``.

Parsed here, because no standard URL has two hosts.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import unquote, urlencode

from redis.asyncio.connection import ConnectionPool

from saga_engine.errors import StoreRefused, StoreUrlInvalid
from saga_engine.stores.connection import RedisConnection, connection_options, open_connection
from saga_engine.stores.first_contact import fault
from saga_engine.stores.remote import LOOPBACK

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

SENTINEL_HINT: Final = "for example redis+sentinel://10.0.0.1:26379,10.0.0.2:26379,10.0.0.3:26379/mymaster"
CLUSTER_HINT: Final = "for example redis+cluster://10.0.0.1:6379,10.0.0.2:6379,10.0.0.3:6379"


class Address(NamedTuple):
    """A server: host and port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Addresses(NamedTuple):
    """The content of a URL with several hosts. ``shown`` is the URL without its secrets."""

    tls: bool
    user: str
    password: str
    hosts: Sequence[Address]
    path: Sequence[str]
    shown: str


def parse(scheme: str, address: str, options: Mapping[str, str], *, port: int, hint: str) -> Addresses:
    """Split ``[USER:PASSWORD@]HOST[:PORT],…[/PATH…]``. ``port`` is for hosts that name none.

    Raises ``StoreUrlInvalid``, which never shows the secrets.
    """
    netloc, _, path = address.partition("/")
    secrets, at, listed = netloc.rpartition("@")
    name, colon, password = secrets.partition(":")
    hosts = tuple(_host(text.strip(), port, hint) for text in listed.split(","))
    if len(set(hosts)) < len(hosts):
        raise StoreUrlInvalid("the store's address names a host twice", hint=hint)
    # A user without a password is meaningless to a server, and would be dropped silently.
    if at and not password:
        raise StoreUrlInvalid("the store's address names a user without a password", hint=hint)
    query = {key: "***" if key.endswith("password") else value for key, value in options.items()}
    shown = f"{scheme}://{name}{colon}{'***' if colon else ''}{at}{listed}" + (f"/{path}" if path else "")
    return Addresses(
        tls=scheme.startswith("rediss"),
        user=unquote(name) or options.get("username", ""),
        password=unquote(password) or options.get("password", ""),
        hosts=hosts,
        path=tuple(unquote(part) for part in path.split("/") if part),
        shown=shown + (f"?{urlencode(query, safe='*')}" if query else ""),
    )


def _host(text: str, port: int, hint: str) -> Address:
    host, colon, number = text.rpartition(":")
    if text.startswith("["):
        host, closed, rest = text[1:].partition("]")
        colon, number = rest[:1], rest[1:]
        if not closed or (rest and colon != ":"):
            raise StoreUrlInvalid(f"{text!r} in the store's address is no host", hint=hint)
    elif not colon:
        host, number = text, ""
    if not host or (any(mark in host for mark in ":[]@?# ") and not text.startswith("[")):
        raise StoreUrlInvalid(f"{text!r} in the store's address is no host", hint=hint)
    if colon and not (number.isascii() and number.isdigit() and 0 < int(number) < 65536):
        raise StoreUrlInvalid(f"{text!r} in the store's address has no port from 1 to 65535", hint=hint)
    return Address(host, int(number) if colon else port)


class ConnectionConfig:
    """The configuration of connections to any host of one URL. Raises ``StoreUrlInvalid`` for meaningless options."""

    def __init__(self, *, tls: bool, user: str, password: str, db: int, options: Mapping[str, str], hint: str) -> None:
        query = {name: value for name, value in options.items() if name not in ("username", "password", "db")}
        url = f"{'rediss' if tls else 'redis'}://localhost/{db}" + (f"?{urlencode(query)}" if query else "")
        try:
            pool = ConnectionPool.from_url(url, **connection_options())
        except ValueError as error:
            raise StoreUrlInvalid(f"the store's address cannot be understood: {error}", hint=hint) from error
        self._kind = pool.connection_class
        self._options: dict[str, Any] = dict(pool.connection_kwargs)
        if password:
            self._options |= {"username": user or None, "password": password}
        self._has_password = bool(password)

    async def connect(self, address: Address) -> RedisConnection:
        """Open a connection. Raises what redis-py raises."""
        return await open_connection(self._pool(address))

    async def fault(self, hosts: Sequence[Address], url: str, limit_s: float) -> StoreRefused | None:
        """What is wrong with an address of which no host can be used, as far as each of them tells."""
        lines = (self._pool(host).make_connection() for host in hosts)  # type: ignore[no-untyped-call]
        found = await asyncio.gather(*(fault(line, url, limit_s) for line in lines))
        return found[0] if all(found) else None

    def _pool(self, address: Address) -> ConnectionPool:
        options = self._options | {"host": address.host, "port": address.port}
        return ConnectionPool(connection_class=self._kind, **options)

    def open_door(self, hosts: Sequence[Address]) -> bool:
        """Whether a host beyond this machine is reached without a password."""
        return not self._has_password and any(address.host not in LOOPBACK for address in hosts)
