"""Fields of outputs that a tool redacts: they are in no journal, and no plan can need them."""

import json

import pytest

from saga_engine import Coordinator, PlanInvalid, ToolError, ToolRegistry, tool
from saga_engine.core.redaction import REDACTED
from saga_engine.errors import ToolInvalid
from saga_engine.plan.compiler import check_plan
from saga_engine.plan.model import load_plan
from saga_engine.stores import open_store
from saga_engine.tools.overrides import apply_overrides

NUMBER, SSN = "4111222233334444", "078-05-1120"
#: What of the tool's output is stored.
STORED = {"ref": "r1", "card": {"number": REDACTED, "ends": "44"}, "people": [{"ssn": REDACTED, "name": "Ann"}]}


@tool(undo="refund", probe="find", redact=("card.number", "people.*.ssn"), dedupe_ttl_s=3600)
async def charge(amount: int) -> dict:
    if amount == 0:
        raise ToolError("no", retryable=False)
    return {"ref": "r1", "card": {"number": NUMBER, "ends": "44"}, "people": [{"ssn": SSN, "name": "Ann"}]}


@tool
async def refund(ref: str) -> None:
    """Its undo, which needs no redacted field."""


@tool(effect="read")
async def find(amount: int) -> dict:
    return {"ref": "r1", "card": {"number": NUMBER, "ends": "44"}, "people": [{"ssn": SSN, "name": "Ann"}]}


@tool(effect="read")
async def use(value: str) -> str:
    return value


@tool(effect="read")
async def fail() -> None:
    raise ToolError("no", retryable=False)


@tool(undo="call_back", redact="number")
async def call(number: str) -> dict:
    return {"number": number}


@tool
async def call_back(number: str) -> None:
    """Its undo, which would get the redacted field."""


TOOLS = [charge, refund, find, use, fail, call, call_back]
CHARGE = {"step_id": 1, "tool": "charge", "params": {"amount": 7}}


def using(value, **more):
    return {"step_id": 2, "tool": "use", "params": {"value": value}, **more}


def codes(*steps, finally_=(), tools=TOOLS):
    plan = {"steps": list(steps), **({"finally": list(finally_)} if finally_ else {})}
    registry = tools if isinstance(tools, ToolRegistry) else ToolRegistry(tools)
    return [(each.code, each.path) for each in check_plan(load_plan(plan), registry)]


# --- what is stored --------------------------------------------------------------------------------------------------


async def test_a_redacted_field_reaches_no_store():
    """It is in no record, not in what is remembered of identical calls, and not in what the undo is called with."""
    store = open_store("memory://redacted")
    async with Coordinator.open(store, TOOLS, durability="relaxed") as engine:
        found = await engine.run({"steps": [CHARGE, {"step_id": 2, "tool": "fail"}]}, saga_id="s")
        assert found.status == "COMPENSATED"
        again = await engine.run({"steps": [CHARGE]}, saga_id="t")
        assert again.body["steps"][0]["output"] == STORED
        for saga_id in ("s", "t"):
            data = b"".join(await store.read(saga_id))
            assert NUMBER.encode() not in data
            assert SSN.encode() not in data
            assert REDACTED.encode() in data
        history = await engine.history("s", full=True)
        assert next(each for each in history if each["k"] == "StepSucceeded")["output"] == STORED
        keys = await store._plain("KEYS", "*")
        dumped = b"".join([await store._plain("DUMP", key) or b"" for key in keys])
        assert NUMBER.encode() not in dumped
        assert SSN.encode() not in dumped


async def test_a_probe_and_an_operator_tell_no_redacted_field():
    """What settles a doubt is redacted like the call's own response."""

    @tool(redact=("card.number", "people.*.ssn"), undo="refund")
    async def lose(amount: int) -> dict:
        raise ConnectionError("the line is dead")

    @tool(name="lose_probed", redact=("card.number", "people.*.ssn"), undo="refund", probe="find")
    async def lose_probed(amount: int) -> dict:
        raise ConnectionError("the line is dead")

    store = open_store("memory://redacted2")
    tools = [lose, lose_probed, refund, find]
    async with Coordinator.open(store, tools, durability="relaxed", on_escalation=()) as engine:
        probed = {"steps": [{"step_id": 1, "tool": "lose_probed", "params": {"amount": 7}}]}
        assert (await engine.run(probed, saga_id="p")).body["steps"][0]["output"] == STORED
        asked = {"steps": [{"step_id": 1, "tool": "lose", "params": {"amount": 7}}]}
        assert (await engine.run(asked, saga_id="o")).status == "ESCALATED"
        said = await find(7)
        for _ in range(2):  # the same answer again is no other one
            found = await engine.resolve("o", 1, "happened", output=said)
            assert (found.status, found.body["steps"][0]["output"]) == ("COMPLETED", STORED)
        for saga_id in ("p", "o"):
            assert NUMBER.encode() not in b"".join(await store.read(saga_id))


# --- plans -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "value",
    [
        "$output.step_1.card.number",
        "$output.step_1.card",
        "$output.step_1",
        "number {$output.step_1.card.number}",
        "$output.step_1.people[0].ssn",
        "$output.step_1.people[0]",
        "$output.step_1.people[*].ssn",
        "$output.step_1..number",
        {"$first": ["$output.step_1.card.number", None]},
    ],
)
def test_a_binding_that_would_hold_one_is_refused(value):
    """At, above or below the field, in a text, by choice and by search."""
    assert codes(CHARGE, using(value)) == [("binding-redacted", "$.steps[1].params.value")]


@pytest.mark.parametrize(
    "value",
    [
        "$output.step_1.ref",
        "$output.step_1.card.ends",
        "$output.step_1.people[0].name",
        "$output.step_1.people[*].name",
    ],
)
def test_bindings_beside_one_are_allowed(value):
    assert codes(CHARGE, using(value)) == []


def test_conditions_lists_undos_and_the_end_are_checked_as_well():
    """Wherever a plan can read an output."""
    when = [{"value": "$output.step_1.card.number", "op": "==", "to": NUMBER}]
    assert codes(CHARGE, using("x", when=when)) == [("binding-redacted", "$.steps[1].when[0].value")]
    own = [{"value": "$output.step_1.card.number", "op": "==", "to": NUMBER}]
    assert codes({**CHARGE, "failed_when": own}) == [("binding-redacted", "$.steps[0].failed_when[0].value")]
    assert codes(CHARGE, using("$item.name", each="$output.step_1.people")) == [("binding-redacted", "$.steps[1].each")]
    undo = {"rollback": {"tool": "refund", "params": {"ref": "$output.step_1.card.number"}}}
    assert codes({**CHARGE, **undo}) == [("binding-redacted", "$.steps[0].rollback.params.ref")]
    last = {"step_id": "end", "tool": "use", "params": {"value": "$output.step_1.card.number"}}
    assert ("binding-redacted", "$.finally[0].params.value") in codes(CHARGE, finally_=[last])
    many = {**CHARGE, "each": {"of": [1, 2]}}
    assert codes(many, using("$output.step_1[0].card.number")) == [("binding-redacted", "$.steps[1].params.value")]
    assert codes(many, using("$output.step_1[0].card.ends")) == []


def test_a_registered_undo_that_would_get_one_is_refused():
    """Its params come from the output by name; a rollback with params of its own is allowed."""
    step = {"step_id": 1, "tool": "call", "params": {"number": NUMBER}}
    assert codes(step) == [("binding-redacted", "$.steps[0].tool")]
    assert codes({**step, "rollback": {"tool": "call_back", "params": {"number": "$input.number"}}}) == [
        ("binding-input-missing", "$.steps[0].rollback.params.number")
    ]


def test_an_image_is_not_redacted():
    """An undo restores what a read showed: a read that redacts cannot be a before-image."""

    @tool(effect="read", redact="price")
    async def price_of(item: str) -> dict:
        return {"price": 1}

    @tool(before=price_of, undo="set_price")
    async def set_price(item: str, price: int) -> dict:
        return {}

    step = {"step_id": 1, "tool": "set_price", "params": {"item": "a", "price": 2}}
    assert codes(step, tools=[price_of, set_price]) == [("binding-redacted", "$.steps[0].tool")]


async def test_a_plan_that_binds_to_one_does_not_start():
    async with Coordinator.open("memory://", TOOLS, durability="relaxed") as engine:
        with pytest.raises(PlanInvalid) as error:
            await engine.run({"steps": [CHARGE, using("$output.step_1.card.number")]})
        assert [each.code for each in error.value.problems] == ["binding-redacted"]


# --- declarations ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rules", ["**.ssn", "", "a..b", [""], [1], ["x"] * 51])
def test_a_rule_that_names_nothing_is_refused(rules):
    """A rule that cannot be followed must not let a value through."""
    with pytest.raises((ToolInvalid, TypeError)):
        tool(redact=rules)(charge.function)


def test_an_operator_adds_rules():
    """A table adds to the author's rules, also by a glob; ``tools`` shows them in the declaration."""
    registry = apply_overrides(
        ToolRegistry(TOOLS), {"charge": {"redact": ["ref"]}, "us*": {"redact": ["secret"]}}, "test"
    )
    assert registry.spec("charge").redact == ("card.number", "people.*.ssn", "ref")
    assert registry.spec("use").redact == ("secret",)
    assert codes(CHARGE, using("$output.step_1.ref"), tools=registry)[0][0] == "binding-redacted"
    with pytest.raises(Exception, match="redact"):
        apply_overrides(ToolRegistry(TOOLS), {"charge": {"redact": "ref"}}, "test")
    assert "redact" in json.dumps(sorted(charge.options()))
