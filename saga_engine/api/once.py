"""Messages to sagas that are posted once, however often their sender asks: for faces whose answers can be lost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from saga_engine.api.requests import amend_message, answer_message, cancel_message
from saga_engine.core.messages import Message
from saga_engine.execution.aside import beside
from saga_engine.runtime.messages import check_added, received, say, send

if TYPE_CHECKING:
    from saga_engine.api.coordinator import Coordinator
    from saga_engine.execution.result import SagaResult


async def cancel_once(coordinator: Coordinator, saga_id: str, key: str, *, by: str, note: str) -> SagaResult:
    """Post a cancel, as ``Coordinator.cancel`` with ``wait=False`` does; of equal keys only the first."""
    return await _post(coordinator, saga_id, key, cancel_message(by, note))


async def resolve_once(
    coordinator: Coordinator,
    saga_id: str,
    key: str,
    *,
    step: str,
    decision: str,
    output: Any,
    by: str,
    note: str,
    question: str = "",
    expect: str = "",
) -> SagaResult:
    """Post an answer: asked again under its key, it answers no later question about the step.

    ``question``: the id of the only question that it answers; empty: whatever is asked about the step.
    ``expect``: as in ``Coordinator.resolve``.
    """
    message = await beside(partial(answer_message, step, decision, output, by, note, expect), output)
    message = msgspec.structs.replace(message, question=question)
    return await _post(coordinator, saga_id, key, message)


async def amend_once(
    coordinator: Coordinator, saga_id: str, key: str, steps: Sequence[Mapping[str, Any]], *, by: str, note: str
) -> SagaResult:
    """Post steps: asked again under its key, it adds none."""
    return await _post(coordinator, saga_id, key, await beside(partial(amend_message, steps, by, note), steps))


async def _post(coordinator: Coordinator, saga_id: str, key: str, message: Message) -> SagaResult:
    """The store posts a message whose id is a key only once (``post.lua``), so that a race changes nothing."""
    store, supervisor, tools = coordinator.store, coordinator.supervisor, coordinator.tools
    keyed = msgspec.structs.replace(message, id=key)
    found = await received(store, saga_id, keyed)
    if found is not None:
        return found
    if keyed.kind == "amend":
        await check_added(store, tools, saga_id, keyed.steps)
        await supervisor.quota.add(keyed.steps)
        return await send(store, supervisor, saga_id, keyed)
    return await say(store, supervisor, tools, saga_id, keyed, wait=False)
