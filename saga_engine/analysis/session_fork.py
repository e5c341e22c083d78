"""Forks of sessions: a new session that owns the effects of another one's first calls, and waits for its agent.

A session has no plan that says what depends on what: everything that an agent does may depend on every answer that it
got before. So a fork reuses a prefix of its calls, in the agent's order. The prefix ends before the call that is asked
for, and before the first one that cannot be answered as it was: its effect does not exist any more, is not the
session's own or is another fork's, its tool has changed, or it failed last or was refused.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from saga_engine.analysis.fork import ForkPlan
from saga_engine.core import records as r
from saga_engine.core import transitions as t
from saga_engine.core.effects import FORWARD, ErrorInfo
from saga_engine.core.evolve import evolve
from saga_engine.core.fold import begin
from saga_engine.core.plan_growth import Growth
from saga_engine.core.session_records import FORKED, MAX_AFTER, keep
from saga_engine.core.state import State
from saga_engine.core.state_values import Made, Reused
from saga_engine.plan.compiled import CompiledPlan
from saga_engine.plan.tool_spec import ToolCatalog


@dataclass(frozen=True, slots=True, kw_only=True)
class Calls:
    """What a session's agent did: ``places`` are its calls in its order, by key, ``added`` their records.

    ``anew``: those that its agent would make anew if they did not happen. ``fingerprints`` are those of the steps.
    """

    state: State
    places: Sequence[str]
    anew: Collection[str]
    added: Mapping[str, r.CallAdded]
    fingerprints: Mapping[str, str]

    def reusable(self, key: str, to: str, catalog: ToolCatalog, elsewhere: Collection[str]) -> bool:
        """Whether the session ``to`` can answer the call as this one did."""
        index = self.state.plan.by_key[key]
        step, effect = self.state.steps[index], self.state.steps[index].effect
        if step.status == t.FAILED:
            return key not in self.anew  # a failure that the agent dealt with is answered again
        if step.status != t.SUCCEEDED or not isinstance(effect, Made | Reused):
            return False
        if effect.to == to:
            return True  # it has been transferred already
        spec = catalog.spec(self.added[key].tool)
        changed = spec is not None and spec.digest != self.added[key].tool_digest
        turned = self.state.turns and self.state.status not in t.SAGA_FINAL
        return not (effect.to or turned or changed or key in elsewhere)


@dataclass(slots=True)
class SessionForkPlan(ForkPlan):
    """A preview of a fork of a session. ``opening`` has its calls, too.

    ``remain``: those of ``left`` that have no undo, by key.
    """

    remain: list[str] = field(default_factory=list)


def choose_calls(
    calls: Calls,
    started: r.SagaStarted,
    plan: CompiledPlan,
    catalog: ToolCatalog,
    *,
    run_from: str | None = None,
    elsewhere: Collection[str] = (),
) -> SessionForkPlan:
    """What a fork reuses. ``plan`` is that of ``started``, without calls, and grows in place.

    ``run_from`` is the key of the first call that is made anew in any case. ``elsewhere`` are the keys of calls that
    another fork reuses.
    """
    old = calls.state
    prefix: list[str] = []
    for key in calls.places:
        if key == run_from or not calls.reusable(key, started.saga_id, catalog, elsewhere):
            break
        prefix.append(key)
    made = SessionForkPlan(opening=list(_copies(calls, prefix)), plan=plan)
    made.taken = [record for record in made.opening if isinstance(record, r.EffectReused)]
    made.opening.sort(key=lambda record: _nth(calls, record))  # as they happened: so they are undone in reverse
    state = begin(started, plan, Growth(started, catalog))
    for record in made.opening:
        evolve(state, record)
    why = ErrorInfo("forked", f"nothing failed: a fork of session {old.saga_id} waits for its agent")
    kept = keep(state, "", why, 0, ask=False)
    if kept is not None:
        made.opening.append(msgspec.structs.replace(kept, question=FORKED))
    reused = {record.source.partition("/")[2] for record in made.taken}
    for compiled in old.plan.steps:
        step = old.steps[compiled.index]
        exists = step.status == t.SUCCEEDED and compiled.kind != "read" and old.owns(compiled.index)
        if exists and compiled.key not in reused:
            made.left.append(compiled.key)
            made.left_ids.append(compiled.step_id)
            if old.undoing(compiled.index) is None and not compiled.semantic:
                made.remain.append(compiled.key)
    return made


def _nth(calls: Calls, record: r.AnyRecord) -> int:
    """Where a record stands in the opening: calls and failures first, then what happened, in that order."""
    if not isinstance(record, r.EffectReused):
        return 0
    key = record.source.partition("/")[2]
    return calls.state.steps[calls.state.plan.by_key[key]].happened_nth


def _copies(calls: Calls, prefix: Sequence[str]) -> list[r.AnyRecord]:
    """The calls of the prefix, numbered anew, each with its outcome."""
    old = calls.state
    numbers = {key: number for number, key in enumerate(prefix, 1)}
    found: list[r.AnyRecord] = []
    for key, number in numbers.items():
        index = old.plan.by_key[key]
        step = old.steps[index]
        after = [str(each) for each in _before(calls, key, numbers)]
        found.append(msgspec.structs.replace(calls.added[key], step=str(number), place=0, after=after))
        if step.status == t.FAILED:
            error = step.forward.error or ErrorInfo("tool_error", "it was not done")
            found.append(r.StepFailed(at=0, step=str(number), error=error))
            continue
        found.append(
            r.EffectReused(
                at=0,
                step=str(number),
                source=f"{old.saga_id}/{key}",
                fingerprint=calls.fingerprints.get(key, ""),
                output=step.output,
                key=old.key(index, FORWARD),
                before=step.before,
                after=step.after,
            )
        )
    return found


def _before(calls: Calls, key: str, numbers: Mapping[str, int]) -> list[int]:
    """After which calls of the prefix a call came; in place of one that is not in it, after those before that one."""
    found: set[int] = set()
    seen, left = {key}, list(calls.added[key].after)
    while left:
        other = left.pop()
        if other in seen:
            continue
        seen.add(other)
        if numbers.get(other, numbers[key]) < numbers[key]:
            found.add(numbers[other])
        else:
            left += calls.added[other].after
    return sorted(found)[-MAX_AFTER:]
