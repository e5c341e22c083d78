"""Tools that are registered late, results that are errors, and plans that are only checked."""

from __future__ import annotations

from typing import Any

import pytest

from saga_engine import Coordinator, ToolError, Undo, tool
from saga_engine.core import transitions as t
from saga_engine.errors import CallFailed, SettingInvalid, ToolInvalid

PLAN = {"steps": [{"step_id": 1, "tool": "book", "params": {"seat": "12A"}}]}


@tool
async def cancel(seat: str) -> dict:
    return {"cancelled": seat}


def booking(answer: Any, **options: Any) -> Any:
    @tool(name="book", undo="cancel", **options)
    async def book(seat: str) -> Any:
        return answer

    return book


# --- results that are errors -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "failed",
    [
        lambda result: result["status"] == "error",
        lambda result: result["error_message"],
        lambda result: {"error_code": "full", "message": "no seat left"},
        lambda result: ToolError("no seat left"),
    ],
)
async def test_a_result_that_is_an_error_is_not_done(failed) -> None:
    """What ``failed`` says is the tool's own word: the saga is undone and the message told."""
    book = booking({"status": "error", "error_message": "no seat left"}, failed=failed)
    async with Coordinator.open("memory://", [book, cancel]) as engine:
        outcome = await engine.run(PLAN)
    assert (outcome.status, outcome.body["error"]["message"]) == (t.COMPENSATED, "no seat left")


@pytest.mark.parametrize("said", [None, False, "", 0])
async def test_a_result_that_is_none_is_an_output(said) -> None:
    """A false value of ``failed`` lets the result through."""
    async with Coordinator.open("memory://", [booking({"seat": 1}, failed=lambda _: said), cancel]) as engine:
        assert (await engine.run(PLAN)).status == t.COMPLETED


async def test_a_check_that_breaks_leaves_the_call_in_doubt() -> None:
    """The call was made; that nobody can read its result is no reason to call it undone."""
    async with Coordinator.open("memory://", [booking({}, failed=lambda result: result["status"]), cancel]) as engine:
        assert (await engine.run(PLAN)).status == t.ESCALATED


async def test_tools_of_a_framework_may_return_their_errors() -> None:
    """``register(…, failed=…)`` tells for all tools of an agent, or by name, which results are errors."""
    from langchain_core.tools import StructuredTool  # importing it takes longer than all tests of this file

    from saga_engine.adapters.langchain import register

    async def book(seat: str) -> str:
        """Book a seat."""
        return f"Error: {seat} is taken"

    def failed(result: Any) -> Any:
        return result if str(result).startswith("Error") else None

    listed = [StructuredTool.from_function(coroutine=book, name="book")]
    for given in (failed, {"book": failed}):
        tools = register(listed, undo={"book": "cancel"}, failed=given)
        async with Coordinator.open("memory://", [*tools, cancel]) as engine:
            outcome = await engine.run(PLAN)
        assert (outcome.status, outcome.body["error"]["message"]) == (t.COMPENSATED, "Error: 12A is taken")
    with pytest.raises(SettingInvalid, match="buy"):
        register(listed, failed={"buy": failed})


# --- checking and registering ----------------------------------------------------------------------------------------


async def test_a_plan_is_checked_without_being_submitted() -> None:
    """``check`` lists the problems that ``submit`` would refuse the plan for, of its form and of its meaning."""
    async with Coordinator.open("memory://", [booking({}), cancel]) as engine:
        assert engine.check(PLAN) == []
        assert [p.code for p in engine.check({"steps": [{"step_id": 1, "tool": "nope"}]})] == ["tool-unknown"]
        assert engine.check({"steps": []})
        assert [head async for head in _all(engine)] == []


async def _all(engine: Coordinator) -> Any:
    for head in await engine.list():
        yield head


async def test_tools_can_be_registered_after_opening() -> None:
    """A tool that is known only later is like the others; a broken one changes nothing."""
    async with Coordinator.open("memory://") as engine:
        assert engine.check(PLAN)
        engine.register(booking({"seat": 1}), cancel)
        assert (await engine.run(PLAN)).status == t.COMPLETED
        with pytest.raises(ToolInvalid):
            engine.register(tool(name="other", undo="nobody")(cancel.function))
        assert "other" not in engine.tools
    options = {"b*": {"not_done": ["KeyError"]}, "cancel": {"timeout_s": 3}}
    async with Coordinator.open(
        "memory://", [cancel, tool(name="bill", undo=cancel)(cancel.function)], tool_options=options
    ) as engine:
        engine.register(booking({"seat": 1}))
        assert engine.tools.get("book").not_done == ("KeyError",)
        assert (await engine.run(PLAN)).status == t.COMPLETED


# --- sessions and bindings -------------------------------------------------------------------------------------------


async def test_an_undo_of_a_session_may_go_by_the_key() -> None:
    """``$key`` in the params of an undo is the call's own key: the undo needs no output."""
    keys = []

    @tool
    async def order(idempotency_key: str) -> dict:
        keys.append(idempotency_key)
        return {}

    @tool
    async def refuse() -> dict:
        raise ToolError("no")

    @tool(tolerates_absence=True)
    async def withdraw(request: str, why: list) -> None:
        keys.append((request, why))

    async with Coordinator.open("memory://", [order, withdraw, refuse]) as engine:
        with pytest.raises(CallFailed):
            async with engine.session("agent") as session:
                await session.call("order", {}, undo=Undo("withdraw", {"request": "$key", "why": ["$key"]}))
                await session.call("refuse", {}, irreversible=True)
        assert (await engine.show("agent")).status == t.COMPENSATED
    assert keys == [keys[0], (keys[0], [keys[0]])]


async def test_a_number_after_a_dot_gets_a_hint() -> None:
    """``.items.0`` is what people write for the first item."""
    plan = {"steps": [{"step_id": 1, "tool": "book", "params": {"seat": "$input.items.0.id"}}], "input": {"items": []}}
    async with Coordinator.open("memory://", [booking({}), cancel]) as engine:
        (problem,) = engine.check(plan)
    assert "write [0], not .0" in problem.message
