"""Guards and growth that are broken on purpose, to show that their kill matrix can fail. Applied after the fork."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from saga_engine.core import evolve
from saga_engine.core import records as r
from saga_engine.core.state import State
from saga_engine.core.state_values import Underway
from saga_engine.guards.dedupe import KeptResults
from saga_engine.policy.gate import Gate
from saga_engine.ports import Claim
from saga_engine.runtime.performer import Performer
from saga_engine.stores.guards import RedisGuards


def do_not_look_for_a_kept_result() -> None:
    """A result that never reached the journal is not found."""

    async def recollect(*_: Any) -> None:
        return None

    KeptResults.recollect = recollect  # type: ignore[method-assign, assignment]


def claim_nothing() -> None:
    """Whoever asks may make the call."""

    async def claim(*_: Any) -> Claim:
        return Claim("new")

    RedisGuards.claim = claim  # type: ignore[method-assign, assignment]


def undo_the_tool_that_was_not_used() -> None:
    """The step's own rollback, whatever served it."""
    State.rollback_of = lambda self, index: self.plan.steps[index].rollback  # type: ignore[method-assign, assignment]


def take_who_is_being_told_for_told() -> None:
    """An alert that was under way when its process died is not sent again."""
    genuine = evolve._HANDLERS[r.SagaResumed]

    def resumed(saga: Any, record: Any) -> None:
        for question in [name for name, alert in saga.alerts.items() if alert.in_flight]:
            del saga.alerts[question]
        genuine(saga, record)

    evolve._HANDLERS[r.SagaResumed] = resumed


def ask_nobody() -> None:
    """The gate lets every call through."""

    async def authorize(*_: Any) -> None:
        return None

    Gate.authorize = authorize  # type: ignore[method-assign, assignment]


def ask_the_model_for_a_second_opinion() -> None:
    """One order, two questions."""
    genuine = Performer.advise

    async def advise(self: Performer, *args: Any) -> Any:
        await genuine(self, *args)
        return await genuine(self, *args)

    Performer.advise = advise  # type: ignore[method-assign]


def forget_what_the_model_answered() -> None:
    """Whoever resumes the saga has it asked once more."""
    genuine = evolve._HANDLERS[r.SagaResumed]

    def resumed(saga: Any, record: Any) -> None:
        genuine(saga, record)
        for index, step in enumerate(saga.steps):
            if isinstance(step.semantic, Underway):
                step.semantic = None
                saga.to_escalate[index, "compensate"] = "undo-missing"

    evolve._HANDLERS[r.SagaResumed] = resumed


MUTANTS: dict[str, Callable[[], None]] = {
    mutant.__name__.replace("_", " "): mutant
    for mutant in (
        do_not_look_for_a_kept_result,
        claim_nothing,
        undo_the_tool_that_was_not_used,
        take_who_is_being_told_for_told,
        ask_nobody,
        ask_the_model_for_a_second_opinion,
        forget_what_the_model_answered,
    )
}
