"""A simulated customer: sends the events for which sagas wait, early, twice and late, and has completed sagas undone.

It is a process that is killed and starts again from the beginning: an event is sent again under its id, and the undo of
a saga that is undone already is the same undo. What it does follows from the run's seed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final, NamedTuple

from chaos import plans
from chaos.child import play, together
from saga_engine import Coordinator, SagaError
from saga_engine.core import transitions as t
from saga_engine.errors import SagaNotFound, UndoRefused

_log = logging.getLogger("chaos.customer")
_AGAIN_S: Final = 0.2
#: The sagas that it waits for may be many.
_LOOK_S: Final = 0.5
_AT_ONCE: Final = 32


class Duties(NamedTuple):
    """The customer's configuration."""

    url: str
    world: str
    log: str
    seed: int
    sagas: int
    lease_s: float


def main(duties: Duties) -> None:
    """The process; it ends when it has sent every event and every undo has ended."""
    play(duties, lambda coordinator: Errands(coordinator, duties.seed, range(duties.sagas)).run())


class Errands:
    """All that a customer does about some sagas of a seed."""

    def __init__(self, coordinator: Coordinator, seed: int, numbers: Iterable[int]) -> None:
        self._coordinator = coordinator
        self._seed = seed
        self._left = iter(numbers)

    async def run(self) -> None:
        """Do it, some at a time."""
        await together(*(self._one_after_another() for _ in range(_AT_ONCE)))

    async def _one_after_another(self) -> None:
        for number in self._left:
            saga_id, errand = plans.saga_id(self._seed, number), plans.errand(self._seed, number)
            for sending in errand.events:
                await self._send(saga_id, sending)
            if errand.undo:
                await self._undo(saga_id, accept=errand.accept)

    async def _send(self, saga_id: str, sending: plans.Sending) -> None:
        if sending.when != "early":
            wanted = t.SAGA_FINAL if sending.when == "late" else {*t.SAGA_FINAL, "WAITING"}
            await self._until(saga_id, sending.step, wanted)
        await asyncio.sleep(sending.after_s)
        for event in sending.ids:
            await self._surely(
                lambda event=event: self._coordinator.send_event(plans.EVENT, saga_id, {"id": event}, event_id=event)
            )

    async def _until(self, saga_id: str, step_id: str, wanted: Any) -> None:
        """Wait until the saga has ended, or its step waits."""
        while True:
            try:
                body = (await self._coordinator.show(saga_id)).body
                status = next((str(step["status"]) for step in body["steps"] if step["step_id"] == step_id), "")
                if body["status"] in wanted or status in wanted:
                    return
            except SagaError as error:  # it is not submitted yet, or the store is away
                _log.debug("saga %s: not now: %s", saga_id, error)
            await asyncio.sleep(_LOOK_S)

    async def _undo(self, saga_id: str, *, accept: bool) -> None:
        await self._until(saga_id, "", t.SAGA_FINAL)
        try:
            await self._surely(lambda: self._coordinator.undo(saga_id, accept=accept, by="eve"))
        except UndoRefused as error:  # it did not complete, or has what cannot be undone
            _log.info("saga %s: %s", saga_id, error)

    async def _surely(self, act: Callable[[], Awaitable[Any]]) -> None:
        while True:
            try:
                await act()
                return
            except (UndoRefused, SagaNotFound):
                raise
            except SagaError as error:
                _log.info("not now: %s: %s", error.code, error)
                await asyncio.sleep(_AGAIN_S)
