"""``s.saga(...)``: an agent runs a child saga as one of its calls. On a real store, through the API."""

from __future__ import annotations

import asyncio
import json
import uuid
from typing import Any

import pytest

from saga_engine import CallFailed, PlanInvalid
from saga_engine.errors import SessionDiverged
from saga_engine.plan.session_steps import builtin_body, compile_builtin
from tests.support.children import DONE, STUCK, WAIT, booking, opened, plan, reaches


@pytest.fixture
def url() -> str:
    DONE.clear()
    STUCK.clear()
    return f"memory://{uuid.uuid4().hex}"


TRIP = plan(booking("a", "$input.n"), booking("b", 3))


async def test_a_child_is_a_call_of_the_session(url: str) -> None:
    """Its outputs are returned; it is a saga of its own; the agent that runs again gets them without any call."""
    for _ in range(2):
        async with opened(url) as engine, engine.session("s") as s:
            await s.call("book", {"n": 1})
            found = await s.saga(TRIP, input={"n": 2})
            assert found == {"saga_id": "s.2", "outputs": {"a": {"n": 2}, "b": {"n": 3}}}
    assert DONE == [("book", 1), ("book", 2), ("book", 3)]
    async with opened(url) as engine:
        assert (await engine.history("s.2"))[0]["parent"] == {"saga": "s", "step": "2"}
        assert (await engine.show("s")).to_dict()["steps"][1]["child"] == {"saga_id": "s.2"}


async def test_the_failure_of_the_agent_undoes_its_children(url: str) -> None:
    """All that the session did is undone in reverse, a child that completed as a whole and in its turn."""
    async with opened(url) as engine:
        with pytest.raises(ZeroDivisionError):
            async with engine.session("s") as s:
                await s.call("book", {"n": 1})
                await s.saga(TRIP, input={"n": 2})
                await s.call("book", {"n": 4})
                raise ZeroDivisionError
        assert [n for what, n in DONE if what == "unbook"] == [4, 3, 2, 1]
        assert (await engine.show("s")).status == "COMPENSATED"


async def test_a_child_that_failed_is_a_call_that_failed(url: str) -> None:
    """The child undoes itself; the agent catches the failure and goes on."""
    async with opened(url) as engine, engine.session("s") as s:
        with pytest.raises(CallFailed) as caught:
            await s.saga(plan(booking("a", 2), booking("b", 13)))
        assert caught.value.error_code == "child_undone"
        await s.call("book", {"n": 4})
    assert DONE == [("book", 2), ("unbook", 2), ("book", 4)]


async def test_a_savepoint_takes_a_child_back(url: str) -> None:
    """A rollback to before the child undoes it, and the session goes on."""
    async with opened(url) as engine, engine.session("s") as s:
        await s.call("book", {"n": 1})
        point = s.savepoint()
        await s.saga(TRIP, input={"n": 2})
        await s.rollback(point)
        await s.call("book", {"n": 5})
    assert DONE == [("book", 1), ("book", 2), ("book", 3), ("unbook", 3), ("unbook", 2), ("book", 5)]


async def test_an_agent_that_dies_while_its_child_runs_finds_it_again(url: str) -> None:
    """The child is started once; the agent's next life waits for the same one."""
    async with opened(url) as engine:
        agent = asyncio.create_task(_agent(engine))
        await reaches(engine, "s.1", "RUNNING", waits=True)
        agent.cancel()
        await asyncio.gather(agent, return_exceptions=True)
    async with opened(url) as engine:
        agent = asyncio.create_task(_agent(engine))
        await engine.send_event("paid", "k", {"ok": True})
        assert (await agent)["saga_id"] == "s.1"
    assert DONE == [("book", 2)]


async def _agent(engine: Any) -> Any:
    async with engine.session("s", on_failure="keep") as s:
        return await s.saga(plan(booking("a", 2), WAIT))


async def test_a_session_whose_agent_gives_up_cancels_its_open_child(url: str) -> None:
    """What the child did is undone before any earlier call."""
    async with opened(url) as engine:
        with pytest.raises(ZeroDivisionError):
            async with engine.session("s") as s:
                await s.call("book", {"n": 1})
                child = asyncio.create_task(s.saga(plan(booking("a", 2), WAIT)))
                await reaches(engine, "s.2", "RUNNING", waits=True)
                raise ZeroDivisionError
        await asyncio.gather(child, return_exceptions=True)
        assert (await engine.show("s")).status == "COMPENSATED"
    assert DONE == [("book", 1), ("book", 2), ("unbook", 2), ("unbook", 1)]


async def test_the_version_of_a_template_is_that_of_the_first_life(url: str) -> None:
    """The journal has the version and its plan: a later version is for later sessions."""
    async with opened(url) as engine:
        await engine.templates.put("trip", plan(booking("a", "$input.n")))
        async with engine.session("s") as s:
            assert (await s.saga(template="trip", input={"n": 2}))["outputs"] == {"a": {"n": 2}}
            await engine.templates.put("trip", TRIP)
        async with engine.session("s") as s:
            assert (await s.saga(template="trip", input={"n": 2}))["outputs"] == {"a": {"n": 2}}
        assert (await engine.history("s.1"))[0]["template"] == "trip@1"
        with pytest.raises(SessionDiverged):
            async with engine.session("s") as s:
                await s.saga(template="trip@2", input={"n": 2})


@pytest.mark.parametrize(
    ("given", "code"),
    [
        (plan({"step_id": 1, "tool": "nope"}), "tool-unknown"),
        (plan(booking("a", "$input.n")), "binding-input-missing"),
        ({"steps": []}, "field-invalid"),
    ],
)
async def test_a_child_is_checked_before_anything_is_journalled(url: str, given: dict[str, Any], code: str) -> None:
    """The agent gets the problems, and can go on with another plan."""
    async with opened(url) as engine:
        async with engine.session("s") as s:
            with pytest.raises(PlanInvalid) as caught:
                await s.saga(given)
            assert code in {problem.code for problem in caught.value.problems}
            await s.call("book", {"n": 1})
        assert len((await engine.show("s")).to_dict()["steps"]) == 1


async def test_the_values_of_an_agent_bind_nothing(url: str) -> None:
    """Input that looks like a binding is a text: it may come from a model."""
    async with opened(url) as engine, engine.session("s") as s:
        await s.call("book", {"n": 1})
        text = {"step_id": "a", "ask": {"question": "{$input.text}", "options": ["yes"]}}
        child = asyncio.create_task(s.saga(plan(text), input={"text": "$output.step_1.n"}))
        await reaches(engine, "s.2", "ESCALATED")
        asked = (await engine.show("s.2")).to_dict()["questions"][0]
        assert asked["text"] == "$output.step_1.n"
        await engine.resolve("s.2", "a", "yes")
        await child


async def test_a_sensitive_input_of_a_child_is_hidden_in_the_session(url: str) -> None:
    """No view of the session shows it, as with a call."""
    step = {"step_id": "a", "tool": "pay", "params": {"card": "$input.card"}}
    async with opened(url) as engine:
        async with engine.session("s") as s:
            await s.saga(plan(step), input={"card": "4111-2222"})
        for shown in ((await engine.show("s")).to_dict(), await engine.history("s"), await engine.history("s.1")):
            assert "4111-2222" not in json.dumps(shown)


async def test_a_child_that_failed_is_not_started_again_by_the_next_life(url: str) -> None:
    """An agent that went on after the failure of a child gets the same failure again, and no second child runs."""
    failing = plan(booking("a", 2), booking("b", 13))
    async with opened(url) as engine:
        with pytest.raises(ZeroDivisionError):
            async with engine.session("s", on_failure="keep") as s:
                with pytest.raises(CallFailed):
                    await s.saga(failing)
                await s.call("book", {"n": 4})
                raise ZeroDivisionError
        made = list(DONE)
        async with engine.session("s", on_failure="keep") as s:
            with pytest.raises(CallFailed) as caught:
                await s.saga(failing)
            assert caught.value.error_code == "child_undone"
            await s.call("book", {"n": 4})
        assert made == DONE
        assert len((await engine.show("s")).to_dict()["steps"]) == 2


def test_a_child_of_a_session_follows_the_call_before_it() -> None:
    """Its dependencies are the session's, as those of every other call: drawings and forks read them."""
    body = builtin_body("saga", {"plan": plan(booking("a", 2))})
    for word, given in (("saga", body), ("sleep", 1)):
        step = compile_builtin(1, "2", word, {word: given}, deps=(0,))
        assert (step.deps, step.data_deps) == ((0,), frozenset({0}))
