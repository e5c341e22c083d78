"""Work for a caller that ends with the caller."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from starlette.requests import Request

_T = TypeVar("_T")


class CallerLeft(Exception):
    """Nobody reads the response any more."""


async def unless_left(request: Request, work: Coroutine[Any, Any, _T]) -> _T:
    """What the work returns. It is cancelled when the caller closes the connection; the body was read before.

    Raises ``CallerLeft``.
    """
    working, leaving = asyncio.ensure_future(work), asyncio.ensure_future(_left(request))
    try:
        await asyncio.wait((working, leaving), return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise CallerLeft
        return working.result()
    finally:
        working.cancel()
        leaving.cancel()
        await asyncio.gather(working, leaving, return_exceptions=True)


@contextmanager
def telling_left(request: Request, tell: Callable[[], None]) -> Iterator[None]:
    """Tell when the caller closes the connection in this block; the body was read before."""
    leaving = asyncio.ensure_future(_left(request))
    leaving.add_done_callback(lambda ended: None if ended.cancelled() or ended.exception() else tell())
    try:
        yield
    finally:
        leaving.cancel()


async def _left(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
