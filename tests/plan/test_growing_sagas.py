"""Plans that grow while their saga runs: added steps, another way, steps that make up for one that stands."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from saga_engine import Coordinator, RetryPolicy, ToolError, tool
from saga_engine.core.interpret import Advice
from saga_engine.core.records import Written
from saga_engine.errors import AmendRefused, GoalImpossible, ModelUnreachable, PlanInvalid
from saga_engine.ports import CompensationRequest, Escalation, Question, ReplanRequest, StepsCheck
from tests.support.journals import journalled, until

ONCE = RetryPolicy(max_attempts=1)
LOG: list[str] = []
GATE: dict[str, asyncio.Event] = {}
FULL: set[str] = set()


@pytest.fixture(autouse=True)
def fresh() -> None:
    LOG.clear()
    GATE.clear()
    FULL.clear()


@tool(undo="unbook", retry=ONCE)
async def book(what: str) -> dict:
    if what in GATE:
        await GATE[what].wait()
    if what in FULL:
        raise ToolError("full", error_code="full")
    LOG.append(f"book {what}")
    return {"ref": what}


@tool(retry=ONCE)
async def unbook(ref: str) -> dict:
    if ref in FULL:
        raise ToolError("too late to cancel", error_code="too_late", retryable=False)
    LOG.append(f"unbook {ref}")
    return {}


@tool(retry=ONCE, semantic="approve")
async def tweet(text: str) -> dict:
    LOG.append(f"tweet {text}")
    return {"id": 1}


@tool(retry=ONCE, compensates=True)
async def apologise(to: str) -> dict:
    if to in FULL:
        raise ToolError("unknown person", error_code="unknown", retryable=False)
    LOG.append(f"apologise {to}")
    return {}


@tool(retry=ONCE, compensates=True, semantic="auto")
async def refund(ref: str) -> dict:
    LOG.append(f"refund {ref}")
    return {}


TOOLS = [book, unbook, tweet, apologise, refund]


def booking(what: str, **others: Any) -> dict[str, Any]:
    return {"tool": "book", "params": {"what": what}, **others}


def plan(*steps: Any, **fields: Any) -> dict[str, Any]:
    listed = [{"step_id": number, **step} for number, step in enumerate(steps, 1)]
    return {"goal": "x for all", "steps": listed, **fields}


class Scripted:
    """An advisor that answers what a test says; it shows its steps to the check, as one that repairs would."""

    def __init__(self, *answers: list[dict[str, Any]] | Exception) -> None:
        self.answers = list(answers)
        self.asked: list[Any] = []
        self.faults: list[list[str]] = []

    async def advise(self, request: CompensationRequest | ReplanRequest, check: StepsCheck) -> Advice:
        self.asked.append(request)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        self.faults.append([problem.code for problem in check(answer)])
        return Advice(answer, Written("scripted:model", "compensate@1", "abc", 1, 10, 5))


async def kinds(engine: Coordinator, saga_id: str) -> list[str]:
    return [record["k"] for record in await engine.history(saga_id)]


# --- amendments ----------------------------------------------------------------------------------------------------


async def test_an_added_step_runs_after_the_others_and_is_undone_with_them() -> None:
    """The car that was added while the hotel was being booked is undone when the last step fails."""
    GATE["hotel"] = asyncio.Event()
    FULL.add("show")
    async with Coordinator.open("memory://", TOOLS) as engine:
        handle = await engine.submit(plan(booking("flight"), booking("hotel")))
        while "book flight" not in LOG:  # noqa: ASYNC110
            await asyncio.sleep(0)
        amended = asyncio.create_task(
            engine.amend(
                handle.saga_id, [{"step_id": "car", **booking("car")}, {"step_id": 9, **booking("show")}], by="ada"
            )
        )
        while not (await engine.store.head(handle.saga_id)).messages:  # noqa: ASYNC110
            await asyncio.sleep(0)
        GATE["hotel"].set()
        outcome = await amended
        assert outcome.status == "COMPENSATED"
        assert LOG == ["book flight", "book hotel", "book car", "unbook car", "unbook hotel", "unbook flight"]
        added = next(record for record in await engine.history(handle.saga_id) if record["k"] == "StepsAdded")
        assert (added["by"], added["undos"]) == ("ada", {"car": "unbook", "9": "unbook"})


async def test_a_saga_whose_plan_grew_is_resumed_from_its_journal() -> None:
    """Whoever takes it over compiles the plan as it then stood, and undoes what was added."""
    FULL.update({"show", "car"})
    GATE["hotel"] = asyncio.Event()
    async with Coordinator.open("memory://grown", TOOLS) as engine:
        handle = await engine.submit(plan(booking("flight"), booking("hotel"), on_failure="pause"))
        while "book flight" not in LOG:  # noqa: ASYNC110
            await asyncio.sleep(0)
        amended = asyncio.create_task(engine.amend(handle.saga_id, [{"step_id": "car", **booking("car")}]))
        while not (await engine.store.head(handle.saga_id)).messages:  # noqa: ASYNC110
            await asyncio.sleep(0)
        GATE["hotel"].set()
        assert (await amended).status == "ESCALATED"
    FULL.discard("car")
    async with Coordinator.open("memory://grown", TOOLS) as other:
        assert (await other.resolve(handle.saga_id, "car", "retry")).completed
    assert LOG == ["book flight", "book hotel", "book car"]


async def test_what_does_not_fit_is_refused_and_nothing_is_lost() -> None:
    """A faulty amendment is refused with its problems, one to a saga that ended as well; the saga goes on."""
    async with Coordinator.open("memory://", TOOLS) as engine:
        GATE["hotel"] = asyncio.Event()
        handle = await engine.submit(plan(booking("hotel")))
        while "StepIntended" not in await kinds(engine, handle.saga_id):  # noqa: ASYNC110
            await asyncio.sleep(0)
        with pytest.raises(PlanInvalid) as error:
            await engine.amend(handle.saga_id, [{"step_id": 1, **booking("x")}, {"step_id": "y", "tool": "nope"}])
        assert {problem.path for problem in error.value.problems} == {"$.steps[0].step_id", "$.steps[1].tool"}
        with pytest.raises(PlanInvalid) as error:  # a fault of form hides neither of them
            await engine.amend(
                handle.saga_id, [{"step_id": 1, "why": "", **booking("x")}, {"step_id": "y", "tool": "nope"}]
            )
        assert [problem.path for problem in error.value.problems] == [
            "$.steps[0].why", "$.steps[0].step_id", "$.steps[1].tool"
        ]  # fmt: skip
        with pytest.raises(AmendRefused):
            await engine.amend(handle.saga_id, [])
        GATE["hotel"].set()
        assert (await handle.wait()).completed
        with pytest.raises(AmendRefused):
            await engine.amend(handle.saga_id, [{"step_id": 2, **booking("x")}])


async def test_large_amendments_are_stored_apart_and_read_again() -> None:
    """Steps of any size: whoever resumes or looks at the saga finds them."""
    GATE["hotel"] = asyncio.Event()
    FULL.add("hotel")
    big = "x" * 40_000
    async with Coordinator.open("memory://big", TOOLS) as engine:
        handle = await engine.submit(plan(booking("hotel"), on_failure="pause"))
        while "StepIntended" not in await kinds(engine, handle.saga_id):  # noqa: ASYNC110
            await asyncio.sleep(0)
        amended = asyncio.create_task(engine.amend(handle.saga_id, [{"step_id": "big", **booking(big)}]))
        while not (await engine.store.head(handle.saga_id)).messages:  # noqa: ASYNC110
            await asyncio.sleep(0)
        GATE["hotel"].set()
        assert (await amended).status == "ESCALATED"
    FULL.clear()
    async with Coordinator.open("memory://big", TOOLS) as other:
        assert [step["step_id"] for step in (await other.show(handle.saga_id)).body["steps"]] == [1, "big"]
        assert (await other.resolve(handle.saga_id, 1, "retry")).completed
    assert ["book hotel", f"book {big}"] == LOG


# --- another way ---------------------------------------------------------------------------------------------------


async def test_another_way_is_found_and_undone_with_the_rest() -> None:
    """The hotel is full: the planner knows another; a step that does not depend on it is kept."""
    FULL.add("Hilton")
    advisor = Scripted([{"step_id": "other", **booking("Savoy")}])
    async with Coordinator.open("memory://", TOOLS, advisor=advisor) as engine:
        outcome = await engine.run(plan(booking("flight"), booking("Hilton"), booking("car"), on_failure="replan"))
        assert outcome.completed
        assert LOG == ["book flight", "book Savoy", "book car"]
        (request,) = advisor.asked
        assert request.failed.step_id == 2
        assert request.failed.error["error_code"] == "full"
        assert [past.output for past in request.past] == [{"ref": "flight"}]
        assert [step["step_id"] for step in request.kept] == [3]
        assert [step["status"] for step in outcome.body["steps"]] == ["SUCCEEDED", "FAILED", "SUCCEEDED", "SUCCEEDED"]
        assert outcome.report["clean"]


@pytest.mark.usefixtures("models_return_soon")
async def test_a_second_failure_asks_again_and_in_the_end_everything_is_undone() -> None:
    """Other ways are bounded; when the planner knows none, what happened is undone, the added steps with it."""
    FULL.update({"Hilton", "Savoy"})
    advisor = Scripted(
        [{"step_id": "car", **booking("car")}, {"step_id": "other", **booking("Savoy")}],
        *[ModelUnreachable("no answer")] * 4,
    )
    async with Coordinator.open("memory://", TOOLS, advisor=advisor) as engine:
        outcome = await engine.run(plan(booking("flight"), booking("Hilton"), on_failure="replan"))
        assert outcome.status == "COMPENSATED"
        assert outcome.body["error"]["step_id"] == "other"
        assert LOG == ["book flight", "book car", "unbook car", "unbook flight"]
        gave_up = [record for record in await engine.history(outcome.saga_id) if record["k"] == "PlannerGaveUp"]
        assert [record.get("delay_ms", 0) for record in gave_up] == [1, 1, 1, 0]
        assert {record["error"]["error_code"] for record in gave_up} == {"model_unreachable"}


async def test_a_planner_that_never_ends_is_ended() -> None:
    """After three other ways the saga turns around."""
    FULL.update({"a", "b", "c", "d"})
    advisor = Scripted(*([{"step_id": f"n{name}", **booking(name)}] for name in "bcda"))
    async with Coordinator.open("memory://", TOOLS, advisor=advisor) as engine:
        outcome = await engine.run(plan(booking("flight"), booking("a"), on_failure="replan"))
    assert outcome.status == "COMPENSATED"
    assert len(advisor.asked) == 3


async def test_a_faulty_other_way_is_not_taken() -> None:
    """The check is what counts: steps that do not pass it turn the saga around."""
    FULL.add("a")
    advisor = Scripted([{"step_id": "x", "tool": "made_up"}])
    async with Coordinator.open("memory://", TOOLS, advisor=advisor) as engine:
        outcome = await engine.run(plan(booking("flight"), booking("a"), on_failure="replan"))
    assert sorted(advisor.faults[0]) == ["tool-not-allowed", "tool-unknown"]
    assert outcome.status == "COMPENSATED"


async def test_without_a_planner_a_failure_is_a_failure() -> None:
    """``replan`` where nobody can be asked means ``compensate``."""
    FULL.add("a")
    async with Coordinator.open("memory://", TOOLS) as engine:
        outcome = await engine.run(plan(booking("flight"), booking("a"), on_failure="replan"))
    assert outcome.status == "COMPENSATED"
    assert LOG == ["book flight", "unbook flight"]


# --- semantic compensation -----------------------------------------------------------------------------------------

TWEETED = plan({"tool": "tweet", "params": {"text": "we go!"}}, booking("full"))


async def test_a_tool_without_undo_leaves_its_compensation_to_the_model_after_approval() -> None:
    """A tweet cannot be unsent: the model proposes an apology, a person approves it, the engine runs it."""
    FULL.add("full")
    steps = [{"step_id": "sorry", "tool": "apologise", "params": {"to": "all"}}]
    advisor = Scripted(steps)
    async with Coordinator.open("memory://", TOOLS, advisor=advisor) as engine:
        outcome = await engine.run(TWEETED)
        assert outcome.status == "ESCALATED"
        (question,) = outcome.body["questions"]
        assert (question["kind"], question["options"]) == ("compensation", ["approve", "deny", "undone", "accept"])
        assert question["steps"] == steps
        assert [spec.name for spec in advisor.asked[0].tools] == ["apologise", "refund"]
        assert LOG == ["tweet we go!"]
        ended = await engine.resolve(outcome.saga_id, 1, "approve", by="ada")
        assert ended.status == "COMPENSATED"
        assert LOG == ["tweet we go!", "apologise all"]
        assert ended.report["compensated"] == [1]
        assert ended.report["semantic"] == [1]
        assert not ended.report["clean"]
        assert len(advisor.asked) == 1


async def test_an_undo_that_fails_is_made_up_for_without_asking_where_all_tools_allow_it() -> None:
    """``auto``: the steps run at once; the earlier steps are undone after them."""
    FULL.update({"hotel", "fail"})
    FULL.discard("hotel")
    advisor = Scripted([{"step_id": "money", "tool": "refund", "params": {"ref": "$output.step_2.ref"}}])
    async with Coordinator.open("memory://", TOOLS, advisor=advisor) as engine:
        GATE["fail"] = asyncio.Event()
        handle = await engine.submit(plan(booking("flight"), booking("hotel"), booking("fail")))
        while "book hotel" not in LOG:  # noqa: ASYNC110
            await asyncio.sleep(0)
        FULL.add("hotel")  # from now on it cannot be cancelled
        GATE["fail"].set()
        outcome = await handle.wait()
        assert outcome.status == "COMPENSATED"
        assert LOG[2:] == ["refund hotel", "unbook flight"] or LOG[2:] == ["unbook flight", "refund hotel"]
        assert outcome.report["semantic"] == [2]
        proposed = next(r for r in await engine.history(outcome.saga_id) if r["k"] == "CompensationProposed")
        assert proposed["auto"] is True
        assert proposed["written"]["model"] == "scripted:model"


async def test_denied_steps_are_not_run_and_a_person_decides() -> None:
    """Deny: the old question comes back, with its own answers."""
    FULL.add("full")
    advisor = Scripted([{"step_id": "sorry", "tool": "apologise", "params": {"to": "all"}}])
    async with Coordinator.open("memory://", TOOLS, advisor=advisor) as engine:
        outcome = await engine.run(TWEETED)
        denied = await engine.resolve(outcome.saga_id, 1, "deny")
        assert denied.status == "ESCALATED"
        assert denied.body["questions"][0]["kind"] == "undo-missing"
        ended = await engine.resolve(outcome.saga_id, 1, "accept")
        assert ended.status == "WAIVED"
        assert ended.report["left_in_place"] == [1]
    assert LOG == ["tweet we go!"]


async def test_steps_that_fail_are_a_persons_never_a_loop() -> None:
    """The failure of what was to make up for a step escalates; the model is not asked again."""
    FULL.update({"full", "all"})
    advisor = Scripted(
        [
            {"step_id": "sorry", "tool": "apologise", "params": {"to": "all"}},
            {"step_id": "money", "tool": "refund", "params": {"ref": "x"}},
        ]
    )
    async with Coordinator.open("memory://", TOOLS, advisor=advisor, semantic="auto") as engine:
        outcome = await engine.run(TWEETED)
        assert outcome.status == "ESCALATED"
        assert outcome.body["questions"][0]["kind"] == "undo-missing"
        assert [step["status"] for step in outcome.body["steps"]][2:] == ["FAILED", "SKIPPED"]
        assert len(advisor.asked) == 1
        assert LOG == ["tweet we go!"]


async def test_a_model_cannot_use_what_it_was_not_given() -> None:
    """Steps with a tool that is not for compensations are not even shown to a person."""
    FULL.add("full")
    advisor = Scripted([{"step_id": "x", "tool": "book", "params": {"what": "a yacht"}}])
    async with Coordinator.open("memory://", TOOLS, advisor=advisor, semantic="auto") as engine:
        outcome = await engine.run(TWEETED)
        assert advisor.faults == [["tool-not-allowed"]]
        assert outcome.body["questions"][0]["kind"] == "undo-missing"
    assert LOG == ["tweet we go!"]


async def test_never_means_that_no_model_is_asked() -> None:
    """With the default policy ``never`` only tools that say otherwise are left to a model."""
    FULL.add("full")
    advisor = Scripted()
    async with Coordinator.open(
        "memory://", TOOLS, advisor=advisor, tool_options={"tweet": {"semantic": "never"}, "book": {"undo": "unbook"}}
    ) as engine:
        with pytest.raises(PlanInvalid):
            await engine.run(TWEETED)
        FULL.add("flight")
        FULL.discard("flight")
    async with Coordinator.open("memory://", TOOLS, advisor=advisor, semantic="never") as engine:
        GATE["full"] = asyncio.Event()
        handle = await engine.submit(plan(booking("flight"), booking("full")))
        while "book flight" not in LOG:  # noqa: ASYNC110
            await asyncio.sleep(0)
        FULL.add("flight")
        GATE["full"].set()
        outcome = await handle.wait()
        assert outcome.body["questions"][0]["kind"] == "undo-failed"
    assert advisor.asked == []


async def test_the_model_is_not_asked_again_after_a_restart() -> None:
    """What it proposed is in the journal: another process runs it after the approval."""
    FULL.add("full")
    advisor = Scripted([{"step_id": "sorry", "tool": "apologise", "params": {"to": "all"}}])
    async with Coordinator.open("memory://compensation", TOOLS, advisor=advisor) as engine:
        outcome = await engine.run(TWEETED)
    other = Scripted()
    async with Coordinator.open("memory://compensation", TOOLS, advisor=other) as engine:
        assert (await engine.resolve(outcome.saga_id, 1, "approve")).status == "COMPENSATED"
    assert other.asked == []
    assert LOG == ["tweet we go!", "apologise all"]


# --- reminders -----------------------------------------------------------------------------------------------------


async def test_a_question_that_nobody_answers_is_asked_again_and_goes_further() -> None:
    """Reminders go out while this process lives; after a time others are told, too; an answer ends them."""
    FULL.add("full")
    told: list[Question] = []
    further: list[Question] = []
    escalation = Escalation(
        hooks=[told.append],  # type: ignore[list-item]
        further=[further.append],  # type: ignore[list-item]
        remind_s=0.01,
        further_after_s=0.03,
    )
    async with Coordinator.open("memory://", TOOLS, on_escalation=escalation) as engine:
        outcome = await engine.run(TWEETED)
        assert outcome.status == "ESCALATED"
        while not further:  # noqa: ASYNC110
            await asyncio.sleep(0)
        assert [question.round for question in told] == list(range(len(told)))
        assert {question.question_id for question in told + further} == {told[0].question_id}
        assert (await engine.resolve(outcome.saga_id, 1, "accept")).status == "WAIVED"
        count = len(told)
        await engine.run(plan(booking("x")))
        assert len(told) == count


def test_an_escalation_may_be_given_as_hooks() -> None:
    """What ``Escalation`` says when nothing is said: an hour, a day."""
    assert replace(Escalation(), remind_s=1.0).further_after_s == 86400.0


# --- what reviews found --------------------------------------------------------------------------------------------


async def test_an_advisor_that_is_broken_does_not_trap_the_saga() -> None:
    """Its exception, or an answer that is none, is recorded, and a person is asked."""

    class Broken:
        async def advise(self, request: CompensationRequest | ReplanRequest, check: StepsCheck) -> Advice:
            if isinstance(request, CompensationRequest):
                raise RuntimeError("oops")
            return None  # type: ignore[return-value]

    FULL.add("full")
    async with Coordinator.open("memory://", TOOLS, advisor=Broken()) as engine:
        outcome = await engine.run(TWEETED)
        assert outcome.body["questions"][0]["kind"] == "undo-missing"
        again = await engine.run(plan(booking("flight"), booking("full"), on_failure="replan"))
        assert again.status == "COMPENSATED"
        gave_up = [r["error"]["error_code"] for r in await engine.history(again.saga_id) if r["k"] == "PlannerGaveUp"]
        assert gave_up == ["planner_defect"]


async def test_a_step_that_was_to_make_up_for_another_and_stands_is_reported() -> None:
    """One of two proposed steps happened, the other failed and a person undid the original: a person is asked about it."""
    FULL.update({"full", "all"})
    advisor = Scripted(
        [
            {"step_id": "money", "tool": "refund", "params": {"ref": "x"}},
            {"step_id": "sorry", "tool": "apologise", "params": {"to": "all"}},
        ]
    )
    async with Coordinator.open("memory://", TOOLS, advisor=advisor, semantic="auto") as engine:
        outcome = await engine.run(TWEETED)
        ended = await engine.resolve(outcome.saga_id, 1, "undone")
        assert ended.status == "ESCALATED"
        (question,) = ended.body["questions"]
        assert (question["step_id"], question["kind"]) == ("money", "undo-missing")
        assert question["error"]["error_code"] == "not_needed"
        assert ended.report["failed"] == ["money"]
        ended = await engine.resolve(outcome.saga_id, "money", "accept")
        assert (ended.status, ended.report["left_in_place"], ended.report["clean"]) == ("WAIVED", ["money"], False)


async def test_a_model_is_told_no_idempotency_key() -> None:
    """Neither those that params bind nor those that a tool echoes."""

    @tool(undo="unbook", retry=ONCE, name="echo")
    async def echo(text: str, idempotency_key: str) -> dict:
        return {"ref": f"made as {idempotency_key}"}

    FULL.add("full")
    advisor = Scripted(GoalImpossible("no"))
    async with Coordinator.open("memory://", [*TOOLS, echo], advisor=advisor) as engine:
        steps = [{"tool": "echo", "params": {"text": "id {$key}"}}, booking("full")]
        outcome = await engine.run(plan(*steps, on_failure="replan"))
        seed = (await engine.history(outcome.saga_id))[0]["seed"]
    assert seed not in str(advisor.asked[0].past)
    assert "$key" in str(advisor.asked[0].past)


async def test_a_tool_may_add_to_its_own_saga() -> None:
    """Without waiting for the saga's end, which waits for the tool."""
    holder: dict[str, Coordinator] = {}

    @tool(undo="unbook", retry=ONCE, name="grow")
    async def grow(saga: str) -> dict:
        await holder["engine"].amend(saga, [{"step_id": "more", **booking("car")}], wait=False)
        return {"ref": "grown"}

    async with Coordinator.open("memory://", [*TOOLS, grow]) as engine:
        holder["engine"] = engine
        steps = [{"tool": "grow", "params": {"saga": "$saga.id"}}, booking("hotel")]
        assert (await engine.run(plan(*steps))).completed
    assert LOG == ["book hotel", "book car"]


async def test_steps_that_are_none_are_refused() -> None:
    """A step is an object, whoever adds it."""
    GATE["hotel"] = asyncio.Event()
    async with Coordinator.open("memory://", TOOLS) as engine:
        handle = await engine.submit(plan(booking("hotel")))
        with pytest.raises(PlanInvalid):
            await engine.amend(handle.saga_id, ["x"])  # type: ignore[list-item]
        GATE["hotel"].set()
        assert (await handle.wait()).completed


async def test_steps_that_are_posted_leave_a_saga_with_its_live_owner() -> None:
    """Without waiting: the process that drives the saga takes them in; the one that posts them does not reach for it."""
    GATE["hotel"] = asyncio.Event()
    async with (
        Coordinator.open("memory://posted", TOOLS, lease_s=60.0) as engine,
        Coordinator.open("memory://posted", TOOLS) as other,
    ):
        handle = await engine.submit(plan(booking("hotel"), booking("spa")))
        await other.amend(handle.saga_id, [{"step_id": "more", **booking("car")}], wait=False)
        assert "SagaResumed" not in await kinds(other, handle.saga_id)
        GATE["hotel"].set()
        assert (await handle.wait()).completed
    assert LOG == ["book hotel", "book spa", "book car"]


async def test_a_saga_waits_for_what_makes_up_for_a_step() -> None:
    """While a step that was to make up for another is in doubt, an answer about that other ends nothing."""
    asked = asyncio.Event()
    lost: list[str] = []

    @tool(name="pay_back", compensates=True, semantic="auto", probe="paid_back", retry=ONCE)
    async def pay_back(ref: str) -> dict:
        lost.append(ref)
        raise TimeoutError("sent, and no answer")

    @tool(name="paid_back", effect="read", retry=ONCE)
    async def paid_back(ref: str) -> dict | None:
        await asked.wait()
        return {"ref": lost[0]}

    FULL.update({"full", "all"})
    advisor = Scripted(
        [
            {"step_id": "sorry", "tool": "apologise", "params": {"to": "all"}, "depends_on": []},
            {"step_id": "money", "tool": "pay_back", "params": {"ref": "x"}, "depends_on": []},
        ]
    )
    async with Coordinator.open("memory://", [*TOOLS, pay_back, paid_back], advisor=advisor, semantic="auto") as engine:
        running = asyncio.create_task(engine.run(TWEETED, saga_id="s"))
        await journalled(engine, "s", "StepEscalated")
        answering = asyncio.create_task(engine.resolve("s", 1, "undone"))
        await journalled(engine, "s", "QuestionResolved")
        assert (await engine.show("s")).status == "COMPENSATING"
        asked.set()
        outcome = await answering
        await running
        # It turned out to have been paid back for a step that a person has undone: somebody must hear of it.
        assert outcome.status == "ESCALATED"
        assert [question["step_id"] for question in outcome.body["questions"]] == ["money"]
        outcome = await engine.resolve("s", "money", "accept")
        assert (outcome.status, outcome.report["left_in_place"]) == ("WAIVED", ["money"])


async def test_steps_that_were_added_while_the_planner_was_asked_are_not_lost() -> None:
    """Its answer, which knows nothing of them, counts for nothing: it is asked again, and sees them."""
    answered = asyncio.Event()
    tries: list[str] = []

    @tool(name="rent", undo="unbook", retry=RetryPolicy(2, base_s=0.01, max_s=0.01))
    async def rent(what: str) -> dict:
        tries.append(what)
        if len(tries) == 1:
            raise ToolError("busy", retryable=True)
        return {"ref": what}

    class Slow(Scripted):
        async def advise(self, request: CompensationRequest | ReplanRequest, check: StepsCheck) -> Advice:
            advice = await super().advise(request, check)
            if len(self.asked) == 1:
                await answered.wait()
            return advice

    FULL.add("full")
    advisor = Slow(
        [{"step_id": "other", **booking("Savoy")}],
        [{"step_id": "both", **booking("Savoy")}],
    )
    async with Coordinator.open("memory://", [*TOOLS, rent], advisor=advisor) as engine:
        bike = {"tool": "rent", "params": {"what": "bike"}, "depends_on": []}
        handle = await engine.submit(plan(booking("full"), bike, on_failure="replan"), saga_id="s")
        await until(lambda: advisor.asked)
        await engine.amend("s", [{"step_id": "car", **booking("car")}], wait=False)
        await journalled(engine, "s", "StepsAdded")
        answered.set()
        outcome = await handle.wait()
        assert outcome.status == "COMPLETED"
        first, second = advisor.asked
        assert [len(request.kept) for request in (first, second)] == [0, 1]
        assert LOG == ["book Savoy", "book car"]
        assert tries == ["bike", "bike"]
        gave_up = [r["error"]["error_code"] for r in await engine.history("s") if r["k"] == "PlannerGaveUp"]
        assert gave_up == ["overtaken"]
