"""Explains the sagas that have not ended when a run gives up: what each waits for, and what the workers do."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from saga_engine import Coordinator, SagaError
from saga_engine.api.stops import stops
from saga_engine.core import transitions as t
from saga_engine.ports import Head

_SHOWN: Final = 20
_LAST_RECORDS: Final = 6
_WIDTH: Final = 300


async def explain(coordinator: Coordinator) -> list[str]:
    """The workers and stop marks, then for each saga its owner, questions, waits and last records; as lines."""
    load = await coordinator.overview()
    lines = [f"queue: {load.queued} need a worker, {load.timed} need one later"]
    lines += [f"owner {owner}: its lease has {ttl_ms} ms left" for owner, ttl_ms in sorted(load.owners.items())]
    lines += [f"worker {owner}: {report.decode()}" for owner, report in sorted(load.reports.items())]
    lines += [f"stop mark: {mark}" for mark in await stops(coordinator.store)]
    for status in sorted(load.statuses.keys() - t.SAGA_FINAL):
        for head in await coordinator.list(status, limit=_SHOWN):
            lines += await _saga(coordinator, head, load.now_ms)
    return lines


async def _saga(coordinator: Coordinator, head: Head, now_ms: int) -> list[str]:
    owner = f"{head.owner} (lease {head.owner_ttl_ms} ms)" if head.owner else "nobody"
    lines = [
        f"saga {head.saga_id}: {head.status}, epoch {head.epoch}, owned by {owner}, {head.messages} messages unread",
        f"  last changed {now_ms - head.changed_ms} ms ago; summary: {head.summary.decode()}",
    ]
    try:
        body = (await coordinator.show(head.saga_id)).body
        history = await coordinator.history(head.saga_id)
    except SagaError as error:
        return [*lines, f"  it cannot be read: {error.code}: {error}"]
    lines += _state(body, now_ms)
    return lines + [f"  record: {str(record)[:_WIDTH]}" for record in history[-_LAST_RECORDS:]]


def _state(body: Any, now_ms: int) -> Iterator[str]:
    for question in body["questions"]:
        yield f"  question {question['question_id']}: {question['kind']} about step {question['step_id']}"
    for step in body["steps"]:
        waits = step.get("waits")
        if waits:
            due_ms = waits["due_ms"]
            when = "without a time" if due_ms is None else f"due in {due_ms - now_ms} ms"
            yield f"  step {step['step_id']} waits: {waits['on']}, {when}, {waits['about']}"
        elif step["status"] in (t.IN_DOUBT, t.RUNNING, t.COMPENSATING):
            yield f"  step {step['step_id']} is {step['status']} after {step['attempts']} attempts"
