"""Runs sagas from the command line: the coordinator, Ctrl-C, and the final output.

The first Ctrl-C (or SIGTERM) stops the wait, not the work in progress: nothing new starts, the command awaits and
journals the calls in flight, and closes the lease. The second one ends the process at once; the journal then holds the
intents of the calls in flight, and a resume settles them.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from saga_engine.cli import exit_codes
from saga_engine.cli.hints import go_on_line, resume_line, show_line
from saga_engine.cli.loop_watch import watched
from saga_engine.cli.output import data, document, hint, note, shown, stdout_kept_clean
from saga_engine.cli.words import say
from saga_engine.errors import Interrupted, LeaseHeld, SagaError

if TYPE_CHECKING:
    from saga_engine.api import Coordinator, Engine
    from saga_engine.cli.progress import Progress
    from saga_engine.execution.result import SagaResult
    from saga_engine.ports import Meter
    from saga_engine.settings import Settings
    from saga_engine.telemetry import Spans
    from saga_engine.tools.registry import ToolRegistry

_T = TypeVar("_T")
_E = TypeVar("_E", bound="Engine")


class Driven:
    """A saga at the end of a command.

    Its result, whether another live process continues it, and whether it has a message that nobody has read yet.
    """

    __slots__ = ("elsewhere", "outcome", "unread")

    def __init__(self, outcome: SagaResult, *, elsewhere: bool, unread: bool = False) -> None:
        self.outcome = outcome
        self.elsewhere = elsewhere
        self.unread = unread

    @property
    def exit_code(self) -> int:
        """8 while another process runs it or is to run it, else by its status."""
        waits = self.elsewhere or self.unread
        return exit_codes.STILL_RUNNING if waits else exit_codes.of_status(self.outcome.status)


async def driven(coordinator: Engine, saga_id: str, work: Awaitable[SagaResult], *, full: bool = False) -> Driven:
    """The end of ``work``; for a saga that a live process runs elsewhere, the current answer of ``show``."""
    try:
        outcome = await work
    except LeaseHeld:
        outcome = await coordinator.show(saga_id, full=full)
    if outcome.ended:
        return Driven(outcome, elsewhere=False)
    elsewhere, unread = await coordinator.ownership(saga_id)
    return Driven(outcome, elsewhere=elsewhere, unread=unread > 0)


def drive(
    settings: Settings,
    tools: ToolRegistry,
    work: Callable[[Coordinator], Awaitable[_T]],
    progress: Progress,
    *,
    lasting: bool = False,
    observed: bool = True,
    meters: Sequence[Meter] = (),
) -> _T:
    """Run ``work`` with a coordinator, to its end or to Ctrl-C.

    ``lasting``: it runs many sagas, not one to show. Then ``progress`` gets no records, uvloop runs if it is installed,
    and the objects loaded so far are frozen for the garbage collector. Without ``observed`` it gets no records either.
    ``meters`` measure what becomes durable.

    Raises the errors of ``work``, ``Interrupted``, and ``SettingInvalid`` or ``PlannerUnavailable`` for the settings of
    policy, escalation and planner: nothing begins without the configured parts.
    """
    guards = configured(settings)
    if not lasting:
        # The user of the command reads the question at its end; only a worker has nothing but its log.
        guards.setdefault("on_escalation", ())
    with stdout_kept_clean(), progress.reported_logs():
        opening = store_opened(settings, tools, progress, guards, observed=observed and not lasting, meters=meters)
        job = _drive(opening, settings, work, progress)
        return run_lasting(watched(job, settings.loop_cpu_s)) if lasting else asyncio.run(job)


def drive_any(
    settings: Settings, tools: ToolRegistry, work: Callable[[Engine], Awaitable[_T]], progress: Progress
) -> _T:
    """Like ``drive``, with the runtime that the settings name: a store, or Temporal."""
    if not settings.runtime:
        return drive(settings, tools, work, progress)
    from saga_engine.cli.temporal import sagas_there

    with progress.reported_logs():
        return asyncio.run(_drive(sagas_there(settings, tools, progress), settings, work, progress))


def freeze_loaded() -> None:
    """Freeze what is loaded for the garbage collector: its full collections visit every object that is not frozen."""
    import gc

    gc.collect()
    gc.freeze()


def run_lasting(job: Coroutine[Any, Any, _T]) -> _T:
    """Run what lasts: on uvloop if it is installed, and with the objects loaded so far frozen for the collector."""
    import importlib.util

    freeze_loaded()
    if importlib.util.find_spec("uvloop") is None:
        return asyncio.run(job)
    import uvloop

    return uvloop.run(job)


def configured(settings: Settings) -> dict[str, Any]:
    """The coordinator's configuration from the tables of ``saga.toml``; a missing table configures nothing.

    Policy, limits and secrets are read where every coordinator is opened (``api/governing.py``).
    """
    found: dict[str, Any] = {"settings": settings}
    if settings.escalation:
        from saga_engine.hooks.config import hooks_from

        base, source = settings.origin("escalation")
        found["on_escalation"] = hooks_from(settings.escalation, source=source, base=base, language=settings.language)
    if settings.planner or os.environ.get("SAGA_MODEL"):
        from saga_engine.planner.settings import planner_settings

        found["planner"] = planner_settings(settings.planner, base=settings.origin("planner")[0])
    if settings.holding("retention"):
        from saga_engine.cli.retention import retention_in

        found["retention"] = retention_in(settings)
    return found


@asynccontextmanager
async def store_opened(
    settings: Settings,
    tools: ToolRegistry,
    progress: Progress,
    guards: dict[str, Any],
    *,
    observed: bool,
    meters: Sequence[Meter] = (),
) -> AsyncIterator[Coordinator]:
    """A coordinator with the settings; ``guards``: those of its tables (``configured``)."""
    from saga_engine.api import Coordinator
    from saga_engine.cli.keyring import keyring_for
    from saga_engine.cli.read_only import silence_told

    with silence_told(settings) as silent, _spans(settings) as spans:
        async with Coordinator.open(
            settings.store,
            tools,
            durability=settings.durability,
            lease_s=settings.lease_s,
            patience_s=settings.patience_s,
            keep_finished_s=settings.keep_finished_s,
            queue_limit=settings.queue_limit,
            max_output_bytes=settings.max_output_bytes,
            observers=[progress.observe] if observed else [],
            meters=meters,
            spans=spans,
            on_wait=progress.waiting_for_owner,
            privacy=keyring_for(settings),
            **guards,
        ) as coordinator:
            silent.cancel()
            yield coordinator


@contextmanager
def _spans(settings: Settings) -> Iterator[Spans | None]:
    """Where spans go, if the settings say so; what waits is sent at the end."""
    if not settings.otlp:
        yield None
        return
    from saga_engine.telemetry import Spans

    spans = Spans.at(settings.otlp)
    try:
        yield spans
    finally:
        spans.close(0)  # the coordinator has waited for them


async def _drive(
    opening: AbstractAsyncContextManager[_E],
    settings: Settings,
    work: Callable[[_E], Awaitable[_T]],
    progress: Progress,
) -> _T:
    opened: list[_E] = []

    async def opened_and_done() -> _T:
        async with opening as coordinator:
            opened.append(coordinator)
            return await work(coordinator)

    stopped = asyncio.get_running_loop().create_future()
    _on_signals(stopped, progress, settings)
    async with progress.displayed():
        job = asyncio.create_task(opened_and_done(), name="saga-command")
        await asyncio.wait([job, stopped], return_when=asyncio.FIRST_COMPLETED)
        if not job.done():
            if opened:
                await opened[0].close()
            else:
                job.cancel()  # it still waits for the store
        try:
            return await job
        except asyncio.CancelledError:
            raise Interrupted(say("interrupted.early")) from None
        except SagaError as error:
            if not stopped.done() or isinstance(error, Interrupted):
                raise
            progress.say(shown(str(error)))
            raise Interrupted(say("interrupted.word"), **error.context) from error


def _on_signals(stopped: asyncio.Future[None], progress: Progress, settings: Settings) -> None:
    def on_signal() -> None:
        if stopped.done():
            progress.leave()
            if progress.saga_id:
                note(go_on_line(progress.saga_id, settings, session=progress.session))
            sys.stderr.flush()
            # At once, without waiting even for threads that still run a tool. The journal has their intents.
            os._exit(exit_codes.INTERRUPTED)
        stopped.set_result(None)
        progress.say(say("stopping.there" if settings.runtime else "stopping"))

    on_stop_signals(on_signal)


def on_stop_signals(callback: Callable[[], None]) -> None:
    """Call ``callback`` in the running loop at Ctrl-C and at SIGTERM, each time."""
    loop = asyncio.get_running_loop()
    for name in (signal.SIGINT, signal.SIGTERM):
        try:
            loop.add_signal_handler(name, callback)
        except NotImplementedError:  # an event loop of Windows
            signal.signal(name, lambda *_: loop.call_soon_threadsafe(callback))


def stands(error: Interrupted, settings: Settings, *, session: bool = False, saga_id: str = "") -> Interrupted:
    """The message of an interrupted command about its saga, if it had one already.

    ``saga_id``: the saga that continues without the command, if workers run it.
    """
    if error.context.get("goes_on"):
        return Interrupted(
            say("interrupted.there", saga=saga_id),
            hint=go_on_line(saga_id, settings),
            saga_id=saga_id,
        )
    saga_id = error.context.get("saga_id", "")
    if not saga_id:
        return error
    return Interrupted(
        say("interrupted.here", saga=saga_id),
        hint=go_on_line(saga_id, settings, session=session),
        saga_id=saga_id,
    )


def finish(
    found: Driven,
    settings: Settings,
    *,
    as_json: bool,
    code: int | None = None,
    left: bool = False,
    full: bool = False,
) -> int:
    """Print the status of the saga, as ``show`` does; returns the exit code.

    ``code``: instead of that of the status. ``left``: the command leaves the saga to workers, and says so itself.
    """
    from saga_engine.cli.render import summary_lines
    from saga_engine.cli.render_calls import has_traceback

    body: dict[str, Any] = found.outcome.to_dict(full=full)
    saga_id = found.outcome.saga_id
    if as_json:
        document(body)
    else:
        unread = found.unread and not found.elsewhere
        data("\n".join(summary_lines(body, settings, unread=unread)))
        if found.elsewhere and not left:
            hint(say("hint.elsewhere", line=show_line(saga_id, settings)))
        elif unread and not left:
            go_on = resume_line(saga_id, settings, session="session" in body)
            hint(say("hint.recorded", line=go_on))
        if has_traceback(body):
            hint(say("debug.there", line=show_line(saga_id, settings)))
    return found.exit_code if code is None else code
