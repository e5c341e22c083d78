"""``saga cancel``."""

from __future__ import annotations

from typing import TYPE_CHECKING

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


def cancel(
    saga_id: SagaArgument,
    *,
    by: ByOption = None,
    note: NoteOption = "",
    tools: ToolsOption = None,
    store: StoreOption = None,
    runtime: RuntimeOption = None,
    task_queue: TaskQueueOption = None,
    as_json: JsonOption = False,
    debug: DebugOption = False,  # noqa: ARG001 - read by the command
) -> int:
    """Cancel a saga and compensate it.

    If a live process runs the saga, that process does so and the exit code is 8; otherwise this command does so.
    Without tools the cancel is only recorded (exit code 8), and a worker or `saga resume` acts on it. Cancelling again
    is no conflict. A saga that has ended otherwise, is already being compensated or has passed its pivot cannot be
    cancelled (exit code 6).

    Example:
      saga cancel trip-42 --note "the meeting is off" --tools tools.py
    """
    from saga_engine.cli.options import person
    from saga_engine.cli.signals import answer
    from saga_engine.cli.temporal import settings_there

    async def post(coordinator: Engine) -> SagaResult:
        wait = settings.names_tools or not coordinator.drives
        return await coordinator.cancel(saga_id, by=person(by), note=note, wait=wait)

    settings = settings_there(runtime, task_queue, store, tools)
    return answer(saga_id, post, settings, what="the cancel", as_json=as_json)
