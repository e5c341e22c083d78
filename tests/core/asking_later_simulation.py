"""The simulation of models that are away: they are asked again after a while, before anybody else is."""

from __future__ import annotations

import random
from typing import Any

from saga_engine.core import asking_later
from saga_engine.core import records as r
from saga_engine.core.effects import COMPENSATE, AskPlanner, ErrorInfo
from saga_engine.core.questions import MADE_UP_FOR
from saga_engine.core.state import State
from tests.core.cases import Catalog
from tests.core.simulation import Simulation
from tests.core.world import Violation

_AWAY = ErrorInfo("model_unreachable", "no answer")
#: What turns a saga around whatever a model would say.
_STOPS = (r.CancelRequested, r.DeadlinePassed, r.CallLimitReached)


class AskLaterSimulation(Simulation):
    """The model is away for some time, or for good; another owner may have a planner, or none."""

    def __init__(self, dice: random.Random, trouble: float = 0.5) -> None:
        super().__init__(dice, trouble)
        self.capabilities = self.capabilities._replace(planner=True)
        self.away = dice.choice([0.3, 0.7, 1.0])

    def _case(self) -> tuple[dict[str, Any], Catalog]:
        plan, catalog = super()._case()
        if self.dice.random() < 0.4:
            plan["on_failure"] = "replan"
        return plan, catalog

    def _take_over(self) -> Any:
        state, pending = super()._take_over()
        if any(not each.of_step for each in state.pending.values()):
            self.capabilities = self.capabilities._replace(planner=self.dice.random() < 0.5)
        return state, pending

    def _ask_planner(self, state: State, effect: AskPlanner) -> None:
        if self.dice.random() >= self.away:
            super()._ask_planner(state, effect)
            return
        self._maybe_crash()
        self._learned(effect, _AWAY, self._tick(state), 0.5)

    def _check_end(self, state: State) -> None:
        super()._check_end(state)
        check_asked_again(self.journalled())


def check_asked_again(records: list[r.AnyRecord]) -> None:
    """What was said to be asked again is asked again: not before its time, not more often, and before anything else."""
    due: dict[str, int] = {}
    times: dict[str, int] = {}
    stopped = False
    for record in records:
        stopped = stopped or isinstance(record, _STOPS)
        if isinstance(record, r.PlannerAsked):
            if record.at < due.pop(record.step, 0):
                raise Violation(f"the model is asked again about {record.step} before its time")
        elif isinstance(record, r.PlannerGaveUp):
            _check_gave_up(record, due, times, stopped=stopped)
        elif isinstance(record, r.StepEscalated) and record.direction == COMPENSATE and record.step in due:
            if record.kind in MADE_UP_FOR:
                raise Violation(f"an operator is asked about {record.step}, for which a model is to be asked again")
        elif isinstance(record, r.CompensationStarted):
            if due and not stopped:
                raise Violation(f"the saga turns around, and a model is to be asked again about {sorted(due)}")
            due.clear()
        elif isinstance(record, r.SagaEscalated | r.SagaCompensated | r.SagaWaived | r.SagaCompleted) and due:
            raise Violation(f"a model is to be asked again about {sorted(due)}, and is forgotten")


def _check_gave_up(record: r.PlannerGaveUp, due: dict[str, int], times: dict[str, int], *, stopped: bool) -> None:
    step = record.step
    if record.at < due.pop(step, record.at - asking_later.WAIT_FOR_PLANNER_MS) + asking_later.WAIT_FOR_PLANNER_MS:
        raise Violation(f"nobody asks the model again about {step}, and nobody had the time to")
    so_far = times.get(step, 0)
    if not record.delay_ms:
        away = record.error.error_code == asking_later.UNREACHED
        if away and so_far < len(asking_later.DELAYS_MS) and not (stopped and record.purpose == "replan"):
            raise Violation(f"the model was away, and is not asked again about {step}")
        return
    if so_far >= len(asking_later.DELAYS_MS):
        raise Violation(f"the model is asked again about {step} without end")
    times[step] = so_far + 1
    due[step] = record.at + record.delay_ms
