"""A server inside this process that loses everything at its end: for tests and first steps.

It runs the same scripts as a real one (fakeredis with its Lua), so the store above it is the same store.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import fakeredis

from saga_engine.ports import StorePromise
from saga_engine.stores.connection import Connector

if TYPE_CHECKING:
    from collections.abc import Sequence

    from saga_engine.stores.connection import Argument

#: Named servers, shared by all stores of this process.
_SHARED: Final[dict[str, fakeredis.FakeServer]] = {}


class MemoryConnection:
    """A connection to the fake server."""

    def __init__(self, client: fakeredis.FakeAsyncRedis) -> None:
        self._client = client

    async def call(self, args: Sequence[Argument]) -> Any:
        """Run one command."""
        return await self._client.execute_command(*args)  # type: ignore[no-untyped-call]

    async def call_many(self, commands: Sequence[Sequence[Argument]]) -> list[Any]:
        """Run one after the other. Errors are not replies here: no command that fails on purpose is sent to a fake."""
        return [await self.call(args) for args in commands]

    async def close(self) -> None:
        """Give the fake connection back."""
        await self._client.aclose()


class MemoryConnector(Connector):
    """Connections to ``memory://`` (this store's own) and ``memory://NAME`` (shared by name)."""

    hint = "this should not happen: the server is part of this process"

    def __init__(self, name: str) -> None:
        self.url = f"memory://{name}"
        self._server = _SHARED.setdefault(name, fakeredis.FakeServer()) if name else fakeredis.FakeServer()

    async def connect(self) -> MemoryConnection:
        """Open a connection."""
        return MemoryConnection(fakeredis.FakeAsyncRedis(server=self._server))

    def promise(self) -> StorePromise:
        """Nothing outlives the process."""
        text = "everything is lost when this process ends"
        return StorePromise(
            self.url,
            f"fakeredis {fakeredis.__version__}",
            "relaxed",
            (("warning", text, "for sagas that matter use embedded://.saga or redis://…"),),
        )
