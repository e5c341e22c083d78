"""Another way after a failure: what is kept, what a model must not do, and the slips of good models.

The planner is scripted with what strong models really answer: right answers pass in the first round, harmless slips
are mended, and what needs a decision goes back with a hint.
"""

from __future__ import annotations

from typing import Any

import pytest

from saga_engine import Coordinator, RetryPolicy, SagaResult, ToolError, tool
from saga_engine.testing.scripted import ScriptedPlanner

LOG: list[str] = []
FULL: set[str] = set()
ONCE = RetryPolicy(max_attempts=1)


@pytest.fixture(autouse=True)
def _empty_world() -> None:
    LOG.clear()
    FULL.clear()
    FULL.add("Hilton")


@tool(undo="cancel", retry=ONCE)
async def book(what: str) -> dict:
    """Book something."""
    if what in FULL:
        raise ToolError(f"{what} is full", error_code="full", retryable=False)
    LOG.append(f"book {what}")
    return {"ref": f"R-{what}"}


@tool(retry=ONCE)
async def cancel(ref: str) -> dict:
    """Cancel a booking."""
    LOG.append(f"cancel {ref}")
    return {}


@tool(retry=ONCE)
async def mail(text: str) -> dict:
    """Send a mail. It cannot be unsent."""
    if text in FULL:
        raise ToolError("no such mailbox", error_code="bounced", retryable=False)
    LOG.append(f"mail {text}")
    return {"id": text}


@tool(retry=ONCE)
async def sms(text: str) -> dict:
    """Send a text message. It cannot be unsent."""
    LOG.append(f"sms {text}")
    return {"id": text}


@tool(retry=ONCE)
async def note(text: str) -> dict:
    """Write a note."""
    LOG.append(f"note {text}")
    return {}


@tool(effect="read", retry=ONCE)
async def look(what: str) -> dict:
    """Look something up."""
    LOG.append(f"look {what}")
    return {"best": f"best {what}"}


TOOLS = [book, cancel, mail, sms, note, look]
FLIGHT = {"step_id": "flight", "tool": "book", "params": {"what": "flight"}}
HOTEL = {"step_id": "hotel", "tool": "book", "params": {"what": "Hilton"}}
TAXI = {"step_id": "taxi", "tool": "book", "params": {"what": "taxi"}}
SAVOY = {"step_id": "savoy", "tool": "book", "params": {"what": "Savoy"}}
#: A pivot that needs the hotel, one that needs nothing of it, and what follows one.
TELL = {"step_id": "tell", "tool": "mail", "params": {"text": "at {$output.step_hotel.ref}"}, "kind": "pivot"}
GREET = {"step_id": "greet", "tool": "mail", "params": {"text": "hello"}, "kind": "pivot"}
TELL_B = {**TELL, "step_id": "tell_b", "params": {"text": "at {$output.step_savoy.ref}"}}
WRITE = {"step_id": "write", "tool": "note", "params": {"text": "{$output.step_hotel.ref}"}, "kind": "retriable"}
WRITE_B = {**WRITE, "step_id": "write_b", "params": {"text": "{$output.step_savoy.ref}"}}


async def way(
    steps: list[dict[str, Any]], *answers: Any, full: tuple[str, ...] = ()
) -> tuple[SagaResult, ScriptedPlanner, list[dict[str, Any]]]:
    """What becomes of a plan when the Hilton is full and a model gives these answers; and its journal."""
    FULL.update(full)
    planner = ScriptedPlanner(*answers)
    async with Coordinator.open("memory://", TOOLS, planner=planner) as coordinator:
        outcome = await coordinator.run({"goal": "a trip", "steps": steps, "on_failure": "replan"})
        return outcome, planner, await coordinator.history(outcome.saga_id)


def codes(planner: ScriptedPlanner) -> list[list[str]]:
    """The codes of the problems that each question came with."""
    return [[p.code for p in asked.repair.problems] if asked.repair else [] for asked in planner.asked]


# --- right answers -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("steps", "answer", "log"),
    [
        pytest.param(
            [FLIGHT, HOTEL, GREET], [SAVOY], ["book flight", "book Savoy", "mail hello"], id="the pivot is kept"
        ),
        pytest.param(
            [FLIGHT, HOTEL, TELL],
            [SAVOY, TELL_B],
            ["book flight", "book Savoy", "mail at R-Savoy"],
            id="the pivot depends on the failed step",
        ),
        pytest.param(
            [FLIGHT, HOTEL, TAXI, TELL],
            [SAVOY, TELL_B],
            ["book flight", "book Savoy", "book taxi", "mail at R-Savoy"],
            id="what is kept comes before the new pivot",
        ),
        pytest.param(
            [FLIGHT, HOTEL, GREET, WRITE],
            [SAVOY, WRITE_B],
            ["book flight", "book Savoy", "mail hello", "note R-Savoy"],
            id="what follows the kept pivot is written again",
        ),
        pytest.param(
            [FLIGHT, HOTEL, TELL, {**WRITE, "params": {"text": "done"}}],
            [SAVOY, TELL_B],
            ["book flight", "book Savoy", "mail at R-Savoy", "note done"],
            id="what follows the old pivot is kept and follows the new one",
        ),
        pytest.param(
            [{**FLIGHT, "depends_on": []}, {**HOTEL, "depends_on": []}, {**GREET, "depends_on": ["flight", "hotel"]}],
            [SAVOY, {**GREET, "step_id": "greet_b", "depends_on": ["flight", "savoy"]}],
            ["book flight", "book Savoy", "mail hello"],
            id="a graph: the pivot names the failed step",
        ),
        pytest.param(
            [{**HOTEL, "depends_on": []}, {**FLIGHT, "depends_on": []}, {**TAXI, "depends_on": ["flight"]}],
            [{**SAVOY, "params": {"what": "{$output.step_taxi.ref} hotel"}}],
            ["book flight", "book taxi", "book R-taxi hotel"],
            id="a new step binds what is kept",
        ),
        pytest.param(
            [FLIGHT, {**GREET, "params": {"text": "bad"}}],
            [{**GREET, "step_id": "sms", "tool": "sms"}],
            ["book flight", "sms hello"],
            id="the pivot itself failed",
        ),
    ],
)
async def test_a_right_answer_passes(steps: Any, answer: Any, log: list[str]) -> None:
    """Whatever part of a plan with a pivot depends on the failed step: one round, and every write is made once."""
    outcome, planner, _ = await way(steps, answer, full=("bad",))
    assert codes(planner) == [[]]
    assert outcome.completed
    assert log == LOG
    assert outcome.report["clean"]


async def test_the_model_is_told_what_is_kept() -> None:
    """It sees apart what depends on the failed step, and what runs as it was planned."""
    _, planner, journal = await way([FLIGHT, HOTEL, TAXI, TELL], [SAVOY, TELL_B])
    (asked,) = planner.asked
    assert [step["step_id"] for step in asked.left] == ["tell"]
    assert (asked.left[0]["kind"], asked.left[0]["depends_on"]) == ("pivot", ["hotel"])
    assert [step["step_id"] for step in asked.kept] == ["taxi"]
    (added,) = [record for record in journal if record["k"] == "StepsAdded"]
    assert (added["dropped"], added["place"]) == (["hotel", "tell"], "hotel")


async def test_what_is_undone_when_the_other_way_fails_too() -> None:
    """The new pivot does not run, and what happened is undone last things first, what was kept as well."""
    FULL.add("Savoy")
    never = {"impossible": "no hotel is free"}
    outcome, _, _ = await way([FLIGHT, HOTEL, TAXI, TELL], [{**SAVOY, "depends_on": ["taxi"]}, TELL_B], never)
    assert outcome.status == "COMPENSATED"
    assert LOG == ["book flight", "book taxi", "cancel R-taxi", "cancel R-flight"]


# --- what goes back ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "code", "words"),
    [
        ([{**HOTEL, "step_id": "savoy"}, TELL_B], "call-repeated", "failed with these params"),
        ([SAVOY, {**FLIGHT, "step_id": "f2"}, TELL_B], "call-repeated", "happened"),
        ([SAVOY, {**TAXI, "step_id": "t2"}, TELL_B], "call-repeated", "is kept"),
        ([{**SAVOY, "fallback": {"tool": "book", "params": {"what": "Hilton"}}}, TELL_B], "call-repeated", "failed"),
        ([SAVOY], "dropped-silently", "tell"),
        ({"steps": [SAVOY], "dropped": {"tell": ""}}, "dropped-silently", "reason"),
        ({"steps": [SAVOY, TELL_B], "dropped": {"flight": "not needed"}}, "dropped-unknown", "stands"),
        ({"steps": [SAVOY, TELL_B], "dropped": {"spa": "not needed"}}, "dropped-unknown", "no step"),
        ({"steps": [SAVOY, TELL_B], "dropped": "tell"}, "field-invalid", "object"),
        ([SAVOY, {**TELL, "step_id": "t2"}], "binding-not-before", "hotel"),
        ([{**TELL_B, "params": {"text": "at last"}}], "dropped-silently", "hotel"),
    ],
)
async def test_a_wrong_answer_goes_back(answer: Any, code: str, words: str) -> None:
    """With a code, the step by its id, and a hint; the next answer is taken. Nothing wrong was called."""
    outcome, planner, _ = await way([FLIGHT, HOTEL, TAXI, TELL], answer, [SAVOY, TELL_B])
    assert codes(planner) == [[], [code]]
    (problem,) = planner.asked[1].repair.problems
    assert words in problem.message
    assert problem.hint
    assert "$.steps[" not in problem.path, "steps are named by their ids"
    assert outcome.completed
    assert LOG == ["book flight", "book Savoy", "book taxi", "mail at R-Savoy"]


async def test_a_dropped_write_is_told_with_its_reason() -> None:
    """In the journal, and in the report of the saga."""
    why = "The goal wants the mail only for the Hilton."
    outcome, planner, journal = await way([FLIGHT, HOTEL, TELL], {"steps": [SAVOY], "dropped": {"tell": why}})
    assert codes(planner) == [[]]
    assert outcome.completed
    assert outcome.report["dropped"] == [{"step_id": "tell", "reason": why}]
    assert next(record for record in journal if record["k"] == "StepsAdded")["reasons"] == {"tell": why}


async def test_what_failed_can_be_dropped_with_a_reason() -> None:
    """Without any new step: what is kept runs."""
    answer = {"steps": [], "dropped": [{"step_id": "hotel", "reason": "the goal says: if one is free"}]}
    outcome, _, _ = await way([FLIGHT, HOTEL, GREET], answer)
    assert outcome.completed
    assert LOG == ["book flight", "mail hello"]
    assert [each["step_id"] for each in outcome.report["dropped"]] == ["hotel"]


async def test_what_is_kept_can_be_dropped_and_what_depends_on_it_goes_with_it() -> None:
    """A reason for it alone is not enough: the step that needs it is a write, too."""
    ride = {
        "step_id": "ride",
        "tool": "note",
        "params": {"text": "{$output.step_taxi.ref}"},
        "rollback": {"tool": "note"},
    }
    ride["rollback"] = {"tool": "cancel", "params": {"ref": "x"}}
    drop = {"taxi": "the Savoy has a shuttle"}
    outcome, planner, _ = await way(
        [FLIGHT, HOTEL, TAXI, ride],
        {"steps": [SAVOY], "dropped": drop},
        {"steps": [SAVOY], "dropped": {**drop, "ride": "there is no ride to note"}},
    )
    assert codes(planner) == [[], ["dropped-silently"]]
    assert outcome.completed
    assert LOG == ["book flight", "book Savoy"]


async def test_a_call_that_the_plan_had_twice_may_be_written_again() -> None:
    """A call that happened is not repeated, but one that was still to come is no repeat."""
    gift = {"step_id": "gift", "tool": "book", "params": {"what": "gift"}}
    other = {**gift, "step_id": "gift2", "depends_on": ["hotel"]}
    outcome, planner, _ = await way([gift, HOTEL, other], [SAVOY, {**gift, "step_id": "gift3"}])
    assert codes(planner) == [[]]
    assert outcome.completed
    assert LOG == ["book gift", "book Savoy", "book gift"]


# --- slips that are mended -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param([SAVOY, TAXI, TELL_B], id="a kept step again"),
        pytest.param([FLIGHT, SAVOY, TAXI, TELL_B], id="the whole plan again"),
        pytest.param([TELL_B, SAVOY], id="the pivot first"),
        pytest.param([{**TELL_B, "step_id": "tell"}, SAVOY], id="the pivot first, under the old id"),
        pytest.param(
            [{**HOTEL, "params": {"what": "Savoy"}}, {**TELL, "params": {"text": "at {$output.step_hotel.ref}"}}],
            id="the old ids",
        ),
        pytest.param([{**SAVOY, "step_id": "flight"}, {**TELL_B, "params": {"text": "at R-Savoy"}}], id="a taken id"),
        pytest.param({"plan": {"goal": "a trip", "steps": [SAVOY, {**TELL_B, "name": None}]}}, id="a whole plan"),
    ],
)
async def test_a_slip_costs_no_round(answer: Any) -> None:
    """Where only one thing can be meant, the engine mends it."""
    outcome, planner, _ = await way([FLIGHT, HOTEL, TAXI, TELL], answer)
    assert codes(planner) == [[]]
    assert outcome.completed
    assert LOG == ["book flight", "book Savoy", "book taxi", "mail at R-Savoy"]


async def test_a_second_other_way() -> None:
    """The first one fails as well, and the next is checked against all that failed and what was kept."""
    ritz = {**SAVOY, "step_id": "ritz", "params": {"what": "Ritz"}}
    tell = {**TELL_B, "step_id": "tell_c", "params": {"text": "at {$output.step_ritz.ref}"}}
    outcome, planner, _ = await way(
        [FLIGHT, HOTEL, TAXI, TELL],
        [SAVOY, TELL_B],
        [{**HOTEL, "step_id": "ritz"}, tell],
        [ritz, tell],
        full=("Savoy",),
    )
    assert codes(planner) == [[], [], ["call-repeated"]]
    assert outcome.completed
    assert LOG == ["book flight", "book Ritz", "book taxi", "mail at R-Ritz"]


async def test_the_caller_says_that_a_plan_is_replanned() -> None:
    """The model is not offered ``on_failure``: who asks for the plan sets it."""
    planner = ScriptedPlanner([FLIGHT, HOTEL], [SAVOY])
    async with Coordinator.open("memory://", TOOLS, planner=planner) as coordinator:
        outcome = await coordinator.plan_and_run("a trip", on_failure="replan")
    assert outcome.completed
    assert LOG == ["book flight", "book Savoy"]
