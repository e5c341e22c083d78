"""What a user may give as those who are told of open questions."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from inspect import isawaitable

from saga_engine.ports import Escalation, EscalationHook, Question

Hook = EscalationHook | Callable[[Question], Awaitable[None] | None]


def escalation_of(given: Hook | Sequence[Hook] | Escalation) -> Escalation:
    """Hooks, sync or async, in the form in which they are called."""
    if isinstance(given, Escalation):
        hooks, further = [_as_hook(hook) for hook in given.hooks], [_as_hook(hook) for hook in given.further]
        return replace(given, hooks=hooks, further=further)
    listed = given if isinstance(given, Sequence) else (given,)
    return Escalation(hooks=[_as_hook(hook) for hook in listed])


def _as_hook(hook: Hook) -> EscalationHook:
    async def call(question: Question) -> None:
        result = hook(question)
        if isawaitable(result):
            await result

    return call
