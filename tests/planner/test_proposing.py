"""The loop around a model: what it says is mended, checked and sent back, within a budget, and never trusted."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from saga_engine.errors import (
    GoalImpossible,
    ModelUnreachable,
    PlanInvalid,
    PlannerFailed,
    PlannerUnavailable,
    ValueNotJson,
)
from saga_engine.planner.planning import PlannedPlan, Planning
from saga_engine.planner.settings import PlannerSettings
from saga_engine.ports import CompensationRequest, PastStep, PlannerAnswer, PlannerUsage, PlanRequest
from tests.planner.scenes import BAD, FLIGHT, GOAL, GOOD, HOTEL, MAIL, SHOP, Scripted, specs, step


async def plan(
    planner: Scripted | None, *, given: dict[str, Any] | None = None, prepared: Any = None, **settings: Any
) -> PlannedPlan:
    """``prepared``: an intent, and the plan prepared for it."""
    plans = {} if prepared is None else dict([prepared])
    planning = Planning(planner, PlannerSettings(prepared_plans=plans, **settings))
    intent = None if prepared is None else prepared[0]
    return await planning.plan(GOAL, specs(), catalog=SHOP, input=given, intent=intent)


async def test_a_good_answer_is_the_plan() -> None:
    """One round; the goal is the one that was asked for, and what was used is told."""
    planned = await plan(Scripted({**GOOD, "goal": "another"}), given={"guest": "Ada"})
    assert (planned.source, planned.rounds, planned.plan.goal) == ("model", 1, GOAL)
    assert [each.key for each in planned.plan.steps] == ["1", "2", "3"]
    assert dict(planned.plan.input) == {"guest": "Ada"}
    assert (planned.usage.tokens_in, planned.usage.tokens_out, planned.usage.requests) == (100, 20, 1)
    assert json.loads(json.dumps(planned.to_dict()))["transcript"][0]["problems"] == []


async def test_problems_go_back_with_code_path_and_hint() -> None:
    """What the checks find is what the next question carries, together with the last answer."""
    planner = Scripted(BAD, GOOD)
    planned = await plan(planner)
    assert planned.rounds == 2
    repair = planner.asked[1].repair
    assert repair is not None
    assert [(p.code, p.path) for p in repair.problems] == [("tool-unknown", "$.steps[0].tool")]
    assert "flights.book" in repair.problems[0].hint
    assert json.loads(repair.answer) == BAD
    assert (planned.usage.tokens_in, planned.usage.requests) == (200, 2)


@pytest.mark.parametrize(
    ("said", "code"),
    [
        ("I would book a flight.", "plan-not-json"),
        (json.dumps(GOOD)[:-20], "plan-not-json"),
        ({"steps": []}, "field-invalid"),
        ({"steps": "none"}, "field-invalid"),
        ('{"steps": [{"step_id": 1, "step_id": 2, "tool": "mail.send"}]}', "plan-not-json"),
        ({"steps": [{**FLIGHT, "why": "cheap"}]}, "field-unknown"),
        ({"steps": [step(1, "flights.book", {"flight": 7})]}, "params-invalid"),
        ({"steps": [step(1, "hotels.book", {"hotel": "$output.step_9.x"})]}, "binding-unknown-step"),
        ({"steps": [step(1, "mail.send", {"to": "a", "text": "b"})]}, "rollback-missing"),
        ({"steps": [{**FLIGHT, "depends_on": [2]}, {**HOTEL, "depends_on": [1]}]}, "graph-cycle"),
        ({"steps": [step(1, "hotels.book", {"hotel": "$input.where"})]}, "binding-input-missing"),
    ],
)
async def test_every_kind_of_bad_answer_is_named(said: Any, code: str) -> None:
    """Form, JSON, params, bindings, kinds, order: the model gets the code that ``saga check`` would print."""
    planner = Scripted(said, GOOD)
    assert (await plan(planner)).rounds == 2
    assert code in planner.codes[1]


async def test_a_fault_of_form_hides_no_other_problem_from_the_model() -> None:
    """Every round costs: what is misspelt is told with what was not offered and what does not fit, in one round."""
    early = {**MAIL, "step_id": 1, "params": {"to": "a", "text": "$secret.TOKEN"}}
    said = {"steps": [early, {**FLIGHT, "step_id": 2, "why": "cheap"}, {**HOTEL, "step_id": 3, "tool": "nope"}]}
    planner = Scripted(said, GOOD)
    assert (await plan(planner)).rounds == 2
    repair = planner.asked[1].repair
    assert repair is not None
    assert {(p.code, p.path) for p in repair.problems} >= {
        ("field-unknown", "$.steps[1].why"),
        ("secret-not-offered", "$.steps[0].params.text"),
        ("tool-unknown", "$.steps[2].tool"),
    }


async def test_what_will_be_mended_is_not_told_beside_a_fault_of_form() -> None:
    """A pivot too early is moved by us once the form is right: the model need not hear of it."""
    early = {**MAIL, "step_id": 1, "params": {"to": "a", "text": "b"}}
    planner = Scripted({"steps": [early, {**FLIGHT, "step_id": 2, "why": "cheap"}, {**HOTEL, "step_id": 3}]}, GOOD)
    assert (await plan(planner)).rounds == 2
    assert planner.codes[1] == ["field-unknown"]


async def test_after_the_last_round_the_error_has_the_transcript() -> None:
    """N rounds are N questions; then it is an error with everything that was said, cut."""
    planner = Scripted(BAD, "x" * 100_000, BAD)
    with pytest.raises(PlannerFailed, match="3 rounds") as failed:
        await plan(planner, rounds=3)
    said = failed.value.context["transcript"]
    assert [entry["problems"][0]["code"] for entry in said] == ["tool-unknown", "plan-not-json", "tool-unknown"]
    assert len(json.dumps(failed.value.to_dict())) < 30_000
    assert failed.value.context["usage"]["requests"] == 3
    assert not planner.answers


async def test_what_can_be_mended_is_not_asked_for_again() -> None:
    """A rollback that says nothing and a pivot too early cost no round, and are told."""
    early = {**MAIL, "step_id": 1, "params": {"to": "a", "text": "b"}}
    planned = await plan(
        Scripted({"steps": [early, {**FLIGHT, "step_id": 2, "rollback": {}}, {**HOTEL, "step_id": 3}]})
    )
    assert planned.rounds == 1
    assert [each.key for each in planned.plan.steps] == ["2", "3", "1"]
    assert [word for word in ("flights.cancel", "moved") if not any(word in note for note in planned.notes)] == []
    undos = [step.rollback.tool for step in planned.plan.steps if step.rollback is not None]
    assert undos == ["flights.cancel", "hotels.cancel"], "who reads the plan sees each undo"


@pytest.mark.parametrize(
    "said",
    [{"impossible": "no trains"}, {"impossible": "no trains", "steps": []}, 'Sorry. {"impossible": "no trains"}'],
)
async def test_a_goal_that_cannot_be_served_is_not_asked_for_again(said: Any) -> None:
    """The model's reason is the error's message."""
    with pytest.raises(GoalImpossible, match="no trains"):
        await plan(Scripted(said))


async def test_the_reason_is_fit_to_print() -> None:
    """A model's words do not reach a terminal raw, and not without end."""
    with pytest.raises(GoalImpossible) as refused:
        await plan(Scripted({"impossible": "\x1b[2J" + "x" * 100_000}))
    assert "\x1b" not in refused.value.message
    assert len(refused.value.message) < 1200


async def test_steps_beside_a_reason_count() -> None:
    """Who gives steps has not refused."""
    assert (await plan(Scripted({**GOOD, "impossible": "not really"}))).rounds == 1


# --- what a model may use ------------------------------------------------------------------------------------------


async def test_tools_that_were_not_offered_do_not_exist() -> None:
    """A tool of the catalog that was not shown to the model is unknown in its plan."""
    planner = Scripted(GOOD, GOOD)
    with pytest.raises(PlannerFailed, match="mail"):
        await Planning(planner, PlannerSettings(rounds=2)).plan(
            GOAL, specs("flights.book", "hotels.book"), catalog=SHOP
        )
    assert planner.codes[1] == ["tool-unknown"]


async def test_an_undo_is_for_rollbacks() -> None:
    """The registered undo of an offered tool may undo, and is no step of its own, nor a fallback."""
    away = {"steps": [step(1, "flights.cancel", {"order_id": "F-1"}, kind="pivot")]}
    around = {
        "steps": [
            {
                **FLIGHT,
                "fallback": {
                    "tool": "flights.cancel",
                    "params": {"order_id": "F-1"},
                    "rollback": {"tool": "flights.cancel", "params": {"order_id": "1"}},
                },
            }
        ]
    }
    undone = {
        "steps": [{**FLIGHT, "rollback": {"tool": "flights.cancel", "params": {"order_id": "$output.step_1.order_id"}}}]
    }
    planner = Scripted(away, around, undone)
    assert (await plan(planner)).rounds == 3
    assert [codes[:1] for codes in planner.codes[1:]] == [["tool-not-offered"], ["tool-not-offered"]]


@pytest.mark.parametrize("place", ["params", "embedded", "rollback"])
async def test_secrets_that_were_not_offered_are_refused(place: str) -> None:
    """A model that was talked into sending a secret away gets nowhere: only names that were offered may stand in a plan."""
    stolen = {
        "params": step(1, "hotels.book", {"hotel": "$secret.DB_PASSWORD"}),
        "embedded": step(1, "hotels.book", {"hotel": "x", "note": "see {$secret.DB_PASSWORD}"}),
        "rollback": {**HOTEL, "rollback": {"tool": "hotels.cancel", "params": {"booking_ref": "$secret.DB_PASSWORD"}}},
    }[place]
    planner = Scripted({"steps": [stolen]}, GOOD)
    await plan(planner, secrets=("HOTEL_CODE",))
    assert planner.codes[1] == ["secret-not-offered"]
    assert planner.asked[0].secrets == ("HOTEL_CODE",)
    allowed = {"steps": [step(1, "hotels.book", {"hotel": "$secret.HOTEL_CODE"})]}
    assert (await plan(Scripted(allowed), secrets=("HOTEL_CODE",))).rounds == 1


async def test_the_callers_input_wins() -> None:
    """A model cannot change the values that it was given, nor choose the saga's id."""
    said = {**GOOD, "input": {"amount": 1_000_000, "more": 1}, "task_id": "somebody-elses"}
    planned = await plan(Scripted(said), given={"amount": 5})
    assert dict(planned.plan.input) == {"amount": 5}
    assert planned.plan.task_id is None


# --- budgets -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("limit", "usage", "word"),
    [
        ({"max_requests": 2}, PlannerUsage(1, 1, 1), "requests"),
        ({"max_tokens": 150}, PlannerUsage(100, 20, 1), "tokens"),
        ({"max_cost_usd": 0.10}, PlannerUsage(1, 1, 1, 0.06), "cost_usd"),
    ],
)
async def test_a_budget_ends_the_rounds(limit: dict[str, Any], usage: PlannerUsage, word: str) -> None:
    """Two answers use up what there is: there is no third question, and the second said what was left."""
    planner = Scripted(BAD, BAD, GOOD, usage=usage)
    with pytest.raises(PlannerFailed, match=word):
        await plan(planner, **limit)
    assert len(planner.asked) == 2
    first, second = (replace(asked.allowance, seconds=None) for asked in planner.asked)
    assert second == first.after(usage)


async def test_a_cost_limit_that_cannot_be_applied_is_told() -> None:
    """Where the price is not known, the notes say that the limit had no effect."""
    planned = await plan(Scripted(GOOD), max_cost_usd=0.01)
    assert any("price" in note for note in planned.notes)


async def test_a_token_limit_that_cannot_be_applied_is_told() -> None:
    """A server that does not say what it used is not taken for one that used nothing."""
    planned = await plan(Scripted(GOOD, usage=PlannerUsage(0, 0, 1, None, 0.5)), max_tokens=10)
    assert any("tokens" in note for note in planned.notes)
    planned = await plan(Scripted(GOOD), max_tokens=1000)
    assert not any("limit on tokens" in note for note in planned.notes)


async def test_the_budget_stands_beside_what_was_used() -> None:
    """In the plan's document and in every error: rounds, requests, tokens, cost and seconds; null is no limit."""
    budget = {"rounds": 2, "requests": 5, "tokens": 7000, "cost_usd": None, "seconds": 9.0}
    limits = {"rounds": 2, "max_requests": 5, "max_tokens": 7000, "total_s": 9.0}
    assert (await plan(Scripted(GOOD), **limits)).to_dict()["budget"] == budget
    for said in (BAD, {"impossible": "no"}, ModelUnreachable("503", requests=3)):
        with pytest.raises((PlannerFailed, GoalImpossible, ModelUnreachable)) as error:
            await plan(Scripted(BAD, said), **limits)
        assert error.value.context["budget"] == budget


async def test_what_was_said_and_used_is_not_lost_with_the_server() -> None:
    """A model that answers badly and is then out of reach: the error has the first round, and counts both."""
    with pytest.raises(ModelUnreachable, match="503") as error:
        await plan(Scripted(BAD, ModelUnreachable("503", requests=3)))
    context = error.value.context
    assert [entry["problems"][0]["code"] for entry in context["transcript"]] == ["tool-unknown"]
    assert (context["rounds"], context["usage"]["requests"], context["usage"]["tokens_in"]) == (1, 4, 100)


async def test_time_covers_all_rounds() -> None:
    """A model that never answers is given up, whatever round it is in."""

    class Silent(Scripted):
        async def ask(self, request: PlanRequest) -> PlannerAnswer:
            if self.answers:
                return await super().ask(request)
            return await asyncio.Future()

    with pytest.raises(ModelUnreachable, match="within") as error:
        await plan(Silent(BAD), total_s=0.05)
    assert len(error.value.context["transcript"]) == 1


async def test_a_time_out_of_the_planners_own_is_not_ours() -> None:
    """Only the limit's own end is told as one; any other error passes through."""
    with pytest.raises(TimeoutError):
        await plan(Scripted(TimeoutError("a defect")))


# --- prepared plans ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("planner", [None, Scripted(PlannerUnavailable("no key")), Scripted(ModelUnreachable("503"))])
async def test_a_prepared_plan_stands_in_for_a_model_that_cannot_be_asked(
    planner: Scripted | None, tmp_path: Path
) -> None:
    """No model, no key, no answer: the plan for the intent is used, and the notes say why."""
    path = tmp_path / "trip.json"
    path.write_text(json.dumps({"steps": [step(1, "hotels.book", {"hotel": "$input.hotel"})]}))
    planned = await plan(planner, prepared=("trip", path), given={"hotel": "Roma"})
    assert (planned.source, planned.rounds, planned.plan.goal) == ("prepared", 0, GOAL)
    assert dict(planned.plan.input) == {"hotel": "Roma"}
    assert "trip" in planned.notes[0]
    assert "no model was used" in planned.notes[0]


async def test_a_prepared_plan_is_checked_too() -> None:
    """It is checked like any plan, by all tools that there are; and a bad answer of a model is no reason to use it."""
    with pytest.raises(PlanInvalid, match="nosuch"):
        await plan(None, prepared=("x", {"steps": [step(1, "nosuch")]}))
    with pytest.raises(PlannerFailed):
        await plan(Scripted(BAD), rounds=1, prepared=("x", GOOD))
    with pytest.raises(GoalImpossible):
        await plan(Scripted({"impossible": "no"}), prepared=("x", GOOD))


async def test_without_a_model_the_error_says_what_to_set() -> None:
    """No model and no prepared plan."""
    with pytest.raises(PlannerUnavailable) as error:
        await plan(None)
    assert "SAGA_MODEL" in (error.value.hint or "")


async def test_a_goal_or_input_that_is_none_is_refused_before_anybody_is_asked() -> None:
    """An empty goal, one without end, and input that is no JSON."""
    for goal in ("", "  \n", "x" * 10_001):
        with pytest.raises(PlanInvalid):
            await Planning(Scripted()).plan(goal, specs())
    with pytest.raises(ValueNotJson):
        await plan(Scripted(), given={"x": float("nan")})


@given(st.lists(st.sampled_from(["good", "bad", "prose"]), min_size=1, max_size=5), st.integers(1, 5))
def test_the_first_good_answer_within_the_rounds_counts(said: list[str], rounds: int) -> None:
    """For every order of answers: as many questions as it takes, never more than the rounds."""
    answers = {"good": GOOD, "bad": BAD, "prose": "hm"}
    planner = Scripted(*(answers[each] for each in said), *[BAD] * rounds)
    wanted = next((number for number, each in enumerate(said, 1) if each == "good"), rounds + 1)
    if wanted <= rounds:
        assert asyncio.run(plan(planner, rounds=rounds)).rounds == wanted
    else:
        with pytest.raises(PlannerFailed):
            asyncio.run(plan(planner, rounds=rounds))
    assert len(planner.asked) == min(wanted, rounds)


class Ending:
    """A planner whose first answer ended before it was one."""

    model = "scripted:ending"

    def __init__(self, ended: Any, text: str, then: Any) -> None:
        self.asked: list[Any] = []
        usage = PlannerUsage(1, 1, 1)
        first = PlannerAnswer(text, "", self.model, "p@1", "", usage, ended)
        self.answers = [first, PlannerAnswer(then, then, self.model, "p@1", "", usage)]

    async def ask(self, request: Any) -> PlannerAnswer:
        self.asked.append(request)
        return self.answers.pop(0)


@pytest.mark.parametrize(
    ("ended", "text", "said"),
    [
        ("cut", '{"steps": [{"step_id": 1', "cut off at its longest length"),
        ("cut", "I think that", "cut off at its longest length"),
        ("refused", "I cannot help with that.", "declined to answer"),
    ],
)
async def test_an_answer_that_was_cut_or_refused_is_said_to_be(ended: Any, text: str, said: str) -> None:
    """It is no prose and no faulty JSON: the model and the error say what happened, for a plan and for a compensation."""
    planner = Ending(ended, text, json.dumps(GOOD))
    await Planning(planner).plan(GOAL, specs(), catalog=SHOP)
    (problem,) = planner.asked[1].repair.problems
    assert said in problem.message
    stuck = PastStep(1, "hotels.book", "SUCCEEDED")
    request = CompensationRequest(GOAL, stuck, [stuck], specs("mail.send"))
    once = Planning(Ending(ended, text, ""), PlannerSettings(rounds=1))
    with pytest.raises(PlannerFailed, match=said):
        await once.advise(request, lambda *_: ())
