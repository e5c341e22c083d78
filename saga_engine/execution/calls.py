"""Builds tool calls from the state of a saga, and removes secrets from outcomes.

Every driver of a saga, in the built-in runtime or in Temporal, builds its calls from the same facts.
"""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple

from saga_engine.core.effects import FORWARD, CallTool, ErrorInfo, NotDone, Outcome, Probe
from saga_engine.core.records import AnyRecord, QuestionResolved
from saga_engine.core.scrubbing import scrubber
from saga_engine.core.state import State, StateScope
from saga_engine.core.state_values import Made
from saga_engine.core.states import RUNNING, SUCCEEDED
from saga_engine.errors import BindingUnresolved
from saga_engine.language.errors import said
from saga_engine.plan.compiled import Params
from saga_engine.plan.tool_spec import ToolSpec
from saga_engine.plan.values import canonical, json_path
from saga_engine.ports.tools import Call, Standing

#: Kinds of steps whose effects stay.
_STAYS: Final = frozenset({"pivot", "retriable", "irreversible"})


def call_of(
    state: State,
    effect: CallTool | Probe,
    direction: Any,
    timeout_s: float,
    permit: Callable[[], None] | None,
    *,
    waits: Callable[[Call, bool], Awaitable[Outcome | None] | None] | None = None,
    wanted: Callable[[], bool] | None = None,
) -> Call:
    """All facts about a call for a tool and its guards; ``direction`` is ``probe`` for a probe."""
    index, way = effect.step, effect.direction
    plan = state.plan
    step, at, backward = plan.steps[index], state.steps[index], way != FORWARD
    made = (at.undo or at.call(way)) if backward else at.forward
    undone = index if backward else at.undoes
    return Call(
        state.saga_id,
        step.key,
        direction,
        effect.attempt,
        state.key(index, way),
        state.epoch,
        None if plan.deadline_s is None or _unbound(state) else state.deadline_ms,
        timeout_s,
        None,
        state.approval(index, way) if made.approval else "",
        () if step.resource is None else _resources(state, step.resource),
        (state.acting(undone).tool, state.key(undone, FORWARD)) if undone >= 0 else None,
        permit,
        backward or step.compensates is not None,
        _key_until(state, effect, timeout_s) if made.doubt else None,
        _chosen(state, index) if backward else step.compensates is not None,
        waits,
        wanted,
        guard_wait_s=plan.guard_wait_s,
        suspect=state.in_flight.get((index, way)) == "intended",
        budget=functools.partial(_budget, state, index),
        standing=functools.partial(_standing, state, index),
    )


def _standing(state: State, index: int) -> Standing:
    """What a guard may need to know of the saga of a call."""
    parent = "" if state.parent is None else state.parent.saga
    turning = functools.partial(may_turn, state, index)
    return Standing(state.started_at, parent, state.undo_of, state.turns, turning)


def may_turn(state: State, index: int = -1) -> bool:
    """Whether a saga can be undone whole, instead of making the call of a step."""
    if _unbound(state):
        return False
    for step, at in zip(state.plan.steps, state.steps, strict=True):
        if at.forward.doubt or (at.undo is not None and at.undo.doubt):
            return False
        if step.kind in _STAYS and (at.status == SUCCEEDED or (at.status == RUNNING and step.index != index)):
            return False
    return True


def _budget(state: State, index: int) -> Mapping[str, float] | None:
    """How much the saga's calls may cost together; None: no budget may refuse this one."""
    step = state.plan.steps[index]
    free = _unbound(state) or step.compensates is not None or state.steps[index].undoes >= 0
    return None if free else state.plan.max_cost


def _unbound(state: State) -> bool:
    """Whether the plan's deadline does not bind the saga's calls any more."""
    return state.backward or state.past_pivot or state.ending is not None


class Lesson(NamedTuple):
    """The result for identical calls of other sagas: the tool, its params with markers for secrets, the output."""

    tool: str
    params: dict[str, Any]
    output: Any
    call: Call


def lesson_of(state: State, record: AnyRecord) -> Lesson | None:
    """The lesson of an operator's decision for de-duplication; None: nothing. Secrets count by name there."""
    if type(record) is not QuestionResolved or record.decision != "happened":
        return None
    index = state.plan.by_key[record.step]
    serving = state.acting(index)
    step = state.steps[index]
    if (
        step.effect != Made("decision")
        or step.status != SUCCEEDED
        or step.undoes >= 0  # no undo is remembered
        or serving.spec is None
        or not serving.spec.remembers
    ):
        return None
    effect = CallTool(index, FORWARD, state.steps[index].forward.attempt)
    call = call_of(state, effect, FORWARD, serving.timeout_s, None)
    return Lesson(serving.tool, serving.params.resolve(StateScope(state)), record.output, call)


def lessons_of(state: State, records: Iterable[AnyRecord]) -> list[Lesson]:
    """The lessons of records that have just been made."""
    return [lesson for record in records if (lesson := lesson_of(state, record)) is not None]


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
    """The time until which a repeat of a call in doubt arrives while the remote system remembers its key."""
    call = state.steps[effect.step].call(effect.direction)
    if not call.doubt or call.doubt.repeat:
        return None
    serving = state.serving(effect.step, effect.direction)
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


def misfit(spec: ToolSpec | None, params: Mapping[str, Any]) -> NotDone | None:
    """Why a call is not made: its params, with the secrets in them, do not fit its tool; None if they fit.

    It does not contain the values: the messages of a schema check repeat them.
    """
    problems = () if spec is None else spec.check_params(params)
    if not problems:
        return None
    where = json_path(problems[0][0])
    message = said("params_invalid.secrets", where=where)
    return NotDone(ErrorInfo("params_invalid", message, retryable=False), retryable=False)


# --- secrets never reach the journal, not even as an echo ------------------------------------------------------------


def scrub(outcome: Outcome, secrets: Mapping[str, str]) -> Outcome:
    """The outcome with a marker in place of each value of ``secrets`` (values by name), in every spelling."""
    return scrubber(secrets).outcome(outcome) if secrets else outcome
