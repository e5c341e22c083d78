"""The embedded API: what a user may rely on."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from typing import Any

import pytest

from saga_engine import Coordinator, Plan, RetryPolicy, ToolError, run_sync, tool
from saga_engine.errors import (
    CancelRefused,
    DecisionRefused,
    Interrupted,
    PlanInvalid,
    SagaExists,
    SagaNotFound,
    SecretMissing,
    ValueNotJson,
)
from saga_engine.plan.model import load_plan

FAST = RetryPolicy(max_attempts=2, base_s=0.001, max_s=0.001)
LOG: list[Any] = []


@pytest.fixture(autouse=True)
def fresh_log() -> None:
    LOG.clear()


@tool(undo="release")
async def reserve(what: str = "seat") -> dict:
    LOG.append(f"reserve {what}")
    return {"ref": what}


@tool
async def release(ref: str) -> dict:
    LOG.append(f"release {ref}")
    return {}


@tool(undo="release")
async def refuse() -> dict:
    raise ToolError("sold out", error_code="sold_out", suggestion="try tomorrow")


@tool
async def charge(amount: int) -> dict:
    LOG.append(f"charge {amount}")
    return {"paid": amount}


@tool(effect="read", retry=FAST)
async def look() -> dict:
    LOG.append("look")
    return {"free": 3}


TOOLS = [reserve, release, refuse, charge, look]


def plan(*steps: Any, **fields: Any) -> dict[str, Any]:
    """Steps given by tool name, or as objects."""
    listed = [step if isinstance(step, dict) else {"tool": step} for step in steps]
    return {"steps": [{"step_id": number, **step} for number, step in enumerate(listed, 1)], **fields}


@pytest.fixture
async def engine():
    async with Coordinator.open("memory://", TOOLS, secrets={"*": ["*"]}) as coordinator:
        yield coordinator


# --- submitting ----------------------------------------------------------------------------------------------------


async def test_every_form_of_a_plan_is_taken(engine, tmp_path) -> None:
    """A dict, JSON text, bytes, a path, or a Plan that was loaded before."""
    body = plan("reserve")
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(body))
    for source in (body, json.dumps(body), json.dumps(body).encode(), path, load_plan(body)):
        assert (await engine.run(source)).completed
    assert isinstance(load_plan(body), Plan)


async def test_the_same_id_with_the_same_plan_is_the_same_saga(engine) -> None:
    """A second submission calls nothing and gets the first one's outcome."""
    first = await engine.run(plan("reserve"), saga_id="trip-1")
    again = await engine.run(plan("reserve"), saga_id="trip-1")
    assert (first.saga_id, again.output(1), LOG) == (again.saga_id, {"ref": "seat"}, ["reserve seat"])


async def test_the_same_id_submitted_twice_at_once_is_one_saga(engine) -> None:
    """Two submissions of one id in one process meet before anything is journalled."""
    outcomes = await asyncio.gather(*(engine.run(plan("reserve"), saga_id="x") for _ in range(5)))
    assert {outcome.status for outcome in outcomes} == {"COMPLETED"}
    assert LOG == ["reserve seat"]


async def test_the_same_id_with_another_plan_or_input_is_refused(engine) -> None:
    """Whatever differs, the saga that exists is left alone."""
    await engine.run(plan("reserve"), saga_id="x")
    with pytest.raises(SagaExists):
        await engine.run(plan("reserve", "reserve"), saga_id="x")
    with pytest.raises(SagaExists):
        await engine.submit(plan("reserve"), saga_id="x", input={"a": 1})


async def test_a_plan_without_an_id_gets_a_sortable_one(engine) -> None:
    """Later ids are greater."""
    first, second = await engine.run(plan("look")), await engine.run(plan("look"))
    assert first.saga_id[:12] <= second.saga_id[:12]
    assert first.saga_id != second.saga_id


@pytest.mark.parametrize("saga_id", ["", "a b", "a:b", "{x}", "é", "x" * 129, "../x", "a\n"])
async def test_an_id_that_could_not_stand_in_a_key_is_refused(engine, saga_id) -> None:
    """Ids are part of keys, headers and paths; an empty one counts as none."""
    if not saga_id:
        assert (await engine.run(plan("look"), saga_id=saga_id)).saga_id
        return
    with pytest.raises(PlanInvalid):
        await engine.run(plan("look"), saga_id=saga_id)


async def test_submit_returns_when_it_is_journalled_and_not_later(engine) -> None:
    """The saga is in the store when submit returns, although its first call has not answered."""
    go_on = asyncio.Event()

    @tool(undo="release")
    async def slow() -> dict:
        await go_on.wait()
        return {"ref": "slow"}

    engine.tools.add(slow)
    handle = await engine.submit(plan("slow"))
    assert (await engine.show(handle.saga_id)).status == "RUNNING"
    assert not handle.done()
    go_on.set()
    assert (await handle.wait()).completed


async def test_a_detached_saga_waits_for_whoever_resumes_it(engine) -> None:
    """It is journalled as PENDING and nothing is called."""
    handle = await engine.submit(plan("reserve"), detach=True)
    await handle.wait()
    assert ((await engine.show(handle.saga_id)).status, LOG) == ("PENDING", [])
    assert {name: outcome.status for name, outcome in (await engine.resume_all()).items()} == {
        handle.saga_id: "COMPLETED"
    }


async def test_input_is_merged_and_journalled(engine) -> None:
    """`input` given at submission overrules the plan's, and a resume finds it again."""
    body = plan({"tool": "reserve", "params": {"what": "$input.what"}}, input={"what": "aisle"})
    await engine.run(body, input={"what": "window"})
    assert LOG == ["reserve window"]


async def test_an_invalid_plan_journals_nothing(engine) -> None:
    """All problems at once, and the store stays empty."""
    with pytest.raises(PlanInvalid) as caught:
        await engine.run(plan({"tool": "reserv"}, {"tool": "release", "params": {"ref": "$output.step_9.ref"}}))
    assert {"tool-unknown", "binding-unknown-step"} <= {problem.code for problem in caught.value.problems}
    assert await engine.list() == []


async def test_a_saga_that_ends_before_its_first_call_ends(engine) -> None:
    """Its first step's params cannot be made: start, failure and end are one append, which also gives the saga up."""
    body = plan({"tool": "reserve", "params": {"what": "{$input.text}"}}, input={"text": "x"})
    outcome = await engine.run(body, input={"text": "y" * 2_000_000})
    assert (outcome.status, outcome.body["steps"][0]["error"]["error_code"]) == ("COMPENSATED", "binding_unresolved")
    assert LOG == []


# --- what is never written -----------------------------------------------------------------------------------------


async def test_a_secret_never_reaches_the_journal(engine, monkeypatch) -> None:
    """Not in params, not in an output or error that echoes it; the tool gets the value."""
    monkeypatch.setenv("API_TOKEN", "s3cr3t-value")
    seen: list[str] = []

    @tool(undo="release")
    async def login(token: str) -> dict:
        seen.append(token)
        return {"ref": f"session of {token}", token: 1}

    @tool(undo="release")
    async def deny(token: str) -> dict:
        raise ToolError(f"{token} is not welcome")

    engine.tools.add(login)
    engine.tools.add(deny)
    params = {"token": "$secret.API_TOKEN"}
    outcome = await engine.run(plan({"tool": "login", "params": params}, {"tool": "deny", "params": params}))
    history = json.dumps(await engine.history(outcome.saga_id)) + json.dumps(outcome.to_dict())
    assert seen == ["s3cr3t-value"]
    assert "s3cr3t" not in history
    assert "$secret.API_TOKEN" in history
    assert outcome.status == "COMPENSATED"


async def test_a_missing_secret_is_found_before_anything_is_journalled(engine) -> None:
    """The error names the variable."""
    with pytest.raises(SecretMissing, match="NO_SUCH_SECRET"):
        await engine.run(plan({"tool": "reserve", "params": {"what": "$secret.NO_SUCH_SECRET"}}))
    assert await engine.list() == []


async def test_a_large_output_is_stored_once_and_bindings_reach_it(engine) -> None:
    """100 KB: the record holds a reference, the next step and `show` get the whole."""

    @tool(undo="release")
    async def big() -> dict:
        return {"ref": "big", "text": "x" * 100_000}

    @tool(undo="release")
    async def measure(text: str) -> dict:
        return {"ref": str(len(text))}

    engine.tools.add(big)
    engine.tools.add(measure)
    outcome = await engine.run(plan("big", {"tool": "measure", "params": {"text": "$output.step_1.text"}}))
    assert outcome.output(2) == {"ref": "100000"}
    assert len((await engine.show(outcome.saga_id, full=True)).output(1)["text"]) == 100_000
    assert len(json.dumps(await engine.history(outcome.saga_id))) < 5000


# --- limits and pivots ---------------------------------------------------------------------------------------------


async def test_the_call_limit_turns_the_saga_around(engine) -> None:
    """Two calls are allowed, the third is not made, both are undone; the report says why."""
    outcome = await engine.run(plan("reserve", "reserve", "reserve", max_tool_calls=2))
    assert (outcome.status, outcome.body["error"]["code"]) == ("COMPENSATED", "call-limit")
    assert LOG == ["reserve seat"] * 2 + ["release seat"] * 2


async def test_the_deadline_turns_the_saga_around(engine) -> None:
    """The call in flight is awaited, and undone since it came too late for the rest."""

    @tool(undo="release")
    async def slow() -> dict:
        await asyncio.get_running_loop().run_in_executor(None, lambda: passed.wait(10))
        return {"ref": "slow"}

    passed = threading.Event()
    engine.tools.add(slow)
    handle = await engine.submit(plan("slow", "reserve", deadline_s=0.01))
    started_ms = (await engine.history(handle.saga_id))[0]["at"]
    while time.time_ns() // 1_000_000 < started_ms + 100:  # noqa: ASYNC110 - the store in memory has this clock
        await asyncio.sleep(0)
    passed.set()
    outcome = await handle.wait()
    assert (outcome.status, outcome.body["error"]["code"], LOG) == ("COMPENSATED", "deadline", ["release slow"])


async def test_past_the_pivot_a_failure_is_a_question_and_a_cancel_is_refused(engine) -> None:
    """There is no way back: 'retry', 'happened' or 'accept'; what was done before the pivot stays."""
    body = plan(
        "reserve", {"tool": "charge", "params": {"amount": 9}, "kind": "pivot"}, {"tool": "refuse", "kind": "retriable"}
    )
    outcome = await engine.run(body)
    assert outcome.status == "ESCALATED"
    (question,) = outcome.body["questions"]
    assert (question["kind"], question["options"]) == ("step-failed", ["retry", "happened", "accept"])
    with pytest.raises(CancelRefused, match="pivot"):
        await engine.cancel(outcome.saga_id)
    outcome = await engine.resolve(outcome.saga_id, 3, "accept", by="ada", note="fine")
    assert (outcome.status, outcome.report["clean"]) == ("WAIVED", False)
    assert LOG == ["reserve seat", "charge 9"]


async def test_pause_asks_before_it_compensates(engine) -> None:
    """on_failure: pause. The person gives up: everything is undone."""
    outcome = await engine.run(plan("reserve", "refuse", on_failure="pause"))
    assert (outcome.status, LOG) == ("ESCALATED", ["reserve seat"])
    assert outcome.body["questions"][0]["error"]["suggestion"] == "try tomorrow"
    outcome = await engine.resolve(outcome.saga_id, 2, "not-happened")
    assert (outcome.status, LOG) == ("COMPENSATED", ["reserve seat", "release seat"])


# --- answering -----------------------------------------------------------------------------------------------------


async def test_answers_that_do_not_fit_are_refused(engine) -> None:
    """Wrong step, wrong word, an output where none belongs, a missing output, a second answer, a saga that is not there."""

    @tool(undo="release")
    async def vanish() -> dict:
        raise TimeoutError("no answer")

    engine.tools.add(vanish)
    saga_id = (await engine.run(plan("look", "vanish"))).saga_id
    for step, decision, output in (
        (1, "happened", None),
        (9, "retry", None),
        (2, "undone", None),
        (2, "retry", {"x": 1}),
    ):
        with pytest.raises(DecisionRefused):
            await engine.resolve(saga_id, step, decision, output=output)
    with pytest.raises(DecisionRefused, match="needs an output"):
        await engine.resolve(saga_id, 2, "happened")
    assert (await engine.resolve(saga_id, 2, "happened", output={"ref": "r"})).completed
    for decision, output in (("not-happened", None), ("happened", {"ref": "another"})):
        with pytest.raises(DecisionRefused, match="answered already"):
            await engine.resolve(saga_id, 2, decision, output=output)
    with pytest.raises(SagaNotFound):
        await engine.resolve("nobody", 1, "retry")


async def test_of_two_answers_at_once_one_counts_and_the_other_hears_it(engine) -> None:
    """Both fit when they are given; the second finds the question answered."""
    saga_id = (await engine.run(plan("reserve", "refuse", on_failure="pause"))).saga_id
    answers = await asyncio.gather(
        *(engine.resolve(saga_id, 2, decision) for decision in ("not-happened", "accept")), return_exceptions=True
    )
    assert sorted(isinstance(answer, DecisionRefused) for answer in answers) == [False, True], answers
    made = [record for record in await engine.history(saga_id) if record["k"] == "QuestionResolved"]
    assert len(made) == 1


async def test_who_decided_and_why_is_kept(engine) -> None:
    """The journal names the person and the reason."""
    outcome = await engine.run(plan("refuse", on_failure="pause"))
    await engine.resolve(outcome.saga_id, 1, "not-happened", by="ada", note="sold out anyway")
    (made,) = [record for record in await engine.history(outcome.saga_id) if record["k"] == "QuestionResolved"]
    assert (made["by"], made["note"], made["decision"]) == ("ada", "sold out anyway", "not-happened")


# --- living in somebody's program ----------------------------------------------------------------------------------


async def test_cancelling_the_wait_leaves_the_saga_running(engine) -> None:
    """A time-out around run() is no cancel of the saga."""
    started, go_on = asyncio.Event(), asyncio.Event()

    @tool(undo="release")
    async def slow() -> dict:
        started.set()
        await go_on.wait()
        return {"ref": "slow"}

    engine.tools.add(slow)
    waiting = asyncio.create_task(engine.run(plan("slow"), saga_id="w"))
    await started.wait()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    go_on.set()
    assert (await engine.run(plan("slow"), saga_id="w")).completed


async def test_closing_awaits_the_call_in_flight_and_journals_it() -> None:
    """After the block the result is in the journal, the next step was not started, and the saga can be resumed."""
    started, go_on = asyncio.Event(), asyncio.Event()

    @tool(undo="release")
    async def slow() -> dict:
        started.set()
        await go_on.wait()
        return {"ref": "slow"}

    async with Coordinator.open("memory://closing", [slow, *TOOLS]) as coordinator:
        handle = await coordinator.submit(plan("slow", "reserve"), saga_id="c")
        await started.wait()
        asyncio.get_running_loop().call_soon(go_on.set)
    with pytest.raises(Interrupted):
        await handle.wait()
    assert LOG == []
    async with Coordinator.open("memory://closing", [slow, *TOOLS]) as coordinator:
        assert (await coordinator.show("c")).output(1) == {"ref": "slow"}
        outcome = await coordinator.resume("c")
    assert (outcome.status, LOG) == ("COMPLETED", ["reserve seat"])


async def test_observers_see_every_record_and_cannot_hurt() -> None:
    """In order, after they are durable; an observer that raises is logged and ignored."""
    seen: list[str] = []

    def watch(_saga_id: str, record: Any) -> None:
        seen.append(type(record).__name__)
        raise RuntimeError("clumsy")

    async with Coordinator.open("memory://", TOOLS, observers=[watch]) as coordinator:
        outcome = await coordinator.run(plan("reserve"))
        assert seen == [record["k"] for record in await coordinator.history(outcome.saga_id)]


async def test_an_alert_that_fails_is_tried_again() -> None:
    """At least once: the hook fails twice and is told a third time, with the same question id."""
    told: list[str] = []

    async def hook(question: Any) -> None:
        told.append(question.question_id)
        if len(told) < 3:
            raise ConnectionError("no line")

    from saga_engine.core import interpret

    quick = pytest.MonkeyPatch()
    quick.setattr(interpret, "ALERT_RETRY", RetryPolicy(max_attempts=5, base_s=0.001, max_s=0.001))
    async with Coordinator.open("memory://", TOOLS, on_escalation=hook) as coordinator:
        outcome = await coordinator.run(plan("refuse", on_failure="pause"))
    quick.undo()
    assert outcome.status == "ESCALATED"
    assert told == ["1:f:1"] * 3


async def test_an_alert_that_was_not_delivered_survives_the_process() -> None:
    """People did not hear of the question before the process ended: the saga does not rest, and whoever resumes tells them."""
    failed, told = asyncio.Event(), []

    async def deaf(_question: Any) -> None:
        failed.set()
        raise ConnectionError("no line")

    async def hears(question: Any) -> None:
        told.append(question.question_id)

    body = plan("refuse", on_failure="pause")
    async with Coordinator.open("memory://untold", TOOLS, on_escalation=deaf) as coordinator:
        await coordinator.submit(body, saga_id="q")
        await failed.wait()
    async with Coordinator.open("memory://untold", TOOLS, on_escalation=hears) as coordinator:
        outcomes = await coordinator.resume_all()
    assert (outcomes["q"].status, told) == ("ESCALATED", ["1:f:1"])


def test_run_sync_bridges_from_anywhere() -> None:
    """From plain code, and from inside a running event loop."""

    async def work() -> str:
        async with Coordinator.open("memory://", TOOLS) as coordinator:
            return (await coordinator.run(plan("reserve"))).status

    assert run_sync(work()) == "COMPLETED"

    async def inside() -> str:
        return run_sync(work())

    assert asyncio.run(inside()) == "COMPLETED"

    async def broken() -> None:
        raise LookupError("no")

    async def inside_broken() -> None:
        run_sync(broken())

    with pytest.raises(LookupError):
        asyncio.run(inside_broken())


async def test_sync_and_async_tools_mix_in_one_plan(engine) -> None:
    """A blocking function runs beside the loop, not in it."""

    @tool(undo="release")
    def blocking(n: int) -> dict:
        return {"ref": str(n)}

    engine.tools.add(blocking)
    body = plan(*({"tool": "blocking", "params": {"n": number}, "depends_on": []} for number in range(8)), "reserve")
    assert (await engine.run(body)).completed


def test_the_public_names_are_what_they_say() -> None:
    """Everything in __all__ can be imported, and nothing heavy is imported before."""
    import saga_engine

    assert all(getattr(saga_engine, name) is not None for name in saga_engine.__all__)
    with pytest.raises(AttributeError):
        saga_engine.nothing  # noqa: B018


async def test_submitting_an_id_that_exists_does_not_wait_for_its_end() -> None:
    """Submit returns when the saga is known to be in the store, also when it was somebody else who put it there."""
    go_on = asyncio.Event()

    @tool(undo="release")
    async def slow() -> dict:
        await go_on.wait()
        return {"ref": "slow"}

    async with Coordinator.open("memory://existing", [slow, *TOOLS]) as first:
        await (await first.submit(plan("slow"), saga_id="e", detach=True)).wait()
    async with Coordinator.open("memory://existing", [slow, *TOOLS]) as second:
        handle = await second.submit(plan("slow"), saga_id="e")
        assert not handle.done()
        with pytest.raises(SagaExists):
            await second.submit(plan("look"), saga_id="e")
        go_on.set()
        assert (await handle.wait()).completed


async def test_a_session_that_ended_on_the_server_is_opened_anew() -> None:
    """The server forgot the lease before this process noticed: the saga is taken up again and finishes, once."""
    async with Coordinator.open("memory://", TOOLS) as coordinator:

        @tool(undo="release")
        async def forgotten() -> dict:
            LOG.append("forgotten")
            if LOG.count("forgotten") == 1:
                await coordinator.store.close_lease((await coordinator.list())[0].owner)
            return {"ref": "f"}

        @tool(name="probed", undo="release", probe="was_it")
        async def probed() -> dict:
            return await forgotten()

        @tool(effect="read")
        async def was_it() -> dict:
            return {"ref": "f"}

        for one in (was_it, probed):
            coordinator.tools.add(one)
        outcome = await coordinator.run(plan("probed", "reserve"))
    assert (outcome.status, LOG) == ("COMPLETED", ["forgotten", "reserve seat"])


class Ahead:
    """A store whose clock is an hour ahead of this machine's."""

    def __init__(self, store: Any) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def open_lease(self, owner: str, ttl_ms: int, **options: Any) -> int:
        return await self._store.open_lease(owner, ttl_ms, **options) + 3_600_000

    async def append(self, owner: str, entries: Any) -> Any:
        reply = await self._store.append(owner, entries)
        return reply._replace(now_ms=reply.now_ms + 3_600_000)


@pytest.mark.parametrize("detach", [False, True])
async def test_a_deadline_counts_on_the_store_s_clock(detach: bool) -> None:
    """However wrong this machine's clock is, a minute is a minute from the first saga on."""
    from saga_engine.stores import open_store

    store = Ahead(open_store("memory://"))
    await store.open()
    async with Coordinator.open(store, TOOLS) as coordinator:
        handle = await coordinator.submit(plan("reserve", deadline_s=60), saga_id="d", detach=detach)
        await handle.wait()
        assert (await coordinator.resume("d")).completed
    await store.close()


@pytest.mark.parametrize("undo", ["reference", "ref"])
async def test_an_undo_that_gets_none_of_its_params_is_not_called(engine, undo) -> None:
    """With nothing filled in it would undo nothing and be believed: a person is asked, and simulate says so before."""
    called: list[str] = []

    @tool
    async def cancel_reference(reference: str = "") -> None:
        called.append(reference)

    @tool
    async def cancel_ref(ref: str = "") -> None:
        called.append(ref)

    @tool(undo=cancel_ref if undo == "ref" else cancel_reference)
    async def take(what: str) -> dict:
        return {"ref": what}

    engine.tools.add(take)
    steps = ({"tool": "take", "params": {"what": "a"}}, {"tool": "refuse", "kind": "pivot"})
    rehearsed = await engine.simulate(plan(*steps))
    turned = [each for each in rehearsed.scenarios if (each.reason, each.step_id) == ("step-failed", 2)]
    assert {each.verdict for each in turned} == {"asks"}
    outcome = await engine.run(plan(*steps))
    assert called == (["a"] if undo == "ref" else [])
    assert outcome.status == ("COMPENSATED" if undo == "ref" else "ESCALATED")


async def test_an_id_that_is_no_text_is_the_id_of_no_saga(engine) -> None:
    """A lone surrogate stands for a byte that is no UTF-8: it is not found, and closing is not kept from its work."""
    for look in (engine.show, engine.history, engine.cancel, engine.resume, engine.trace, engine.fork):
        with pytest.raises(SagaNotFound, match="udc80"):
            await look("a\udc80")


@pytest.mark.parametrize("said", [{"by": "a\udc80"}, {"note": "a\udc80"}])
async def test_a_person_whose_words_are_no_text_is_told_where(engine, said) -> None:
    """A name or a note with a byte that is no UTF-8 is refused in words, and the question stays open."""
    outcome = await engine.run(plan("reserve", "refuse", on_failure="pause"))
    for answer in (engine.resolve(outcome.saga_id, 2, "accept", **said), engine.cancel(outcome.saga_id, **said)):
        with pytest.raises(ValueNotJson, match=next(iter(said))):
            await answer
    assert (await engine.show(outcome.saga_id)).status == "ESCALATED"
