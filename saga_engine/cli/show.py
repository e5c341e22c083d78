"""``saga show``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from saga_engine.cli import exit_codes
from saga_engine.cli.from_table import option
from saga_engine.cli.options import FullOption, JsonOption, SagaArgument, StoreOption
from saga_engine.cli.temporal import RuntimeOption, TaskQueueOption

if TYPE_CHECKING:
    from saga_engine.api.engine import Ownership
    from saga_engine.api.holds import Held
    from saga_engine.execution.result import SagaResult
    from saga_engine.execution.stops import Stop
    from saga_engine.settings import Settings

_MAX_NAMED = 20
TracebackOption = Annotated[
    bool,
    typer.Option("--debug", help="Show the tracebacks of unexpected exceptions in tools and in the engine."),
]


def show(
    saga_id: SagaArgument,
    *,
    step: Annotated[
        str | None, option("showSaga", "step", "--step", metavar="STEP", before="Print ", more=", as JSON.")
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", help="Print each record as it becomes durable, until the saga ends or asks.")
    ] = False,
    full: FullOption = False,
    store: StoreOption = None,
    runtime: RuntimeOption = None,
    task_queue: TaskQueueOption = None,
    as_json: JsonOption = False,
    debug: TracebackOption = False,
) -> int:
    """Show a saga: its steps, its report and its open questions. No tools are needed.

    The exit code is that of its status: 0 completed, 3 compensated or waived, 4 waits for an operator, 8 still running.

    Examples:
      saga show trip-42
      saga show trip-42 --json
      saga show trip-42 --step 2 --full
      saga show trip-42 --debug
      saga show trip-42 --follow
    """
    import asyncio

    from saga_engine.cli.follow import follow_saga
    from saga_engine.cli.hints import next_line
    from saga_engine.cli.output import data, document, hint
    from saga_engine.cli.release import bodies as held_bodies
    from saga_engine.cli.release import tell_holds
    from saga_engine.cli.stop import bodies, concerning, tell_stops
    from saga_engine.cli.temporal import settings_there
    from saga_engine.cli.words import say

    settings = settings_there(runtime, task_queue, store)
    if follow:
        if as_json or step is not None:
            raise typer.BadParameter("it prints lines as they come: without --json and --step", param_hint="--follow")
        follow_saga(settings, saga_id)
    outcome, owned, stops, holds = asyncio.run(_outcome(settings, saga_id, full=full))
    body = outcome.to_dict(full=full)
    stops = concerning(stops, outcome.saga_id, [each["tool"] for each in body["steps"] if each.get("tool")])
    if step is not None:
        _print_output(body, step)
    elif as_json:
        document(body | ({"stops": bodies(stops)} if stops else {}) | ({"holds": held_bodies(holds)} if holds else {}))
    else:
        from saga_engine.cli.render import whole_lines
        from saga_engine.cli.render_calls import has_traceback, traceback_lines

        data("\n".join([*whole_lines(body, settings, full=full), *(traceback_lines(body) if debug else [])]))
        if not debug and has_traceback(body):
            hint(say("debug.here"))
        tell_stops(stops)
        tell_holds(holds)
        if line := next_line(body, settings, elsewhere=owned.elsewhere, unread=owned.unread > 0):
            hint(line)
    return exit_codes.of_status(outcome.status)


async def _outcome(
    settings: Settings, saga_id: str, *, full: bool
) -> tuple[SagaResult, Ownership, list[Stop], list[Held]]:
    from saga_engine.api.engine import Ownership
    from saga_engine.api.holds import concerning
    from saga_engine.cli.read_only import looking
    from saga_engine.cli.release import holds_in
    from saga_engine.cli.stop import stops_in

    async with looking(settings, saga_id) as coordinator:
        outcome = await coordinator.show(saga_id, full=full)
        if outcome.ended:
            return outcome, Ownership(), [], []
        store = getattr(coordinator, "store", None)  # in Temporal a client has none
        stops, holds = ([], []) if store is None else (await stops_in(store), await holds_in(store))
        return outcome, await coordinator.ownership(saga_id), stops, concerning(holds, outcome.saga_id)


def _print_output(body: dict[str, Any], step_id: str) -> None:
    """The output as one JSON document; null if there is none, with the reason on stderr."""
    from saga_engine.cli.output import document, hint, shown
    from saga_engine.cli.render import size_words
    from saga_engine.cli.words import more, say, state

    found = next((step for step in body["steps"] if str(step["step_id"]) == step_id), None)
    if found is None:
        names = [shown(step["step_id"]) for step in body["steps"]]
        known = ", ".join(names[:_MAX_NAMED]) + more(len(names) - _MAX_NAMED)
        raise typer.BadParameter(say("step.unknown", step=shown(step_id), known=known), param_hint="--step")
    document(found["output"])
    if found["output"] is None:
        hint(say("output.none", status=state(found["status"], "step")))
    elif "output_ref" in found:
        hint(say("output.cut", size=size_words(found["output_ref"]["bytes"])))
