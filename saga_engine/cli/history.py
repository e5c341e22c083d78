"""``saga history``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from saga_engine.cli import exit_codes
from saga_engine.cli.options import DebugOption, JsonOption, SagaArgument, StoreOption

if TYPE_CHECKING:
    from saga_engine.settings import Settings

_COLUMNS: Final = ("seq", "at", "k", "step", "direction", "v")
_CELL_CHARS: Final = 200


def history(
    saga_id: SagaArgument,
    *,
    store: StoreOption = None,
    as_json: JsonOption = False,
    debug: DebugOption = False,  # noqa: ARG001 - read by the command
) -> int:
    """Print a saga's journal, one record a line. No tools are needed.

    Example:
      saga history trip-42
    """
    import asyncio

    from saga_engine.cli.options import settings_for
    from saga_engine.cli.output import data, document, table

    records = asyncio.run(_records(settings_for(store), saga_id))
    if as_json:
        document({"saga_id": saga_id, "records": records})
    else:
        data(
            table(["SEQ", "TIME", "RECORD", "STEP", "DETAILS"], [_row(one) for one in records], limit_chars=_CELL_CHARS)
        )
    return exit_codes.COMPLETED


async def _records(settings: Settings, saga_id: str) -> list[dict[str, Any]]:
    from saga_engine.api import Coordinator

    async with Coordinator.open(
        settings.store, durability=settings.durability, patience_s=settings.patience_s
    ) as coordinator:
        return await coordinator.history(saga_id)


def _row(record: dict[str, Any]) -> list[Any]:
    from saga_engine.cli import times

    step = record.get("step", "")
    if record.get("direction") == "compensate":
        step = f"{step} undo"
    details = {name: value for name, value in record.items() if name not in _COLUMNS}
    said = " ".join(f"{name}={_short(value)}" for name, value in details.items())
    return [str(record["seq"]), times.local(record["at"]), record["k"], step, said]


def _short(value: Any) -> str:
    from saga_engine.plan.values import cut

    return cut(value, 80)
