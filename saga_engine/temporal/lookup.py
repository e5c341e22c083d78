"""Looks up sagas for the guards of a worker: in Temporal and in the store."""

from __future__ import annotations

from typing import TYPE_CHECKING

from saga_engine.errors import SagaNotFound

if TYPE_CHECKING:
    from saga_engine.ports import SagaLookup
    from saga_engine.temporal.client import TemporalSagas


class SagasOfBoth:
    """A ``SagaLookup`` over the sagas of a store and those of a Temporal namespace."""

    def __init__(self, stored: SagaLookup, sagas: TemporalSagas) -> None:
        self._stored = stored
        self._sagas = sagas

    async def saga_status(self, saga_id: str) -> str | None:
        """The status of a saga of the store or of Temporal; None if there is none."""
        status = await self._stored.saga_status(saga_id)
        if status is not None:
            return status
        try:
            return (await self._sagas.standing(saga_id)).status
        except SagaNotFound:
            return None

    async def saga_driven(self, saga_id: str) -> bool:
        """Whether a saga is running: in Temporal it is as long as its workflow is open."""
        if await self._stored.saga_driven(saga_id):
            return True
        try:
            return not (await self._sagas.standing(saga_id)).closed
        except SagaNotFound:
            return False
