"""What people and programs tell a saga that runs: a cancel, an answer, more steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from saga_engine.api.requests import amend_message, answer_message, cancel_message
from saga_engine.execution.aside import beside
from saga_engine.execution.result import SagaResult
from saga_engine.ports import Store
from saga_engine.tools.registry import ToolRegistry

if TYPE_CHECKING:
    from saga_engine.runtime.supervisor import Supervisor


class Answers:
    """The part of ``Coordinator`` for messages to a saga."""

    store: Store
    tools: ToolRegistry
    supervisor: Supervisor

    async def cancel(self, saga_id: str, *, by: str = "", note: str = "", wait: bool = True) -> SagaResult:
        """Compensate a saga. If a process drives it, that process acts; else this one does, to the end.

        Without ``wait`` the message is only posted, for a process that has no tools: the saga's owner acts on it, or a
        worker or the next resume. Cancelling it again changes nothing. Raises ``SagaNotFound`` or ``CancelRefused`` (it
        has ended, is being undone, or is past its pivot).
        """
        from saga_engine.runtime.messages import say

        return await say(self.store, self.supervisor, self.tools, saga_id, cancel_message(by, note), wait=wait)

    async def resolve(
        self,
        saga_id: str,
        step_id: int | str,
        decision: str,
        *,
        output: Any = None,
        by: str = "",
        note: str = "",
        expect: str = "",
        wait: bool = True,
    ) -> SagaResult:
        """Answer the open question about a step; the saga then continues, here unless another process drives it.

        ``decision``: one of the question's options. ``output`` goes with 'happened'. ``expect``: the ``mark`` that the
        question gives to the answer in ``outlooks``; the answer is refused if other effects follow from it by now. To
        repeat a call in doubt whose tool honours no key needs it. Without ``wait`` the answer is
        only posted, as in ``cancel``. The same answer again changes nothing; another one is refused, even before the
        owner has read the first. Raises ``SagaNotFound``, ``DecisionRefused``, ``ValueNotJson``.
        """
        from saga_engine.runtime.messages import say

        message = await beside(partial(answer_message, step_id, decision, output, by, note, expect), output)
        return await say(self.store, self.supervisor, self.tools, saga_id, message, wait=wait)

    async def amend(
        self, saga_id: str, steps: Sequence[Mapping[str, Any]], *, by: str = "", note: str = "", wait: bool = True
    ) -> SagaResult:
        """Add steps to a running saga; they are checked against it as it stands, and undone with the rest.

        ``steps`` are written as in a plan; one without ``depends_on`` follows the one before it, the first of them the
        last step of the plan. If a process drives the saga, that process adds them; else this one does. A tool that
        adds to its own saga must not ``wait`` for its end: the steps are then posted, and added after the call, unless
        the saga ends with it. Raises ``SagaNotFound``, ``AmendRefused``, ``PlanInvalid`` (its paths count the added
        steps from 0), ``ValueNotJson``.
        """
        from saga_engine.runtime.messages import check_added, deliver, send

        message = await beside(partial(amend_message, steps, by, note), steps)
        await check_added(self.store, self.tools, saga_id, message.steps)
        await self.supervisor.quota.add(message.steps)
        if wait:
            return await deliver(self.store, self.supervisor, saga_id, message)
        return await send(self.store, self.supervisor, saga_id, message)
