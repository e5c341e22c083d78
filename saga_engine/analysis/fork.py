"""Forks: a new saga that reuses the effects of another one, as far as nothing that they depend on has changed.

A step is reused when its fingerprint (``fingerprint``) is that of a step of the other saga which happened and whose
effect still exists. The first step that is new, changed or failed, and everything that depends on it, runs.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from saga_engine.analysis.fingerprint import Fingerprints
from saga_engine.core import records as r
from saga_engine.core import transitions as t
from saga_engine.core.effects import FORWARD
from saga_engine.core.evolve import evolve
from saga_engine.core.fold import begin
from saga_engine.core.plan_growth import Growth
from saga_engine.core.state import State, StateScope
from saga_engine.core.state_values import Made, Reused
from saga_engine.core.steps import ask
from saga_engine.errors import BindingUnresolved
from saga_engine.plan import graph
from saga_engine.plan.compiled import CompiledFallback, CompiledPlan, Serving


@dataclass(slots=True)
class ForkPlan:
    """A preview of a fork.

    ``taken``: the steps that it reuses, as they are journalled. ``runs``: those that it runs, by key. ``left``: the
    keys of the other saga's steps whose effects exist and stay with it, ``left_ids`` their ids.
    """

    taken: list[r.EffectReused] = field(default_factory=list)
    runs: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    left_ids: list[int | str] = field(default_factory=list)

    def to_dict(self, plan: CompiledPlan) -> dict[str, Any]:
        """Everything as one JSON object, steps by the ids that their plans give them; ``plan`` is the fork's."""
        ids = {step.key: step.step_id for step in plan.steps}
        return {
            "taken_over": [
                {"step_id": ids[each.step], "from": each.source, "fingerprint": each.fingerprint} for each in self.taken
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
    state = begin(started, plan, growth)
    prints = Fingerprints()
    made = ForkPlan()
    taken: set[int] = set()
    order = graph.sort([step.deps for step in plan.steps])
    # Steps that have kept their ids are served first: of identical steps each gets its own effect, as does what
    # followed it.
    for own_only in (True, False):
        for index in order:
            step = plan.steps[index]
            if index in taken or step.key == run_from or not taken.issuperset(step.deps):
                continue
            if step.when is not None and (truth := step.when.evaluate(StateScope(state))) is not True:
                if truth is False:  # it has no effect in either saga, and is in nobody's way
                    prints.skip(state, index)
                    taken.add(index)
                continue
            record = _match(state, prints, index, standing, old, own_only=own_only)
            if record is not None:
                evolve(state, record)
                prints.note(state, record)
                made.taken.append(record)
                taken.add(index)
    made.runs = [plan.steps[index].key for index in order if index not in taken]
    made.left = [key for keys in standing.values() for key in keys if _writes(old, key)]
    made.left_ids = [old.plan.steps[old.plan.by_key[key]].step_id for key in made.left]
    return made


def _standing(old: State, fingerprints: Mapping[str, str], to: str, elsewhere: Collection[str]) -> dict[str, list[str]]:
    """The steps whose effects exist and are the saga's own, by fingerprint, in the order of the plan."""
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
        if effect.to in ("", to) and stands and compiled.key in fingerprints:
            found.setdefault(fingerprints[compiled.key], []).append(compiled.key)
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
        )
    return None


def _params(state: State, index: int, serving: Serving) -> Any:
    """The params of a call, or what an ``ask`` step asks. Raises ``BindingUnresolved``."""
    if state.plan.steps[index].builtin != ask.KIND:
        return serving.params.resolve(StateScope(state))
    record = ask.begin(state, index, state.started_at)
    if not isinstance(record, r.StepEscalated):
        raise BindingUnresolved("it cannot ask")
    return ask.as_params(record)


def _writes(old: State, key: str) -> bool:
    return old.plan.steps[old.plan.by_key[key]].kind != "read"
