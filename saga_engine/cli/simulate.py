"""``saga simulate``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from saga_engine.cli import exit_codes
from saga_engine.cli.options import DebugOption, InputOption, JsonOption, PlanArgument, ToolsOption

if TYPE_CHECKING:
    from saga_engine.analysis.simulation import Asked, Rehearsal, Scenario
    from saga_engine.plan.compiled import CompiledPlan
    from saga_engine.settings import Settings

#: The maximum number of steps or questions in a cell.
_LISTED = 4
_CELL_CHARS = 120
_TITLES = ("STEP", "FAILURE", "SAGA", "REMAINS", "QUESTIONS", "CALLS", "VERDICT")


def simulate(
    plan: PlanArgument,
    *,
    tools: ToolsOption = None,
    given: InputOption = None,
    every: Annotated[bool, typer.Option("--all", help="List the clean failure points, too.")] = False,
    as_json: JsonOption = False,
    debug: DebugOption = False,  # noqa: ARG001 - read by the command
) -> int:
    """Simulate every single failure of a plan; print the effects that would remain and the questions to an operator.

    The tools are simulated from their declarations. No tool is called and nothing is stored. The exit code is 0 for
    every verdict, and 7 if the plan is invalid.

    Examples:
      saga simulate trip.json --tools tools.py
      saga simulate trip.json --tools tools.py --all
      saga plan "Book a flight and a hotel" | saga simulate - --json
    """
    from saga_engine.analysis.simulation import rehearse
    from saga_engine.cli.check import policy_warnings, tell_problems, tell_warnings
    from saga_engine.cli.cures import cures
    from saga_engine.cli.inputs import input_values
    from saga_engine.cli.options import settings_for
    from saga_engine.cli.output import document, note, shown
    from saga_engine.errors import PlanInvalid

    values = input_values(given or [])
    settings = settings_for(None, tools)
    try:
        compiled = _compiled(plan, settings, values)
    except PlanInvalid as error:
        tell_problems(error.problems, settings, as_json=as_json)
        return exit_codes.PLAN_INVALID
    rehearsal, warnings = rehearse(compiled), policy_warnings(settings, compiled)
    if as_json:
        told = {"warnings": [each.to_dict() for each in warnings]} if warnings else {}
        document(rehearsal.to_dict() | {"cures": cures(rehearsal, compiled)} | told)
    else:
        _tell(rehearsal, {step.step_id: step.name for step in compiled.all_steps()}, every=every)
        for tool, cure in cures(rehearsal, compiled).items():
            note(f"hint: {shown(tool)}: {shown(cure)}")
        tell_warnings(warnings)
    return exit_codes.COMPLETED


def _compiled(plan: str, settings: Settings, values: dict[str, Any]) -> CompiledPlan:
    """Compile the plan. Raises ``PlanInvalid``, ``ToolInvalid`` and ``SettingInvalid``."""
    from saga_engine.cli.limits import limits_of
    from saga_engine.cli.options import plan_source, registry_for
    from saga_engine.errors import SettingInvalid
    from saga_engine.plan.compiler import compile_plan
    from saga_engine.plan.salvage import load_checked

    if not settings.names_tools:
        raise SettingInvalid(
            "there are no tools to simulate", hint="give --tools, SAGA_TOOLS or tools in saga.toml; no tool is called"
        )
    registry = registry_for(settings)
    loaded = load_checked(plan_source(plan), registry, input=values or None)
    limits = limits_of(settings)
    limits.check_steps(len(loaded.steps))
    return limits.applied(compile_plan(loaded, registry, input=values or None))


# --- text output ---------------------------------------------------------------------------------------------------


def _tell(rehearsal: Rehearsal, names: dict[int | str, str], *, every: bool) -> None:
    from saga_engine.analysis.simulation import VERDICTS
    from saga_engine.cli.output import data, fits, note, table

    well = rehearsal.goes_well
    why = f" ({well.reason})" if well.reason else ""
    data(f"without a failure: {well.status}{why} after {well.calls} call{'' if well.calls == 1 else 's'}")
    if well.verdict != "clean":
        data(f"  remains: {_standing(well, names)}; questions: {_asked(well.asked)}")
    data(rehearsal.summary())
    listed = [scenario for scenario in rehearsal.scenarios if every or scenario.verdict != "clean"]
    if listed:
        data("")
        rows = [_row(scenario, names) for scenario in listed]
        if fits(_TITLES, rows, limit_chars=_CELL_CHARS):
            data(table(_TITLES, rows, limit_chars=_CELL_CHARS))
        else:
            data("\n".join(line for row in rows for line in _lines(row)))
    for verdict in dict.fromkeys(scenario.verdict for scenario in listed):
        note(f"{verdict}: {VERDICTS[verdict]}")
    if twice := {step for scenario in rehearsal.scenarios for step in scenario.twice}:
        note(f"error: an effect existed twice, which is a defect: step {_some(_named(sorted(twice, key=str), names))}")
    note("no tool was called; the tools were simulated from their declarations")


def _row(scenario: Scenario, names: dict[int | str, str]) -> list[Any]:
    step = "" if scenario.step_id is None else _name(scenario.step_id, names)
    return [
        step,
        scenario.what,
        scenario.status,
        _standing(scenario, names),
        _asked(scenario.asked),
        str(scenario.calls),
        scenario.verdict,
    ]


def _lines(row: list[Any]) -> Iterator[str]:
    """A row if the terminal is too narrow for the table."""
    from saga_engine.cli.output import paint, shown

    step, what, status, stands, asked, calls, verdict = row
    yield f"{shown(step)}: {shown(what)}"
    yield f"  {verdict}: {paint(status)} after {calls} call{'' if calls == '1' else 's'}; remains: {shown(stands)}"
    if asked != "nothing":
        yield f"  question: {shown(asked)}"


def _standing(scenario: Scenario, names: dict[int | str, str]) -> str:
    if scenario.status == "COMPLETED":
        return "everything, as planned"
    if not scenario.standing:
        return "nothing"
    half = {each.step_id: f" (undone in part: {each.done} of {each.of} calls)" for each in scenario.half_undone}
    return _some(f"{_name(step, names)}{half.get(step, '')}" for step in scenario.standing)


def _asked(asked: Sequence[Asked]) -> str:
    from saga_engine.hooks.messages import asks

    def words(one: Asked) -> str:
        about = "undo of step" if one.direction == "compensate" else "step"
        return f"{about} {one.step_id}: {asks(one.kind)} ({', '.join(one.options)})"

    return _some(words(one) for one in asked) if asked else "nothing"


def _named(steps: Sequence[int | str], names: dict[int | str, str]) -> Iterator[str]:
    return (_name(step, names) for step in steps)


def _name(step: int | str, names: dict[int | str, str]) -> str:
    name = names.get(step, "")
    if not name and isinstance(step, str):  # an item of a list
        of = step.partition("[")[0]
        name = names.get(of, "") or names.get(int(of) if of.isdecimal() else of, "")
    return f"{step} {name}" if name and name != str(step) else str(step)


def _some(texts: Iterator[str]) -> str:
    listed = list(texts)
    more = f" and {len(listed) - _LISTED} more" if len(listed) > _LISTED else ""
    return ", ".join(listed[:_LISTED]) + more
