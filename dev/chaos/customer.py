"""A simulated customer: sends the events for which sagas wait, early, twice and late, and has completed sagas undone.

Where two steps wait for the same event, it sends more of them as long as one of these steps waits and nothing is there
for it. After the end of a saga that waited for several events, it sends again what the saga has not settled.

It is a process that is killed and starts again from the beginning: an event is sent again under its id, and the undo of
a saga that is undone already is the same undo. What it does follows from the run's seed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple, TypeVar

from dev.chaos import plans
from dev.chaos.child import play, together
from saga_engine import Coordinator, SagaError
from saga_engine.core import transitions as t
from saga_engine.errors import SagaNotFound, UndoRefused
from saga_engine.ports import Channel
from saga_engine.runtime.events import EventReceipt

_log = logging.getLogger("dev.chaos.customer")
_AGAIN_S: Final = 0.2
#: The sagas that it waits for may be many.
_LOOK_S: Final = 0.5
_AT_ONCE: Final = 32
_T = TypeVar("_T")


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
            if errand.provides:
                await self._provide(saga_id)
            if errand.settles:
                await self._settle(saga_id, plans.plan(self._seed, number))
            if errand.undo:
                await self._undo(saga_id, accept=errand.accept)

    async def _send(self, saga_id: str, sending: plans.Sending) -> None:
        if sending.when != "early":
            await self._until(saga_id, "" if sending.when == "late" else sending.step)
        await asyncio.sleep(sending.after_s)
        name, end = sending.channel
        for event in sending.ids:
            await self._surely(lambda event=event: self._event(Channel(name, f"{saga_id}{end}"), event))

    def _event(self, channel: Channel, event_id: str) -> Awaitable[EventReceipt]:
        return self._coordinator.send_event(*channel, plans.payload(channel, event_id), event_id=event_id)

    async def _until(self, saga_id: str, step_id: str = "") -> None:
        """Wait until the saga has ended, or the turn of its step has come: its wait may be over already."""
        while True:
            body = await self._shown(saga_id)
            turn = any(step["step_id"] == step_id and step["status"] != t.PENDING for step in body.get("steps", ()))
            if turn or body.get("status") in t.SAGA_FINAL:
                return
            await asyncio.sleep(_LOOK_S)

    async def _shown(self, saga_id: str) -> Mapping[str, Any]:
        try:
            return (await self._coordinator.show(saga_id)).body
        except SagaError as error:  # it is not submitted yet, or the store is away
            _log.debug("saga %s: not now: %s", saga_id, error)
            return {}

    async def _provide(self, saga_id: str) -> None:
        """Until the saga ends, send what its steps wait for, if another step has consumed what was sent."""
        while True:
            body = await self._shown(saga_id)
            if body.get("status") in t.SAGA_FINAL:
                return
            for step in body.get("steps", ()):
                about = (step.get("waits") or {}).get("about") or {}
                missing = about[word] if (word := plans.word_of(about)) else [about] * ("event" in about)
                for each in missing:
                    if each not in step.get("came", ()):
                        channel = Channel(each["event"], each["key"])
                        await self._surely(lambda channel=channel, step=step: self._more(channel, step["step_id"]))
            await asyncio.sleep(_LOOK_S)

    async def _more(self, channel: Channel, step_id: str) -> None:
        """One event more for a step, unless there is one that the store has to bring to it."""
        events = await self._coordinator.events(*channel)
        held = [each for each in events if each.disposition == "held" and each.waiter and each.waiter.step == step_id]
        if not held and not any(each.disposition in ("kept", "late") for each in events):
            await self._event(channel, f"{step_id}-more-{len(events)}")

    async def _settle(self, saga_id: str, plan: plans.Plan) -> None:
        """Send again what the ended saga has not settled: its owner may have died before it said what became of it."""
        await self._until(saga_id)
        for channel in plans.channels(plan, saga_id):
            for event in await self._surely(lambda channel=channel: self._coordinator.events(*channel)):
                while event.disposition in ("held", "late"):
                    receipt = await self._surely(lambda channel=channel, event=event: self._event(channel, event.id))
                    if receipt.disposition == "handled" or not (receipt.disposition == "held" or receipt.late_saga):
                        break
                    await asyncio.sleep(_AGAIN_S)

    async def _undo(self, saga_id: str, *, accept: bool) -> None:
        await self._until(saga_id)
        try:
            await self._surely(lambda: self._coordinator.undo(saga_id, accept=accept, by="eve"))
        except UndoRefused as error:  # it did not complete, or has what cannot be undone
            _log.info("saga %s: %s", saga_id, error)

    async def _surely(self, act: Callable[[], Awaitable[_T]]) -> _T:
        while True:
            try:
                return await act()
            except (UndoRefused, SagaNotFound):
                raise
            except SagaError as error:
                _log.info("not now: %s: %s", error.code, error)
                await asyncio.sleep(_AGAIN_S)
