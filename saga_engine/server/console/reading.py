"""Reads a saga for its page. What was read of a journal is kept: once it has grown, only what was added is read."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from saga_engine.analysis.cancellation import CancelPreview, preview_cancel
from saga_engine.core.masking import is_sensitive, mask_of, masked_records
from saga_engine.core.report import answers
from saga_engine.core.views import entry
from saga_engine.execution.plan_cache import no_collection
from saga_engine.execution.result import SagaResult
from saga_engine.runtime.journal import at_hand, beside_state, look_at, read_records
from saga_engine.server.console.drawing import Node
from saga_engine.server.console.timeline import Timeline, timeline

if TYPE_CHECKING:
    from saga_engine.api import Coordinator
    from saga_engine.core.records import AnyRecord
    from saga_engine.core.state import State
    from saga_engine.plan.compiled import CompiledStep
    from saga_engine.ports import Head

#: How many sagas are kept: people look at few at a time.
_KEPT: Final = 8


@dataclass(frozen=True, slots=True)
class Read:
    """A saga as its journal has it. ``records`` are as they may be shown: sensitive values are masked in them."""

    state: State
    body: Mapping[str, Any]
    lanes: Timeline
    records: Sequence[AnyRecord]
    raw: Sequence[AnyRecord]

    def history(self, first: int, count: int) -> list[dict[str, Any]]:
        """A window of the records as plain JSON, each with its ``seq``."""
        window = self.records[first : first + count]
        return [entry(seq, record) for seq, record in enumerate(window, first)]

    def graph(self, first: int, count: int) -> list[Node]:
        """A window of the steps with their dependencies."""
        return nodes_of(self.state.plan.steps[first : first + count], self.state)

    async def cancel(self) -> CancelPreview:
        """What a cancel would do."""
        return await beside_state(list(self.raw), partial(preview_cancel, self.state))


class Reading:
    """Reads sagas, and remembers the last ones."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[int, str], tuple[tuple[int, int], Read]] = OrderedDict()

    async def saga(self, engine: Coordinator, saga_id: str) -> tuple[Read, Head]:
        """A saga and its head. Raises ``SagaNotFound``, ``JournalUnreadable`` or ``StoreUnavailable``."""
        store = engine.store
        head = await store.head(saga_id)
        place = (id(engine), saga_id)
        known = self._kept.get(place)
        if known is not None and known[0] == (head.length, head.created_ms):
            self._kept.move_to_end(place)
            return known[1], head
        # A journal only grows: of one that is known, what has been added is read.
        grown = known is not None and known[0][1] == head.created_ms and known[0][0] < head.length
        before = known[1].raw if known is not None and grown else ()
        records = [*before, *await read_records(store, saga_id, len(before), whole=False)]
        state = await look_at(store, saga_id, records)

        def told() -> tuple[Mapping[str, Any], Timeline]:
            with no_collection():  # all of it stays
                return SagaResult(state, full=False, answers=answers(state, records)).body, timeline(records)

        body, lanes = await beside_state(records, told)
        shown = masked_records(records, await at_hand(store, saga_id, records)) if is_sensitive(records) else records
        found = Read(state, body, lanes, shown, records)
        self._kept[place] = ((len(records), head.created_ms), found)
        while len(self._kept) > _KEPT:
            self._kept.popitem(last=False)
        return found, head


def nodes_of(steps: Sequence[CompiledStep], state: State | None = None) -> list[Node]:
    """The graph of some steps of a plan; with a state, each with its status."""
    keys = {step.index: step.key for step in steps}
    mask = None if state is None else mask_of(state)
    return [
        Node(
            step.key,
            step.name if mask is None else mask.value(step.name),
            step.tool or step.builtin,
            step.kind,
            "" if state is None else state.steps[step.index].status,
            [keys[before] for before in step.deps if before in keys],
            frozenset(keys[before] for before in step.data_deps if before in keys),
        )
        for step in steps
    ]
