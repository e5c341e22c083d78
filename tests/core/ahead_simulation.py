"""Sessions whose calls change objects of their own, and now and then name those of earlier calls.

Law: while an operator is asked about the undo of a later call, an earlier one is undone only if neither has anything to
do with the other; whatever does, waits, and so does what nobody can say anything about.
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import msgspec

from saga_engine.core import records as r
from saga_engine.core import transitions as t
from saga_engine.core.state import State
from saga_engine.plan.absence import Absence
from saga_engine.plan.tool_spec import ToolSpec
from tests.core.cases import Catalog
from tests.core.image_simulation import ImageSimulation
from tests.core.session_simulation import MAX_CALLS, SessionSimulation

_KEYS = [str(number) for number in range(1, MAX_CALLS + 1)]


class AheadSimulation(ImageSimulation, SessionSimulation):
    """Runs one such session."""

    def __init__(self, dice: random.Random, trouble: float = 0.5) -> None:
        super().__init__(dice, trouble)
        watched = [key for key in _KEYS if self._spec(key).before is not None and key not in self.irreversible]
        self.world.start_values(dice, watched)
        #: What the agent took from an earlier call for a later one, by the later one.
        self.took: dict[str, set[str]] = {}

    def _spec(self, key: str) -> ToolSpec:
        spec = self.catalog.spec(f"do_{key}")
        assert spec is not None
        return spec

    def _case(self) -> tuple[dict[str, Any], Catalog]:
        body, catalog = super()._case()
        specs = {name: catalog.specs[name] for name in catalog.names()}
        locked = self.dice.random() < 0.3
        for key in _KEYS:
            do = specs[f"do_{key}"]
            if do.effect == "read" or self.dice.random() < 0.2:
                continue
            specs[do.name] = replace(
                do,
                before=f"look_{key}",
                absent=Absence(null=True),
                undo_absent=f"del_{key}",
                remembers=False,
                resource=("all",) if locked and int(key) % 3 else (),
            )
            looks = {"type": "object", "properties": {"n": {}}}
            specs[f"look_{key}"] = ToolSpec(name=f"look_{key}", effect="read", input_schema=looks)
            specs[f"del_{key}"] = replace(specs[f"undo_{key}"], name=f"del_{key}", input_schema={"type": "object"})
        return body, Catalog(list(specs.values()))

    def _wish_call(self, state: State) -> r.CallAdded | None:
        record = super()._wish_call(state)
        if record is None:
            return None
        params: dict[str, Any] = {"n": f"object {record.step}."}
        self.took[record.step] = set()  # a call of this number may have been lost with its process
        happened = [each.key for each, at in zip(state.plan.steps, state.steps, strict=True) if at.effect is not None]
        if happened and self.dice.random() < 0.3:
            other = self.dice.choice(happened)
            self.took[record.step].add(other)
            params["about"] = self.dice.choice([f"for ref-{other}", f"object {other}. and more", [f"ref-{other}"]])
        undo = record.undo_params if self._spec(record.step).before is None else {"ref": "$before"}
        undo = undo if record.undo else None
        return msgspec.structs.replace(record, params=params, undo_params=undo)

    def _after(self, state: State, index: int) -> list[int]:
        """As ever; but what an operator is asked about holds up nothing that has nothing to do with it."""
        later = super()._after(state, index)
        undo = state.steps[index].undo
        again = undo is not None and undo.attempt > 1  # it began when somebody was asked
        if not (again or any(state.steps[other].status == t.ESCALATED for other in later)):
            return later
        return [other for other in later if not self._strangers(state, index, other)]

    def _strangers(self, state: State, index: int, other: int) -> bool:
        one, two = (state.plan.steps[each].key for each in (index, other))
        specs = [self._spec(one), self._spec(two)]
        told = all(spec.before is not None for spec in specs) and not all(spec.resource for spec in specs)
        return told and two not in self.took.get(one, ()) and one not in self.took.get(two, ())

    def ahead(self) -> int:
        """How many undos began while a later one waited for an operator."""
        count, asked = 0, set[str]()
        for record in self.journalled():
            if isinstance(record, r.StepEscalated) and record.direction == "compensate":
                asked.add(record.question)
            elif isinstance(record, r.QuestionResolved | r.ApprovalExpired):
                asked.discard(record.question)
            elif isinstance(record, r.StepIntended) and record.direction == "compensate" and record.attempt == 1:
                count += bool(asked)
        return count
