"""Sessions that stay open when their agent fails: mended and run again, nothing happens twice; or a person decides."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from saga_engine import CallFailed, Coordinator, NeedsPerson, RetryPolicy, Session, ToolError, sync_session, tool
from saga_engine.api.temporal import TemporalCoordinator
from saga_engine.errors import RuntimeUnsupported, SessionDiverged, SessionEnded, SettingInvalid

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
        raise ToolError(f"there is no {path}", error_code="not_found", suggestion="another path")
    LOG.append(path)
    return {"path": path}


@tool(retry=ONCE)
async def remove(path: str) -> None:
    if f"-{path}" in FULL:
        raise ToolError("it is locked", retryable=False)
    LOG.append(f"-{path}")


@tool(undo="remove", retry=ONCE)
async def lose(path: str) -> dict:
    LOG.append(path)
    raise ConnectionResetError("the line went dead")


@tool(retry=ONCE)
async def send(text: str) -> str:
    LOG.append(f"send {text}")
    return text


TOOLS = [write, remove, lose, send]


def open_memory(name: str = "") -> Any:
    return Coordinator.open(f"memory://{name}", TOOLS, on_escalation=())


async def ten(s: Session, last: str) -> None:
    """Nine calls that are right, and a tenth one."""
    for number in range(1, 10):
        await s.call(write, path=f"/a/{number}")
    await s.call(write, path=last)


NINE = [f"/a/{number}" for number in range(1, 10)]


async def kinds(engine: Coordinator, saga_id: str = "s") -> list[str]:
    return [question["kind"] for question in (await engine.show(saga_id)).body["questions"]]


async def fails(
    engine: Coordinator, agent: Callable[[Session], Awaitable[Any]], error: type[BaseException], **options: Any
) -> BaseException:
    """The error with which an agent in a session that is kept ends."""
    with pytest.raises(error) as raised:
        async with engine.session("s", **{"on_failure": "keep", **options}) as s:
            await agent(s)
    return raised.value


# --- keep ----------------------------------------------------------------------------------------------------------


async def test_nine_of_ten_are_done_and_the_tenth_is_mended() -> None:
    """The headline: mended and run again, the nine are reused, the tenth is made, and nothing happens twice."""
    async with open_memory("kept-ten") as engine:
        error = await fails(engine, lambda s: ten(s, "/wrong/10"), CallFailed)
        assert "s is kept" in error.__notes__[0]
        assert LOG == NINE
        shown = (await engine.show("s")).body
        assert (shown["status"], shown["session"]) == ("ESCALATED", "open")
        (question,) = shown["questions"]
        assert (question["kind"], question["step_id"], question["options"]) == ("session-kept", 10, ["undo", "close"])
        assert question["error"]["error_code"] == "not_found"
    async with open_memory("kept-ten") as engine:  # as in another process
        async with engine.session("s", on_failure="keep") as s:
            await ten(s, "/a/10")
        assert [*NINE, "/a/10"] == LOG
        assert (await engine.show("s")).completed
        async with engine.session("s") as s:  # delivered again, it is answered from the journal
            await ten(s, "/a/10")
    assert [*NINE, "/a/10"] == LOG


async def test_the_same_call_is_made_again_when_its_cause_is_mended() -> None:
    """The cause may lie outside: the failed call, unchanged, is made anew, and not answered with its old failure."""
    FULL.add("/a/10")
    async with open_memory() as engine:
        for _ in range(2):
            await fails(engine, lambda s: ten(s, "/a/10"), CallFailed)
        FULL.clear()
        async with engine.session("s") as s:
            await ten(s, "/a/10")
        assert (await engine.show("s")).completed
    assert [*NINE, "/a/10"] == LOG


async def test_a_failure_that_the_agent_dealt_with_stays() -> None:
    """An agent that went on after a failure gets the same failure again, and so takes the same way."""

    async def agent(s: Session, last: str) -> None:
        try:
            await s.call(write, path="/wrong/1")
        except CallFailed:
            await s.call(write, path="/b")
        await s.call(write, path=last)

    async with open_memory() as engine:
        await fails(engine, lambda s: agent(s, "/wrong/2"), CallFailed)
        async with engine.session("s") as s:
            await agent(s, "/c")
        assert (await engine.show("s")).completed
    assert LOG == ["/b", "/c"]


async def test_the_mended_agent_may_leave_out_what_failed() -> None:
    """A call that did not happen need not be repeated; one that happened must be."""

    async def two(s: Session) -> None:
        await s.call(write, path="/a")
        await s.call(write, path="/b")

    async def agent(s: Session) -> None:
        await two(s)
        await s.call(write, path="/wrong")

    async with open_memory() as engine:
        await fails(engine, agent, CallFailed)
        error = await fails(engine, lambda s: s.call(write, path="/a"), SessionDiverged)
        assert isinstance(error, SessionDiverged)
        assert await kinds(engine) == ["session-kept"]  # and still waits for its agent
        async with engine.session("s") as s:
            await two(s)
        assert (await engine.show("s")).completed
        async with engine.session("s") as s:
            await two(s)
    assert LOG == ["/a", "/b"]


async def test_another_way_from_the_failed_call_on() -> None:
    """The mended agent may make more calls, and die after each of them: every life finds the places of the last."""

    async def agent(s: Session, *paths: str) -> None:
        for path in paths:
            await s.call(write, path=path)

    async with open_memory() as engine:
        await fails(engine, lambda s: agent(s, "/a", "/wrong"), CallFailed)
        await fails(engine, lambda s: agent(s, "/a", "/b", "/wrong"), CallFailed)
        await fails(engine, lambda s: agent(s, "/a", "/b", "/c", "/wrong"), CallFailed)
        async with engine.session("s") as s:
            await agent(s, "/a", "/b", "/c", "/d", "/e")
        assert (await engine.show("s")).completed
    assert LOG == ["/a", "/b", "/c", "/d", "/e"]


async def test_calls_side_by_side_of_which_one_fails() -> None:
    """The others of its turn are reused at their places, whichever of them ended last."""

    async def agent(s: Session, second: str) -> None:
        async with asyncio.TaskGroup() as group:
            for path in ("/a", second, "/c"):
                group.create_task(s.call(write, path=path))
        await s.call(write, path="/d")

    async with open_memory() as engine:
        error = await fails(engine, lambda s: agent(s, "/wrong"), ExceptionGroup)
        assert isinstance(error, ExceptionGroup)
        (question,) = (await engine.show("s")).body["questions"]
        assert (question["step_id"], question["error"]["error_code"]) == (2, "not_found")
        await fails(engine, lambda s: agent(s, "/wrong/too"), ExceptionGroup)
        async with engine.session("s") as s:
            await agent(s, "/b")
        assert (await engine.show("s")).completed
    assert sorted(LOG) == ["/a", "/b", "/c", "/d"]
    assert LOG[-1] == "/d"


async def test_what_was_rolled_back_last_is_made_anew() -> None:
    """A roll-back before the failure undid its calls, so they are made again; what cannot be undone is not."""

    async def agent(s: Session, last: str) -> None:
        await s.call(write, path="/a")
        point = s.savepoint()
        try:
            await s.call(write, path="/b")
            await s.call(send, text="hello", irreversible=True)
            await s.call(write, path=last)
        except CallFailed:
            await s.rollback(point)
            raise

    async with open_memory() as engine:
        await fails(engine, lambda s: agent(s, "/wrong"), CallFailed)
        assert LOG == ["/a", "/b", "send hello", "-/b"]
        await fails(engine, lambda s: agent(s, "/wrong"), CallFailed)
        async with engine.session("s") as s:
            await agent(s, "/c")
        assert (await engine.show("s")).completed
    assert LOG == ["/a", "/b", "send hello", "-/b", "/b", "-/b", "/b", "/c"]


async def test_a_roll_back_that_the_agent_went_on_after_stays() -> None:
    """It is repeated by the agent and not by the engine, as in every life."""

    async def agent(s: Session, last: str) -> None:
        point = s.savepoint()
        await s.call(write, path="/a")
        await s.rollback(point)
        await s.call(write, path="/b")
        await s.call(write, path=last)

    async with open_memory() as engine:
        await fails(engine, lambda s: agent(s, "/wrong"), CallFailed)
        async with engine.session("s") as s:
            await agent(s, "/c")
        assert (await engine.show("s")).completed
    assert LOG == ["/a", "-/a", "/b", "/c"]


async def test_an_earlier_call_that_changed_is_a_divergence() -> None:
    """A call that happened is never made twice with other params unless the agent's author wants that."""
    async with open_memory() as engine:
        await fails(engine, lambda s: ten(s, "/wrong"), CallFailed)
        with pytest.raises(SessionDiverged):
            async with engine.session("s") as s:
                await s.call(write, path="/other")
    assert LOG == NINE


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, asyncio.CancelledError, LookupError])
async def test_whatever_leaves_the_block_keeps_the_session(error: type[BaseException]) -> None:
    """Ctrl-C, an exit, the end of the task and an error of the agent's own."""

    async def agent(s: Session) -> None:
        await s.call(write, path="/a")
        raise error("enough")

    async with open_memory() as engine:
        await fails(engine, agent, error)
        assert await kinds(engine) == ["session-kept"]
        async with engine.session("s") as s:
            await s.call(write, path="/a")
        assert (await engine.show("s")).completed
    assert LOG == ["/a"]


async def test_a_call_in_flight_is_awaited_and_kept() -> None:
    """A cancelled agent leaves a call that is being made: its outcome is journalled, and the next life gets it."""
    started, go = asyncio.Event(), asyncio.Event()

    @tool(undo="remove")
    async def slow(path: str) -> dict:
        started.set()
        await go.wait()
        LOG.append(path)
        return {"path": path}

    async def life(engine: Coordinator) -> None:
        async with engine.session("s", on_failure="keep") as s:
            await s.call(slow, path="/slow")

    async with Coordinator.open("memory://", [slow, remove], on_escalation=()) as engine:
        task = asyncio.create_task(life(engine))
        await started.wait()
        task.cancel()
        await asyncio.sleep(0)
        go.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        await life(engine)
        assert (await engine.show("s")).completed
    assert LOG == ["/slow"]


async def test_a_call_in_doubt_is_still_a_persons() -> None:
    """The question about the call stays; answered, the agent runs again and gets the answer."""

    async def agent(s: Session, last: str) -> None:
        await s.call(write, path="/a")
        try:
            await s.call(lose, path="/b")
        except NeedsPerson as error:
            raise LookupError from error
        await s.call(write, path=last)

    async with open_memory() as engine:
        await fails(engine, lambda s: agent(s, "/c"), LookupError)
        assert sorted(await kinds(engine)) == ["in-doubt", "session-kept"]
        error = await fails(engine, lambda s: agent(s, "/c"), NeedsPerson)
        assert isinstance(error, NeedsPerson)
        await engine.resolve("s", 2, "happened", output={"path": "/b"})
        assert await kinds(engine) == ["session-kept"]
        async with engine.session("s") as s:
            await agent(s, "/c")
        assert (await engine.show("s")).completed
    assert LOG == ["/a", "/b", "/c"]


async def test_a_kept_session_can_be_cancelled_closed_and_undone() -> None:
    """A cancel undoes it, and so does ``undo``; ``close`` ends it as complete."""
    for number, (decision, status) in enumerate([("", "COMPENSATED"), ("undo", "COMPENSATED"), ("close", "COMPLETED")]):
        async with open_memory(f"kept-end-{number}") as engine:
            await fails(engine, lambda s: ten(s, "/wrong"), CallFailed)
            if decision:
                outcome = await engine.resolve("s", 10, decision, by="ada")
            else:
                outcome = await engine.cancel("s")
            assert (outcome.status, outcome.report["clean"]) == (status, True)
            if status == "COMPENSATED":
                assert [*NINE, *(f"-{path}" for path in reversed(NINE))] == LOG
                with pytest.raises(SessionEnded):
                    async with engine.session("s"):
                        pass
            else:
                assert LOG == NINE
            LOG.clear()


async def test_a_session_that_nobody_returns_to_is_undone_after_its_bound() -> None:
    """``idle_s`` bounds how long it is kept; the agent that returned in time is not bounded by it."""
    async with open_memory() as engine:
        await fails(engine, lambda s: ten(s, "/wrong"), CallFailed, idle_s=3600)
        (question,) = (await engine.show("s")).body["questions"]
        assert question["expires_ms"] - question["asked_ms"] == 3_600_000
        await fails(engine, lambda s: ten(s, "/wrong"), CallFailed, idle_s=0.01)
        outcome = await engine.resume("s")
        while not outcome.ended:  # its bound is as near as it can be
            outcome = await engine.resume("s")
        assert outcome.status == "COMPENSATED"
        assert outcome.body["error"]["code"] == "idle"
    assert [*NINE, *(f"-{path}" for path in reversed(NINE))] == LOG


async def test_a_deadline_binds_a_kept_session() -> None:
    """The session's own deadline holds while it is kept."""
    async with open_memory() as engine:

        async def agent(s: Session) -> None:
            await s.call(write, path="/a")
            raise LookupError

        await fails(engine, agent, LookupError, deadline_s=0.05)
        outcome = await engine.resume("s")
        while not outcome.ended:
            outcome = await engine.resume("s")
        assert (outcome.status, outcome.body["error"]["code"]) == ("COMPENSATED", "deadline")


async def test_a_session_in_which_nothing_happened_stays_open() -> None:
    """There is nothing to keep and nothing to ask: the agent runs again."""
    async with open_memory() as engine:
        await fails(engine, lambda s: asyncio.wait_for(asyncio.Event().wait(), 0), TimeoutError)
        assert (await engine.show("s")).body["session"] == "open"
        async with engine.session("s") as s:
            await s.call(write, path="/a")
        assert (await engine.show("s")).completed


# --- ask -----------------------------------------------------------------------------------------------------------


async def test_an_operator_decides_that_the_agent_may_continue() -> None:
    """Before the answer the agent gets ``NeedsPerson``; after ``keep`` it runs again, and nothing happens twice."""
    asked: list[Any] = []

    async def hook(question: Any) -> None:
        asked.append(question)

    async with Coordinator.open("memory://", TOOLS, on_escalation=hook) as engine:
        await fails(engine, lambda s: ten(s, "/wrong"), CallFailed, on_failure="ask")
        assert [(each.kind, each.options) for each in asked] == [("session-failed", ("undo", "keep", "close"))]
        await fails(engine, lambda s: ten(s, "/a/10"), NeedsPerson, on_failure="ask")
        assert await kinds(engine) == ["session-failed"]
        outcome = await engine.resolve("s", 10, "keep", by="ada", note="mended")
        assert outcome.status == "ESCALATED"
        assert await kinds(engine) == ["session-kept"]
        async with engine.session("s", on_failure="ask") as s:
            await ten(s, "/a/10")
        assert (await engine.show("s")).completed
    assert [*NINE, "/a/10"] == LOG


@pytest.mark.parametrize(("decision", "status"), [("undo", "COMPENSATED"), ("close", "COMPLETED")])
async def test_an_operator_decides_the_end(decision: str, status: str) -> None:
    """``undo`` undoes everything in reverse; ``close`` leaves it as it is, complete."""
    async with open_memory() as engine:
        await fails(engine, lambda s: ten(s, "/wrong"), CallFailed, on_failure="ask")
        assert (await engine.resolve("s", 10, decision)).status == status
    assert NINE + ([f"-{path}" for path in reversed(NINE)] if decision == "undo" else []) == LOG


async def test_an_undo_that_fails_is_asked_about_as_ever() -> None:
    """After the decision to undo, the way back is that of every session."""
    FULL.add("-/a/3")
    async with open_memory() as engine:
        await fails(engine, lambda s: ten(s, "/wrong"), CallFailed, on_failure="ask")
        outcome = await engine.resolve("s", 10, "undo")
        assert (outcome.status, await kinds(engine)) == ("ESCALATED", ["undo-failed"])
        assert (await engine.resolve("s", 3, "accept")).status == "WAIVED"


# --- settings, and agents that block ---------------------------------------------------------------------------------


async def test_settings_without_a_meaning_are_refused() -> None:
    """An unknown policy, and a bound for a session that is never kept."""
    wrong: list[dict[str, Any]] = [
        {"on_failure": "perhaps"},
        {"idle_s": 5},
        {"on_failure": "keep", "idle_s": 0},
        {"on_failure": "keep", "idle_s": float("nan")},
    ]
    async with open_memory() as engine:
        for options in wrong:
            with pytest.raises(SettingInvalid):
                async with engine.session("s", **options):
                    pass


def test_an_agent_that_blocks_is_kept_too(tmp_path: Any) -> None:
    """``sync_session`` has the same policies."""

    def agent(last: str) -> None:
        with sync_session("s", store=f"embedded://{tmp_path}/.saga", tools=TOOLS, on_failure="keep", idle_s=60) as s:
            s.call(write, path="/a")
            s.call(write, path=last)

    with pytest.raises(CallFailed) as error:
        agent("/wrong")
    assert "s is kept" in error.value.__notes__[0]
    agent("/b")
    assert LOG == ["/a", "/b"]


def test_temporal_has_no_sessions() -> None:
    """They are refused with the reason, whatever their policy."""
    engine = object.__new__(TemporalCoordinator)  # it asks no server for that
    with pytest.raises(RuntimeUnsupported, match="own process"):
        engine.session("s", on_failure="keep")


async def test_temporal_has_no_forks() -> None:
    """They are refused with the reason, too."""
    engine = object.__new__(TemporalCoordinator)
    with pytest.raises(RuntimeUnsupported, match="not forked"):
        await engine.fork("s", run_from=2)
