"""Events from outside, on a coordinator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from saga_engine.ports import ListedEvent, Store
from saga_engine.runtime.events import EventReceipt, Events
from saga_engine.runtime.supervisor import Supervisor


class EventMethods:
    """The part of ``Coordinator`` that accepts events for steps that wait."""

    store: Store
    supervisor: Supervisor

    async def send_event(
        self, name: str, key: str | int, payload: Any = None, *, event_id: str | None = None
    ) -> EventReceipt:
        """Bring an event to the saga whose ``wait`` step has this name and key; what nothing waits for is kept.

        It is durable when this returns. ``event_id``: the sender's own id; an event that is sent again under it counts
        once. No tools are needed. Raises ``EventRefused``, ``ValueNotJson``, ``StoreUnavailable``.
        """
        return await Events(self.store, self.supervisor).send(name, key, payload, event_id)

    async def answer_wait(self, saga_id: str, step_id: int | str, payload: Any = None) -> None:
        """Bring an event to one step that waits, whatever others wait for the same name and key.

        The wait has one end: who calls this twice changes nothing. Raises ``SagaNotFound``, ``EventRefused`` and
        ``ValueNotJson``.
        """
        await Events(self.store, self.supervisor).answer(saga_id, str(step_id), payload)

    async def require_waiting(self, saga_id: str, step_id: int | str) -> None:
        """Raises ``EventRefused`` unless the step waits for an event now, and ``SagaNotFound``."""
        await Events(self.store, self.supervisor).waiting(saga_id, str(step_id))

    async def events(
        self, name: str | None = None, key: str | int | None = None, *, limit: int = 100
    ) -> Sequence[ListedEvent]:
        """Events that arrived in the last days, and what became of each; the last one first."""
        return await Events(self.store, self.supervisor).listed(name, key, limit)
