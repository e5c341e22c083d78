"""Events from outside, on a coordinator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec

from saga_engine.api.requests import submission_of
from saga_engine.ports import DueEvent, ListedEvent, Store
from saga_engine.runtime.events import EventReceipt, Events
from saga_engine.runtime.supervisor import Supervisor

if TYPE_CHECKING:
    from saga_engine.core.late_events import LatePlan
    from saga_engine.core.submission import Submission
    from saga_engine.execution.result import Handle
    from saga_engine.plan.operator_limits import Limits
    from saga_engine.tools.registry import ToolRegistry

#: By this tag the sagas are found that handle events which came too late.
LATE_TAG: Final = "late-event"


class EventMethods:
    """The part of ``Coordinator`` that accepts events for steps that wait."""

    store: Store
    supervisor: Supervisor

    tools: ToolRegistry
    limits: Limits

    if TYPE_CHECKING:

        async def _begin_submitted(self, submission: Submission, *, detach: bool, counted: bool = True) -> Handle: ...

    async def send_event(
        self, name: str, key: str | int, payload: Any = None, *, event_id: str | None = None, detach: bool = False
    ) -> EventReceipt:
        """Bring an event to the saga whose ``wait`` step has this name and key; what nothing waits for is kept.

        It is durable when this returns. ``event_id``: the sender's own id; an event that is sent again under it counts
        once. No tools are needed. With ``detach`` a worker drives the saga of an ``on_late``. Raises
        ``EventRefused``, ``ValueNotJson``, ``StoreUnavailable``.
        """
        return await self._events(detach=detach).send(name, key, payload, event_id)

    async def answer_wait(
        self, saga_id: str, step_id: int | str, payload: Any = None, *, entry: int | None = None, detach: bool = False
    ) -> str:
        """Bring an event to one step that waits, whatever others wait for the same name and key.

        ``entry``: of a wait for several events which of them, from 0. Each has one answer, which is durable when this
        returns: the same again changes nothing, another one is refused. What its wait does not take is given to its
        ``on_late``, once: the id of the saga that handles it is returned if the wait is over, else an empty text. A
        worker drives that saga with ``detach``, or if its tool is not known here. Raises ``SagaNotFound``,
        ``EventRefused`` and ``ValueNotJson``.
        """
        return await self._events(detach=detach).answer(saga_id, str(step_id), payload, entry)

    async def require_waiting(self, saga_id: str, step_id: int | str, *, entry: int | None = None) -> None:
        """Raises ``EventRefused`` unless the step waits for the event now, and ``SagaNotFound``."""
        await self._events().require_waiting(saga_id, str(step_id), entry)

    async def events(
        self, name: str | None = None, key: str | int | None = None, *, limit: int = 100
    ) -> Sequence[ListedEvent]:
        """Events that arrived in the last days, and what became of each; the last one first."""
        return await self._events().listed(name, key, limit)

    def _events(self, *, detach: bool = False) -> Events:
        return Events(self.store, self.supervisor, partial(self._begin_late, detach=detach))

    async def _bring_event(self, due: DueEvent, queued: bool) -> None:
        await self._events(detach=queued).bring(due)

    async def _begin_late(self, late: LatePlan, saga_id: str, *, detach: bool = False) -> None:
        """Begin the saga that handles an event which came too late. Raises as ``submit``."""
        made = submission_of(late.plan, saga_id, None, self.tools, (LATE_TAG,), limits=self.limits)
        sensitive = {
            tool: sorted({*made.compiled.sensitive.get(tool, ()), *names}) for tool, names in late.sensitive.items()
        }
        compiled = replace(made.compiled, sensitive={**made.compiled.sensitive, **sensitive})
        submission = msgspec.structs.replace(made, compiled=compiled)
        await (await self._begin_submitted(submission, detach=detach, counted=False)).journalled()
