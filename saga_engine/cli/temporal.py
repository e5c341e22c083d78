"""Commands about sagas that run in Temporal: `--runtime` and `--task-queue`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from saga_engine.api.temporal import TemporalCoordinator
    from saga_engine.cli.progress import Progress
    from saga_engine.settings import Settings
    from saga_engine.tools.registry import ToolRegistry

RuntimeOption = Annotated[
    str | None,
    typer.Option(
        "--runtime",
        metavar="URL",
        help="Sagas in Temporal: temporal://HOST:PORT/NAMESPACE; also SAGA_RUNTIME or saga.toml.",
    ),
]
TaskQueueOption = Annotated[
    str | None,
    typer.Option(
        "--task-queue", metavar="NAME", help="The task queue of the workers; also SAGA_TASK_QUEUE. Default: saga."
    ),
]


def settings_there(
    runtime: str | None, task_queue: str | None, store: str | None = None, tools: list[str] | None = None
) -> Settings:
    """The settings in force, with the flags of a runtime among them."""
    from saga_engine.settings import load

    return load({"runtime": runtime, "task_queue": task_queue, "store": store, "tools": tools})


@asynccontextmanager
async def sagas_there(
    settings: Settings, tools: ToolRegistry | None = None, progress: Progress | None = None
) -> AsyncIterator[TemporalCoordinator]:
    """A coordinator for the runtime's sagas; ``progress`` gets their records while the command waits for them."""
    from saga_engine.api.temporal import TemporalCoordinator
    from saga_engine.cli.keyring import keyring_for
    from saga_engine.cli.output import stdout_kept_clean
    from saga_engine.errors import RuntimeUnsupported

    with stdout_kept_clean():
        if keyring_for(settings) is not None:
            raise RuntimeUnsupported(
                "sagas in Temporal are not sealed: their payloads lie in Temporal's own history",
                hint="give its workers and clients a payload codec of your own, and leave [privacy] out; or run the "
                "plan with a store",
            )
        async with TemporalCoordinator.open(
            settings.runtime,
            () if tools is None else tools,
            task_queue=settings.task_queue,
            store=settings.store,
            durability=settings.durability,
            lease_s=settings.lease_s,
            patience_s=settings.patience_s,
            observers=[] if progress is None else [progress.observe],
            on_silence=None if progress is None else progress.no_worker,
            settings=settings,
        ) as coordinator:
            yield coordinator
