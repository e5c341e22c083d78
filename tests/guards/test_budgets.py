"""Budgets of a saga and of a namespace's day: each call counts once, and no call is made beyond what may be spent."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from saga_engine import CallFailed, Coordinator, RetryPolicy, ToolError, tool
from saga_engine.core.effects import Done, NotDone
from saga_engine.errors import PlanInvalid, SettingInvalid, StoreUnavailable, ToolInvalid
from saga_engine.guards.chain import GuardedTools
from saga_engine.plan.operator_limits import Limits
from saga_engine.tools.registry import ToolRegistry
from tests.guards.world import Watched, step

LOG: list[Any] = []
SOON = RetryPolicy(max_attempts=3, base_s=0.0, max_s=0.0, jitter=False)
FAILING = {"left": 0}


@pytest.fixture(autouse=True)
def fresh() -> None:
    LOG.clear()
    FAILING["left"] = 0


@tool(cost={"usd": 1.0}, effect="read", retry=SOON)
def search(about: str) -> str:
    LOG.append(about)
    if FAILING["left"]:
        FAILING["left"] -= 1
        raise ToolError("not now", retryable=True)
    return about


@tool(cost={"tokens": "$output.usage.tokens"}, effect="read")
def ask_model(words: int) -> dict[str, Any]:
    LOG.append(words)
    return {"usage": {"tokens": words}}


@tool(cost={"usd": 1.0})
def free(name: str) -> None:
    LOG.append(f"free {name}")


@tool(cost={"usd": 1.0}, undo=free, undo_params={"name": "$output.name"})
def take(name: str) -> dict[str, str]:
    LOG.append(f"take {name}")
    return {"name": name}


@tool(cost={"usd": 1.0}, dedupe_ttl_s=600, undo=free, undo_params={"name": "$output.name"})
def take_once(name: str) -> dict[str, str]:
    LOG.append(f"take once {name}")
    return {"name": name}


@tool(effect="read")
def cheap(about: str) -> str:
    LOG.append(f"cheap {about}")
    return about


TOOLS = [search, ask_model, free, take, take_once, cheap]


def opened(store: str = "memory://", **limits: Any) -> Any:
    return Coordinator.open(store, TOOLS, durability="relaxed", on_escalation=(), limits=limits or None, settings=None)


def steps(*calls: tuple[str, dict[str, Any]], **more: Any) -> dict[str, Any]:
    return {
        "steps": [
            {"step_id": number, "tool": name, "params": params, **({"depends_on": [number - 1]} if number > 1 else {})}
            for number, (name, params) in enumerate(calls, 1)
        ],
        **more,
    }


async def test_a_plans_own_budget_fails_the_step_beyond_it_and_undoes_the_rest() -> None:
    """The undo costs as well, and no budget refuses it; the report has the code and what to do."""
    plan = steps(("take", {"name": "a"}), ("take", {"name": "b"}), ("take", {"name": "c"}), max_cost={"usd": 2.0})
    async with opened() as engine:
        result = await engine.run(plan, saga_id="s")
    assert (result.status, result.report["clean"]) == ("COMPENSATED", True)
    assert LOG == ["take a", "take b", "free b", "free a"]
    error = next(each["error"] for each in result.body["steps"] if each["status"] == "FAILED")
    assert (error["error_code"], error["retryable"]) == ("budget_spent", False)
    assert "2 of 2 usd of this saga are spent" in error["message"]
    assert "finish with what you have" in error["suggestion"]


async def test_the_stricter_of_plan_and_operator_holds_and_the_plan_is_told() -> None:
    """The operator's is journalled with the saga."""
    plan = steps(("take", {"name": "a"}), ("take", {"name": "b"}), max_cost={"usd": 9.0})
    assert "the operator allows 1" in str(Limits(max_cost={"usd": 1.0}).warnings(_loaded(plan))[0])
    async with opened(max_cost={"usd": 1.0}) as engine:
        assert (await engine.run(plan, saga_id="s")).status == "COMPENSATED"
        assert (await engine.history("s"))[0]["limits"]["max_cost"] == {"usd": 1.0}
    assert LOG == ["take a", "free a"]


def _loaded(plan: dict[str, Any]) -> Any:
    from saga_engine.plan.model import load_plan

    return load_plan(plan)


async def test_a_fallback_that_costs_nothing_takes_over() -> None:
    """A refused call is a failure that the plan may provide for."""
    plan = steps(("search", {"about": "a"}), max_cost={"usd": 0.5})
    plan["steps"][0]["fallback"] = {"tool": "cheap"}
    async with opened() as engine:
        assert (await engine.run(plan)).status == "COMPLETED"
    assert LOG == ["cheap a"]


async def test_a_call_counts_once_however_often_it_is_tried() -> None:
    """Its retries have its key."""
    FAILING["left"] = 2
    plan = steps(("search", {"about": "a"}), max_cost={"usd": 1.0})
    async with opened() as engine:
        assert (await engine.run(plan)).status == "COMPLETED"
    assert LOG == ["a", "a", "a"]


async def test_what_deduplication_answers_costs_nothing() -> None:
    """Neither its saga nor the day."""
    plan = steps(("take_once", {"name": "a"}), max_cost={"usd": 1.0})
    async with opened() as engine:
        await _declare(engine, {"usd": 1.0})
        assert (await engine.run(plan, saga_id="one")).status == "COMPLETED"
        assert (await engine.run(plan, saga_id="two")).status == "COMPLETED"
    assert LOG == ["take once a"]


async def test_an_output_says_what_a_call_has_cost() -> None:
    """The next one is refused once the sum is reached; calls without that unit go on."""
    async with opened(max_cost={"tokens": 100}) as engine, engine.session("s") as s:
        await s.call(ask_model, words=60)
        await s.call(ask_model, words=60)
        with pytest.raises(CallFailed, match="120 of 100 tokens of this saga") as refused:
            await s.call(ask_model, words=1)
        told = refused.value.to_dict()["context"]
        assert (told["error_code"], told["retryable"]) == ("budget_spent", False)
        await s.call(search, about="a")
    assert LOG == [60, 60, "a"]


async def test_an_agent_that_runs_again_is_answered_and_pays_nothing_again() -> None:
    """Recorded calls are replayed, a refused one as well; the sum is what it was."""
    for _ in range(2):
        async with opened("memory://again", max_cost={"usd": 2.0}) as engine:
            await _declare(engine, {"usd": 3.0})
            with pytest.raises(LookupError):
                async with engine.session("s", on_failure="keep") as s:
                    await s.call(search, about="a")
                    await s.call(search, about="b")
                    with pytest.raises(CallFailed, match="2 of 2 usd"):
                        await s.call(search, about="c")
                    raise LookupError
    async with opened("memory://again") as engine, engine.session("other") as s:
        await s.call(search, about="d")
        with pytest.raises(CallFailed, match="3 of 3 usd of today"):
            await s.call(search, about="e")
    assert LOG == ["a", "b", "d"]


async def _declare(engine: Coordinator, budget: dict[str, float]) -> None:
    await engine.supervisor.quota.declare((await engine.supervisor.lease()).owner, 0, 0.0, budget)


async def test_calls_side_by_side_spend_no_more_than_one_after_the_other() -> None:
    """Of one saga, and of all sagas of all processes of a namespace together."""
    async with opened(max_cost={"usd": 3.0}) as engine, engine.session("s") as s:
        found = await asyncio.gather(*(s.call(search, about=str(nth)) for nth in range(6)), return_exceptions=True)
        assert sum(isinstance(each, CallFailed) for each in found) == 3
    LOG.clear()
    async with opened("memory://day") as one, opened("memory://day") as other:
        await _declare(one, {"usd": 3.0})
        plans = [steps(("search", {"about": str(nth)})) for nth in range(8)]
        ends = await asyncio.gather(*((one, other)[at % 2].run(plan) for at, plan in enumerate(plans)))
    made = sum(end.status == "COMPLETED" for end in ends)
    assert made == len(LOG)
    assert 1 <= made <= 3


async def test_the_smallest_budget_of_servers_that_run_holds() -> None:
    """A server that ends takes its own with it."""
    async with opened("memory://servers") as one:
        await _declare(one, {"usd": 3.0, "tokens": 5})
        async with opened("memory://servers") as other:
            await _declare(other, {"usd": 1.0})
            assert await one.supervisor.quota.day_cost() == {"usd": 1.0, "tokens": 5}
        await _declare(one, {"usd": 3.0, "tokens": 5})
        assert await one.supervisor.quota.day_cost() == {"usd": 3.0, "tokens": 5}


class _Dated:
    """A clock that stands still on a day."""

    def __init__(self) -> None:
        self.day = 20_000

    def now_ms(self) -> int:
        return self.day * 86_400_000 + 1


async def test_a_day_is_counted_by_the_stores_clock_and_the_next_begins_anew(store: Any) -> None:
    """And whoever continues the saga of a dead process does not count its call a second time."""
    guards, clock = Watched(store), _Dated()

    async def limit() -> dict[str, float]:
        return {"usd": 2.0}

    def process() -> GuardedTools:
        return GuardedTools(ToolRegistry(*TOOLS), guards, gate=None, clock=clock, day_limit=limit)

    dying, heir = process(), process()
    real = guards.tally_set

    async def dies(name: str, *rest: Any) -> None:
        if rest[-1] == "s1":  # the entry of the saga, after that of the day
            raise StoreUnavailable("the process ends here")
        await real(name, *rest)

    guards.tally_set = dies
    call = step("s1", 1, budget=dict)
    assert isinstance(await dying.call("search", {"about": "a"}, call), NotDone)
    del guards.tally_set
    assert isinstance(await heir.call("search", {"about": "a"}, call), Done)
    assert isinstance(await heir.call("search", {"about": "b"}, step("s1", 2, budget=dict)), Done)
    refused = await heir.call("search", {"about": "c"}, step("s1", 3, budget=dict))
    assert isinstance(refused, NotDone)
    assert "2 of 2 usd of today" in refused.error.message
    assert "day" in str(refused.error.suggestion)
    clock.day += 1
    assert isinstance(await heir.call("search", {"about": "d"}, step("s1", 4, budget=dict)), Done)
    await dying.close()
    await heir.close()
    assert LOG == ["a", "b", "d"]


async def test_a_store_that_does_not_answer_lets_no_call_through_that_a_budget_may_refuse(store: Any) -> None:
    """What may not be refused is made all the same."""
    guards = Watched(store)
    tools = GuardedTools(ToolRegistry(*TOOLS), guards, gate=None, clock=_Dated())
    guards.broken["tally"] = StoreUnavailable("away")
    held = await tools.call("search", {"about": "a"}, step("s1", 1, budget=lambda: {"usd": 9.0}))
    assert isinstance(held, NotDone)
    assert held.retryable
    assert isinstance(await tools.call("search", {"about": "b"}, step("s1", 2)), Done)
    await tools.close()
    assert LOG == ["b"]


def test_nonsense_is_no_cost_and_no_budget() -> None:
    """Each place where one can be written refuses it in words."""
    for cost in ({"usd": -1}, {"usd": True}, {"usd": float("nan")}, {"usd": "$input.x"}, {"": 1}, 5):
        with pytest.raises(ToolInvalid, match="cost"):
            tool(cost=cost, name="act")(lambda: None)
    for budget in ({"usd": -1}, {"usd": "many"}, {f"u{n}": 1 for n in range(17)}, 5):
        with pytest.raises(SettingInvalid, match="max_cost"):
            Limits(max_cost=budget)  # type: ignore[arg-type]
        with pytest.raises(PlanInvalid, match="max_cost"):
            _loaded(steps(("search", {"about": "a"}), max_cost=budget))
