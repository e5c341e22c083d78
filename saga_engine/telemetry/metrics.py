"""Prometheus metrics of one process, from the records that it has made durable.

A record is counted once, by the process that appended it, after the disk. So the counters of a fleet add up, and a
crash counts nothing twice; a record that was durable, and whose process died before it counted it, is not counted.
Times are differences between records on the store's clock. A call that began under another owner is counted when it
ends, and has no time here.

The number of time series is bounded: labels are tools (``MOST_TOOLS`` at most, the others are ``other``) and words of
the engine; never ids, plans, or anything that a model wrote.

The names follow https://prometheus.io/docs/practices/naming/.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from prometheus_client import CollectorRegistry, Counter, Histogram

from saga_engine.core import records as r
from saga_engine.core.effects import FORWARD, Direction
from saga_engine.core.state import State
from saga_engine.core.verified.evolving import is_asked

#: The tools that have time series of their own, in the order in which they were first called.
MOST_TOOLS: Final = 200
#: Calls whose beginning is remembered; of more than these the oldest ones have no time.
MOST_OPEN: Final = 100_000

_SECONDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)
_LONG_SECONDS: Final = (0.01, 0.05, 0.1, 0.5, 1, 5, 10, 60, 300, 1800, 3600, 6 * 3600, 24 * 3600, 7 * 24 * 3600)
_Begun = dict[tuple[str, str, str], int]


class Metrics:
    """A meter for ``Coordinator.open(meters=[...])`` that counts into a ``prometheus_client`` registry of its own.

    ``registry``: another one to count into. Expose it with ``prometheus_client.start_http_server(port,
    registry=metrics.registry)``, or let `saga worker --metrics` and `saga serve` do it.
    """

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        self.registry = CollectorRegistry() if registry is None else registry
        self._begun: _Begun = {}
        self._tools: set[str] = set()
        self._define(self.registry)
        self._saw: Mapping[type[r.Record], Callable[[State, Any], None]] = {
            r.SagaStarted: self._on_started,
            r.SagaResumed: self._on_resumed,
            r.StepIntended: self._on_intended,
            r.StepBegun: self._on_intended,
            r.StepSucceeded: self._on_succeeded,
            r.StepFailed: lambda state, record: self._on_end(state, record, "failed"),
            r.StepBlocked: lambda state, record: self._on_end(state, record, "blocked"),
            r.StepRetryScheduled: lambda state, record: self._on_end(state, record, "retry"),
            r.StepDeferred: lambda state, record: self._on_end(state, record, "deferred"),
            r.StepInDoubt: lambda state, record: self._on_end(state, record, "in_doubt"),
            r.StepEscalated: self._on_asked,
            r.UndoLooked: self._on_looked,
            r.SessionKept: lambda _, record: self._asked.labels(record.kind).inc(),
            r.QuestionResolved: lambda *_: self._answered.labels("operator").inc(),
            r.ApprovalExpired: lambda *_: self._answered.labels("expired").inc(),
            r.AlertSent: lambda *_: self._alerts.labels("sent").inc(),
            r.AlertFailed: lambda *_: self._alerts.labels("failed").inc(),
            r.CompensationStarted: self._on_turned,
            r.SagaCompleted: lambda state, _: self._on_over(state, "completed"),
            r.SagaCompensated: lambda state, _: self._on_over(state, "compensated"),
            r.SagaWaived: lambda state, _: self._on_over(state, "waived"),
            r.SagaEscalated: lambda *_: self._escalated.inc(),
        }

    def measure(self, state: State, records: Sequence[r.AnyRecord]) -> None:
        """Count records that ``state`` has in it. It waits for nothing."""
        for record in records:
            saw = self._saw.get(type(record))
            if saw is not None:
                saw(state, record)

    # --- what is counted -----------------------------------------------------------------------------------------

    def _define(self, to: CollectorRegistry) -> None:
        call = ("tool", "direction")
        self._started = Counter(
            "saga_started", "Sagas that were journalled: plan, session, child, fork, undo", ["kind"], registry=to
        )
        self._ended = Counter("saga_ended", "Sagas that ended: completed, compensated, waived", ["status"], registry=to)
        self._escalated = Counter("saga_escalated", "How often a saga came to wait for an operator alone", registry=to)
        self._seconds = Histogram(
            "saga_seconds", "From a saga's start to its end", ["status"], buckets=_LONG_SECONDS, registry=to
        )
        self._queued = Histogram(
            "saga_queue_seconds", "From a submission for workers to the first owner", buckets=_LONG_SECONDS, registry=to
        )
        self._undone = Histogram(
            "saga_compensation_seconds", "From a saga's turn to its end", buckets=_LONG_SECONDS, registry=to
        )
        self._resumed = Counter(
            "saga_resumed", "Sagas that this process took over, or took from the queue", registry=to
        )
        self._calls = Counter("saga_calls", "Calls that were intended; direction is forward or undo", call, registry=to)
        self._outcomes = Counter(
            "saga_call_outcomes",
            "What became of calls: succeeded, failed, retry, blocked, deferred, in_doubt",
            [*call, "outcome"],
            registry=to,
        )
        self._call_seconds = Histogram(
            "saga_call_seconds",
            "From a call's intent to its outcome, both durable",
            call,
            buckets=_SECONDS,
            registry=to,
        )
        self._settled = Counter(
            "saga_settled",
            "Steps that happened, by how that is known: call, probe, decision, event and others",
            ["via"],
            registry=to,
        )
        self._looks = Counter(
            "saga_undo_looks",
            "Looks after undos: verified, said (it failed), unverified, drift",
            ["outcome"],
            registry=to,
        )
        self._asked = Counter("saga_questions", "Questions to operators", ["kind"], registry=to)
        self._answered = Counter(
            "saga_answers", "Questions that an operator answered, or that expired", ["by"], registry=to
        )
        self._alerts = Counter("saga_alerts", "Notices of questions: sent or failed", ["outcome"], registry=to)

    def _on_started(self, _: State, record: r.SagaStarted) -> None:
        kind = "fork" if record.fork_of else "undo" if record.undo_of else "child" if record.parent else "plan"
        self._started.labels("session" if record.session else kind).inc()

    def _on_resumed(self, state: State, record: r.SagaResumed) -> None:
        self._resumed.inc()
        if record.epoch == 1 and not record.reason:
            self._queued.observe(max(record.at - state.started_at, 0) / 1000)

    def _on_intended(self, state: State, record: r.StepIntended | r.StepBegun) -> None:
        index = state.plan.by_key[record.step]
        if state.plan.steps[index].builtin:
            return
        lane, tool = self._call(state, index, record.direction)
        if type(record) is r.StepIntended:
            self._calls.labels(tool, lane).inc()
        self._begun[state.saga_id, record.step, lane] = record.at
        if len(self._begun) > MOST_OPEN:
            del self._begun[next(iter(self._begun))]

    def _on_succeeded(self, state: State, record: r.StepSucceeded) -> None:
        self._settled.labels(record.via).inc()
        self._on_end(state, record, "succeeded")

    def _on_end(self, state: State, record: Any, outcome: str) -> None:
        index = state.plan.by_key[record.step]
        if state.plan.steps[index].builtin:
            return
        lane, tool = self._call(state, index, getattr(record, "direction", FORWARD))
        self._outcomes.labels(tool, lane, outcome).inc()
        begun = self._begun.pop((state.saga_id, record.step, lane), None)
        if begun is not None:
            self._call_seconds.labels(tool, lane).observe(max(record.at - begun, 0) / 1000)

    def _on_looked(self, _: State, record: r.UndoLooked) -> None:
        if record.how != "later":
            self._looks.labels(record.how).inc()

    def _on_asked(self, state: State, record: r.StepEscalated) -> None:
        self._asked.labels(record.kind).inc()
        if record.direction != FORWARD and is_asked(state, state.plan.by_key[record.step]):
            self._looks.labels("drift" if record.kind == "drift" else "unverified").inc()

    def _on_turned(self, state: State, record: r.CompensationStarted) -> None:
        self._begun[state.saga_id, "", "turn"] = record.at

    def _on_over(self, state: State, status: str) -> None:
        self._ended.labels(status).inc()
        self._seconds.labels(status).observe(max(state.at - state.started_at, 0) / 1000)
        turned = self._begun.pop((state.saga_id, "", "turn"), None)
        if turned is not None:
            self._undone.observe(max(state.at - turned, 0) / 1000)

    def _call(self, state: State, index: int, direction: Direction) -> tuple[str, str]:
        """The direction and the tool of a call, as labels."""
        if direction == FORWARD:
            lane, tool = "forward", state.acting(index).tool
        else:
            rollback = state.rollback_of(index)
            lane, tool = "undo", "" if rollback is None else rollback.tool
        if tool not in self._tools:
            if len(self._tools) >= MOST_TOOLS:
                return lane, "other"
            self._tools.add(tool)
        return lane, tool
