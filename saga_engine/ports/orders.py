"""Builds tool calls and questions from the state of a saga, and removes secrets from outcomes.

Every driver of a saga, in the built-in runtime or in Temporal, builds its calls from the same facts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any, Final, NamedTuple, TypeVar, cast

from saga_engine.core.effects import FORWARD, Alert, CallTool, ErrorInfo, NotDone, Outcome, Probe
from saga_engine.core.masking import mask_of, tools_of_step
from saga_engine.core.records import AnyRecord, QuestionResolved
from saga_engine.core.report import asked_params, asked_tool, error_dict, proposed_steps
from saga_engine.core.scrubbing import scrubber
from saga_engine.core.state import State, StateScope
from saga_engine.errors import BindingUnresolved
from saga_engine.plan.compiled import Params
from saga_engine.plan.tool_spec import ToolSpec
from saga_engine.plan.values import canonical, json_path
from saga_engine.ports.escalation import Escalation, EscalationHook, Question
from saga_engine.ports.foreign import name_of, runs_foreign_code
from saga_engine.ports.tools import Call

_T = TypeVar("_T")


def call_of(
    state: State,
    effect: CallTool | Probe,
    direction: Any,
    timeout_s: float,
    permit: Callable[[], None] | None,
    *,
    waits: Callable[[Call, bool], Awaitable[None] | None] | None = None,
) -> Call:
    """Everything that a tool and its guards may know of a call; ``direction`` is ``probe`` for a probe."""
    index, way = effect.step, effect.direction
    plan = state.plan
    step, made = plan.steps[index], state.steps[index].call(way)
    backward = way != FORWARD
    return Call(
        state.saga_id,
        step.key,
        direction,
        effect.attempt,
        state.key(index, way),
        state.epoch,
        None if plan.deadline_s is None or state.backward or state.past_pivot else state.deadline_ms,
        timeout_s,
        None,
        state.approval(index, way) if made.approval else "",
        () if step.resource is None else _resources(state, step.resource),
        (state.acting(index).tool, state.key(index, FORWARD)) if backward else None,
        permit,
        backward or step.compensates is not None,
        _key_until(state, effect, timeout_s) if made.doubtful else None,
        _chosen(state, index) if backward else step.compensates is not None,
        waits,
    )


class Lesson(NamedTuple):
    """What identical calls of other sagas are to get: the tool, its params with markers for secrets, the output."""

    tool: str
    params: dict[str, Any]
    output: Any
    call: Call


def lesson_of(state: State, record: AnyRecord) -> Lesson | None:
    """What a person's answer teaches the memory of calls; None: nothing. Secrets count by name there."""
    if type(record) is not QuestionResolved or record.decision != "happened":
        return None
    index = state.plan.by_key[record.step]
    serving = state.acting(index)
    if state.steps[index].via != "decision" or serving.spec is None or not serving.spec.remembers:
        return None
    effect = CallTool(index, FORWARD, state.steps[index].forward.attempt)
    call = call_of(state, effect, FORWARD, serving.timeout_s, None)
    return Lesson(serving.tool, serving.params.resolve(StateScope(state)), record.output, call)


def _chosen(state: State, index: int) -> bool:
    """Whether an undo differs from the registered undo of the step: another tool, or other params."""
    rollback = state.rollback(index)
    usual = rollback.usual
    if usual is None or usual is rollback.params:
        return usual is None
    scope = StateScope(state)
    try:
        return canonical(usual.resolve(scope)) != canonical(rollback.params.resolve(scope))
    except BindingUnresolved:
        return True  # It is unknown whether it is the same call.


def _key_until(state: State, effect: CallTool | Probe, timeout_s: float) -> int | None:
    """The time until which a repeat of a call in doubt arrives while the remote side remembers its key."""
    call = state.steps[effect.step].call(effect.direction)
    if not call.doubtful or call.insisted:
        return None
    serving = state.acting(effect.step) if effect.direction == FORWARD else state.rollback(effect.step)
    spec = serving.spec
    if spec is None or not spec.keyed or spec.key_ttl_s is None:
        return None
    return call.first_at + round((spec.key_ttl_s - timeout_s) * 1000)


def _resources(state: State, template: Params) -> tuple[str, ...]:
    """The key that the plan names. If its bindings have no value (an undo of a step in doubt) there is none."""
    try:
        value = template.resolve(StateScope(state))["resource"]
    except BindingUnresolved:
        return ()
    return (value if isinstance(value, str) else canonical(value).decode(),)


# --- people ----------------------------------------------------------------------------------------------------------


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
        params=asked_params(state, told.step, direction) if told.kind == "approval" else None,
        expires_ms=asked.expires if asked else None,
        round=effect.round,
        asked_ms=asked.at if asked else None,
        steps=proposed_steps(state, told.step) if told.kind == "compensation" else None,
    )
    if mask is None:
        return question
    return replace(
        question,
        error=mask.said(question.error),
        goal=mask.value(question.goal),
        params=None if question.params is None else mask.params(question.params, *tools_of_step(compiled)),
        steps=None if question.steps is None else mask.planned(list(question.steps)),
    )


async def tell(escalation: Escalation, question: Question, now_ms: int) -> ErrorInfo | None:
    """Notify all hooks that are due at ``now_ms`` (Unix ms), concurrently; None if all succeeded."""
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


def misfit(spec: ToolSpec | None, params: Mapping[str, Any]) -> NotDone | None:
    """Why a call is not made whose params, with the secrets in them, do not fit its tool; None if they fit.

    It does not contain the values: the messages of a schema check repeat them.
    """
    problems = () if spec is None else spec.check_params(params)
    if not problems:
        return None
    where = json_path(problems[0][0])
    message = f"a param does not fit the schema of the tool once the secrets are filled in (at {where})"
    return NotDone(ErrorInfo("params_invalid", message, retryable=False), retryable=False)


# --- secrets never reach the journal, not even as an echo ------------------------------------------------------------


def scrub(outcome: Outcome, secrets: Mapping[str, str]) -> Outcome:
    """The outcome with a marker in place of each value of ``secrets`` (values by name), in every spelling."""
    return scrubber(secrets).outcome(outcome) if secrets else outcome
