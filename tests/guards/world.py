"""What the tests of the guards share: guarded tools on a store, a clock, and a tool's body that a test steers."""

from __future__ import annotations

import asyncio
import time

from saga_engine.guards.chain import GuardedTools
from saga_engine.tools.registry import ToolRegistry
from tests.tools.calls import PATIENCE_S, a_call


class RealClock:
    """The store's clock, which is this machine's here."""

    def now_ms(self):
        return time.time_ns() // 1_000_000


def guard(store, *sources, gate=None, **options):
    """Guarded tools, as one process has them."""
    registry = sources[0] if isinstance(sources[0], ToolRegistry) else ToolRegistry(*sources)
    return GuardedTools(registry, store, gate=gate, clock=RealClock(), **options)


def step(saga="s1", number=1, direction="forward", attempt=1, **changes):
    """A call of a step of a saga, with the key that the engine would give it."""
    letter = "c" if direction == "compensate" else "f"
    key = f"{saga}:{number}:{letter}:seed"
    made = a_call(saga_id=saga, step_id=str(number), direction=direction, attempt=attempt, idempotency_key=key)
    return made._replace(**changes)


def undoing(saga="s1", number=1, tool="act", **changes):
    """The call that undoes that step."""
    forward = step(saga, number)
    return step(saga, number, "compensate", undoes=(tool, forward.idempotency_key), **changes)


class Stage:
    """A tool's body that tells who is inside and waits to be let out."""

    def __init__(self):
        self.inside = []
        self.order = []
        self.most = 0
        self.exits = {}
        self.changed = asyncio.Event()

    async def enter(self, who):
        self.inside.append(who)
        self.order.append(who)
        self.most = max(self.most, len(self.inside))
        self.exits[who] = asyncio.Event()
        self.changed.set()
        try:
            await self.exits[who].wait()
        finally:
            self.inside.remove(who)
            self.changed.set()
        return who

    async def until(self, who):
        await self.until_true(lambda: who in self.exits)

    async def until_true(self, condition):
        async with asyncio.timeout(PATIENCE_S):
            while not condition():
                self.changed.clear()
                await self.changed.wait()

    def let_out(self, who):
        self.exits[who].set()


async def poll(condition):
    """Poll for what only the store or another task can bring about."""
    async with asyncio.timeout(PATIENCE_S):
        while not await condition():  # noqa: ASYNC110 -- it is the store or another task that decides
            await asyncio.sleep(0.001)


class Watched:
    """A guard store that writes down the verbs it is asked and its last replies, and fails the verbs in ``broken``."""

    def __init__(self, store):
        self._store = store
        self.asked = []
        self.replies = {}
        self.broken = {}

    def __getattr__(self, verb):
        real = getattr(self._store, verb)

        async def asked(*args, **named):
            self.asked.append((verb, args))
            if verb in self.broken:
                raise self.broken[verb]
            reply = await real(*args, **named)
            self.replies[verb] = (asyncio.get_running_loop().time(), reply)
            return reply

        return asked

    def verbs(self):
        return [verb for verb, _ in self.asked]
