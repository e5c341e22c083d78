"""``saga check``."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from saga_engine.cli import exit_codes
from saga_engine.cli.options import DebugOption, InputOption, JsonOption, PlanArgument, ToolsOption

if TYPE_CHECKING:
    from saga_engine.errors import Problem
    from saga_engine.plan.compiled import CompiledPlan
    from saga_engine.plan.model import Plan
    from saga_engine.settings import Settings
    from saga_engine.tools.registry import ToolRegistry


def check(
    plan: PlanArgument,
    *,
    tools: ToolsOption = None,
    given: InputOption = None,
    as_json: JsonOption = False,
    debug: DebugOption = False,  # noqa: ARG001 - read by the command
) -> int:
    """Check a plan and print all its problems at once. Nothing runs.

    Without tools only the plan's structure is checked: its form, bindings and order. Exit code 7 if there are problems.

    Examples:
      saga check trip.json --tools tools.py --input guest=Ada
      my-planner | saga check - --json
    """
    from saga_engine.cli.inputs import input_values, require_used
    from saga_engine.cli.limits import limits_of
    from saga_engine.cli.options import plan_source, registry_for, settings_for
    from saga_engine.errors import PlanInvalid
    from saga_engine.plan.compiler import check_plan, checked_draft, compile_plan
    from saga_engine.plan.holding import held_over
    from saga_engine.plan.lookalikes import lookalikes
    from saga_engine.plan.salvage import load_checked
    from saga_engine.plan.warnings import warnings_of

    values = input_values(given or [])
    settings = settings_for(None, tools)
    limits = limits_of(settings)
    steps = 0
    problems: list[Problem] = []
    warnings: list[Problem] = []
    try:
        registry = registry_for(settings) if settings.names_tools else None
        loaded = load_checked(plan_source(plan), registry, input=values or None)
        require_used(values, loaded)
        steps, warnings = len(loaded.steps), lookalikes(loaded)
        problems, unread = _without_templates(check_plan(loaded, registry, input=values or None))
        warnings += unread
        if not problems and settings.runtime:
            warnings += runtime_warnings(loaded)
        if not problems:
            limits.check_steps(steps)
        if registry is not None and not (problems or unread):
            warnings += [each for each in warnings_of(loaded, registry) if each not in warnings]
            warnings += limits.warnings(loaded)
            compiled = compile_plan(loaded, registry, input=values or None)
            asked = policy_warnings(settings, compiled)
            paths = {each.path for each in asked if each.code == "policy-asks"}
            warnings += [*asked, *(held_over(checked_draft(loaded, registry), paths) if paths else ())]
            warnings += runtime_tool_warnings(settings, compiled)
    except PlanInvalid as error:
        problems, unread = _without_templates(error.problems)
        warnings += unread
    tell_problems(problems, settings, as_json=as_json, steps=steps, warnings=warnings)
    return exit_codes.PLAN_INVALID if problems else exit_codes.COMPLETED


def _without_templates(found: Sequence[Problem]) -> tuple[list[Problem], list[Problem]]:
    """The problems, and those children that are templates: their plans are in the store, which no check reads."""
    unread = [each for each in found if each.code == "saga-template"]
    return [each for each in found if each.code != "saga-template"], unread


def tell_problems(
    problems: Sequence[Problem],
    settings: Settings,
    *,
    as_json: bool,
    steps: int = 0,
    warnings: Sequence[Problem] = (),
) -> None:
    """Print the problems of a plan, or that its ``steps`` have none; ``warnings`` do not affect the exit code."""
    from saga_engine.cli.output import data, document, note, problems_table

    if as_json:
        body = {
            "valid": not problems,
            "problems": [problem.to_dict() for problem in problems],
            "tools_checked": settings.names_tools,
        }
        document(body | ({"warnings": [each.to_dict() for each in warnings]} if warnings else {}))
    elif problems:
        data(problems_table(problems))
        note(f"{len(problems)} problem{'s' if len(problems) != 1 else ''}; nothing was run")
    else:
        data(f"the plan is valid: {steps} step{'s' if steps != 1 else ''}")
    if not as_json:
        tell_warnings(warnings)
    read = not any(problem.code in ("plan-unreadable", "plan-not-json") for problem in problems)
    if not settings.names_tools and read:
        note("hint: no tools were given, so only the structure was checked; --tools checks names and params too")


def runtime_warnings(plan: Plan) -> list[Problem]:
    """A warning for each step that the runtime of the settings, which is Temporal, refuses."""
    from saga_engine.api.requests import NOT_IN_TEMPORAL
    from saga_engine.errors import Problem
    from saga_engine.plan.values import json_path

    return [
        Problem("runtime-refuses", json_path(("steps", at, word)), *NOT_IN_TEMPORAL[word])
        for at, step in enumerate(plan.steps)
        for word in NOT_IN_TEMPORAL
        if getattr(step, word) is not None
    ]


def runtime_tool_warnings(settings: Settings, compiled: CompiledPlan) -> list[Problem]:
    """A warning for each step whose tool the runtime of the settings refuses."""
    from saga_engine.api.requests import refused_reads

    return refused_reads(compiled) if settings.runtime else []


def policy_warnings(settings: Settings, compiled: CompiledPlan) -> list[Problem]:
    """The calls of a plan that the configured policy would deny, or ask about. Raises ``SettingInvalid``."""
    from saga_engine.cli.options import has_policy, policy_of

    if not has_policy(settings):
        return []
    from saga_engine.policy.plan_time import planned_verdicts

    return [verdict.warning(compiled) for verdict in planned_verdicts(policy_of(settings), compiled)]


def load_told(plan: str, registry: ToolRegistry | None) -> Plan:
    """A plan from a file or stdin, for commands that run nothing; prints warnings about probable mistakes.

    Raises ``PlanInvalid`` with all problems.
    """
    from saga_engine.cli.options import plan_source
    from saga_engine.plan.lookalikes import lookalikes
    from saga_engine.plan.salvage import load_checked

    loaded = load_checked(plan_source(plan), registry)
    tell_warnings(lookalikes(loaded))
    return loaded


def tell_warnings(warnings: Sequence[Problem]) -> None:
    """Print warnings about probable mistakes."""
    from saga_engine.cli.output import note, paint, shown

    for each in warnings:
        note(f"{paint('warning', stream=sys.stderr)}: {shown(each.path)}: {shown(each.message)}; {shown(each.hint)}")
