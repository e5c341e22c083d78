"""Converts the arguments of a coordinator's methods, on whatever runtime: messages, exports, simulations."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from saga_engine.core.messages import Message
from saga_engine.core.submission import Submission
from saga_engine.errors import PlanInvalid, Problem, RuntimeUnsupported
from saga_engine.execution.aside import aside
from saga_engine.execution.ids import check_saga_id, new_saga_id
from saga_engine.execution.plan_cache import compile_submitted, no_collection
from saga_engine.execution.search import check_tags
from saga_engine.plan.operator_limits import NO_LIMITS, Limits
from saga_engine.plan.salvage import load_checked
from saga_engine.plan.values import digest, json_path, plain

if TYPE_CHECKING:
    from saga_engine.analysis.simulation import Rehearsal
    from saga_engine.analysis.trace import Export
    from saga_engine.api.engine import PlanSource
    from saga_engine.plan.compiled import CompiledPlan
    from saga_engine.plan.model import Plan
    from saga_engine.plan.tool_spec import ToolCatalog

#: From a plan, its input and the tools to its compiled form. Raises ``PlanInvalid``.
Compile = Callable[["Plan", dict[str, Any] | None, "ToolCatalog"], "CompiledPlan"]

#: The parts of a step that Temporal refuses, each with the reason and the way that leads on.
NOT_IN_TEMPORAL: Final = {
    "each": (
        "steps with 'each' are not for Temporal yet",
        "run the plan with a store, or call a tool that takes the whole list",
    ),
    "saga": (
        "steps that run a child saga are not for Temporal: parent and child tell each other through a store",
        "run the plan with a store, or write the child's steps into it",
    ),
    "wait": (
        "steps that wait for an event are not for Temporal: events and waits find each other in a store",
        "run the plan with a store, or let a tool wait",
    ),
}


def checked(
    source: PlanSource,
    given: Mapping[str, Any] | None,
    tools: ToolCatalog,
    compiling: Compile = compile_submitted,
    *,
    limits: Limits = NO_LIMITS,
) -> tuple[Plan, CompiledPlan, dict[str, Any] | None]:
    """A plan that can be submitted, and its input. Raises ``PlanInvalid`` and ``ValueNotJson``."""
    chosen = plain(dict(given)) if given else None
    with no_collection():
        plan = load_checked(source, tools, input=chosen)
    compiled = compiling(plan, chosen, tools)
    limits.check_steps(len(plan.steps))
    return plan, limits.applied(compiled), chosen


def require_no_events(words: Iterable[str]) -> None:
    """Raises ``RuntimeUnsupported`` for the word of a step that waits for an event, runs a child, or has a list."""
    words = set(words)
    for word, (message, hint) in NOT_IN_TEMPORAL.items():
        if word in words:
            raise RuntimeUnsupported(message, hint=hint)


def refused_reads(compiled: CompiledPlan) -> list[Problem]:
    """A warning for each step with a tool whose calls Temporal refuses."""
    found: list[Problem] = []
    for step in compiled.all_steps():
        number = step.index - len(compiled.steps)
        path = json_path(("steps", step.index) if number < 0 else ("finally", number))
        try:
            for call in step.calls():
                if call.spec is not None:
                    require_callable(call.tool, call.spec.before, hold=call.spec.hold)
        except RuntimeUnsupported as error:
            found.append(Problem("runtime-refuses", path, error.message, error.hint or ""))
    return found


def runnable_there(declared: dict[str, Any]) -> dict[str, Any]:
    """The declarations of tools that Temporal is to call; raises ``RuntimeUnsupported`` if it cannot."""
    for name, facts in declared.items():
        require_callable(name, facts.get("before"), hold=facts.get("hold", False))
    return declared


def require_callable(tool: str, before: str | None, *, hold: bool) -> None:
    """Raises ``RuntimeUnsupported`` for a tool whose calls need a read before their intent.

    And for one whose resources a saga holds: the store would not know of the end of a workflow.
    """
    if before is not None:
        raise RuntimeUnsupported(
            f"the tool {tool!r} has before-images, and its calls do not run in Temporal",
            hint="run the plan without --runtime, or declare the tool without before",
        )
    if hold:
        raise RuntimeUnsupported(
            f"the tool {tool!r} has hold, and its calls do not run in Temporal",
            hint="run the plan without --runtime, or declare the tool without hold: its resource orders single calls",
        )


def submission_of(  # noqa: PLR0917
    source: PlanSource,
    saga_id: str | None,
    given: Mapping[str, Any] | None,
    tools: ToolCatalog,
    tags: Sequence[str] = (),
    compiling: Compile = compile_submitted,
    *,
    limits: Limits = NO_LIMITS,
    template: str = "",
) -> Submission:
    """A new saga, with its own seed for its keys. Its id is ``saga_id``, else the plan's, else a new one.

    Its digest is its identity: one id has one plan and one input. Raises ``PlanInvalid``, ``ValueNotJson``, and
    ``SettingInvalid`` for a tag.
    """
    check_tags(tags)
    plan, compiled, chosen = checked(source, given, tools, compiling, limits=limits)
    return Submission(
        saga_id=check_saga_id(saga_id or plan.task_id or new_saga_id()),
        plan=plan.json_bytes,
        compiled=compiled,
        limits=limits,
        digest=plan.digest if chosen is None else digest([plan.digest, chosen]),
        seed=secrets.token_hex(8),
        input=chosen,
        tags=tuple(tags),
        template=template,
    )


def problems_of(
    source: PlanSource,
    given: Mapping[str, Any] | None,
    tools: ToolCatalog,
    compiling: Compile = compile_submitted,
    *,
    limits: Limits = NO_LIMITS,
) -> list[Problem]:
    """The problems that keep a plan from being submitted."""
    try:
        checked(source, given, tools, compiling, limits=limits)
    except PlanInvalid as error:
        return list(error.problems)
    return []


async def simulated(
    source: PlanSource,
    given: Mapping[str, Any] | None,
    tools: ToolCatalog,
    compiling: Compile = compile_submitted,
    *,
    limits: Limits = NO_LIMITS,
) -> Rehearsal:
    """Simulate a plan. It may take seconds, and the sagas that run here must not wait."""
    from saga_engine.analysis.simulation import rehearse

    return await aside(lambda: rehearse(checked(source, given, tools, compiling, limits=limits)[1]))


def cancel_message(by: str, note: str) -> Message:
    """A cancel, as it is sent."""
    return Message(id=secrets.token_hex(8), kind="cancel", by=by, note=note)


def answer_message(  # noqa: PLR0917
    step_id: int | str, decision: str, output: Any, by: str, note: str, expect: str = ""
) -> Message:
    """An answer to a question, as it is sent. Raises ``ValueNotJson``."""
    return Message(
        id=secrets.token_hex(8),
        kind="resolve",
        by=by,
        note=note,
        step=str(step_id),
        decision=decision,
        output=plain(output),
        expect=expect,
    )


def amend_message(steps: Sequence[Mapping[str, Any]], by: str, note: str) -> Message:
    """An addition, as it is sent. Raises ``PlanInvalid`` and ``ValueNotJson``."""
    plain_steps: list[Any] = plain(list(steps))
    for at, step in enumerate(plain_steps):
        if not isinstance(step, dict):
            raise PlanInvalid([Problem("field-invalid", f"$.steps[{at}]", "a step is an object")])
    return Message(id=secrets.token_hex(8), kind="amend", by=by, note=note, steps=plain_steps)


def export_of(redact: Sequence[str], sign_key: bytes | None, into: Export | None, *, full: bool) -> Export:
    """The file for a trace: the given one, else a new one. Raises ``SettingInvalid``."""
    from saga_engine.analysis.trace import Export
    from saga_engine.analysis.trace_signature import TraceKey
    from saga_engine.core.redaction import Redaction

    if into is not None:
        return into
    return Export(Redaction(redact), full=full, key=None if sign_key is None else TraceKey(sign_key))
