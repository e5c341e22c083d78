"""Looking at a store without changing anything: no folder is made, and silence is told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from saga_engine.api import Coordinator
    from saga_engine.errors import SagaNotFound
    from saga_engine.settings import Settings

_EMBEDDED: Final = "embedded://"
#: A store that does not answer is told after so long; it is asked on for as long as ``patience_s`` says.
_SILENT_S: Final = 1.0


def no_store(settings: Settings) -> str | None:
    """The folder where the embedded store would be, if there is none; None: there is a store, or it is a server."""
    if not settings.store.startswith(_EMBEDDED):
        return None
    folder = Path(settings.store.removeprefix(_EMBEDDED)).expanduser()
    return None if folder.exists() else str(folder)


def not_found(saga_id: str, folder: str) -> SagaNotFound:
    """What is said of a saga where there is no store at all."""
    from saga_engine.errors import SagaNotFound

    return SagaNotFound(
        f"there is no saga {saga_id}: there is no store in {folder} yet",
        hint="`saga submit` makes one; another store is named by --store, SAGA_STORE or saga.toml",
        saga_id=saga_id,
    )


@contextmanager
def silence_told(settings: Settings) -> Iterator[asyncio.TimerHandle]:
    """Say it when the store does not answer; cancel what is given out when it does. In a running loop."""
    timer = asyncio.get_running_loop().call_later(_SILENT_S, _tell, settings)
    if settings.store.startswith(_EMBEDDED):
        timer.cancel()  # its server is begun here, and that may take a moment
    try:
        yield timer
    finally:
        timer.cancel()


@asynccontextmanager
async def looking(settings: Settings, saga_id: str) -> AsyncIterator[Coordinator]:
    """A coordinator to look at a saga with. Raises ``SagaNotFound`` where there is no store, and makes none."""
    from saga_engine.api import Coordinator

    folder = no_store(settings)
    if folder is not None:
        raise not_found(saga_id, folder)
    with silence_told(settings) as timer:
        async with Coordinator.open(
            settings.store, durability=settings.durability, patience_s=settings.patience_s
        ) as coordinator:
            timer.cancel()
            yield coordinator


def _tell(settings: Settings) -> None:
    from saga_engine.cli.output import note, shown
    from saga_engine.stores.remote import without_password

    where = shown(without_password(settings.store))
    note(f"the store {where} does not answer yet; asking on for up to {settings.patience_s:g} s (patience_s)")
