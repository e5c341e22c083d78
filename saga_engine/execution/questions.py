"""Builds the questions to operators from the state of a saga, and calls the hooks that notify them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping
from dataclasses import replace
from typing import Any, Final, TypeVar, cast

from saga_engine.core.effects import FORWARD, Alert, ErrorInfo
from saga_engine.core.keys import identity_of
from saga_engine.core.masking import mask_of, masked_outlooks, tools_of_step
from saga_engine.core.outlooks import outlooks_of
from saga_engine.core.question_view import (
    asked_params,
    asked_tool,
    error_dict,
    keyless_since,
    proposed_steps,
    shown_outlooks,
    undo_call_of,
)
from saga_engine.core.state import State
from saga_engine.ports.escalation import Escalation, EscalationHook, Question
from saga_engine.ports.foreign import name_of, runs_foreign_code

_T = TypeVar("_T")


def question_of(state: State, effect: Alert) -> Question | None:
    """The notification of an open question, or a notice that asks nothing; None if it has been answered since."""
    name = effect.question
    asked = state.questions.get(name)
    told = asked or state.notices.get(name)
    if told is None:
        return None
    compiled = state.plan.steps[told.step]
    mask = mask_of(state)
    direction = asked.direction if asked else FORWARD
    question = Question(
        saga_id=state.saga_id,
        question_id=name,
        step_id=compiled.step_id,
        step_name=compiled.name,
        tool=asked_tool(state, told.step, direction),
        direction=direction,
        kind=told.kind,
        options=asked.options if asked else (),
        error=error_dict(told.error),
        goal=state.plan.goal,
        params=None if asked is None or not asked.of_call else asked_params(state, told.step, direction),
        expires_ms=asked.expires if asked else None,
        round=effect.round,
        asked_ms=asked.at if asked else None,
        steps=proposed_steps(state, told.step) if told.kind == "compensation" else None,
        text=asked.text if asked else "",
        schema=asked.schema if asked else None,
        to=asked.to if asked else "",
        undo_call=undo_call_of(state, told.step, direction),
        identity=identity_of(state.saga_id, state.seed),
        called_ms=None if asked is None else keyless_since(state, asked),
        outlooks={} if asked is None else shown_outlooks(state, outlooks_of(state, asked)),
    )
    if mask is None:
        return question
    return replace(
        question,
        step_name=mask.value(question.step_name),
        error=mask.said(question.error),
        text=mask.value(question.text),
        to=mask.value(question.to),
        schema=mask.value(question.schema),
        options=tuple(mask.value(list(question.options))) if question.kind == "ask" else question.options,
        goal=mask.value(question.goal),
        params=None if question.params is None else mask.params(question.params, *tools_of_step(compiled)),
        steps=None if question.steps is None else mask.planned(list(question.steps)),
        outlooks=masked_outlooks(mask, question.outlooks, state.plan.steps),
    )


async def tell(escalation: Escalation, question: Question, now_ms: int) -> ErrorInfo | None:
    """Notify all hooks that are due at ``now_ms`` (Unix ms), concurrently; None if all succeeded."""
    if escalation.payloads is False:
        question = question.outline()  # of a sealed store
    hooks = [*escalation.hooks]
    further_ms = escalation.further_after_s * 1000
    if further_ms and question.asked_ms is not None and now_ms - question.asked_ms >= further_ms:
        hooks += escalation.further
    called = cast("list[EscalationHook]", hooks)  # the sync ones have been made async
    results = await asyncio.gather(*(_told(hook, question, escalation.timeout_s) for hook in called))
    # A hook is user code: its failure is recorded, and the notification is repeated.
    errors = [error for error in results if error]
    return ErrorInfo("alert_failed", "; ".join(errors)[:1000]) if errors else None


async def _told(hook: EscalationHook, question: Question, limit_s: float) -> str:
    """Why a hook failed; empty if it did not."""
    try:
        async with asyncio.timeout(limit_s):
            await abandonable(_called(hook, question))
    except TimeoutError as error:
        return f"TimeoutError: {str(error) or f'not within {limit_s:g} s'}"[:500]
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        return f"CancelledError: {error}"[:500]  # the hook's own
    except Exception as error:  # noqa: BLE001 - whatever it raises means that it did not tell
        return f"{type(error).__name__}: {error}"[:500]
    return ""


def _words_of_hook(local: Mapping[str, Any]) -> str:
    return f"the escalation hook {name_of(local['hook'])} (saga {local['question'].saga_id})"


@runs_foreign_code(_words_of_hook)
async def _called(hook: EscalationHook, question: Question) -> None:
    await hook(question)


async def abandonable(work: Awaitable[_T]) -> _T:
    """The result of user code. A caller that cancels this does not wait, whatever ``work`` does about it."""
    task = asyncio.ensure_future(work)
    try:
        await asyncio.wait([task])
    except asyncio.CancelledError:
        task.cancel()
        if not task.done():
            _ABANDONED.add(task)
            task.add_done_callback(_forget)
        raise
    return task.result()


def _forget(task: asyncio.Future[Any]) -> None:
    """An abandoned task has ended; its result is not used."""
    _ABANDONED.discard(task)
    if not task.cancelled():
        task.exception()


#: Abandoned tasks; kept from the garbage collector until they end.
_ABANDONED: Final[set[asyncio.Future[Any]]] = set()
