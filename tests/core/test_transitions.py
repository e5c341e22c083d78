"""The two tables are total, reachable and able to rest; the look-up and the diagrams come from the machine."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from transitions import Machine

from saga_engine.core import records as r
from saga_engine.core import transitions as t
from saga_engine.core.evolve import evolve
from saga_engine.core.evolve.transition import move
from saga_engine.core.fold import begin
from saga_engine.core.state import State
from saga_engine.core.state_values import Doubt, StepState
from saga_engine.errors import JournalUnreadable
from saga_engine.plan.compiler import compile_plan
from saga_engine.plan.model import load_plan
from saga_engine.plan.tool_spec import ToolSpec
from tests.core.cases import Catalog

TABLES = {
    "saga": (t.SAGA_MACHINE, t.SAGA_STATES, t.SAGA_FINAL, t.SAGA_MOVES, t.SAGA_TRANSITIONS),
    "step": (t.STEP_MACHINE, t.STEP_STATES, t.STEP_REST, t.STEP_MOVES, t.STEP_TRANSITIONS),
}
GUARDS = {"saga": t.SAGA_GUARDS, "step": t.STEP_GUARDS}


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
    """No trigger leads out of these: an undo is never undone, a skipped step never runs.

    But an undo that was looked at, and did not do what it says, is asked about.
    """
    moves = {(source, trigger) for source, trigger in t.STEP_MOVES if source in {t.COMPENSATED, t.RESOLVED, t.SKIPPED}}
    assert moves == {(t.COMPENSATED, "reopen"), (t.RESOLVED, "reopen")}
    assert "reopen" in t.STEP_GUARDS


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


@pytest.mark.parametrize("name", TABLES)
def test_the_diagram_shows_every_state_and_every_guard(name: str) -> None:
    """The docs are drawn from the machine and its guards."""
    machine, states, final, _, transitions = TABLES[name]
    text = t.mermaid(machine, final, GUARDS[name])
    assert all(state in text for state in states)
    assert text.startswith("stateDiagram-v2")
    assert GUARDS[name].keys() <= {trigger for trigger, _, _ in transitions}
    assert all(f"{trigger} [{guard.words}]" in text for trigger, guard in GUARDS[name].items())


def saga(*records: r.AnyRecord) -> State:
    """A saga of one step, after these records."""
    body = {"steps": [{"step_id": 1, "tool": "book", "rollback": {"tool": "undo"}}]}
    plan = compile_plan(load_plan(body), Catalog([ToolSpec("book"), ToolSpec("undo")]))
    state = begin(r.SagaStarted(at=1, saga_id="s", plan=body, digest="d", seed="x"), plan)
    for record in records:
        evolve(state, record)
    return state


_INTENDED = r.StepIntended(at=2, step="1")
_CANCELLED = (_INTENDED, r.StepSucceeded(at=3, step="1"), r.CancelRequested(at=4))
_TURNED = (*_CANCELLED, r.CompensationStarted(at=4, reason="cancelled"))
#: Records that the table has at this place and a guard forbids, by the trigger.
FORBIDDEN: dict[str, tuple[tuple[r.AnyRecord, ...], r.AnyRecord]] = {
    "complete": ((_INTENDED,), r.SagaCompleted(at=3)),
    "compensate": ((_INTENDED, r.CancelRequested(at=3)), r.CompensationStarted(at=3, reason="cancelled")),
    "refuse": (_CANCELLED, r.CompensationRefused(at=5, reason="cancelled")),
    "compensated": (_TURNED, r.SagaCompensated(at=5)),
    "escalate": ((_INTENDED,), r.SagaEscalated(at=3)),
    "waive": ((_INTENDED,), r.SagaWaived(at=3)),
    "undo": (_CANCELLED[:2], r.StepIntended(at=4, step="1", direction="compensate")),
}


@pytest.mark.parametrize("trigger", FORBIDDEN)
def test_no_journal_leads_past_a_guard(trigger: str) -> None:
    """A record that a guard forbids is refused, and the refusal quotes the guard."""
    before, record = FORBIDDEN[trigger]
    words = (t.SAGA_GUARDS.get(trigger) or t.STEP_GUARDS[trigger]).words
    with pytest.raises(JournalUnreadable, match=f"{trigger}: not \\[{words}\\]"):
        evolve(saga(*before), record)


def test_a_saga_that_is_to_turn_around_does_not_complete() -> None:
    """Every step has happened, and yet a cancel came first."""
    with pytest.raises(JournalUnreadable, match="complete: not"):
        evolve(saga(*_CANCELLED), r.SagaCompleted(at=5))


def _in_doubt(step: StepState) -> None:
    step.forward.doubt = step.call("compensate").doubt = Doubt()


@pytest.mark.parametrize("trigger", ["succeed", "fail", "block", "doubt", "undone", "compensated_by_others"])
def test_no_step_moves_past_a_guard(trigger: str) -> None:
    """What is in doubt is neither done nor failed nor undone; what is known is not in doubt."""
    spoil: dict[str, Callable[[StepState], None]] = {"doubt": lambda _: None, "compensated_by_others": lambda _: None}
    for source in (source for source, name in t.STEP_MOVES if name == trigger):
        step = StepState(0, status=source)
        spoil.get(trigger, _in_doubt)(step)
        with pytest.raises(KeyError, match="not "):
            move(step, trigger)
        assert step.status == source
