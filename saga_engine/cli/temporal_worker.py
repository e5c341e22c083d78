"""`saga worker --runtime`: a worker of a Temporal task queue."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from saga_engine.settings import Settings
    from saga_engine.tools.registry import ToolRegistry


def run_temporal_worker(
    settings: Settings,
    registry: ToolRegistry,
    *,
    concurrency: int = 100,
    cached: int = 1000,
    as_json: bool = False,
) -> int:
    """Serve ``settings.runtime`` until SIGTERM or Ctrl-C, then drain; a second one ends the process at once.

    ``concurrency``: calls at a time; ``cached``: sagas that are kept in memory between their turns. Returns the exit
    code. Raises the errors of ``saga_engine.api.temporal.serve``.
    """
    import asyncio

    from saga_engine.cli import exit_codes
    from saga_engine.cli.drive import configured
    from saga_engine.cli.logs import reported
    from saga_engine.cli.loop_watch import watched
    from saga_engine.cli.output import document, note, shown, stdout_kept_clean

    guards = configured(settings)
    if guards.pop("retention", None) is not None:
        note("warning: [retention] is for sagas in a store; Temporal keeps these for its namespace's retention period")

    async def work() -> None:
        from saga_engine.api.temporal import serve

        stopped = asyncio.Event()

        def stop() -> None:
            stopped.set()
            note("worker: stopping: nothing new starts; the calls in flight are awaited (again to end at once)")

        _on_signals(stop)
        await serve(
            settings.runtime,
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
            begun=lambda: note(f"worker: serves {shown(settings.task_queue)} of {shown(settings.runtime)}"),
            **guards,
        )

    with stdout_kept_clean(), reported(note):
        asyncio.run(watched(work(), settings.loop_cpu_s))
    note("worker: stopped; the calls in flight have been awaited")
    if as_json:
        document({"worker": {"runtime": settings.runtime, "task_queue": settings.task_queue}})
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
