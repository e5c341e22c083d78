"""What an operator can change about tools, and what is refused."""

from __future__ import annotations

from dataclasses import asdict

import pytest

from saga_engine.errors import SettingInvalid, ToolInvalid, ToolMissing
from saga_engine.plan.compiler import check_plan
from saga_engine.plan.model import load_plan
from saga_engine.plan.tool_spec import BreakerPolicy, RetryPolicy
from saga_engine.tools.decorator import tool
from saga_engine.tools.options import OPTIONS
from saga_engine.tools.overrides import OverriddenTools, ToolChanges, apply_overrides
from saga_engine.tools.registry import ToolRegistry


@tool
def refund(order_id: str) -> None:
    """Give the money back."""


@tool(
    undo=refund, breaker=BreakerPolicy(9, 90.0), retry=RetryPolicy(max_attempts=7, base_s=2.0), rate="1/s", resource="r"
)
def pay_card(user: str, amount: int = 1) -> dict:
    """Charge a card."""
    return {"order_id": user}


@tool(undo=refund)
def pay_wire(user: str, idempotency_key: str) -> dict:
    """Send money by wire."""
    return {"order_id": user}


@tool(effect="read", last_good_s=60)
def rates() -> dict:
    """Look up exchange rates."""
    return {}


def applied(table: dict) -> ToolRegistry:
    return apply_overrides(ToolRegistry([pay_card, pay_wire, rates]), table, "saga.toml")


def test_every_option_can_be_changed_but_those_that_toml_cannot_express():
    """Neither the name of a tool, nor its functions and schemas; all else, and whether the tool is offered."""
    inexpressible = {"name", "failed", "input_schema", "output_schema"}
    assert set(OPTIONS) - inexpressible == set(ToolChanges.__annotations__) - {"disabled"}


def test_options_are_changed_and_the_source_is_remembered():
    """A table changes the options that it names, of that tool, and nothing else; the tool itself stays as it was."""
    registry = applied(
        {"pay_card": {"timeout_s": 5, "resource": ["user:{user}", "bank"], "rate": "2/min", "use_when": "paid"}}
    )
    made = registry.get("pay_card")
    assert (made.timeout_s, made.resource, made.rate) == (5, ("user:{user}", "bank"), "2/min")
    assert registry.spec("pay_card").use_when == "paid"
    assert registry.get("pay_wire").timeout_s == pay_card.timeout_s == 30.0
    assert isinstance(registry, OverriddenTools)
    assert registry.sources["pay_card"] == dict.fromkeys(
        ("timeout_s", "resource", "rate", "use_when"), "saga.toml [tools.pay_card]"
    )


def test_the_more_specific_table_wins_whatever_the_order():
    """``*`` gives way to a glob, that to one with more plain characters, and that to the name itself."""
    tables = {
        "*": {"timeout_s": 1, "max_concurrency": 9, "keyed": False},
        "pay_*": {"timeout_s": 2, "max_concurrency": 8},
        "pay_c*": {"timeout_s": 3},
        "pay_card": {"timeout_s": 4},
    }
    for table in (tables, dict(reversed(tables.items()))):
        registry = applied(table)
        found = {one.name: (one.timeout_s, one.max_concurrency) for one in registry}
        assert found == {"pay_card": (4, 8), "pay_wire": (2, 8), "rates": (1, 9), "refund": (1, 9)}
        assert registry.sources["pay_card"]["max_concurrency"] == 'saga.toml [tools."pay_*"]'


def test_policies_change_field_by_field():
    """``retry`` and ``breaker`` keep the fields that a table does not name; ``true`` keeps a breaker that is there."""
    registry = applied({"*": {"breaker": True}, "pay_card": {"retry": {"max_attempts": 2}, "breaker": {"failures": 1}}})
    made = registry.get("pay_card")
    assert asdict(made.retry) == asdict(RetryPolicy(max_attempts=2, base_s=2.0))
    assert made.breaker == BreakerPolicy(1, 90.0)
    assert registry.get("rates").breaker == BreakerPolicy()
    assert applied({"pay_card": {"breaker": True}}).get("pay_card").breaker == BreakerPolicy(9, 90.0)


def test_false_takes_a_guard_away():
    """TOML has no null: ``false`` is none."""
    made = applied({"pay_card": {"rate": False, "resource": False, "breaker": False}}).get("pay_card")
    assert (made.rate, made.resource, made.breaker) == (None, None, None)


def test_a_glob_reaches_only_tools_that_an_option_fits():
    """Through a glob the memory is for writes and the last good result for reads; by name a misfit is an error."""
    registry = applied({"*": {"dedupe_ttl_s": 60, "last_good_s": 30}})
    assert {one.name: (one.dedupe_ttl_s, one.last_good_s) for one in registry} == {
        "pay_card": (60, None),
        "pay_wire": (60, None),
        "refund": (60, None),
        "rates": (None, 30),
    }
    with pytest.raises(ToolInvalid, match=r"rates.*saga\.toml \[tools\.rates\]"):
        applied({"rates": {"dedupe_ttl_s": 60}})


def test_effect_can_only_be_tightened():
    """A read may be declared a write, and then has no last good result; a write is never declared harmless."""
    made = applied({"rates": {"effect": "write", "dedupe_ttl_s": 5}}).get("rates")
    assert (made.effect, made.last_good_s, made.dedupe_ttl_s) == ("write", None, 5)
    assert applied({"rates": {"effect": "read"}}).get("rates").effect == "read"
    for effect in ("read", "none", True, []):
        with pytest.raises(SettingInvalid, match="effect"):
            applied({"pay_card": {"effect": effect}})


def test_links_lead_to_the_changed_tools():
    """An undo that was named by function is found in its changed form, and another one can be named."""
    registry = applied({"refund": {"tolerates_absence": True}, "pay_wire": {"undo": "pay_card"}})
    assert registry.spec("pay_card").undo == "refund"
    assert registry.spec("refund").tolerates_absence
    assert registry.spec("pay_wire").undo == "pay_card"
    with pytest.raises(ToolInvalid, match="'refnd', which is no tool"):
        applied({"pay_card": {"undo": "refnd"}})


def test_a_tool_that_is_switched_off_is_not_offered():
    """Nobody finds it, and plan and caller are told who switched it off; a more specific table can leave it on."""
    registry = applied({"*": {"disabled": True}, "pay_*": {"disabled": False}, "refund": {"disabled": False}})
    assert list(registry.names()) == ["pay_card", "refund", "pay_wire"]
    assert registry.switched_off == {"rates": 'saga.toml [tools."*"]'}
    plan = load_plan({"steps": [{"step_id": 1, "name": "look", "tool": "rates", "params": {}}]})
    (problem,) = check_plan(plan, registry)
    assert (problem.code, problem.hint) == ("tool-unknown", 'it is switched off by saga.toml [tools."*"]')
    with pytest.raises(ToolMissing) as caught:
        raise registry.missing("rates")
    assert "switched off" in caught.value.hint
    assert "did you mean" in registry.missing("pay_car").hint


def test_the_undo_of_a_tool_on_offer_cannot_be_switched_off():
    """A write that nobody could take back any more is refused, not offered."""
    with pytest.raises(ToolInvalid, match="switches off 'refund', the undo of 'pay_card'"):
        applied({"refund": {"disabled": True}})
    assert list(applied({"refund": {"disabled": True}, "pay_*": {"disabled": True}}).names()) == ["rates"]


@pytest.mark.parametrize(
    ("table", "word"),
    [
        ({"pay_crad": {"timeout_s": 1}}, "matches no tool"),
        ({"wire_*": {"timeout_s": 1}}, "matches no tool"),
        ({"pay card": {"timeout_s": 1}}, "no name of tools"),
        ({"pay_card": 5}, "must be a table"),
        ({"pay_card": {"timeout": 1}}, "'timeout' is no option"),
        ({"pay_card": {"name": "x"}}, "'name' is no option"),
        ({"pay_card": {"input_schema": {}}}, "'input_schema' is no option"),
        ({"pay_card": {"retry": 3}}, "retry"),
        ({"pay_card": {"retry": {"attempts": 3}}}, "retry"),
        ({"pay_card": {"breaker": 3}}, "breaker"),
        ({"pay_card": {"breaker": {"open": 3}}}, "breaker"),
        ({"pay_card": {"undo": False}}, "undo"),
        ({"pay_card": {"disabled": "yes"}}, "disabled"),
        ({"pay_card": {"tags": 3}}, "tags"),
    ],
)
def test_what_has_no_meaning_is_a_setting_error(table, word):
    """A typing error in a table would switch a guard off silently, so it is an error with a hint."""
    with pytest.raises(SettingInvalid, match=word) as caught:
        applied(table)
    assert caught.value.hint
    assert "saga.toml" in caught.value.message


@pytest.mark.parametrize(
    "options",
    [
        {"timeout_s": 0},
        {"timeout_s": "5"},
        {"rate": "often"},
        {"rate": True},
        {"resource": "user:{nobody}"},
        {"breaker": {"failures": 0}},
        {"retry": {"max_attempts": 0}},
        {"key_ttl_s": 60},
        {"use_when": 5},
        {"tags": [5]},
        {"keyed": "yes"},
        {"max_concurrency": 0},
    ],
)
def test_what_the_tool_refuses_names_the_table(options):
    """A value that the declaration itself would not allow is refused in its words, with the table that it comes from."""
    with pytest.raises(ToolInvalid, match=r"as changed by saga\.toml \[tools\.pay_card\]") as caught:
        applied({"pay_card": options})
    assert caught.value.hint


def test_no_table_and_no_tools_change_nothing():
    """Without tables the registry is itself; without tools there is nothing that a table could miss."""
    registry = ToolRegistry([pay_card])
    assert apply_overrides(registry, {}, "saga.toml") is registry
    empty = ToolRegistry()
    assert apply_overrides(empty, {"pay_card": {"timeout_s": 1}}, "saga.toml") is empty
    with pytest.raises(SettingInvalid, match="no option"):
        apply_overrides(empty, {"pay_card": {"timeout": 1}}, "saga.toml")
