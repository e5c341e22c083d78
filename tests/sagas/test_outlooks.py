"""What an operator is told before an answer: what follows from it, and how a call that sends no key is found."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from saga_engine import Coordinator, ToolError, tool
from saga_engine.errors import DecisionRefused

FAST = {"*": {"retry": {"max_attempts": 1, "base_s": 0.001}}}


class Shop:
    """A shop whose last step loses its answer."""

    def __init__(self) -> None:
        self.did: list[str] = []
        self.lost = 1
        self.refuses = False
        self.gate = asyncio.Event()
        self.gate.set()

    def tools(self) -> list[Any]:
        @tool(undo="refund", sensitive=["card"])
        async def pay(amount: int, idempotency_key: str, card: str = "none") -> dict:
            self.did.append(f"pay {amount}")
            return {"payment": "P1"}

        @tool
        async def refund(payment: str, idempotency_key: str) -> None:
            self.did.append(f"refund {payment}")

        @tool(undo="cancel")
        async def order(item: str, idempotency_key: str) -> dict:
            await self.gate.wait()
            self.did.append(f"order {item}")
            return {"order": "O1"}

        @tool
        async def cancel(order: str, idempotency_key: str) -> None:
            if self.refuses:
                raise ToolError("sent already", retryable=False)
            self.did.append(f"cancel {order}")

        @tool
        async def send(to: str) -> dict:
            """A partner that knows no keys."""
            self.did.append(f"send {to}")
            if self.lost:
                self.lost -= 1
                raise ConnectionResetError("the line went dead")
            return {}

        @tool
        async def thank(to: str) -> dict:
            self.did.append(f"thank {to}")
            return {}

        return [pay, refund, order, cancel, send, thank]


PLAN = {
    "steps": [
        {"step_id": 1, "name": "money", "tool": "pay", "params": {"amount": 99, "card": "4111111111111111"}},
        {"step_id": 2, "name": "goods", "tool": "order", "params": {"item": "tea"}},
        {"step_id": 3, "name": "mail", "tool": "send", "params": {"to": "ada"}, "kind": "irreversible"},
        {"step_id": 4, "name": "card", "tool": "thank", "params": {"to": "ada"}, "kind": "irreversible"},
    ],
}


async def asked(coordinator: Coordinator, saga_id: str = "s") -> dict[str, Any]:
    (question,) = (await coordinator.show(saga_id)).body["questions"]
    return question


def opened(shop: Shop) -> Any:
    return Coordinator.open("memory://", shop.tools(), durability="relaxed", on_escalation=(), tool_options=FAST)


async def test_a_call_without_a_key_is_looked_for_by_its_params_and_time() -> None:
    """No view names a key that nobody was sent. A tool that is told its key is found by it, with or without honour."""
    shop = Shop()
    async with opened(shop) as coordinator:
        result = await coordinator.run(PLAN, saga_id="s")
        question = await asked(coordinator)
        assert question["kind"] == "in-doubt"
        assert (question["idempotency_key"], question["params"]) == (None, {"to": "ada"})
        assert question["called_ms"] == result.body["steps"][2]["started_ms"]
        assert [bool(step["idempotency_key"]) for step in result.body["steps"]] == [True, True, False, False]
        assert (await coordinator.show("s")).body["steps"] == result.body["steps"]


async def test_a_call_that_may_happen_twice_is_repeated_only_by_who_knows() -> None:
    """The repeat of a call whose tool knows no key is refused without the mark that says so, at every door."""
    shop = Shop()
    async with opened(shop) as coordinator:
        await coordinator.run(PLAN, saga_id="s")
        retry = (await asked(coordinator))["outlooks"]["retry"]
        assert retry["calls"] == [{"step_id": 3, "name": "mail", "tool": "send", "direction": "forward", "twice": True}]
        for wait in (True, False):
            with pytest.raises(DecisionRefused, match="may happen twice") as refused:
                await coordinator.resolve("s", 3, "retry", wait=wait)
            assert refused.value.hint == f"if that is wanted, answer with --expect {retry['mark']}"
        assert shop.did.count("send ada") == 1
        result = await coordinator.resolve("s", 3, "retry", expect=retry["mark"])
    assert (result.status, shop.did.count("send ada")) == ("COMPLETED", 2)


@pytest.mark.parametrize("decision", ["happened", "not-happened", "accept"])
async def test_what_is_told_of_an_answer_is_what_follows(decision: str) -> None:
    """The calls that are made after the answer, and what remains, are those that its outlook names."""
    shop = Shop()
    async with opened(shop) as coordinator:
        await coordinator.run(PLAN, saga_id="s")
        follows, before = (await asked(coordinator))["outlooks"][decision], len(shop.did)
        result = await coordinator.resolve("s", 3, decision, expect=follows["mark"])
        undone = [step["step_id"] for step in result.body["steps"] if step["status"] == "COMPENSATED"]
        remains = [step for step in (3, 4) if step in result.report["left_in_place"]]
    told = [each["step_id"] for each in follows.get("undoes", ())]
    assert sorted(told) == undone
    assert [each["step_id"] for each in follows.get("remains", ())] == remains
    goes_on = ["thank ada"] * bool(follows.get("begins"))
    assert shop.did[before:] == {"happened": goes_on}.get(decision, ["cancel O1", "refund P1"])
    if decision != "happened":
        assert [(each["undo"], each["params"]) for each in follows["undoes"]] == [
            ("cancel", {"item": "tea"}),
            ("refund", {"amount": 99, "card": "[redacted]"}),
        ]


async def test_an_answer_is_refused_if_other_effects_follow_by_now() -> None:
    """Its sender had seen that the payment would be refunded; meanwhile there is an order as well."""
    shop = Shop()
    shop.gate.clear()
    steps = [{**step, "depends_on": [] if step["step_id"] < 3 else [1]} for step in PLAN["steps"]]
    steps[3]["depends_on"] = [2, 3]
    async with opened(shop) as coordinator:
        handle = await coordinator.submit({"steps": steps}, saga_id="s")
        async for record in coordinator.follow("s"):
            if record["k"] == "StepEscalated":
                break
        seen = (await asked(coordinator))["outlooks"]["not-happened"]
        assert [each["name"] for each in seen["undoes"]] == ["money"]
        assert [each["name"] for each in seen["settles"]] == ["goods"]
        shop.gate.set()
        async for record in coordinator.follow("s"):
            if record["k"] == "StepSucceeded" and record["step"] == "2":
                break
        with pytest.raises(DecisionRefused, match=r"undoes goods.*money") as refused:
            await coordinator.resolve("s", 3, "not-happened", expect=seen["mark"])
        assert "refund P1" not in shop.did
        now = (await asked(coordinator))["outlooks"]["not-happened"]
        assert refused.value.context["expect"] == now["mark"]
        await coordinator.resolve("s", 3, "not-happened", expect=now["mark"])
        await handle.wait()
        result = await coordinator.wait("s")
    assert result.status == "COMPENSATED"


async def test_a_question_about_an_undo_says_what_is_undone_next() -> None:
    """Also while the saga goes back; what is accepted is told to stay."""
    shop = Shop()
    shop.refuses = True
    async with opened(shop) as coordinator:
        await coordinator.run(PLAN, saga_id="s")
        await coordinator.resolve("s", 3, "not-happened")
        question = await asked(coordinator)
        assert (question["kind"], question["step_id"]) == ("undo-failed", 2)
        follows = question["outlooks"]
        assert [each["name"] for each in follows["undone"]["undoes"]] == ["money"]
        assert [each["name"] for each in follows["accept"]["remains"]] == ["goods"]
        assert [each["tool"] for each in follows["retry"]["calls"]] == ["cancel"]
        assert "twice" not in follows["retry"]["calls"][0]
        shop.refuses = False
        result = await coordinator.resolve("s", 2, "retry", expect=follows["retry"]["mark"])
    assert (result.status, shop.did[-2:]) == ("COMPENSATED", ["cancel O1", "refund P1"])
