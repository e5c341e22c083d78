"""From a journal to a state: reads records, restores large values, and compiles their plan."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any, Final, TypeVar

import msgspec

from saga_engine.core.codec import Stored, abridge, decode, inflate, refs_of
from saga_engine.core.effects import FORWARD
from saga_engine.core.fold import fold, started_of
from saga_engine.core.masking import is_sensitive, masked_records
from saga_engine.core.plan_growth import Growth
from saga_engine.core.question_view import asked_params
from saga_engine.core.records import AnyRecord
from saga_engine.core.report import answers
from saga_engine.core.state import State
from saga_engine.core.state_values import OpenQuestion
from saga_engine.core.steps import lacking
from saga_engine.core.transitions import SAGA_FINAL
from saga_engine.errors import JournalUnreadable, SagaError, SagaNotFound, ToolMissing
from saga_engine.execution.aside import aside, beside
from saga_engine.execution.plan_cache import compile_journalled
from saga_engine.execution.result import SagaResult
from saga_engine.plan import words
from saga_engine.plan.tool_spec import ToolCatalog
from saga_engine.plan.values import printable
from saga_engine.ports import Store

_T = TypeVar("_T")

#: A journal with more records is folded beside the event loop, unless it is driven here.
_LONG: Final = 1_000
#: Large values of more bytes are decoded beside the event loop.
_LARGE_BYTES: Final = 256 * 1024


async def read_records(
    store: Store, saga_id: str, start: int = 0, *, whole: bool = True, most: int = 0
) -> list[AnyRecord]:
    """The saga's records from ``start`` on, ``most`` of them (0: all); ``whole`` restores large values.

    Raises ``SagaNotFound``, ``JournalUnreadable`` or ``StoreUnavailable``.
    """
    return await decoded(store, saga_id, await store.read(saga_id, start, most), whole=whole)


async def shown_records(store: Store, saga_id: str, *, whole: bool) -> list[AnyRecord]:
    """The saga's records for display: sensitive values are masked. Raises what ``read_records`` raises."""
    records = await read_records(store, saga_id, whole=whole)
    if whole or not is_sensitive(records):
        return masked_records(records)
    return masked_records(records, await at_hand(store, saga_id, records))


async def at_hand(store: Store, saga_id: str, records: list[AnyRecord]) -> list[AnyRecord]:
    """The records with those large values restored that the store still has."""
    try:
        return await _inflated(store, saga_id, records)
    except JournalUnreadable:
        return records


async def decoded(store: Store, saga_id: str, data: Sequence[bytes], *, whole: bool = True) -> list[AnyRecord]:
    """Decoded records with large values restored; raises what ``read_records`` raises."""
    records = await _sooner(len(data), lambda: [decode(piece) for piece in data])
    return await _inflated(store, saga_id, records) if whole else records


async def _sooner(count: int, work: Callable[[], _T]) -> _T:
    """Work on so many records: of a long journal beside the loop."""
    return work() if count <= _LONG else await aside(work)


async def _inflated(store: Store, saga_id: str, records: list[AnyRecord]) -> list[AnyRecord]:
    with_values = [record for record in records if refs_of(record)]
    if not with_values:
        return records
    values = await store.values(saga_id, sorted({ref.digest for each in with_values for ref in refs_of(each).values()}))
    whole = partial(_whole, records, values)
    return await aside(whole) if sum(map(len, values.values())) > _LARGE_BYTES else whole()


def _whole(records: list[AnyRecord], values: Mapping[str, bytes]) -> list[AnyRecord]:
    return [inflate(record, values) if refs_of(record) else record for record in records]


def state_of(records: list[AnyRecord], catalog: ToolCatalog | None = None) -> State:
    """The state that the records fold to."""
    started = started_of(records)
    return fold(records, compile_journalled(started, catalog), Growth(started, catalog))


async def beside_state(records: list[AnyRecord], work: Callable[[], _T], *parts: Any) -> _T:
    """Work on what these records fold to: beside the loop if the journal, its plan or one of the ``parts`` is large."""
    if len(records) > _LONG:
        return await aside(work)
    # (As text: to look at its values takes longer than what most sagas need this for.)
    return await beside(work, msgspec.json.encode(started_of(records).plan), *parts)


async def folded_state(records: list[AnyRecord], catalog: ToolCatalog | None = None) -> State:
    """``state_of``; of a large saga beside the loop."""
    return await beside_state(records, partial(state_of, records, catalog))


async def look(store: Store, saga_id: str, *, full: bool = False) -> State:
    """The state of a saga for views. Without ``full``, large outputs are not fetched (``codec.Stored``).

    Raises ``SagaNotFound``, ``JournalUnreadable`` or ``StoreUnavailable``. Without ``full``, a large output that is
    missing from the store is no error.
    """
    if full:
        return await folded_state(await read_records(store, saga_id))
    return await look_at(store, saga_id, await read_records(store, saga_id, whole=False))


async def shown(store: Store, saga_id: str, *, full: bool = False) -> SagaResult:
    """``look``, with the answers that the journal has."""
    records = await read_records(store, saga_id, whole=full)
    state = await folded_state(records) if full else await look_at(store, saga_id, records)
    said = await beside_state(records, partial(answers, state, records))
    return SagaResult(state, full=full, answers=said)


async def look_at(store: Store, saga_id: str, records: list[AnyRecord]) -> State:
    """``look`` without ``full``, for records that were read with large values as references."""
    # Steps and the items of lists are part of the plan, in whatever way they were added.
    planned = [record for record in records if {"steps", "items"} & refs_of(record).keys() or record is records[0]]
    whole = {id(old): new for old, new in zip(planned, await _inflated(store, saga_id, planned), strict=True)}
    state = await folded_state([whole.get(id(record)) or abridge(record) for record in records])
    if any(asked_params(state, asked.step, asked.direction) is None for asked in _about_calls(state)):
        # An operator is asked about the exact call, and its params may bind a large output.
        try:
            return await folded_state(await _inflated(store, saga_id, records))
        except JournalUnreadable:
            return state
    return state


def _about_calls(state: State) -> list[OpenQuestion]:
    """The questions about a call that could be shown; that of an undo which is missing has none."""
    asked = [question for question in state.questions.values() if question.of_call]
    return [each for each in asked if each.direction == FORWARD or state.rollback_of(each.step) is not None]


async def output_of(store: Store, saga_id: str, step: str) -> Any:
    """The output of one step that happened, whole; no other large value is fetched.

    Raises ``SagaNotFound`` if there is none, ``JournalUnreadable`` or ``StoreUnavailable``.
    """
    state = await look(store, saga_id)
    index = state.plan.by_key.get(step)
    if index is None or not state.steps[index].effect:
        raise SagaNotFound(f"step {printable(step, 80)} of saga {saga_id} has no output", saga_id=saga_id)
    output = state.steps[index].output
    if not isinstance(output, Stored):
        return output
    digest = output.ref.digest
    return msgspec.json.decode((await store.values(saga_id, [digest]))[digest])


async def drivable(saga_id: str, records: list[AnyRecord], catalog: ToolCatalog) -> State:
    """The state of a saga that can be driven with these tools; nothing has been written yet.

    Raises ``ToolMissing``.
    """
    return await beside_state(records, partial(_drivable, saga_id, records, catalog))


def _drivable(saga_id: str, records: list[AnyRecord], catalog: ToolCatalog) -> State:
    try:
        state = state_of(records, catalog)
    except SagaError:
        _require_tools(saga_id, state_of(records), catalog)  # steps that were added later may need a tool
        raise
    _require_tools(saga_id, state, catalog)
    return state


def _needed(state: State) -> Collection[str]:
    """The tools that may be called for a saga; nothing of one that is undone later is called again, but undone."""
    if not state.undo_of:
        return state.plan.called()
    owned = [step.index for step in state.plan.steps if state.owns(step.index)]
    wholes = [whole for index in owned if (whole := state.whole_rollback(index)) is not None]
    return {undo.tool for whole in wholes for undo in (whole, *whole.then) if undo.tool}


def _require_tools(saga_id: str, state: State, catalog: ToolCatalog) -> None:
    if state.status in SAGA_FINAL:
        return
    if not_brought := lacking(state):
        raise words.missing(not_brought, saga_id=saga_id)
    missing = sorted(name for name in _needed(state) if catalog.spec(name) is None)
    if missing:
        known = ", ".join(catalog.names()) or "none"
        hint = f"give the tools with --tools (as at submission) or in saga.toml; registered: {known}"
        if state.session:
            hint = (
                f"run its agent again with the id {saga_id}; tools that only the agent has are given with "
                f"session(…, tools=[…]); registered: {known}"
            )
        raise ToolMissing(
            f"saga {saga_id} needs tools that are not registered here: {', '.join(missing)}",
            hint=hint,
            saga_id=saga_id,
            tools=missing,
        )
