"""Sensitive params: the call gets the value, and nobody else does."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Annotated, Any

import msgspec
import pytest

from saga_engine import Coordinator, RetryPolicy, Sensitive, ToolError, ToolRegistry, tool
from saga_engine.analysis.replay import Replay
from saga_engine.analysis.trace_file import read as read_trace
from saga_engine.errors import Interrupted, PlannerFailed, SessionDiverged, SettingInvalid, ToolInvalid
from saga_engine.sources.http.declaration import http_tools

CARD = "4111-1111-1111-1111"
PIN = 731
CALLS: list[tuple[str, Any]] = []


@tool(undo="refund")
async def pay(card: Annotated[str, Sensitive], pin: Annotated[int, Sensitive], amount: int) -> dict:
    CALLS.append(("pay", (card, pin)))
    return {"payment": "P1", "echo": f"charged {card}", "same": card, "number": 42}


@tool
async def refund(payment: str, card: str) -> dict:
    CALLS.append(("refund", card))
    return {"note": f"paid back to {card}"}


@tool(sensitive=["code"])
async def unlock(code: str, amount: int) -> dict:
    CALLS.append(("unlock", code))
    return {}


@tool(undo="unlock", retry=RetryPolicy(max_attempts=1))
async def fail(why: str) -> dict:
    raise ToolError(f"refused: {why}", error_code="refused", suggestion=f"try without {why}")


@tool(undo="unlock", retry=RetryPolicy(max_attempts=1))
async def breaks(why: str) -> dict:
    raise KeyError(why)


TOOLS = [pay, refund, unlock, fail, breaks]
PLAN: dict[str, Any] = {
    "goal": f"pay with {CARD}",
    "input": {"card": CARD},
    "steps": [
        {"step_id": 1, "tool": "pay", "params": {"card": "$input.card", "pin": PIN, "amount": 731}},
        {
            "step_id": 2,
            "tool": "pay",
            "params": {"card": "$output.step_1.same", "pin": PIN, "amount": 5},
            "rollback": {"tool": "unlock", "params": {"code": "sesame-open", "amount": 5}},
        },
        {"step_id": 3, "tool": "fail", "params": {"why": CARD}, "rollback": {"tool": "unlock", "params": {"code": "sesame-open", "amount": 1}}},
    ],
}  # fmt: skip


def hidden(shown: Any) -> str:
    """What was shown, after a look that nothing of it gives a sensitive value away."""
    text = shown if isinstance(shown, str) else json.dumps(shown, default=str)
    assert CARD not in text
    assert "sesame-open" not in text
    assert '"pin": 731' not in text
    assert '"pin":731' not in text
    return text


@pytest.fixture(autouse=True)
def forgotten():
    CALLS.clear()


async def test_the_call_gets_the_value_and_every_view_a_mark(caplog) -> None:
    """Literal, bound to input, bound to an output, in an undo, echoed in outputs and errors: in no view of the saga."""
    seen: list[Any] = []
    told: list[Any] = []
    caplog.set_level(logging.DEBUG)

    def hear(saga_id: str, record: Any) -> None:
        told.append(record)

    async with Coordinator.open("memory://", TOOLS, observers=[hear], on_escalation=seen.append) as coordinator:
        outcome = await coordinator.run(PLAN, saga_id="s1")
        history = await coordinator.history("s1", full=True)
        views = [
            outcome.body,
            (await coordinator.show("s1", full=True)).body,
            history,
            await coordinator.history("s1"),
            [record async for record in coordinator.follow("s1")],
            [record async for record in coordinator.follow("s1", since=3)],
            await coordinator.trace("s1"),
            await coordinator.trace("s1", full=True),
            [head.summary.decode() for head in await coordinator.list()],
        ]
    assert outcome.status == "COMPENSATED"
    assert ("pay", (CARD, PIN)) in CALLS
    assert ("refund", CARD) in CALLS
    assert ("unlock", "sesame-open") in CALLS
    for view in views:
        hidden(view)
    hidden(msgspec.json.encode(told).decode())
    hidden(caplog.text)
    body = outcome.body
    assert body["steps"][0]["params"] == {"card": "[redacted]", "pin": "[redacted]", "amount": 731}
    assert body["steps"][0]["output"] == {
        "payment": "P1",
        "echo": "charged [redacted]",
        "same": "[redacted]",
        "number": 42,
    }
    assert body["steps"][1]["compensation"]["params"] == {"code": "[redacted]", "amount": 5}
    assert body["goal"] == "pay with [redacted]"
    assert body["error"]["message"] == "refused: [redacted]"
    assert history[0]["sensitive"] == {"pay": ["card", "pin"], "unlock": ["code"]}
    assert history[0]["plan"]["steps"][0]["params"]["card"] == "$input.card"


async def test_readers_need_no_tools() -> None:
    """Law: the mark is in the journal, so a machine without the tools masks as well."""
    async with Coordinator.open("memory://sensitive-readers", TOOLS) as coordinator:
        await coordinator.run(PLAN, saga_id="s1")
    async with Coordinator.open("memory://sensitive-readers") as coordinator:
        body = (await coordinator.show("s1")).body
        assert hidden(body)
        assert body["steps"][0]["params"]["card"] == "[redacted]"
        hidden(await coordinator.history("s1"))
        hidden(await coordinator.trace("s1"))


async def test_questions_tell_nobody(caplog) -> None:
    """Law: approvals, questions and what a hook or a webhook is told hold no sensitive value."""
    told: list[Any] = []
    plan = {
        "steps": [
            PLAN["steps"][0],
            {"step_id": 9, "tool": "breaks", "params": {"why": CARD}, "rollback": PLAN["steps"][2]["rollback"]},
        ],
        "input": PLAN["input"],
    }
    async with Coordinator.open(
        "memory://", TOOLS, on_escalation=lambda question: told.append(question.to_dict())
    ) as coordinator:
        outcome = await coordinator.run(plan, saga_id="s1")
        assert outcome.status == "ESCALATED", outcome.body["error"]
    assert told
    hidden(told)
    hidden(outcome.body)
    hidden(caplog.text)
    assert "[redacted]" in caplog.text


async def test_an_approval_and_a_session_tell_nobody() -> None:
    """Law: who approves sees the call without its sensitive params; a session's calls are masked like those of a plan."""
    told: list[Any] = []
    policy = {"rules": [{"name": "big", "tools": ["pay"], "verdict": "ask"}]}
    single = {**PLAN, "steps": PLAN["steps"][:1]}
    hooks = {"policy": policy, "on_escalation": lambda question: told.append(question.to_dict())}
    async with Coordinator.open("memory://", TOOLS, **hooks) as coordinator:
        outcome = await coordinator.run(single, saga_id="asked")
        (question,) = outcome.body["questions"]
        assert question["params"] == {"card": "[redacted]", "pin": "[redacted]", "amount": 731}
        ended = await coordinator.resolve("asked", 1, "approve")
        assert ended.status == "COMPLETED"
        hidden([told, outcome.body, ended.body, await coordinator.history("asked"), await coordinator.trace("asked")])
    assert CALLS == [("pay", (CARD, PIN))]
    async with Coordinator.open("memory://", TOOLS) as coordinator:
        async with coordinator.session("s") as session:
            result = await session.call("pay", {"card": CARD, "pin": PIN, "amount": 1})
            assert result["same"] == CARD
        hidden([(await coordinator.show("s")).body, await coordinator.history("s"), await coordinator.trace("s")])


async def test_an_operator_marks_more_and_the_author_s_marks_stay() -> None:
    """Law: ``[tools.X] sensitive`` adds to what the author said; a glob reaches what has the parameter; typos are refused."""
    options = {"pay": {"sensitive": ["amount"]}, "re*": {"sensitive": ["card", "pin"]}}
    async with Coordinator.open("memory://", TOOLS, tool_options=options) as coordinator:
        assert coordinator.tools.spec("pay").sensitive == ("amount", "card", "pin")
        assert coordinator.tools.spec("refund").sensitive == ("card",)
    with pytest.raises(ToolInvalid, match="'kard', which is no parameter"):
        async with Coordinator.open("memory://", TOOLS, tool_options={"pay": {"sensitive": ["kard"]}}):
            pass


async def test_what_does_not_fit_is_told_without_the_value() -> None:
    """Law: a check of params names the place of a sensitive value that does not fit, and not the value."""
    plan = {"steps": [{"step_id": 1, "tool": "pay", "params": {"card": "x", "pin": "sesame-open", "amount": 1}}]}
    async with Coordinator.open("memory://", TOOLS) as coordinator:
        problems = coordinator.check(plan)
    assert [problem.path for problem in problems] == ["$.steps[0].params.pin"]
    hidden([problem.message for problem in problems])


def test_http_tools_mark_their_params() -> None:
    """Law: the short form and the list of a table mark the params of an HTTP tool."""
    table = {
        "charge": {
            "url": "https://pay.example.com/{card}/{pin}",
            "method": "POST",
            "params": {"card": {"type": "string", "sensitive": True}, "pin": "string"},
            "sensitive": ["pin"],
        }
    }
    (charge,) = http_tools(table, base=Path(), source="saga.toml")
    assert charge.spec().sensitive == ("card", "pin")
    assert "sensitive" not in json.dumps(charge.spec().input_schema)


async def test_a_masked_trace_replays() -> None:
    """Law: the trace says that something was left out, so its replay takes what it cannot see for what it was."""
    async with Coordinator.open("memory://", TOOLS) as coordinator:
        await coordinator.run(PLAN, saga_id="s1")
        lines = await coordinator.trace("s1")
    (trace,) = read_trace([f"{line}\n".encode() for line in lines])
    assert trace.redacted
    played = Replay(trace, ToolRegistry(TOOLS))
    assert len(list(played.run())) > len(PLAN["steps"])
    assert played.divergence is None


@pytest.mark.virtual_time
@pytest.mark.parametrize("bad", [0, 1023, 2**40, True, "1000"])
async def test_the_limit_of_an_output_is_a_setting(bad: Any) -> None:
    """Law: ``max_output_bytes`` counts, and what is no limit is refused."""

    @tool(effect="read")
    async def big(size: int) -> str:
        return "x" * size

    plan = {"steps": [{"step_id": 1, "tool": "big", "params": {"size": 5000}}]}
    async with Coordinator.open("memory://", [big], max_output_bytes=5002) as coordinator:
        assert (await coordinator.run(plan)).status == "COMPLETED"
    async with Coordinator.open("memory://", [big], max_output_bytes=5001) as coordinator:
        outcome = await coordinator.run(plan)
    assert outcome.body["steps"][0]["error"]["error_code"] == "output_too_large"
    with pytest.raises(SettingInvalid, match="max_output_bytes"):
        async with Coordinator.open("memory://", [big], max_output_bytes=bad):
            pass


class Listens:
    """An advisor that knows no way and keeps what it was told."""

    model = "listens"

    def __init__(self) -> None:
        self.told: list[Any] = []

    async def advise(self, request: Any, check: Any) -> Any:
        self.told.append(request)
        raise PlannerFailed("no idea")


@pytest.mark.parametrize("on_failure", ["replan", "compensate"])
async def test_a_model_is_told_nothing_sensitive(on_failure: str) -> None:
    """Law: what a planner is asked holds neither params nor echoes, input, goal or steps that are still to come."""
    steps = [*PLAN["steps"], {**PLAN["steps"][1], "step_id": 4}]
    if on_failure == "compensate":
        steps[0] = {**steps[0], "rollback": {"tool": "deny", "params": {"why": CARD}}}
    advisor = Listens()
    async with Coordinator.open("memory://", [*TOOLS, deny], advisor=advisor) as coordinator:
        await coordinator.run({**PLAN, "steps": steps, "on_failure": on_failure}, saga_id="s1")
    assert advisor.told
    hidden([repr(request) for request in advisor.told])
    assert "[redacted]" in repr(advisor.told)


@tool(retry=RetryPolicy(max_attempts=1))
async def deny(why: str) -> dict:
    raise ToolError(f"not undone: {why}", error_code="refused", retryable=False)


@pytest.mark.parametrize("policy", ["strict", "rollback"])
async def test_a_session_that_went_another_way_says_so_without_the_values(policy: Any) -> None:
    """Law: what an agent does otherwise than before is told and journalled without the values of sensitive params."""
    other = "5500-0000-0000-0004"
    async with Coordinator.open(f"memory://sensitive-diverged-{policy}", TOOLS) as coordinator:
        with pytest.raises(Interrupted):
            async with coordinator.session("s1") as session:
                await session.call("pay", card=CARD, pin=PIN, amount=1)
                raise Interrupted("the process ends")
    async with Coordinator.open(f"memory://sensitive-diverged-{policy}", TOOLS) as coordinator:
        with pytest.raises(SessionDiverged) as refused:
            async with coordinator.session("s1", on_divergence=policy) as session:
                await session.call("pay", card=other, pin=PIN, amount=1)
        told = hidden([str(refused.value), refused.value.context, await coordinator.history("s1")])
    assert other not in told
    assert "they differ in what is not shown" in told
    assert "[redacted]" in str(refused.value)


async def test_observers_of_a_queued_saga_see_no_sensitive_value() -> None:
    """The record with which a detached submission starts is masked for observers, as every other record is."""
    told: list[Any] = []
    async with Coordinator.open("memory://", TOOLS, observers=[lambda _, record: told.append(record)]) as coordinator:
        await coordinator.submit(PLAN, saga_id="s1", detach=True)
    assert [type(record).__name__ for record in told] == ["SagaStarted"]
    hidden(msgspec.json.encode(told).decode())


async def test_a_masked_error_keeps_its_types_in_the_list() -> None:
    """The error in a listing has the types that it has without anything sensitive."""
    async with Coordinator.open("memory://", TOOLS) as coordinator:
        await coordinator.run(PLAN, saga_id="s1")
        (head,) = await coordinator.list()
    error = json.loads(hidden(head.summary.decode()))["error"]
    assert (error["code"], error["step_id"], error["message"]) == ("step-failed", 3, "refused: [redacted]")


@pytest.mark.parametrize("shape", ["field", "deep", "text"])
async def test_the_value_before_a_call_tells_nobody(shape: str) -> None:
    """Law: what a read shows of a sensitive param, before and after the call and at the undo, is in no view either."""
    olds, other = ["old-door-code-1"], "strange-code-77"
    told: list[Any] = []

    @tool(effect="read")
    async def read_code(door: str) -> Any:
        return {"field": {"code": olds[-1]}, "deep": {"door": [{"code": olds[-1]}]}, "text": olds[-1]}[shape]

    @tool(before=read_code, undo="set_code", sensitive=["code"])
    async def set_code(door: str, code: str) -> dict:
        olds.append(code)
        return {}

    @tool(retry=RetryPolicy(max_attempts=1))
    async def tattle() -> dict:
        olds.append(other)
        raise ToolError(f"it was {olds[0]}", retryable=False)

    tools = [read_code, set_code, tattle]
    step = {"step_id": 1, "tool": "set_code", "params": {"door": "north", "code": "sesame-open"}}
    step["rollback"] = {"tool": "set_code", "params": {"door": "north", "code": {"field": "$before.code", "deep": "$before.door[0].code", "text": "$before"}[shape]}}  # fmt: skip
    async with Coordinator.open(
        "memory://", tools, on_escalation=lambda question: told.append(question.to_dict())
    ) as coordinator:
        asked = await coordinator.run(
            {"steps": [step, {"step_id": 2, "tool": "tattle", "kind": "pivot"}]}, saga_id="s1"
        )
        assert asked.body["questions"][0]["kind"] == "drift"
        ended = await coordinator.resolve("s1", 1, "undo")
        lines = await coordinator.trace("s1")
        views = [told, asked.body, ended.body, await coordinator.history("s1", full=True), lines]
    assert (ended.status, olds[-1]) == ("COMPENSATED", olds[0])
    for view in views:
        text = hidden(view)
        assert olds[0] not in text
        assert other not in text
    (trace,) = read_trace([f"{line}\n".encode() for line in lines])
    played = Replay(trace, ToolRegistry(tools))
    assert list(played.run())
    assert played.divergence is None
