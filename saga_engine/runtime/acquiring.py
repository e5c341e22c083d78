"""Becoming the owner of a saga that another process owned, or still owns."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from saga_engine.core.state import State
from saga_engine.errors import Interrupted, SagaOwned
from saga_engine.ports import Acquired, Held, Store
from saga_engine.runtime.lease import lease_clock_s
from saga_engine.runtime.owner import parse, provably_dead

#: How often, in seconds, a saga that another process owns is asked for: its owner may end with it, or prove that it
#: lives, before its lease ends. A lease that ends later than it did, by more than this, has been renewed.
_AGAIN_S = 1.0
_RENEWED_S = 0.25


async def acquire(
    store: Store,
    saga_id: str,
    owner: Callable[[], str],
    stopping: asyncio.Event,
    on_wait: Callable[[str, str, float], None] | None,
) -> Acquired:
    """Own the saga: at once if its owner is gone, else when its lease ends; an owner that renews it keeps it.

    ``owner`` tells who this process is. ``on_wait(saga_id, owner, seconds)`` is told whom it waits for. Raises
    ``SagaOwned``, ``Interrupted`` once ``stopping`` is set, and what ``Store.acquire`` raises.
    """
    told, ends_s = "", 0.0
    while True:
        answer = await store.acquire(saga_id, owner())
        if isinstance(answer, Held) and provably_dead(answer.owner):
            answer = await store.acquire(saga_id, owner(), dead_owner=answer.owner)
        if isinstance(answer, Acquired):
            return answer
        left_s = answer.ttl_ms / 1000
        now_s = lease_clock_s()
        if told != answer.owner:
            told, ends_s = answer.owner, now_s + left_s
            if on_wait is not None:
                on_wait(saga_id, answer.owner, left_s)
        elif now_s + left_s > ends_s + _RENEWED_S:
            raise SagaOwned(
                f"saga {saga_id} is owned by a live process ({_who(answer.owner)})",
                hint=f"it goes on there; where it stands: saga show {saga_id}",
                saga_id=saga_id,
                owner=answer.owner,
            )
        if await _happens(stopping, min(left_s, _AGAIN_S) + 0.01):
            raise Interrupted(
                f"saga {saga_id} was not taken over; it stands as its journal says",
                hint=f"saga resume {saga_id}",
                saga_id=saga_id,
            )


def is_suspect(state: State) -> bool:
    """Whether a call of the saga was in flight when two owners ended: it may be what ended them.

    One such saga is driven at a time, so that the next end of a process speaks against it alone.
    """
    return any(state.steps[index].call(direction).crashes >= 1 for index, direction in state.in_flight)


async def _happens(event: asyncio.Event, within_s: float) -> bool:
    try:
        await asyncio.wait_for(event.wait(), within_s)
    except TimeoutError:
        return False
    return True


def _who(owner: str) -> str:
    known = parse(owner)
    return owner if known is None else f"pid {known.pid} on {known.host}"
