"""How many calls of one saga are in flight: a bound that holds for new steps, retries, doubts and undos together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from saga_engine.core import records as r
from saga_engine.core.effects import CallTool, Done, ErrorInfo, NotDone, Outcome, Probe, Unknown
from saga_engine.core.fold import begin
from saga_engine.core.machine import FixedMeans, Machine
from saga_engine.core.state import State
from saga_engine.plan.compiler import compile_plan
from saga_engine.plan.limits import MAX_PARALLEL
from saga_engine.plan.model import load_plan
from saga_engine.plan.tool_spec import RetryPolicy, ToolSpec

PATIENT = RetryPolicy(max_attempts=8, base_s=30.0, max_s=30.0)
WIDE = 3 * MAX_PARALLEL
BUSY = NotDone(ErrorInfo("busy", "try again"), retryable=True)
NO = NotDone(ErrorInfo("no", "no"), retryable=False, definite=True)


class Tools:
    """A catalog of three: one to be undone, its undo, and one that says no."""

    specs = {  # noqa: RUF012
        "do": ToolSpec("do", keyed=True, retry=PATIENT),
        "undo": ToolSpec("undo", keyed=True, retry=PATIENT),
        "no": ToolSpec("no", effect="read"),
    }

    def spec(self, name: str) -> ToolSpec | None:
        return self.specs.get(name)

    def names(self) -> Sequence[str]:
        return list(self.specs)


def begun(width: int = WIDE, **more: Any) -> State:
    """A plan of ``width`` independent steps, and one that fails after all of them."""
    steps: list[dict[str, Any]] = [
        {"step_id": f"s{i}", "tool": "do", "rollback": {"tool": "undo"}, "depends_on": []} for i in range(width)
    ]
    steps.append({"step_id": "no", "tool": "no", "depends_on": [f"s{i}" for i in range(width)]})
    compiled = compile_plan(load_plan({"steps": steps, **more}), Tools())
    started = r.SagaStarted(at=0, saga_id="x", plan=None, digest="d", seed="s", tools=compiled.tool_digests)
    return begin(started, compiled)


def turn(state: State, now: int) -> list[CallTool | Probe]:
    """All that is ordered at ``now``."""
    machine = Machine(state, FixedMeans())
    return [effect for effect in machine.durable(machine.ready(now)) if isinstance(effect, CallTool | Probe)]


def settle(state: State, effects: Sequence[CallTool | Probe], outcome: Outcome, now: int) -> None:
    for effect in effects:
        Machine(state, FixedMeans()).learn(effect, outcome, now, 0.5)


def drive(state: State, outcome: Outcome, *, until: int, forward: bool = True) -> int:
    """Answer every call of one direction like this until so many were made; returns the most that were in flight."""
    made = most = 0
    while made < until:
        effects = turn(state, 0)
        assert effects, f"only {made} of {until} calls were ordered"
        most = max(most, len(state.in_flight))
        for effect in effects:
            step_fails = state.plan.steps[effect.step].key == "no"
            mine = state.backward is not forward and not step_fails
            made += mine
            settle(state, [effect], NO if step_fails else outcome if mine else Done({}), 0)
    return most


@pytest.mark.parametrize("outcome", [BUSY, Unknown(ErrorInfo("timeout", "no answer"))], ids=["retries", "doubts"])
def test_attempts_that_fall_due_together_share_the_room(outcome: Outcome) -> None:
    """Nobody drove the saga for a while: what is due then is called in portions, forward."""
    state = begun()
    assert drive(state, outcome, until=WIDE) == MAX_PARALLEL
    late = turn(state, 120_000)
    assert len(late) == len(state.in_flight) == MAX_PARALLEL
    settle(state, late[:5], Done({}), 120_000)
    assert len(turn(state, 120_000)) == 5


def test_undos_that_fall_due_together_share_the_room() -> None:
    """The same on the way back."""
    state = begun()
    assert drive(state, BUSY, until=WIDE, forward=False) == MAX_PARALLEL
    assert len(turn(state, 120_000)) == len(state.in_flight) == MAX_PARALLEL


def test_steps_that_wait_hold_up_no_others() -> None:
    """A call that waits for its next attempt takes no room."""
    state = begun()
    first = turn(state, 0)
    settle(state, first, BUSY, 0)
    assert len(state.waiting) == MAX_PARALLEL
    assert {effect.step for effect in turn(state, 0)}.isdisjoint(effect.step for effect in first)


def test_retries_that_fall_due_together_keep_to_the_limit_on_calls() -> None:
    """``max_tool_calls`` counts each attempt, however many fall due in one moment."""
    state = begun(width=10, max_tool_calls=14)
    settle(state, turn(state, 0), BUSY, 0)
    late = turn(state, 120_000)
    assert len(late) == 4
    assert state.calls == 14
    assert not turn(state, 120_000)
    assert state.reason == "call-limit"
