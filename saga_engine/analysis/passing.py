"""What a fork knows of the other saga's steps, and which of its own need something that runs again.

Some steps did nothing although the other saga went on: one that failed (``on_error: continue``), one whose question or
wait was in vain. A fork *passes* them: they run again, and what followed them is reused all the same. A step is
*tainted*, and runs again, too, if

* it binds the output of a step that runs again, at any depth;
* it comes after a tainted step that does more than look or compute;
* it is the pivot, or comes after it, and comes after a step that runs again: a fork that has its pivot only goes
  forward, and what was passed has its way back before it.

A tainted step whose effect nobody undoes would have it twice.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from saga_engine.analysis.fingerprint import Fingerprints, upstream
from saga_engine.core import records as r
from saga_engine.core import transitions as t
from saga_engine.core.bound_outputs import binds
from saga_engine.core.effects import ErrorInfo
from saga_engine.core.state import State, StateScope
from saga_engine.core.state_values import Made, Reused
from saga_engine.core.steps import ask, compute, each
from saga_engine.errors import BindingUnresolved
from saga_engine.plan import graph
from saga_engine.plan.compiled import Serving

#: Keys of steps of the other saga, by fingerprint, in the order of its plan.
Pool = dict[str, list[str]]
#: How a step happened of which nothing came: nobody answered, or no event arrived.
_IN_VAIN = ("expired", "timer")
#: The words of the steps that may be in vain: what they wait for comes from outside.
_FROM_OUTSIDE = ("ask", "wait")


class Past:
    """The steps of the other saga.

    ``standing``: those whose effects exist and are that saga's own; those without a fingerprint (an empty text) cannot
    be reused, and remain. ``happened``: all that have an output. ``vain``: those of which nothing came. ``lost``: those
    that failed while the saga went on, by key, each with its fingerprint and error; ``lost_by_print``: the same as a
    pool. ``to`` is the id of the fork, ``elsewhere`` are the keys of steps that another fork reuses.
    """

    def __init__(self, old: State, fingerprints: Mapping[str, str], to: str, elsewhere: Collection[str]) -> None:
        self._old = old
        self.standing: Pool = {}
        self.happened: Pool = {}
        self.vain: Pool = {}
        self.lost: dict[str, tuple[str | None, ErrorInfo]] = {}
        self.lost_by_print: Pool = {}
        for index, compiled in enumerate(old.plan.steps):
            key, made = compiled.key, fingerprints.get(compiled.key, "")
            step = old.steps[index]
            if step.effect is not None:
                self.happened.setdefault(made, []).append(key)
                if self._in_vain(index):
                    self.vain.setdefault(made, []).append(key)  # the fork asks, or waits, again
                elif self._stands(index, to) and key not in elsewhere:
                    self.standing.setdefault(made, []).append(key)
            elif step.status in (t.FAILED, t.BLOCKED) and step.settled:
                error = step.forward.error or ErrorInfo("tool_error", "it was not done", retryable=False)
                self.lost[key] = made or None, error
                self.lost_by_print.setdefault(made, []).append(key)

    def _in_vain(self, index: int) -> bool:
        effect = self._old.steps[index].effect
        word = self._old.plan.steps[index].builtin
        return isinstance(effect, Made) and effect.via in _IN_VAIN and word in _FROM_OUTSIDE

    def _stands(self, index: int, to: str) -> bool:
        old, compiled, step = self._old, self._old.plan.steps[index], self._old.steps[index]
        effect = step.effect
        if not isinstance(effect, Made | Reused) or (isinstance(effect, Made) and effect.via == "cache"):
            return False  # it is not this saga's own
        if old.turns and old.status not in t.SAGA_FINAL and effect.to != to:
            return False  # it is about to be undone
        if compiled.compensates is not None or step.undoes >= 0:
            return False  # it belongs to the step that it compensates for, or whose undo it was
        return effect.to in ("", to) and step.status == t.SUCCEEDED

    def writes(self, key: str) -> bool:
        """Whether a step changes something outside."""
        return self._old.plan.steps[self._old.plan.by_key[key]].kind != "read"

    def light(self, key: str) -> bool:
        """Whether a step only looks or computes: what comes after it, and does not need it, is as good without it."""
        step = self._old.plan.steps[self._old.plan.by_key[key]]
        return step.builtin in (compute.KIND, each.KIND) or not (step.builtin or self.writes(key))

    def remains(self, key: str) -> bool:
        """Whether the effect of a step that stands is one that the other saga will not undo."""
        index = self._old.plan.by_key[key]
        if not self.writes(key) or self._old.steps[index].undoes >= 0:
            return False
        undone = self._old.undoing(index) is not None or self._old.plan.steps[index].semantic
        return self._old.status in t.SAGA_FINAL or not undone


class Course:
    """How a fork goes the way of the other saga: ``known`` are the steps that do there what they do here.

    ``lists``: the steps whose list needs something that runs again.
    """

    def __init__(self, state: State) -> None:
        self.known: set[int] = set()
        self.lists: set[int] = set()
        self._state = state
        self._again: set[str] = set()
        self._holding: set[int] = set()
        self._behind: set[int] = set()
        self._past_pivot: set[int] = set()

    def add(self, index: int, *, again: bool = False, holds: bool = False) -> None:
        """A step is known; ``again``: it runs again; ``holds``: and so does what comes after it."""
        before = self._before(index)
        self.known.add(index)
        if again:
            self._again.add(self._state.plan.steps[index].key)
        if holds:
            self._holding.add(index)
        if again or not self._behind.isdisjoint(before):
            self._behind.add(index)
        if self._after_pivot(index):
            self._past_pivot.add(index)

    def listed(self, index: int) -> None:
        """The list of a step is about to become known."""
        if self.tainted(index):
            self.lists.add(index)

    def tainted(self, index: int) -> bool:
        """Whether a step runs again because of one before it that does."""
        if not self._again:
            return False
        step = self._state.plan.steps[index]
        before = self._before(index)
        if step.item is not None and step.item.parent in self.lists:
            return True
        if binds(step, self._again) or not self._holding.isdisjoint(before):
            return True
        if index in self._state.lists and any(self._state.plan.steps[item].key in self._again for item in before):
            return True  # its output is that of its items
        return not self._behind.isdisjoint(before) and self._after_pivot(index)

    def _before(self, index: int) -> Collection[int]:
        return upstream(self._state, index)

    def _after_pivot(self, index: int) -> bool:
        return index == self._state.plan.pivot or not self._past_pivot.isdisjoint(self._before(index))


def current(old: State, fingerprints: Mapping[str, str]) -> Mapping[str, str]:
    """The fingerprints of a saga's steps, each after what this saga did before it.

    A fork may have reused a step although it ran one before it that the other saga had gone on without. What its
    journal says of such a step, and of those after it, is what they were after the failure of that one.
    """
    found = Fingerprints()
    changed: set[int] = set()
    made = dict(fingerprints)
    for index in graph.sort([step.deps for step in old.plan.steps]):
        key = old.plan.steps[index].key
        before = upstream(old, index)
        if key in made and (_went_ahead(old, index) or not changed.isdisjoint(before)):
            again = _anew(old, found, index)
            if again is not None and again != made[key]:
                changed.add(index)
                made[key] = again
        found.give(index, made.get(key))
    return made


def _went_ahead(old: State, index: int) -> bool:
    """Whether a step is reused, and one before it ran."""
    if not isinstance(old.steps[index].effect, Reused):
        return False
    before = (old.steps[other] for other in upstream(old, index))
    return any(not isinstance(step.effect, Reused) and step.status != t.SKIPPED for step in before)


def _anew(old: State, prints: Fingerprints, index: int) -> str | None:
    try:
        return prints.of_call(old, index, params_of(old, index, old.acting(index)))
    except BindingUnresolved:
        return None


def params_of(state: State, index: int, serving: Serving) -> Any:
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
