"""Reads a store without changing anything: no folder is created, and a silent server is reported."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from saga_engine.api import Coordinator, Engine
    from saga_engine.errors import SagaNotFound
    from saga_engine.ports import Store
    from saga_engine.settings import Settings
    from saga_engine.tools.registry import ToolRegistry

_EMBEDDED: Final = "embedded://"
#: After this time a silent store is reported; the attempts continue for ``patience_s``.
_SILENT_S: Final = 1.0


def no_store(settings: Settings) -> str | None:
    """The folder of the embedded store, if it has no data; None: there is a store, or it is a server.

    If there is data and its server is down, a copy is read: the folder stays unchanged.
    """
    path = settings.store.removeprefix(_EMBEDDED).partition("?")[0]
    if not settings.store.startswith(_EMBEDDED) or not path:
        return None
    from saga_engine.stores import check_embedded

    check_embedded(settings.store)  # where there is no store, nothing else would say that its address is wrong
    folder = Path(path).expanduser()
    return None if (folder / "data").exists() else str(folder)


def nothing_stored(settings: Settings) -> bool:
    """Whether there can be no saga yet, because the store was never created."""
    return not settings.runtime and no_store(settings) is not None


def not_found(saga_id: str, folder: str) -> SagaNotFound:
    """The error about a saga if there is no store at all."""
    from saga_engine.cli.words import say
    from saga_engine.errors import SagaNotFound

    return SagaNotFound(
        say("no-store", saga=saga_id, folder=folder),
        hint=say("no-store.hint"),
        saga_id=saga_id,
    )


@contextmanager
def silence_told(settings: Settings, patience_s: float | None = None) -> Iterator[asyncio.TimerHandle]:
    """Print a note if the store does not answer; cancel the yielded timer once it does. In a running loop."""
    timer = asyncio.get_running_loop().call_later(_SILENT_S, _tell, settings, patience_s or settings.patience_s)
    if settings.store.startswith(_EMBEDDED):
        timer.cancel()  # its server is started here, and that may take a moment
    try:
        yield timer
    finally:
        timer.cancel()


@asynccontextmanager
async def opened(settings: Settings, *, snapshot: bool = False) -> AsyncIterator[Store]:
    """The store as it is, sealed payloads and all; ``snapshot``: to read from. Reports a silent store."""
    from saga_engine.stores import open_store

    store = open_store(
        settings.store, durability=settings.durability, patience_s=settings.patience_s, snapshot=snapshot
    )
    try:
        with silence_told(settings):
            await store.open()
        yield store
    finally:
        await store.close()


@asynccontextmanager
async def reading_from(settings: Settings) -> AsyncIterator[Store]:
    """The store to read from, open; the caller has checked that there is one. Reports a silent store."""
    from saga_engine.api.sealing import sealed
    from saga_engine.cli.keyring import keyring_for

    async with opened(settings, snapshot=True) as store:
        yield await sealed(store, keyring_for(settings), reading=True)


@asynccontextmanager
async def writing_to(settings: Settings) -> AsyncIterator[Store]:
    """The store to write to, without a coordinator. Reports a silent store."""
    from saga_engine.api.sealing import sealed
    from saga_engine.cli.keyring import keyring_for

    async with opened(settings) as store:
        yield await sealed(store, keyring_for(settings))


@asynccontextmanager
async def looking(settings: Settings, saga_id: str, tools: ToolRegistry | None = None) -> AsyncIterator[Engine]:
    """The runtime that the settings name, for reading a saga. Raises ``SagaNotFound`` if there is no store."""
    if settings.runtime:
        from saga_engine.cli.temporal import sagas_there

        async with sagas_there(settings, tools) as there:
            yield there
        return
    async with looking_in_store(settings, saga_id, tools) as coordinator:
        yield coordinator


@asynccontextmanager
async def looking_in_store(
    settings: Settings, saga_id: str, tools: ToolRegistry | None = None
) -> AsyncIterator[Coordinator]:
    """A coordinator for reading a saga of the store. Raises ``SagaNotFound`` if there is no store, and creates none."""
    folder = no_store(settings)
    if folder is not None:
        raise not_found(saga_id, folder)
    async with looking_at_all(settings, tools) as coordinator:
        yield coordinator


@asynccontextmanager
async def looking_at_all(settings: Settings, tools: ToolRegistry | None = None) -> AsyncIterator[Coordinator]:
    """A coordinator for reading any saga; the caller has checked that there is a store."""
    from saga_engine.api import Coordinator

    async with reading_from(settings) as store, Coordinator.open(store, tools or (), settings=settings) as coordinator:
        yield coordinator


def _tell(settings: Settings, patience_s: float) -> None:
    from saga_engine.cli.output import note, shown
    from saga_engine.cli.words import say
    from saga_engine.stores.remote import without_password

    where = shown(without_password(settings.store))
    note(say("silent-store", store=where, n=f"{patience_s:g}"))
