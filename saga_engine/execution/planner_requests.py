"""Builds requests to a model for steps, and checks its answer.

A request contains what happened, with outputs cut to size, and the tools that the model may use. It never contains an
idempotency key or a secret.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from saga_engine.core import transitions as t
from saga_engine.core.decide import Capabilities
from saga_engine.core.effects import COMPENSATE, AskPlanner, ErrorInfo
from saga_engine.core.interpret import (
    MAX_COMPENSATING_STEPS,
    MAX_NEW_STEPS,
    NOTHING,
    Advice,
    bounds_of,
    check_advice,
)
from saga_engine.core.masking import Mask, mask_of, tools_of_step
from saga_engine.core.other_ways import remainder
from saga_engine.core.question_view import error_dict
from saga_engine.core.records import Written
from saga_engine.core.state import State, StateScope
from saga_engine.errors import BindingUnresolved, PlanInvalid, Problem, SagaError
from saga_engine.language.errors import said
from saga_engine.loggers import logger_of
from saga_engine.plan.tool_spec import Semantic, ToolCatalog, ToolSpec
from saga_engine.plan.written_again import options_of, parts_of
from saga_engine.ports import Advisor, CompensationRequest, Escalation, PastStep, ReplanRequest
from saga_engine.ports.foreign import name_of, runs_foreign_code

_log = logger_of("saga_engine.planner")


def _words_of_advisor(local: Mapping[str, Any]) -> str:
    return f"the planner {name_of(local['advisor'])} (saga {local['state'].saga_id})"


@runs_foreign_code(_words_of_advisor)
async def advise(
    state: State, effect: AskPlanner, advisor: Advisor, catalog: ToolCatalog, capabilities: Capabilities
) -> Advice | ErrorInfo:
    """Ask for steps; problems of an answer go back to the model, as often as the advisor allows."""

    def check(steps: Sequence[Mapping[str, Any]], dropped: Mapping[str, str] = NOTHING) -> Sequence[Problem]:
        try:
            check_advice(state, effect, steps, dropped, catalog, capabilities)
        except PlanInvalid as error:
            return error.problems
        return ()

    try:
        request = _compensation if effect.purpose == "compensate" else _other_way
        advice = await advisor.advise(request(state, effect.step, catalog, capabilities), check)
    except SagaError as error:
        info = ErrorInfo(error.code.replace("-", "_"), error.message[:1000], suggestion=error.hint)
        return Advice((), _used(error, advisor), info)
    except Exception as error:  # noqa: BLE001 - an advisor is somebody else's code: a person is asked instead
        _log.exception("the advisor failed")
        return ErrorInfo("planner_defect", f"{type(error).__name__}: {error}"[:500])
    if not isinstance(advice, Advice):
        return ErrorInfo("planner_defect", said("planner_defect", type=type(advice).__name__))
    return advice


def _used(error: SagaError, advisor: Advisor) -> Written | None:
    """The usage of a request that failed, if the error has it."""
    usage = error.context.get("usage")
    if not isinstance(usage, Mapping):
        return None
    known = {name: usage[name] for name in ("requests", "tokens_in", "tokens_out", "seconds") if name in usage}
    return Written(str(getattr(advisor, "model", "")), cost_usd=usage.get("cost_usd"), **known)


def _compensation(state: State, stuck: int, catalog: ToolCatalog, capabilities: Capabilities) -> CompensationRequest:
    mask = mask_of(state)
    return CompensationRequest(
        goal=state.plan.goal if mask is None else mask.value(state.plan.goal),
        stuck=_past(state, stuck, mask),
        past=[_past(state, step.index, mask) for step in state.plan.steps if state.steps[step.index].effect],
        tools=_specs(catalog, bounds_of(state, "compensate", catalog, capabilities).tools),
        max_steps=MAX_COMPENSATING_STEPS,
        reason=state.reason or "",
        failed=[_past(state, index, mask) for index in state.failed if index != stuck],
    )


def _other_way(state: State, failed: int, catalog: ToolCatalog, capabilities: Capabilities) -> ReplanRequest:
    bounds = bounds_of(state, "replan", catalog, capabilities)
    rest = remainder(state)
    mask = mask_of(state)
    return ReplanRequest(
        goal=state.plan.goal if mask is None else mask.value(state.plan.goal),
        failed=_past(state, failed, mask),
        past=[
            _past(state, step.index, mask) for step in state.plan.steps if state.steps[step.index].status == t.SUCCEEDED
        ],
        also_failed=[_past(state, index, mask) for index in rest.failed if index != failed],
        left=[_left(state, index, mask) for index in rest.gone],
        kept=[_left(state, index, mask) for index in rest.kept],
        tools=_specs(catalog, bounds.tools),
        input=state.input if mask is None else mask.value(dict(state.input)),
        secrets=tuple(sorted(bounds.secrets)),
        taken=tuple(step.key for step in state.plan.steps),
        max_steps=MAX_NEW_STEPS,
        may_use=parts_of(state.plan.steps),
    )


def _left(state: State, index: int, mask: Mask | None) -> dict[str, Any]:
    step = state.plan.steps[index]
    params = step.params.raw if mask is None else mask.template(step.params.raw, *tools_of_step(step))
    body = {"step_id": step.step_id, "name": step.name, "tool": step.tool, "params": params, "kind": step.kind}
    if step.builtin:
        body = {"step_id": step.step_id, "name": step.name, **params}
    tools = tools_of_step(step)
    body |= options_of(step, lambda value: value if mask is None else mask.template({"": value}, *tools)[""])
    after = [state.plan.steps[other].step_id for other in sorted(step.data_deps)]
    return {**body, "depends_on": after} if after else body


def _past(state: State, index: int, mask: Mask | None) -> PastStep:
    compiled, step = state.plan.steps[index], state.steps[index]
    serving = state.acting(index)
    try:
        params: Mapping[str, Any] | None = serving.params.resolve(StateScope(state))
    except BindingUnresolved:
        params = None
    stuck = step.status in (t.COMPENSATION_FAILED, t.ESCALATED)
    call = step.call(COMPENSATE) if stuck else step.forward
    error = error_dict(call.error)
    output = step.output
    if mask is not None:
        params = None if params is None else mask.params(dict(params), *tools_of_step(compiled))
        error, output = mask.said(error), mask.value(output)
    keys = re.compile(rf"[^:\s]+:[^:\s]+:(?:f\d*|c):{re.escape(state.seed)}")
    return PastStep(
        step_id=compiled.step_id,
        tool=compiled.builtin or serving.tool,
        status=step.status,
        name=compiled.name,
        params=_without(params, keys),
        output=_without(output, keys),
        error=_without(error, keys),
        attempts=0 if error is None else call.tries,
    )


def _without(value: Any, keys: re.Pattern[str]) -> Any:
    """A value with a marker in place of each idempotency key of the saga: a model must not see any."""
    if isinstance(value, str):
        return keys.sub("$key", value) if ":" in value else value
    if isinstance(value, Mapping):
        return {name: _without(item, keys) for name, item in value.items()}
    if isinstance(value, list):
        return [_without(item, keys) for item in value]
    return value


def _specs(catalog: ToolCatalog, names: frozenset[str]) -> list[ToolSpec]:
    found = [catalog.spec(name) for name in catalog.names() if name in names]
    return [spec for spec in found if spec is not None]


def capabilities_of(escalation: Escalation, advisor: Advisor | None, semantic: Semantic) -> Capabilities:
    """What a process with these parts can do beside calling tools."""
    return Capabilities(bool(escalation.hooks or escalation.further), advisor is not None, semantic)
