"""Events that come after the time-out or the undo, and the call that a plan has for them. Deaths: tests/kill."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Annotated, Any

import pytest

from saga_engine import Coordinator, RetryPolicy, Sensitive, ToolError, tool
from saga_engine.core import records as r
from saga_engine.core.evolve import evolve
from saga_engine.core.fold import begin
from saga_engine.core.steps.wait import never_begun
from saga_engine.errors import EventRefused, PlanInvalid, StoreUnavailable
from saga_engine.plan.compiler import compile_plan
from saga_engine.plan.model import load_plan
from saga_engine.ports import Channel, StoredEvent
from saga_engine.runtime import resting
from saga_engine.runtime.listening import Listening
from saga_engine.tools.registry import ToolRegistry

PAID = {
    "event": "paid",
    "on_late": {"tool": "refund", "params": {"sum": "$output.step_1.sum", "why": "{$input.who}: {$$key}"}},
}


def refunds(folder: Path) -> list[Any]:
    """The tools of a process: a refund is one line of a file for its idempotency key."""

    @tool
    def refund(sum: int, why: str, idempotency_key: str) -> dict[str, Any]:  # noqa: A002 - a param
        """Gives the money back."""
        with (folder / "refunds").open("a") as file:
            file.write(f"{idempotency_key[:0]}{sum} {why}\n")
        return {}

    return [refund]


def plan(**wait: Any) -> dict[str, Any]:
    return {"input": {"who": "$output.ada"}, "steps": [{"step_id": 1, "wait": {**PAID, **wait}}]}


async def armed(engine: Coordinator) -> None:
    """Wait until the step waits, for whoever looks into the store."""
    async with asyncio.timeout(60):
        while await engine.store.event_store().first(Channel("paid", "s")) is None:  # noqa: ASYNC110 - of another task
            await asyncio.sleep(0.005)


async def test_the_payment_that_arrives_after_the_undo_is_refunded_once(tmp_path: Path) -> None:
    """A saga of its own makes the call, with the values of the first one, as data; repeats of the event change nothing."""
    async with Coordinator.open("memory://", refunds(tmp_path), on_escalation=()) as engine:
        await engine.submit(plan(), saga_id="s")
        await armed(engine)
        assert (await engine.cancel("s")).status == "COMPENSATED"
        late = await engine.send_event("paid", "s", {"sum": 7}, event_id="e")
        assert (late.disposition, late.repeated) == ("handled", False)
        assert (await engine.wait(late.late_saga)).status == "COMPLETED"
        assert (await engine.send_event("paid", "s", {"sum": 7}, event_id="e")).disposition == "handled"
        assert (tmp_path / "refunds").read_text() == "7 $output.ada: {$key}\n"
        second = await engine.send_event("paid", "s", {"sum": 8}, event_id="e2")
        assert (await engine.wait(second.late_saga)).status == "COMPLETED"
        assert [head.saga_id for head in (await engine.search(tags=["late-event"])).sagas] == [
            second.late_saga,
            late.late_saga,
        ]


async def held(engine: Coordinator, key: str) -> None:
    """An event whose sender died before it told the saga."""
    event = StoredEvent("e", b'{"sum": 7}')
    receipt = await engine.store.event_store().send(Channel("paid", key), event, keep_ms=3_600_000, most=9)
    assert receipt.disposition == "held"


@pytest.mark.parametrize("dies", [False, True])
async def test_the_payment_for_a_wait_that_the_saga_never_began_is_refunded(
    dies: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The saga is undone before the wait: an early event goes to ``on_late``, and so does one that comes later.

    Also if the process dies in the moment in which the saga ends.
    """
    full = tool(effect="read")(no)
    body = {
        "input": {"who": "ada"},
        "steps": [
            {"step_id": 0, "tool": "no", "params": {}},
            {"step_id": 1, "wait": {**PAID, "key": "s"}, "depends_on": [0]},
            {"step_id": 2, "wait": {"event": "sent", "key": "$output.step_0.id"}, "depends_on": [0]},
        ],
    }
    genuine, settled = Listening.last, []

    async def last(listening: Listening, *, queued: bool) -> None:
        settled.append(1)
        if dies and len(settled) == 1:
            raise StoreUnavailable("the process is dead", hint="it is a test")
        await genuine(listening, queued=queued)

    monkeypatch.setattr(Listening, "last", last)
    monkeypatch.setattr(resting, "TELL_AGAIN_MS", 50)
    async with Coordinator.open("memory://", [*refunds(tmp_path), full], on_escalation=()) as engine:
        assert (await engine.send_event("paid", "s", {"sum": 7}, event_id="early")).disposition == "kept"
        assert (await engine.run(body, saga_id="s")).status == "COMPENSATED"
        worker = asyncio.create_task(engine.work())
        async with asyncio.timeout(60):
            while (await engine.events("paid", "s"))[0].disposition != "handled":  # noqa: ASYNC110 - of another task
                await asyncio.sleep(0.005)
        late = await engine.send_event("paid", "s", {"sum": 8})
        assert (late.disposition, late.saga_id, late.step) == ("handled", "s", "1")
        assert (await engine.send_event("sent", "x", {"sum": 9})).disposition == "kept", "its key is not known"
        async with asyncio.timeout(60):
            for head in (await engine.search(tags=["late-event"])).sagas:
                assert (await engine.wait(head.saga_id)).status == "COMPLETED"
        worker.cancel()
        await asyncio.gather(worker, return_exceptions=True)
    assert sorted((tmp_path / "refunds").read_text().splitlines()) == ["7 ada: {$key}", "8 ada: {$key}"]


@pytest.mark.parametrize(("reason", "over"), [("cancelled", 1), ("transferred", 0)])
def test_a_wait_that_a_fork_has_is_not_over(reason: str, over: int) -> None:
    """A saga turns around because a fork has its effects: what comes for its waits is the fork's."""
    body = {"steps": [{"step_id": 1, "wait": {"event": "paid", "key": "s"}}]}
    compiled = compile_plan(load_plan(body), ToolRegistry([]))
    state = begin(r.SagaStarted(at=1, saga_id="s", plan=body, digest="d", seed="x"), compiled)
    evolve(state, r.CancelRequested(at=2, by="ada"))
    evolve(state, r.CompensationStarted(at=2, reason=reason))
    assert [event for _, event in never_begun(state)] == [("paid", "s")] * over


async def no() -> dict[str, Any]:
    """Always refused."""
    raise ToolError("sold out", error_code="full")


async def test_an_event_that_was_held_when_its_wait_ended_goes_to_on_late_at_once(tmp_path: Path) -> None:
    """The owner of the wait brings it there: no worker has to find it."""
    async with Coordinator.open("memory://", refunds(tmp_path), on_escalation=()) as engine:
        await engine.submit(plan(), saga_id="s")
        await armed(engine)
        await held(engine, "s")
        assert (await engine.cancel("s")).status == "COMPENSATED"
        async with asyncio.timeout(60):
            while not (late := (await engine.search(tags=["late-event"])).sagas):  # noqa: ASYNC110 - of another task
                await asyncio.sleep(0.005)
        assert (await engine.wait(late[0].saga_id)).status == "COMPLETED"
    assert (tmp_path / "refunds").read_text() == "7 $output.ada: {$key}\n"


async def test_an_event_that_was_held_when_its_wait_ended_goes_to_the_next_wait_at_once() -> None:
    """Without an ``on_late`` it is the next wait's, whose saga is told by the owner of the one that ended."""
    body = {"steps": [{"step_id": 1, "wait": {"event": "paid", "key": "s"}}]}
    async with Coordinator.open("memory://", on_escalation=()) as engine:
        await engine.submit(body, saga_id="first")
        await armed(engine)
        second = await engine.submit(body, saga_id="second")
        await held(engine, "s")
        assert (await engine.cancel("first")).status == "COMPENSATED"
        async with asyncio.timeout(60):
            assert (await second.wait()).status == "COMPLETED"


async def test_an_event_after_the_time_out_is_handled_and_one_in_time_is_not(tmp_path: Path) -> None:
    """The saga may have completed without the event. An event that was taken has no late call."""
    async with Coordinator.open("memory://", refunds(tmp_path), on_escalation=()) as engine:
        vain = plan(timeout_s=0.02, on_timeout={"value": {"sum": 0}})
        assert (await engine.run(vain, saga_id="s")).status == "COMPLETED"
        late = await engine.send_event("paid", "s", {"sum": 7})
        assert (await engine.wait(late.late_saga)).status == "COMPLETED"
        await engine.send_event("paid", "t", {"sum": 1})
        assert (await engine.run(plan(), saga_id="t")).status == "COMPLETED"
        assert (await engine.send_event("paid", "t", {"sum": 2})).late_saga == ""
        assert (tmp_path / "refunds").read_text() == "7 $output.ada: {$key}\n"


async def test_an_answer_to_one_wait_that_is_over_is_handled_once_past_the_waits_of_others(tmp_path: Path) -> None:
    """No other saga gets it. The same answer again changes nothing, another one is told the way, and none is too late."""
    async with Coordinator.open("memory://", refunds(tmp_path), on_escalation=()) as engine:
        await engine.run(plan(key="17", timeout_s=0.02), saga_id="s")
        await engine.submit(plan(key="17"), saga_id="other")
        while await engine.store.event_store().first(Channel("paid", "17")) is None:  # noqa: ASYNC110 - of another task
            await asyncio.sleep(0.005)
        late = await engine.answer_wait("s", 1, {"sum": 7})
        assert (await engine.wait(late)).status == "COMPLETED"
        assert await engine.answer_wait("s", 1, {"sum": 7}) == late
        with pytest.raises(EventRefused) as refused:
            await engine.answer_wait("s", 1, {"sum": 8})
        assert "saga event paid 17" in refused.value.hint
        with pytest.raises(EventRefused) as refused:
            await engine.require_waiting("s", 1)
        assert "saga event paid 17" in refused.value.hint
        assert (await engine.show("other")).status == "RUNNING"
        assert await engine.answer_wait("other", 1, {"sum": 5}) == ""
        assert (await engine.wait("other")).status == "COMPLETED"
        assert await engine.answer_wait("other", 1, {"sum": 5}) == ""
        with pytest.raises(EventRefused, match="had its end"):
            await engine.answer_wait("other", 1, {"sum": 6})
        assert (tmp_path / "refunds").read_text() == "7 $output.ada: {$key}\n"


async def test_a_late_answer_that_does_not_fit_is_refused_and_one_that_nobody_here_can_handle_is_kept(
    tmp_path: Path,
) -> None:
    """Nothing is kept of the first. The second is durable, and whoever has the tool begins the saga that was named."""
    schema = {"type": "object", "properties": {"sum": {"type": "integer"}}, "required": ["sum"]}
    url = f"embedded://{tmp_path}"
    async with Coordinator.open(url, refunds(tmp_path), on_escalation=()) as engine:
        await engine.run(plan(timeout_s=0.02, schema=schema), saga_id="s")
        with pytest.raises(EventRefused, match="does not fit"):
            await engine.answer_wait("s", 1, {"sum": "much"})
    async with Coordinator.open(url, [], on_escalation=()) as engine:
        assert await engine.events() == []
        late = await engine.answer_wait("s", 1, {"sum": 7})
        assert await engine.answer_wait("s", 1, {"sum": 7}) == late
        assert (await engine.search(tags=["late-event"])).sagas == []
        sent = await engine.send_event("paid", "s", {"sum": 8})
        assert (sent.disposition, sent.late_saga not in ("", late)) == ("late", True)
    async with Coordinator.open(url, refunds(tmp_path), on_escalation=()) as engine:
        assert await engine.answer_wait("s", 1, {"sum": 7}) == late
        assert (await engine.wait(late)).status == "COMPLETED"
        assert (tmp_path / "refunds").read_text() == "7 $output.ada: {$key}\n"


async def test_a_late_call_that_cannot_be_made_is_a_question(tmp_path: Path) -> None:
    """A payload without what the call binds: nothing is called, and an operator is asked."""
    async with Coordinator.open("memory://", refunds(tmp_path), on_escalation=()) as engine:
        await engine.run(plan(timeout_s=0.02), saga_id="s")
        late = await engine.send_event("paid", "s", {"other": 7})
        rests = await engine.wait(late.late_saga)
        assert (rests.status, rests.body["questions"][0]["kind"]) == ("ESCALATED", "ask")
        assert (await engine.send_event("paid", "s", {"other": 7})).late_saga != late.late_saga
        assert (await engine.resolve(late.late_saga, "on_late", "handled")).status == "COMPLETED"
        assert not (tmp_path / "refunds").exists()


@pytest.mark.parametrize(
    ("late", "code"),
    [
        ({"tool": "none"}, "tool-unknown"),
        ({"tool": "look"}, "rollback-reads"),
        ({"tool": "refund", "params": {"sum": 1, "why": "$secret.KEY"}}, "wait-invalid"),
        ({"tool": "refund", "params": {"sum": "$output.step_9.x", "why": ""}}, "binding-unknown-step"),
        ({"tool": "refund", "params": {"sum": 1}}, "params-invalid"),
    ],
)
async def test_what_no_late_call_can_be_is_a_problem_of_the_plan(late: Any, code: str, tmp_path: Path) -> None:
    """It is found before anything runs."""

    @tool(effect="read")
    def look() -> None:
        """Reads."""

    async with Coordinator.open("memory://", [*refunds(tmp_path), look], on_escalation=()) as engine:
        with pytest.raises(PlanInvalid) as caught:
            await engine.run(plan(on_late=late))
        assert code in {problem.code for problem in caught.value.problems}


CARD = "4111-1111-1111"


async def test_what_is_sensitive_to_a_saga_is_to_the_one_of_its_late_event() -> None:
    """The call gets the values; no view of the new saga shows them, whether they are params or parts of texts."""
    got: list[Any] = []

    @tool(undo="refund")
    def pay(card: Annotated[str, Sensitive]) -> dict[str, Any]:
        """Charges a card."""
        return {"echo": f"charged {card}"}

    @tool
    def refund(to: str, why: str, sum: int = 0) -> dict[str, Any]:  # noqa: A002 - a param
        """Gives the money back."""
        got.append((to, why, sum))
        return {}

    body = {
        "input": {"card": CARD},
        "steps": [
            {"step_id": "p", "tool": "pay", "params": {"card": "$input.card"}, "rollback": {"tool": "refund", "params": {
                "to": "$input.card", "why": "undone"}}},
            {"step_id": 1, "wait": {"event": "paid", "timeout_s": 0.02, "on_late": {"tool": "refund", "params": {
                "to": "$input.card", "why": "{$output.step_p.echo}!", "sum": "$output.step_1.sum"}}}},
        ],
    }  # fmt: skip
    async with Coordinator.open("memory://", [pay, refund], on_escalation=()) as engine:
        assert (await engine.run(body, saga_id="s")).status == "COMPENSATED"
        late = (await engine.send_event("paid", "s", {"sum": 5})).late_saga
        found = await engine.wait(late)
        assert (found.status, got[-1]) == ("COMPLETED", (CARD, f"charged {CARD}!", 5))
        shown = json.dumps([found.to_dict(), await engine.history(late)])
        assert CARD not in shown
        assert "[redacted]" in shown.casefold()
        asked = (await engine.send_event("paid", "s", {"card": CARD})).late_saga
        assert CARD not in json.dumps((await engine.wait(asked)).to_dict())


async def test_a_late_call_binds_what_the_saga_has_and_the_first_that_there_is() -> None:
    """Values that no step has are passed over, as in an undo; the id and the key are those of the step that waited."""
    got: list[Any] = []

    @tool
    def refund(given: Any) -> dict[str, Any]:
        """Gives the money back."""
        got.append(given)
        return {}

    first = {"$first": ["$output.step_1.refund_to", "$output.step_none.x", "$input.to"]}
    late = {"tool": "refund", "params": {"given": [first, "$saga.id", "$key", "{$$key}", {"$a": "$$input.to"}]}}
    body = {
        "input": {"to": "$secret.NONE"},
        "steps": [
            {"step_id": "none", "compute": {"value": 1}, "when": [{"value": 1, "op": "==", "to": 2}]},
            {"step_id": 1, "wait": {"event": "paid", "timeout_s": 0.02, "on_late": late}},
        ],
    }
    async with Coordinator.open("memory://", [refund], on_escalation=()) as engine:
        await engine.run(body, saga_id="s")
        await engine.wait((await engine.send_event("paid", "s", {"x": 1})).late_saga)
        await engine.wait((await engine.send_event("paid", "s", {"refund_to": "$output.step_1"})).late_saga)
    assert got[0][:2] == ["$secret.NONE", "s"]
    assert got[1][0] == "$output.step_1"
    assert len(got[0][2]) > 10
    assert got[0][3:] == ["{$key}", {"$a": "$input.to"}]


@tool(undo="take_back", retry=RetryPolicy(max_attempts=1))
async def order() -> dict[str, Any]:
    """Nobody knows whether it happened."""
    raise ConnectionResetError("the line is dead")


@tool
async def take_back(ref: str) -> None:
    """The undo of an order."""


async def test_a_key_that_becomes_known_after_the_turn_is_told_of(tmp_path: Path) -> None:
    """The saga is cancelled while an operator is asked; the answer gives the key of a wait that it never began."""
    body = {
        "input": {"who": "ada"},
        "steps": [
            {
                "step_id": 1,
                "tool": "order",
                "params": {},
                "rollback": {"tool": "take_back", "params": {"ref": "$output.step_1.id"}},
            },
            {"step_id": 2, "wait": {**PAID, "key": "$output.step_1.id"}, "depends_on": [1]},
        ],
    }
    async with Coordinator.open("memory://", [*refunds(tmp_path), order, take_back], on_escalation=()) as engine:
        assert (await engine.run(body, saga_id="s")).status == "ESCALATED"
        assert (await engine.send_event("paid", "k", {"sum": 7})).disposition == "kept"
        await engine.cancel("s", by="ada")
        assert (await engine.resolve("s", 1, "happened", output={"id": "k"})).status == "COMPENSATED"
        worker = asyncio.create_task(engine.work())
        async with asyncio.timeout(60):
            while (await engine.events("paid", "k"))[0].disposition != "handled":  # noqa: ASYNC110 - of another task
                await asyncio.sleep(0.005)
        worker.cancel()
        await asyncio.gather(worker, return_exceptions=True)
