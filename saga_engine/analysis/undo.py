"""The undo of a completed saga: a saga of its own, made from the journal, that owns what stands and undoes it.

It starts with the plan as it was and as it grew, and with the effects of the steps in the order in which they happened.
From there on it is compensated like any other saga: in reverse, with the undos of that day, their retries, questions
and models.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from saga_engine.core import records as r
from saga_engine.core import transitions as t
from saga_engine.core.effects import FORWARD
from saga_engine.core.plan_growth import plan_of
from saga_engine.core.state import State
from saga_engine.core.state_values import Deduplicated, Made
from saga_engine.plan.compiled import CompiledStep
from saga_engine.plan.diagram import undo_text

#: The records that make a plan grow.
_GROWS = (r.StepsAdded, r.CallAdded, r.EachExpanded)


@dataclass(slots=True)
class UndoPlan:
    """A preview of an undo. ``opening``: the records with which it starts, without ``UndoRequested``.

    ``undoes``: the keys of the steps that it undoes, the last that happened first. ``remains``: those that stand and
    have no undo. ``elsewhere``: those whose effect is another saga's, by key. ``semantic``: those of ``undoes`` whose
    undo is left to a model or an operator.
    """

    opening: list[r.AnyRecord] = field(default_factory=list)
    undoes: list[str] = field(default_factory=list)
    remains: list[str] = field(default_factory=list)
    elsewhere: dict[str, str] = field(default_factory=dict)
    semantic: list[str] = field(default_factory=list)

    @property
    def owned(self) -> list[str]:
        """The keys of the steps whose effects it owns, after those on which they depend."""
        mine = {*self.undoes, *self.remains}
        reused = [each for each in self.opening if isinstance(each, r.EffectReused)]
        return [each.step for each in reused if each.step in mine]


def choose_undo(old: State, records: Iterable[r.AnyRecord], to: str, owners: Mapping[str, str]) -> UndoPlan:
    """What the saga ``to`` undoes of a completed one. ``owners``: which saga reuses a step, by key."""
    found = UndoPlan()
    found.opening = [
        msgspec.structs.replace(record, message="") if isinstance(record, r.StepsAdded) else record
        for record in records
        if isinstance(record, _GROWS)
    ]
    for compiled in _as_happened(old):
        step = old.steps[compiled.index]
        owner = _owner(old, compiled, to, owners)
        found.opening.append(
            r.EffectReused(
                at=0,
                step=compiled.key,
                source=f"{old.saga_id}/{compiled.key}",
                fingerprint="",
                output=step.output,
                key=old.key(compiled.index, FORWARD),
                fallback=step.using,
                before=step.before,
                after=step.after,
                owner=owner,
                child=step.child,
            )
        )
        if compiled.kind == "read" or (compiled.builtin and owner == old.saga_id):
            continue
        if owner:
            found.elsewhere[compiled.key] = owner
        elif old.acting(compiled.index).rollback is not None:
            found.undoes.insert(0, compiled.key)
            if compiled.kind in ("pivot", "irreversible"):  # a child: a part of it remains
                found.remains.append(compiled.key)
        elif compiled.semantic:
            found.undoes.insert(0, compiled.key)
            found.semantic.append(compiled.key)
        elif compiled.tool:
            found.remains.append(compiled.key)
    return found


def first_record(started: r.SagaStarted) -> r.SagaStarted:
    """The record from which that of the undo is made: ``finally``, which ran at the end, is left out."""
    body = plan_of(started)
    if body.pop("finally", None) is None:
        return started
    return msgspec.structs.replace(started, plan=msgspec.Raw(msgspec.json.encode(body)))


def _as_happened(old: State) -> Sequence[CompiledStep]:
    """The steps that happened and were not undone, in that order; those of ``finally`` are never undone."""
    stands = [
        compiled
        for compiled in old.plan.steps
        if compiled.kind != "finally"
        and old.steps[compiled.index].status == t.SUCCEEDED
        and old.steps[compiled.index].effect is not None
        and old.steps[compiled.index].undoes < 0
    ]
    return sorted(stands, key=lambda compiled: old.steps[compiled.index].happened_nth)


def _owner(old: State, compiled: CompiledStep, to: str, owners: Mapping[str, str]) -> str:
    """The saga that owns the effect, if that is another one than ``to`` would be."""
    effect = old.steps[compiled.index].effect
    if isinstance(effect, Deduplicated):
        return effect.source.partition("/")[0].partition(":")[0]
    if isinstance(effect, Made) and effect.via in ("cache", "timer"):  # no effect of its own
        return old.saga_id
    owner = (effect.to if effect else "") or owners.get(compiled.key, "")
    return "" if owner == to else owner


def step_of(old: State, key: str) -> dict[str, Any]:
    """A step as the preview shows it."""
    compiled = old.plan.steps[old.plan.by_key[key]]
    rollback = old.whole_rollback(compiled.index)
    return {
        "step_id": compiled.step_id,
        "name": compiled.name,
        "tool": compiled.tool,
        "kind": compiled.kind,
        "undo": None if rollback is None else undo_text(rollback),
    }
