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
from saga_engine.cli.temporal import EngineOption, TaskQueueOption

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
    engine: EngineOption = None,
    task_queue: TaskQueueOption = None,
    as_json: JsonOption = False,
    debug: DebugOption = False,  # noqa: ARG001 - read by the command
) -> int:
    """Have a saga undone.

    If a live process drives the saga, that process acts and the exit code is 8; else the saga is undone here. Without
    tools the cancel is only recorded (exit code 8): a worker, or `saga resume`, acts on it. Cancelling again is no
    conflict. A saga that has ended otherwise, is being undone already or has passed its pivot cannot be cancelled
    (exit code 6).

    Example:
      saga cancel trip-42 --note "the meeting is off" --tools tools.py
    """
    from saga_engine.cli.options import person
    from saga_engine.cli.signals import answer
    from saga_engine.cli.temporal import settings_there

    async def post(coordinator: Engine) -> SagaResult:
        wait = settings.names_tools or not coordinator.drives
        return await coordinator.cancel(saga_id, by=person(by), note=note, wait=wait)

    settings = settings_there(engine, task_queue, store, tools)
    return answer(saga_id, post, settings, what="the cancel", as_json=as_json)
