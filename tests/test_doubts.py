"""What becomes of calls of which nobody knows at first whether they happened, seen through the public API."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from saga_engine import Coordinator, RetryPolicy, ToolContext, ToolError, tool
from saga_engine.core import transitions as t

FAST = RetryPolicy(max_attempts=4, base_s=0.001, max_s=0.002)
ONCE = RetryPolicy(max_attempts=1, base_s=0.001, max_s=0.002)
PATIENCE_S = 20.0


def plan(*steps: Any, **fields: Any) -> dict[str, Any]:
    """Steps given by tool name, or as objects."""
    listed = [step if isinstance(step, dict) else {"tool": step} for step in steps]
    return {"steps": [{"step_id": number, **step} for number, step in enumerate(listed, 1)], **fields}


async def kinds(engine: Coordinator, saga_id: str) -> list[str]:
    return [record["k"] for record in await engine.history(saga_id)]


def no_error() -> None:
    """Nothing goes wrong."""


def broken_answer() -> None:
    {}["order_id"]


def lost_in_another() -> None:
    try:
        raise TimeoutError
    except TimeoutError:
        raise RuntimeError("booking failed")  # noqa: B904


# --- exceptions of a write -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("trouble", [broken_answer, lost_in_another, lambda: int("soon"), b"\xff".decode])
async def test_an_exception_that_broke_a_write_is_never_compensated_clean(trouble) -> None:
    """The effect stands although the tool raised: a person is asked, and nothing is reported as clean."""
    standing = []

    @tool(undo="cancel", retry=FAST)
    async def book() -> dict:
        standing.append("seat")
        trouble()
        return {}

    @tool
    async def cancel() -> None: ...

    async with Coordinator.open("memory://", [book, cancel]) as engine:
        outcome = await engine.run(plan("book"))
    assert (outcome.status, standing) == (t.ESCALATED, ["seat"])
    assert outcome.report["unresolved"] == [1]


async def test_what_a_tool_says_is_undone_and_not_asked_about() -> None:
    """``raise ValueError("full")`` of a first tool is its word that nothing was done."""

    @tool(undo="cancel")
    async def hotel() -> dict:
        return {}

    @tool
    async def cancel() -> None: ...

    @tool(undo="cancel")
    async def flight() -> dict:
        raise ValueError("full")

    async with Coordinator.open("memory://", [hotel, cancel, flight]) as engine:
        outcome = await engine.run(plan("hotel", "flight"))
    assert (outcome.status, outcome.report["clean"]) == (t.COMPENSATED, True)


@pytest.mark.parametrize("happened", [True, False])
async def test_with_a_probe_every_exception_is_settled_by_it(happened) -> None:
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

    @tool
    async def cancel(ref: int) -> None: ...

    async with Coordinator.open("memory://", [book, cancel]) as engine:
        outcome = await engine.run(plan("book"))
        made = await kinds(engine, outcome.saga_id)
    assert outcome.status == (t.COMPLETED if happened else t.COMPENSATED)
    assert len(standing) == happened
    assert made.count("StepIntended") == 1


async def test_a_refused_connection_counts_when_the_probe_cannot_tell() -> None:
    """An outage takes the tool and its probe: what proves that nothing was sent is believed then, and nobody is paged."""
    asked = []

    @tool(effect="read", retry=FAST)
    async def find() -> dict | None:
        asked.append("probe")
        raise ConnectionRefusedError

    @tool(undo="cancel", probe=find, retry=RetryPolicy(max_attempts=2, base_s=0.001, max_s=0.001))
    async def book() -> dict:
        asked.append("book")
        raise ConnectionRefusedError

    @tool
    async def cancel(ref: int) -> None: ...

    async with Coordinator.open("memory://", [book, cancel]) as engine:
        outcome = await engine.run(plan("book"))
    assert outcome.status == t.COMPENSATED
    assert asked.count("book") == 2


@pytest.mark.parametrize("options", [{"not_done": [KeyError]}, {"not_done": ["KeyError"]}, {}])
async def test_a_tool_or_its_operator_says_what_an_exception_means(options) -> None:
    """``not_done`` on the tool or in its table makes a KeyError an answer; by default it is none."""

    @tool(undo="cancel", **options)
    async def book() -> dict:
        return {}["no such flight"]

    @tool
    async def cancel() -> None: ...

    async with Coordinator.open("memory://", [book, cancel]) as engine:
        assert (await engine.run(plan("book"))).status == (t.COMPENSATED if options else t.ESCALATED)
    table = {"book": {"not_done": ["KeyError"]}}
    async with Coordinator.open("memory://", [book, cancel], tool_options=table) as engine:
        assert (await engine.run(plan("book"))).status == t.COMPENSATED
    table = {"book": {"not_done": [], "unknown": ["KeyError"]}}
    async with Coordinator.open("memory://", [book, cancel], tool_options=table) as engine:
        assert (await engine.run(plan("book"))).status == t.ESCALATED


# --- repeats ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("trouble", [KeyError, ValueError, RuntimeError])
async def test_an_undo_without_key_and_probe_is_not_repeated_after_an_exception(trouble) -> None:
    """It may have done its work before it raised: one refund, and a question."""
    refunds = []

    @tool(undo="refund")
    async def pay() -> dict:
        return {}

    @tool(retry=FAST)
    async def refund() -> None:
        refunds.append(1)
        raise trouble("receipt")

    @tool(undo="refund")
    async def ship() -> dict:
        raise ToolError("no")

    async with Coordinator.open("memory://", [pay, refund, ship]) as engine:
        outcome = await engine.run(plan("pay", "ship"))
    assert (outcome.status, len(refunds)) == (t.ESCALATED, 1)


@pytest.mark.parametrize("trouble", [ToolError("busy"), ConnectionRefusedError()])
async def test_an_undo_is_repeated_after_its_own_word_and_after_a_refused_connection(trouble) -> None:
    """``ToolError`` without ``retryable`` is tried again within the undo's budget, and nobody is asked."""
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
        raise ToolError("no")

    async with Coordinator.open("memory://", [pay, refund, ship]) as engine:
        outcome = await engine.run(plan("pay", "ship"))
    assert (outcome.status, len(tries)) == (t.COMPENSATED, 3)


@pytest.mark.parametrize(("options", "calls"), [({}, 1), ({"not_done": [503]}, 4), ({"keyed": True}, 4)])
async def test_a_bare_write_behind_a_503_is_made_once(options, calls) -> None:
    """A proxy says 503 about a request that got through: only who says that it means 'not done' has it repeated."""
    made = []

    class HttpError(Exception):
        status_code = 503

    @tool(undo="cancel", retry=FAST, **options)
    async def order() -> dict:
        made.append(1)
        raise HttpError

    @tool
    async def cancel() -> None: ...

    async with Coordinator.open("memory://", [order, cancel]) as engine:
        outcome = await engine.run(plan("order"))
    assert len(made) == calls
    assert outcome.status == (t.COMPENSATED if calls > 1 else t.ESCALATED)


# --- threads ---------------------------------------------------------------------------------------------------------


async def test_nothing_is_probed_or_repeated_while_the_thread_of_a_call_is_at_work() -> None:
    """The engine waits for its own thread, and takes its answer: the probe would have said 'no' too early."""
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

    @tool
    def cancel(ref: int) -> None: ...

    async with Coordinator.open("memory://", [book, cancel]) as engine:
        running = asyncio.ensure_future(engine.run(plan("book")))
        await asyncio.to_thread(began.wait, PATIENCE_S)
        await asyncio.wait([running], timeout=0.1)
        assert log == ["book"]
        go.set()
        outcome = await running
    assert (outcome.status, log) == (t.COMPLETED, ["book"])


async def test_a_thread_that_does_not_end_is_a_question_and_no_probe() -> None:
    """After a bounded wait a person is asked; neither probe nor key nor blind undo come before."""
    go, log = threading.Event(), []

    @tool(effect="read")
    def find() -> dict | None:
        log.append("probe")
        return None

    @tool(undo="cancel", probe=find, timeout_s=0.01, late_s=0.01, retry=FAST)
    def book(idempotency_key: str) -> dict:
        log.append("book")
        go.wait(PATIENCE_S)
        return {}

    @tool(tolerates_absence=True)
    def cancel() -> None:
        log.append("cancel")

    try:
        async with Coordinator.open("memory://", [book, cancel]) as engine:
            outcome = await engine.run(plan("book"))
            assert (outcome.status, log) == (t.ESCALATED, ["book"])
            outcome = await engine.cancel(outcome.saga_id)
            assert (outcome.status, log) == (t.ESCALATED, ["book"])
    finally:
        go.set()


# --- settling --------------------------------------------------------------------------------------------------------


async def test_only_probes_that_cannot_tell_are_counted() -> None:
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

    @tool
    async def cancel() -> None: ...

    async with Coordinator.open("memory://", [book, cancel]) as engine:
        outcome = await engine.run(plan("book"))
    assert (outcome.status, len(tries)) == (t.COMPLETED, 6)


async def test_a_queue_takes_a_keyed_call_in_doubt() -> None:
    """A payment that times out waits and is sent again under the same key: that is as safe later as it is now."""
    keys = []

    @tool(undo="refund", retry=RetryPolicy(max_attempts=2, base_s=0.001, max_s=0.001))
    async def pay(idempotency_key: str) -> dict:
        keys.append(idempotency_key)
        if len(keys) < 6:
            raise TimeoutError
        return {}

    @tool
    async def refund() -> None: ...

    told = []
    async with Coordinator.open("memory://", [pay, refund], on_escalation=told.append) as engine:
        outcome = await engine.run(plan({"tool": "pay", "fallback": {"queue_s": 0.01}}, deadline_s=60))
        made = await kinds(engine, outcome.saga_id)
    assert outcome.status == t.COMPLETED
    assert len(set(keys)) == 1
    assert made.count("StepDeferred") == 2
    assert [question.kind for question in told] == ["deferred"]


async def test_a_queue_takes_no_call_that_may_not_be_repeated() -> None:
    """Without a key a call in doubt is a question; a cancel settles nothing by itself."""

    @tool(undo="refund", retry=FAST)
    async def pay() -> dict:
        raise TimeoutError

    @tool
    async def refund() -> None: ...

    async with Coordinator.open("memory://", [pay, refund]) as engine:
        outcome = await engine.run(plan({"tool": "pay", "fallback": {"queue_s": 0.01}}, deadline_s=60))
    assert outcome.status == t.ESCALATED


async def test_a_person_s_not_happened_takes_the_fallback() -> None:
    """What did not happen may be done another way, whoever says that it did not: a probe or a person."""

    @tool(undo="cancel", retry=FAST)
    async def card() -> dict:
        raise TimeoutError

    @tool(undo="cancel")
    async def invoice() -> dict:
        return {"by": "invoice"}

    @tool
    async def cancel() -> None: ...

    async with Coordinator.open("memory://", [card, invoice, cancel]) as engine:
        outcome = await engine.run(plan({"tool": "card", "fallback": {"tool": "invoice"}}))
        assert outcome.status == t.ESCALATED
        outcome = await engine.resolve(outcome.saga_id, 1, "not-happened")
    assert outcome.status == t.COMPLETED
    assert outcome.body["steps"][0]["output"] == {"by": "invoice"}


@pytest.mark.parametrize("on_doubt", ["ask", "undo"])
async def test_a_doubt_may_be_settled_by_an_undo_under_the_key(on_doubt) -> None:
    """A keyless call whose undo cancels by ``$key`` and tolerates absence need not be asked about."""
    log = []

    @tool(on_doubt=on_doubt, retry=FAST)
    async def book(ctx: ToolContext) -> dict:
        log.append(("booked", ctx.idempotency_key))
        raise TimeoutError

    @tool(tolerates_absence=True)
    async def cancel(request: str) -> None:
        log.append(("cancelled", request))

    step = {"tool": "book", "rollback": {"tool": "cancel", "params": {"request": "$key"}}}
    async with Coordinator.open("memory://", [book, cancel]) as engine:
        outcome = await engine.run(plan(step))
    if on_doubt == "ask":
        assert (outcome.status, len(log)) == (t.ESCALATED, 1)
    else:
        assert (outcome.status, outcome.report["clean"]) == (t.COMPENSATED, True)
        assert [what for what, _ in log] == ["booked", "cancelled"]
        assert log[0][1] == log[1][1]


async def test_what_a_person_says_has_happened_is_remembered_for_others() -> None:
    """An identical call of another saga gets the output that the person gave: the payment is not made twice."""
    paid = []

    @tool(undo="refund", dedupe_ttl_s=3600, retry=ONCE)
    async def pay(order: str) -> dict:
        paid.append(order)
        raise TimeoutError

    @tool
    async def refund() -> None: ...

    step = {"tool": "pay", "params": {"order": "A1"}}
    async with Coordinator.open("memory://", [pay, refund]) as engine:
        outcome = await engine.run(plan(step))
        assert outcome.status == t.ESCALATED
        outcome = await engine.resolve(outcome.saga_id, 1, "happened", output={"receipt": 7})
        assert outcome.status == t.COMPLETED
        other = await engine.run(plan(step))
    assert (other.status, paid) == (t.COMPLETED, ["A1"])
    assert other.body["steps"][0]["output"] == {"receipt": 7}
