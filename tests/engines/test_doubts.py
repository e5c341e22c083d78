"""Calls of which nobody knows at first whether they happened: the same rules on whatever runtime drives the saga."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from saga_engine import RetryPolicy, ToolContext, ToolError, tool
from saga_engine.core import transitions as t
from tests.engines.conftest import Opening

FAST = RetryPolicy(max_attempts=4, base_s=0.001, max_s=0.002)
ONCE = RetryPolicy(max_attempts=1, base_s=0.001, max_s=0.002)
PATIENCE_S = 60.0


def plan(*steps: Any, **fields: Any) -> dict[str, Any]:
    """Steps given by tool name, or as objects."""
    listed = [step if isinstance(step, dict) else {"tool": step} for step in steps]
    return {"steps": [{"step_id": number, **step} for number, step in enumerate(listed, 1)], **fields}


def broken_answer() -> None:
    {}["order_id"]


def lost_in_another() -> None:
    try:
        raise TimeoutError
    except TimeoutError:
        raise RuntimeError("booking failed")  # noqa: B904


@tool
async def cancel() -> None: ...


@pytest.mark.parametrize("trouble", [broken_answer, lost_in_another, lambda: int("soon"), b"\xff".decode])
async def test_what_broke_a_write_leaves_it_in_doubt(opened: Opening, name: str, trouble: Any) -> None:
    """The effect stands although the tool raised: a person is asked, and nothing is reported as clean."""
    standing = []

    @tool(undo="cancel", retry=FAST)
    async def book() -> dict:
        standing.append("seat")
        trouble()
        return {}

    async with opened([book, cancel]) as engine:
        outcome = await engine.run(plan("book"), saga_id=name)
    assert (outcome.status, standing) == (t.ESCALATED, ["seat"])
    assert outcome.report["unresolved"] == [1]


async def test_what_a_tool_says_is_believed(opened: Opening, name: str) -> None:
    """``raise ValueError("full")`` is the tool's word that nothing was done: the saga is undone, and nobody is asked."""

    @tool(undo="cancel")
    async def hotel() -> dict:
        return {}

    @tool(undo="cancel")
    async def flight() -> dict:
        raise ValueError("full")

    async with opened([hotel, cancel, flight]) as engine:
        outcome = await engine.run(plan("hotel", "flight"), saga_id=name)
    assert (outcome.status, outcome.report["clean"]) == (t.COMPENSATED, True)


@pytest.mark.parametrize("happened", [True, False])
async def test_a_probe_settles_every_exception(opened: Opening, name: str, happened: bool) -> None:
    """A ValueError after the effect counts for nothing where somebody can be asked."""
    standing = []

    @tool(effect="read")
    async def find() -> dict | None:
        return {"ref": 1} if standing else None

    @tool(undo="cancel", probe=find, retry=FAST)
    async def book() -> dict:
        if happened:
            standing.append("seat")
        raise ValueError("full")

    async with opened([book, cancel, find]) as engine:
        outcome = await engine.run(plan("book"), saga_id=name)
        kinds = [record["k"] for record in await engine.history(name)]
    assert outcome.status == (t.COMPLETED if happened else t.COMPENSATED)
    assert len(standing) == happened
    assert kinds.count("StepIntended") == 1


async def test_only_probes_that_cannot_tell_are_counted(opened: Opening, name: str) -> None:
    """An outage of five time-outs, each with a probe that says 'did not happen', pages nobody."""
    tries = []

    @tool(effect="read")
    async def find() -> dict | None:
        return None

    @tool(undo="cancel", probe=find, retry=RetryPolicy(max_attempts=8, base_s=0.001, max_s=0.001))
    async def book() -> dict:
        tries.append(1)
        if len(tries) < 6:
            raise TimeoutError
        return {}

    async with opened([book, cancel, find]) as engine:
        outcome = await engine.run(plan("book"), saga_id=name)
    assert (outcome.status, len(tries)) == (t.COMPLETED, 6)


@pytest.mark.parametrize("trouble", [KeyError("receipt"), ValueError("receipt"), RuntimeError("receipt")])
async def test_a_bare_undo_is_not_repeated_after_an_exception(opened: Opening, name: str, trouble: Exception) -> None:
    """It may have done its work before it raised: one refund, and a question."""
    refunds = []

    @tool(undo="refund")
    async def pay() -> dict:
        return {}

    @tool(retry=FAST)
    async def refund() -> None:
        refunds.append(1)
        raise trouble

    @tool(undo="refund")
    async def ship() -> dict:
        raise ToolError("no", retryable=False)

    async with opened([pay, refund, ship]) as engine:
        outcome = await engine.run(plan("pay", "ship"), saga_id=name)
    assert (outcome.status, len(refunds)) == (t.ESCALATED, 1)


@pytest.mark.parametrize("trouble", [ToolError("busy"), ConnectionRefusedError()])
async def test_an_undo_is_repeated_after_what_proves_that_it_did_nothing(
    opened: Opening, name: str, trouble: Exception
) -> None:
    """``ToolError`` without ``retryable``, and a refused connection, are tried again within the undo's budget."""
    tries = []

    @tool(undo="refund")
    async def pay() -> dict:
        return {}

    @tool(retry=FAST)
    async def refund() -> None:
        tries.append(1)
        if len(tries) < 3:
            raise trouble

    @tool(undo="refund")
    async def ship() -> dict:
        raise ToolError("no", retryable=False)

    async with opened([pay, refund, ship]) as engine:
        outcome = await engine.run(plan("pay", "ship"), saga_id=name)
    assert (outcome.status, len(tries)) == (t.COMPENSATED, 3)


@pytest.mark.parametrize(("options", "calls"), [({}, 1), ({"not_done": [503]}, 4), ({"keyed": True}, 4)])
async def test_a_bare_write_behind_a_503_is_made_once(opened: Opening, name: str, options: Any, calls: int) -> None:
    """A proxy says 503 about a request that got through: only who says that it means 'not done' has it repeated."""
    made = []

    class HttpError(Exception):
        status_code = 503

    @tool(undo="cancel", retry=FAST, **options)
    async def order() -> dict:
        made.append(1)
        raise HttpError

    async with opened([order, cancel]) as engine:
        outcome = await engine.run(plan("order"), saga_id=name)
    assert len(made) == calls
    assert outcome.status == (t.COMPENSATED if calls > 1 else t.ESCALATED)


async def test_nothing_is_probed_while_the_thread_of_a_call_is_at_work(opened: Opening, name: str) -> None:
    """Whoever made the call waits for its own thread, and takes its answer: the probe would have said 'no' too early."""
    began, go, log = threading.Event(), threading.Event(), []

    @tool(effect="read")
    def find() -> dict | None:
        log.append("probe")
        return None

    @tool(undo="cancel", probe=find, timeout_s=0.01, retry=FAST)
    def book() -> dict:
        log.append("book")
        began.set()
        go.wait(PATIENCE_S)
        return {"ref": 1}

    async with opened([book, cancel, find]) as engine:
        running = asyncio.ensure_future(engine.run(plan("book"), saga_id=name))
        await asyncio.to_thread(began.wait, PATIENCE_S)
        await asyncio.wait([running], timeout=0.2)
        assert log == ["book"]
        go.set()
        outcome = await running
    assert (outcome.status, log) == (t.COMPLETED, ["book"])


async def test_a_thread_that_does_not_end_is_a_question_and_no_probe(opened: Opening, name: str) -> None:
    """After a bounded wait a person is asked; neither probe nor key nor blind undo come before."""
    go, log = threading.Event(), []

    @tool(effect="read")
    def find() -> dict | None:
        log.append("probe")
        return None

    @tool(undo="uncertain", probe=find, timeout_s=0.01, late_s=0.01, retry=FAST)
    def book(idempotency_key: str) -> dict:
        log.append("book")
        go.wait(PATIENCE_S)
        return {}

    @tool(tolerates_absence=True)
    def uncertain() -> None:
        log.append("uncertain")

    try:
        async with opened([book, uncertain, find]) as engine:
            outcome = await engine.run(plan("book"), saga_id=name)
            assert (outcome.status, log) == (t.ESCALATED, ["book"])
            outcome = await engine.cancel(name)
            assert (outcome.status, log) == (t.ESCALATED, ["book"])
    finally:
        go.set()


@pytest.mark.parametrize("on_doubt", ["ask", "undo"])
async def test_a_doubt_may_be_settled_by_an_undo_under_the_key(opened: Opening, name: str, on_doubt: Any) -> None:
    """``on_doubt="undo"``: a call that nobody can ask about is cancelled by its key, and nobody is asked."""
    keys = []

    @tool(on_doubt=on_doubt, retry=FAST, timeout_s=60)
    async def book(what: str, ctx: ToolContext) -> dict:
        keys.append(("booked", ctx.idempotency_key))
        raise TimeoutError

    @tool(tolerates_absence=True)
    async def unbook(key: str) -> None:
        keys.append(("cancelled", key))

    step = {"tool": "book", "params": {"what": "a"}, "rollback": {"tool": "unbook", "params": {"key": "$key"}}}
    async with opened([book, unbook]) as engine:
        outcome = await engine.run(plan(step), saga_id=name)
    if on_doubt == "ask":
        assert (outcome.status, len(keys)) == (t.ESCALATED, 1)
        return
    assert (outcome.status, outcome.report["clean"]) == (t.COMPENSATED, True)
    assert [what for what, _ in keys] == ["booked", "cancelled"]
    assert keys[0][1] == keys[1][1]


async def test_a_person_s_happened_is_remembered_for_others(
    opened: Opening, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An identical call of another saga gets the output that the person gave: the payment is not made twice."""
    monkeypatch.setenv("ACCOUNT", "a-7")
    paid = []

    @tool(undo="refund", dedupe_ttl_s=3600, retry=ONCE)
    async def pay(order: str, account: str) -> dict:
        paid.append(order)
        raise TimeoutError

    @tool
    async def refund() -> None: ...

    step = {"tool": "pay", "params": {"order": "A1", "account": "$secret.ACCOUNT"}}
    async with opened([pay, refund], secrets={"pay": ["ACCOUNT"]}) as engine:
        outcome = await engine.run(plan(step), saga_id=name)
        assert outcome.status == t.ESCALATED
        outcome = await engine.resolve(name, 1, "happened", output={"receipt": 7})
        assert outcome.status == t.COMPLETED
        other = await engine.run(plan(step), saga_id=f"{name}-o")
    assert (other.status, paid) == (t.COMPLETED, ["A1"])
    assert other.output(1) == {"receipt": 7}


async def test_a_person_s_not_happened_takes_the_fallback(opened: Opening, name: str) -> None:
    """What the plan would have done had the tool said so itself is done, and the saga is not undone instead."""

    @tool(undo="cancel", retry=ONCE)
    async def first() -> dict:
        raise TimeoutError

    @tool(undo="cancel")
    async def second() -> dict:
        return {"ref": 2}

    step = {"tool": "first", "fallback": {"tool": "second"}}
    async with opened([first, second, cancel]) as engine:
        assert (await engine.run(plan(step), saga_id=name)).status == t.ESCALATED
        outcome = await engine.resolve(name, 1, "not-happened")
    assert (outcome.status, outcome.output(1)) == (t.COMPLETED, {"ref": 2})
