"""Questions, waits and conditions that do not do what they seem to, and the review that tells what the others do."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import pytest

from saga_engine.errors import PlannerFailed
from saga_engine.plan.effort import spending
from saga_engine.plan.misuse import misuses
from saga_engine.plan.model import load_plan
from saga_engine.planner.planning import Planning
from saga_engine.planner.review_rows import review_rows
from saga_engine.planner.settings import PlannerSettings
from saga_engine.testing.scripted import ScriptedPlanner
from tests.planner.refunds import AGREED, ALL, GET, GOAL, REFUND, REFUSED, RESERVE, SHOP, compared
from tests.planner.scenes import step


def sure(options: Any = ("yes", "no"), *, fails: bool = True, **others: Any) -> dict[str, Any]:
    ask = {"question": "Refund order o-7?", "options": list(options), **others}
    return {"step_id": "sure", "ask": ask, **({"failed_when": REFUSED} if fails else {})}


def wait(**others: Any) -> dict[str, Any]:
    return {"step_id": "paid", "wait": {"event": "paid", "key": "o-7", **others}}


async def planned(*steps: dict[str, Any], **others: Any) -> Any:
    specs = [spec for name in SHOP.names() if (spec := SHOP.spec(name)) is not None]
    planning = Planning(ScriptedPlanner({"steps": list(steps), **others}), PlannerSettings(rounds=1, may_use=ALL))
    return await planning.plan(GOAL, specs, catalog=SHOP)


async def problems(*steps: dict[str, Any]) -> list[tuple[str, str]]:
    try:
        await planned(*steps)
    except PlannerFailed as error:
        return [(each["code"], each["path"]) for each in error.context["problems"]]
    return []


MAIL = step("tell", "mail.send", {"to": "a@b.example", "text": "said {$output.step_sure.answer}"}, kind="retriable")
PASSWORD = {"step_id": "sure", "ask": {"question": "What is the password of the shop?"}}
SCHEMA = {"type": "object", "properties": {"cvv": {"type": "string"}}}
WRONG = {
    "nobody looks at the answer": ([sure(fails=False), REFUND], "ask-unused", "[0].ask"),
    "only a mail repeats the answer": ([sure(fails=False), REFUND, MAIL], "ask-unused", "[0].ask"),
    "silence agrees": ([sure(expires_s=60, on_timeout={"value": "yes"}), REFUND], "timeout-means-yes", "[0].ask.on_timeout"),
    "silence does more than another option": (
        [sure(["all", "none"], fails=False, expires_s=60, on_timeout={"value": "all"}), {**RESERVE, "when": compared("$output.step_sure.answer", "all")}],
        "timeout-means-yes", "[0].ask.on_timeout",
    ),
    "silence goes on": (
        [sure(fails=False, expires_s=60, on_timeout="continue"), step("refund", "bank.refund", {"amount": {"$first": ["$output.step_sure.answer", 5]}}, kind="pivot")],
        "timeout-means-yes", "[0].ask.on_timeout",
    ),
    "no option refuses": ([sure(["yes", "ok"], fails=False), {**RESERVE, "when": AGREED}], "options-alike", "[0].ask.options"),
    "a letter tells them apart": ([sure(["refund order", "refunds order"], fails=False), step("keep", "stock.reserve", {"sku": "$output.step_sure.answer"})], "options-alike", "[0].ask.options"),
    "leave is asked for too late": ([REFUND, sure(fails=False)], "ask-unused", "[1].ask"),
    "options look alike": ([sure(["no", "No."]), REFUND], "options-alike", "[0].ask.options"),
    "letters of another alphabet": ([sure(["pay", "p\u0430y", "no"]), REFUND], "options-alike", "[0].ask.options"),
    "a condition that binds nothing": ([{**RESERVE, "when": compared(1, 1)}], "condition-constant", "[0].when[0]"),
    "a condition on itself": ([GET, {**RESERVE, "when": compared("$output.step_get.day", "$output.step_get.day")}], "condition-constant", "[1].when[0]"),
    "a value that cannot be": ([GET, {**RESERVE, "when": compared("$output.step_get.state", "Paid")}], "condition-constant", "[1].when[0]"),
    "an option that there is not": ([{**sure(), "failed_when": compared("$output.step_sure.answer", "No")}, REFUND], "condition-constant", "[0].failed_when[0]"),
    "a constant inside of a computation": ([{"step_id": "n", "compute": {"if": compared(2, 1, ">"), "then": 1, "else": 2}}], "condition-constant", "[0].compute.if[0]"),
    "a wait without an end": ([wait(), RESERVE], "wait-endless", "[0].wait"),
    "a wait that counts as paid": ([wait(timeout_s=60, on_timeout={"value": {"paid": True}}), RESERVE], "timeout-means-yes", "[0].wait.on_timeout"),
    "a wait in vain that nobody sees": ([wait(timeout_s=60, on_timeout={"value": None}), RESERVE], "timeout-means-yes", "[0].wait.on_timeout"),
    "a password": ([PASSWORD, step("tell", "mail.send", {"to": "a@b.example", "text": "{$output.step_sure.answer}"}, kind="pivot")], "ask-for-secret", "[0].ask.question"),
    "a schema of a secret": (
        [{"step_id": "sure", "ask": {"question": "Your card?", "schema": SCHEMA}}, step("tell", "mail.send", {"to": "a@b.example", "text": "{$output.step_sure.answer.cvv}"}, kind="pivot")],
        "ask-for-secret", "[0].ask.question",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
async def test_what_decides_nothing_goes_back(name: str) -> None:
    """Such a question, wait or condition is a problem of a model's plan, with its own code and place."""
    steps, code, path = WRONG[name]
    assert (code, f"$.steps{path}") in await problems(*steps)


SOUND = {
    "a no undoes all": [sure(), REFUND],
    "a yes runs a step": [sure(fails=False), {**RESERVE, "when": AGREED}],
    "an answer is a param": [sure(["A-1", "A-2"], fails=False), step("keep", "stock.reserve", {"sku": "$output.step_sure.answer"})],
    "silence refuses": [sure(expires_s=60, on_timeout={"value": "no"}), REFUND],
    "a person confirms what they did": [sure(["done"], fails=False), REFUND],
    "a rating at the end": [REFUND, {"step_id": "sure", "ask": {"question": "How was it?", "options": ["good", "bad"]}}],
    "a word tells options apart": [
        sure(["with travel insurance", "without travel insurance"], fails=False),
        step("keep", "stock.reserve", {"sku": "$output.step_sure.answer"}),
    ],
    "a free text": [{"step_id": "sure", "ask": {"question": "What shall we write?"}}, MAIL | {"kind": "pivot"}],
    "numbers tell options apart": [sure(["Room 101, first floor", "Room 102, first floor"], fails=False), step("keep", "stock.reserve", {"sku": "$output.step_sure.answer"})],
    "a wait that fails": [wait(timeout_s=60), RESERVE],
    "a wait in vain that is looked at": [
        wait(timeout_s=60, on_timeout={"value": {"paid": False}}),
        {**RESERVE, "when": compared("$output.step_paid.paid", True)},
    ],
    "a state that there is": [GET, {**RESERVE, "when": compared("$output.step_get.state", "paid")}],
    "a password is reset": [{"step_id": "sure", "ask": {"question": "Reset the password?", "options": ["yes", "no"]}, "failed_when": REFUSED}, REFUND],
}  # fmt: skip


@pytest.mark.parametrize("name", SOUND)
async def test_what_decides_something_passes(name: str) -> None:
    """Honest questions, waits and conditions are plans."""
    assert await problems(*SOUND[name]) == []


async def test_many_options_cost_little() -> None:
    """Each round of the comparison can be ended, and long or many options have few of them."""
    rounds: list[None] = []
    asked = ["".join(letters) for letters in permutations("abcdefgh", 4)][:80]
    made = load_plan({"steps": [{"step_id": 1, "ask": {"question": "Which?", "options": asked}}]})
    with spending(lambda: rounds.append(None)):
        assert [each.code for each in misuses(made, None)] == []
    assert 80 < len(rounds) < 1000, "each with each would be 3,160"
    alike = {
        "question": "Which?",
        "options": [f"room of {name}" for name in ("Andrew", "Bettina", "Andrews", "bettina")],
    }
    two = load_plan({"steps": [{"step_id": 1, "ask": alike}]})
    assert [each.code for each in misuses(two, None)] == ["options-alike"] * 2


async def test_the_review_tells_what_every_part_does() -> None:
    """Questions with what follows, waits with their end, lists with their calls, conditions, values, calls at the end."""
    lines = step("all", "stock.reserve", {"sku": "$item.sku"}, each={"of": "$output.step_get.lines", "parallel": 3})
    total = {"step_id": "total", "compute": {"sum": "$output.step_get.lines", "of": "$item.price"}}
    late = {"tool": "mail.send", "params": {"to": "a@b.example", "text": "late"}}
    asked = sure(fails=False, expires_s=3600)
    kept = {**RESERVE, "when": AGREED, "on_error": "continue"}
    told = step("tell", "mail.send", {"to": "a@b.example", "text": "refunded"}, kind="retriable")
    final = step("end", "mail.send", {"to": "a@b.example", "text": "{$end.status}"})
    made = await planned(
        GET, lines, total, asked, kept, wait(timeout_s=60, on_late=late), REFUND, told, **{"finally": [final]}
    )
    rows = review_rows(made.to_dict())
    said = {(row.step, row.what): row.text for row in rows}
    assert said["sure", "asks"].startswith("an operator: Refund order o-7? (yes, no); after 3600 s step sure fails")
    assert [row.text for row in rows if row.what == "if answered"] == ["yes: runs keep", "no: skips keep"]
    assert "refund" in said["sure", "note"], "the refund does not depend on the answer"
    assert said["paid", "waits"].startswith("for paid (key o-7); ends with the event; after 60 s step paid fails")
    assert "mail.send" in said["paid", "late"]
    assert '"text": "late"' in said["paid", "late"]
    assert said["all", "list"] == "one call for each item of get.lines: stock.reserve, 3 at a time"
    assert said["keep", "condition"] == "stock.reserve runs only if sure.answer is yes"
    assert "goes on" in said["keep", "on error"]
    assert said["total", "computes"].endswith("= 140, with sample values")
    assert said["refund", "final"] == "bank.refund cannot be undone (pivot)"
    assert said["tell", "mail"] == "mail.send sends a mail to a@b.example, which cannot be unsent"
    assert "whatever happened" in said["end", "at the end"]
    assert "cannot be undone" not in said["tell", "mail"], "a mail is named by its kind"


async def test_a_list_in_the_input_has_its_number_of_calls() -> None:
    """Three items are three calls; a failure by its own output is told as well."""
    specs = [spec for name in SHOP.names() if (spec := SHOP.spec(name)) is not None]
    each = step("all", "stock.reserve", {"sku": "$item"}, each="$input.skus")
    failing = {**GET, "failed_when": compared("$output.step_get.state", "open")}
    planning = Planning(ScriptedPlanner({"steps": [failing, each]}))
    made = await planning.plan("Reserve", specs, catalog=SHOP, input={"skus": ["a", "b", "c"]})
    said = {(row.step, row.what): row.text for row in review_rows(made.to_dict())}
    assert said["all", "list"] == "3 calls, of input.skus: stock.reserve"
    assert said["get", "failure"] == "orders.get counts as failed if get.state is open"


async def test_the_review_tells_what_replaces_a_call() -> None:
    """A fallback is a call like the step's own: with its params, and with whether it can be undone."""
    paid = {"tool": "bank.refund", "params": {"amount": 5000}}
    told = step("tell", "mail.send", {"to": "a@b.example", "text": "on its way"}, kind="pivot", fallback=[paid])
    end = step("end", "mail.send", {"to": "a@b.example", "text": "over"}, fallback=[paid])
    made = await planned(GET, RESERVE, told, **{"finally": [end]})
    rows = [tuple(row) for row in review_rows(made.to_dict())]
    assert ("tell", "fallback", 'if mail.send fails: bank.refund {"amount": 5000}') in rows
    assert ("tell", "final", "bank.refund, the fallback, cannot be undone (pivot)") in rows
    assert ("end", "at the end", 'if mail.send fails: bank.refund {"amount": 5000}; never undone') in rows
    whole = review_rows(made.to_dict(), calls=True)
    own = [(row.step, row.text) for row in whole if row.what == "calls"]
    assert [each for each, _ in own] == ["get", RESERVE["step_id"], "tell"]
    assert own[-1][1] == 'mail.send {"to": "a@b.example", "text": "on its way"}'
