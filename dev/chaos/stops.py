"""The operator's stops as a fault: calls of all, of a tool or of a saga are stopped for a while, and then go on.

Each stop becomes a ``Window``, within which the laws look at every request that the external system received.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any, Final, NamedTuple

from saga_engine import Coordinator, SagaError
from saga_engine.api.stops import ALL, go, stop
from saga_engine.core import transitions as t

_log = logging.getLogger("chaos.stops")
_AGAIN_S: Final = 0.1
#: The tools that a stop of one tool holds, or would if it held undos.
_TOOLS: Final = ("book_keyed", "book_probed", "book_bare", "put_keyed", "undo_keyed")
_SHORTEST_S: Final = 0.3
_LONGEST_S: Final = 2.5


class Window(NamedTuple):
    """A stop that held: ``scope`` is ``all``, ``tool:NAME`` or ``saga:ID``.

    ``from_ms`` and ``from_s`` are the machine's time and its monotonic time when the stop was known to hold, and
    ``until_s`` when it began to be lifted. (The machine's time is the store's.)
    """

    scope: str
    from_ms: int
    from_s: float
    until_s: float

    def covers(self, saga_id: str, tool: str) -> bool:
        """Whether it holds the forward calls of this tool in this saga."""
        return self.scope in (ALL, f"tool:{tool}", f"saga:{saga_id}")


class Stopper:
    """An operator who stops calls, and lets them go again. ``windows`` are the stops that are over."""

    def __init__(self, coordinator: Coordinator, dice: Random) -> None:
        self._coordinator = coordinator
        self._dice = dice
        self._busy = asyncio.Lock()
        self.windows: list[Window] = []

    async def fault(self) -> None:
        """Stop something for a while. There is one stop at a time: the end of one must not lift another."""
        async with self._busy:
            await self.hold(await self._scope(), asyncio.sleep(self._dice.uniform(_SHORTEST_S, _LONGEST_S)))

    async def hold(self, scope: str, until: Awaitable[Any]) -> None:
        """Stop this until something is over, then let it go until the store has taken it."""
        kind, _, name = scope.partition(":")
        of: dict[str, Any] = {"all": {}, "tool": {"tool": name}, "saga": {"saga_id": name}}[kind]
        store = self._coordinator.store
        await _surely(lambda: stop(store, by="ada", note="chaos", **of))
        from_s, from_ms = time.monotonic(), time.time_ns() // 1_000_000 + 1
        await until
        until_s = time.monotonic()
        await _surely(lambda: go(store, **of))
        self.windows.append(Window(scope, from_ms, from_s, until_s))

    async def _scope(self) -> str:
        chance = self._dice.random()
        if chance < 0.5:
            return ALL
        if chance < 0.75:
            return f"tool:{self._dice.choice(_TOOLS)}"
        try:
            running = await self._coordinator.list(t.RUNNING, limit=20)
        except SagaError as error:
            _log.info("no saga can be chosen now: %s", error)
            return ALL
        return f"saga:{self._dice.choice(running).saga_id}" if running else ALL


async def _surely(act: Callable[[], Awaitable[Any]]) -> None:
    """Repeat what the store did not take: nobody knows whether it did."""
    while True:
        try:
            await act()
            return
        except SagaError as error:
            _log.info("not now: %s", error)
            await asyncio.sleep(_AGAIN_S)
