"""A trace run again: today's engine decides what was decided, or the first difference is told, with both sides."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from saga_engine.analysis.replay import Divergence, Replay, changed_tools
from saga_engine.analysis.replay_inputs import sorts
from saga_engine.analysis.trace import DeclaredTools, fill
from saga_engine.analysis.trace_file import Trace, read
from saga_engine.core import codec, settling, transitions
from saga_engine.core import records as r
from saga_engine.core.effects import ErrorInfo, NotDone
from saga_engine.errors import JournalUnreadable, PlanInvalid, SettingInvalid, ToolMissing
from saga_engine.plan.tool_spec import RetryPolicy, ToolCatalog, ToolSpec
from tests import tiers
from tests.core.asking_later_simulation import AskLaterSimulation
from tests.core.engine_mutants import MUTANTS
from tests.core.large_values import big, stored
from tests.core.recording import Recording, lines_of
from tests.core.simulation import Catalog, Simulation
from tests.core.stories import SPECS, STORIES, completed, doubtful, plan, undone
from tests.core.undo_calls_simulation import UndoCallsSimulation


def simulated(dice: random.Random, trouble: float) -> tuple[Trace, Catalog]:
    """The trace of a simulated saga."""
    simulation = Simulation(dice, trouble)
    simulation.run()
    records = [codec.decode(data) for data in simulation.journal.data]
    (trace,) = read(lines_of(records, simulation.catalog))
    return trace, simulation.catalog


@pytest.mark.seeds
def test_undos_of_several_calls_are_run_again() -> None:
    """The calls of an undo, and the lists that they come from, are what they were; without the outputs, too."""
    several = 0
    for seed in range(tiers.examples(120)):
        dice = random.Random(seed)
        simulation = UndoCallsSimulation(dice, dice.choice([0.3, 0.6, 1.0]))
        simulation.run()
        records = simulation.journalled()
        several += any(isinstance(record, r.StepIntended) and record.call is not None for record in records)
        (trace,) = read(lines_of(records, simulation.catalog))
        assert replayed(trace, simulation.catalog) is None, seed
    assert tiers.fewer() or several > 10


def seeded(seeds: range) -> list[tuple[Trace, Catalog]]:
    found = []
    for seed in seeds:
        dice = random.Random(seed)
        found.append(simulated(dice, dice.choice([0.3, 0.6, 1.0])))
    return found


def replayed(trace: Trace, catalog: ToolCatalog, plan: Any = None, together_ms: int = 1000) -> Divergence | None:
    """Where it diverges; if nowhere, every record was agreed with."""
    again = Replay(trace, catalog, plan, together_ms=together_ms)
    moments = list(again.run())
    if again.divergence is None:
        assert [moment.record for moment in moments] == again.records[1:]
        assert again.state.status == trace.status
    return again.divergence


# --- the same engine -----------------------------------------------------------------------------------------------------


@settings(max_examples=tiers.examples(150), deadline=None, suppress_health_check=list(HealthCheck))
@given(
    dice=st.randoms(use_true_random=False),
    trouble=st.sampled_from([0.0, 0.3, 0.6, 1.0]),
    together_ms=st.sampled_from([0, 1000, 10**9]),
)
def test_an_engine_agrees_with_its_own_journal(dice: random.Random, trouble: float, together_ms: int) -> None:
    """Whatever happened, with crashes, models, people and grown plans: a replay by the same engine never diverges."""
    trace, catalog = simulated(dice, trouble)
    assert replayed(trace, catalog, together_ms=together_ms) is None


@pytest.mark.seeds
def test_sagas_that_ask_a_model_later_replay() -> None:
    """Models that are away, with crashes and other owners: also those without a planner, which decide nothing then."""
    waited = 0
    for seed in range(tiers.examples(160)):
        dice = random.Random(seed)
        simulation = AskLaterSimulation(dice, dice.choice([0.3, 0.6, 1.0]))
        simulation.run()
        records = simulation.journalled()
        if any(isinstance(record, r.PlannerGaveUp) and record.delay_ms for record in records):
            waited += 1
            (trace,) = read(lines_of(records, simulation.catalog))
            assert replayed(trace, simulation.catalog) is None
    assert tiers.fewer() or waited > 5


@pytest.mark.parametrize("name", STORIES)
@pytest.mark.parametrize(
    "rules", [(), ("**.ref", "**.room"), ("params", "output", "input", "error", "note", "by", "goal")]
)
def test_the_stories_replay(name: str, rules: tuple[str, ...]) -> None:
    """With the tools at hand and with those that the trace declares; whole, and with fields left out."""
    saga = STORIES[name]()
    trace = saga.trace(*rules)
    assert replayed(trace, saga.catalog) is None
    assert replayed(trace, DeclaredTools(trace.header)) is None


def test_every_decision_is_shown() -> None:
    """What was decided and what was given, line by line."""
    trace = completed().trace()
    moments = list(Replay(trace, completed().catalog).run())
    assert [moment.line for moment in moments] == list(range(2, len(trace.entries) + 1))
    assert [(moment.sort, type(moment.record).__name__) for moment in moments if moment.sort == "decided"] == [
        *[("decided", "StepIntended")] * 4,
        ("decided", "SagaCompleted"),
    ]


def test_large_values_need_not_be_there() -> None:
    """Where a binding goes into an output that was cut, the recorded params count; 10 MB whole replay as well."""
    saga = big({"ref": "x", "rows": ["y" * 1000] * 10_000})
    records, values = stored(saga)
    for full in (False, True):
        filled = [fill(record, values, outputs=full) for record in records]
        (trace,) = read(lines_of(filled, saga.catalog, full=full))
        assert replayed(trace, saga.catalog) is None


def test_the_order_of_fields_comes_back() -> None:
    """An object that is bound into a text is the text that it was: a trace does not sort."""
    steps = [
        {"step_id": 1, "tool": "book", "params": {}},
        {"step_id": 2, "tool": "book", "params": {"text": "all: {$output.step_1}"}},
    ]
    saga = Recording({"steps": steps}, SPECS, output=lambda _: {"ref": 1, "b": 2, "a": 3}).run()
    assert replayed(saga.trace(), saga.catalog) is None


def test_every_kind_of_record_has_its_sort() -> None:
    """A new kind of record is placed on purpose: decided, or given by whom."""
    decided = {
        *("StepIntended", "StepWaiting", "ProbeIntended", "DeadlinePassed", "CallLimitReached", "CompensationStarted"),
        *("CompensationRefused", "ApprovalExpired", "AlertIntended", "PlannerAsked", "CompensationRequested"),
        *("SagaCompleted", "SagaCompensated", "SagaEscalated", "SagaWaived", "FinallyStarted", "StepUnsettled"),
        *("StepSkipped", "OutputChecked", "EachExpanded"),
    }
    from saga_engine.analysis.replay_inputs import _MESSAGES, _SETTLING

    both = {
        "StepsAdded",
        "PlannerGaveUp",
        "CompensationProposed",
        "AlertSent",
        "AlertFailed",
        "SagaStarted",
        "SagaResumed",
    }
    both |= {"StepQueued", "StepBegun"}  # given by guards
    both |= {"UndoLooked"}  # seen after an undo
    known = decided | both | {kind.__name__ for kind in (*_MESSAGES, *_SETTLING)}
    assert known == {kind.__name__ for kind in get_args(r.AnyRecord)}


def test_an_answer_and_a_decision_of_one_kind_are_told_apart() -> None:
    """A failure is an answer while a call, or an alert, is in flight, and a decision when nothing is."""
    error = ErrorInfo("e", "m")
    records = [
        r.StepIntended(at=1, step="1"),
        r.StepFailed(at=2, step="1", error=error),
        r.StepFailed(at=3, step="2", error=error),
        r.PlannerAsked(at=4, step="1", purpose="replan"),
        r.PlannerGaveUp(at=5, step="1", purpose="replan", error=error),
        r.PlannerGaveUp(at=6, step="1", purpose="replan", error=error),
        r.StepIntended(at=7, step="3"),
        r.SagaResumed(at=8, owner="o", epoch=2),
        r.StepEscalated(at=9, step="3", question="q", kind="in-doubt", options=[]),
        r.AlertIntended(at=10, question="q", attempt=1),
        r.AlertFailed(at=11, question="q", error=error, delay_ms=1000),
        r.AlertIntended(at=12, question="q", attempt=2),
        r.SagaResumed(at=13, owner="p", epoch=3),
        r.AlertFailed(at=14, question="q", error=error, delay_ms=-1),
    ]
    assert list(sorts(records)) == [
        *("decided", "outcome", "decided", "decided", "outcome", "decided", "decided", "owner", "decided"),
        *("decided", "outcome", "decided", "owner", "decided"),
    ]


# --- another engine --------------------------------------------------------------------------------------------------------

_TRACES: list[tuple[Trace, Catalog]] = []


def traces() -> list[tuple[Trace, Catalog]]:
    """Traces of the engine as it is; made before any mutant is."""
    if not _TRACES:
        _TRACES.extend(seeded(range(700)))
    return _TRACES


#: What the performer does with an approval, and how long the refusal of a guard lets a call wait, follows from what the
#: outside said, which no journal has: a replay cannot compare it (``test_mutants`` hunts for the latter).
UNSEEN = {"an approval counts for ever", "a guard holds a step for ever"}


@pytest.mark.parametrize("name", sorted(set(MUTANTS) - UNSEEN))
def test_another_engine_is_noticed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A journal of the engine as it is, replayed by a broken one: the difference is found, and both sides are told."""
    recorded = traces()
    MUTANTS[name](monkeypatch)
    found = (replayed(trace, catalog, together_ms=0) for trace, catalog in recorded)
    divergence = next((each for each in found if each is not None), None)
    assert divergence is not None, f"nothing noticed the mutant '{name}'"
    assert divergence.what
    assert divergence.line >= 2


def test_deciding_too_early_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A retry that comes before its time: the recorded engine was asked then, and decided nothing."""
    saga = completed()
    trace = saga.trace()
    real = settling.due_calls

    def hasty(state: Any, now: int, only: Any = None) -> list[r.AnyRecord]:
        return real(state, now + 10_000, only)

    monkeypatch.setattr(settling, "due_calls", hasty)
    divergence = replayed(trace, saga.catalog, together_ms=500)
    assert divergence is not None
    assert divergence.what == "today's engine decides 1000 ms earlier"
    assert divergence.today[0]["k"] == "StepIntended"


# --- other tools ------------------------------------------------------------------------------------------------------------


def with_tool(**facts: Any) -> Catalog:
    """The stories' tools, one of them declared otherwise."""
    name = facts["name"]
    return Catalog([replace(spec, **facts) if spec.name == name else spec for spec in SPECS])


def test_a_tool_without_its_probe_is_settled_otherwise() -> None:
    """The recorded saga asked the probe; with today's tool a person is asked at once. Both sides are shown."""
    trace = doubtful().trace()
    divergence = replayed(trace, with_tool(name="pay", probe=None))
    assert divergence is not None
    assert divergence.what == "today's engine decides otherwise"
    assert [record["k"] for record in divergence.recorded] == ["ProbeIntended"]
    assert [record["k"] for record in divergence.today] == ["StepEscalated"]
    (changed,) = changed_tools(trace, with_tool(name="pay", probe=None))
    assert (changed.tool, changed.recorded, changed.today, changed.facts) == ("pay", "d-pay", "d-pay", ["probe"])


def test_a_changed_digest_is_told_and_is_no_divergence_by_itself() -> None:
    """Another declaration that decides the same is told, and that is all."""
    saga = completed()
    catalog = with_tool(name="book", digest="another")
    assert [(each.tool, each.today) for each in changed_tools(saga.trace(), catalog)] == [("book", "another")]
    assert replayed(saga.trace(), catalog) is None
    assert changed_tools(saga.trace(), saga.catalog) == []


def test_fewer_tries_are_noticed() -> None:
    """A retry that today's policy would not make."""
    divergence = replayed(completed().trace(), with_tool(name="book", retry=RetryPolicy(max_attempts=1)))
    assert divergence is not None
    assert divergence.what == "today's engine settles it otherwise"
    assert "StepFailed" in {record["k"] for record in divergence.today}


def test_tools_that_nobody_declares_are_named() -> None:
    """Without the declarations nothing can be decided: an error that names them, before anything is replayed."""
    trace = completed().trace(*(), declare=False)
    with pytest.raises(ToolMissing, match=r"book, find, pay, refund, unbook"):
        Replay(trace, DeclaredTools(trace.header))
    assert replayed(trace, DeclaredTools(trace.header, completed().catalog)) is None


@pytest.mark.parametrize(
    "said", [{"effect": "explode"}, {"retry": {"max_attempts": "many"}}, {"keyed": 1}, {"input_schema": []}]
)
def test_a_declaration_that_is_none_is_refused(said: dict[str, Any]) -> None:
    """A trace comes from elsewhere."""
    with pytest.raises(JournalUnreadable, match="'t'"):
        DeclaredTools({"declared": {"t": said}})


# --- another plan -------------------------------------------------------------------------------------------------------------


def test_another_plan_goes_another_way_where_it_differs() -> None:
    """Changed params are found at the call that has them, also where nothing binds and the journal has none."""
    saga = completed()
    changed = plan()
    changed["steps"][0] = {**changed["steps"][0], "params": {"city": "Gdańsk"}}
    divergence = replayed(saga.trace(), saga.catalog, changed)
    assert divergence is not None
    assert (divergence.line, divergence.what) == (2, "today's engine decides otherwise")
    then, now = divergence.recorded[0], divergence.today[0]
    assert then != now
    assert (then["tool"], then["params"]) == (plan()["steps"][0]["tool"], plan()["steps"][0]["params"])
    assert (now["tool"], now["params"]) == (plan()["steps"][0]["tool"], {"city": "Gdańsk"})
    assert replayed(saga.trace(), saga.catalog, plan()) is None
    later = plan()
    later["steps"][2] = {**later["steps"][2], "depends_on": ["find"], "params": {"card": "$input.card"}}
    divergence = replayed(saga.trace(), saga.catalog, later)
    assert divergence is not None
    assert divergence.line == 4


def test_a_plan_without_a_recorded_step_is_another_way() -> None:
    """A step that the new plan has not cannot be taken in."""
    saga = undone()
    shorter = plan()
    del shorter["steps"][2]
    divergence = replayed(saga.trace(), saga.catalog, shorter)
    assert divergence is not None
    assert divergence.today[0]["k"] == "SagaCompleted"
    with pytest.raises(PlanInvalid):
        Replay(saga.trace(), saga.catalog, {"steps": [{"step_id": 1, "tool": "nobody"}]})


def test_a_session_has_no_plan_to_change() -> None:
    """Its calls are its plan."""
    saga = completed()
    started = msgspec.structs.replace(saga.records[0], session=True)
    (trace,) = read(lines_of([started], saga.catalog))
    with pytest.raises(SettingInvalid, match="session"):
        Replay(trace, saga.catalog, plan())


# --- what does not fit ----------------------------------------------------------------------------------------------------------


def test_a_journal_that_contradicts_itself_diverges() -> None:
    """A record that cannot follow ends the replay with a reason, not with a crash."""
    saga = completed()
    records = [*saga.records[:-1], r.StepSucceeded(at=saga.now, step="pay", output={})]
    (trace,) = read(lines_of(saga.records, saga.catalog))
    entries = [*trace.entries[:-1], trace.entries[-1]._replace(record=records[-1])]
    divergence = replayed(trace._replace(entries=entries), saga.catalog)
    assert divergence is not None
    for odd in (r.StepSucceeded(at=1, step="nowhere"), r.StepIntended(at=1, step="nowhere")):
        entries = [trace.entries[0], trace.entries[1]._replace(record=odd)]
        assert replayed(trace._replace(entries=entries), saga.catalog) is not None


def test_a_decision_that_is_missing_is_noticed() -> None:
    """What is decided at once is appended at once: a trace that ends within a round is from another engine."""
    steps = [{"step_id": at, "tool": "book", "params": {}, "depends_on": []} for at in (1, 2)]
    saga = Recording({"steps": steps}, SPECS).run()
    trace = saga.trace()
    after_the_answers = trace._replace(entries=trace.entries[:5], status=transitions.RUNNING)
    assert replayed(after_the_answers, saga.catalog) is None  # the process may have been stopping
    within = replayed(trace._replace(entries=trace.entries[:2]), saga.catalog)
    assert within is not None
    assert [record["k"] for record in within.today] == ["StepIntended", "StepIntended"]


def test_an_answer_that_no_tool_can_have_given_is_noticed() -> None:
    """A write whose answer was lost is in doubt; a journal that calls it failed is from another engine."""
    no = NotDone(ErrorInfo("no", "no"), retryable=False, definite=True)
    saga = Recording({"steps": [{"step_id": 1, "tool": "book", "params": {}}]}, SPECS, {("1", "forward"): [no]}).run()
    trace = saga.trace()
    odd = r.StepRetryScheduled(at=trace.entries[2].record.at, step="1", error=ErrorInfo("no", "no"), delay_ms=1000)
    assert isinstance(trace.entries[2].record, r.StepFailed)
    once = Catalog([*[replace(spec, retry=RetryPolicy(1)) for spec in SPECS]])
    entries = [*trace.entries[:2], trace.entries[2]._replace(record=odd)]
    divergence = replayed(trace._replace(entries=entries), once)
    assert divergence is not None
    assert divergence.what == "today's engine settles it otherwise"


def test_params_that_no_longer_fit_are_noticed() -> None:
    """Today's schema refuses what was called: that is decided otherwise."""
    saga = completed()

    def refuse(_: Any) -> list[tuple[tuple[str | int, ...], str]]:
        return [(("room",), "is too small")]

    divergence = replayed(saga.trace(), with_tool(name="book", digest="new", check_params=refuse))
    assert divergence is not None
    assert divergence.today[0]["k"] == "StepEscalated"
    assert divergence.today[0]["kind"] == "tool-changed"
    declared = DeclaredTools(saga.trace().header, None, lambda name, schema: refuse)
    divergence = replayed(saga.trace(), declared)
    assert divergence is not None
    assert divergence.today[0]["error"]["error_code"] == "params_invalid"


def test_it_goes_as_far_as_the_first_difference() -> None:
    """What comes after it did not happen: nothing of it is shown."""
    saga = completed()
    again = Replay(saga.trace(), with_tool(name="pay", digest="x", check_params=lambda _: [(("for",), "no")]))
    moments = list(again.run())
    assert again.divergence is not None
    assert moments[-1].line == again.divergence.line - 1
    assert again.divergence.to_dict()["line"] == again.divergence.line


def specs_of(catalog: Catalog) -> list[ToolSpec]:
    return [spec for name in catalog.names() if (spec := catalog.spec(name)) is not None]


def test_declarations_are_enough() -> None:
    """What a trace declares of the tools decides the same as the tools themselves."""
    for trace, catalog in traces()[:150]:
        assert specs_of(catalog)
        assert replayed(trace, DeclaredTools(trace.header), together_ms=0) is None
