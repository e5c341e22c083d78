"""How many calls may run at once in this process: per tool, and one at a time per resource.

Both limits hold for one event loop, which is one process in every ordinary program. They say nothing about other
processes. Whoever waits, waits in the order of arrival, and its tool's time-out does not run yet.
"""

from __future__ import annotations

import asyncio
import json
import string
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any
from weakref import WeakKeyDictionary

ResourceKey = str | Callable[[Mapping[str, Any]], str | None]


class KeyedLocks:
    """First come, first served, one holder per key; a key that nobody holds takes no memory."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    @asynccontextmanager
    async def hold(self, key: str) -> AsyncIterator[None]:
        """Hold the key for the length of the block."""
        queue = self._waiting.get(key)
        if queue is None:
            self._waiting[key] = deque()
        else:
            await self._wait(key, queue)
        try:
            yield
        finally:
            self._pass_on(key)

    async def _wait(self, key: str, queue: deque[asyncio.Future[None]]) -> None:
        turn = asyncio.get_running_loop().create_future()
        queue.append(turn)
        try:
            await turn
        except BaseException:
            if turn.done() and not turn.cancelled():
                self._pass_on(key)  # The turn came in the same moment as the cancellation: the next one has it.
            else:
                queue.remove(turn)
            raise

    def _pass_on(self, key: str) -> None:
        queue = self._waiting[key]
        while queue:
            turn = queue.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        del self._waiting[key]


class _Limits:
    """The limits of one event loop."""

    __slots__ = ("__weakref__", "locks", "slots")

    def __init__(self) -> None:
        self.locks = KeyedLocks()
        self.slots: WeakKeyDictionary[object, asyncio.Semaphore] = WeakKeyDictionary()


_of_loop: WeakKeyDictionary[asyncio.AbstractEventLoop, _Limits] = WeakKeyDictionary()


def _limits() -> _Limits:
    loop = asyncio.get_running_loop()
    limits = _of_loop.get(loop)
    if limits is None:
        for closed in [other for other in _of_loop if other.is_closed()]:
            del _of_loop[closed]  # A semaphore that was waited for refers to its loop and would keep it for ever.
        limits = _of_loop[loop] = _Limits()
    return limits


def resource_locks() -> KeyedLocks:
    """The locks of the running event loop; all tools share them, so a key means the same thing in each."""
    return _limits().locks


def concurrency_slots(owner: object, size: int) -> asyncio.Semaphore:
    """The semaphore of one tool in the running event loop."""
    slots = _limits().slots
    semaphore = slots.get(owner)
    if semaphore is None:
        semaphore = slots[owner] = asyncio.Semaphore(size)
    return semaphore


def template_fields(template: str) -> list[str]:
    """The parameter names in a resource template such as ``user:{user_id}``.

    Raises ``ValueError`` for anything but plain names in braces: attributes, indexes, formats and conversions would let
    a value decide what code runs.
    """
    names: list[str] = []
    for _, name, spec, conversion in string.Formatter().parse(template):
        if name is None:
            continue
        if spec or conversion or not name.isidentifier():
            raise ValueError(f"'{{{name}}}' is not a plain parameter name")
        names.append(name)
    return names


def resource_key(resource: ResourceKey, params: Mapping[str, Any], defaults: Mapping[str, Any]) -> str | None:
    """The key of the resource that a call with these params touches; ``None``: none, so nothing to wait for.

    Raises ``ValueError`` when a parameter of the template has no value, or a function gives no text; and whatever the
    function itself raises.
    """
    if not isinstance(resource, str):
        key = resource(params)
        if key is not None and not isinstance(key, str):
            raise ValueError(f"the resource function returned {type(key).__name__}, not a text")
        return key
    values: dict[str, str] = {}
    for name in template_fields(resource):
        if name in params:
            value = params[name]
        elif name in defaults:
            value = defaults[name]
        else:
            raise ValueError(f"the resource {resource!r} needs the parameter {name!r}")
        values[name] = value if isinstance(value, str) else json.dumps(value, sort_keys=True, default=str)
    return resource.format_map(values)
