"""``saga undo``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from saga_engine.cli import exit_codes
from saga_engine.cli.from_table import option
from saga_engine.cli.options import (
    ByOption,
    DebugOption,
    FullOption,
    JsonOption,
    NoteOption,
    SagaArgument,
    StoreOption,
    ToolsOption,
)

if TYPE_CHECKING:
    from saga_engine.api import Coordinator
    from saga_engine.cli.drive import Driven
    from saga_engine.execution.result import SagaResult
    from saga_engine.runtime.undo import Undo
    from saga_engine.settings import Settings
    from saga_engine.tools.registry import ToolRegistry


def undo(
    saga_id: SagaArgument,
    *,
    accept: Annotated[bool, option("undoSaga", "accept", "--accept")] = False,
    by: ByOption = None,
    note: NoteOption = "",
    tools: ToolsOption = None,
    store: StoreOption = None,
    dry_run: Annotated[bool, option("undoSaga", "dry_run", "--dry-run")] = False,
    full: FullOption = False,
    as_json: JsonOption = False,
    debug: DebugOption = False,  # noqa: ARG001 - read by the command
) -> int:
    """Undo a saga that has completed: its steps in reverse, by a saga of its own.

    A preview is shown first. The new saga owns the effects from then on, so they are undone once. A saga with steps
    that have no undo (a pivot, irreversible steps) is refused, with their list, unless you accept that they remain.
    Repeating the same command continues the same undo.

    Exit codes: 0 everything was undone, 3 accepted steps remain, 4 an operator is asked, 6 refused.

    Examples:
      saga undo trip-42 --tools tools.py --dry-run
      saga undo trip-42 --tools tools.py --note "the customer cancelled"
    """
    from saga_engine.cli.options import person, registry_for, settings_for

    settings = settings_for(store, tools)
    registry = registry_for(settings)
    if dry_run:
        return _look(saga_id, settings, registry, as_json=as_json)
    asked = {"accept": accept, "by": person(by), "note": note}
    return _run(saga_id, asked, settings, registry, as_json=as_json, full=full)


def _look(saga_id: str, settings: Settings, registry: ToolRegistry, *, as_json: bool) -> int:
    import asyncio

    from saga_engine.cli.output import data, document
    from saga_engine.cli.read_only import looking_in_store
    from saga_engine.cli.render_undo import undo_lines
    from saga_engine.runtime.undo import Undo

    async def look() -> Undo:
        async with looking_in_store(settings, saga_id, registry) as coordinator:
            found = await coordinator.undo(saga_id, dry_run=True)
        assert isinstance(found, Undo), "a dry run returns what it would do"
        return found

    found = asyncio.run(look()).to_dict()
    if as_json:
        document(found)
    else:
        data("\n".join(undo_lines(found)))
    return exit_codes.COMPLETED


def _run(
    saga_id: str, asked: dict[str, Any], settings: Settings, registry: ToolRegistry, *, as_json: bool, full: bool
) -> int:
    from saga_engine.cli.drive import drive, driven, finish, stands
    from saga_engine.cli.render_undo import UndoProgress
    from saga_engine.errors import Interrupted, LeaseHeld
    from saga_engine.execution.result import SagaResult

    progress = UndoProgress(saga_id)

    async def work(coordinator: Coordinator) -> Driven:
        async def undone() -> SagaResult:
            outcome = await coordinator.undo(saga_id, on_chosen=progress.chosen, **asked)
            assert isinstance(outcome, SagaResult), "only a dry run returns a preview"
            return outcome

        try:
            outcome = await undone()
        except LeaseHeld as error:
            if error.context.get("saga_id") != progress.undo_id:
                raise  # another process transfers the effects at this moment
            outcome = await coordinator.show(progress.undo_id, full=full)
        return await driven(coordinator, outcome.saga_id, _done(outcome), full=full)

    try:
        found = drive(settings, registry, work, progress)
    except Interrupted as error:
        raise stands(error, settings) from error
    undone = found.outcome.status == "COMPENSATED" and found.outcome.body["report"]["clean"]
    return finish(found, settings, as_json=as_json, full=full, code=exit_codes.COMPLETED if undone else None)


async def _done(outcome: SagaResult) -> SagaResult:
    return outcome
