"""The rehearsal tells what the engine would do, over every single failure point, and calls nothing."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from saga_engine.analysis import simulation
from saga_engine.analysis.simulation import VERDICTS, Rehearsal, Scenario, rehearse
from saga_engine.analysis.simulator import Fault, FaultKind, play
from saga_engine.core import settling
from saga_engine.core import transitions as t
from saga_engine.core.effects import COMPENSATE, FORWARD
from saga_engine.language.states import STATES
from saga_engine.plan.compiled import CompiledPlan
from saga_engine.plan.compiler import compile_plan
from saga_engine.plan.model import load_plan
from saga_engine.plan.sample_outputs import rehearsable
from saga_engine.plan.tool_spec import RetryPolicy, ToolSpec
from saga_engine.server.console import plans as console
from tests import tiers
from tests.core.simulation import Catalog, make_case
from tests.plan.catalog import Catalog as Declared
from tests.plan.catalog import closed, declare

SAFE = {"keyed": True, "probe": "look"}


def compiled(*steps: dict[str, Any], tools: list[ToolSpec] | None = None, **plan: Any) -> CompiledPlan:
    """Steps numbered from 1.

    The default tools: ``safe`` honours keys and has a probe, ``bare`` has neither, ``undo`` tolerates absence.
    """
    specs = tools or [
        ToolSpec("safe", undo="undo", **SAFE),
        ToolSpec("bare", undo="undo"),
        ToolSpec("read", effect="read"),
        ToolSpec("look", effect="read"),
        ToolSpec("undo", keyed=True, tolerates_absence=True),
    ]
    numbered = [{"step_id": at, **step} for at, step in enumerate(steps, 1)]
    return compile_plan(load_plan({"steps": numbered, **plan}), Catalog(specs))


def found(rehearsal: Rehearsal, step: int, fault: str, direction: str = FORWARD) -> Scenario:
    """The one scenario of a failure point."""
    (one,) = [
        each for each in rehearsal.scenarios if (each.step_id, each.fault, each.direction) == (step, fault, direction)
    ]
    return one


def kinds(scenario: Scenario) -> list[tuple[Any, str, str]]:
    """What is asked about which step in which direction."""
    return [(one.step_id, one.direction, one.kind) for one in scenario.asked]


def test_what_declarations_make_safe_is_clean() -> None:
    """With keys, probes and undos only two things need a person: a tool silent for ever, and an undo that fails."""
    rehearsal = rehearse(compiled({"tool": "safe"}, {"tool": "safe"}))
    assert rehearsal.goes_well.status == t.COMPLETED
    assert [(each.step_id, each.fault, each.direction) for each in rehearsal.scenarios if each.verdict != "clean"] == [
        (1, "silent", FORWARD),
        (1, "refused", COMPENSATE),
        (2, "silent", FORWARD),
        (2, "refused", COMPENSATE),
    ]
    assert rehearsal.count("left") == 0
    assert rehearsal.clean
    lost = found(rehearsal, 1, "lost-happened")
    assert (lost.status, lost.calls, lost.standing) == (t.COMPLETED, 3, ())
    failed = found(rehearsal, 1, "refused", COMPENSATE)
    assert (failed.status, failed.standing, failed.reason) == (t.ESCALATED, (1,), "step-failed")
    assert kinds(failed) == [(1, COMPENSATE, "undo-failed")]
    assert failed.asked[0].options == ("undone", "retry", "accept")
    assert failed.what == "step 2 fails, the undo of step 1 fails permanently"
    # The last step stands only if something else than its own failure turns the saga around.
    last = found(rehearsal, 2, "refused", COMPENSATE)
    assert (last.reason, last.standing) == ("cancelled", (1, 2))  # what comes before it in the list waits for it


def test_an_exception_that_is_no_statement() -> None:
    """A probe tells what it meant, or an undo by the key removes what may stand; a key alone asks an operator."""
    tools = [
        ToolSpec("probed", undo="undo", **SAFE),
        ToolSpec("keyed", undo="undo", keyed=True),
        ToolSpec("by_key", undo="undo", undo_params={"ref": "$key"}, keyed=True),
        ToolSpec("bare", undo="undo"),
        ToolSpec("look", effect="read"),
        ToolSpec("undo", keyed=True, tolerates_absence=True),
    ]
    for tool, happened, not_happened in (
        ("probed", t.COMPLETED, t.COMPENSATED),
        ("keyed", t.ESCALATED, t.ESCALATED),
        ("by_key", t.COMPENSATED, t.COMPENSATED),
    ):
        rehearsal = rehearse(compiled({"tool": tool}, tools=tools))
        ends = [found(rehearsal, 1, f"raised-{how}") for how in ("happened", "not-happened")]
        assert [end.status for end in ends] == [happened, not_happened]
        asks = [[(1, FORWARD, "in-doubt")]] * 2 if tool == "keyed" else [[], []]
        assert [kinds(end) for end in ends] == asks
        assert not any(end.twice for end in ends)
    bare = rehearse(compiled({"tool": "bare"}, tools=tools))
    assert [each.fault for each in bare.scenarios if each.fault.startswith("raised")] == []


def test_what_nothing_can_settle_is_asked() -> None:
    """A write without key and probe is never repeated: a lost answer or a crash becomes a question, with the truth."""
    rehearsal = rehearse(compiled({"tool": "safe"}, {"tool": "bare"}))
    for fault, standing in (
        ("lost-happened", (1, 2)),
        ("crash-happened", (1, 2)),
        ("lost-not-happened", (1,)),
        ("crash-not-happened", (1,)),
    ):
        scenario = found(rehearsal, 2, fault)
        assert (scenario.status, scenario.standing, scenario.verdict) == (t.ESCALATED, standing, "asks")
        assert kinds(scenario) == [(2, FORWARD, "in-doubt")]
    assert not any(each.twice for each in rehearsal.scenarios)


def test_past_the_pivot_what_stands_is_left() -> None:
    """A step that fails permanently behind the pivot leaves what stands; a cancel there comes too late and changes nothing."""
    plan = compiled({"tool": "safe"}, {"tool": "safe", "kind": "pivot"}, {"tool": "safe", "kind": "retriable"})
    rehearsal = rehearse(plan)
    stuck = found(rehearsal, 3, "refused")
    assert (stuck.status, stuck.standing, stuck.verdict) == (t.ESCALATED, (1, 2), "left")
    assert kinds(stuck) == [(3, FORWARD, "step-failed")]
    assert found(rehearsal, 2, "refused").status == t.COMPENSATED
    assert found(rehearsal, 2, "cancel").status == t.COMPLETED
    assert found(rehearsal, 1, "cancel").status == t.COMPENSATED
    # Whether a call behind the pivot happened can be found out by a person: nothing is lost meanwhile.
    assert found(rehearsal, 3, "silent").verdict == "asks"
    # The undo of step 1 is only called when the pivot fails.
    assert found(rehearsal, 1, "refused", COMPENSATE).what == "step 2 fails, the undo of step 1 fails permanently"
    assert not [each for each in rehearsal.scenarios if each.step_id in (2, 3) and each.direction == COMPENSATE]
    assert not rehearsal.clean


def test_an_undo_that_cannot_be_repeated_is_asked_about() -> None:
    """An undo with neither key nor probe nor tolerance is not called twice when its answer is lost."""
    tools = [ToolSpec("safe", undo="undo", **SAFE), ToolSpec("look", effect="read"), ToolSpec("undo")]
    rehearsal = rehearse(compiled({"tool": "safe"}, {"tool": "safe"}, tools=tools))
    for fault, standing in (("lost-happened", ()), ("lost-not-happened", (1,)), ("crash-happened", ())):
        scenario = found(rehearsal, 1, fault, COMPENSATE)
        assert (kinds(scenario), scenario.standing) == ([(1, COMPENSATE, "undo-in-doubt")], standing)


def test_a_failed_undo_holds_back_what_it_depends_on() -> None:
    """The undo of a step waits for the decision about the undo of a step that binds to it; both are said to stand."""
    plan = compiled({"tool": "safe"}, {"tool": "safe", "depends_on": [1]}, {"tool": "safe"})
    scenario = found(rehearse(plan), 2, "refused", COMPENSATE)
    assert scenario.standing == (1, 2)
    assert kinds(scenario) == [(2, COMPENSATE, "undo-failed")]


def test_a_crash_takes_all_calls_in_flight_along() -> None:
    """Where steps run in parallel, one crash puts all calls in flight in doubt, and all of them are settled."""
    plan = compiled(*({"tool": "safe", "depends_on": []} for _ in range(3)))
    rehearsal = rehearse(plan)
    assert found(rehearsal, 1, "crash-happened").calls == 6
    assert found(rehearsal, 3, "crash-happened").calls == 4
    assert {each.status for each in rehearsal.scenarios if each.fault.startswith("crash")} == {
        t.COMPLETED,
        t.COMPENSATED,
    }


def test_a_fallback_stands_in() -> None:
    """If only a step's own tool says no, its fallback does it; if they all do, the saga is undone."""
    step = {"tool": "safe", "fallback": [{"tool": "bare"}]}
    rehearsal = rehearse(compiled({"tool": "safe"}, step))
    assert found(rehearsal, 2, "refused").status == t.COMPLETED
    assert found(rehearsal, 2, "refused-all").status == t.COMPENSATED
    assert found(rehearsal, 2, "unavailable").status == t.COMPLETED


def test_a_deferred_step_comes_to_rest() -> None:
    """A tool that is away for a while and a step that waits for it: the rehearsal ends, also without a deadline."""
    step = {"tool": "safe", "kind": "pivot", "fallback": [{"queue_s": 60}]}
    rehearsal = rehearse(compiled(step))
    assert found(rehearsal, 1, "unavailable").status == t.COMPLETED


def test_the_plans_own_limits_are_played() -> None:
    """The deadline after each step but the last, a call limit that is too low, and a plan that pauses."""
    rehearsal = rehearse(compiled({"tool": "safe"}, {"tool": "safe"}, deadline_s=600))
    assert found(rehearsal, 1, "deadline").reason == "deadline"
    assert found(rehearsal, 1, "deadline").status == t.COMPENSATED
    assert sum(each.fault == "deadline" for each in rehearsal.scenarios) == 1

    limited = rehearse(compiled({"tool": "safe"}, {"tool": "safe"}, max_tool_calls=1))
    assert (limited.goes_well.status, limited.goes_well.reason) == (t.COMPENSATED, "call-limit")
    assert not limited.clean
    assert {each.step_id for each in limited.scenarios} == {1}
    assert found(limited, 1, "refused", COMPENSATE).what == "the undo of step 1 fails permanently"

    paused = rehearse(compiled({"tool": "safe"}, {"tool": "safe"}, on_failure="pause"))
    assert kinds(found(paused, 2, "refused")) == [(2, FORWARD, "step-failed")]
    assert found(paused, 2, "refused").verdict == "asks"
    assert found(paused, 1, "refused", COMPENSATE).reason == "cancelled"


def test_without_a_planner_a_step_that_only_a_model_can_undo_is_asked_about() -> None:
    """Semantic compensation is assumed to be absent: a person is asked, and the step is said to stand."""
    tools = [ToolSpec("odd", keyed=True, semantic="approve"), ToolSpec("safe", undo="odd", **SAFE), ToolSpec("look")]
    scenario = found(rehearse(compiled({"tool": "odd"}, {"tool": "safe"}, tools=tools)), 2, "refused")
    assert (kinds(scenario), scenario.standing) == ([(1, COMPENSATE, "undo-missing")], (1,))


def test_a_key_that_expires_is_not_relied_on() -> None:
    """A tool whose key is forgotten before a call could be repeated is not repeated; a person is asked."""
    tools = [ToolSpec("brief", undo="undo", keyed=True, key_ttl_s=10, timeout_s=5), ToolSpec("undo")]
    rehearsal = rehearse(compiled({"tool": "brief"}, tools=tools))
    assert kinds(found(rehearsal, 1, "crash-happened")) == [(1, FORWARD, "in-doubt")]


@pytest.mark.parametrize(
    "tail",
    ["", ".id", ".list[2].id", "['odd name'][-1]", "..id", ".rows[*].id", ".a[0:1]", ".big[999999999999999]", ".a.b.c"],
)
def test_bindings_resolve(tail: str) -> None:
    """Whatever a plan binds to is made up, with and without an output schema; made-up values are not checked."""
    free = declare("free", undo="undo")
    closed_undo = declare("undo", closed(["ref"], ref={"type": "integer"}, id={"type": "integer"}))
    tools = Declared(free, closed_undo, declare("use", closed(["x"], x={"type": "integer"}), undo="undo"))
    steps = [
        {"step_id": 1, "tool": "free"},
        {"step_id": 2, "tool": "use", "params": {"x": f"$output.step_1{tail}"}},
        {"step_id": 3, "tool": "use", "params": {"x": 1}},
    ]
    plan = compile_plan(load_plan({"steps": steps}), tools)
    rehearsal = rehearse(plan)
    assert rehearsal.goes_well.status == t.COMPLETED
    # The registered undos need a 'ref', which no schema promises.
    assert found(rehearsal, 3, "refused").status == t.COMPENSATED
    assert plan.steps[1].spec is not None
    assert plan.steps[1].spec.check_params({"x": "no number"}), "the plan itself is as it was"


def test_outputs_follow_their_schema() -> None:
    """What is made up is the least that the schema wants, and what the plan binds to beside."""
    schema = {
        "type": "object",
        "required": ["id", "count", "legs", "kind", "open", "at"],
        "properties": {
            "id": {"type": "string"},
            "count": {"type": "integer", "minimum": 3},
            "legs": {"type": "array", "minItems": 2, "items": {"type": ["null", "number"]}},
            "kind": {"enum": ["a", "b"]},
            "open": {"type": "boolean"},
            "at": {"$ref": "#/$defs/place"},
            "price": {"type": "number"},
        },
        "$defs": {"place": {"type": "object", "required": ["again"], "properties": {"again": {"const": 7}}}},
    }
    tools = [ToolSpec("make", effect="read", output_schema=schema), ToolSpec("use", effect="read")]
    plan = compiled({"tool": "make"}, {"tool": "use", "params": {"x": "$output.step_1.price"}}, tools=tools)
    _, outputs = rehearsable(plan)
    assert outputs[0, 0] == {
        "id": "<id>",
        "count": 3,
        "legs": [1, 1],
        "kind": "a",
        "open": True,
        "at": {"again": 7},
        "price": 1,
    }


def test_a_schema_without_end_makes_a_finite_output() -> None:
    """A schema that contains itself, or asks for a huge list, does not hang the rehearsal."""
    node: dict[str, Any] = {"type": "object", "required": ["a", "b"], "properties": {}}
    node["properties"] = {"a": {"$ref": "#"}, "b": {"$ref": "#"}}
    huge = {"type": "array", "minItems": 10**9, "items": {"type": "array", "minItems": 10**9}}
    for schema in (node, huge):
        rehearsal = rehearse(compiled({"tool": "read"}, tools=[ToolSpec("read", effect="read", output_schema=schema)]))
        assert rehearsal.goes_well.status == t.COMPLETED


def test_a_large_plan_is_played_at_some_steps() -> None:
    """The number of scenarios is bounded; first, last and pivot are among them, and what is left out is counted."""
    steps = [{"tool": "safe"} for _ in range(59)]
    plan = compiled(*steps[:40], {"tool": "safe", "kind": "pivot"}, *({"tool": "read"} for _ in steps[40:]))
    whole = rehearse(plan)
    assert (whole.left_out, whole.steps_played, whole.steps) == (0, 60, 60)
    part = rehearse(plan, max_points=100)
    played = {each.step_id for each in part.scenarios}
    assert {1, 41, 60} < played
    assert len(played) == part.steps_played < 60
    assert len(part.scenarios) <= 100
    assert part.left_out == len(whole.scenarios) - len(part.scenarios)
    assert f"{part.left_out} more were left out" in part.summary()
    least = rehearse(plan, max_work=1)
    assert {each.step_id for each in least.scenarios} == {1, 41, 60}


def test_a_broken_engine_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine that repeats a call which may have happened makes the effect stand twice, and the rehearsal says so."""
    plan = compiled({"tool": "bare"}, {"tool": "bare"})
    assert not any(each.twice for each in rehearse(plan).scenarios)
    monkeypatch.setattr(settling, "_repeatable", lambda *_: True)
    twice = found(rehearse(plan), 1, "lost-happened")
    assert (twice.status, twice.twice, twice.verdict) == (t.COMPLETED, (1,), "left")


@settings(max_examples=tiers.examples(150), deadline=None, suppress_health_check=list(HealthCheck))
@given(dice=st.randoms(use_true_random=False))
def test_every_scenario_keeps_the_laws(dice: random.Random) -> None:
    """Over random plans: completed means that all stands, compensated that nothing does, escalated that a person is asked.

    Waived means that what stands is irreversible, as the plan said. Nothing ever stands twice, every saga rests, and the same plan always gives the same rehearsal.
    """
    body, catalog = make_case(dice)
    plan = compile_plan(load_plan(body), catalog)
    rehearsal = rehearse(plan)
    writes = {step.step_id for step in plan.steps if step.kind != "read"}
    final = {step.step_id for step in plan.steps if step.kind == "irreversible"}
    for each in (rehearsal.goes_well, *rehearsal.scenarios):
        assert each.status in (t.COMPLETED, t.COMPENSATED, t.WAIVED, t.ESCALATED)
        assert not each.twice
        assert bool(each.asked) == (each.status == t.ESCALATED)
        assert (each.verdict == "clean") == (each.status in (t.COMPLETED, t.COMPENSATED))
        if each.status in (t.COMPLETED, t.COMPENSATED):
            assert not each.standing
        if each.status == t.WAIVED:
            assert each.verdict == "left"
            assert each.standing
            assert set(each.standing) <= final
        assert set(each.standing) <= writes
    assert rehearse(plan) == rehearsal
    assert sum(rehearsal.count(verdict) for verdict in VERDICTS) == len(rehearsal.scenarios)

    ready, outputs = rehearsable(plan)
    for each in rehearsal.scenarios[:40]:
        if each.direction == FORWARD and each.fault:
            run = play(ready, outputs, (Fault(each.fault, plan.by_key[str(each.step_id)]),))
            if run.state.status == t.COMPLETED:
                assert {plan.steps[index].step_id for index in run.standing} == writes


def test_retries_have_their_end() -> None:
    """A huge budget of tries is played to its end and not cut short as a saga that does not rest."""
    tools = [ToolSpec("safe", undo="safe", **SAFE, retry=RetryPolicy(max_attempts=1000)), ToolSpec("look")]
    scenario = found(rehearse(compiled({"tool": "safe"}, tools=tools)), 1, "unavailable")
    assert (scenario.status, scenario.calls) == (t.COMPENSATED, 1000)


# --- undos of several calls, of items and of fallbacks ---------------------------------------------------------------


def undone_by(tool: str) -> dict[str, Any]:
    """A rollback of three calls."""
    return {"tool": tool, "then": [{"tool": tool}, {"tool": tool}]}


def test_every_call_of_an_undo_is_a_failure_point() -> None:
    """The effect is gone after the last call; what stops before says how much of the undo was done."""
    tools = [ToolSpec("bare", undo="undo"), ToolSpec("undo")]
    rehearsal = rehearse(compiled({"tool": "bare", "rollback": undone_by("undo")}, {"tool": "bare"}, tools=tools))
    undos = [each for each in rehearsal.scenarios if each.step_id == 1 and each.direction == COMPENSATE]
    found = {(each.fault, each.undo_call): (each.standing, [half.done for half in each.half_undone]) for each in undos}
    assert found["refused", (0, 3)] == ((1,), [])
    assert found["refused", (1, 3)] == ((1,), [1])
    assert found["refused", (2, 3)] == ((1,), [2])
    assert found["lost-happened", (0, 3)] == ((1,), [1])
    assert found["lost-happened", (2, 3)] == found["crash-happened", (2, 3)] == ((), [])
    assert found["crash-not-happened", (2, 3)] == ((1,), [2])
    assert {each.verdict for each in undos} == {"asks"}
    (last,) = [each for each in undos if each.undo_call == (2, 3) and each.fault == "refused"]
    assert last.what == "step 2 fails, call 3 of 3 of the undo of step 1 fails permanently"
    assert last.to_dict()["half_undone"] == [{"step_id": 1, "done": 2, "of": 3}]


WATCHED = [
    ToolSpec("put", undo="undo", before="look", keyed=True, probe="look"),
    ToolSpec("safe", undo="undo", **SAFE),
    ToolSpec("look", effect="read"),
    ToolSpec("undo", keyed=True, tolerates_absence=True),
]


def test_drift_is_a_failure_point_of_items_and_of_fallbacks() -> None:
    """Wherever an undo looks first it may find what somebody else changed, and then it asks."""
    plan = compiled(
        {"tool": "put", "each": {"of": ["a", "b"]}, "rollback": undone_by("undo")},
        {"tool": "safe", "fallback": [{"tool": "safe"}, {"tool": "put"}]},
        {"tool": "safe"},
        tools=WATCHED,
    )
    rehearsal = rehearse(plan)
    drifts = [each for each in rehearsal.scenarios if each.fault == "drift"]
    drifts.sort(key=lambda each: str(each.step_id))
    assert [(each.step_id, each.fallback) for each in drifts] == [("1[0]", 0), ("1[1]", 0), (2, 2)]
    assert all(kinds(each) == [(each.step_id, COMPENSATE, "drift")] for each in drifts)
    assert all(each.step_id in each.standing for each in drifts)
    assert drifts[2].what == (
        "step 2 uses fallback 2, step 3 fails, somebody else changes the value before the undo of step 2"
    )
    refused = [each for each in rehearsal.scenarios if (each.step_id, each.fault) == (2, "refused")]
    assert [(each.direction, each.fallback) for each in refused] == [
        (FORWARD, 0),
        (COMPENSATE, 0),
        (COMPENSATE, 1),
        (COMPENSATE, 2),
    ]


def test_a_sole_writers_value_does_not_settle_one_call_of_several() -> None:
    """A value as the step left it proves that no undo happened; it does not prove that of one call of several."""
    writer = ToolSpec("put", undo="undo", before="look", sole_writer=True, keyed=True, probe="look")
    tools = [writer, *WATCHED[1:3], ToolSpec("undo")]
    single = rehearse(compiled({"tool": "put"}, {"tool": "safe"}, tools=tools))
    assert found(single, 1, "lost-not-happened", COMPENSATE).status == t.COMPENSATED
    several = rehearse(compiled({"tool": "put", "rollback": undone_by("undo")}, {"tool": "safe"}, tools=tools))
    lost = [each for each in several.scenarios if each.fault == "lost-not-happened" and each.undo_call == (0, 3)]
    assert [kinds(each) for each in lost] == [[(1, COMPENSATE, "undo-in-doubt")]]


def test_every_kind_of_fault_is_told_in_words_and_on_its_page() -> None:
    """A new kind of fault has words, a line in the documentation, and a column of the console's matrix."""
    page = (Path(__file__).parents[2] / "docs" / "simulate.md").read_text()
    kinds = set(get_args(FaultKind))
    assert {kind for kind in kinds if f"`{kind}`" not in page} == set()
    assert set(simulation._WORDS) == kinds
    assert set(console._KINDS) | set(console._UNDO_KINDS) == kinds
    assert set(console._UNDO_KINDS) == set(simulation._UNDO_WORDS)
    assert {kind for kind in kinds if f"fault.{kind}" not in STATES} == set()
