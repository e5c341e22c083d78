"""Event loops: objects that belong to one of them and raise in another, and waits for futures and events."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import wraps
from inspect import iscoroutinefunction
from types import FunctionType
from typing import Any, TypeVar

from saga_engine.errors import EventLoopMismatch

_T = TypeVar("_T")


def require_loop(own: asyncio.AbstractEventLoop | None, what: str) -> asyncio.AbstractEventLoop | None:
    """The running loop, None if none runs. Raises ``EventLoopMismatch`` if it is not ``own``."""
    try:
        running = asyncio.get_running_loop()
    except RuntimeError:
        return own  # a call that is only created here runs where it is awaited
    if own is None or running is own:
        return running
    raise EventLoopMismatch(
        f"this {what} was opened in another event loop",
        hint="from another thread: asyncio.run_coroutine_threadsafe(the_call, its_loop).result(); "
        "or open a coordinator in this loop",
    )


def of_one_loop(kind: type[_T]) -> type[_T]:
    """A class whose public asynchronous methods raise ``EventLoopMismatch`` outside the loop in which it was made."""
    what = kind.__name__.lower()
    inherited = {name: method for base in reversed(kind.__mro__[:-1]) for name, method in vars(base).items()}
    for name, method in inherited.items():
        if not isinstance(method, FunctionType) or name.startswith("_"):
            continue
        if iscoroutinefunction(method):
            setattr(kind, name, _awaited(method, what))
        elif "Async" in str(method.__annotations__.get("return", "")):
            setattr(kind, name, _called(method, what))
    setattr(kind, "__init__", _made(vars(kind)["__init__"], what))  # noqa: B010 - mypy forbids the plain form
    return kind


def _check(thing: Any, what: str) -> None:
    thing._own_loop = require_loop(thing.__dict__.get("_own_loop"), what)  # noqa: SLF001


def _made(method: Callable[..., None], what: str) -> Callable[..., None]:
    @wraps(method)
    def made(self: Any, *args: Any, **options: Any) -> None:
        _check(self, what)
        method(self, *args, **options)

    return made


def _awaited(method: Callable[..., Any], what: str) -> Callable[..., Any]:
    @wraps(method)
    async def checked(self: Any, *args: Any, **options: Any) -> Any:
        _check(self, what)
        return await method(self, *args, **options)

    return checked


def _called(method: Callable[..., Any], what: str) -> Callable[..., Any]:
    @wraps(method)
    def checked(self: Any, *args: Any, **options: Any) -> Any:
        _check(self, what)
        return method(self, *args, **options)

    return checked


def pass_on(waiter: asyncio.Future[_T], ended: asyncio.Future[_T]) -> None:
    """Let ``waiter`` end as ``ended`` did."""
    if waiter.done():
        return
    if ended.cancelled():
        waiter.cancel()
    elif (error := ended.exception()) is not None:
        waiter.set_exception(error)
    else:
        waiter.set_result(ended.result())


async def happens(event: asyncio.Event, within_s: float) -> bool:
    """Wait for ``event``, at most for ``within_s``; False: it did not happen."""
    try:
        async with asyncio.timeout(within_s):
            await event.wait()
    except TimeoutError:
        return False
    return True
