"""Answers and cancels: from processes without tools, said twice, contradictory, and by a wrong clock."""

from __future__ import annotations

import asyncio
import time

import pytest

from saga_engine import Coordinator, RetryPolicy, tool
from saga_engine.errors import CancelRefused, DecisionRefused, ToolMissing
from saga_engine.ports import Head

# --- a process without the tools -------------------------------------------------------------------------------------


@tool(undo="unbook", retry=RetryPolicy(max_attempts=1))
async def lost(what: str) -> dict:
    """Its answer never comes."""
    raise TimeoutError("no answer")


@tool
async def unbook(what: str) -> dict:
    """Nothing to undo."""
    return {}


async def resting(url: str) -> None:
    """A saga ``s`` that rests with a question about step 1."""
    async with Coordinator.open(url, [lost, unbook], on_escalation=()) as engine:
        assert (
            await engine.run({"steps": [{"step_id": 1, "tool": "lost", "params": {"what": "x"}}]}, saga_id="s")
        ).status == "ESCALATED"


async def test_a_process_without_the_tools_posts_an_answer() -> None:
    """``wait=False`` records it and raises nothing; the first answer holds, before anybody has read it."""
    await resting("memory://console")
    async with Coordinator.open("memory://console", []) as console:
        assert (await console.resolve("s", 1, "not-happened", by="ada", wait=False)).status == "ESCALATED"
        await console.resolve("s", 1, "not-happened", by="bob", wait=False)
        assert (await console.store.head("s")).messages == 1
        with pytest.raises(DecisionRefused, match="answered already by ada: 'not-happened'"):
            await console.resolve("s", 1, "accept", wait=False)
        with pytest.raises(ToolMissing, match="the message is recorded"):
            await console.resolve("s", 1, "not-happened")
    async with Coordinator.open("memory://console", [lost, unbook]) as engine:
        assert (await engine.resume("s")).status == "COMPENSATED"
        answers = [record["decision"] for record in await engine.history("s") if record["k"] == "QuestionResolved"]
    assert answers == ["not-happened"]


async def test_saying_it_again_is_no_conflict() -> None:
    """An answer or a cancel that is repeated returns where the saga stands; a contradiction is refused."""
    await resting("memory://again")
    async with Coordinator.open("memory://again", [lost, unbook], on_escalation=()) as engine:
        for _ in range(2):
            assert (await engine.resolve("s", 1, "not-happened")).status == "COMPENSATED"
        with pytest.raises(DecisionRefused):
            await engine.resolve("s", 1, "happened")
        with pytest.raises(CancelRefused):
            await engine.cancel("s")
        await engine.submit(
            {"steps": [{"step_id": 1, "tool": "lost", "params": {"what": "x"}}]}, saga_id="t", detach=True
        )
        outcomes = await asyncio.gather(*(engine.cancel("t") for _ in range(3)))
        assert {outcome.status for outcome in outcomes} == {"COMPENSATED"}


@pytest.mark.parametrize("other", ["not-happened", "accept"])
async def test_two_who_answer_at_the_same_time(other: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both have found the question open. Who was later hears where the saga stands, or that it was answered otherwise."""
    await resting("memory://together-" + other)
    async with Coordinator.open("memory://together-" + other, [lost, unbook], on_escalation=()) as engine:
        messages, both, looks = engine.store.messages, asyncio.Barrier(2), []

        async def looked(saga_id: str) -> list[bytes]:
            found = await messages(saga_id)
            looks.append(found)
            if len(looks) <= 2:
                async with asyncio.timeout(30):
                    await both.wait()
            return found

        monkeypatch.setattr(engine.store, "messages", looked)
        answers = [engine.resolve("s", 1, "not-happened"), engine.resolve("s", 1, other)]
        found = await asyncio.gather(*answers, return_exceptions=True)
        assert looks[:2] == [[], []]
        refusals = [each for each in found if isinstance(each, Exception)]
        assert [type(each) for each in refusals] == ([] if other == "not-happened" else [DecisionRefused])
        made = [record for record in await engine.history("s") if record["k"] in {"QuestionResolved", "MessageRefused"}]
        assert [record["k"] for record in made] == ["QuestionResolved", "MessageRefused"]


@pytest.mark.parametrize("said", ["not-happened", "accept", "cancel"])
async def test_what_is_said_comes_after_the_end(said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was open when the second one looked, and the first one's word has ended it when the second one's arrives.

    Nobody reads that any more. Who said the same hears where the saga stands; who said otherwise hears that it was late.
    """
    url = "memory://after-" + said
    await resting(url)
    async with (
        Coordinator.open(url, [lost, unbook], on_escalation=()) as first,
        Coordinator.open(url, [lost, unbook], on_escalation=()) as second,
    ):
        plan = {"steps": [{"step_id": 1, "tool": "lost", "params": {"what": "x"}}]}
        saga_id = "s" if said != "cancel" else (await first.submit(plan, saga_id="t", detach=True)).saga_id
        post = second.store.post

        async def posted(saga: str, message: bytes) -> Head:
            ended = await (first.cancel(saga) if said == "cancel" else first.resolve(saga, 1, "not-happened"))
            assert ended.status == "COMPENSATED"
            return await post(saga, message)

        monkeypatch.setattr(second.store, "post", posted)
        saying = second.cancel(saga_id) if said == "cancel" else second.resolve(saga_id, 1, said)
        if said == "accept":
            with pytest.raises(DecisionRefused, match="ended \\(COMPENSATED\\) before this was read"):
                await saying
        else:
            assert (await saying).status == "COMPENSATED"
        kinds = [record["k"] for record in await first.history(saga_id)]
        assert kinds.count("CancelRequested" if said == "cancel" else "QuestionResolved") == 1
        assert "MessageRefused" not in kinds


async def test_a_wrong_clock_here_refuses_no_valid_approval(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether an approval has expired is a question for the store's clock, not for that of who answers."""
    policy = {"rules": [{"name": "ask", "tools": ["buy"], "verdict": "ask", "expires_s": 3600}]}

    @tool(undo="unbook")
    async def buy(what: str) -> dict:
        return {"ok": True}

    tools = [buy, unbook]
    async with Coordinator.open("memory://clock", tools, policy=policy, on_escalation=()) as engine:
        await engine.run({"steps": [{"step_id": 1, "tool": "buy", "params": {"what": "x"}}]}, saga_id="s")
    here = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: here() + 2 * 3600 * 10**9)
    async with Coordinator.open("memory://clock", tools, policy=policy, on_escalation=()) as engine:
        assert (await engine.resolve("s", 1, "approve")).status == "COMPLETED"
