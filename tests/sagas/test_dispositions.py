"""One disposition of each wait: event, time-out, deadline and cancel compete for one record of the saga's owner."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from saga_engine.core import records as r
from saga_engine.core import transitions as t
from saga_engine.core.evolve import evolve
from saga_engine.core.fold import begin, fold
from saga_engine.core.machine import FixedMeans, Machine
from saga_engine.core.messages import Message, answer
from saga_engine.core.state import State
from saga_engine.core.steps.wait import INVALID, LATE
from saga_engine.plan.compiler import compile_plan
from saga_engine.plan.model import load_plan

WAIT = {"event": "paid", "schema": {"type": "object", "required": ["sum"]}, "timeout_s": 60}
#: What each contender sends, and at which time, in ms: the wait begins at 1,000.
EVENT = Message(id="e1", kind="event", step="1", event="paid", key="s", output={"sum": 7})
AGAIN = Message(id="e2", kind="event", step="1", event="paid", key="s", output={"sum": 8})
CANCEL = Message(id="c1", kind="cancel", by="ada")
CONTENDERS: dict[str, Message | None] = {"event": EVENT, "another event": AGAIN, "cancel": CANCEL, "time": None}


def settle(state: State, records: list[r.AnyRecord], now: int) -> None:
    """What the core decides at a time."""
    records += Machine(state, FixedMeans()).ready(now).records


def waiting(on_timeout: Any) -> tuple[State, list[r.AnyRecord]]:
    """A saga that waits since 1,000 ms, and its records. A second wait keeps it open when the first is over."""
    steps = [{"step_id": 1, "wait": {**WAIT, "on_timeout": on_timeout}}, {"step_id": 2, "wait": {"event": "more"}}]
    body = {"steps": steps, "deadline_s": 3600}
    compiled = compile_plan(load_plan(body), None)
    records: list[r.AnyRecord] = [r.SagaStarted(at=0, saga_id="s", plan=None, digest="", seed="0")]
    state = begin(records[0], compiled)  # type: ignore[arg-type]
    settle(state, records, 1_000)
    assert state.pending
    return state, records


def test_of_messages_that_are_read_together_the_first_ends_the_wait() -> None:
    """An event that comes behind a cancel is late although nothing has been decided between them; one before it is not.

    Else a payment would be consumed by a saga that is undone, and nobody would know of it.
    """
    for order, code in ((("cancel", "event"), LATE), (("event", "cancel"), "")):
        state, records = waiting("fail")
        found = []
        for name in order:
            message = CONTENDERS[name]
            assert message is not None
            found.append(answer(state, message, 2_000))
            evolve(state, found[-1])
        settle(state, records, 2_000)
        assert getattr(found[order.index("event")], "code", "") == code
        assert state.status in (t.COMPENSATING, t.COMPENSATED)


def ends_of(records: list[r.AnyRecord]) -> list[str]:
    """The records that end the first wait: an outcome of its step, or the turn of the saga while it was open."""
    found = []
    for record in records:
        if isinstance(record, r.StepSucceeded | r.StepFailed) and record.step == "1":
            found.append(getattr(record, "via", "") or "failed")
        elif isinstance(record, r.CompensationStarted) and not found:
            found.append("turn")
    return found


@pytest.mark.parametrize("on_timeout", ["fail", {"value": {"sum": 0}}])
@pytest.mark.parametrize("order", list(itertools.permutations(CONTENDERS)))
def test_event_time_out_and_cancel_compete_for_one_record(order: tuple[str, ...], on_timeout: Any) -> None:
    """In any order: the first ends the wait, each later event is refused as late, and a replay says the same."""
    state, records = waiting(on_timeout)
    now = 2_000
    for name in order:
        message = CONTENDERS[name]
        if message is None:
            now = 61_000  # the time-out: an event at that moment or later is too late
            assert 0 not in state.pending or getattr(answer(state, EVENT, now), "code", "") == LATE
        elif state.status == t.RUNNING:
            record = answer(state, message, now)
            assert message.kind == "cancel" or name == order[0] or getattr(record, "code", "") == LATE
            evolve(state, record)
            records.append(record)
        settle(state, records, now)
    first = order[0]
    fails = first == "cancel" or (first == "time" and on_timeout == "fail")
    timed_out = "failed" if on_timeout == "fail" else "timer"
    assert ends_of(records) == [{"cancel": "turn", "time": timed_out}.get(first, "event")]
    taken = {"event": {"sum": 7}, "another event": {"sum": 8}, "time": None if fails else {"sum": 0}}
    assert (state.steps[0].output, 0 in state.pending) == (taken.get(first), False)
    # Whatever came first, the cancel is the end of the second wait, unless the first one's failure was.
    assert state.status == t.COMPENSATED
    assert fold(records, state.plan).status == state.status


def test_an_event_that_fits_no_schema_ends_nothing() -> None:
    """It is refused as invalid, and the right one is still awaited."""
    state, _ = waiting("fail")
    wrong = answer(state, Message(id="e0", kind="event", step="1", event="paid", key="s", output={"total": 7}), 2_000)
    evolve(state, wrong)
    assert (getattr(wrong, "code", ""), 0 in state.pending) == (INVALID, True)
    assert isinstance(answer(state, EVENT, 3_000), r.StepSucceeded)
