"""Forks: a new saga that reuses the effects of another one, as far as nothing that they depend on has changed.

A step is reused when its fingerprint (``fingerprint``) is that of a step of the other saga which happened and whose
effect still exists. The first step that is new, changed or failed, and everything that depends on it, runs.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from saga_engine.analysis.fingerprint import Fingerprints, upstream
from saga_engine.core import records as r
from saga_engine.core import transitions as t
from saga_engine.core.effects import FORWARD
from saga_engine.core.evolve import evolve
from saga_engine.core.fold import begin
from saga_engine.core.plan_growth import Growth
from saga_engine.core.state import State, StateScope
from saga_engine.core.state_values import Made, Reused
from saga_engine.core.steps import ask, each
from saga_engine.errors import BindingUnresolved
from saga_engine.plan import graph
from saga_engine.plan.compiled import CompiledFallback, CompiledPlan, Serving


@dataclass(slots=True)
class ForkPlan:
    """A preview of a fork.

    ``taken``: the steps that it reuses, as they are journalled. ``runs``: those that it runs, by key. ``left``: the
    keys of the other saga's steps whose effects exist and stay with it, ``left_ids`` their ids. ``opening``: the
    records that it starts with, which are ``taken`` and what makes its plan grow. ``plan``: its plan, as it has grown.
    """

    taken: list[r.EffectReused] = field(default_factory=list)
    runs: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    left_ids: list[int | str] = field(default_factory=list)
    opening: list[r.AnyRecord] = field(default_factory=list)
    plan: CompiledPlan | None = None

    def to_dict(self, plan: CompiledPlan) -> dict[str, Any]:
        """Everything as one JSON object, steps by the ids that their plans give them; ``plan`` is the fork's."""
        ids = {step.key: step.step_id for step in plan.steps}
        return {
            "taken_over": [
                {"step_id": ids[reused.step], "from": reused.source, "fingerprint": reused.fingerprint}
                for reused in self.taken
            ],
            "runs": [ids[key] for key in self.runs],
            "left": list(self.left_ids),
        }


def choose(
    old: State,
    fingerprints: Mapping[str, str],
    started: r.SagaStarted,
    plan: CompiledPlan,
    growth: Growth,
    *,
    run_from: str | None = None,
    elsewhere: Collection[str] = (),
) -> ForkPlan:
    """What a fork of ``old`` reuses; ``fingerprints`` are those of its steps, by key.

    ``run_from`` is the key of a step that runs, with all that depends on it, even if nothing has changed. ``elsewhere``
    are the keys of steps that another fork reuses.
    """
    standing = _standing(old, fingerprints, started.saga_id, elsewhere)
    choice = _Choice(old, begin(started, plan, growth), standing, run_from)
    order = graph.sort([step.deps for step in plan.steps])
    # Steps that have kept their ids are served first: of identical steps each gets its own effect, as does what
    # followed it.
    for own_only in (True, False):
        for index in order:
            choice.visit(index, own_only=own_only)
    made = choice.made()
    made.runs = [choice.state.plan.steps[index].key for index in choice.remaining(order)]
    left = {key for keys in standing.values() for key in keys if _writes(old, key)}
    made.left = [step.key for step in old.plan.steps if step.key in left]
    made.left_ids = [old.plan.steps[old.plan.by_key[key]].step_id for key in made.left]
    return made


class _Choice:
    """What has been chosen so far. ``state``: the fork's, with what it reuses; lists have their items there."""

    def __init__(self, old: State, state: State, standing: Mapping[str, list[str]], run_from: str | None) -> None:
        self.state = state
        self._old = old
        self._standing = standing
        self._run_from = run_from
        self._prints = Fingerprints()
        self._taken: set[int] = set()
        self._opening: list[r.AnyRecord] = []

    def visit(self, index: int, *, own_only: bool) -> None:
        """Reuse a step if that is possible now; if it has a list, first its items."""
        state = self.state
        step = state.plan.steps[index]
        if index in self._taken or step.key == self._run_from:
            return
        if index not in state.lists:
            if not self._taken.issuperset(step.deps if step.item is None else upstream(state, index)):
                return
            if step.when is not None and (truth := step.when.evaluate(StateScope(state))) is not True:
                if truth is False:  # it has no effect in either saga, and is in nobody's way
                    self._prints.skip(state, index)
                    self._taken.add(index)
                return
            if step.each is not None and not self._expand(index):
                return
        if step.each is not None:
            items = _items(state, index)
            for item in items:
                self.visit(item, own_only=own_only)
            if not self._taken.issuperset(items):
                return
        record = _match(state, self._prints, index, self._standing, self._old, own_only=own_only)
        if record is not None:
            evolve(state, record)
            self._prints.note(state, record)
            self._opening.append(record)
            self._taken.add(index)

    def _expand(self, index: int) -> bool:
        """Add the items of a list; without one the step runs, and fails."""
        record = each.begin(self.state, index, self.state.started_at)
        if not isinstance(record, r.EachExpanded):
            return False
        evolve(self.state, record)
        self._opening.append(record)
        return True

    def made(self) -> ForkPlan:
        """The records of the choice. The fork itself finds the lists of which it reuses nothing."""
        kept: list[r.AnyRecord] = []
        for record in self._opening:
            if isinstance(record, r.EachExpanded):
                index = self.state.plan.by_key[record.step]
                if self._taken.isdisjoint([index, *_items(self.state, index)]):
                    continue
            kept.append(record)
        taken = [record for record in kept if isinstance(record, r.EffectReused)]
        return ForkPlan(taken, opening=kept, plan=self.state.plan)

    def remaining(self, order: Sequence[int]) -> Iterator[int]:
        """The steps that run, the items of a list before its step."""
        for index in order:
            if index in self.state.lists:
                yield from (item for item in _items(self.state, index) if item not in self._taken)
            if index not in self._taken:
                yield index


def _items(state: State, index: int) -> range:
    first = state.plan.steps[index].items
    return range(first, first + len(state.lists[index]))


def _standing(old: State, fingerprints: Mapping[str, str], to: str, elsewhere: Collection[str]) -> dict[str, list[str]]:
    """The steps whose effects exist and are the saga's own, by fingerprint, in the order of the plan.

    Those without a fingerprint cannot be reused, and remain.
    """
    found: dict[str, list[str]] = {}
    turned = old.turns and old.status not in t.SAGA_FINAL
    for compiled, step in zip(old.plan.steps, old.steps, strict=True):
        effect = step.effect
        if isinstance(effect, Made) and effect.via in ("expired", "timer") and compiled.builtin != "sleep":
            continue  # nobody answered, or nothing came: the fork asks, or waits, again
        if not isinstance(effect, Made | Reused) or (isinstance(effect, Made) and effect.via == "cache"):
            continue  # there is none, or it is not this saga's own
        if turned and effect.to != to:
            continue  # it is about to be undone
        if compiled.compensates is not None:
            continue  # it belongs to the step that it compensates for
        stands = step.status == t.SUCCEEDED and compiled.key not in elsewhere
        if effect.to in ("", to) and stands:  # without a fingerprint, because something before it did not happen: ""
            found.setdefault(fingerprints.get(compiled.key, ""), []).append(compiled.key)
    return found


def _match(
    state: State, prints: Fingerprints, index: int, standing: Mapping[str, list[str]], old: State, *, own_only: bool
) -> r.EffectReused | None:
    step = state.plan.steps[index]
    for using, serving in enumerate([step] if step.builtin else step.servings()):
        if isinstance(serving, CompiledFallback) and serving.way != "tool":
            continue
        state.steps[index].using = using
        try:
            print_ = prints.of_call(state, index, _params(state, index, serving))
        except BindingUnresolved:
            print_ = None
        state.steps[index].using = 0
        keys = standing.get(print_ or "")
        if print_ is None or not keys or (own_only and step.key not in keys):
            continue
        key = step.key if own_only else keys[0]
        keys.remove(key)  # two identical steps are two effects: each is reused once
        at = old.plan.by_key[key]
        return r.EffectReused(
            at=state.started_at,
            step=step.key,
            source=f"{old.saga_id}/{key}",
            fingerprint=print_,
            output=old.steps[at].output,
            key=old.key(at, FORWARD),
            fallback=using,
            before=old.steps[at].before,
            after=old.steps[at].after,
            child=old.steps[at].child,
        )
    return None


def _params(state: State, index: int, serving: Serving) -> Any:
    """The params of a call, what an ``ask`` step asks, or the outputs of a list. Raises ``BindingUnresolved``."""
    step = state.plan.steps[index]
    if step.builtin == ask.KIND:
        asked = ask.begin(state, index, state.started_at)
        if isinstance(asked, r.StepEscalated):
            return ask.as_params(asked)
        raise BindingUnresolved("it cannot ask")
    if step.each is not None:
        ended = each.begin(state, index, state.started_at)
        if isinstance(ended, r.StepSucceeded):
            return {each.KIND: ended.output}
        raise BindingUnresolved("its list has not ended")
    return serving.params.resolve(StateScope(state))


def _writes(old: State, key: str) -> bool:
    return old.plan.steps[old.plan.by_key[key]].kind != "read"
