"""The two tables are total, reachable and able to rest; the look-up and the diagrams come from the machine."""

from __future__ import annotations

import pytest
from transitions import Machine

from saga_engine.core import transitions as t

TABLES = {
    "saga": (t.SAGA_MACHINE, t.SAGA_STATES, t.SAGA_FINAL, t.SAGA_MOVES, t.SAGA_TRANSITIONS),
    "step": (t.STEP_MACHINE, t.STEP_STATES, t.STEP_REST, t.STEP_MOVES, t.STEP_TRANSITIONS),
}


@pytest.fixture(params=TABLES)
def table(request: pytest.FixtureRequest) -> tuple:
    return TABLES[request.param]


def reach(moves, start: str) -> set[str]:
    seen, queue = {start}, [start]
    while queue:
        state = queue.pop()
        for (source, _), dest in moves.items():
            if source == state and dest not in seen:
                seen.add(dest)
                queue.append(dest)
    return seen


def test_every_state_is_reachable(table) -> None:
    """No state stands in the table for nothing."""
    _, states, _, moves, _ = table
    assert reach(moves, t.PENDING) == set(states)


def test_every_state_can_come_to_rest(table) -> None:
    """From everywhere there is a way to an end."""
    _, states, final, moves, _ = table
    assert all(reach(moves, state) & final for state in states)


def test_every_state_has_a_row(table) -> None:
    """A state either leads somewhere or is an end."""
    _, states, final, moves, _ = table
    sources = {source for source, _ in moves}
    assert set(states) - sources <= final


def test_an_ended_saga_never_changes() -> None:
    """Running a compensated saga again cannot complete it (pitfalls 18, 19)."""
    assert not {source for source, _ in t.SAGA_MOVES} & t.SAGA_FINAL


def test_what_was_undone_or_skipped_stays_so() -> None:
    """No trigger leads out of these: an undo is never undone, a skipped step never runs."""
    sources = {source for source, _ in t.STEP_MOVES}
    assert not sources & {t.COMPENSATED, t.RESOLVED, t.SKIPPED}


def test_in_doubt_leads_to_failed_only_by_evidence() -> None:
    """Only `fail`, which a probe, a definite answer or a person gives, leads from IN_DOUBT to FAILED (pitfall 14)."""
    assert {
        trigger for (source, trigger), dest in t.STEP_MOVES.items() if source == t.IN_DOUBT and dest == t.FAILED
    } == {"fail"}


def test_the_lookup_is_the_machine(table) -> None:
    """Every pair of the compiled look-up is what the library's own machine does with a model, and the others are refused."""
    machine, states, _, moves, transitions = table
    assert isinstance(machine, Machine)
    triggers = {trigger for trigger, _, _ in transitions}

    class Model:
        state = t.PENDING

    for state in states:
        for trigger in triggers:
            model = Model()
            own = Machine(model, states=list(states), initial=state, auto_transitions=False,
                          transitions=[[name, list(sources), dest] for name, sources, dest in transitions])  # fmt: skip
            assert own is not machine
            if (state, trigger) in moves:
                model.trigger(trigger)
                assert model.state == moves[state, trigger]
            else:
                assert not own.get_transitions(trigger, state)


def test_the_machine_is_shared_and_has_no_model() -> None:
    """One synchronous machine for all sagas: no models to add, no automatic transitions."""
    assert t.SAGA_MACHINE.models == []
    assert t.STEP_MACHINE.models == []
    assert "to_RUNNING" not in t.STEP_MACHINE.events


def test_the_diagram_shows_every_state(table) -> None:
    """The docs are drawn from the machine."""
    machine, states, final, _, _ = table
    text = t.mermaid(machine, final)
    assert all(state in text for state in states)
    assert text.startswith("stateDiagram-v2")
