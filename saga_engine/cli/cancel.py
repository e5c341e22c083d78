"""``saga cancel``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from saga_engine.cli.options import (
    ByOption,
    DebugOption,
    JsonOption,
    NoteOption,
    OptionalSagaArgument,
    StoreOption,
    ToolsOption,
)
from saga_engine.cli.search_options import Many, for_many
from saga_engine.cli.temporal import RuntimeOption, TaskQueueOption

if TYPE_CHECKING:
    from saga_engine.api import Engine
    from saga_engine.execution.result import SagaResult


@for_many
def cancel(
    saga_id: OptionalSagaArgument = None,
    *,
    many: Many = Many(),
    by: ByOption = None,
    note: NoteOption = "",
    tools: ToolsOption = None,
    store: StoreOption = None,
    runtime: RuntimeOption = None,
    task_queue: TaskQueueOption = None,
    as_json: JsonOption = False,
    debug: DebugOption = False,  # noqa: ARG001 - read by the command
) -> int:
    """Cancel a saga and compensate it, or every saga that a search finds.

    If a live process runs the saga, that process does so and the exit code is 8; otherwise this command does so.
    Without tools the cancel is only recorded (exit code 8), and a worker or `saga resume` acts on it. Cancelling again
    is no conflict. A saga that has ended otherwise, is already being compensated or has passed its pivot cannot be
    cancelled (exit code 6).

    With a search (--tag, --name, --status, --tool, --since) the sagas and what would be undone of each are shown, and
    you are asked before anything happens. Only the sagas that were shown are cancelled. The exit code is the most
    severe of theirs.

    Examples:
      saga cancel trip-42 --note "the meeting is off" --tools tools.py
      saga cancel --tag import-7 --dry-run
      saga cancel --tag import-7 --since 2h --note "wrong file"
    """
    from saga_engine.cli.batch import in_batch, one_or_many
    from saga_engine.cli.options import person
    from saga_engine.cli.signals import answer
    from saga_engine.cli.temporal import settings_there

    async def post(coordinator: Engine) -> SagaResult:
        assert saga_id is not None
        wait = settings.names_tools or not coordinator.drives
        return await coordinator.cancel(saga_id, by=person(by), note=note, wait=wait)

    settings = settings_there(runtime, task_queue, store, tools)
    if one_or_many(saga_id, many):
        said = {"by": person(by), "note": note}
        return in_batch("cancel", many, settings, as_json=as_json, **said)
    assert saga_id is not None
    return answer(saga_id, post, settings, what="cancel", as_json=as_json)
