"""Converts the escalation hooks that a user passes into the form in which the engine calls them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial
from inspect import isawaitable, iscoroutinefunction

from saga_engine.ports import Escalation, EscalationHook, Question
from saga_engine.tools.threads import start_in_thread

Hook = EscalationHook | Callable[[Question], Awaitable[None] | None]
Hooks = Hook | Sequence[Hook] | Escalation


def escalation_of(given: Hooks | None, *, sealed: bool = False) -> Escalation:
    """Hooks, sync or async, in the form in which the engine calls them. None: a warning in the log for each question.

    ``sealed``: hooks get no payloads, unless an ``Escalation`` says that they do.
    """
    if given is None:
        from saga_engine.hooks.log import LogHook

        return Escalation([LogHook()], remind_s=0.0, further_after_s=0.0, payloads=not sealed)
    if not isinstance(given, Escalation):
        given = Escalation(given if isinstance(given, Sequence) else (given,))
    hooks, further = [_as_hook(hook) for hook in given.hooks], [_as_hook(hook) for hook in given.further]
    payloads = not sealed if given.payloads is None else given.payloads
    return replace(given, hooks=hooks, further=further, payloads=payloads)


def _as_hook(hook: Hook) -> EscalationHook:
    if iscoroutinefunction(hook) or iscoroutinefunction(getattr(hook, "__call__", None)):  # noqa: B004 - is it async?
        return hook  # type: ignore[return-value]

    async def call(question: Question) -> None:
        # In its own thread: it may block, which is not known beforehand.
        ended = await start_in_thread(partial(hook, question))
        if ended.error is not None:
            raise _failure(ended.error)
        if isawaitable(ended.value):
            await ended.value

    return call


def _failure(error: BaseException) -> Exception:
    """The exception that a hook raised in its thread; ``sys.exit`` there ends no process, it fails the hook."""
    return error if isinstance(error, Exception) else RuntimeError(f"{type(error).__name__}: {error}"[:500])
