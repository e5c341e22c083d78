"""Sagas whose calls pass guards: approvals, blocks, fallbacks, deferred steps, results of other sagas."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from saga_engine import Coordinator, RetryPolicy, ToolError, tool
from saga_engine.analysis.replay import Replay
from saga_engine.analysis.trace_file import read
from saga_engine.errors import DecisionRefused
from saga_engine.ports import Question

ONCE = RetryPolicy(max_attempts=1)
LOG: list[str] = []
DOWN: set[str] = set()


@pytest.fixture(autouse=True)
def fresh() -> None:
    LOG.clear()
    DOWN.clear()


def reach(name: str) -> None:
    if name in DOWN:
        raise ToolError("no line", error_code="down", retryable=True)


@tool(undo="unwire", retry=ONCE)
async def wire(amount: float) -> dict:
    reach("wire")
    LOG.append(f"wire {amount}")
    return {"ref": f"w{amount}"}


@tool
async def unwire(ref: str) -> dict:
    LOG.append(f"unwire {ref}")
    return {}


@tool(undo="unpay", retry=ONCE)
async def pay(amount: float) -> dict:
    reach("pay")
    LOG.append(f"pay {amount}")
    return {"ref": f"p{amount}"}


@tool
async def unpay(ref: str) -> dict:
    LOG.append(f"unpay {ref}")
    return {}


@tool(undo="unwire", retry=ONCE)
async def fail() -> dict:
    raise ToolError("never", error_code="never")


@tool(effect="read", retry=ONCE, last_good_s=3600)
async def price(of: str) -> dict:
    reach("price")
    LOG.append(f"price {of}")
    return {"eur": 7}


@tool(undo="unwire", dedupe_ttl_s=3600, retry=ONCE)
async def order(what: str) -> dict:
    LOG.append(f"order {what}")
    return {"ref": f"o-{what}"}


TOOLS = [wire, unwire, pay, unpay, fail, price, order]
ASK = {
    "rules": [
        {"name": "large", "tools": ["wire"], "verdict": "ask", "when": [{"param": "amount", "op": ">", "value": 100}]}
    ]
}
NEVER = {"rules": [{"name": "never", "tools": ["wire"], "verdict": "deny", "message": "no wires"}]}
KEEP = {"rules": [{"name": "keep", "tools": ["unwire"], "verdict": "deny"}]}


def plan(*steps: Any, **fields: Any) -> dict[str, Any]:
    listed = [step if isinstance(step, dict) else {"tool": step} for step in steps]
    return {"steps": [{"step_id": number, **step} for number, step in enumerate(listed, 1)], **fields}


def wired(amount: float) -> dict[str, Any]:
    return {"tool": "wire", "params": {"amount": amount}}


def statuses(outcome: Any) -> list[str]:
    return [step["status"] for step in outcome.body["steps"]]


# --- the policy ----------------------------------------------------------------------------------------------------


async def test_a_blocked_step_is_not_a_failed_one_and_what_happened_is_undone() -> None:
    """A deny is recorded as blocked; nothing was called, and the saga turns around because of it."""
    async with Coordinator.open("memory://", TOOLS, policy=NEVER) as engine:
        outcome = await engine.run(plan({"tool": "pay", "params": {"amount": 1}}, wired(1)))
        assert outcome.status == "COMPENSATED"
        assert statuses(outcome) == ["COMPENSATED", "BLOCKED"]
        assert outcome.body["error"]["code"] == "blocked"
        assert outcome.body["steps"][1]["error"]["error_code"] == "policy_denied"
        assert LOG == ["pay 1", "unpay p1"]
        kinds = [record["k"] for record in await engine.history(outcome.saga_id)]
        assert "StepBlocked" in kinds
        assert "StepFailed" not in kinds


async def test_a_denied_undo_is_a_question_and_nothing_is_called_compensated() -> None:
    """A deny on a compensation escalates."""
    async with Coordinator.open("memory://", TOOLS, policy=KEEP) as engine:
        outcome = await engine.run(plan(wired(1), "fail"))
        assert outcome.status == "ESCALATED"
        (question,) = outcome.body["questions"]
        assert (question["kind"], question["options"]) == ("undo-blocked", ["undone", "retry", "accept"])
        assert outcome.report["failed"] == [1]
        ended = await engine.resolve(outcome.saga_id, 1, "undone")
        assert ended.status == "COMPENSATED"
        assert LOG == ["wire 1"]


FORWARD = {"rules": [{**ASK["rules"][0], "tools": ["wire", "un*"], "direction": "forward", "when": []}]}


@pytest.mark.parametrize(
    ("rollback", "stands"),
    [
        (None, ["unpay p5.0"]),
        ({"tool": "unpay", "params": {"ref": "$output.step_1.ref"}}, ["unpay p5.0"]),
        ({"tool": "unpay", "params": {"ref": "p9"}}, []),
        ({"tool": "unwire", "params": {"ref": "$output.step_1.ref"}}, []),
        ({"tool": "wire", "params": {"amount": 99999}}, []),
    ],
)
async def test_rules_for_forward_calls_check_a_rollback_that_is_not_the_registered_undo(rollback, stands) -> None:
    """The plan's author chooses tool and target of a rollback, so it passes no rule that a forward call would not pass."""
    paid = {"tool": "pay", "params": {"amount": 5.0}} | ({} if rollback is None else {"rollback": rollback})
    async with Coordinator.open("memory://", TOOLS, policy=FORWARD) as engine:
        outcome = await engine.run(plan(paid, {"tool": "fail"}))
        assert ["pay 5.0", *stands] == LOG
        assert outcome.status == ("COMPENSATED" if stands else "ESCALATED")


@pytest.mark.parametrize(("ref", "status"), [("$output.ref", "COMPENSATED"), ("p9", "ESCALATED")])
async def test_the_same_holds_for_the_undo_that_an_agent_chose(ref: str, status: str) -> None:
    """In a session a call's undo is registered, or checked as a forward call as well."""
    async with Coordinator.open("memory://", TOOLS, policy=FORWARD) as engine:
        with pytest.raises(LookupError):
            async with engine.session("s") as s:
                await s.call("pay", amount=5.0, undo=("unpay", {"ref": ref}))
                raise LookupError
        assert (await engine.show("s")).status == status


async def test_an_approval_lets_exactly_one_call_through() -> None:
    """The question shows the exact call; approved, it is made once, and a later large call asks again."""
    async with Coordinator.open("memory://", TOOLS, policy=ASK) as engine:
        outcome = await engine.run(plan(wired(1000), wired(50), wired(1000)))
        assert outcome.status == "ESCALATED"
        (question,) = outcome.body["questions"]
        assert question["kind"] == "approval"
        assert question["params"] == {"amount": 1000}
        assert question["rule"] == "large"
        assert LOG == []
        again = await engine.resolve(outcome.saga_id, 1, "approve", by="ada")
        assert LOG == ["wire 1000", "wire 50"]
        assert again.status == "ESCALATED"
        assert again.body["questions"][0]["call"] != question["call"]
        assert (await engine.resolve(outcome.saga_id, 3, "approve")).completed
        assert LOG == ["wire 1000", "wire 50", "wire 1000"]


async def test_a_denied_call_is_never_made() -> None:
    """Deny blocks the step: the saga is undone, and who denied it stands in the record."""
    async with Coordinator.open("memory://", TOOLS, policy=ASK) as engine:
        outcome = await engine.run(plan(wired(50), wired(1000)))
        ended = await engine.resolve(outcome.saga_id, 2, "deny", by="ada", note="too much")
        assert ended.status == "COMPENSATED"
        assert statuses(ended) == ["COMPENSATED", "BLOCKED"]
        assert "ada denied the call: too much" in ended.body["steps"][1]["error"]["message"]
        assert LOG == ["wire 50", "unwire w50"]


@pytest.mark.virtual_time
async def test_an_approval_that_nobody_gave_in_time_denies_the_call() -> None:
    """The question expires: the saga goes on by itself in this process, and a late approval is refused."""
    rules = {"rules": [{**ASK["rules"][0], "expires_s": 0.05}]}
    async with Coordinator.open("memory://", TOOLS, policy=rules) as engine:
        outcome = await engine.run(plan(wired(1000)))
        assert outcome.status == "ESCALATED"
        while not (await engine.show(outcome.saga_id)).ended:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        ended = await engine.show(outcome.saga_id)
        assert statuses(ended) == ["BLOCKED"]
        assert ended.body["steps"][0]["error"]["error_code"] == "approval_expired"
        with pytest.raises(DecisionRefused):
            await engine.resolve(outcome.saga_id, 1, "approve")
        assert LOG == []


async def test_people_are_told_of_an_approval_with_the_exact_call() -> None:
    """The hook gets the params, the rule's word and when the question expires."""
    told: list[Question] = []
    async with Coordinator.open("memory://", TOOLS, policy=ASK, on_escalation=told.append) as engine:
        await engine.run(plan(wired(1000)))
    (question,) = told
    assert (question.kind, question.options) == ("approval", ("approve", "deny"))
    assert question.params == {"amount": 1000}
    assert question.expires_ms is not None


async def test_a_secret_never_shows_in_a_question(monkeypatch) -> None:
    """What a person approves holds a marker where the secret goes."""
    monkeypatch.setenv("PIN", "1234-5678")
    rules = {"rules": [{"name": "all", "tools": ["price"], "verdict": "ask"}]}
    async with Coordinator.open("memory://", TOOLS, policy=rules, secrets={"price": ["PIN"]}) as engine:
        outcome = await engine.run(plan({"tool": "price", "params": {"of": "$secret.PIN"}}))
        assert outcome.body["questions"][0]["params"] == {"of": "$secret.PIN"}
        await engine.resolve(outcome.saga_id, 1, "approve")
        assert LOG == ["price 1234-5678"]
        assert "1234-5678" not in str(await engine.history(outcome.saga_id))


# --- fallbacks -----------------------------------------------------------------------------------------------------


async def test_another_tool_stands_in_and_is_undone_by_its_own_undo() -> None:
    """What was used is journalled, and its own rollback undoes it."""
    DOWN.add("wire")
    step = {**wired(5), "fallback": {"tool": "pay"}}
    async with Coordinator.open("memory://", TOOLS) as engine:
        outcome = await engine.run(plan(step, "fail"))
        assert outcome.status == "COMPENSATED"
        assert LOG == ["pay 5", "unpay p5"]
        shown = outcome.body["steps"][0]
        assert shown["fallback"] == {"number": 1, "tool": "pay"}
        assert shown["compensation"]["tool"] == "unpay"


async def test_a_resumed_saga_undoes_the_fallback_that_was_used() -> None:
    """The choice is in the journal: whoever takes the saga over knows what to undo."""
    DOWN.add("wire")
    step = {**wired(5), "fallback": {"tool": "pay"}}
    async with Coordinator.open("memory://resumed", TOOLS, policy=ASK) as engine:
        outcome = await engine.run(plan(step, wired(1000)))
        assert outcome.status == "ESCALATED"
    async with Coordinator.open("memory://resumed", TOOLS, policy=ASK) as other:
        ended = await other.resolve(outcome.saga_id, 2, "deny")
        assert ended.status == "COMPENSATED"
    assert LOG == ["pay 5", "unpay p5"]


async def test_the_last_good_result_stands_in_for_a_read_and_says_how_old_it_is() -> None:
    """A cached result is used only when the tool cannot be reached, and the record has its age."""
    step = {"tool": "price", "params": {"of": "x"}, "fallback": {"cached_s": 60}}
    async with Coordinator.open("memory://", TOOLS) as engine:
        assert (await engine.run(plan(step))).completed
        DOWN.add("price")
        outcome = await engine.run(plan(step))
        assert outcome.completed
        assert outcome.output(1) == {"eur": 7}
        assert outcome.body["steps"][0]["via"] == "cache"
        assert outcome.body["steps"][0]["age_ms"] >= 0
        assert LOG == ["price x"]
        unknown = await engine.run(plan({**step, "params": {"of": "y"}}))
        assert unknown.status == "COMPENSATED"


async def test_a_deferred_step_waits_tells_people_and_goes_on() -> None:
    """'Queue it and tell': one notice goes out, and the step is called again until its tool is there."""
    DOWN.add("wire")
    told: list[Question] = []
    step = {**wired(5), "fallback": {"queue_s": 0.01}}
    async with Coordinator.open("memory://", TOOLS, on_escalation=told.append) as engine:
        handle = await engine.submit(plan(step, deadline_s=600))
        while len([r for r in await engine.history(handle.saga_id) if r["k"] == "StepDeferred"]) < 3:  # noqa: ASYNC110
            await asyncio.sleep(0)
        DOWN.clear()
        outcome = await handle.wait()
    assert outcome.completed
    assert LOG == ["wire 5"]
    assert [(question.kind, question.options) for question in told] == [("deferred", ())]


async def test_a_deferred_step_gives_up_at_the_deadline() -> None:
    """The deadline ends the waiting like any other: what happened is undone."""
    DOWN.add("wire")
    step = {**wired(5), "fallback": {"queue_s": 0.01}}
    async with Coordinator.open("memory://", TOOLS) as engine:
        outcome = await engine.run(plan({"tool": "pay", "params": {"amount": 1}}, step, deadline_s=1.5))
    assert outcome.status == "COMPENSATED"
    assert outcome.body["error"]["code"] == "deadline"
    assert LOG == ["pay 1", "unpay p1"]


async def test_a_final_no_of_the_tool_does_not_fall_back_to_waiting() -> None:
    """Waiting helps only where the tool could not be reached, not where it said no."""
    step = {"tool": "fail", "fallback": {"queue_s": 0.01}}
    async with Coordinator.open("memory://", TOOLS) as engine:
        outcome = await engine.run(plan(step, deadline_s=600))
    assert outcome.status == "COMPENSATED"


# --- the results of other sagas ------------------------------------------------------------------------------------


async def test_a_second_identical_call_gets_the_first_result_and_says_so() -> None:
    """Across sagas: one effect, the record names whose it is, and its undo belongs to the saga that made it."""
    step = {"tool": "order", "params": {"what": "tea"}}
    async with Coordinator.open("memory://", TOOLS) as engine:
        first = await engine.run(plan(step))
        second = await engine.run(plan(step, "fail"))
        assert LOG == ["order tea"]
        assert second.status == "COMPENSATED"
        shown = second.body["steps"][0]
        assert shown["via"] == "deduplicated"
        assert first.saga_id in shown["source"]
        assert shown["compensation"] is None
        assert second.report == {
            "compensated": [], "failed": [], "unresolved": [], "left_in_place": [], "clean": True,
        }  # fmt: skip


async def test_an_effect_that_another_saga_relies_on_is_not_undone_behind_its_back() -> None:
    """The saga that made it fails: a person is told that somebody else counts on it."""
    step = {"tool": "order", "params": {"what": "tea"}}
    async with Coordinator.open("memory://", TOOLS, policy=ASK) as engine:
        first = await engine.run(plan(step, wired(1000)))
        second = await engine.run(plan(step))
        assert second.completed
        ended = await engine.resolve(first.saga_id, 2, "deny")
        assert ended.status == "ESCALATED"
        assert ended.body["questions"][0]["error"]["error_code"] == "result_shared"
        assert LOG == ["order tea"]


async def test_two_identical_legitimate_calls_of_one_saga_are_two_calls() -> None:
    """The memory is between sagas: what one plan says twice is done twice, and undone twice."""
    step = {"tool": "order", "params": {"what": "tea"}}
    async with Coordinator.open("memory://", TOOLS) as engine:
        assert (await engine.run(plan(wired(5), wired(5)))).completed
        assert LOG == ["wire 5", "wire 5"]
        LOG.clear()
        assert (await engine.run(plan(step, step, "fail"))).status == "COMPENSATED"
        assert LOG == ["order tea", "order tea", "unwire o-tea", "unwire o-tea"]


# --- waiting -------------------------------------------------------------------------------------------------------


@tool(undo="unwire", retry=ONCE, resource="account")
async def alone(what: str) -> dict:
    if what in GATES:
        await GATES[what].wait()
    LOG.append(f"alone {what}")
    return {"ref": what}


GATES: dict[str, asyncio.Event] = {}


async def test_a_call_that_waits_when_its_process_closes_is_made_by_whoever_goes_on() -> None:
    """It was no attempt: the saga does not fail for it, although its tool allows only one."""
    GATES["first"] = asyncio.Event()
    tools = [*TOOLS, alone]
    async with Coordinator.open("memory://waits", tools) as engine:
        first = await engine.submit(plan({"tool": "alone", "params": {"what": "first"}}))
        second = await engine.submit(plan({"tool": "alone", "params": {"what": "second"}}))
        while "StepIntended" not in [r["k"] for r in await engine.history(second.saga_id)]:  # noqa: ASYNC110
            await asyncio.sleep(0)
        asyncio.get_running_loop().call_soon(GATES["first"].set)
    async with Coordinator.open("memory://waits", tools) as other:
        assert (await other.resume(first.saga_id)).completed
        outcome = await other.resume(second.saga_id)
        assert outcome.completed
    assert LOG == ["alone first", "alone second"]
    GATES.clear()


async def kinds(engine: Coordinator, saga_id: str) -> list[str]:
    return [record["k"] for record in await engine.history(saga_id)]


async def test_a_wait_is_in_the_journal_and_no_wait_is_not() -> None:
    """The mark of a call that waits is followed by that of its beginning; both play again. No wait, no mark."""
    GATES["first"] = asyncio.Event()
    async with Coordinator.open("memory://", [*TOOLS, alone]) as engine:
        first = await engine.submit(plan({"tool": "alone", "params": {"what": "first"}}))
        second = await engine.submit(plan({"tool": "alone", "params": {"what": "second"}}))
        while "StepQueued" not in await kinds(engine, second.saga_id):  # noqa: ASYNC110
            await asyncio.sleep(0)
        GATES["first"].set()
        assert (await first.wait()).completed
        assert (await second.wait()).completed
        marked = ["SagaStarted", "StepIntended", "StepQueued", "StepBegun", "StepSucceeded", "SagaCompleted"]
        assert await kinds(engine, second.saga_id) == marked
        assert "StepQueued" not in await kinds(engine, first.saga_id)
        for trace in read(line.encode() + b"\n" for line in await engine.trace(second.saga_id, full=True)):
            replay = Replay(trace, engine.tools)
            assert [type(moment.record).__name__ for moment in replay.run()] == marked[1:]
            assert replay.divergence is None
    GATES.clear()


async def test_a_process_that_lost_its_saga_while_a_call_waited_does_not_begin_it() -> None:
    """Its beginning waits for the fence, which refuses it: the call is made once, by whoever took the saga over."""
    GATES["first"] = asyncio.Event()
    tools = [*TOOLS, alone]
    async with Coordinator.open("memory://fenced", tools) as engine:
        first = await engine.submit(plan({"tool": "alone", "params": {"what": "first"}}))
        second = await engine.submit(plan({"tool": "alone", "params": {"what": "second"}}))
        while "StepQueued" not in await kinds(engine, second.saga_id):  # noqa: ASYNC110
            await asyncio.sleep(0)
        head = await engine.store.head(second.saga_id)
        await engine.store.acquire(second.saga_id, head.owner)  # a new epoch: whoever has the old one may not append
        GATES["first"].set()
        assert (await first.wait()).completed
        assert (await second.wait()).completed
        taken_up = ["SagaResumed", "StepIntended", "StepSucceeded", "SagaCompleted"]
        assert await kinds(engine, second.saga_id) == ["SagaStarted", "StepIntended", "StepQueued", *taken_up]
    assert LOG == ["alone first", "alone second"]
    GATES.clear()


async def test_an_identical_call_that_is_under_way_is_waited_for() -> None:
    """The second saga gets the first one's result, not an error, although it asked too early."""
    started, go = asyncio.Event(), asyncio.Event()

    @tool(undo="unwire", dedupe_ttl_s=3600, retry=ONCE, name="slow_order")
    async def slow_order(what: str) -> dict:
        started.set()
        await go.wait()
        LOG.append(f"order {what}")
        return {"ref": what}

    step = {"tool": "slow_order", "params": {"what": "tea"}}
    async with Coordinator.open("memory://", [*TOOLS, slow_order]) as engine:
        first = await engine.submit(plan(step))
        await started.wait()
        second = await engine.submit(plan(step))
        while "StepIntended" not in [r["k"] for r in await engine.history(second.saga_id)]:  # noqa: ASYNC110
            await asyncio.sleep(0)
        go.set()
        assert (await first.wait()).completed
        outcome = await second.wait()
        assert outcome.completed
        assert outcome.body["steps"][0]["via"] == "deduplicated"
    assert LOG == ["order tea"]
