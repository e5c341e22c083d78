"""A call that takes back an earlier one is the undo of that one: nothing is undone twice, and nothing is left untold."""

from __future__ import annotations

from typing import Any

import pytest

from saga_engine import CallFailed, Coordinator, SagaResult, ToolContext, ToolError, tool
from saga_engine.analysis.cancellation import preview_cancel
from saga_engine.core.codec import decode
from saga_engine.core.fold import state_of

ONCE = {"max_attempts": 1, "base_s": 0.001, "max_s": 0.001}
LINE = ConnectionError("the line is dead")


class Bank:
    """A bank that keeps idempotency keys: a repeat under one key acts once. ``trouble``: what the next refunds do."""

    def __init__(self) -> None:
        self.paid: dict[str, int] = {}
        self.refunds: dict[str, tuple[str, int]] = {}
        self.calls: list[str] = []
        self.trouble: list[Any] = []

    @property
    def balance(self) -> int:
        """What the bank has of the agent's money; negative: it gave back more than it got."""
        return sum(self.paid.values()) - sum(amount for _, amount in self.refunds.values())

    def tools(self, **options: Any) -> list[Any]:
        bank = self

        @tool(undo="refund")
        async def pay(amount: int, idempotency_key: str) -> dict:
            bank.paid[idempotency_key] = amount
            return {"payment": idempotency_key}

        @tool(**options)
        async def refund(payment: str, idempotency_key: str, ctx: ToolContext, part: int = 0) -> dict:
            bank.calls.append(idempotency_key)
            what = bank.trouble.pop(0) if bank.trouble else ""
            if isinstance(what, ToolError):
                raise what
            bank.refunds.setdefault(idempotency_key, (payment, part or bank.paid.get(payment, 0)))
            if what:
                raise what
            return {"refund": idempotency_key}

        @tool
        async def fail() -> None:
            raise ToolError("no", retryable=False)

        return [pay, refund, fail]


async def in_session(c: Coordinator, *refunds: dict[str, Any]) -> SagaResult:
    """An agent pays, takes that back itself, and gives up."""
    with pytest.raises(RuntimeError, match="gives up"):
        async with c.session("saga") as s:
            paid = await s.call("pay", amount=100)
            for params in refunds:
                try:
                    await s.call("refund", payment=paid["payment"], irreversible=True, **params)
                except CallFailed:
                    continue
            raise RuntimeError("gives up")
    return await c.show("saga")


async def in_plan(c: Coordinator, *refunds: dict[str, Any]) -> SagaResult:
    """A plan pays, takes that back itself, and fails."""
    steps: list[dict[str, Any]] = [{"step_id": 1, "tool": "pay", "params": {"amount": 100}}]
    for number, params in enumerate(refunds, 2):
        given = {"payment": "$output.step_1.payment", **params}
        steps.append({"step_id": number, "tool": "refund", "params": given, "kind": "irreversible"})
    return await c.run({"steps": [*steps, {"step_id": 9, "tool": "fail", "kind": "pivot"}]}, saga_id="saga")


DOORS = [pytest.param(in_session, id="session"), pytest.param(in_plan, id="plan")]


@pytest.mark.parametrize("door", DOORS)
async def test_a_call_that_takes_one_back_is_its_undo(door: Any) -> None:
    """It has the key of the undo, it counts as the undo, and a rollback does not repeat it: refunded once, clean."""
    bank = Bank()
    async with Coordinator.open("memory://", bank.tools(), settings=None) as c:
        result = await door(c, {})
        assert (result.status, result.report["clean"], bank.balance) == ("COMPENSATED", True, 0)
        assert result.report["compensated"] == [1]
        assert len(bank.calls) == 1
        (intent,) = [each for each in await c.history("saga") if each.get("undoes")]
    assert (intent["step"], intent["undoes"]) == ("2", "1")
    assert ":1:c:" in bank.calls[0]
    first, second = result.body["steps"][:2]
    assert (first["status"], first["undone_by"], second["undoes"]) == ("COMPENSATED", 2, 1)
    assert second["idempotency_key"] == bank.calls[0]


@pytest.mark.parametrize("door", DOORS)
async def test_a_repeat_gets_the_first_answer(door: Any) -> None:
    """An agent that takes the same call back twice is answered twice, and the bank hears it once."""
    bank = Bank()
    async with Coordinator.open("memory://", bank.tools(), settings=None) as c:
        result = await door(c, {}, {})
    assert (result.status, bank.balance, len(bank.calls)) == ("COMPENSATED", 0, 1)
    first, second = result.body["steps"][1:3]
    assert (second["output"], second["via"]) == (first["output"], "deduplicated")


async def test_what_is_not_done_stands_and_is_undone_under_the_same_key() -> None:
    """The refund is refused: the payment stands, and the rollback makes the same call again, under the same key."""
    bank = Bank()
    bank.trouble = [ToolError("not now", retryable=False)]
    async with Coordinator.open("memory://", bank.tools(), settings=None) as c:
        result = await in_session(c, {})
    assert (result.status, result.report["clean"], bank.balance) == ("COMPENSATED", True, 0)
    assert len(bank.calls) == 2
    assert len(set(bank.calls)) == 1
    assert [step["status"] for step in result.body["steps"]] == ["COMPENSATED", "FAILED"]


@pytest.mark.parametrize("door", DOORS)
async def test_what_is_unknown_is_settled_as_an_undo(door: Any) -> None:
    """The answer is lost: the call is repeated under its key, which acts once, and no other undo begins meanwhile."""
    bank = Bank()
    bank.trouble = [LINE]
    async with Coordinator.open("memory://", bank.tools(), settings=None) as c:
        result = await door(c, {})
    assert (result.status, result.report["clean"], bank.balance) == ("COMPENSATED", True, 0)
    assert len(bank.calls) == 2
    assert len(set(bank.calls)) == 1


@pytest.mark.parametrize(
    ("decision", "status", "balance"),
    [("happened", "COMPENSATED", 0), ("not-happened", "COMPENSATED", -100), ("accept", "ESCALATED", 0)],
)
async def test_an_operator_settles_a_doubt_about_it(decision: str, status: str, balance: int) -> None:
    """``happened`` is the undo; after ``not-happened`` the undo is made; after ``accept`` an operator is asked again."""
    bank = Bank()
    bank.trouble = [LINE]
    pay, refund, fail = bank.tools(keyed=False)
    async with Coordinator.open("memory://", [pay, refund, fail], settings=None) as c:
        result = await in_plan(c, {})
        assert [(each["step_id"], each["kind"]) for each in result.body["questions"]] == [(2, "in-doubt")]
        assert result.body["steps"][0]["status"] == "SUCCEEDED"
        bank.refunds = {}  # what the operator does not see
        if decision != "not-happened":
            bank.refunds = {"first": ("p", 100)}
        await c.resolve("saga", 2, decision)
        result = await c.resume("saga")
        assert result.status == status
        if decision == "accept":
            (asked,) = result.body["questions"]
            assert (asked["step_id"], asked["error"]["error_code"]) == (1, "perhaps_undone")
            await c.resolve("saga", 1, "undone")
            result = await c.resume("saga")
            assert (result.status, result.report["compensated"]) == ("WAIVED", [1])
    assert len(bank.calls) == (2 if decision == "not-happened" else 1)


@pytest.mark.parametrize("door", DOORS)
async def test_a_near_miss_is_a_call_of_its_own_and_is_asked_about(door: Any) -> None:
    """Half of the payment came back: the undo of the whole is not made before an operator has seen that."""
    bank = Bank()
    async with Coordinator.open("memory://", bank.tools(), settings=None) as c:
        result = await door(c, {"part": 50})
        assert (result.status, bank.balance, len(bank.calls)) == ("ESCALATED", 50, 1)
        (asked,) = result.body["questions"]
        assert (asked["step_id"], asked["kind"], asked["options"]) == (1, "undo-blocked", ["undone", "retry", "accept"])
        assert asked["error"]["error_code"] == "perhaps_undone"
        await c.resolve("saga", 1, "undone")
        result = await c.resume("saga")
    assert (result.status, bank.balance) == ("WAIVED", 50)
    assert result.report["left_in_place"] == [2]


async def test_a_call_about_another_object_is_nobodys_undo() -> None:
    """The refund of an older payment asks nothing and undoes nothing of this saga."""
    bank = Bank()
    bank.paid["old"] = 7
    async with Coordinator.open("memory://", bank.tools(), settings=None) as c:
        with pytest.raises(RuntimeError, match="gives up"):
            async with c.session("saga") as s:
                await s.call("pay", amount=100)
                await s.call("refund", payment="old", irreversible=True)
                raise RuntimeError("gives up")
        result = await c.show("saga")
    assert (result.status, result.report["left_in_place"], bank.balance) == ("WAIVED", [2], 0)


@tool(undo="cancel")
async def book(room: int, ctx: ToolContext) -> None:
    """The output names nothing: which booking is cancelled follows from the params alone."""


async def test_the_newest_that_stands_is_taken_back() -> None:
    """Book, cancel, book again: the cancel is the undo of the first booking, and the rollback's of the second."""
    keys: list[str] = []

    @tool
    async def cancel(room: int, ctx: ToolContext) -> None:
        keys.append(ctx.idempotency_key)

    async with Coordinator.open("memory://", [book, cancel], settings=None) as c:
        async with c.session("saga") as s:
            await s.call("book", room=1)
            await s.call("cancel", room=1)  # it is an undo, and needs no undo of its own
            await s.call("book", room=1)
            await s.call("book", room=1)
            await s.call("cancel", room=1)
            await s.rollback()
        result = await c.show("saga")
    assert [step["status"] for step in result.body["steps"]] == [
        "COMPENSATED",
        "SUCCEEDED",
        *["COMPENSATED"] * 2,
        "SUCCEEDED",
    ]
    assert [key.split(":")[1] for key in keys] == ["1", "4", "3"]
    assert result.report["clean"]


async def test_the_undo_of_a_call_is_never_undone() -> None:
    """A cancel whose tool has an undo of its own: what the agent took back is not made again by the rollback."""
    calls: list[str] = []

    @tool(undo="cancel")
    async def reserve(room: int) -> None:
        calls.append("reserve")

    @tool(undo="reserve")
    async def cancel(room: int) -> None:
        calls.append("cancel")

    async with Coordinator.open("memory://", [reserve, cancel], settings=None) as c:
        async with c.session("saga") as s:
            await s.call("reserve", room=1)
            await s.call("cancel", room=1)
            await s.rollback()
        result = await c.show("saga")
    assert (calls, result.status, result.report["clean"]) == (["reserve", "cancel"], "COMPENSATED", True)


async def test_a_session_goes_on_after_a_call_was_taken_back() -> None:
    """A savepoint's rollback neither repeats the undo nor waits for it, and the next life of the agent goes the same way."""
    bank = Bank()

    async def agent(c: Coordinator, *, last: bool) -> None:
        async with c.session("saga", on_failure="keep") as s:
            await s.call("pay", amount=1)
            here = s.savepoint()
            paid = await s.call("pay", amount=100)
            await s.call("refund", payment=paid["payment"])
            await s.rollback(here)
            await s.call("pay", amount=2)
            if not last:
                raise RuntimeError("the process ends")

    async with Coordinator.open("memory://", bank.tools(), settings=None) as c:
        with pytest.raises(RuntimeError, match="the process ends"):
            await agent(c, last=False)
        await agent(c, last=True)
        result = await c.show("saga")
    assert (result.status, bank.balance, len(bank.calls), len(bank.paid)) == ("COMPLETED", 3, 1, 3)


async def test_a_completed_saga_is_undone_without_what_it_took_back() -> None:
    """``saga undo``: the payment that was refunded is not refunded again, and the refund is not in anybody's way."""
    bank = Bank()
    async with Coordinator.open("memory://", bank.tools(), settings=None) as c:
        async with c.session("saga") as s:
            await s.call("pay", amount=1)
            paid = await s.call("pay", amount=100)
            await s.call("refund", payment=paid["payment"])
        preview = await c.undo("saga", dry_run=True)
        assert [step["step_id"] for step in preview.to_dict()["undoes"]] == [1]
        result = await c.undo("saga")
        assert isinstance(result, SagaResult)
    assert (result.status, bank.balance, len(bank.calls)) == ("COMPENSATED", 0, 2)


@pytest.mark.parametrize("door", DOORS)
async def test_the_tool_is_told_which_call_it_undoes(door: Any) -> None:
    """As in an undo of the engine's: a barrier, or an undo that is told nothing but the key, finds the call by it."""
    told: list[tuple[str, str | None]] = []
    trouble = [ToolError("not now", retryable=False)]

    @tool(undo="refund")
    async def pay(amount: int, idempotency_key: str) -> dict:
        return {"payment": idempotency_key}

    @tool
    async def refund(payment: str, ctx: ToolContext) -> None:
        told.append((payment, ctx.undoes))
        if trouble:
            raise trouble.pop()

    _, _, fail = Bank().tools()
    async with Coordinator.open("memory://", [pay, refund, fail], settings=None) as c:
        await door(c, {})
    assert len(told) == 2
    assert [undone for payment, undone in told if undone != payment] == []


async def test_a_result_that_is_taken_back_is_not_given_to_another_saga() -> None:
    """What de-duplication keeps of a call is forgotten when the agent takes it back, as with an undo of the engine's."""
    booked: list[str] = []

    @tool(undo="cancel", dedupe_ttl_s=600)
    async def book(room: str, idempotency_key: str) -> dict:
        booked.append(room)
        return {"booking": len(booked)}

    @tool(dedupe_ttl_s=600)
    async def cancel(booking: int, idempotency_key: str) -> None:
        booked[booking - 1] = ""

    async with Coordinator.open("memory://", [book, cancel], settings=None) as c:
        async with c.session("first") as s:
            first = await s.call("book", room="blue")
            await s.call("cancel", booking=first["booking"])
        async with c.session("second") as s:
            second = await s.call("book", room="blue")
    assert second == {"booking": 2}
    assert booked == ["", "blue"]


PAY = {"step_id": 1, "tool": "pay", "params": {"amount": 100}}
REFUND = {"step_id": 2, "tool": "refund", "params": {"payment": "$output.step_1.payment"}, "kind": "irreversible"}


async def test_a_cancel_undoes_nothing_that_was_taken_back() -> None:
    """The preview of a cancel does not list the payment that was refunded, nor the refund as what remains."""
    bank = Bank()
    ask = {"step_id": 4, "ask": {"question": "Go on?", "options": ["yes"]}}
    async with Coordinator.open("memory://", bank.tools(), settings=None) as c:
        await c.run({"steps": [PAY, REFUND, {**PAY, "step_id": 3}, ask]}, saga_id="saga")
        state = state_of([decode(data) for data in await c.store.read("saga")], c.tools)
        preview = preview_cancel(state)
        assert [step["step_id"] for step in preview.undoes] == [3]
        assert preview.remains == []
        result = await c.cancel("saga")
    assert (result.status, result.report["clean"], bank.balance) == ("COMPENSATED", True, 0)
    assert len(bank.calls) == 2


@pytest.mark.parametrize("refunds", [True, False])
async def test_a_fork_makes_both_anew_or_neither(refunds: bool) -> None:
    """What was taken back is no effect that a fork could take over: it pays anew, and refunds that payment alone."""
    bank = Bank()
    steps = [PAY, REFUND] if refunds else [PAY]
    fails = {"step_id": 3, "tool": "fail", "kind": "irreversible"}
    async with Coordinator.open("memory://", bank.tools(), settings=None) as c:
        await c.run({"steps": [PAY, REFUND, fails], "on_failure": "pause"}, saga_id="old")
        plan = {"steps": [*steps, {**PAY, "step_id": 3}], "on_failure": "pause"}
        found = await c.fork("old", plan=plan)
        assert (found.status, found.report["clean"]) == ("COMPLETED", True)
        old = await c.show("old")
        assert (old.status, old.report["clean"], old.report["compensated"]) == ("COMPENSATED", True, [1])
        assert bank.balance == (100 if refunds else 200)
        assert sorted(payment for payment, _ in bank.refunds.values()) == sorted([*bank.paid][: 1 + refunds])
        undone = await c.undo(found.saga_id)
    assert isinstance(undone, SagaResult)
    assert (undone.status, bank.balance) == ("COMPENSATED", 0)


@pytest.mark.parametrize("run_from", [3, 5])
async def test_a_fork_of_a_session_takes_over_nothing_that_was_taken_back(run_from: int) -> None:
    """Its agent pays and refunds anew, wherever it runs from; each payment is refunded once, by one of both sagas."""
    bank = Bank()

    async def agent(s: Any, *, last: str) -> None:
        await s.call("pay", amount=1)
        paid = await s.call("pay", amount=100)
        await s.call("refund", payment=paid["payment"])
        await s.call("pay", amount=2)
        await s.call(last, **({"amount": 7} if last == "pay" else {}), irreversible=last == "fail")

    async with Coordinator.open("memory://", bank.tools(), settings=None, on_escalation=()) as c:
        with pytest.raises(CallFailed):
            async with c.session("old", on_failure="keep") as s:
                await agent(s, last="fail")
        await c.fork("old", run_from=run_from, new_id="new")
        async with c.session("new") as s:
            await agent(s, last="pay")
        old, new = await c.show("old"), await c.show("new")
    assert [(each.status, each.report["clean"]) for each in (old, new)] == [("COMPENSATED", True), ("COMPLETED", True)]
    assert bank.balance == 10
    assert len({payment for payment, _ in bank.refunds.values()}) == len(bank.refunds) == 3
