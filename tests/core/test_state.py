"""What a state cannot be: combinations that no value can hold, and those that no simulated saga reaches."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from saga_engine.core import evolve as evolving
from saga_engine.core import machine
from saga_engine.core import transitions as t
from saga_engine.core.effects import COMPENSATE, FORWARD
from saga_engine.core.state import State
from saga_engine.core.state_values import (
    Backward,
    CallState,
    Deduplicated,
    Doubt,
    Made,
    Proposal,
    Replanning,
    StepState,
    Turning,
    Underway,
)
from tests import tiers
from tests.core.session_simulation import SessionSimulation
from tests.core.simulation import Simulation

#: What an operator wants repeated, what may have left or was lost: only of a call in doubt. One owner of an effect.
IMPOSSIBLE: dict[str, Callable[[], Any]] = {
    "a call that is not in doubt and is to be repeated": lambda: CallState(repeat="wanted"),
    "a call that is not in doubt and was lost": lambda: CallState(lost=True),
    "a call that is not in doubt and may have left": lambda: CallState(sent=True),
    "an approval without its end": lambda: CallState(approval_until=1),
    "an effect that another saga owns and this one gave away": lambda: Deduplicated("a/1", None, to="b"),  # type: ignore[call-arg]
    "an effect of one's own with another saga's key": lambda: Made("call", key="k"),  # type: ignore[call-arg]
    "a step that is proposed a compensation and compensated": lambda: Proposal(open=1),  # type: ignore[call-arg]
    "a saga that turned around without a reason": Backward,  # type: ignore[call-arg]
    "a saga that looks for another way and turns around": lambda: Replanning(step=1, reason="cancelled"),  # type: ignore[call-arg]
    "a saga that goes back, and is still to turn": lambda: Turning("deadline", backward=True),  # type: ignore[call-arg]
    "a step with an owner and no effect": lambda: StepState(0, source="a/1"),
    "a step that an operator undid and accepted": lambda: StepState(0, accepted=True, by_hand=True),
}


@pytest.mark.parametrize("name", IMPOSSIBLE)
def test_what_excludes_each_other_cannot_be_written_down(name: str) -> None:
    """There is no value for these combinations."""
    with pytest.raises(TypeError):
        IMPOSSIBLE[name]()


@pytest.mark.parametrize("kind", [Simulation, SessionSimulation])
@pytest.mark.seeds
def test_every_state_of_the_simulation_is_consistent(kind: type[Simulation], monkeypatch: pytest.MonkeyPatch) -> None:
    """What the types leave open, no journal reaches: after each record of each saga all facts agree."""
    genuine, seen = evolving.evolve, 0

    def evolve(state: State, record: Any) -> State:
        nonlocal seen
        seen += 1
        genuine(state, record)
        assert problems(state) == [], record
        return state

    for module in (evolving, machine):
        monkeypatch.setattr(module, "evolve", evolve)
    for seed in range(tiers.examples(130)):
        dice = random.Random(seed)
        kind(dice, dice.choice([0.3, 0.6, 1.0])).run()
    assert seen > tiers.examples(2000)


def test_a_state_that_is_not_consistent_is_found() -> None:
    """The check above can fail."""
    simulation = Simulation(random.Random(1), 0.3)
    state = simulation.run()
    assert problems(state) == []
    state.steps[0].accepted, state.steps[0].status = True, t.PENDING
    state.doubts[0, FORWARD] = None
    state.steps[0].forward.doubt = Doubt()
    assert len(problems(state)) == 3


def problems(state: State) -> list[str]:
    """What does not fit together."""
    found = [f"step {number}: {what}" for number in range(len(state.steps)) for what in _of_step(state, number)]
    facts = {
        "an open session is a session that goes forward": not state.open or (state.session and not state.backward),
        "the phase and the status agree": _phase_fits(state),
        "another way is wanted for a step that failed": not isinstance(state.phase, Replanning)
        or (state.phase.step in state.failed and state.plan.on_failure == "replan"),
        "the undos that have not ended are counted": state.undo_open
        == sum(s.undo_waits is not None for s in state.steps),
        "an alert is due once": not state.alerts.keys() & state.reminders.keys(),
        "alerts are of questions and notices": state.alerts.keys() <= state.questions.keys() | state.notices.keys(),
        "reminders are of questions": state.reminders.keys() <= state.questions.keys(),
        "a step waits for one thing, and a model is asked about one that waits for nothing": all(
            (state.steps[index].status in {t.WAITING, t.COMPENSATING}) == each.of_step
            for index, each in state.pending.items()
        ),
        "who has ended has nothing open": state.status not in t.SAGA_FINAL or not (state.in_flight or state.questions),
    }
    return found + [name for name, holds in facts.items() if not holds]


def _phase_fits(state: State) -> bool:
    """Which statuses a saga can have in its phase."""
    if isinstance(state.phase, Backward):
        return state.status in {t.COMPENSATING, t.ESCALATED, t.COMPENSATED, t.WAIVED}
    if state.phase == FORWARD:
        return state.status in {t.PENDING, t.RUNNING, t.ESCALATED, t.COMPLETED, t.WAIVED}
    return state.status in {t.PENDING, t.RUNNING, t.ESCALATED}


def _of_step(state: State, index: int) -> list[str]:
    step = state.steps[index]
    doubt = step.forward.doubt is not None
    facts = {
        "IN_DOUBT has a doubt": step.status != t.IN_DOUBT or doubt,
        "what is settled has no doubt": not doubt
        or step.status not in {t.PENDING, t.SKIPPED, t.SUCCEEDED, t.FAILED, t.BLOCKED},
        "SUCCEEDED has an effect": step.status != t.SUCCEEDED or step.effect is not None,
        "what did not happen has none": step.effect is None
        or step.status not in {t.PENDING, t.SKIPPED, t.RUNNING, t.FAILED, t.BLOCKED, t.IN_DOUBT},
        "only what an operator resolved is accepted": not step.accepted or step.status == t.RESOLVED,
        "other steps compensated for it": step.semantic != "happened" or step.status == t.COMPENSATED,
        "other steps are to compensate for it": not isinstance(step.semantic, Underway)
        or (step.status == t.COMPENSATION_FAILED and step.semantic.open > 0),
        "only a step that has happened is proposed a compensation": not isinstance(step.semantic, Proposal)
        or step.effect is not None,
    }
    found = [name for name, holds in facts.items() if not holds]
    for direction in (FORWARD, COMPENSATE):
        place = (index, direction)
        if place == (index, COMPENSATE) and step.undo is None:
            continue
        call = step.call(direction)
        flight = state.in_flight.get(place)
        questions = [asked for asked in state.questions.values() if not asked.of_session]  # they wait for no call
        asked = any((asked.step, asked.direction) == place for asked in questions)
        places = [place in each for each in (state.in_flight, state.waiting, state.doubts, state.to_escalate)]
        facts = {
            "a call is in one place": sum(places) + asked <= 1,
            "what is to be settled is in doubt": place not in state.doubts or call.doubt is not None,
            "a probe asks about a doubt": flight != "probe" or call.doubt is not None,
            "the time of a call runs while it is in flight": bool(call.called_at)
            == (flight in {"call", "intended", "queued"}),
        }
        found += [f"{direction}: {name}" for name, holds in facts.items() if not holds]
    return found
