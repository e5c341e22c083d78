"""``saga show``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from saga_engine.cli import exit_codes
from saga_engine.cli.options import DebugOption, JsonOption, SagaArgument, StoreOption

if TYPE_CHECKING:
    from saga_engine.runtime.outcome import Outcome
    from saga_engine.settings import Settings


def show(
    saga_id: SagaArgument,
    *,
    store: StoreOption = None,
    as_json: JsonOption = False,
    debug: DebugOption = False,  # noqa: ARG001 - read by the command
) -> int:
    """Show where a saga stands: its steps, its report, and what it asks. No tools are needed.

    The exit code is that of its status: 0 completed, 3 undone or abandoned, 4 needs a person, 8 still running.

    Examples:
      saga show trip-42
      saga show trip-42 --json
    """
    import asyncio

    from saga_engine.cli.options import settings_for
    from saga_engine.cli.output import data, document

    settings = settings_for(store)
    outcome = asyncio.run(_outcome(settings, saga_id))
    if as_json:
        document(outcome.to_dict())
    else:
        from saga_engine.cli.saga_view import whole_lines

        data("\n".join(whole_lines(outcome.body, settings)))
    return exit_codes.of_status(outcome.status)


async def _outcome(settings: Settings, saga_id: str) -> Outcome:
    from saga_engine.api import Coordinator

    async with Coordinator.open(
        settings.store, durability=settings.durability, patience_s=settings.patience_s
    ) as coordinator:
        return await coordinator.show(saga_id)
