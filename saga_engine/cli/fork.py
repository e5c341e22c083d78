"""``saga fork``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, NamedTuple

from saga_engine.cli import exit_codes
from saga_engine.cli.from_table import option
from saga_engine.cli.options import DebugOption, FullOption, JsonOption, SagaArgument, StoreOption, ToolsOption

if TYPE_CHECKING:
    from pathlib import Path

    from saga_engine.api import Coordinator
    from saga_engine.cli.drive import Driven
    from saga_engine.execution.result import SagaResult
    from saga_engine.runtime.fork import Fork
    from saga_engine.settings import Settings
    from saga_engine.tools.registry import ToolRegistry


def fork(
    saga_id: SagaArgument,
    *,
    plan: Annotated[
        str | None,
        option(
            *("forkSaga", "plan", "--plan"),
            metavar="PLAN",
            help="The corrected plan (JSON), or -. Default: the plan of the saga.",
        ),
    ] = None,
    run_from: Annotated[
        str | None,
        option("forkSaga", "run_from", "--from", metavar="STEP"),
    ] = None,
    new_id: Annotated[
        str | None,
        option("forkSaga", "new_id", "--id", metavar="NEW"),
    ] = None,
    tools: ToolsOption = None,
    store: StoreOption = None,
    dry_run: Annotated[bool, option("forkSaga", "dry_run", "--dry-run")] = False,
    full: FullOption = False,
    as_json: JsonOption = False,
    debug: DebugOption = False,  # noqa: ARG001 - read by the command
) -> int:
    """Create a saga that reuses the effects of another saga's unchanged steps.

    A preview is shown first. Reused steps are not called again, and the new saga undoes them if it fails. The other
    saga must have ended or wait for an operator; in the second case it transfers the reused effects and undoes the
    rest. Repeating the same command continues the same fork.

    A fork of a session reuses the calls before --from, and waits: run its agent again with the fork's id.

    Examples:
      saga fork trip-42 --plan mended.json --tools tools.py --dry-run
      saga fork trip-42 --plan mended.json --tools tools.py
      saga fork trip-42 --from pay --tools tools.py
    """
    from saga_engine.cli.options import plan_source, registry_for, settings_for
    from saga_engine.execution.ids import check_saga_id

    if new_id is not None:
        check_saga_id(new_id, "--id")
    settings = settings_for(store, tools)
    wanted = Wanted(saga_id, None if plan is None else plan_source(plan), run_from, new_id)
    registry = registry_for(settings)
    if dry_run:
        return _look(wanted, settings, registry, as_json=as_json)
    return _run(wanted, settings, registry, as_json=as_json, full=full)


class Wanted(NamedTuple):
    """The requested fork."""

    of: str
    plan: bytes | Path | None
    run_from: str | None
    new_id: str | None


def _look(wanted: Wanted, settings: Settings, registry: ToolRegistry, *, as_json: bool) -> int:
    import asyncio

    from saga_engine.cli.output import data, document
    from saga_engine.cli.read_only import looking_in_store
    from saga_engine.cli.render_fork import fork_lines
    from saga_engine.runtime.fork import Fork

    async def look() -> Fork:
        async with looking_in_store(settings, wanted.of, registry) as coordinator:
            found = await coordinator.fork(
                wanted.of, plan=wanted.plan, run_from=wanted.run_from, new_id=wanted.new_id, dry_run=True
            )
        assert isinstance(found, Fork), "a dry run returns what it would do"
        return found

    found = asyncio.run(look())
    if as_json:
        document(found.to_dict())
    else:
        data("\n".join(fork_lines(found)))
    return exit_codes.COMPLETED


def _run(wanted: Wanted, settings: Settings, registry: ToolRegistry, *, as_json: bool, full: bool) -> int:
    from saga_engine.cli.drive import drive, driven, finish, stands
    from saga_engine.cli.hints import rerun_line
    from saga_engine.cli.output import hint
    from saga_engine.cli.render_fork import ForkProgress
    from saga_engine.cli.words import say
    from saga_engine.errors import Interrupted, LeaseHeld
    from saga_engine.execution.result import SagaResult

    progress = ForkProgress(wanted.of)

    async def forked(coordinator: Coordinator) -> SagaResult:
        outcome = await coordinator.fork(
            wanted.of,
            plan=wanted.plan,
            run_from=wanted.run_from,
            new_id=wanted.new_id,
            on_chosen=progress.chosen,
        )
        assert isinstance(outcome, SagaResult), "only a dry run returns a fork"
        return outcome

    async def work(coordinator: Coordinator) -> Driven:
        try:
            outcome = await forked(coordinator)
        except LeaseHeld as error:
            if error.context.get("saga_id") != progress.fork_id:
                raise  # another process owns the other saga: the fork has not begun
            outcome = await coordinator.show(progress.fork_id, full=full)
        return await driven(coordinator, outcome.saga_id, _done(outcome), full=full)

    try:
        found = drive(settings, registry, work, progress)
    except Interrupted as error:
        raise stands(error, settings) from error
    waits = progress.session and _waits_for_agent(found)
    code = finish(found, settings, as_json=as_json, full=full, code=exit_codes.COMPLETED if waits else None)
    if waits and not found.outcome.body["questions"]:
        hint(say("reuses-nothing", line=rerun_line(found.outcome.saga_id)))
    return code


def _waits_for_agent(found: Driven) -> bool:
    """Whether the fork of a session only waits for its agent: all that a command can do is done."""
    body = found.outcome.body
    open_ = body.get("session") == "open" and not (found.elsewhere or found.unread)
    return (
        open_
        and body["status"] in ("PENDING", "RUNNING", "ESCALATED")
        and all(question["kind"] == "session-kept" for question in body["questions"])
    )


async def _done(outcome: SagaResult) -> SagaResult:
    return outcome
