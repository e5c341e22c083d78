"""The policy is asked about a plan before it runs, and says no more than the plan itself determines."""

from __future__ import annotations

from typing import Any

import pytest

from saga_engine import Coordinator, tool
from saga_engine.plan.compiler import compile_plan
from saga_engine.plan.model import load_plan
from saga_engine.policy.plan_time import always_denied, planned_verdicts
from saga_engine.policy.rules import Policy, Rule
from saga_engine.testing.scripted import ScriptedPlanner
from saga_engine.tools.registry import ToolRegistry


@tool(undo="refund", keyed=False)
async def pay(to: str, amount: float, url: str = "") -> dict[str, Any]:
    """Pay somebody."""
    return {"payment": f"{to}-1", "fee": 5000}


@tool
async def refund(payment: str, amount: float = 0) -> None:
    """Take a payment back."""


@tool(effect="read")
async def price(of: str) -> dict[str, Any]:
    """The price of something."""
    return {"amount": 5}


TOOLS = ToolRegistry([pay, refund, price])


def verdicts(policy: Policy, *steps: dict[str, Any], **plan: Any) -> list[tuple[Any, str, str, bool]]:
    numbered = [{"step_id": index, **step} for index, step in enumerate(steps, 1)]
    compiled = compile_plan(load_plan({"steps": numbered, **plan}), TOOLS)
    found = planned_verdicts(policy, compiled)
    return [(each.step_id, each.direction, each.verdict, each.certain) for each in found]


def paying(amount: Any, to: str = "bob", **others: Any) -> dict[str, Any]:
    return {"tool": "pay", "params": {"to": to, "amount": amount, **others}}


def rule(verdict: str = "deny", *when: tuple[Any, ...], **options: Any) -> Rule:
    conditions = [dict(zip(("param", "op", "value"), each, strict=False)) for each in when]
    return Rule(name=options.pop("name", "a rule"), verdict=verdict, tools=("pay",), when=conditions, **options)


LARGE = ("amount", ">", 1000)


def test_a_value_in_the_plan_decides():
    """A literal and a value of the input are known: the verdict on such a call is certain, and the others pass."""
    policy = Policy([rule("ask", LARGE, direction="forward")])
    steps = (paying(10), paying(5000), paying("$input.sum"))
    assert verdicts(policy, *steps, input={"sum": 2000}) == [(2, "forward", "ask", True), (3, "forward", "ask", True)]


def test_a_value_that_a_step_brings_leaves_it_open():
    """A bound output is unknown before the run, so the verdict is possible and not certain; another value may decide."""
    policy = Policy([rule("deny", LARGE, ("to", "==", "mallory"), direction="forward")])
    steps = ({"tool": "price", "params": {"of": "x"}}, paying("$output.step_1.amount", "mallory"))
    assert verdicts(policy, *steps) == [(2, "forward", "deny", False)]
    assert verdicts(policy, steps[0], paying("$output.step_1.amount", "bob")) == []


def test_an_allowing_rule_that_may_not_hold_leaves_the_default_open():
    """What is denied unless a rule allows it is said to be denied for certain only if that rule surely misses."""
    policy = Policy([rule("allow", ("amount", "<=", 100))], default="deny")
    reading = {"tool": "price", "params": {"of": "x"}}
    found = verdicts(policy, reading, paying("$output.step_1.amount"), paying(50), paying(500))
    forward = [each for each in found if each[1] == "forward"]
    assert forward == [(1, "forward", "deny", True), (2, "forward", "deny", False), (4, "forward", "deny", True)]


def test_the_limits_of_a_rule_count_the_calls_of_the_plan():
    """The call that passes max_calls or max_sum is the one that is told, in the order of the plan."""
    calls = Policy([rule("deny", max_calls=2, direction="forward")])
    assert verdicts(calls, paying(1), paying(1), paying(1)) == [(3, "forward", "deny", True)]
    total = Policy([rule("ask", max_sum={"param": "amount", "limit": 100}, direction="forward")])
    assert verdicts(total, paying(60), paying(30), paying(20)) == [(3, "forward", "ask", True)]


def test_an_undo_that_a_plan_chose_is_authorized_as_a_forward_call_too():
    """The registered undo passes a rule about forward calls; a rollback with other params does not."""
    policy = Policy([Rule(name="no refunds", verdict="deny", tools=["refund"], direction="forward")])
    chosen = {"tool": "refund", "params": {"payment": "$output.step_1.payment", "amount": 9}}
    assert verdicts(policy, paying(1)) == []
    assert verdicts(policy, {**paying(1), "rollback": chosen}) == [(1, "compensate", "deny", True)]


def test_the_call_for_a_late_event_is_told_and_not_counted():
    """The saga that makes it is authorized like any other; what it counts is its own."""
    late = {"tool": "pay", "params": {"to": "bob", "amount": 2000}}
    waits = {"wait": {"event": "paid", "timeout_s": 60, "on_late": late}}
    assert verdicts(Policy([rule("deny", LARGE)]), waits) == [(1, "forward", "deny", True)]
    assert verdicts(Policy([rule("ask", max_calls=1)]), waits, paying(1)) == []


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("https://api.example.com/x", []),
        ("https://evil.test/", [(1, "forward", "deny", True)]),
        ("https://good@evil.test", [(1, "forward", "deny", True)]),
        ("{$saga.id}", [(1, "forward", "deny", False)]),
    ],
)
def test_a_host_is_compared_by_its_name_and_never_resolved(url, expected):
    """A check of a plan asks no name server: a hostile plan could tell one what it knows."""

    async def never(host: str, port: int | None) -> list[str]:
        raise AssertionError(host)

    policy = Policy([rule("deny", ("url", "not-host", ["*.example.com"]), direction="forward")], resolver=never)
    assert verdicts(policy, paying(1, url=url)) == expected


def test_the_check_of_a_policy_is_not_called():
    """Foreign code sees calls, not plans; what it may decide is not certain."""

    def check(request: Any) -> str:
        raise AssertionError(request)

    assert verdicts(Policy(default="deny", check=check), {"tool": "price", "params": {"of": "x"}}) == [
        (1, "forward", "deny", False)
    ]


def test_a_tool_that_is_always_denied_is_known():
    """A rule without conditions denies every call; one with a condition, or behind one that may allow, does not."""
    spec = TOOLS.spec("pay")
    assert spec is not None
    assert always_denied(Policy([rule("deny")]), spec) == "a rule"
    assert always_denied(Policy([rule("deny", max_calls=0)]), spec) == "a rule"
    assert always_denied(Policy(default="deny"), spec) == "default"
    assert always_denied(Policy([rule("deny", LARGE)]), spec) is None
    assert always_denied(Policy([rule("deny", direction="compensate")]), spec) is None
    assert always_denied(Policy([rule("allow", LARGE), rule("deny", name="rest")]), spec) is None
    assert always_denied(Policy([rule("ask")]), spec) is None


async def test_a_model_is_not_offered_a_tool_that_is_always_denied():
    """The prompt does not have it, and a plan that calls it anyway calls a tool that does not exist there."""
    planner = ScriptedPlanner({"steps": [{"step_id": 1, **paying(1)}]}, {"impossible": "nothing can pay"})
    policy = Policy([rule("deny")])
    async with Coordinator.open("memory://", TOOLS, durability="relaxed", policy=policy, planner=planner) as engine:
        with pytest.raises(Exception, match="nothing can pay"):
            await engine.plan("pay bob 1")
    assert [spec.name for spec in planner.asked[0].tools if spec.name == "pay"] == []
    assert {problem.code for problem in planner.asked[1].repair.problems} >= {"tool-unknown"}
