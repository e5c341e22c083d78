"""Calls of which nobody knows at first whether they happened: options and queues. The rules are in ``engines``."""

from __future__ import annotations

from typing import Any

import pytest

from saga_engine import Coordinator, RetryPolicy, tool
from saga_engine.core import transitions as t

FAST = RetryPolicy(max_attempts=4, base_s=0.001, max_s=0.002)


def plan(*steps: Any, **fields: Any) -> dict[str, Any]:
    """Steps given by tool name, or as objects."""
    listed = [step if isinstance(step, dict) else {"tool": step} for step in steps]
    return {"steps": [{"step_id": number, **step} for number, step in enumerate(listed, 1)], **fields}


async def kinds(engine: Coordinator, saga_id: str) -> list[str]:
    return [record["k"] for record in await engine.history(saga_id)]


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
