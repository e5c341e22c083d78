"""Both engines behind one fixture: what is tested here holds on whatever runtime drives a saga."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import pytest

from saga_engine import Coordinator
from saga_engine.api import Engine
from tests.temporal.conftest import Place
from tests.temporal.server import TemporalServer, detecting_deadlocks

#: Opens an engine with tools and options of both runtimes, for the length of the block.
Opening = Callable[..., AbstractAsyncContextManager[Engine]]

_numbers = itertools.count(1)


@pytest.fixture(scope="session", autouse=True)
def patient() -> Iterator[None]:
    """A turn may take as long as a loaded machine needs for it."""
    with detecting_deadlocks(None):
        yield


@pytest.fixture(scope="session")
def temporal() -> Iterator[TemporalServer]:
    with TemporalServer() as server:
        yield server


@asynccontextmanager
async def _own(tools: Any, *, store: str = "memory://", **options: Any) -> AsyncIterator[Engine]:
    async with Coordinator.open(store, tools, durability="relaxed", **options) as engine:
        yield engine


@pytest.fixture(params=["own", "temporal"])
def opened(request: pytest.FixtureRequest) -> Opening:
    """The engine's own runtime, and a worker and a client of Temporal."""
    if request.param == "own":
        return _own
    place = Place(request.getfixturevalue("temporal").url)

    @asynccontextmanager
    async def there(tools: Any, *, store: str | None = None, **options: Any) -> AsyncIterator[Engine]:
        if store is not None:
            options["durability"] = "relaxed"
        async with place.both(tools, store=store, **options) as engine:
            yield engine

    return there


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """An id that no other saga has."""
    return f"s{next(_numbers)}-{request.node.originalname}"[:60]
