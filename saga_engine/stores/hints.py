"""Listens for hints that a partition has work: one subscription to each server.

The scripts publish them; a cluster uses sharded channels, so that a hint stays on the node of its partition. Whatever
breaks the subscription (a server that ends, a fail-over, a slot that moves), it is made anew, on the map of then.
"""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Any, Final

from redis.crc import key_slot
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import NoPermissionError, RedisError

from saga_engine.errors import SagaError
from saga_engine.loggers import logger_of
from saga_engine.ports import Hint
from saga_engine.stores.cluster import ClusterConnector
from saga_engine.stores.connection import RedisConnection, TransientError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from saga_engine.stores.addresses import Address
    from saga_engine.stores.connection import Connector

    _Heard = Callable[[Hint | None], None]

_log = logger_of("saga_engine.stores")

#: Pauses before the next attempt to subscribe, in seconds: doubling, each shortened at random.
_PAUSES_S: Final = (0.1, 5.0)
#: The pause after a server has refused to let this user listen: an operator may change that.
_REFUSED_S: Final = 60.0
#: How often a silent server is asked whether it is there, and how long it may take to connect or to say anything.
_PING_S: Final = 5.0
_SILENT_S: Final = 12.0


async def pass_on(connector: Connector, channels: Sequence[str], heard: _Heard) -> None:
    """Pass on hints until it is cancelled; see ``ports.WorkStore.listen``."""
    pause_s = _PAUSES_S[0]
    told = False

    def listening(hint: Hint | None) -> None:
        nonlocal pause_s, told
        pause_s, told = _PAUSES_S[0], False
        heard(hint)

    while True:
        try:
            if not await _listen(connector, channels, listening):
                return
        except NoPermissionError as error:
            if not told:
                _log.warning(
                    "no hints of work from %s, so workers poll; give its user &saga:* and +@pubsub: %s",
                    connector.url,
                    error,
                )
            told, pause_s = True, _REFUSED_S
        except (RedisError, OSError, SagaError, TransientError) as error:
            if not told:
                _log.info("no hints of work from %s now; workers ask more often: %s", connector.url, error)
            told = True
        heard(None)
        await asyncio.sleep(pause_s * random.uniform(0.5, 1.0))
        pause_s = min(2 * pause_s, _PAUSES_S[1])


async def _listen(connector: Connector, channels: Sequence[str], heard: _Heard) -> bool:
    """Listen on all servers until one subscription ends, which raises. False: this store sends no hints."""
    shares: dict[Connector, list[str]] = {}
    if isinstance(connector, ClusterConnector):
        await connector.prepare(_SILENT_S)
        at_nodes: dict[Address, list[str]] = {}
        for channel in channels:
            at_nodes.setdefault(connector.owner(key_slot(channel.encode())), []).append(channel)
        shares = {connector.node(address): mine for address, mine in at_nodes.items()}
    else:
        shares[connector] = list(channels)
    connections: list[RedisConnection] = []
    tasks: list[asyncio.Task[None]] = []
    try:
        for at, mine in shares.items():
            async with asyncio.timeout(_SILENT_S):
                connection = await at.connect()
            if not isinstance(connection, RedisConnection):
                await connection.close()
                return False
            connections.append(connection)
            verb = "SUBSCRIBE" if at is connector else "SSUBSCRIBE"
            # One by one: a command may name the channels of one slot only.
            await connection.send(*((verb, channel) for channel in mine))
        waiting = _Countdown(len(channels), heard)
        losses = connector.losses
        for connection in connections:
            tasks += [asyncio.create_task(_read(connection, waiting)), asyncio.create_task(_ping(connection))]
        while True:
            done, _ = await asyncio.wait(tasks, timeout=_PING_S, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
            if connector.losses != losses:
                raise RedisConnectionError("another server may have replaced this one")
    finally:
        if isinstance(connector, ClusterConnector):
            connector.suspect()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for connection in connections:
            await connection.close()


class _Countdown:
    """Tells of no hint before all subscriptions are confirmed: until then a worker must ask more often."""

    def __init__(self, count: int, heard: _Heard) -> None:
        self._left = count
        self._heard = heard

    def confirmed(self) -> None:
        self._left -= 1
        if self._left == 0:
            self._heard(Hint())

    def hint(self, text: bytes) -> None:
        if self._left <= 0:
            owner, _, saga_id = text.decode("utf-8", "replace").partition("\0")
            self._heard(Hint(owner, saga_id))


async def _read(connection: RedisConnection, waiting: _Countdown) -> None:
    while True:
        async with asyncio.timeout(_SILENT_S):
            said: Any = await connection.receive()
        match said:
            case [b"message" | b"smessage", _, bytes(text)]:
                waiting.hint(text)
            case [b"subscribe" | b"ssubscribe", *_]:
                waiting.confirmed()
            case [b"unsubscribe" | b"sunsubscribe", *_]:
                raise RedisConnectionError("the partition is on another server now")


async def _ping(connection: RedisConnection) -> None:
    while True:
        await asyncio.sleep(_PING_S)
        await connection.send(("PING",))
