"""``saga submit``."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated, Any

import typer

from saga_engine.cli.from_table import option
from saga_engine.cli.options import (
    DebugOption,
    FullOption,
    InputOption,
    JsonOption,
    OptionalPlanArgument,
    StoreOption,
    ToolsOption,
)
from saga_engine.cli.temporal import RuntimeOption, TaskQueueOption, settings_there

if TYPE_CHECKING:
    from saga_engine.api import Engine
    from saga_engine.cli.drive import Driven
    from saga_engine.execution.result import SagaResult
    from saga_engine.plan.model import Plan
    from saga_engine.plan.parser import Source
    from saga_engine.settings import Settings
    from saga_engine.tools.registry import ToolRegistry


def submit(
    plan: OptionalPlanArgument = None,
    *,
    template: Annotated[
        str | None,
        option("submitSaga", "template", "--template", metavar="NAME", before="Instead of PLAN: "),
    ] = None,
    tools: ToolsOption = None,
    saga_id: Annotated[str | None, option("submitSaga", "saga_id", "--id", metavar="ID")] = None,
    given: InputOption = None,
    tags: Annotated[list[str] | None, option("submitSaga", "tags", "--tag", metavar="TAG")] = None,
    store: StoreOption = None,
    detach: Annotated[
        bool, typer.Option("--detach", help="Only journal and queue the plan; a worker runs it.")
    ] = False,
    runtime: RuntimeOption = None,
    task_queue: TaskQueueOption = None,
    full: FullOption = False,
    as_json: JsonOption = False,
    debug: DebugOption = False,  # noqa: ARG001 - read by the command
) -> int:
    """Journal a plan, then run it to its end, with live progress on stderr.

    The same plan under the same id is the same saga: it continues if no process runs it. Ctrl-C stops the wait and
    loses nothing.

    Examples:
      saga submit trip.json --tools tools.py
      saga submit trip.json --tools booking.tools:registry --input guest=Ada --input nights=2
      saga submit --template renewal@2 --tools tools.py --input customer=42
      saga submit - --tools tools.py --json < trip.json
    """
    from saga_engine.cli.check import tell_warnings
    from saga_engine.cli.inputs import input_values, require_used
    from saga_engine.cli.options import registry_for
    from saga_engine.execution.ids import check_saga_id, new_saga_id
    from saga_engine.execution.search import check_tags
    from saga_engine.plan.salvage import load_checked
    from saga_engine.plan.warnings import warnings_of

    check_tags(tags or ())
    values = input_values(given or [])
    settings = settings_there(runtime, task_queue, store, tools)
    registry = registry_for(settings)
    source, reference = _source(settings, plan, template, values)
    loaded = load_checked(source, registry if settings.names_tools else None, input=values or None)
    require_used(values, loaded)
    # Chosen here, so that the message of an interrupt can name it.
    chosen = check_saga_id(saga_id or loaded.task_id or new_saga_id(), "--id")
    tell_warnings(warnings_of(loaded, registry if settings.names_tools else None))
    given_all: dict[str, Any] = {"saga_id": chosen, "input": values or None, "tags": tags or (), "detach": detach}
    given_all |= {"template": reference} if reference else {"plan": loaded}
    return submitted(settings, registry, loaded, given_all, full=full, as_json=as_json)


def _source(
    settings: Settings, plan: str | None, template: str | None, values: dict[str, Any]
) -> tuple[Source, str | None]:
    """The plan to submit, and the version of the template that it comes from."""
    from saga_engine.cli.options import plan_source

    if (plan is None) == (template is None):
        raise typer.BadParameter("give either a plan or --template NAME", param_hint="PLAN")
    if template is None:
        assert plan is not None
        return plan_source(plan), None
    if settings.runtime:
        from saga_engine.api.search import only_plan

        only_plan(None, template)
    from saga_engine.cli.template import template_of

    found = template_of(settings, template)
    found.checked_input(values)
    return found.plan, found.reference


def submitted(
    settings: Settings,
    registry: ToolRegistry,
    plan: Plan,
    given: dict[str, Any],
    *,
    full: bool,
    as_json: bool,
) -> int:
    """Journal the plan and wait for its end, unless it is left to the workers; returns the exit code.

    ``given`` are the arguments of ``Engine.submit``.
    """
    from saga_engine.cli.drive import drive_any, driven, finish, stands
    from saga_engine.cli.hints import queued_line
    from saga_engine.cli.output import hint
    from saga_engine.cli.progress import Progress
    from saga_engine.cli.words import say
    from saga_engine.errors import Interrupted, PlanInvalid
    from saga_engine.tools.trace_context import called_from

    async def ended(coordinator: Engine) -> SagaResult:
        with called_from(os.environ.get("TRACEPARENT")):
            handle = await coordinator.submit(**given)
        return await handle.wait()

    async def work(coordinator: Engine) -> Driven:
        return await driven(coordinator, saga_id, ended(coordinator), full=full)

    saga_id, detach = given["saga_id"], given["detach"]
    progress = Progress.of_plan(saga_id, plan)
    try:
        found = drive_any(settings, registry, work, progress)
    except Interrupted as error:
        raise stands(error, settings, saga_id=saga_id) from error
    except PlanInvalid:
        if not settings.names_tools:
            hint(say("hint.no-tools"))
        raise
    code = finish(found, settings, as_json=as_json, code=0 if detach else None, left=detach, full=full)
    if detach and not found.outcome.ended:
        hint(queued_line(saga_id, settings))
    return code
