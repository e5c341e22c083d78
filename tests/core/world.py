"""What the simulation holds the engine against: the outside world, and the store's laws."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from saga_engine.core import records as r
from saga_engine.core.effects import FORWARD, AskPlanner
from saga_engine.core.state import State
from saga_engine.plan.tool_spec import ToolSpec
from tests.core.cases import Catalog


class Violation(AssertionError):
    """A law of the engine was broken."""


@dataclass
class World:
    """The outside: what stands, by step; what was applied under which key; and the order of it all."""

    catalog: Catalog
    standing: dict[str, int] = field(default_factory=dict)  # step -> how many effects of it stand
    applied: dict[str, tuple[int, Any]] = field(default_factory=dict)  # key -> when, and the first result
    times: dict[str, int] = field(default_factory=dict)  # step:direction -> how often an effect was made
    keys: dict[tuple[str, str], set[str]] = field(default_factory=dict)  # step and tool -> keys seen
    made_by: dict[str, str] = field(default_factory=dict)  # step -> the tool that made what stands
    elsewhere: set[str] = field(default_factory=set)  # steps whose effect another saga made
    by_own_words: set[str] = field(default_factory=set)  # undos that name their object as anybody would
    at_work: dict[str, Any] = field(default_factory=dict)  # step -> what its call will still do, in a thread of ours

    def remembers(self, key: str, spec: ToolSpec, now: int) -> bool:
        """Whether the other side still knows the key: some forget it after a while."""
        if not spec.keyed or key not in self.applied:
            return False
        return spec.key_ttl_s is None or now - self.applied[key][0] < spec.key_ttl_s * 1000

    def knock(self, step: str, spec: ToolSpec, key: str) -> None:
        """A call arrives: one tool of a step is one call, so it has one key, and shares it with no other."""
        call = (step, spec.name)
        seen = self.keys.setdefault(call, set())
        seen.add(key)
        if len(seen) > 1:
            raise Violation(f"{step}, {spec.name}: more than one key: {seen}")
        others = [other for other, keys in self.keys.items() if other != call and key in keys]
        if others:
            raise Violation(f"{call} and {others} were called with the same key")

    def leave_alone(self, step: str) -> None:
        """While a call of a step is at work, nobody calls, undoes or asks anything about it."""
        if step in self.at_work:
            raise Violation(f"{step}: something is done about it while its call is at work in a thread")

    def ended(self, step: str) -> None:
        """The call that was at work is over."""
        work = self.at_work.pop(step, None)
        if work is not None:
            work()

    def apply(self, step: str, direction: str, spec: ToolSpec, key: str, now: int) -> Any:
        if spec.effect == "read":
            return {"ref": f"read-{step}"}
        if self.remembers(key, spec, now):
            return self.applied[key][1]
        if direction == FORWARD:
            self.standing[step] = self.standing.get(step, 0) + 1
            if self.standing[step] > 1:
                raise Violation(f"{step}: the effect stands twice")
            self.made_by[step] = spec.name
            result = {"ref": f"ref-{step}"}
        else:
            if spec.name in self.by_own_words and step not in self.made_by:
                raise Violation(f"{step}: undone by the caller's own params, and it never happened: that was another's")
            if not self.standing.get(step) and not spec.tolerates_absence:
                raise Violation(f"{step}: undone although nothing stands, and the undo does not tolerate that")
            if self.standing.get(step):
                made_by = self.made_by[step]
                own = f"undo_{made_by}" if made_by.startswith("alt_") else made_by.replace("do_", "undo_", 1)
                if spec.name != own:
                    raise Violation(f"{step}: made by {self.made_by[step]} and undone by {spec.name}")
                self.standing[step] -= 1
            result = {"ok": True}
        self.times[f"{step}:{direction}"] = self.times.get(f"{step}:{direction}", 0) + 1
        if spec.keyed:
            self.applied[key] = (now, result)
        return result

    def happened(self, step: str, direction: str) -> bool:
        return self.times.get(f"{step}:{direction}", 0) > 0


class Journal:
    """The store's laws in a few lines: a list, an epoch, compare-and-set, and 'already there'."""

    def __init__(self) -> None:
        self.data: list[bytes] = []
        self.epoch = 1

    def append(self, epoch: int, seq: int, records: list[bytes]) -> bool:
        if (
            epoch == self.epoch
            and self.data[seq : seq + len(records)] == records
            and len(self.data) == seq + len(records)
        ):
            return True
        if epoch != self.epoch or seq != len(self.data):
            return False
        self.data += records
        return True


def key_sent_ms(records: Iterable[r.AnyRecord], step: str) -> int:
    """When the key of a step's call was first sent; a call that surely did not happen left none behind."""
    first = 0
    for record in records:
        if isinstance(record, r.StepDeferred) and record.step == step and not record.in_doubt:
            first = 0
        elif isinstance(record, r.StepIntended) and record.step == step and record.direction == FORWARD:
            first = first or record.at
    return first


def place_of(effect: Any) -> tuple[Any, ...]:
    """What an intent orders: exactly this effect."""
    if isinstance(effect, AskPlanner):
        return ("planner", effect.step, effect.purpose)
    return (getattr(effect, "step", -1), getattr(effect, "direction", ""), effect.attempt)


def exceptions_before(records: Iterable[r.AnyRecord], step: str) -> int:
    """How many attempts of a call in doubt ended with an exception which says nothing, and nothing else came since."""
    raised = 0
    for record in records:
        if isinstance(record, r.SagaResumed):
            raised = 0  # perhaps its process died with it: that is settled by one more call
        elif getattr(record, "step", "") != step or getattr(record, "direction", FORWARD) != FORWARD:
            continue
        elif isinstance(record, r.StepInDoubt):
            raised = 0 if record.lost or not record.counted else raised + record.raised
        elif isinstance(record, r.QuestionResolved | r.StepRetryScheduled | r.FallbackChosen | r.StepDeferred):
            raised = 0
    return raised


def dump(state: State) -> dict[str, Any]:
    """All of a state, comparable."""
    out: dict[str, Any] = {}
    for name in State.__slots__:
        if name in ("plan", "input", "tools", "growth"):
            continue
        value = getattr(state, name)
        if name == "steps":
            value = [_dump_slots(step) for step in value]
        elif isinstance(value, dict):
            value = list(value.items())
        out[name] = value
    return out


def _dump_slots(thing: Any) -> Any:
    values = {name: getattr(thing, name) for name in type(thing).__slots__}
    nested = {name for name, each in values.items() if name in ("forward", "undo") and hasattr(each, "__slots__")}
    return {name: _dump_slots(each) if name in nested else each for name, each in values.items()}
