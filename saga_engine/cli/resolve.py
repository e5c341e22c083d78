"""``saga resolve``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from saga_engine.cli.options import (
    ByOption,
    DebugOption,
    JsonOption,
    NoteOption,
    SagaArgument,
    StoreOption,
    ToolsOption,
)
from saga_engine.cli.temporal import RuntimeOption, TaskQueueOption

if TYPE_CHECKING:
    from saga_engine.api import Engine
    from saga_engine.execution.result import SagaResult


def resolve(
    saga_id: SagaArgument,
    step: Annotated[str, typer.Argument(metavar="STEP", help="The id of the step that the question is about.")],
    decision: Annotated[
        str,
        typer.Argument(
            metavar="DECISION",
            help="happened | not-happened | retry | undone (I undid it by hand) | accept (it stays as it is) | "
            "approve | deny | undo | keep | close (a session whose agent failed) | "
            "ask-again (a model, how to compensate) | an option of the plan's own question | "
            "answer (a value, to a question without options)",
        ),
    ],
    *,
    output: Annotated[
        str | None,
        typer.Option(
            "--output",
            metavar="JSON",
            help="With 'happened': what the call returned. With 'answer': the answer.",
        ),
    ] = None,
    by: ByOption = None,
    note: NoteOption = "",
    tools: ToolsOption = None,
    store: StoreOption = None,
    runtime: RuntimeOption = None,
    task_queue: TaskQueueOption = None,
    as_json: JsonOption = False,
    debug: DebugOption = False,  # noqa: ARG001 - read by the command
) -> int:
    """Answer an open question of a saga. The saga then continues here, unless a live process runs it (exit code 8).

    The answer is recorded first. Without tools it is only recorded (exit code 8), and a worker or `saga resume` acts
    on it. The same answer again is no conflict; a different one is refused (exit code 6).

    Examples:
      saga resolve trip-42 1 happened --output '{"order_id": "A-7"}' --tools tools.py
      saga resolve trip-42 2 undone --by ada --note "refunded in the bank's portal" --tools tools.py
      saga resolve trip-42 3 approve --by ada --tools tools.py
      saga resolve trip-42 4 "Hotel Blue" --by ada --tools tools.py
      saga resolve trip-42 5 answer --output '{"seats": 3}' --tools tools.py
    """
    from saga_engine.cli.inputs import output_value
    from saga_engine.cli.options import person
    from saga_engine.cli.signals import answer
    from saga_engine.cli.temporal import settings_there

    value = output_value(output)

    async def post(coordinator: Engine) -> SagaResult:
        who, wait = person(by), settings.names_tools or not coordinator.drives
        return await coordinator.resolve(saga_id, step, decision, output=value, by=who, note=note, wait=wait)

    settings = settings_there(runtime, task_queue, store, tools)
    return answer(saga_id, post, settings, what="the decision", as_json=as_json)
