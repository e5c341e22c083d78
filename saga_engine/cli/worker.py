"""``saga worker``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from saga_engine.cli import exit_codes
from saga_engine.cli.options import DebugOption, JsonOption, StoreOption, ToolsOption
from saga_engine.cli.temporal import RuntimeOption, TaskQueueOption

if TYPE_CHECKING:
    from saga_engine.api import Coordinator
    from saga_engine.cli.progress import Progress
    from saga_engine.ports import Meter
    from saga_engine.runtime.worker import Report


def worker(
    *,
    tools: ToolsOption = None,
    store: StoreOption = None,
    concurrency: Annotated[
        int,
        typer.Option("--concurrency", metavar="N", min=1, max=100_000, help="The maximum number of sagas at a time."),
    ] = 256,
    partitions: Annotated[
        str | None,
        typer.Option(
            "--partitions", metavar="LIST", help="The partitions of the queue to serve, such as 0-7,12. Default: all."
        ),
    ] = None,
    metrics: Annotated[
        str | None,
        typer.Option(
            "--metrics",
            metavar="HOST:PORT",
            help="Serve Prometheus metrics at /metrics, and probes at /healthz and /readyz.",
        ),
    ] = None,
    runtime: RuntimeOption = None,
    task_queue: TaskQueueOption = None,
    as_json: JsonOption = False,
    debug: DebugOption = False,  # noqa: ARG001 - read by the command
) -> int:
    """Take sagas from the queue and run them, until it is told to stop.

    Start as many as you like, on as many machines as reach the store. A worker also takes over the sagas of processes
    that died. SIGTERM or Ctrl-C drains it: it takes nothing more, the calls in flight are awaited and journalled, and
    its sagas go back into the queue for the others. A second one ends it at once, as a crash would.

    Examples:
      saga worker --tools booking.tools
      saga worker --tools tools.py --metrics 127.0.0.1:9464
      saga worker --tools tools.py --runtime temporal://localhost:7233/default --task-queue trips
    """
    from saga_engine.cli.drive import drive
    from saga_engine.cli.options import registry_for
    from saga_engine.cli.progress import Progress
    from saga_engine.cli.temporal import settings_there
    from saga_engine.cli.temporal_worker import run_temporal_worker

    chosen = None if partitions is None else _numbers(partitions)
    settings = settings_there(runtime, task_queue, store, tools)
    registry = registry_for(settings)
    if not len(registry):
        from saga_engine.errors import SettingInvalid

        raise SettingInvalid(
            "a worker without tools can run no saga", hint="give them with --tools, SAGA_TOOLS or saga.toml"
        )
    if settings.runtime:
        _refuse_in_temporal(partitions, metrics, settings.otlp)
        return run_temporal_worker(settings, registry, concurrency=concurrency, as_json=as_json)
    progress = Progress("worker", {}, many=True)

    working: list[Coordinator] = []

    async def work(coordinator: Coordinator) -> Report:
        working.append(coordinator)
        progress.say(f"worker: up to {concurrency} sagas at a time from {coordinator.store.url}")
        return await coordinator.work(concurrency=concurrency, partitions=chosen)

    with _measured(metrics, progress, lambda: bool(working) and working[0].takes_sagas) as meters:
        report = drive(settings, registry, work, progress, lasting=True, meters=meters)
    _tell(report, as_json=as_json)
    return exit_codes.COMPLETED


def _tell(report: Report, *, as_json: bool) -> None:
    from saga_engine.cli.output import document, note

    if as_json:
        from msgspec import to_builtins

        document({"worker": to_builtins(report)})
        return
    ended = ", ".join(f"{count} {status}" for status, count in sorted(report.ended.items())) or "none"
    taken = f"{report.taken} saga{'' if report.taken == 1 else 's'}"
    note(f"worker: stopped after taking {taken} (ended here: {ended})")


def _refuse_in_temporal(partitions: str | None, metrics: str | None, otlp: str) -> None:
    if partitions is not None:
        raise typer.BadParameter("a worker of --runtime has a --task-queue instead", param_hint="--partitions")
    if metrics is not None:
        raise typer.BadParameter("a worker of --runtime has Temporal's own metrics", param_hint="--metrics")
    if otlp:
        from saga_engine.errors import SettingInvalid

        raise SettingInvalid(
            "otlp is set, and sagas in Temporal have no spans of the engine",
            hint="Temporal's own interceptor makes spans; unset otlp (SAGA_OTLP) for this worker",
        )


@contextmanager
def _measured(address: str | None, progress: Progress, ready: Callable[[], bool]) -> Iterator[Sequence[Meter]]:
    """A meter whose metrics are served meanwhile, if there is an address."""
    if address is None:
        yield ()
        return
    from saga_engine.server.exposition import exposed

    with exposed(address, ready) as (metrics, url):
        progress.say(f"worker: metrics at {url}")
        yield (metrics,)


def _numbers(text: str) -> list[int]:
    """``0-3,7`` as numbers."""
    found: set[int] = set()
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()) or len(first) > 6 or len(last) > 6:
            raise typer.BadParameter(f"{part.strip()!r} is no partition: write 3 or 0-7", param_hint="--partitions")
        found.update(range(int(first), int(last or first) + 1))
    return sorted(found)
