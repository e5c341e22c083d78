"""The one place where a kill test asks again and again: for what another process does and tells nobody about."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager
from inspect import isawaitable
from typing import TYPE_CHECKING, Any

from saga_engine.stores import open_store
from tests.support.servers import GIVE_UP_S

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from saga_engine.stores.redis import RedisStore


async def eventually(condition: Callable[[], Awaitable[Any] | Any], what: str) -> None:
    """Until ``condition`` holds. The bound only ends a test that would hang."""
    try:
        async with asyncio.timeout(GIVE_UP_S):
            while True:
                found = condition()
                if await found if isawaitable(found) else found:
                    return
                await asyncio.sleep(0.01)
    except TimeoutError:
        raise AssertionError(f"waited in vain for: {what}") from None


async def lease_runs_out(url: str, saga_id: str) -> None:
    """The lease of the dead process that drove the saga is over, as if its time had passed."""
    async with opened(url) as store:
        await store.close_lease((await store.head(saga_id)).owner)


async def ticket_runs_out(url: str, resource: str, saga_id: str) -> None:
    """The lease on the tickets of a dead process's saga is over, as if its time had passed.

    So everybody may have a lease that lasts on the slowest machine, and nobody waits for the end of one.
    """
    async with opened(url) as store:
        _, alive, _ = store.guard_store()._queue_keys(resource)
        for ticket in await store._plain("ZRANGE", alive, "0", "-1"):
            if ticket.startswith(f"{saga_id}:".encode()):
                await store._plain("ZADD", alive, "1", ticket)


async def due_now(url: str, saga_id: str) -> bool:
    """The time of a saga in the queue has come, as if it had passed. False: it is not in the queue."""
    async with opened(url) as store:
        queue = store._key("head", saga_id).removesuffix(f"head:{saga_id}") + "due"
        await store._plain("ZADD", queue, "XX", "1", saga_id)
        return await store._plain("ZSCORE", queue, saga_id) is not None


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[RedisStore]:
    """A store to look at a saga with, beside those who drive it."""
    store = open_store(url)
    await store.open()
    try:
        yield store
    finally:
        await store.close()
