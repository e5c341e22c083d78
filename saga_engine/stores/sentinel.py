"""A primary that Sentinels watch: the server that they name now, wherever it moves."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Final

from redis.exceptions import AuthenticationError, RedisError, ResponseError
from redis.exceptions import ConnectionError as RedisConnectionError

from saga_engine.errors import StoreRefused, StoreUrlInvalid
from saga_engine.stores.addresses import SENTINEL_HINT, Address, ConnectionConfig, parse
from saga_engine.stores.connection import Connector

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from saga_engine.stores.connection import RedisConnection

_SENTINEL_PORT: Final = 26379
#: How long a Sentinel may take to answer before the others decide without it.
_ANSWER_S: Final = 1.0


class SentinelConnector(Connector):
    """Connections to the primary of ``redis+sentinel://H1:26379,H2,H3/MASTER[/DB]``. Raises ``StoreUrlInvalid``.

    Every new connection asks all Sentinels and takes the address that most of them name, so that a Sentinel which was
    cut off and reports an old primary is outvoted; the server itself must then report that it is a primary.
    """

    hint = (
        "check that the Sentinels and the primary run and that the addresses and the name are right; the sagas go on "
        "from where they are once a primary is there"
    )
    moves = True
    unmet = True

    def __init__(self, scheme: str, address: str, options: Mapping[str, str]) -> None:
        said = parse(scheme, address, options, port=_SENTINEL_PORT, hint=SENTINEL_HINT)
        self.url = said.shown
        self._name, db = _name_and_db(said.path, options.get("db", ""))
        self._sentinels = said.hosts
        shared = {name: value for name, value in options.items() if not name.startswith("sentinel_")}
        user, password = options.get("sentinel_username", ""), options.get("sentinel_password", "")
        if user and not password:
            raise StoreUrlInvalid("sentinel_username needs a sentinel_password", hint=SENTINEL_HINT)
        self._server = ConnectionConfig(
            tls=said.tls, user=said.user, password=said.password, db=db, options=shared, hint=SENTINEL_HINT
        )
        self._asking = ConnectionConfig(
            tls=said.tls, user=user, password=password, db=0, options=shared, hint=SENTINEL_HINT
        )
        self.open_door = self._server.open_door(said.hosts)

    async def connect(self) -> RedisConnection:
        """Open a connection to the primary. Raises a connection error while there is none."""
        connection = await self._server.connect(await self._primary())
        try:
            role = await connection.call(["ROLE"])
        except BaseException:
            await connection.close()
            raise
        if role[0] != b"master":
            await connection.close()
            raise RedisConnectionError("the server that the Sentinels name is no primary (yet)")
        return connection

    async def fault(self, limit_s: float) -> StoreRefused | None:
        """What is wrong with the address, as far as the hosts in it tell."""
        return await self._asking.fault(self._sentinels, self.url, limit_s)

    async def _primary(self) -> Address:
        answers = await asyncio.gather(*(self._ask(sentinel) for sentinel in self._sentinels))
        votes = Counter(answer for answer in answers if isinstance(answer, Address))
        if votes:
            return votes.most_common(1)[0][0]
        for answer in answers:
            if isinstance(answer, AuthenticationError):
                raise answer
        if any(answer is None for answer in answers):
            raise RedisConnectionError(f"no Sentinel knows a primary named {self._name!r}")
        raise RedisConnectionError("no Sentinel answers: " + "; ".join(dict.fromkeys(map(str, answers))))

    async def _ask(self, sentinel: Address) -> Address | Exception | None:
        """The answer of one Sentinel: an address, None for an unknown name, or the reason for no answer."""
        try:
            async with asyncio.timeout(_ANSWER_S):
                connection = await self._asking.connect(sentinel)
                try:
                    found = await connection.call(["SENTINEL", "GET-MASTER-ADDR-BY-NAME", self._name])
                finally:
                    await connection.close()
        except ResponseError as error:
            return error
        except (RedisError, OSError) as error:
            return error if str(error) else RedisConnectionError(f"{sentinel} does not answer in {_ANSWER_S:g} s")
        return None if found is None else Address(str(found[0], "utf-8"), int(found[1]))


def _name_and_db(path: Sequence[str], option: str) -> tuple[str, int]:
    if not 1 <= len(path) <= 2:
        raise StoreUrlInvalid("the store's address must name the primary after the hosts", hint=SENTINEL_HINT)
    db = option or (path[1] if len(path) == 2 else "0")
    if not (db.isascii() and db.isdigit()) or (option and len(path) == 2 and option != path[1]):
        raise StoreUrlInvalid(f"{db!r} is no number of a database, or not the only one", hint=SENTINEL_HINT)
    return path[0], int(db)
