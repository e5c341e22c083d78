"""What opens a coordinator, and says so to a program that forgets ``async with``."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from types import TracebackType
from typing import Any, Generic, NoReturn, ParamSpec, TypeVar

_P = ParamSpec("_P")
_T = TypeVar("_T")


class Opening(AbstractAsyncContextManager[_T], Generic[_T]):
    """A coordinator that is opened by ``async with``, and by nothing else."""

    def __init__(self, inner: AbstractAsyncContextManager[_T], name: str) -> None:
        self._inner = inner
        self._name = name

    async def __aenter__(self) -> _T:
        return await self._inner.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        return await self._inner.__aexit__(kind, error, traceback)

    def __getattr__(self, name: str) -> NoReturn:
        """Whoever forgot ``async with`` asks for a method of the coordinator."""
        raise AttributeError(f"{self._words} and then: coordinator.{name}")

    def __await__(self) -> NoReturn:
        raise TypeError(self._words)

    def __enter__(self) -> NoReturn:
        raise TypeError(self._words)

    def __exit__(self, *_: object) -> None:
        """Never reached: ``__enter__`` raises."""

    @property
    def _words(self) -> str:
        return f"{self._name}.open() opens nothing by itself: write 'async with {self._name}.open(…) as coordinator:'"


def opening(function: Callable[_P, AsyncIterator[_T]]) -> Callable[_P, Opening[_T]]:
    """As ``asynccontextmanager``, for the ``open`` of a class."""
    entered = asynccontextmanager(function)

    @functools.wraps(function)
    def made(*args: _P.args, **options: _P.kwargs) -> Opening[_T]:
        owner: Any = args[0]
        return Opening(entered(*args, **options), owner.__name__)

    return made
