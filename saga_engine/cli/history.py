"""``saga history``."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from saga_engine.cli import exit_codes
from saga_engine.cli.options import DebugOption, FullOption, JsonOption, SagaArgument, StoreOption
from saga_engine.cli.temporal import RuntimeOption, TaskQueueOption
from saga_engine.cli.words import say

if TYPE_CHECKING:
    from saga_engine.settings import Settings

_COLUMNS: Final = ("seq", "at", "k", "step", "direction", "v", "refs")
_CELL_CHARS: Final = 200
_VALUE_CHARS: Final = 80


def history(
    saga_id: SagaArgument,
    *,
    full: FullOption = False,
    store: StoreOption = None,
    runtime: RuntimeOption = None,
    task_queue: TaskQueueOption = None,
    as_json: JsonOption = False,
    debug: DebugOption = False,  # noqa: ARG001 - read by the command
) -> int:
    """Print a saga's journal, one record a line. No tools are needed.

    A large value appears as its size, its digest and its cut form; --full fetches it and cuts nothing.

    Examples:
      saga history trip-42
      saga history trip-42 --full --json
    """
    import asyncio

    from saga_engine.cli.temporal import settings_there

    settings = settings_there(runtime, task_queue, store)
    told(saga_id, asyncio.run(_records(settings, saga_id, full=full)), full=full, as_json=as_json)
    return exit_codes.COMPLETED


def told(saga_id: str, records: list[dict[str, Any]], *, full: bool, as_json: bool) -> None:
    """Print the records of a saga."""
    from saga_engine.cli.output import data, document, fits, table

    if as_json:
        document({"saga_id": saga_id, "records": records})
    else:
        rows = Rows(sys.maxsize if full else _VALUE_CHARS).of(records)
        titles = [say(f"title.{each}") for each in ("seq", "time", "record", "step", "details")]
        if not fits(titles, rows, limit_chars=_CELL_CHARS):
            from saga_engine.cli import times

            # The time of day distinguishes records.
            rows = [[seq, times.clock(one["at"]), *rest] for one, (seq, _, *rest) in zip(records, rows, strict=True)]
        data(table(titles, rows, limit_chars=sys.maxsize if full else _CELL_CHARS))


async def _records(settings: Settings, saga_id: str, *, full: bool) -> list[dict[str, Any]]:
    from saga_engine.cli.read_only import looking

    async with looking(settings, saga_id) as coordinator:
        return await coordinator.history(saga_id, full=full)


class Rows:
    """The records of one saga, in order, as lines of the table: number, time, kind, step, details."""

    def __init__(self, limit_chars: int = _VALUE_CHARS) -> None:
        self._limit_chars = limit_chars
        #: The present call of each undo of several calls: only its intents say which one it is.
        self._calls: dict[str, str] = {}

    def of(self, records: Iterable[dict[str, Any]]) -> list[list[Any]]:
        """The lines of these records, which follow those before."""
        return [_row(record, self._step(record), self._limit_chars) for record in records]

    def _step(self, record: dict[str, Any]) -> str:
        step = str(record.get("step", ""))
        call = record.get("call")
        if record["k"] == "StepIntended" and isinstance(call, dict):
            self._calls[step] = f" {call.get('number', 0) + 1}/{call['of']}"
        if record.get("direction") != "compensate":
            return step
        return say("history.undo", step=step, call=self._calls.get(step, ""))


def _row(record: dict[str, Any], step: str, limit_chars: int) -> list[Any]:
    from saga_engine.cli import times

    details = {name: value for name, value in record.items() if name not in _COLUMNS}
    if record["k"] == "StepIntended":
        details.pop("call", None)  # the column of the step says it
    said = [_detail(name, value, limit_chars) for name, value in details.items()]
    said += [f"{name}={_large(ref, limit_chars)}" for name, ref in record.get("refs", {}).items()]
    return [str(record["seq"]), times.local(record["at"]), record["k"], step, " ".join(said)]


def _detail(name: str, value: Any, limit_chars: int) -> str:
    from saga_engine.cli import times
    from saga_engine.plan.values import cut

    if name in ("delay_ms", "again_ms", "age_ms") and value >= 0:
        name, value = name.removesuffix("_ms"), times.duration(value)
    elif name in ("expires_ms", "due_ms", "until_ms") and value is not None:
        name, value = {"expires_ms": "expires"}.get(name, "until"), times.local(value)
    return f"{name}={cut(value, limit_chars)}"


def _large(ref: dict[str, Any], limit_chars: int) -> str:
    """A value that is stored beside the journal."""
    from saga_engine.cli.render import size_words
    from saga_engine.plan.values import cut

    value = cut(ref.get("brief", ref.get("summary")), limit_chars)
    return f"({size_words(ref['bytes'])}, sha256 {ref['digest'][:12]}) {value}"
