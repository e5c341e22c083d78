"""Commands about sagas that run in Temporal: `--engine`, `--task-queue`, and the worker."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

if TYPE_CHECKING:
    from saga_engine.api.temporal import TemporalCoordinator
    from saga_engine.cli.progress import Progress
    from saga_engine.plan.model import Plan
    from saga_engine.runtime.result import Outcome
    from saga_engine.settings import Settings
    from saga_engine.tools.registry import ToolRegistry

_T = TypeVar("_T")

EngineOption = Annotated[
    str | None,
    typer.Option(
        "--engine",
        metavar="URL",
        help="Sagas in Temporal: temporal://HOST:PORT/NAMESPACE; also SAGA_ENGINE or saga.toml.",
    ),
]
TaskQueueOption = Annotated[
    str | None,
    typer.Option(
        "--task-queue", metavar="NAME", help="Which workers of --engine; also SAGA_TASK_QUEUE. Default: saga."
    ),
]


def settings_there(
    engine: str | None, task_queue: str | None, store: str | None = None, tools: list[str] | None = None
) -> Settings:
    """The settings in force, with the flags of an engine among them."""
    from saga_engine.settings import load

    return load({"engine": engine, "task_queue": task_queue, "store": store, "tools": tools})


def ask_there(
    settings: Settings,
    registry: ToolRegistry | None,
    work: Callable[[TemporalCoordinator], Awaitable[_T]],
    *,
    progress: Progress | None = None,
) -> _T:
    """Run ``work`` with a coordinator of the engine's sagas.

    Raises what it raises; with ``progress`` also ``KeyboardInterrupt``, at SIGTERM as at Ctrl-C.
    """
    import asyncio

    from saga_engine.cli.output import stdout_kept_clean

    async def opened() -> _T:
        from saga_engine.api.temporal import TemporalCoordinator

        async with TemporalCoordinator.open(
            settings.engine,
            () if registry is None else registry,
            task_queue=settings.task_queue,
            store=settings.store,
            durability=settings.durability,
            lease_s=settings.lease_s,
            patience_s=settings.patience_s,
            observers=[] if progress is None else [progress.observe],
            on_silence=None if progress is None else progress.no_worker,
        ) as coordinator:
            return await work(coordinator)

    with stdout_kept_clean():
        return asyncio.run(opened() if progress is None else _until_signal(opened(), progress))


async def _until_signal(work: Coroutine[Any, Any, _T], progress: Progress) -> _T:
    """Await ``work``, with its progress on stderr. Raises ``KeyboardInterrupt`` at SIGINT or SIGTERM."""
    import asyncio

    stopped = asyncio.Event()
    _on_signals(stopped.set)
    async with progress.displayed():
        job, signalled = asyncio.create_task(work), asyncio.create_task(stopped.wait())
        await asyncio.wait([job, signalled], return_when=asyncio.FIRST_COMPLETED)
        signalled.cancel()
        if not job.done():
            # Whatever the SDK makes of the cancel: who waited was interrupted, and the saga goes on.
            job.cancel()
            await asyncio.wait([job])
            if job.cancelled() or job.exception() is not None:
                raise KeyboardInterrupt
        return await job


def submit_there(
    settings: Settings,
    registry: ToolRegistry,
    plan: Plan,
    saga_id: str,
    given: dict[str, Any],
    *,
    detach: bool,
    full: bool,
    as_json: bool,
) -> int:
    """Begin a saga in the engine, and wait for its end unless it is left to its workers; returns the exit code.

    Raises ``Interrupted``: the saga goes on without the one who waits.
    """
    from saga_engine.cli.output import note
    from saga_engine.cli.progress import Progress

    progress = Progress.of_plan(saga_id, plan)

    async def work(coordinator: TemporalCoordinator) -> Outcome:
        if detach:
            return await (await coordinator.submit(plan, saga_id=saga_id, input=given or None, detach=True)).wait()
        return await coordinator.run(plan, saga_id=saga_id, input=given or None)

    outcome = _interruptible(settings, registry, work, progress, saga_id)
    code = _finish(outcome, settings, full=full, as_json=as_json)
    if detach:
        note(f"hint: workers of the task queue {settings.task_queue!r} drive it")
        return 0
    return code


def answer_there(saga_id: str, post: Callable[[Any], Awaitable[Outcome]], settings: Settings, *, as_json: bool) -> int:
    """Hand a message to a saga in the engine and wait until it rests or ends; returns the exit code.

    ``post`` is given a coordinator whose ``cancel`` and ``decide`` return when the message has been taken in.
    """
    from saga_engine.cli.options import registry_for
    from saga_engine.cli.progress import Progress

    progress = Progress(f"saga {saga_id}", {})

    async def work(coordinator: TemporalCoordinator) -> Outcome:
        progress.start_from((await coordinator.show(saga_id)).body)
        await post(coordinator)
        return await coordinator.wait(saga_id)

    outcome = _interruptible(settings, registry_for(settings), work, progress, saga_id)
    return _finish(outcome, settings, full=False, as_json=as_json)


def _interruptible(
    settings: Settings,
    registry: ToolRegistry,
    work: Callable[[TemporalCoordinator], Awaitable[Outcome]],
    progress: Progress,
    saga_id: str,
) -> Outcome:
    from saga_engine.cli.hints import show_line
    from saga_engine.errors import Interrupted

    try:
        return ask_there(settings, registry, work, progress=progress)
    except KeyboardInterrupt:
        raise Interrupted(
            f"saga {saga_id} goes on without you: its workers drive it",
            hint=f"follow it with: {show_line(saga_id, settings)}",
            saga_id=saga_id,
        ) from None


def _finish(outcome: Outcome, settings: Settings, *, full: bool, as_json: bool) -> int:
    from saga_engine.cli.drive import Driven, finish

    return finish(Driven(outcome, elsewhere=False), settings, as_json=as_json, full=full)


# --- the worker ------------------------------------------------------------------------------------------------------


def run_temporal_worker(
    settings: Settings,
    registry: ToolRegistry,
    *,
    concurrency: int = 100,
    cached: int = 1000,
    as_json: bool = False,
) -> int:
    """Be a worker of ``settings.engine`` until SIGTERM or Ctrl-C, then drain; a second one ends the process at once.

    ``concurrency``: calls at a time; ``cached``: sagas that are kept in memory between their turns. Returns the exit
    code. Raises what ``saga_engine.api.temporal.serve`` raises.
    """
    import asyncio

    from saga_engine.cli import exit_codes
    from saga_engine.cli.drive import configured
    from saga_engine.cli.logs import reported
    from saga_engine.cli.output import document, note, shown, stdout_kept_clean

    guards = configured(settings)

    async def work() -> None:
        from saga_engine.api.temporal import serve

        stopped = asyncio.Event()

        def stop() -> None:
            stopped.set()
            note("worker: stopping: the calls in flight are awaited, nothing new starts (again to end at once)")

        _on_signals(stop)
        await serve(
            settings.engine,
            registry,
            task_queue=settings.task_queue,
            store=settings.store,
            durability=settings.durability,
            lease_s=settings.lease_s,
            patience_s=settings.patience_s,
            max_output_bytes=settings.max_output_bytes,
            concurrency=concurrency,
            cached=cached,
            stopped=stopped,
            begun=lambda: note(f"worker: serves {shown(settings.task_queue)} of {shown(settings.engine)}"),
            **guards,
        )

    with stdout_kept_clean(), reported(note):
        asyncio.run(work())
    note("worker: stopped; the calls in flight have been awaited")
    if as_json:
        document({"worker": {"engine": settings.engine, "task_queue": settings.task_queue}})
    return exit_codes.COMPLETED


def _on_signals(stop: Callable[[], None]) -> None:
    """Call ``stop`` at the first SIGINT or SIGTERM, and end the process at the second."""
    import os
    import sys

    from saga_engine.cli import exit_codes
    from saga_engine.cli.drive import on_stop_signals

    stopping = False

    def on_signal() -> None:
        nonlocal stopping
        if stopping:
            sys.stderr.flush()
            os._exit(exit_codes.INTERRUPTED)  # Temporal finds out by itself that the calls in flight are in doubt
        stopping = True
        stop()

    on_stop_signals(on_signal)
