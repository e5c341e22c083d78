"""Undos of completed sagas: a saga of its own owns what stands, and undoes it in reverse, once."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from saga_engine import Coordinator, RetryPolicy, SagaResult, ToolContext, ToolError, tool
from saga_engine.analysis.replay import Replay
from saga_engine.analysis.trace_file import read
from saga_engine.errors import LeaseHeld, SagaExists, SagaNotFound, SessionEnded, ToolMissing, UndoRefused
from saga_engine.runtime.undo import Undo, Undoing

ONCE = RetryPolicy(max_attempts=1)
LOG: list[str] = []
FULL: set[str] = set()


@pytest.fixture(autouse=True)
def fresh() -> None:
    LOG.clear()
    FULL.clear()


@tool(undo="cancel", retry=ONCE)
async def book(what: str) -> dict:
    if what in FULL:
        raise ToolError("full", error_code="full")
    LOG.append(what)
    return {"what": what}


@tool(retry=ONCE)
async def cancel(what: str) -> None:
    if f"-{what}" in FULL:
        raise ToolError("no", error_code="refused", retryable=False)
    LOG.append(f"-{what}")


@tool(retry=ONCE)
async def mail(to: str) -> str:
    LOG.append(f"mail {to}")
    return "sent"


@tool(effect="read", retry=ONCE)
async def look(at: str) -> dict:
    return {"seen": at}


@tool(undo="cancel_request", retry=ONCE)
async def order(what: str, ctx: ToolContext) -> None:
    LOG.append(f"order {ctx.idempotency_key}")


@tool(retry=ONCE)
async def cancel_request(request: str) -> None:
    LOG.append(f"cancel {request}")


TOOLS = [book, cancel, mail, look, order, cancel_request]


def open_memory(name: str = "", tools: Any = TOOLS) -> Any:
    return Coordinator.open(f"memory://{name}", tools, on_escalation=())


def step(step_id: str, name: str = "book", **fields: Any) -> dict[str, Any]:
    params = {"book": "what", "mail": "to", "look": "at", "order": "what"}
    return {"step_id": step_id, "tool": name, "params": {params[name]: step_id}, **fields}


def plan(*steps: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"steps": list(steps), **fields}


TRIP = plan(step("a"), step("seen", "look"), step("b"), step("c", depends_on=["a"]))


async def undone(engine: Coordinator, saga_id: str = "s", **options: Any) -> SagaResult:
    outcome = await engine.undo(saga_id, **options)
    assert isinstance(outcome, SagaResult)
    return outcome


async def kinds(engine: Coordinator, saga_id: str) -> list[str]:
    return [record["k"] for record in await engine.history(saga_id)]


async def test_a_trip_is_cancelled_a_day_later() -> None:
    """What stands is undone in reverse by a saga of its own; the completed one stays as it was, and both name the other."""
    async with open_memory() as engine:
        await engine.run(TRIP, saga_id="s")
        LOG.clear()
        look = await engine.undo("s", dry_run=True)
        assert isinstance(look, Undo)
        told = look.to_dict()
        assert {each["step_id"] for each in told["undoes"]} == {"c", "b", "a"}
        assert told["undoes"][-1]["step_id"] == "a"
        assert [each["undo"] for each in told["undoes"]] == ["cancel"] * 3
        assert (told["saga_id"], told["remains"], told["elsewhere"], LOG) == ("s-undo", [], [], [])
        assert "EffectTransferred" not in await kinds(engine, "s")
        outcome = await undone(engine, by="me", note="cancelled")
        assert (outcome.saga_id, outcome.status) == ("s-undo", "COMPENSATED")
        assert (sorted(LOG), LOG[-1]) == (["-a", "-b", "-c"], "-a")
        assert (outcome.body["report"]["clean"], outcome.body["undo_of"]) == (True, "s")
        assert {each["via"] for each in outcome.body["steps"]} == {"undo"}
        old = await engine.show("s")
        assert (old.status, old.body["undone_by"], old.body["report"]["clean"]) == ("COMPLETED", "s-undo", True)
        asked = next(each for each in await engine.history("s-undo") if each["k"] == "UndoRequested")
        assert (asked["by"], asked["note"]) == ("me", "cancelled")
        assert (await kinds(engine, "s"))[-1] == "EffectTransferred"


async def test_a_second_undo_is_the_first() -> None:
    """Repeating it calls nothing; a fork of what was undone reuses nothing."""
    async with open_memory() as engine:
        await engine.run(TRIP, saga_id="s")
        await undone(engine)
        LOG.clear()
        again = await undone(engine)
        assert (again.saga_id, again.status, LOG) == ("s-undo", "COMPENSATED", [])
        look = await engine.undo("s", dry_run=True)
        assert isinstance(look, Undo)
        assert look.begun
        fork = await engine.fork("s", dry_run=True)
        assert fork.to_dict()["taken_over"] == []


async def test_the_same_undo_at_the_same_time() -> None:
    """Of several requests, in one process or in two, one undoes; the others get its result, or learn who drives it."""
    async with open_memory("at-once") as engine, Coordinator.open(engine.store, TOOLS, on_escalation=()) as other:
        await engine.run(TRIP, saga_id="s")
        LOG.clear()
        asked = [each.undo("s") for each in (engine, engine, other, engine, other)]
        found = await asyncio.gather(*asked, return_exceptions=True)
        ends = [each.status if isinstance(each, SagaResult) else type(each) for each in found]
        assert set(ends) <= {"COMPENSATED", LeaseHeld}
        assert "COMPENSATED" in ends
        assert sorted(LOG) == ["-a", "-b", "-c"]
        assert (await kinds(engine, "s")).count("EffectTransferred") == 1


async def test_what_has_no_undo_is_listed_and_accepted() -> None:
    """A pivot and what follows it remain: refused with the list; accepted, the report and the journal name them."""
    body = plan(step("a"), step("mail", "mail", kind="pivot"), step("late", "mail", kind="retriable"))
    async with open_memory() as engine:
        await engine.run(body, saga_id="s")
        LOG.clear()
        with pytest.raises(UndoRefused, match=r"step mail \(mail, pivot\), late \(mail, retriable\)") as refused:
            await engine.undo("s")
        assert refused.value.context["remains"] == ["mail", "late"]
        assert "accept" in refused.value.hint
        assert LOG == []
        look = await engine.undo("s", dry_run=True)
        assert [each["step_id"] for each in look.to_dict()["remains"]] == ["mail", "late"]
        outcome = await undone(engine, accept=True)
        assert (outcome.status, LOG) == ("WAIVED", ["-a"])
        report = outcome.body["report"]
        assert (report["left_in_place"], report["compensated"], report["clean"]) == (["mail", "late"], ["a"], False)
        asked = next(each for each in await engine.history("s-undo") if each["k"] == "UndoRequested")
        assert asked["accepted"] == ["mail", "late"]


async def test_what_cannot_be_undone_is_refused() -> None:
    """A saga that is under way, was undone, or of which an undo would undo nothing; the reason says what to do."""
    async with open_memory() as engine:
        with pytest.raises(SagaNotFound):
            await engine.undo("nobody")
        FULL.add("b")
        await engine.run(plan(step("a"), step("b")), saga_id="failed")
        with pytest.raises(UndoRefused, match="has been undone already"):
            await engine.undo("failed")
        await engine.run(plan(step("a"), step("b"), on_failure="pause"), saga_id="rests")
        with pytest.raises(UndoRefused, match="has not completed") as refused:
            await engine.undo("rests")
        assert "saga cancel rests" in refused.value.hint
        await engine.run(plan(step("x")), saga_id="mine-undo")
        await engine.run(plan(step("a")), saga_id="mine")
        with pytest.raises(SagaExists, match="mine-undo is another saga"):
            await engine.undo("mine")
        assert "undone_by" not in (await engine.show("mine")).body


async def test_a_saga_without_an_effect_has_nothing_to_undo() -> None:
    """That is no refusal: it is as if undone, again and again, and no other saga is made of it."""
    async with open_memory() as engine:
        await engine.run(plan(step("seen", "look")), saga_id="reads")
        assert (await engine.undo("reads", dry_run=True)).to_dict()["undoes"] == []
        for _ in range(2):
            assert (await engine.undo("reads")).saga_id == "reads"
        assert (await engine.show("reads")).status == "COMPLETED"
        with pytest.raises(SagaNotFound):
            await engine.show("reads-undo")


async def test_a_session_is_undone_in_reverse_of_what_happened() -> None:
    """What the agent rolled back is not undone again; an irreversible call is one without an undo."""
    async with open_memory() as engine:
        async with engine.session("s") as s:
            await s.call(book, what="a")
            before = s.savepoint()
            await s.call(book, what="b")
            await s.rollback(before)
            await s.call(mail, to="x", irreversible=True)
            await s.call(book, what="c")
        LOG.clear()
        with pytest.raises(UndoRefused, match=r"step 3 \(mail, irreversible\)"):
            await engine.undo("s")
        outcome = await undone(engine, accept=True)
        assert (outcome.status, LOG) == ("WAIVED", ["-c", "-a"])
        assert outcome.body["report"]["left_in_place"] == [3]
        with pytest.raises(SessionEnded):  # a job that is delivered again after it was undone
            async with engine.session("s") as s:
                await s.call(book, what="a")


async def test_what_a_fork_owns_is_not_undone() -> None:
    """A fork that reuses effects of the completed saga keeps them: the undo says whose they are, and undoes the rest."""
    async with open_memory() as engine:
        await engine.run(TRIP, saga_id="s")
        await engine.fork("s", plan=plan(step("a"), step("d")), new_id="f")
        LOG.clear()
        look = await engine.undo("s", dry_run=True)
        assert [(each["step_id"], each["owner"]) for each in look.to_dict()["elsewhere"]] == [("a", "f")]
        outcome = await undone(engine)
        assert (outcome.status, sorted(LOG)) == ("COMPENSATED", ["-b", "-c"])
        assert outcome.body["report"]["compensated"] == ["b", "c"]
        LOG.clear()
        assert (await undone(engine, "f")).status == "COMPENSATED"
        assert LOG == ["-d", "-a"]


async def test_an_undo_that_fails_asks_an_operator() -> None:
    """The undo is a saga like any other: it waits for an answer, and the saga that is undone stays completed."""
    async with open_memory() as engine:
        await engine.run(plan(step("a"), step("b")), saga_id="s")
        FULL.add("-b")
        outcome = await undone(engine)
        assert (outcome.status, outcome.body["questions"][0]["kind"]) == ("ESCALATED", "undo-failed")
        LOG.clear()
        again = await undone(engine)
        assert again.status == "ESCALATED"
        ended = await engine.resolve("s-undo", "b", "undone", by="me")
        assert (ended.status, LOG) == ("COMPENSATED", ["-a"])
        assert (await engine.show("s")).status == "COMPLETED"


async def test_undos_get_what_the_calls_left() -> None:
    """Outputs, the key of the call, added steps and a fallback: the undo has what the saga itself would have had."""
    keyed = step("o", "order", rollback={"tool": "cancel_request", "params": {"request": "$key"}})
    other = {"tool": "book", "params": {"what": "other"}}
    async with open_memory() as engine:
        FULL.add("f")
        handle = await engine.submit(plan(keyed, step("f", fallback=other)), saga_id="s", detach=True)
        await engine.amend("s", [step("added")])
        assert (await engine.wait(handle.saga_id)).completed
        key = next(line for line in LOG if line.startswith("order ")).removeprefix("order ")
        LOG.clear()
        assert (await undone(engine)).status == "COMPENSATED"
        assert ["-added", "-other", f"cancel {key}"] == LOG


async def test_steps_that_changed_nothing_are_not_repeated_or_undone() -> None:
    """Computed values are there for the undos; the steps of ``finally`` ran at the end of the saga, and do not again."""
    undo = {"tool": "cancel", "params": {"what": "$output.step_total"}}
    total = {"step_id": "total", "compute": {"join": ["a", "b"], "with": "-"}}
    body = plan(total, step("x", rollback=undo), **{"finally": [step("bye", "mail")]})
    async with open_memory() as engine:
        outcome = await engine.run(body, saga_id="s")
        assert (outcome.status, LOG) == ("COMPLETED", ["x", "mail bye"])
        LOG.clear()
        outcome = await undone(engine)
        assert (outcome.status, LOG) == ("COMPENSATED", ["-a-b"])
        assert outcome.body["report"]["clean"]


async def test_irreversible_steps_remain_wherever_they_stand() -> None:
    """They are listed, and what came before and after them is undone."""
    async with open_memory() as engine:
        await engine.run(plan(step("a"), step("m", "mail", kind="irreversible"), step("b")), saga_id="s")
        LOG.clear()
        with pytest.raises(UndoRefused, match=r"step m \(mail, irreversible\)"):
            await engine.undo("s")
        outcome = await undone(engine, accept=True)
        assert (outcome.status, LOG) == ("WAIVED", ["-b", "-a"])
        assert outcome.body["report"]["left_in_place"] == ["m"]


async def test_tools_that_changed_or_are_gone() -> None:
    """Only the undos are needed. One that is missing changes nothing; one that changed is asked about, not called."""
    async with open_memory("changed") as engine:
        await engine.run(plan(step("a")), saga_id="s")
        await engine.run(plan(step("b")), saga_id="t")
        store = engine.store
        async with Coordinator.open(store, [mail], on_escalation=()) as other:
            with pytest.raises(ToolMissing, match="cancel"):
                await other.undo("s")
        assert "undone_by" not in (await engine.show("s")).body
        async with Coordinator.open(store, [cancel], on_escalation=()) as other:
            assert (await undone(other)).status == "COMPENSATED"
        assert LOG[-1] == "-a"

        @tool(name="cancel")
        async def changed(what: int) -> None:
            LOG.append("never")

        async with Coordinator.open(store, [changed], on_escalation=()) as other:
            outcome = await undone(other, "t")
            assert (outcome.status, outcome.body["questions"][0]["kind"]) == ("ESCALATED", "tool-changed")
        assert "never" not in LOG


async def test_nobody_takes_the_id_of_an_undo_that_died() -> None:
    """Between the transfer and the undo's start its id is reserved, and the same request continues."""
    async with open_memory() as engine:
        await engine.run(plan(step("a")), saga_id="s")
        undoing = await Undoing.of(engine.store, engine.supervisor, engine.tools, "s")
        look = await undoing._claimed(await undoing.look(accept=False), accept=False)
        await engine.supervisor.transfer_ended("s", lambda state: undoing._transfer(state, look))
        with pytest.raises(SagaExists, match="reserved"):
            await engine.run(plan(step("b")), saga_id="s-undo")
        assert (await undone(engine)).status == "COMPENSATED"
        assert LOG == ["a", "-a"]
        assert (await kinds(engine, "s")).count("EffectTransferred") == 1


@pytest.mark.parametrize("session", [False, True])
async def test_its_trace_is_replayed(*, session: bool) -> None:
    """Today's engine decides an undo as it was, and the completed saga with what it transferred."""
    async with open_memory() as engine:
        if session:
            async with engine.session("s") as s:
                await s.call(book, what="a")
                await s.call(book, what="b")
        else:
            await engine.run(TRIP, saga_id="s")
        await undone(engine)
        for saga_id in ("s", "s-undo"):
            (trace,) = read(line.encode() + b"\n" for line in await engine.trace(saga_id, full=True))
            replay = Replay(trace, engine.tools, together_ms=10**9)
            assert len(list(replay.run())) == len(trace.entries) - 1
            assert replay.divergence is None


async def test_a_caller_that_leaves_amid_a_transfer_leaves_no_owner(monkeypatch: pytest.MonkeyPatch) -> None:
    """The saga whose effects are being handed over has ended: nobody owns it once the caller is gone."""
    async with Coordinator.open("memory://", [book, cancel]) as engine:
        await engine.run({"steps": [{"step_id": 1, "tool": "book", "params": {"what": "a"}}]}, saga_id="a")
        inside, reads = asyncio.Event(), engine.store.read

        async def slow(*args: Any, **options: Any) -> Any:
            inside.set()
            await asyncio.sleep(3600)
            return await reads(*args, **options)

        monkeypatch.setattr(engine.store, "read", slow)
        transfer = asyncio.create_task(engine.supervisor.transfer_ended("a", lambda _: None))
        await inside.wait()
        transfer.cancel()
        with pytest.raises(asyncio.CancelledError):
            await transfer
        assert (await engine.store.head("a")).owner == ""
