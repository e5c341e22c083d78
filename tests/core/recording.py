"""Journals made by the pure core with scripted answers, a clock that ticks and no dice; and their traces."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from saga_engine.analysis.trace import Export
from saga_engine.analysis.trace_file import Trace, read
from saga_engine.analysis.trace_signature import TraceKey
from saga_engine.core import records as r
from saga_engine.core.decide import Capabilities
from saga_engine.core.effects import AnyEffect, AskPlanner, CallTool, Done, Outcome, Probe
from saga_engine.core.fold import begin
from saga_engine.core.machine import FixedMeans, Machine, Ready, Result
from saga_engine.core.messages import Message, answer
from saga_engine.core.plan_growth import Growth
from saga_engine.core.redaction import Redaction
from saga_engine.core.state import State
from saga_engine.plan.compiler import compile_plan
from saga_engine.plan.model import load_plan
from saga_engine.plan.tool_spec import ToolCatalog, ToolSpec
from tests.core.simulation import Catalog

TICK_MS = 10
START_MS = 1_700_000_000_000
Script = Mapping[tuple[str, str], Sequence[Outcome]]


def tools(*names: str, **facts: Any) -> list[ToolSpec]:
    """Declarations with digests, as a registry would make them."""
    return [ToolSpec(name=name, digest=f"digest-of-{name}", **facts) for name in names]


class Recording:
    """One saga. ``script``: the answers of each step in each direction, in turn; then it is always ``output``."""

    def __init__(
        self,
        plan: Mapping[str, Any],
        catalog: ToolCatalog | Sequence[ToolSpec],
        script: Script | None = None,
        *,
        input: Mapping[str, Any] | None = None,  # noqa: A002
        alerting: bool = False,
        output: Callable[[str], Any] = lambda step: {"ref": f"ref-{step}"},
    ) -> None:
        self.catalog = Catalog(list(catalog)) if isinstance(catalog, Sequence) else catalog
        loaded = load_plan({**plan})
        compiled = compile_plan(loaded, self.catalog, input=input)
        started = r.SagaStarted(
            at=START_MS,
            saga_id=str(plan.get("task_id", "recorded")),
            plan={**plan},
            digest=loaded.digest,
            seed="0123456789abcdef",
            input=None if input is None else {**input},
            undos=compiled.undos,
            reads=sorted(compiled.reads),
            tools=compiled.tool_digests,
            engine="0.0.0",
        )
        self.now = START_MS
        self.records: list[r.AnyRecord] = [started]
        state = begin(started, compiled, Growth(started, self.catalog, loaded))
        self.machine = Machine(state, FixedMeans(Capabilities(alerting=alerting), catalog=self.catalog))
        self._script = {place: list(outcomes) for place, outcomes in (script or {}).items()}
        self._output = output
        self.in_flight: list[Any] = []

    @property
    def state(self) -> State:
        """The saga as it is."""
        return self.machine.state

    def settle(self, *records: r.AnyRecord) -> None:
        """These records are made."""
        self.machine.take(records)
        self._written(self.machine.said())

    def decide(self) -> None:
        """Decide until there is no more to decide now."""
        self._written(self.machine.ready(self.now))

    def _written(self, ready: Ready) -> None:
        self.records += ready.records
        self.in_flight += self.machine.durable(ready)

    def run(self, most: int = 1_000) -> Recording:
        """Until the saga rests or ends, or until ``most`` answers have come."""
        while most:
            self.decide()
            if self.in_flight:
                self.answered()
                most -= 1
                continue
            due = self.state.next_due(self.now)
            if due is None:
                break
            self.now = due
        return self

    def answered(self) -> None:
        """What is first in flight is answered."""
        self.now += TICK_MS
        effect = self.in_flight.pop(0)
        if not isinstance(effect, CallTool | Probe):
            assert not isinstance(effect, AskPlanner)
            self.learned(effect, None)
            return
        key = self.state.plan.steps[effect.step].key
        place = (key, "probe" if isinstance(effect, Probe) else effect.direction)
        script = self._script.get(place)
        outcome = script.pop(0) if script else Done(self._output(key))
        self.learned(effect, outcome)

    def learned(self, effect: AnyEffect, result: Result) -> None:
        """An effect has an outcome."""
        self.machine.learn(effect, result, self.now, 0.5)
        self._written(self.machine.said())

    def crash(self) -> Recording:
        """Another owner takes over; what was in flight is lost."""
        self.in_flight.clear()
        self.now += 15_000
        self.settle(r.SagaResumed(at=self.now, owner="host/1/2/3/4/5", epoch=self.state.epoch + 1))
        return self

    def message(self, **fields: Any) -> Recording:
        """A message is answered."""
        self.now += TICK_MS
        self.settle(answer(self.state, Message(id=f"m{len(self.records)}", **fields), self.now))
        return self

    def lines(self, *rules: str, full: bool = False, declare: bool = True, key: TraceKey | None = None) -> list[bytes]:
        """The saga's trace."""
        return lines_of(self.records, self.catalog if declare else None, rules, full=full, key=key)

    def trace(self, *rules: str, full: bool = False, declare: bool = True) -> Trace:
        """The same, as it is read."""
        (trace,) = read(self.lines(*rules, full=full, declare=declare))
        return trace


def lines_of(
    records: Sequence[r.AnyRecord],
    catalog: ToolCatalog | None,
    rules: Iterable[str] = (),
    *,
    full: bool = False,
    key: TraceKey | None = None,
) -> list[bytes]:
    """A file with one saga."""
    export = Export(Redaction(list(rules)), full=full, key=key)
    return [line.encode() + b"\n" for line in [*export.saga(records, catalog), export.end()]]
