"""The loop around a model that is asked for steps: mended where that needs no thought, checked, sent back, bounded."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from saga_engine.core.interpret import Advice
from saga_engine.errors import GoalImpossible, ModelUnreachable, PlannerFailed, PlannerUnavailable, Problem
from saga_engine.plan.tool_spec import ToolCatalog, ToolSpec
from saga_engine.planner.planning import Planning
from saga_engine.planner.settings import PlannerSettings
from saga_engine.ports import CompensationRequest, PastStep, PlannerRequest, PlannerUsage, ReplanRequest
from saga_engine.testing.scripted import ScriptedPlanner
from tests.plan.catalog import TEXT, closed, declare
from tests.planner.injections import INJECTIONS

STUCK = PastStep("tweet", "tweet", "ESCALATED", output={"id": 7})
REFUND = declare("refund", closed(["ref"], ref=TEXT), compensates=True)
BOOK = declare("book", closed(["what"], what=TEXT), undo="unbook")
UNBOOK = declare("unbook", closed(["ref"], ref=TEXT))
PAY = declare("pay", closed([]))
WIRE = declare("wire", closed([]))
FIX = {"step_id": "fix_1", "tool": "refund", "params": {"ref": "7"}}
OTHER = {"step_id": 9, "tool": "book", "params": {"what": "Savoy"}}


class Check:
    """A check that knows which ids are taken, and which tools are allowed; it remembers what it was shown."""

    def __init__(self, *taken: str, faults: int = 0) -> None:
        self.taken = set(taken)
        self.faults = faults
        self.shown: list[Sequence[Mapping[str, Any]]] = []

    def __call__(self, steps: Sequence[Mapping[str, Any]], _dropped: object = None) -> Sequence[Problem]:
        self.shown.append(steps)
        if self.faults:
            self.faults -= 1
            return [Problem("params-invalid", "$.steps[0].params.ref", "it must be a text", "write a text")]
        seen = set(self.taken)
        found = []
        for index, step in enumerate(steps):
            if str(step.get("step_id")) in seen:
                found.append(Problem("step-duplicate", f"$.steps[{index}].step_id", "the id is taken"))
            seen.add(str(step.get("step_id")))
        return found


def planning(planner: Any, select: Any = None, **settings: Any) -> Planning:
    return Planning(planner, PlannerSettings(**settings), select)


async def compensation(
    planner: Any, check: Check | None = None, tools: Sequence[ToolSpec] = (REFUND,), **options: Any
) -> Advice:
    request = CompensationRequest("tell the world", STUCK, [STUCK], tools)
    return await planning(planner, **options).advise(request, check or Check())


async def other_way(
    planner: Any,
    check: Check | None = None,
    tools: Sequence[ToolSpec] = (BOOK, UNBOOK, WIRE),
    left: Sequence[Mapping[str, Any]] = (),
    **options: Any,
) -> Advice:
    request = ReplanRequest("a trip", PastStep(2, "book", "FAILED"), [], left, tools, taken=("1", "2"))
    return await planning(planner, **options).advise(request, check or Check("1", "2"))


def codes(planner: ScriptedPlanner) -> list[list[str]]:
    """The codes of the problems that each question came with."""
    return [[p.code for p in asked.repair.problems] if asked.repair else [] for asked in planner.asked]


# --- asking and mending --------------------------------------------------------------------------------------------


async def test_steps_that_pass_come_back_with_who_wrote_them() -> None:
    """One round: the steps as they were written, and what asking used."""
    advice = await compensation(ScriptedPlanner({"steps": [FIX]}, usage=PlannerUsage(100, 20, 1, 0.01, 0.5)))
    assert advice.steps == [FIX]
    written = advice.written
    assert (written.model, written.prompt) == ("scripted:planner", "compensate@script")
    assert (written.requests, written.tokens_in, written.tokens_out, written.cost_usd) == (1, 100, 20, 0.01)


async def test_problems_go_back_and_all_rounds_are_counted() -> None:
    """What the saga's check finds goes back with the answer; the usage is that of both rounds."""
    planner = ScriptedPlanner([FIX], [FIX], usage=PlannerUsage(100, 20, 1))
    advice = await compensation(planner, Check(faults=1))
    assert codes(planner) == [[], ["params-invalid"]]
    assert planner.asked[1].repair.answer
    assert (advice.written.requests, advice.written.tokens_in) == (2, 200)


@pytest.mark.parametrize(
    ("said", "code"),
    [
        ("I am sorry about the tweet.", "plan-not-json"),
        ({"steps": []}, "field-invalid"),
        ({"steps": "refund"}, "field-invalid"),
        ({"steps": ["refund"]}, "field-invalid"),
        ({"steps": [[1]]}, "field-invalid"),
        ({"steps": None}, "field-invalid"),
        ({"answer": [FIX]}, "field-invalid"),
        ('{"steps": [{"step_id": 1, "step_id": 2}]}', "plan-not-json"),
    ],
)
async def test_what_is_no_list_of_steps_is_never_shown_to_the_check(said: Any, code: str) -> None:
    """The check gets a list of objects, whatever a model says."""
    planner, check = ScriptedPlanner(said, [FIX]), Check()
    assert (await compensation(planner, check)).steps == [FIX]
    assert codes(planner)[1] == [code]
    assert check.shown == [[FIX]]


async def test_what_needs_no_thought_is_mended() -> None:
    """Nulls, a plan around the steps, a rollback of a compensation: no round is spent on them."""
    planner = ScriptedPlanner({"plan": {"steps": [{**FIX, "name": None, "rollback": {"tool": "wire"}}]}})
    assert (await compensation(planner)).steps == [FIX]


async def test_a_registered_undo_may_undo() -> None:
    """Another way may write the undo out; one that says nothing is the registered one."""
    written = {**OTHER, "rollback": {"tool": "unbook", "params": {"ref": "$output.step_9.ref"}}}
    assert (await other_way(ScriptedPlanner([written]))).steps == [written]
    assert (await other_way(ScriptedPlanner([{**OTHER, "rollback": {}}]))).steps == [OTHER]


# --- ids -----------------------------------------------------------------------------------------------------------


async def test_a_taken_id_gets_an_ending() -> None:
    """A model that numbers its steps from 1 costs no round where nothing else is meant by the number."""
    steps = [{**FIX, "step_id": 1}, {**FIX, "step_id": 2}]
    advice = await compensation(ScriptedPlanner(steps), Check("1", "1_2"))
    assert [step["step_id"] for step in advice.steps] == ["1_3", 2]


@pytest.mark.parametrize(
    "more",
    [
        {"params": {"ref": "$output.step_1.ref"}},
        {"params": {"ref": "it was {$output.step_1.ref}"}},
        {"params": {"deep": [{"ref": "$output.step_1"}]}},
        {"depends_on": [1]},
        {"depends_on": "1"},
    ],
)
async def test_an_id_that_is_named_is_not_guessed(more: dict[str, Any]) -> None:
    """Two steps could be meant: the model is asked which."""
    planner = ScriptedPlanner([{**FIX, "step_id": 1}, {**FIX, **more}], [FIX])
    assert (await compensation(planner, Check("1"))).steps == [FIX]
    assert codes(planner)[1] == ["step-duplicate"]


@given(
    st.lists(st.one_of(st.integers(0, 4), st.sampled_from(["a", "b", "x" * 64])), min_size=1, max_size=6),
    st.sets(st.sampled_from(["0", "1", "2", "1_2", "a", "b_2"])),
)
def test_ids_are_free_or_the_model_is_asked(ids: list[int | str], taken: set[str]) -> None:
    """For all ids: what comes back has ids that are free, each once, and otherwise it is what the model wrote."""
    steps = [{**FIX, "step_id": each} for each in ids]
    try:
        advice = asyncio.run(compensation(ScriptedPlanner(steps), Check(*taken), rounds=1))
    except PlannerFailed:
        return
    found = [str(step["step_id"]) for step in advice.steps]
    assert len(set(found)) == len(found)
    assert not taken & set(found)
    assert max(map(len, found)) <= 64
    assert [{**step, "step_id": 0} for step in advice.steps] == [{**step, "step_id": 0} for step in steps]


# --- what may be used ----------------------------------------------------------------------------------------------


async def test_without_tools_nobody_is_asked() -> None:
    """If no tool may make up for anything, a question would only cost."""
    planner = ScriptedPlanner([FIX])
    with pytest.raises(PlannerUnavailable, match="no tool"):
        await compensation(planner, tools=())
    assert planner.asked == []


@pytest.mark.parametrize(
    "step",
    [
        {**OTHER, "tool": "wire"},
        {"step_id": 9, "tool": "pay", "rollback": {"tool": "wire", "params": {"a": 1}}},
        {**OTHER, "fallback": {"tool": "wire"}},
        {**OTHER, "fallback": [{"queue_s": 1}, {"tool": "book", "rollback": {"tool": "wire", "params": {"a": 1}}}]},
    ],
)
async def test_a_tool_that_was_not_shown_is_not_taken(step: dict[str, Any]) -> None:
    """Even if the saga's check would let it pass: in a step, a rollback, a fallback, a fallback's rollback."""
    planner = ScriptedPlanner([step], [OTHER])
    select = _only("unbook", "pay")
    assert (await other_way(planner, tools=(BOOK, UNBOOK, PAY, WIRE), select=select, tools_offered=3)).steps == [OTHER]
    assert codes(planner)[1] == ["tool-not-offered"]


def _only(*names: str) -> Any:
    def select(_words: str, catalog: ToolCatalog, _limit: int) -> list[ToolSpec]:
        return [spec for name in names if (spec := catalog.spec(name)) is not None]

    return select


async def test_of_many_tools_some_are_shown() -> None:
    """Those of the steps at hand come first; the others are chosen by words in which no tool's output stands."""
    many = [declare(f"t{number}", closed([])) for number in range(30)]
    heard: list[tuple[str, int]] = []

    def select(words: str, catalog: ToolCatalog, limit: int) -> list[ToolSpec]:
        heard.append((words, limit))
        made_up = declare("made_up", closed([]))
        return [made_up, *(spec for name in catalog.names()[-limit:] if (spec := catalog.spec(name)) is not None)]

    planner = ScriptedPlanner([{**OTHER, "tool": "t3"}])
    left = [{"step_id": 3, "name": "a swim", "tool": "t3", "params": {"text": INJECTIONS[0]}}]
    await other_way(planner, tools=[*many, BOOK], left=left, select=select, tools_offered=4)
    assert [spec.name for spec in planner.asked[0].tools] == ["book", "t3", "t28", "t29"]
    ((words, limit),) = heard
    assert limit == 2
    assert "a swim" in words
    assert "wire_money" not in words


@given(st.integers(1, 12), st.integers(1, 12), st.integers(0, 12))
def test_no_more_tools_than_the_limit(limit: int, count: int, used: int) -> None:
    """For all numbers of tools and of steps that are left: at most so many are shown, and never none."""
    many = [declare(f"t{number}", closed([])) for number in range(count)]
    left = [{"step_id": 10 + number, "tool": f"t{number}"} for number in range(used)]
    planner = ScriptedPlanner({"impossible": "x"})
    with pytest.raises(GoalImpossible):
        asyncio.run(other_way(planner, tools=many, left=left, tools_offered=limit))
    assert len(planner.asked[0].tools) == min(limit, count)


@pytest.mark.parametrize("text", INJECTIONS)
async def test_a_tools_words_widen_nothing(text: str) -> None:
    """Whatever a tool returned and however often the model obeys: what was not offered is refused in every round."""
    stuck = PastStep(1, "tweet", "ESCALATED", output={"note": text}, error={"message": text})
    request = CompensationRequest(text, stuck, [stuck], [REFUND])
    obeyed = [{"step_id": "fix_1", "tool": "wire", "params": {}}]
    planner = ScriptedPlanner(obeyed, obeyed, obeyed)
    with pytest.raises(PlannerFailed, match="3 rounds"):
        await planning(planner).advise(request, Check())
    assert codes(planner) == [[], ["tool-not-offered"], ["tool-not-offered"]]


# --- bounds --------------------------------------------------------------------------------------------------------


async def test_the_models_no_is_the_end() -> None:
    """Its reason is told, fit to print; it is not asked again."""
    for ask, words in ((compensation, "makes up"), (other_way, "no other way")):
        planner = ScriptedPlanner({"impossible": "\x1b[2Jno way"}, [FIX])
        with pytest.raises(GoalImpossible, match=words) as refused:
            await ask(planner)
        assert "no way" in refused.value.message
        assert "\x1b" not in refused.value.message
        assert len(planner.asked) == 1


@pytest.mark.parametrize(
    ("limit", "usage", "word"),
    [
        ({"max_requests": 2}, PlannerUsage(1, 1, 1), "requests"),
        ({"max_tokens": 150}, PlannerUsage(100, 20, 1), "tokens"),
        ({"max_cost_usd": 0.10}, PlannerUsage(1, 1, 1, 0.06), "cost_usd"),
    ],
)
async def test_a_budget_covers_all_rounds(limit: dict[str, Any], usage: PlannerUsage, word: str) -> None:
    """Two answers use up what there is; the second question said what was left."""
    planner = ScriptedPlanner([FIX], [FIX], [FIX], usage=usage)
    with pytest.raises(PlannerFailed, match=word):
        await compensation(planner, Check(faults=9), **limit)
    assert len(planner.asked) == 2
    first, second = (replace(asked.allowance, seconds=None) for asked in planner.asked)
    assert second == first.after(usage)


async def test_time_covers_all_rounds() -> None:
    """A model that falls silent in the second round is given up."""

    class Silent(ScriptedPlanner):
        async def ask(self, request: PlannerRequest) -> Any:
            return await super().ask(request) if self.answers else await asyncio.Future()

    with pytest.raises(ModelUnreachable, match="within"):
        await compensation(Silent([FIX]), Check(faults=1), total_s=0.05)


@pytest.mark.parametrize("defect", [ValueError("a bug"), TimeoutError("of its own"), KeyError("x")])
async def test_a_planners_defect_ends_the_question_and_not_the_saga(defect: Exception) -> None:
    """A planner is somebody else's code: its exceptions become an error that can be journalled."""
    for ask in (compensation, other_way):
        with pytest.raises(ModelUnreachable, match=type(defect).__name__):
            await ask(ScriptedPlanner(defect))


async def test_an_error_of_the_planner_passes_through() -> None:
    """Without a key or an answer, the error that says so is the one that is journalled."""
    for error in (PlannerUnavailable("no key"), ModelUnreachable("503")):
        with pytest.raises(type(error), match=error.message):
            await compensation(ScriptedPlanner(error))


async def test_a_wait_that_is_cancelled_stays_cancelled() -> None:
    """Whoever stops the saga is not told that the model failed."""

    class Silent(ScriptedPlanner):
        async def ask(self, request: PlannerRequest) -> Any:
            entered.set()
            return await asyncio.Future()

    entered = asyncio.Event()
    task = asyncio.create_task(compensation(Silent()))
    await entered.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
