"""Guards against agents in a loop: each refuses a call before it is recorded, and tells the model what to do."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from saga_engine import CallFailed, Coordinator, ToolError, tool
from saga_engine.agents.guards import AgentGuards
from saga_engine.errors import SettingInvalid
from saga_engine.settings import Settings, SettingsFile

LOG: list[str] = []


@pytest.fixture(autouse=True)
def fresh() -> None:
    LOG.clear()


@tool(effect="read")
def look(at: str) -> str:
    LOG.append(f"look {at}")
    return at if at != "clock" else str(len(LOG))


@tool
def remove(text: str) -> None:
    LOG.append(f"remove {text}")


@tool(undo=remove)
def add(text: str) -> dict[str, str]:
    LOG.append(f"add {text}")
    return {"text": text}


@tool(effect="read")
def ask_model(words: int) -> dict[str, Any]:
    LOG.append(f"ask {words}")
    return {"answer": "yes", "usage": {"tokens": words}}


TOOLS = [look, add, remove, ask_model]


def settings(**agents: Any) -> Settings:
    return Settings(files=(SettingsFile({"agents": agents}, Path(), "saga.toml"),))


def opened(**agents: Any) -> Any:
    return Coordinator.open("memory://", TOOLS, settings=settings(**agents))


async def test_the_same_write_in_a_row_is_refused_and_the_agent_goes_on() -> None:
    """Nothing is recorded or undone; another call ends the row."""
    async with opened(max_same_calls=2) as engine:
        async with engine.session("s") as s:
            await s.call(add, text="a")
            await s.call(add, text="a")
            for _ in range(2):
                with pytest.raises(CallFailed, match="2 times in a row") as refused:
                    await s.call(add, text="a")
            assert refused.value.error_code == "same_call"
            assert "do something else" in str(refused.value.hint)
            await s.call(add, text="b")
            await s.call(add, text="a")
        assert len((await engine.show("s")).body["steps"]) == 4
    assert LOG == ["add a", "add a", "add b", "add a"]


async def test_a_read_counts_while_its_answer_stays_the_same() -> None:
    """Who waits for something to change may ask as often as it changes."""
    async with opened(max_same_calls=2) as engine, engine.session("s") as s:
        for _ in range(5):
            await s.call(look, at="clock")
        await s.call(look, at="sky")
        await s.call(look, at="sky")
        with pytest.raises(CallFailed, match="and answered the same"):
            await s.call(look, at="sky")


async def test_after_the_last_call_the_agent_may_still_finish() -> None:
    """Unlike ``max_calls`` of [limits], which undoes everything."""
    async with opened(max_calls=2) as engine:
        async with engine.session("s") as s:
            await s.call(add, text="a")
            await s.call(add, text="b")
            with pytest.raises(CallFailed, match="all 2 calls are made") as refused:
                await s.call(add, text="c")
            assert refused.value.error_code == "too_many_calls"
        assert (await engine.show("s")).completed


async def test_a_budget_is_spent_by_what_calls_cost() -> None:
    """A number for each call, or the field of the output that says it; calls that cost nothing go on."""
    costs = {"ask_model": {"tokens": "$output.usage.tokens", "usd": 0.5}}
    async with opened(max_cost={"tokens": 100, "usd": 10}, costs=costs) as engine, engine.session("s") as s:
        await s.call(ask_model, words=60)
        await s.call(ask_model, words=60)
        with pytest.raises(CallFailed, match="120 of 100 tokens are spent") as refused:
            await s.call(ask_model, words=1)
        told = refused.value.to_dict()["context"]
        assert (told["error_code"], told["retryable"]) == ("budget_spent", False)
        await s.call(look, at="sky")


async def test_another_life_meets_the_same_guards_at_the_same_calls() -> None:
    """What is answered from the journal is not refused, and a budget that was spent is spent."""
    costs = {"ask_model": {"usd": 1}}
    for _ in range(2):
        async with Coordinator.open(
            "memory://lives", TOOLS, settings=settings(max_same_calls=1, max_cost={"usd": 2}, costs=costs)
        ) as engine:
            with pytest.raises(LookupError):
                async with engine.session("s", on_failure="keep") as s:
                    await s.call(ask_model, words=1)
                    with pytest.raises(CallFailed, match="in a row"):
                        await s.call(ask_model, words=1)
                    await s.call(ask_model, words=2)
                    with pytest.raises(CallFailed, match="2 of 2 usd"):
                        await s.call(ask_model, words=3)
                    await s.call(add, text="a")
                    raise LookupError
            assert s.divergence is None
    assert LOG == ["ask 1", "ask 2", "add a"]


def test_files_are_tightened_and_nonsense_is_refused() -> None:
    """The stricter of two files holds, guard by guard; a table that means nothing says so."""
    one = AgentGuards.parse({"max_calls": 5, "max_cost": {"usd": 1}, "costs": {"a": {"usd": 0.1}}}, "one")
    other = AgentGuards.parse({"max_calls": 9, "max_same_calls": 3, "costs": {"a": {"usd": 0.2, "tokens": 1}}}, "other")
    both = one.tightened(other)
    assert (both.max_calls, both.max_same_calls, both.max_cost) == (5, 3, {"usd": 1})
    assert both.costs == {"a": {"usd": 0.2, "tokens": 1}}
    for table in (
        {"max_calls": 0},
        {"max_same_calls": True},
        {"max_time_s": 0},
        {"max_time_s": "long"},
        {"max_cost": 5},
        {"max_cost": {"usd": "much"}},
        {"costs": {"a": 1}},
        {"costs": {"a": {"usd": "$input.x"}}},
        {"max_call": 3},
    ):
        with pytest.raises(SettingInvalid, match=r"\[agents\]"):
            AgentGuards.parse(table, "saga.toml")


@tool(effect="read")
async def pay(nth: int) -> int:
    LOG.append(f"pay {nth}")
    await asyncio.sleep(0)
    if nth < 0:
        raise ToolError("declined")
    return nth


def paying(store: str, most: int) -> Any:
    limits = settings(max_cost={"usd": most}, costs={"pay": {"usd": 1}})
    return Coordinator.open(store, [*TOOLS, pay], settings=limits)


async def test_calls_in_flight_and_failed_calls_are_paid_for() -> None:
    """Side by side no more are made than one after the other, and a failure is not free."""
    async with paying("memory://", 5) as engine:
        async with engine.session("side-by-side") as s:
            found = await asyncio.gather(*(s.call(pay, nth=nth) for nth in range(8)), return_exceptions=True)
            assert [isinstance(each, CallFailed) for each in found] == [False] * 5 + [True] * 3
        LOG.clear()
        async with engine.session("failing") as s:
            for _ in range(4):
                await asyncio.gather(s.call(pay, nth=-1), s.call(pay, nth=-2), return_exceptions=True)
    assert len(LOG) == 5


async def test_what_was_recorded_is_never_refused() -> None:
    """Nor by a guard that is stricter than when the call was made; what comes after it is."""
    for most in (5, 2):
        async with paying("memory://stricter", most) as engine:
            with pytest.raises(LookupError):
                async with engine.session("s", on_failure="keep") as s:
                    assert [await s.call(pay, nth=nth) for nth in range(4)] == [0, 1, 2, 3]
                    if most == 2:
                        with pytest.raises(CallFailed, match="4 of 2 usd"):
                            await s.call(pay, nth=4)
                    await s.call(add, text="a")
                    raise LookupError
    assert LOG == ["pay 0", "pay 1", "pay 2", "pay 3", "add a"]


@pytest.mark.virtual_time
async def test_after_its_time_an_agent_may_still_finish() -> None:
    """Unlike ``deadline_s``, after which everything is undone; another life has no more time than the first."""
    for _ in range(2):
        async with Coordinator.open("memory://time", TOOLS, settings=settings(max_time_s=60)) as engine:
            with pytest.raises(LookupError):
                async with engine.session("s", on_failure="keep") as s:
                    await s.call(add, text="a")
                    await s.call(add, text="b")
                    await asyncio.sleep(61)
                    with pytest.raises(CallFailed, match="its 60 s have passed") as refused:
                        await s.call(add, text="c")
                    assert refused.value.error_code == "time_spent"
                    assert "finish with what you have" in str(refused.value.hint)
                    raise LookupError
    assert LOG == ["add a", "add b"]


async def test_an_agent_may_always_take_its_own_call_back() -> None:
    """A guard is there against more effects; the same undo again would undo nothing, and is refused."""
    async with opened(max_calls=1) as engine, engine.session("s") as s:
        await s.call(add, text="a")
        await s.call(remove, text="a")
        with pytest.raises(CallFailed, match="all 1 calls are made"):
            await s.call(remove, text="a")
    assert LOG == ["add a", "remove a"]
