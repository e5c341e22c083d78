"""Forks of sessions: the agent runs again under a new id, what came before the call is reused, the rest is undone."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from saga_engine import CallFailed, Coordinator, NeedsPerson, RetryPolicy, SagaResult, Session, ToolError, tool
from saga_engine.analysis.replay import Replay
from saga_engine.analysis.trace_file import read
from saga_engine.errors import ForkRefused, SagaExists, SessionDiverged, SessionEnded, ToolMissing
from saga_engine.runtime.fork import Fork, Forking
from saga_engine.runtime.messages import transfer

ONCE = RetryPolicy(max_attempts=1)
LOG: list[str] = []
FULL: set[str] = set()


@pytest.fixture(autouse=True)
def fresh() -> None:
    LOG.clear()
    FULL.clear()


@tool(undo="remove", retry=ONCE)
async def write(path: str) -> dict:
    if path in FULL or path.startswith("/wrong"):
        raise ToolError(f"there is no {path}", error_code="not_found")
    LOG.append(path)
    return {"path": path}


@tool(retry=ONCE)
async def remove(path: str) -> None:
    LOG.append(f"-{path}")


@tool(retry=ONCE)
async def send(text: str) -> str:
    LOG.append(f"send {text}")
    return text


@tool(effect="read", retry=ONCE)
async def look(at: str) -> dict:
    LOG.append(f"look {at}")
    return {"seen": at}


TOOLS = [write, remove, send, look]


def open_memory(name: str = "", tools: Any = TOOLS) -> Any:
    return Coordinator.open(f"memory://{name}", tools, on_escalation=())


async def writes(s: Session, *paths: str) -> None:
    for path in paths:
        await s.call(write, path=path)


async def kept(engine: Coordinator, *paths: str, saga_id: str = "s") -> None:
    """A session that is kept because its last call fails, or because its agent does."""
    with pytest.raises((CallFailed, LookupError)):
        async with engine.session(saga_id, on_failure="keep") as s:
            await writes(s, *paths)
            raise LookupError
    assert (await engine.show(saga_id)).status == "ESCALATED"


async def forked(engine: Coordinator, run_from: int | str | None = None, **options: Any) -> SagaResult:
    outcome = await engine.fork("s", run_from=run_from, **{"new_id": "f", **options})
    assert isinstance(outcome, SagaResult)
    return outcome


def reused(outcome: SagaResult) -> list[Any]:
    return [step["source"] for step in outcome.body["steps"] if step.get("via") == "fork"]


async def test_the_agent_runs_again_from_a_call() -> None:
    """What came before the call is reused, the rest is undone by the old session, and the agent makes the rest anew."""
    async with open_memory("forked-session") as engine:
        await kept(engine, "/a", "/b", "/c", "/wrong")
        LOG.clear()
        fork = await forked(engine, 3)
        assert (fork.status, fork.body["session"], reused(fork)) == ("ESCALATED", "open", ["s/1", "s/2"])
        assert fork.body["questions"][0]["kind"] == "session-kept"
        assert LOG == ["-/c"]
        old = await engine.show("s")
        assert (old.status, old.body["error"]["code"], old.report["clean"]) == ("COMPENSATED", "transferred", True)
        assert [step.get("handed_to") for step in old.body["steps"]] == ["f", "f", None, None]
    async with open_memory("forked-session") as engine:  # as in another process
        async with engine.session("f") as s:
            await writes(s, "/a", "/b", "/C", "/d")
        assert LOG == ["-/c", "/C", "/d"]
        assert (await engine.show("f")).completed
        with pytest.raises(SessionEnded):
            async with engine.session("s") as s:
                await writes(s, "/a")


async def test_what_is_reused_is_undone_by_the_fork_and_by_nobody_else() -> None:
    """The forked agent fails: all that it owns is undone once, in reverse, with the outputs that it had."""
    async with open_memory() as engine:
        await kept(engine, "/a", "/b", "/c")
        await forked(engine, 3)
        LOG.clear()
        with pytest.raises(CallFailed):
            async with engine.session("f") as s:
                await writes(s, "/a", "/b", "/d", "/wrong")
        assert LOG == ["/d", "-/d", "-/b", "-/a"]
        assert (await engine.show("f")).report["compensated"] == [1, 2, 3]


async def test_without_a_call_everything_that_can_be_is_reused() -> None:
    """The calls that failed last are made anew, as in a session that is kept."""
    async with open_memory() as engine:
        await kept(engine, "/a", "/b", "/wrong")
        LOG.clear()
        assert reused(await forked(engine)) == ["s/1", "s/2"]
        async with engine.session("f") as s:
            await writes(s, "/a", "/b", "/c")
    assert LOG == ["/c"]


async def test_a_dry_run_changes_nothing() -> None:
    """It names what is reused and what the old session undoes."""
    async with open_memory() as engine:
        await kept(engine, "/a", "/b", "/c")
        before = await engine.history("s")
        fork = await engine.fork("s", run_from=2, dry_run=True)
        assert isinstance(fork, Fork)
        told = fork.to_dict()
        assert [(each["step_id"], each["from"]) for each in told["taken_over"]] == [(1, "s/1")]
        assert (told["runs"], told["left"], told["begun"]) == ([], [2, 3], False)
        assert await engine.history("s") == before
        assert not await engine.store.messages("s")


async def test_a_failure_that_the_agent_dealt_with_is_answered_again() -> None:
    """Even if it would succeed now, so that the agent takes the same way; one that failed last is made anew."""
    calls: list[str] = []

    async def agent(s: Session, last: str) -> None:
        try:
            await s.call(write, path="/x")
        except CallFailed as error:
            calls.append(error.error_code)
            await s.call(write, path="/y")
        await s.call(write, path=last)

    FULL.update({"/x", "/z"})
    async with open_memory() as engine:
        with pytest.raises(CallFailed):
            async with engine.session("s", on_failure="keep") as s:
                await agent(s, "/z")
        FULL.clear()
        assert reused(await forked(engine, 2, new_id="early")) == []
        assert LOG == ["/y", "-/y"]
        async with engine.session("early") as s:
            await agent(s, "/z")
    assert (LOG, calls) == (["/y", "-/y", "/y", "/z"], ["not_found", "not_found"])


async def test_the_prefix_ends_at_what_was_undone_or_failed_last() -> None:
    """What the agent rolled back does not exist any more, so the fork makes it again, with all that follows."""

    async def agent(s: Session) -> None:
        await writes(s, "/a")
        point = s.savepoint()
        await writes(s, "/b")
        await s.rollback(point)
        await writes(s, "/c")

    async with open_memory() as engine:
        with pytest.raises(LookupError):
            async with engine.session("s", on_failure="keep") as s:
                await agent(s)
                raise LookupError
        assert reused(await forked(engine)) == ["s/1"]
        LOG.clear()
        async with engine.session("f") as s:
            await agent(s)
    assert LOG == ["/b", "-/b", "/c"]


async def test_undos_follow_what_happened_and_not_the_order_of_the_calls() -> None:
    """Calls side by side keep the order in which they happened."""
    go = asyncio.Event()

    @tool(undo="remove", retry=ONCE)
    async def slow(path: str) -> dict:
        await go.wait()
        LOG.append(path)
        return {"path": path}

    @tool(undo="remove", retry=ONCE)
    async def fast(path: str) -> dict:
        LOG.append(path)
        go.set()
        return {"path": path}

    async def agent(s: Session) -> None:
        await asyncio.gather(s.call(slow, path="/slow"), s.call(fast, path="/fast"))
        raise LookupError

    async with open_memory(tools=[*TOOLS, slow, fast]) as engine:
        for name, options in (("s", {"on_failure": "keep"}), ("f", {})):
            with pytest.raises(LookupError):
                async with engine.session(name, **options) as s:
                    await agent(s)
            if name == "s":
                assert reused(await forked(engine)) == ["s/1", "s/2"]
    assert LOG == ["/fast", "/slow", "-/slow", "-/fast"]


async def test_a_call_that_took_the_place_of_a_failed_one_is_reused_at_its_place() -> None:
    """The fork numbers the calls as its agent makes them."""

    async def agent(s: Session, second: str, *more: str) -> None:
        await asyncio.gather(*(s.call(write, path=path) for path in ("/a", second, "/c")))
        await writes(s, *more)

    async with open_memory() as engine:
        for second, more in (("/wrong", ()), ("/b", ("/d", "/wrong"))):
            with pytest.raises(CallFailed):
                async with engine.session("s", on_failure="keep") as s:
                    await agent(s, second, *more)
        assert reused(await forked(engine)) == ["s/1", "s/4", "s/3", "s/5"]
        LOG.clear()
        with pytest.raises(CallFailed):
            async with engine.session("f") as s:
                await agent(s, "/b", "/d", "/e", "/wrong")
    assert ["/e", "-/e", "-/d", "-/b", *LOG[4:]] == LOG
    assert sorted(LOG[4:]) == ["-/a", "-/c"]


async def test_an_agent_that_differs_before_the_call_is_a_divergence() -> None:
    """Reused calls are answered as recorded, or not at all."""
    async with open_memory() as engine:
        await kept(engine, "/a", "/b")
        await forked(engine)
        with pytest.raises(SessionDiverged):
            async with engine.session("f", on_failure="keep") as s:
                await writes(s, "/other")


async def test_reads_and_irreversible_calls_are_reused() -> None:
    """A message that was sent is not sent again, and the old session does not list it as left any more."""

    async def agent(s: Session, last: str) -> None:
        await s.call(look, at="sky")
        await s.call(send, text="hello", irreversible=True)
        await s.call(write, path=last)

    async with open_memory() as engine:
        with pytest.raises(CallFailed):
            async with engine.session("s", on_failure="keep") as s:
                await agent(s, "/wrong")
        await forked(engine)
        assert (await engine.show("s")).report["clean"]
        with pytest.raises(LookupError):
            async with engine.session("f") as s:
                await agent(s, "/b")
                raise LookupError
        assert (await engine.show("f")).report["left_in_place"] == [2]
    assert LOG == ["look sky", "send hello", "/b", "-/b"]


async def test_an_irreversible_call_that_is_made_anew_is_told() -> None:
    """From its call on everything is made anew: the first message remains, and the old session's report says so."""
    async with open_memory() as engine:
        with pytest.raises(LookupError):
            async with engine.session("s", on_failure="keep") as s:
                await writes(s, "/a")
                await s.call(send, text="hello", irreversible=True)
                raise LookupError
        fork = await engine.fork("s", run_from=2, dry_run=True)
        assert isinstance(fork, Fork)
        assert fork.plan.left == ["2"]
        await forked(engine, 2)
        old = await engine.show("s")
        assert (old.status, old.report["left_in_place"]) == ("WAIVED", [2])


async def test_a_session_that_has_ended_is_forked_as_a_saga_with_a_plan() -> None:
    """Complete: the fork reuses its effects, and what it does not reuse remains. Undone: there is nothing to reuse."""
    async with open_memory() as engine:
        async with engine.session("s") as s:
            await writes(s, "/a", "/b")
        LOG.clear()
        assert reused(await forked(engine, 2)) == ["s/1"]
        assert (await engine.show("s")).completed
        async with engine.session("f") as s:
            await writes(s, "/a", "/B")
        assert LOG == ["/B"]
    async with open_memory() as engine:
        with pytest.raises(CallFailed):
            async with engine.session("s") as s:
                await writes(s, "/a", "/wrong")
        LOG.clear()
        assert reused(await forked(engine)) == []
        async with engine.session("f") as s:
            await writes(s, "/a", "/b")
        assert (await engine.show("f")).completed
        assert LOG == ["/a", "/b"]


async def test_the_same_fork_is_the_same_session() -> None:
    """Repeated before, while and after its agent ran, it is one session, and nothing happens twice."""
    async with open_memory() as engine:
        await kept(engine, "/a", "/b", "/c")
        first = await engine.fork("s", run_from=2)
        again = await engine.fork("s", run_from=2)
        assert isinstance(first, SagaResult)
        assert isinstance(again, SagaResult)
        assert (first.saga_id, first.status, reused(first)) == (again.saga_id, again.status, reused(again))
        LOG.clear()
        async with engine.session(first.saga_id) as s:
            await writes(s, "/a", "/B")
        last = await engine.fork("s", run_from=2)
        assert isinstance(last, SagaResult)
        assert last.completed
        assert LOG == ["/B"]
        with pytest.raises(SagaExists):
            await engine.fork("s", run_from=3, new_id=first.saga_id)


async def test_two_forks_never_own_the_same_effect() -> None:
    """The second fork of a complete session finds its effects taken, and its agent makes its own."""
    async with open_memory() as engine:
        async with engine.session("s") as s:
            await writes(s, "/a", "/b")
        assert reused(await forked(engine, 2)) == ["s/1"]
        assert reused(await forked(engine, new_id="second")) == []
        LOG.clear()
        async with engine.session("second") as s:
            await writes(s, "/a", "/b")
    assert LOG == ["/a", "/b"]


async def test_a_fork_is_forked() -> None:
    """What it reuses is its own, and goes on to its fork."""
    async with open_memory() as engine:
        await kept(engine, "/a", "/b")
        await forked(engine, 2)
        second = await engine.fork("f", new_id="g")
        assert isinstance(second, SagaResult)
        assert reused(second) == ["f/1"]
        LOG.clear()
        with pytest.raises(LookupError):
            async with engine.session("g") as s:
                await writes(s, "/a")
                raise LookupError
        assert LOG == ["-/a"]
        assert [(await engine.show(name)).report["clean"] for name in ("s", "f", "g")] == [True] * 3


async def test_the_fork_can_be_undone_without_its_agent() -> None:
    """A cancel undoes what it owns."""
    async with open_memory() as engine:
        await kept(engine, "/a", "/b", "/c")
        await forked(engine, 3)
        LOG.clear()
        assert (await engine.cancel("f")).status == "COMPENSATED"
    assert LOG == ["-/b", "-/a"]


async def test_a_tool_that_changed_is_called_again() -> None:
    """And so is all that follows; the old session undoes what the old tool did."""

    @tool(undo="remove", retry=ONCE, version="2")
    async def other(path: str) -> dict:
        LOG.append(f"new {path}")
        return {"path": path}

    @tool(undo="remove", retry=ONCE)
    async def older(path: str) -> dict:
        LOG.append(f"old {path}")
        return {"path": path}

    object.__setattr__(older, "name", "other")

    async def agent(s: Session) -> None:
        await writes(s, "/a")
        await s.call("other", path="/b")
        raise LookupError

    async with open_memory("changed-tool", [*TOOLS, older]) as engine:
        with pytest.raises(LookupError):
            async with engine.session("s", on_failure="keep") as s:
                await agent(s)
    async with open_memory("changed-tool", [*TOOLS, other]) as engine:
        assert reused(await forked(engine)) == ["s/1"]
    assert LOG == ["/a", "old /b", "-/b"]


async def test_what_cannot_be_forked_is_refused() -> None:
    """A plan for a session, a call that there is none of, a missing tool, and an agent that runs."""
    async with open_memory("refused-forks") as engine:
        await kept(engine, "/a", "/b")
        with pytest.raises(ForkRefused, match="no plan"):
            await engine.fork("s", plan={"steps": [{"step_id": 1, "tool": "look", "params": {"at": "x"}}]})
        with pytest.raises(ForkRefused, match="no call 9"):
            await engine.fork("s", run_from=9)
        async with engine.session("r") as s:
            await writes(s, "/c")
            with pytest.raises(ForkRefused, match="under way") as refused:
                await engine.fork("r")
            assert "agent" in refused.value.hint
    async with open_memory("refused-forks", [look]) as engine:
        with pytest.raises(ToolMissing, match="remove, write"):
            await engine.fork("s")
    async with open_memory("refused-forks") as engine:
        assert (await engine.show("s")).body["questions"][0]["kind"] == "session-kept"
        assert not await engine.store.messages("s")


async def test_what_was_rolled_back_after_the_choice_is_not_transferred() -> None:
    """The agent ran again while the fork was chosen: an effect that does not exist any more has no new owner."""
    async with open_memory() as engine:
        await kept(engine, "/a", "/b")

        forking = await Forking.of(engine.store, engine.tools, "s", 0, engine.limits)
        fork = await forking.claim(await forking.look(None, "f", None), None)
        assert fork.steps == ["1", "2"]
        with pytest.raises(LookupError):
            async with engine.session("s", on_failure="keep") as s:
                point = s.savepoint()
                await writes(s, "/a", "/b")
                await s.rollback(point)
                raise LookupError
        with pytest.raises(ForkRefused, match="has changed"):
            await transfer(engine.store, engine.supervisor, forking, fork)
        assert (await engine.show("s")).body["questions"][0]["kind"] == "session-kept"
        assert reused(await forked(engine)) == []
        assert LOG == ["/a", "/b", "-/b", "-/a"]


async def test_its_trace_is_replayed_with_what_it_copied() -> None:
    """Copied calls and failures are given, as the agent's own are, and today's engine decides the rest the same."""

    async def agent(s: Session) -> None:
        with pytest.raises(CallFailed):
            await s.call(write, path="/wrong")
        await writes(s, "/a")
        raise LookupError

    async with open_memory() as engine:
        for name, options in (("s", {"on_failure": "keep"}), ("f", {})):
            with pytest.raises(LookupError):
                async with engine.session(name, **options) as s:
                    await agent(s)
            if name == "s":
                assert reused(await forked(engine)) == ["s/2"]
        for name in ("s", "f"):
            (trace,) = read(line.encode() + b"\n" for line in await engine.trace(name, full=True))
            replay = Replay(trace, engine.tools, together_ms=10**9)
            assert len(list(replay.run())) == len(trace.entries) - 1
            assert replay.divergence is None


async def test_a_session_about_which_an_operator_was_asked_is_forked() -> None:
    """``on_failure="ask"``: the fork is an answer, too, and nobody is asked about the old session any more."""
    async with open_memory() as engine:
        with pytest.raises(LookupError):
            async with engine.session("s", on_failure="ask") as s:
                await writes(s, "/a", "/b")
                raise LookupError
        assert reused(await forked(engine, 2)) == ["s/1"]
        old = await engine.show("s")
        assert (old.status, old.body["questions"]) == ("COMPENSATED", [])
    assert LOG == ["/a", "/b", "-/b"]


async def test_a_call_in_doubt_stays_with_the_old_session() -> None:
    """The fork's agent makes its own call; whether the old one happened is still an operator's to say."""

    @tool(undo="remove", retry=ONCE)
    async def lose(path: str) -> dict:
        LOG.append(path)
        raise ConnectionResetError("the line went dead")

    async with open_memory(tools=[*TOOLS, lose]) as engine:
        with pytest.raises(NeedsPerson):
            async with engine.session("s", on_failure="keep") as s:
                await writes(s, "/a")
                await s.call(lose, path="/b")
        fork = await forked(engine)
        assert reused(fork) == ["s/1"]
        old = await engine.show("s")
        assert [question["kind"] for question in old.body["questions"]] == ["in-doubt"]
        async with engine.session("f") as s:
            await writes(s, "/a", "/c")
        assert (await engine.resolve("s", 2, "happened", output={"path": "/b"})).status == "COMPENSATED"
    assert LOG == ["/a", "/b", "/c", "-/b"]


async def test_the_agent_rolls_back_what_the_fork_owns() -> None:
    """A savepoint before the first call: reused effects are undone like those that the agent made itself."""
    async with open_memory() as engine:
        await kept(engine, "/a", "/b")
        await forked(engine)
        LOG.clear()
        async with engine.session("f") as s:
            point = s.savepoint()
            await writes(s, "/a", "/b", "/c")
            await s.rollback(point)
            await writes(s, "/d")
        assert (await engine.show("f")).completed
    assert LOG == ["/c", "-/c", "-/b", "-/a", "/d"]


async def test_large_params_and_results_are_copied_whole() -> None:
    """What lies beside the old journal lies beside the fork's, so the agent gets it and undos bind to it."""
    large = "/" + "x" * 100_000
    async with open_memory() as engine:
        await kept(engine, large)
        await forked(engine)
        LOG.clear()
        with pytest.raises(CallFailed):
            async with engine.session("f") as s:
                assert await s.call(write, path=large) == {"path": large}
                await writes(s, "/wrong")
    assert [f"-{large}"] == LOG


async def test_nobody_takes_the_id_of_an_unfinished_fork() -> None:
    """Between the transfer and the fork's start nothing else starts with its id, and the same command continues."""
    async with open_memory() as engine:
        await kept(engine, "/a")
        forking = await Forking.of(engine.store, engine.tools, "s", 0, engine.limits)
        fork = await forking.claim(await forking.look(None, "f", None), None)
        await transfer(engine.store, engine.supervisor, forking, fork)
        step = {"step_id": 1, "tool": "write", "params": {"path": "/x"}}
        with pytest.raises(SagaExists, match="reserved for a fork of saga s") as refused:
            async with engine.session("f") as s:
                await writes(s, "/a")
        assert "repeat the `saga fork s` command" in refused.value.hint
        for detach in (True, False):
            with pytest.raises(SagaExists, match="reserved for a fork of saga s"):
                await engine.submit({"steps": [step]}, saga_id="f", detach=detach)
        assert LOG == ["/a"]
        assert reused(await forked(engine)) == ["s/1"]
        async with engine.session("f") as s:
            await writes(s, "/a", "/b")
        assert LOG == ["/a", "/b"]


async def test_a_fork_does_not_take_the_id_of_a_saga_that_came_first() -> None:
    """A saga that somebody started after the choice keeps its id: the fork is refused, and nothing changes hands."""
    async with open_memory() as engine:
        await kept(engine, "/a")
        forking = await Forking.of(engine.store, engine.tools, "s", 0, engine.limits)
        fork = await forking.look(None, "f", None)
        async with engine.session("f") as s:
            await writes(s, "/b")
        with pytest.raises(SagaExists, match="saga f is another saga"):
            await forking.claim(fork, None)
        assert "handed_to" not in (await engine.show("s")).body["steps"][0]
        assert reused(await forked(engine, new_id="g")) == ["s/1"]


async def test_forks_at_the_same_time_share_no_effect() -> None:
    """Claims follow the agent's order: one of the forks owns what both want, and the other makes its own."""
    for name in ("both-first", "both-second"):
        async with open_memory(name) as engine:
            async with engine.session("s") as s:
                await writes(s, "/a", "/b", "/c")
            wanted = [engine.fork("s", run_from=3, new_id="x"), engine.fork("s", new_id="y")]
            found = await asyncio.gather(*(wanted if name == "both-first" else reversed(wanted)))
            taken = [source for each in found if isinstance(each, SagaResult) for source in reused(each)]
            assert taken in (["s/1", "s/2"], ["s/1", "s/2", "s/3"])
