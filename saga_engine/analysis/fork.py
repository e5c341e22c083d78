"""Forks: a new saga that reuses the effects of another one, as far as nothing that they depend on has changed.

A step is reused when its fingerprint (``fingerprint``) is that of a step of the other saga which happened and whose
effect still exists. The first step that is new, changed or failed, and everything that depends on it, runs.

A step that did nothing while the other saga went on is *passed*: it runs again, and what followed it is reused all the
same, unless it needs the output (``analysis.passing``).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from saga_engine.analysis.fingerprint import Fingerprints, upstream
from saga_engine.analysis.passing import Course, Past, Pool, current, params_of
from saga_engine.core import records as r
from saga_engine.core.effects import FORWARD
from saga_engine.core.evolve import evolve
from saga_engine.core.fold import begin
from saga_engine.core.plan_growth import Growth
from saga_engine.core.state import State, StateScope
from saga_engine.core.steps import each
from saga_engine.errors import BindingUnresolved
from saga_engine.plan import graph
from saga_engine.plan.compiled import CompiledFallback, CompiledPlan


@dataclass(slots=True)
class ForkPlan:
    """A preview of a fork.

    ``taken``: the steps that it reuses, as they are journalled. ``runs``: those that it runs, by key. ``left``: the
    keys of the other saga's steps whose effects exist and stay with it, ``left_ids`` their ids. ``opening``: the
    records that it starts with, which are ``taken`` and what makes its plan grow. ``plan``: its plan, as it has grown.
    ``passed``: those of ``runs`` that did nothing in the other saga, which went on. ``again``: those of ``runs`` whose
    effect stays, and would be made a second time because they need the output of a step that runs again, each with the
    key that it has in the other saga. Such a fork is refused.
    """

    taken: list[r.EffectReused] = field(default_factory=list)
    runs: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    left_ids: list[int | str] = field(default_factory=list)
    opening: list[r.AnyRecord] = field(default_factory=list)
    plan: CompiledPlan | None = None
    passed: list[str] = field(default_factory=list)
    again: dict[str, str] = field(default_factory=dict)

    def to_dict(self, plan: CompiledPlan) -> dict[str, Any]:
        """Everything as one JSON object, steps by the ids that their plans give them; ``plan`` is the fork's."""
        ids = {step.key: step.step_id for step in plan.steps}
        return {
            "taken_over": [
                {"step_id": ids[reused.step], "from": reused.source, "fingerprint": reused.fingerprint}
                for reused in self.taken
            ],
            "runs": [ids[key] for key in self.runs],
            "passed": [ids[key] for key in self.passed],
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
    past = Past(old, current(old, fingerprints), started.saga_id, elsewhere)
    choice = _Choice(old, begin(started, plan, growth), past, run_from)
    order = graph.sort([step.deps for step in plan.steps])
    # Steps that have kept their ids are served first: of identical steps each gets its own effect, as does what
    # followed it.
    for own_only in (True, False):
        for index in order:
            choice.visit(index, own_only=own_only)
    made = choice.made()
    made.runs = [choice.state.plan.steps[index].key for index in choice.remaining(order)]
    left = {key for keys in past.standing.values() for key in keys if past.writes(key)}
    made.left = [step.key for step in old.plan.steps if step.key in left]
    made.left_ids = [old.plan.steps[old.plan.by_key[key]].step_id for key in made.left]
    return made


class _Choice:
    """What has been chosen so far. ``state``: the fork's, as far as it goes the way of the old saga.

    Lists have their items there, and what runs again has failed, or happened, as it did in the old saga.
    """

    def __init__(self, old: State, state: State, past: Past, run_from: str | None) -> None:
        self.state = state
        self.again: dict[int, str] = {}
        self.passed: dict[int, None] = {}
        self._old = old
        self._past = past
        self._run_from = run_from
        self._prints = Fingerprints()
        self._taken: set[int] = set()
        self._course = Course(state)
        self._opening: list[r.AnyRecord] = []

    def visit(self, index: int, *, own_only: bool) -> None:
        """Reuse or pass a step if that is possible now; if it has a list, first its items."""
        state, course = self.state, self._course
        step = state.plan.steps[index]
        if index in course.known or step.key == self._run_from:
            return
        if index not in state.lists:
            if not course.known.issuperset(step.deps if step.item is None else upstream(state, index)):
                return
            if step.when is not None and (truth := step.when.evaluate(StateScope(state))) is not True:
                if truth is False:
                    self._skip(index)
                else:
                    self._pass(index, own_only=own_only)
                return
            if step.each is not None and not self._expand(index):
                return
        if step.each is not None:
            items = _items(state, index)
            for item in items:
                self.visit(item, own_only=own_only)
            if not course.known.issuperset(items):
                return
        if course.tainted(index):
            self._taint(index, own_only=own_only)
        elif found := self._match(index, self._past.standing, own_only=own_only):
            record = self._follow(index, found)
            self._opening.append(record)
            self._taken.add(index)
            course.add(index)
        elif own_only and self._match(index, self._past.standing, own_only=False, keep=True):
            pass  # it may have been renamed
        else:
            self._pass(index, own_only=own_only)

    def _skip(self, index: int) -> None:
        """The step has no effect in the old saga, nor here unless its conditions need something that runs again."""
        self._prints.skip(self.state, index)
        tainted = self._course.tainted(index)
        self._course.add(index, again=tainted)
        if not tainted:
            self._taken.add(index)

    def _taint(self, index: int, *, own_only: bool) -> None:
        """The step runs again, because of something that runs again before it; its effect may be made a second time."""
        found = self._match(index, self._past.happened, own_only=own_only)
        if found is None:
            self._pass(index, own_only=own_only)
            return
        self._follow(index, found)
        self._course.add(index, again=True, holds=not self._past.light(found.key))
        if found.key in self._past.standing.get(found.print, ()) and self._past.remains(found.key):
            self.again[index] = found.key

    def _pass(self, index: int, *, own_only: bool) -> None:
        """The old saga went on although this step did nothing: it runs again, and what followed it may still stand."""
        step = self.state.plan.steps[index]
        if found := self._match(index, self._past.vain, own_only=own_only):
            self._follow(index, found)
        else:
            lost, by_print = self._past.lost, self._past.lost_by_print
            if own_only and step.item is None and step.key in lost:
                key = step.key
                by_print[lost[key][0] or ""].remove(key)
            elif found := self._match(index, by_print, own_only=own_only):
                key = found.key
            else:
                return
            made, error = lost.pop(key)
            evolve(self.state, r.StepFailed(at=self.state.started_at, step=step.key, error=error))
            self._prints.give(index, made)
        self._course.add(index, again=True)
        self.passed[index] = None

    def _follow(self, index: int, found: _Found) -> r.EffectReused:
        """The step did here what it did there."""
        record = _reused(self.state, index, self._old, found)
        evolve(self.state, record)
        self._prints.note(self.state, record)
        return record

    def _match(self, index: int, pool: Pool, *, own_only: bool, keep: bool = False) -> _Found | None:
        """Find, and take from the ``pool`` unless ``keep``, a step of the old saga that is this one."""
        state, step = self.state, self.state.plan.steps[index]
        for using, serving in enumerate([step] if step.builtin else step.servings()):
            if isinstance(serving, CompiledFallback) and serving.way != "tool":
                continue
            state.steps[index].using = using
            try:
                made = self._prints.of_call(state, index, params_of(state, index, serving))
            except BindingUnresolved:
                made = None
            state.steps[index].using = 0
            keys = pool.get(made or "")
            if made is None or not keys or (own_only and step.key not in keys):
                continue
            key = step.key if own_only else keys[0]
            if not keep:
                keys.remove(key)  # two identical steps are two effects: each is reused once
            return _Found(key, using, made)
        return None

    def _expand(self, index: int) -> bool:
        """Add the items of a list; without one the step runs, and fails."""
        record = each.begin(self.state, index, self.state.started_at)
        if not isinstance(record, r.EachExpanded):
            return False
        self._course.listed(index)
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
        steps = self.state.plan.steps
        return ForkPlan(
            taken,
            opening=kept,
            plan=self.state.plan,
            passed=[steps[index].key for index in self.passed],
            again={steps[index].key: key for index, key in self.again.items()},
        )

    def remaining(self, order: Sequence[int]) -> Iterator[int]:
        """The steps that run, the items of a list before its step."""
        for index in order:
            if index in self.state.lists and index not in self._course.lists:
                yield from (item for item in _items(self.state, index) if item not in self._taken)
            if index not in self._taken:
                yield index


class _Found(NamedTuple):
    """A step of the old saga that is one of the fork: its key and its fingerprint; ``using``: the fallback it used."""

    key: str
    using: int
    print: str


def _items(state: State, index: int) -> range:
    first = state.plan.steps[index].items
    return range(first, first + len(state.lists[index]))


def _reused(state: State, index: int, old: State, found: _Found) -> r.EffectReused:
    at = old.plan.by_key[found.key]
    return r.EffectReused(
        at=state.started_at,
        step=state.plan.steps[index].key,
        source=f"{old.saga_id}/{found.key}",
        fingerprint=found.print,
        output=old.steps[at].output,
        key=old.key(at, FORWARD),
        fallback=found.using,
        before=old.steps[at].before,
        after=old.steps[at].after,
        child=old.steps[at].child,
    )
