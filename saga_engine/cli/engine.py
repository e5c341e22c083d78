"""Commands about sagas that run in Temporal: `--engine`, `--task-queue`, and the worker."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

if TYPE_CHECKING:
    import asyncio

    from saga_engine.api.temporal import TemporalCoordinator
    from saga_engine.cli.progress import Progress
    from saga_engine.plan.model import Plan
    from saga_engine.runtime.outcome import Outcome
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
    """Run ``work`` with a coordinator of the engine's sagas. Raises what it raises."""
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
        ) as coordinator:
            if progress is None:
                return await work(coordinator)
            async with progress.displayed():
                return await work(coordinator)

    with stdout_kept_clean():
        return asyncio.run(opened())


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
            return await coordinator.submit_detached(plan, saga_id=saga_id, input=given or None)
        await coordinator.submit(plan, saga_id=saga_id, input=given or None)
        return await _waited(coordinator, saga_id, progress)

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
        return await _waited(coordinator, saga_id, progress)

    outcome = _interruptible(settings, registry_for(settings), work, progress, saga_id)
    return _finish(outcome, settings, full=False, as_json=as_json)


async def _waited(coordinator: TemporalCoordinator, saga_id: str, progress: Progress) -> Outcome:
    told = False

    def unheard() -> None:
        nonlocal told
        if not told:
            progress.say("no worker answers on this task queue: the saga waits for one (saga worker --engine …)")
            told = True

    return await coordinator.wait(saga_id, unheard=unheard)


def _interruptible(
    settings: Settings,
    registry: ToolRegistry,
    work: Callable[[TemporalCoordinator], Awaitable[Outcome]],
    progress: Progress,
    saga_id: str,
) -> Outcome:
    from saga_engine.cli.follow_up import options_line
    from saga_engine.errors import Interrupted

    try:
        return ask_there(settings, registry, work, progress=progress)
    except KeyboardInterrupt:
        line = " ".join(["saga", "show", saga_id, *options_line(settings)])
        raise Interrupted(
            f"saga {saga_id} goes on without you: its workers drive it", hint=f"follow it with: {line}", saga_id=saga_id
        ) from None


def _finish(outcome: Outcome, settings: Settings, *, full: bool, as_json: bool) -> int:
    from saga_engine.cli.running import Driven, finish

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
    from saga_engine.cli.output import document, note, shown, stdout_kept_clean
    from saga_engine.cli.running import _configured

    guards = _configured(settings)

    async def work() -> None:
        from saga_engine.api.temporal import serve

        stopped = asyncio.Event()
        _on_signals(stopped)
        await serve(
            settings.engine,
            registry,
            task_queue=settings.task_queue,
            store=settings.store,
            durability=settings.durability,
            lease_s=settings.lease_s,
            patience_s=settings.patience_s,
            concurrency=concurrency,
            cached=cached,
            stopped=stopped,
            begun=lambda: note(f"worker: serves {shown(settings.task_queue)} of {shown(settings.engine)}"),
            **guards,
        )

    with stdout_kept_clean():
        asyncio.run(work())
    note("worker: stopped; the calls in flight have been awaited")
    if as_json:
        document({"worker": {"engine": settings.engine, "task_queue": settings.task_queue}})
    return exit_codes.COMPLETED


def _on_signals(stopped: asyncio.Event) -> None:
    import asyncio
    import os
    import signal
    import sys

    from saga_engine.cli import exit_codes
    from saga_engine.cli.output import note

    loop = asyncio.get_running_loop()

    def on_signal() -> None:
        if stopped.is_set():
            sys.stderr.flush()
            os._exit(exit_codes.INTERRUPTED)  # Temporal finds out by itself that the calls in flight are in doubt
        stopped.set()
        note("worker: stopping: the calls in flight are awaited, nothing new starts (again to end at once)")

    for name in (signal.SIGINT, signal.SIGTERM):
        try:
            loop.add_signal_handler(name, on_signal)
        except NotImplementedError:  # an event loop of Windows
            signal.signal(name, lambda *_: loop.call_soon_threadsafe(on_signal))
