"""A remote server, by URL."""

from __future__ import annotations

from typing import Final
from urllib.parse import urlsplit

from redis.asyncio.connection import ConnectionPool

from saga_engine.errors import StoreRefused, StoreUrlInvalid
from saga_engine.stores.connection import Connector, RedisConnection, connection_options, open_connection
from saga_engine.stores.first_contact import fault

#: Host names of this machine.
LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1", None})


def without_password(url: str) -> str:
    """The URL in a form fit to show: every password, wherever it stands, is replaced."""
    parsed = urlsplit(url)
    rest = "".join((parsed.path, parsed.fragment, *(part for part in parsed.query.split("&") if "=" not in part)))
    if "@" in rest and parsed.scheme not in ("unix", "embedded", "memory"):
        # A secret with a delimiter that should have been encoded: its begin and end cannot be determined.
        return f"{parsed.scheme}://***@{url.rpartition('@')[2]}"
    user, at, host = parsed.netloc.rpartition("@")
    name, colon, _ = user.partition(":")
    query = "&".join(_masked(part) for part in parsed.query.split("&"))
    netloc = f"{name}{colon}{'***' if colon else ''}{at}{host}"
    return f"{parsed.scheme}://{netloc}{parsed.path}" + (f"?{query}" if query else "")


def _masked(part: str) -> str:
    name, equals, _ = part.partition("=")
    return f"{name}=***" if equals and name.endswith("password") else part


class RemoteConnector(Connector):
    """Connections to ``redis://``, ``rediss://`` and ``unix://``. Raises ``StoreUrlInvalid`` for any other."""

    hint = "check that the server runs and that the address is right; the sagas continue when it is back"
    unmet = True

    def __init__(self, url: str) -> None:
        try:
            # An explicit timeout of none in the options; the URL may set neither (see open_store).
            self._pool = ConnectionPool.from_url(url, **connection_options())
            options = self._pool.connection_kwargs
            self.url = without_password(url)
            self.open_door = not options.get("password") and options.get("host") not in LOOPBACK
            if url.startswith("unix:") and not options.get("path"):
                raise ValueError("a unix:// address needs an absolute path: unix:///run/redis.sock")
        except ValueError as error:
            # A password with an unencoded delimiter is parsed as another part of the URL, and would be shown as that.
            why = "; a password has to be URL-encoded" if "@" in url else f": {error}"
            raise StoreUrlInvalid(
                f"the store's address cannot be understood{why}", hint="for example redis://localhost:6379/0"
            ) from error

    async def connect(self) -> RedisConnection:
        """Open a connection."""
        return await open_connection(self._pool)

    async def fault(self, limit_s: float) -> StoreRefused | None:
        """What is wrong with the address, as far as its server tells."""
        return await fault(self._pool.make_connection(), self.url, limit_s)  # type: ignore[no-untyped-call]
