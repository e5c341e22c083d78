"""Big outputs: whole where they are needed, cut where they are shown."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from saga_engine import Coordinator, RetryPolicy, ToolError, tool
from saga_engine.core import records as r
from saga_engine.core.codec import encode
from saga_engine.errors import JournalUnreadable
from saga_engine.execution.result import SagaResult
from saga_engine.ports import Creation, Entry, Store
from saga_engine.runtime.journal import look
from saga_engine.stores import open_store

ROWS = 100_000
BIG_PLAN = {
    "task_id": "big",
    "steps": [
        {"step_id": 1, "tool": "fetch", "params": {}},
        {"step_id": 2, "tool": "count", "params": {"rows": "$output.step_1.rows"}},
        {"step_id": 3, "tool": "last", "params": {"row": "$output.step_1.rows[-1]", "whole": "$output.step_1"}},
    ],
}


def table() -> dict[str, Any]:
    """About 10 MB of JSON: 100,000 rows, many scripts, some depth."""
    deep: Any = "bottom 底"
    for _ in range(25):
        deep = {"in": [deep]}
    return {"rows": [{"id": at, "name": f"строка 😀 {at} {'x' * 60}"} for at in range(ROWS)], "deep": deep, "end": True}


def digest_of(shown: dict[str, Any]) -> tuple[str, int]:
    return shown["output_ref"]["digest"], shown["output_ref"]["bytes"]


class Gated:
    """Tools of which the first waits, so that a coordinator can be closed while it runs."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.gate = asyncio.Event()
        self.got: list[Any] = []

    def tools(self) -> list[Any]:
        @tool(effect="read")
        async def fetch() -> dict[str, Any]:
            self.begun.set()
            await self.gate.wait()
            return table()

        @tool(effect="read")
        async def count(rows: list[Any]) -> int:
            self.got.append(rows)
            return len(rows)

        @tool(effect="read")
        async def last(row: dict[str, Any], whole: dict[str, Any]) -> dict[str, Any]:
            self.got += [row, whole]
            return row

        return [fetch, count, last]


@pytest.fixture
async def store() -> AsyncIterator[Store]:
    backend = open_store("memory://")
    await backend.open()
    yield backend
    await backend.close()


async def test_a_binding_into_a_big_output_gets_the_whole_from_the_journal(store: Store) -> None:
    """A coordinator that finds the output only in the journal hands the whole to the steps that bind to it."""
    world = Gated()
    async with Coordinator.open(store, world.tools()) as first:
        await first.submit(BIG_PLAN)
        await world.begun.wait()
        closing = asyncio.create_task(first.close())
        world.gate.set()
        await closing
    assert world.got == []

    async with Coordinator.open(store, world.tools()) as second:
        waiting = await second.show("big")
        outcome = await second.resume("big")
        shown = await second.show("big")
        full = await second.show("big", full=True)

    rows, row, whole = world.got
    assert (rows, row, whole) == (table()["rows"], table()["rows"][-1], table())
    assert (outcome.status, outcome.output(1), outcome.output(2)) == ("COMPLETED", table(), ROWS)
    assert waiting.body["steps"][0]["output"] == shown.body["steps"][0]["output"]
    assert full.body == outcome.body
    assert full.output(1) == table()


async def test_what_is_shown_is_the_cut_form_with_a_reference(store: Store) -> None:
    """`show` tells what there is (totals, first items) and refers to the whole; nobody can take it for the whole."""
    world = Gated()
    world.gate.set()
    async with Coordinator.open(store, world.tools()) as coordinator:
        outcome = await coordinator.run(BIG_PLAN)
        shown = await coordinator.show("big")

    step = shown.body["steps"][0]
    assert step["output"]["rows"]["total"] == ROWS
    assert step["output"]["rows"]["items"] == table()["rows"][: len(step["output"]["rows"]["items"])] != []
    assert step["output"]["end"] is True
    assert step["output_ref"]["bytes"] > 10_000_000
    assert len(str(shown.body)) < 20_000
    assert "output_ref" not in outcome.body["steps"][0]
    assert outcome.to_dict(full=False) == shown.to_dict()
    with pytest.raises(LookupError, match="full=True"):
        shown.output(1)
    assert shown.output(2) == ROWS


class Forgetful:
    """A store that has lost its large values, and counts who asks for them."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.asked = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def values(self, saga_id: str, digests: Sequence[str]) -> Any:
        self.asked += 1
        raise JournalUnreadable(f"a value of saga {saga_id} is missing from the store", digest=digests[0])


async def test_a_missing_value_hides_only_itself(store: Store) -> None:
    """Without `full` nothing large is fetched, so a lost value keeps nobody from looking; with it, it is an error."""
    world = Gated()
    world.gate.set()
    async with Coordinator.open(store, world.tools()) as coordinator:
        await coordinator.run(BIG_PLAN)
        before = await coordinator.show("big")
    lost = Forgetful(store)
    async with Coordinator.open(lost, world.tools()) as coordinator:  # type: ignore[arg-type]
        assert (await coordinator.show("big")).body == before.body
        told = await coordinator.history("big")
        assert lost.asked == 0
        with pytest.raises(JournalUnreadable):
            await coordinator.show("big", full=True)
        with pytest.raises(JournalUnreadable):
            await coordinator.history("big", full=True)
    (ref,) = [one["refs"]["output"] for one in told if one["k"] == "StepSucceeded" and one["step"] == "1"]
    assert (ref["digest"], ref["bytes"]) == digest_of(before.body["steps"][0])
    assert ref["brief"] == before.body["steps"][0]["output"]


async def test_the_history_has_the_whole_with_full(store: Store) -> None:
    """`history(full=True)` puts large values back in their records."""
    world = Gated()
    world.gate.set()
    async with Coordinator.open(store, world.tools()) as coordinator:
        await coordinator.run(BIG_PLAN)
        records = await coordinator.history("big", full=True)
    assert not any("refs" in record for record in records)
    first = next(one for one in records if one["k"] == "StepSucceeded")
    assert first["output"] == table()


async def test_the_output_of_an_undo_and_of_a_decision_are_cut_too(store: Store) -> None:
    """Whatever way an output came, it is shown in the same form."""

    @tool(undo="unmake", retry=RetryPolicy(max_attempts=1))
    async def make(text: str) -> dict[str, Any]:
        return {"text": text}

    @tool
    async def unmake(text: str) -> dict[str, Any]:
        return {"unmade": text}

    @tool(undo="unmake", retry=RetryPolicy(max_attempts=1))
    async def lose(text: str) -> dict[str, Any]:
        raise ConnectionError("the line is dead")

    @tool(undo="unmake", retry=RetryPolicy(max_attempts=1))
    async def fail(text: str) -> dict[str, Any]:
        raise ToolError("no")

    plan = {
        "task_id": "undone",
        "steps": [
            {"step_id": 1, "tool": "make", "params": {"text": "x" * 40_000}},
            {"step_id": 2, "tool": "lose", "params": {"text": "y"}},
            {"step_id": 3, "tool": "fail", "params": {"text": "z"}},
        ],
    }
    async with Coordinator.open(store, [make, unmake, lose, fail]) as coordinator:
        asked = await coordinator.run(plan)
        assert asked.status == "ESCALATED"
        outcome = await coordinator.resolve("undone", 2, "happened", output={"text": "w" * 50_000})
        shown = await coordinator.show("undone")

    assert outcome.status == "COMPENSATED"
    calls = [call for step in shown.body["steps"][:2] for call in (step, step["compensation"])]
    assert [call["output_ref"]["bytes"] for call in calls] == [40_011, 40_013, 50_011, 50_013]
    assert calls[3]["output"]["unmade"].endswith("… (50000 characters)")
    answered = {name: value for name, value in shown.body.items() if name != "answers"}  # they are in the journal alone
    assert outcome.to_dict(full=False) == answered
    assert outcome.output(2) == {"text": "w" * 50_000}


async def test_a_big_plan_and_input_are_read_whole(store: Store) -> None:
    """What a saga is made of is always fetched: without it nothing can be said about it."""

    @tool(effect="read")
    async def length(text: str) -> int:
        return len(text)

    plan = {
        "task_id": "wide",
        "steps": [{"step_id": 1, "tool": "length", "params": {"text": "$input.text"}, "name": "n" * 100}],
    }
    async with Coordinator.open(store, [length]) as coordinator:
        outcome = await coordinator.run(plan, input={"text": "t" * 40_000})
        shown = await coordinator.show("wide")
        told = await coordinator.history("wide")
    assert (outcome.output(1), shown.output(1)) == (40_000, 40_000)
    assert list(told[0]["refs"]) == ["input"]


@pytest.mark.parametrize(
    ("bound", "seen"),
    [
        ("$output.step_1.price.amount", 7),
        ("$output.step_1.rows", {"items": list(range(20)), "total": 10_000, "has_more": True}),
        (
            "$output.step_1",
            {"rows": {"items": list(range(20)), "total": 10_000, "has_more": True}, "price": {"amount": 7}},
        ),
    ],
)
async def test_who_is_asked_to_approve_sees_what_comes_from_a_big_output(store: Store, bound: str, seen: Any) -> None:
    """The params of the exact call are shown also where they lie in a large output; if that is lost, none are."""
    plan = {
        "steps": [
            {"step_id": 1, "tool": "quote", "params": {}, "kind": "read"},
            {"step_id": 2, "tool": "pay", "params": {"bound": bound, "to": ["bank"]}, "kind": "pivot"},
        ]
    }
    records = [
        r.SagaStarted(at=1, saga_id="pay", plan=plan, digest="d", seed="s"),
        r.StepIntended(at=2, step="1"),
        r.StepSucceeded(at=3, step="1", output={"rows": list(range(10_000)), "price": {"amount": 7}}),
        r.StepIntended(at=4, step="2"),
        r.StepEscalated(
            at=5, step="2", question="q", kind="approval", options=["approve", "deny"], call="c", expires_ms=9, rule="r"
        ),
    ]
    values: dict[str, bytes] = {}
    data = [encode(record, values) for record in records]
    creation = Creation(digest="d", owned=False)
    await store.append("", [Entry("pay", 0, 0, data, "ESCALATED", values=values, creation=creation)])

    asked = SagaResult(await look(store, "pay"), full=False).body
    lost = SagaResult(await look(Forgetful(store), "pay"), full=False).body  # type: ignore[arg-type]

    assert asked["questions"][0]["params"] == {"bound": seen, "to": ["bank"]}
    assert asked["steps"][0]["output_ref"]["bytes"] > 40_000
    assert lost["questions"][0]["params"] is None
    assert lost["steps"] == asked["steps"]
