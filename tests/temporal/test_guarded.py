"""What the engine does around a call, done in Temporal: guards, secrets, changed and missing tools, large values, models."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from saga_engine import BreakerPolicy, RetryPolicy, ToolContext, ToolError, tool
from saga_engine.analysis.trace_file import verify
from saga_engine.core.fold import state_at_start
from saga_engine.core.interpret import Advice
from saga_engine.core.records import Written
from saga_engine.core.state import State
from saga_engine.errors import ModelUnreachable
from saga_engine.plan.values import canonical
from saga_engine.ports import CompensationRequest, ReplanRequest
from saga_engine.temporal.secrets import filled, marked
from saga_engine.testing.scripted import ScriptedPlanner
from saga_engine.tools.registry import ToolRegistry
from tests.kill.polling import eventually
from tests.planner import stuck_world
from tests.temporal.conftest import Place

ONCE = RetryPolicy(max_attempts=1)
MADE: list[Any] = []


@pytest.fixture(autouse=True)
def fresh() -> None:
    MADE.clear()


@tool(undo="unwire", retry=ONCE)
async def wire_money(amount: float) -> dict:
    MADE.append(("wire", amount))
    return {"ref": f"w{amount}"}


@tool(retry=ONCE)
async def unwire(ref: str) -> dict:
    MADE.append(("unwire", ref))
    return {}


@tool(effect="read", retry=ONCE)
async def login(token: str, note: str = "") -> dict:
    MADE.append((token, note))
    return {"echo": f"hello {token}", "said": note}


@tool(effect="read", retry=ONCE, breaker=BreakerPolicy(failures=1, open_s=600))
async def flaky() -> dict:
    MADE.append("flaky")
    raise ToolError("down", error_code="down", retryable=True)


TOOLS = [wire_money, unwire, login, flaky]


def wired(amount: Any) -> dict[str, Any]:
    return {"steps": [{"step_id": 1, "tool": "wire_money", "params": {"amount": amount}}]}


# --- guards ----------------------------------------------------------------------------------------------------------


async def test_a_denied_call_is_never_made(place: Place) -> None:
    """The worker's policy is asked before each call; what it denies is blocked, not failed."""
    deny = {"rules": [{"name": "never", "tools": ["wire_money"], "verdict": "deny", "message": "no wires"}]}
    async with place.both(TOOLS, policy=deny) as coordinator:
        outcome = await coordinator.run(wired(7.0), saga_id=place.saga_id("deny"))
        await place.replayed(coordinator, outcome.saga_id)
    assert outcome.body["steps"][0]["status"] == "BLOCKED"
    assert outcome.status == "COMPENSATED"
    assert MADE == []


async def test_an_approval_lets_the_exact_call_pass(place: Place) -> None:
    """A call that the policy asks about waits for a person, who sees its exact params, and is made once approved."""
    ask = {"rules": [{"name": "large", "tools": ["wire_money"], "verdict": "ask"}]}
    async with place.both(TOOLS, policy=ask) as coordinator:
        outcome = await coordinator.run(wired(700.0), saga_id=place.saga_id("ask"))
        assert outcome.status == "ESCALATED"
        shown = await coordinator.show(outcome.saga_id)
        assert shown.body["questions"][0]["params"] == {"amount": 700.0}
        assert MADE == []
        outcome = await coordinator.resolve(outcome.saga_id, 1, "approve", by="ada")
    assert outcome.completed
    assert MADE == [("wire", 700.0)]


async def test_workers_share_their_breakers(place: Place, new_place: Any) -> None:
    """A breaker that one worker's call opened keeps another worker's call back: the guards' state is in the store."""
    plan = {"steps": [{"step_id": 1, "tool": "flaky", "params": {}}]}
    other, store = new_place(), f"memory://breakers-{place.number}"
    at_once = {"guard_wait_s": 0}
    async with place.both(TOOLS, store=store, durability="relaxed", limits=at_once) as one:
        first = await one.run(plan, saga_id=place.saga_id("b"))
    async with other.both(TOOLS, store=store, durability="relaxed", limits=at_once) as two:
        second = await two.run(plan, saga_id=other.saga_id("b"))
    assert first.body["steps"][0]["error"]["error_code"] == "down"
    assert second.body["steps"][0]["error"]["error_code"] == "breaker_open"
    assert MADE == ["flaky"]


async def test_a_step_waits_for_a_breaker(place: Place) -> None:
    """The refusal is a record that counts no attempt; once the breaker lets a call through the saga goes on."""
    made: list[int] = []

    @tool(undo="free", breaker=BreakerPolicy(failures=1, open_s=3), retry=RetryPolicy(max_attempts=2, base_s=0.01))
    async def hold(item: str, idempotency_key: str) -> dict:
        made.append(1)
        if len(made) == 1:
            raise ToolError("down", error_code="down", retryable=True)
        return {"ref": item}

    @tool
    async def free(ref: str) -> None: ...

    plan = {"steps": [{"step_id": 1, "tool": "hold", "params": {"item": "a"}}]}
    async with place.both([hold, free], store=f"memory://waits-{place.number}", durability="relaxed") as coordinator:
        outcome = await coordinator.run(plan, saga_id=place.saga_id("waits"))
        history = await coordinator.history(outcome.saga_id)
        await place.replayed(coordinator, outcome.saga_id)
    assert (outcome.status, len(made)) == ("COMPLETED", 2)
    waited = [record for record in history if record["k"] == "StepRetryScheduled"]
    assert waited[0]["error"]["error_code"] == "down"
    assert {record["error"]["error_code"] for record in waited[1:]} == {"breaker_open"}
    assert [record["counted"] for record in waited[1:]] == [False] * len(waited[1:])


# --- secrets ---------------------------------------------------------------------------------------------------------


async def test_a_secret_is_in_no_history(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tool gets the secret; Temporal's history, the journal and the trace have a marker, also where the tool echoes it."""
    monkeypatch.setenv("BANK_TOKEN", "s3cr3t-value")
    steps = [
        {"step_id": 1, "tool": "login", "params": {"token": "Bearer {$secret.BANK_TOKEN}"}},
        {"step_id": 2, "tool": "login", "params": {"token": "$secret.BANK_TOKEN", "note": "$output.step_1.echo"}},
    ]
    async with place.both(TOOLS, secrets={"login": ["BANK_TOKEN"]}) as coordinator:
        outcome = await coordinator.run({"steps": steps}, saga_id=place.saga_id("s"))
        histories = await place.replayed(coordinator, outcome.saga_id)
        trace = "\n".join(await coordinator.trace(outcome.saga_id))
    assert outcome.completed
    assert MADE == [("Bearer s3cr3t-value", ""), ("s3cr3t-value", "hello Bearer $secret.BANK_TOKEN")]
    assert outcome.output(1)["echo"] == "hello Bearer $secret.BANK_TOKEN"
    for text in (*(history.to_json() for history in histories), trace, str(outcome.to_dict())):
        assert "s3cr3t-value" not in text


_TEXTS = st.text(max_size=20) | st.sampled_from(["⟪", "⟫", ":TOKEN⟫", "⟪0:TOKEN⟫", "$secret.TOKEN", "0" * 32])


@given(said=_TEXTS, numbers=st.lists(st.integers(0, 3), min_size=1, max_size=4))
@example(said=f"⟪{0:032x}:TOKEN⟫", numbers=[0])  # a guess that is right
def test_only_marks_become_secrets(said: str, numbers: list[int]) -> None:
    """Whatever a tool's output says, and whatever the dice give, exactly the plan's own places hold the secret in the end."""
    state = _state_with_output(said)
    dice = iter([*numbers, *range(4, 99)])
    found = marked(state, state.plan.steps[1].params, lambda _: next(dice))
    made = filled(found.params, found.nonce, {"TOKEN": "VALUE"})
    assert made == {"token": f"{said}VALUE{said}", "note": said}
    assert found.masked == {"token": f"{said}$secret.TOKEN{said}", "note": said}


def _state_with_output(said: str) -> State:
    from saga_engine.core.evolve import evolve
    from saga_engine.core.records import SagaStarted, StepIntended, StepSucceeded

    text = "{$output.step_1.said}{$secret.TOKEN}{$output.step_1.said}"
    plan = {
        "steps": [
            {"step_id": 1, "tool": "login", "params": {"token": "x"}},
            {"step_id": 2, "tool": "login", "params": {"token": text, "note": "$output.step_1.said"}},
        ]
    }
    started = SagaStarted(at=1, saga_id="s", plan=plan, digest="d", seed="s", reads=["1", "2"])
    state = state_at_start(started, ToolRegistry(TOOLS))
    evolve(state, StepIntended(at=1, step="1"))
    evolve(state, StepSucceeded(at=1, step="1", output={"said": said}))
    assert canonical(state.steps[0].output)
    return state


async def test_a_worker_without_the_secret_makes_no_call(
    place: Place, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A worker whose environment lacks the secret leaves the saga as it is; it goes on where the secret is there.

    Meanwhile the saga shows what it waits for, and the log of each such worker says it once, however often it is asked.
    """
    monkeypatch.delenv("BANK_TOKEN", raising=False)
    plan = {"steps": [{"step_id": 1, "tool": "login", "params": {"token": "$secret.BANK_TOKEN"}}]}
    async with place.both(TOOLS, secrets={"login": ["BANK_TOKEN"]}) as coordinator:
        saga_id = (await coordinator.submit(plan, saga_id=place.saga_id("n"))).saga_id
        await eventually(lambda: _refused(place, coordinator, saga_id, 2), "the call to be offered again")
        assert [record["k"] for record in await coordinator.history(saga_id)] == ["SagaStarted", "StepIntended"]
        error = (await coordinator.show(saga_id)).body["steps"][0]["error"]
        assert (error["error_code"], "BANK_TOKEN" in error["message"]) == ("secret_missing", True)
        monkeypatch.setenv("BANK_TOKEN", "there")
        outcome = await coordinator.wait(saga_id)
        await place.replayed(coordinator, saga_id)
    assert outcome.completed
    assert outcome.body["steps"][0]["error"] is None
    assert MADE == [("there", "")]
    warned = [
        each.getMessage() for each in caplog.records if saga_id in each.getMessage() and each.levelname == "WARNING"
    ]
    assert len(warned) == 1
    assert "step 1 " in warned[0]
    assert "BANK_TOKEN" in warned[0]


async def _refused(place: Place, coordinator: Any, saga_id: str, times: int = 1) -> bool:
    history = (await place.histories(coordinator, saga_id))[0]
    return sum(event.HasField("activity_task_completed_event_attributes") for event in history.events) >= times


# --- tools that are missing or have changed -----------------------------------------------------------------------------


async def test_a_missing_tool_leaves_the_saga_as_it_is(place: Place) -> None:
    """Workers without the tool change nothing; a cancel need not wait for one that has it."""
    async with place.client(TOOLS) as coordinator, place.worker([login]):
        saga_id = (await coordinator.submit(wired(1.0), saga_id=place.saga_id("m"))).saga_id
        await eventually(lambda: _refused(place, coordinator, saga_id), "the call to be refused by the worker")
        assert [record["k"] for record in await coordinator.history(saga_id)] == ["SagaStarted", "StepIntended"]
        outcome = await coordinator.cancel(saga_id)
        await place.replayed(coordinator, saga_id)
    assert outcome.status == "COMPENSATED"
    assert MADE == []


async def test_waiting_for_a_worker_fills_no_history(place: Place) -> None:
    """A call that nobody can begin yet is offered again and again; the saga is continued in other runs meanwhile."""
    # The server may hand the call to the first worker while that one drains: the read is then made again after the lease,
    # as often as that happens.
    retry = {"max_attempts": 5, "base_s": 0}
    plan = {"steps": [{"step_id": 1, "tool": "login", "params": {"token": "t"}, "retry": retry}]}
    async with place.client(TOOLS, events=20, lease_s=10.0) as coordinator:
        async with place.worker([unwire]):
            saga_id = (await coordinator.submit(plan, saga_id=place.saga_id("f"))).saga_id

            async def continued() -> bool:
                return len(await place.histories(coordinator, saga_id)) > 1

            await eventually(continued, "another run")
        async with place.worker(TOOLS):
            outcome = await coordinator.wait(saga_id)
            await place.replayed(coordinator, saga_id)
    assert outcome.completed
    assert set(MADE) == {("t", "")}


async def test_a_tool_that_changed_becomes_a_question(place: Place) -> None:
    """Where today's tool no longer takes the planned params nothing is called; a worker that takes them makes the call."""

    @tool(name="wire_money", undo="unwire", retry=ONCE)
    async def changed(euros: int) -> dict:
        MADE.append(("changed", euros))
        return {"ref": "x"}

    async with place.client(TOOLS) as coordinator:
        async with place.worker([changed, unwire]):
            outcome = await coordinator.run(wired(5.0), saga_id=place.saga_id("t"))
            assert outcome.status == "ESCALATED"
            assert outcome.body["questions"][0]["kind"] == "tool-changed"
            outcome = await coordinator.resolve(outcome.saga_id, 1, "retry")
            assert outcome.body["questions"][0]["kind"] == "tool-changed"
            assert MADE == []
        async with place.worker(TOOLS):
            outcome = await coordinator.resolve(outcome.saga_id, 1, "retry")
            await place.replayed(coordinator, outcome.saga_id)
    assert outcome.completed
    assert MADE == [("wire", 5.0)]


async def test_a_tool_that_changed_beside_a_secret_becomes_a_question(place: Place, monkeypatch: Any) -> None:
    """A parameter that is needed today is missing, whatever the secret's value is: a person is asked, nothing is called."""
    monkeypatch.setenv("BANK_TOKEN", "s3cr3t-value")

    @tool(name="login", effect="read", retry=ONCE)
    async def changed(token: str, pin: int) -> dict:
        MADE.append(("changed", pin))
        return {}

    plan = {"steps": [{"step_id": 1, "tool": "login", "params": {"token": "$secret.BANK_TOKEN"}}]}
    allowed = {"login": ["BANK_TOKEN"]}
    async with place.client(TOOLS, secrets=allowed) as coordinator, place.worker([changed], secrets=allowed):
        outcome = await coordinator.run(plan, saga_id=place.saga_id("ts"))
        await place.replayed(coordinator, outcome.saga_id)
    assert outcome.status == "ESCALATED"
    assert outcome.body["questions"][0]["kind"] == "tool-changed"
    assert "s3cr3t-value" not in str(outcome.to_dict())
    assert MADE == []


# --- time ------------------------------------------------------------------------------------------------------------


async def test_a_call_that_no_worker_began_in_time_was_not_made(place: Place) -> None:
    """Past the deadline a call that the server gave to nobody is 'not done', which is certain: the saga is undone at once."""
    steps = [
        {"step_id": 1, "tool": "wire_money", "params": {"amount": 1.0}},
        {"step_id": 2, "tool": "wire_money", "params": {"amount": 2.0}},
    ]
    busy, let_go = asyncio.Event(), asyncio.Event()

    @tool(name="wire_money", undo="unwire", retry=ONCE)
    async def only_once(amount: float) -> dict:
        MADE.append(("wire", amount))
        return {"ref": "w"}

    @tool(effect="read", retry=ONCE, timeout_s=60)
    async def hog() -> dict:
        busy.set()
        await let_go.wait()
        return {}

    tools = [only_once, unwire, hog]
    async with place.both(tools, concurrency=1) as coordinator:
        await coordinator.submit({"steps": [{"step_id": 1, "tool": "hog", "params": {}}]}, saga_id=place.saga_id("hog"))
        await busy.wait()
        saga_id = (await coordinator.submit({"steps": steps, "deadline_s": 1}, saga_id=place.saga_id("late"))).saga_id

        async def turned() -> bool:
            return any(record["k"] == "DeadlinePassed" for record in await coordinator.history(saga_id))

        await eventually(turned, "the deadline")
        let_go.set()
        outcome = await coordinator.wait(saga_id)
        kinds = [record["k"] for record in await coordinator.history(saga_id)]
        await place.replayed(coordinator, saga_id)
    assert outcome.status == "COMPENSATED"
    assert "StepInDoubt" not in kinds
    assert MADE == []


# --- long sagas and large values ---------------------------------------------------------------------------------------


async def test_a_long_saga_is_continued_in_other_runs(place: Place) -> None:
    """A saga whose history grows long goes on in another run, in mid-saga and on the way back, and nothing is lost or twice."""

    @tool(undo="unwire", retry=ONCE)
    async def count(at: float, ctx: ToolContext) -> dict:
        MADE.append(("did", at, ctx.idempotency_key))
        if at == 9:
            raise ToolError("full", retryable=False)
        return {"ref": str(at)}

    step = {"tool": "count", "rollback": {"tool": "unwire"}}
    steps = [
        {**step, "step_id": at, "params": {"at": at}, "rollback": {"tool": "unwire", "params": {"ref": str(at)}}}
        for at in range(1, 10)
    ]
    async with place.both([count, unwire], events=25) as coordinator:
        outcome = await coordinator.run({"steps": steps}, saga_id=place.saga_id("long"))
        histories = await place.replayed(coordinator, outcome.saga_id)
        lines = await coordinator.trace(outcome.saga_id)
    assert outcome.status == "COMPENSATED"
    assert outcome.report["clean"]
    assert len(histories) > 3
    assert [each[1] for each in MADE if each[0] == "did"] == list(range(1, 10))
    assert [each[1] for each in MADE if each[0] == "unwire"] == [str(at) for at in range(8, 0, -1)]
    assert verify(line.encode() + b"\n" for line in lines).broken is None


@pytest.mark.parametrize("events", [0, 25])
async def test_large_values_stand_beside_temporal(place: Place, events: int) -> None:
    """Outputs of a megabyte are kept by digest in the store, once for all runs; the history holds references to them."""

    @tool(effect="read", retry=ONCE)
    async def large(of: str) -> dict:
        return {"text": of * (1 << 20)}

    @tool(effect="read", retry=ONCE)
    async def small(text: str) -> dict:
        return {"size": len(text)}

    steps: list[dict[str, Any]] = []
    for at in range(1, 7, 2):
        steps.append({"step_id": at, "tool": "large", "params": {"of": "xyz"[at // 2]}})
        steps.append({"step_id": at + 1, "tool": "small", "params": {"text": f"$output.step_{at}.text"}})
    store = f"memory://large-{place.number}"
    async with place.both([large, small], store=store, durability="relaxed", events=events) as coordinator:
        outcome = await coordinator.run({"steps": steps}, saga_id=place.saga_id("large"))
        shown = await coordinator.show(outcome.saga_id)
        histories = await place.replayed(coordinator, outcome.saga_id)
        lines = await coordinator.trace(outcome.saga_id)
    assert outcome.completed
    assert outcome.output(1) == {"text": "x" * (1 << 20)}
    assert outcome.output(2) == {"size": 1 << 20}
    assert shown.body["steps"][0]["output_ref"]["bytes"] > 1 << 20
    assert len(histories) == 1 if not events else len(histories) > 1
    assert sum(len(history.to_json()) for history in histories) < 400_000
    assert verify(line.encode() + b"\n" for line in lines).broken is None


async def test_an_output_that_cannot_travel_is_in_doubt(place: Place) -> None:
    """Without a store an output over Temporal's limit cannot be told: the call is in doubt, with what to do; never 'failed'."""

    @tool(undo="unwire", retry=ONCE)
    async def huge() -> dict:
        MADE.append("huge")
        return {"text": "x" * 2_000_000}

    plan = {
        "steps": [{"step_id": 1, "tool": "huge", "params": {}, "rollback": {"tool": "unwire", "params": {"ref": "h"}}}]
    }
    async with place.both([huge, unwire]) as coordinator:
        outcome = await coordinator.run(plan, saga_id=place.saga_id("h"))
    assert outcome.status == "ESCALATED"
    assert outcome.body["questions"][0]["kind"] == "in-doubt"
    assert outcome.body["steps"][0]["error"]["error_code"] == "output_too_large"
    assert MADE == ["huge"]


# --- models ------------------------------------------------------------------------------------------------------------


class Model:
    """Proposes an apology, or another hotel, like a model would."""

    model = "scripted"

    async def advise(self, request: CompensationRequest | ReplanRequest, check: Any) -> Advice:
        steps = [{"step_id": "other", "tool": "book", "params": {"what": "Ritz"}}]
        if isinstance(request, CompensationRequest):
            steps = [{"step_id": "sorry", "tool": "apologise", "params": {"to": "ada"}}]
        assert not check(steps), check(steps)
        return Advice(steps, Written("scripted"))


async def test_a_model_finds_another_way(place: Place, tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A failed step is replanned: the steps come with the declarations of their tools, so the workflow replays anywhere."""
    monkeypatch.setenv("STUCK_WORLD", str(tmp_path / "world"))
    steps = [{"step_id": 1, "tool": "book", "params": {"what": "Hilton"}}]
    plan = {"goal": "a bed", "steps": steps, "on_failure": "replan"}
    async with place.both(stuck_world.TOOLS, advisor=Model()) as coordinator:
        outcome = await coordinator.run(plan, saga_id=place.saga_id("r"))
        await place.replayed(coordinator, outcome.saga_id)
    assert outcome.completed
    assert (tmp_path / "world").read_text() == "book Ritz\n"


async def test_a_model_that_is_away_is_asked_again_by_a_timer(
    place: Place, tmp_path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The delay is a timer of the workflow, which replays with it; nobody is asked and nothing is undone meanwhile."""
    monkeypatch.setattr("saga_engine.core.asking_later.DELAYS_MS", (200, 200, 200))
    monkeypatch.setenv("STUCK_WORLD", str(tmp_path / "world"))
    other = {"step_id": "other", "tool": "book", "params": {"what": "Ritz"}}
    planner = ScriptedPlanner(ModelUnreachable("the line is down"), [other])
    hilton = {"step_id": 1, "tool": "book", "params": {"what": "Hilton"}}
    plan = {"goal": "a bed", "steps": [hilton], "on_failure": "replan"}
    async with place.both(stuck_world.TOOLS, planner=planner) as coordinator:
        outcome = await coordinator.run(plan, saga_id=place.saga_id("w"))
        assert outcome.completed
        asked = [record["at"] for record in await coordinator.history(outcome.saga_id) if record["k"] == "PlannerAsked"]
        assert asked[1] - asked[0] >= 200
        await place.replayed(coordinator, outcome.saga_id)
    assert (tmp_path / "world").read_text() == "book Ritz\n"


async def test_a_planner_is_asked_again_with_the_problems(
    place: Place, tmp_path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker's planner goes through the one repair loop: a faulty answer returns to it with the saga's problems."""
    monkeypatch.setenv("STUCK_WORLD", str(tmp_path / "world"))
    other = {"step_id": "other", "tool": "book", "params": {"what": "Ritz"}}
    planner = ScriptedPlanner([{**other, "tool": "bok"}], [other])
    plan = {"goal": "a bed", "steps": [{**other, "params": {"what": "Hilton"}}], "on_failure": "replan"}
    async with place.both(stuck_world.TOOLS, planner=planner) as coordinator:
        outcome = await coordinator.run(plan, saga_id=place.saga_id("p"))
        assert outcome.completed
    _, again = planner.asked
    assert "tool-unknown" in [problem.code for problem in again.repair.problems]
    assert (tmp_path / "world").read_text() == "book Ritz\n"


async def test_a_model_makes_up_for_what_cannot_be_undone(
    place: Place, tmp_path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Semantic compensation: steps that a model proposes are approved by a person, and then run on the way back."""
    monkeypatch.setenv("STUCK_WORLD", str(tmp_path / "world"))
    steps = [
        {"step_id": 1, "tool": "tweet", "params": {"text": "hello"}},
        {"step_id": 2, "tool": "book", "params": {"what": "Hilton"}},
    ]
    async with place.both(stuck_world.TOOLS, advisor=Model()) as coordinator:
        outcome = await coordinator.run({"goal": "fame", "steps": steps}, saga_id=place.saga_id("c"))
        assert outcome.body["questions"][0]["kind"] == "compensation"
        outcome = await coordinator.resolve(outcome.saga_id, 1, "approve", by="ada")
        await place.replayed(coordinator, outcome.saga_id)
    assert outcome.status == "COMPENSATED"
    assert (tmp_path / "world").read_text() == "tweet hello\napologise ada\n"
