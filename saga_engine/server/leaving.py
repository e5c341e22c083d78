"""Work for a caller that ends with the caller."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
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


async def _left(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
