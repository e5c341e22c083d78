"""``saga show --follow``: a saga's records as they become durable, whichever process runs it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from saga_engine.api import Engine
    from saga_engine.settings import Settings

_ENDS: Final = frozenset({"SagaCompleted", "SagaCompensated", "SagaWaived"})


def follow_saga(settings: Settings, saga_id: str) -> None:
    """Print a line for each record until the saga has ended or waits. Raises ``SagaNotFound``."""
    import asyncio

    asyncio.run(_looked(settings, saga_id))


async def _looked(settings: Settings, saga_id: str) -> None:
    from saga_engine.cli.read_only import looking

    async with looking(settings, saga_id) as coordinator:
        await _follow(coordinator, saga_id)


async def _follow(coordinator: Engine, saga_id: str) -> None:
    from saga_engine.cli.history import Rows
    from saga_engine.cli.output import note, shown
    from saga_engine.cli.words import say

    rows = Rows()
    length = len(await coordinator.history(saga_id)) - 1
    async for record in coordinator.follow(saga_id):
        ((seq, at, kind, step, details),) = rows.of([record])
        about = say("follow.step", step=step) if step else ""
        note(shown(f"{seq:>4}  {at}  {kind}{about}  {details}".rstrip(), 300))
        if record["seq"] < length:
            continue  # earlier records are printed as they were, also if the saga waited then
        if kind in _ENDS:
            return
        if (kind == "SagaEscalated" or record["seq"] == length) and await _asks(coordinator, saga_id):
            return


async def _asks(coordinator: Engine, saga_id: str) -> bool:
    """Whether only an operator can move the saga on: an answer that is recorded and not yet read will move it."""
    # In this order: an answer that is read between the two has left its record for the second.
    unread = (await coordinator.ownership(saga_id)).unread
    return not unread and (await coordinator.show(saga_id)).status == "ESCALATED"
