"""Escalation hooks and observers are somebody else's code: whatever they do, the saga goes on."""

from __future__ import annotations

import asyncio
import logging
import threading
from typing import Any

import pytest

from saga_engine import Coordinator, Question, RetryPolicy, ToolError, tool
from saga_engine.api import coordinator as composition
from saga_engine.core import interpret
from saga_engine.errors import Interrupted
from saga_engine.execution.observers import Observers
from saga_engine.ports import Escalation
from saga_engine.tools.threads import start_in_thread

ONCE = RetryPolicy(max_attempts=1)


@tool(undo="unbook", retry=ONCE)
async def book(what: str) -> dict:
    if what == "in doubt":
        raise TimeoutError("no answer")
    if what == "refused":
        raise ToolError("full")
    return {"ref": what}


@tool(retry=ONCE)
async def unbook(ref: str) -> dict:
    return {}


TOOLS = [book, unbook]


def plan(*what: str) -> dict[str, Any]:
    return {"steps": [{"step_id": n, "tool": "book", "params": {"what": one}} for n, one in enumerate(what, 1)]}


async def hangs(_: Question) -> None:
    """Like a chat server that accepts and never answers, in a client that swallows its cancellation."""
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        await asyncio.Event().wait()


def waiting_on(gate: threading.Event) -> Any:
    def hook(_: Question) -> None:
        gate.wait()

    return hook


@pytest.fixture
def gate() -> Any:
    event = threading.Event()
    yield event
    event.set()


async def until(engine: Coordinator, kind: str) -> None:
    """Until a record of this kind is durable in the journal of saga ``s``."""
    while not any(record["k"] == kind for record in await engine.history("s")):  # noqa: ASYNC110
        await asyncio.sleep(0.002)


@pytest.mark.parametrize("kind", ["hangs", "blocks"])
async def test_a_hook_that_never_returns_keeps_no_answer_waiting(kind: str, gate: threading.Event) -> None:
    """A person's answer is read while a hook hangs or blocks, and the saga ends."""
    hook = hangs if kind == "hangs" else waiting_on(gate)
    async with Coordinator.open("memory://", TOOLS, on_escalation=hook) as engine:
        await engine.submit(plan("a", "in doubt"), saga_id="s")
        await until(engine, "AlertIntended")
        assert (await engine.resolve("s", 2, "not-happened")).status == "COMPENSATED"


@pytest.mark.parametrize("kind", ["hangs", "blocks"])
async def test_a_hook_that_never_returns_keeps_no_cancel_waiting(kind: str, gate: threading.Event) -> None:
    """A cancel is taken in while a hook hangs or blocks."""
    hook = hangs if kind == "hangs" else waiting_on(gate)
    async with Coordinator.open("memory://", TOOLS, on_escalation=hook) as engine:
        await engine.submit({**plan("a", "in doubt"), "on_failure": "pause"}, saga_id="s")
        await until(engine, "AlertIntended")
        cancelled = asyncio.create_task(engine.cancel("s"))
        await until(engine, "CancelRequested")
        await engine.resolve("s", 2, "not-happened")
        assert (await cancelled).status == "COMPENSATED"


@pytest.mark.parametrize("kind", ["hangs", "blocks"])
async def test_a_hook_that_never_returns_holds_up_no_end(
    kind: str, gate: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A coordinator closes within its grace. The alert has no result in the journal, so people are told again."""
    monkeypatch.setattr("saga_engine.runtime.driver.ALERT_GRACE_S", 0.01)
    hook = hangs if kind == "hangs" else waiting_on(gate)
    async with Coordinator.open(f"memory://end-{kind}", TOOLS, on_escalation=hook) as engine:
        await engine.submit(plan("in doubt"), saga_id="s")
        await until(engine, "AlertIntended")
    told: list[str] = []
    async with Coordinator.open(
        f"memory://end-{kind}", TOOLS, on_escalation=lambda question: told.append(question.kind)
    ) as engine:
        assert (await engine.resume("s")).status == "ESCALATED"
    assert told == ["in-doubt"]


@pytest.mark.parametrize("kind", ["hangs", "blocks"])
async def test_a_call_to_a_hook_has_a_time_limit(
    kind: str, gate: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that overruns it has failed; the others have been told, and the saga rests."""
    monkeypatch.setattr(interpret, "ALERT_RETRY", RetryPolicy(max_attempts=2, base_s=0.001, max_s=0.001))
    told: list[str] = []

    async def works(question: Question) -> None:
        told.append(question.question_id)

    hook = hangs if kind == "hangs" else waiting_on(gate)
    people = Escalation(hooks=[works, hook], remind_s=0, timeout_s=0.5)
    async with Coordinator.open("memory://", TOOLS, on_escalation=people) as engine:
        async with asyncio.timeout(30):
            assert (await engine.run(plan("in doubt"), saga_id="s")).status == "ESCALATED"
        errors = [record["error"]["message"] for record in await engine.history("s") if record["k"] == "AlertFailed"]
    assert told == ["1:f:1"] * 2
    assert errors == ["TimeoutError: not within 0.5 s"] * 2


async def test_a_sync_hook_runs_in_a_thread() -> None:
    """It may block: the event loop goes on. What it raises, also SystemExit, means that it did not tell."""
    where: list[threading.Thread] = []

    def hook(_: Question) -> None:
        where.append(threading.current_thread())
        if len(where) == 1:
            raise SystemExit(3)

    quick = pytest.MonkeyPatch()
    quick.setattr(interpret, "ALERT_RETRY", RetryPolicy(max_attempts=2, base_s=0.001, max_s=0.001))
    async with Coordinator.open("memory://", TOOLS, on_escalation=hook) as engine:
        assert (await engine.run(plan("in doubt"), saga_id="s")).status == "ESCALATED"
        errors = [record["error"]["message"] for record in await engine.history("s") if record["k"] == "AlertFailed"]
    quick.undo()
    assert threading.main_thread() not in where
    assert errors == ["RuntimeError: SystemExit: 3"]


async def test_without_a_hook_a_question_is_a_warning_with_the_command_that_answers(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Escalation is never silent by default; an empty tuple says that nobody is to be told."""
    async with Coordinator.open("memory://", TOOLS) as engine:
        await engine.run(plan("in doubt"), saga_id="trip-42")
    [line] = [record for record in caplog.records if record.name == "saga_engine.escalation"]
    assert line.levelno == logging.WARNING
    assert "saga resolve trip-42 1 ANSWER (ANSWER: happened, not-happened, retry, accept)" in line.getMessage()
    caplog.clear()
    async with Coordinator.open("memory://", TOOLS, on_escalation=()) as engine:
        await engine.run(plan("in doubt"), saga_id="trip-42")
    assert not [record for record in caplog.records if record.name == "saga_engine.escalation"]


# --- observers -------------------------------------------------------------------------------------------------------


async def test_an_observer_that_never_returns_stops_no_saga(
    gate: threading.Event, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It is left behind after its time; the other observers see everything, and the log says who missed what."""
    monkeypatch.setattr(composition, "Observers", lambda each, run, **more: Observers(each, run, limit_s=0.01, **more))
    seen: list[str] = []

    def blocks(_saga_id: str, _record: Any) -> None:
        gate.wait()

    async with Coordinator.open(
        "memory://", TOOLS, observers=[blocks, lambda _, record: seen.append(type(record).__name__)]
    ) as engine:
        assert (await engine.run(plan("a", "b"), saga_id="s")).completed
        assert seen == [record["k"] for record in await engine.history("s")]
    assert any("takes longer than 0.01 s" in record.getMessage() for record in caplog.records)


async def test_an_observer_sees_one_append_at_a_time() -> None:
    """In the order of the journal, although it runs in a thread; and before the effects that the records order."""
    inside = 0
    most = 0
    seen: list[int] = []

    def observer(_saga_id: str, records: Any) -> None:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        seen.append(records)
        inside -= 1

    observers = Observers([observer], start_in_thread)
    await asyncio.gather(*(observers.tell("s", [number]) for number in range(100)))  # type: ignore[list-item]
    assert (most, seen) == (1, [*range(100)])


async def test_an_observer_that_returns_late_goes_on_listening(caplog: pytest.LogCaptureFixture) -> None:
    """What happened meanwhile it has missed, and the log counts it."""
    gate, seen = threading.Event(), []

    def observer(_saga_id: str, record: Any) -> None:
        if not seen:
            gate.wait()
        seen.append(record)

    observers = Observers([observer], start_in_thread, limit_s=0.01)
    await observers.tell("s", [1])  # type: ignore[list-item]
    await observers.tell("s", [2, 3])  # type: ignore[list-item]
    gate.set()
    while not any("it missed 2 records" in record.getMessage() for record in caplog.records):  # noqa: ASYNC110
        await asyncio.sleep(0)
    await observers.tell("s", [4])  # type: ignore[list-item]
    assert seen == [1, 4]


class Thinking:
    """A model that never answers."""

    def __init__(self) -> None:
        self.asked = 0
        self.began = asyncio.Event()

    async def advise(self, request: Any, check: Any) -> Any:
        self.asked += 1
        self.began.set()
        await hangs(request)


async def test_a_model_that_never_answers_holds_up_no_end() -> None:
    """A coordinator that closes does not wait for a model. Whoever goes on asks again."""
    thinking, again = Thinking(), Thinking()
    for model in (thinking, again):
        async with Coordinator.open("memory://thinking", TOOLS, advisor=model) as engine:  # type: ignore[arg-type]
            handle = await engine.submit({**plan("refused"), "on_failure": "replan"}, saga_id="s")
            await model.began.wait()
        with pytest.raises(Interrupted):
            await handle.wait()
    assert (thinking.asked, again.asked) == (1, 1)


async def test_a_cancel_is_heard_while_a_model_is_asked() -> None:
    """What nobody wants any more is not waited for."""
    thinking = Thinking()
    async with Coordinator.open("memory://", TOOLS, advisor=thinking) as engine:  # type: ignore[arg-type]
        await engine.submit({**plan("a", "refused"), "on_failure": "replan"}, saga_id="s")
        await thinking.began.wait()
        assert (await engine.cancel("s")).status == "COMPENSATED"
