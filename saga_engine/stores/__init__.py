"""STORES: journals, leases and queues in Redis or Valkey, opened by ``open_store``.

No heavy module is imported before a URL needs it.
"""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl, urlencode, urlsplit

from saga_engine.errors import SettingInvalid, StoreUrlInvalid

if TYPE_CHECKING:
    from saga_engine.ports import Store

__all__ = ["DEFAULT_URL", "open_store"]

DEFAULT_URL: Final = "embedded://.saga"

_NAMESPACE: Final = re.compile(r"[A-Za-z0-9_-]{1,32}")
#: The options that a URL may have. Retries, time-outs and decoding are set by the store itself.
_REMOTE_OPTIONS: Final = frozenset({"db", "username", "password", "client_name", "socket_keepalive"})
_SENTINEL_OPTIONS: Final = frozenset({"sentinel_username", "sentinel_password"})
_SCHEMES_HINT: Final = (
    "use redis://HOST:PORT/DB, rediss://…, unix:///PATH, redis+sentinel://H1,H2,H3/NAME, redis+cluster://H1,H2,H3, "
    "embedded://FOLDER or memory://"
)


def open_store(
    url: str = DEFAULT_URL,
    *,
    durability: str = "fsync",
    patience_s: float = 10.0,
    root: Path | str | None = None,
    snapshot: bool = False,
) -> Store:
    """The store behind ``url``, not yet opened: nothing is read or written before ``Store.open``.

    ``durability``: ``fsync`` (refuse a server that keeps less), ``replicated:N`` (a write counts once N replicas have
    it on disk, too) or ``relaxed``. ``patience_s``: how long, in seconds, a call is repeated while the server is
    unreachable. ``root``: the folder that a relative ``embedded://`` path starts from (default: the current one).
    ``snapshot``: read only; if the server of an embedded store is down, a copy is read and the folder is not changed.
    Every URL takes ``?namespace=NAME``, the first part of all keys.

    Raises ``StoreUrlInvalid`` for a URL that is invalid or whose extra is not installed, and ``SettingInvalid`` for the
    other arguments.
    """
    from saga_engine.settings import replicas_of

    replicas = replicas_of(durability)
    if patience_s <= 0:
        raise SettingInvalid("the store's patience must be more than 0 seconds", patience_s=patience_s)
    scheme, address, options, namespace = parts_of(url)
    shared: dict[str, Any] = {"namespace": namespace, "durability": durability, "patience_s": patience_s}
    if scheme not in ("embedded", "memory"):
        _demand_encoded(scheme, address, options)
    if scheme in ("redis", "rediss", "unix"):
        return _remote(f"{scheme}://{address}", options, shared)
    if scheme in ("embedded", "memory"):
        named = options.pop("server", "") if scheme == "embedded" else ""
        if options:
            raise _unknown_option(sorted(options))
        if replicas:
            raise SettingInvalid(
                f"{scheme}:// has no replicas, so it cannot keep {durability}",
                hint="use fsync, or a server with replicas",
                durability=durability,
            )
        if scheme == "memory":
            return _memory(address, shared)
        return _embedded(address, root, shared, snapshot=snapshot, named=named)
    if scheme in ("redis+sentinel", "rediss+sentinel", "redis+cluster", "rediss+cluster"):
        return _several(scheme, address, options, shared)
    raise StoreUrlInvalid(f"{scheme}:// is no store", hint=_SCHEMES_HINT, scheme=scheme)


def parts_of(url: str) -> tuple[str, str, dict[str, str], str]:
    """The scheme, the address, the other options and the namespace of a store's URL. Raises ``StoreUrlInvalid``."""
    scheme, separator, rest = url.partition("://")
    if not separator:
        raise StoreUrlInvalid("the store's address has no scheme", hint=_SCHEMES_HINT)
    address, _, query = rest.partition("?")
    pairs = parse_qsl(query, keep_blank_values=True)
    options = dict(pairs)
    if len(options) != len(pairs):
        raise StoreUrlInvalid("the store's address has an option twice", hint="write each option once")
    namespace = options.pop("namespace", "saga")
    if not _NAMESPACE.fullmatch(namespace):
        raise StoreUrlInvalid(
            f"{namespace!r} is no namespace", hint="use 1 to 32 letters, digits, '-' and '_'", namespace=namespace
        )
    return scheme, address, options, namespace


def check_embedded(url: str) -> None:
    """Raise ``StoreUrlInvalid`` for the address of an embedded store that ``open_store`` would refuse."""
    _, _, options, _ = parts_of(url)
    if options.keys() - {"server"}:
        raise _unknown_option(sorted(options.keys() - {"server"}))


def _demand_encoded(scheme: str, address: str, options: dict[str, str]) -> None:
    """Refuse unencoded delimiters in a secret, before its parts are shown as a host and an option."""
    path = "" if scheme == "unix" else address.partition("/")[2]
    fragment = "+" not in scheme and "#" in address
    if fragment or "@" in path or any("@" in name for name in options):
        raise StoreUrlInvalid(
            "the store's address has a mark in a wrong place",
            hint="in a user or a password write %2F for '/', %3F for '?', %23 for '#' and %40 for '@'",
        )


def _unknown_option(names: list[str]) -> StoreUrlInvalid:
    return StoreUrlInvalid(
        f"the store's address has an option that means nothing here: {', '.join(names)}",
        hint="every address takes ?namespace=NAME; embedded:// takes server; those of servers db, username, ssl_…",
    )


def _demand_known(options: dict[str, str], known: frozenset[str]) -> None:
    unknown = [name for name in options if name not in known and not name.startswith("ssl_")]
    if unknown:
        raise _unknown_option(sorted(unknown))


def _several(scheme: str, address: str, options: dict[str, str], shared: dict[str, Any]) -> Store:
    """A store with several addresses: a cluster, or a primary that Sentinels name."""
    from saga_engine.stores.redis import RedisStore

    if scheme.endswith("+cluster"):
        _demand_known(options, _REMOTE_OPTIONS)
        from saga_engine.stores.cluster import ClusterConnector

        cluster = ClusterConnector(scheme, address, options)
        return RedisStore(cluster, open_door=cluster.open_door, **shared)
    _demand_known(options, _REMOTE_OPTIONS | _SENTINEL_OPTIONS)
    from saga_engine.stores.sentinel import SentinelConnector

    sentinel = SentinelConnector(scheme, address, options)
    return RedisStore(sentinel, open_door=sentinel.open_door, **shared)


def _remote(address: str, options: dict[str, str], shared: dict[str, Any]) -> Store:
    _demand_known(options, _REMOTE_OPTIONS)
    try:
        # A port that is not a number is found only when it is read.
        _ = urlsplit(address).port
    except ValueError as error:
        raise StoreUrlInvalid(f"the store's address cannot be understood: {error}", hint=_SCHEMES_HINT) from error
    database = "" if address.startswith("unix:") else urlsplit(address).path.strip("/")
    if not re.fullmatch(r"[0-9]*", database):
        # redis-py would use database 0.
        raise StoreUrlInvalid(
            f"the store's address names the database {database[:64]!r}, which is no number",
            hint="write redis://HOST:PORT/0, or ?namespace=NAME to separate sagas by a name",
        )
    from saga_engine.stores.redis import RedisStore
    from saga_engine.stores.remote import RemoteConnector

    connector = RemoteConnector(f"{address}?{urlencode(options)}" if options else address)
    return RedisStore(connector, open_door=connector.open_door, **shared)


def _embedded(path: str, root: Path | str | None, shared: dict[str, Any], *, snapshot: bool, named: str) -> Store:
    if not path:
        raise StoreUrlInvalid("embedded:// needs a folder", hint=f"for example {DEFAULT_URL}")
    if importlib.util.find_spec("fcntl") is None:
        raise StoreUrlInvalid(
            "the embedded store does not run on this system", hint="run a server and use --store redis://HOST:PORT"
        )
    from saga_engine.stores.embedded import EmbeddedConnector, find_binary
    from saga_engine.stores.redis import RedisStore

    folder, binary = Path(root or ".", Path(path).expanduser()).absolute(), find_binary(named)
    if snapshot:
        from saga_engine.stores.snapshot import SnapshotConnector

        return RedisStore(SnapshotConnector(f"embedded://{path}", folder, binary), **shared)
    return RedisStore(EmbeddedConnector(f"embedded://{path}", folder, binary), **shared)


def _memory(name: str, shared: dict[str, Any]) -> Store:
    if importlib.util.find_spec("fakeredis") is None or importlib.util.find_spec("lupa") is None:
        raise StoreUrlInvalid(
            "memory:// needs an extra that is not installed", hint="pip install 'saga-engine[memory]'"
        )
    from saga_engine.stores.in_memory import MemoryConnector
    from saga_engine.stores.redis import RedisStore

    return RedisStore(MemoryConnector(name), **shared)
