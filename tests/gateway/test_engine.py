"""The engine's own tools: an agent that writes plans, with no Python and no operator's rights."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from typing import Any

import pytest
from mcp import MCPError

from saga_engine import Coordinator, tool
from saga_engine.errors import QuotaExceeded
from saga_engine.gateway import door
from saga_engine.gateway.engine import EngineFace
from saga_engine.gateway.visit import Visit
from saga_engine.plan.effort import spend
from saga_engine.planner.settings import PlannerSettings
from saga_engine.runtime import undo
from tests.gateway.agents import engine_served, legacy_session
from tests.gateway.agents import writer as agent
from tests.support.turns import Turns

rooms: list[str] = []


@tool(undo="cancel")
async def book(guest: str) -> dict[str, str]:
    """Book a room."""
    rooms.append(guest)
    return {"guest": guest}


@tool
async def cancel(guest: str) -> None:
    """Cancel a room."""
    rooms.remove(guest)


@tool(effect="read")
async def write(chars: int) -> dict[str, str]:
    """Write a text."""
    return {"text": "x" * chars}


@asynccontextmanager
async def engine(**options: Any) -> AsyncIterator[Coordinator]:
    rooms.clear()
    opening = Coordinator.open("memory://", [book, cancel, write], durability="relaxed", **options)
    async with opening as coordinator:
        yield coordinator


def step(number: int, name: str, **params: Any) -> dict[str, Any]:
    return {"step_id": number, "tool": name, "params": params}


PLAN = {"steps": [step(1, "book", guest="Ann"), step(2, "write", chars=50_000)]}


@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
async def test_an_agent_checks_submits_follows_and_undoes_a_plan(mode: Any) -> None:
    """Problems come back with hints, submit answers at once, large outputs are read in parts, an undo undoes it."""
    async with engine() as coordinator, agent(coordinator, mode=mode) as it:
        listed = await it.done("saga_tools")
        assert {each["name"]: each["undo"] for each in listed["tools"]} == {"book": "cancel", "cancel": "", "write": ""}
        assert "properties" in (await it.done("saga_plan_format"))["schema"]
        wrong = {"steps": [step(1, "bok", guest="Ann"), step(2, "book")]}
        told = await it.done("saga_check", plan=wrong)
        assert (told["valid"], len(told["problems"])) == (False, 2)
        assert "book" in told["problems"][0]["hint"]
        assert (await it.call("saga_submit", plan=wrong)).structured_content == told
        assert rooms == []
        assert (await it.done("saga_check", plan=PLAN))["valid"]
        assert (await it.done("saga_simulate", plan=PLAN))["clean"]
        saga_id = (await it.done("saga_submit", plan=PLAN, key="trip"))["saga_id"]
        assert (await it.done("saga_submit", plan=PLAN, key="trip"))["saga_id"] == saga_id == "kim-trip"
        shown = await it.done("saga_show", saga_id=saga_id, wait_s=60)
        assert (shown["status"], shown["steps"][0]["output"]) == ("COMPLETED", {"guest": "Ann"})
        assert shown["steps"][1]["output_is_cut"]
        text, place = "", 0
        while place is not None:
            part = await it.done("saga_show", saga_id=saga_id, step="2", offset=place)
            text, place = text + part["output_json"], part.get("next_offset")
        assert text == '{"text": "' + "x" * 50_000 + '"}'
        assert [each["saga_id"] for each in (await it.done("saga_list"))["sagas"]] == [saga_id]
        assert (await it.done("saga_undo", saga_id=saga_id))["undo"]["status"] == "COMPENSATED"
        assert rooms == []


async def test_the_id_of_a_saga_is_of_one_agent_and_one_key() -> None:
    """``desk`` with the key ``7-order`` is not ``desk-7`` with ``order``, nor any other that looks like it."""
    async with (
        engine() as coordinator,
        agent(coordinator, "desk") as one,
        agent(coordinator, "desk-7") as two,
        agent(coordinator, "desk-7-") as three,
    ):
        made = [
            (await it.done("saga_submit", plan=PLAN, key=key))["saga_id"]
            for it, key in ((one, "7-order"), (two, "order"), (one, "7--order"), (three, "order"), (two, "7"))
        ]
        assert made == ["desk-7-order", "desk--7-order", "desk-7--order", "desk--7---order", "desk--7-7"]
        assert "is not a valid saga id" in await one.refused("saga_submit", plan=PLAN, key="-7-order")


async def test_the_same_key_is_the_same_saga_for_its_agent_alone() -> None:
    """A saga that somebody else began under that id is none of the agent's, whatever its plan is."""
    async with engine() as coordinator, agent(coordinator, "kim") as it:
        await coordinator.run(PLAN, saga_id="kim-trip")
        assert "it is not yours" in await it.refused("saga_submit", plan=PLAN, key="trip")
        assert (await it.done("saga_list"))["sagas"] == []


async def test_an_agent_reaches_its_own_sagas_alone() -> None:
    """It cannot see, list or undo another one's, nor make its own look like another one's."""
    async with engine() as coordinator, agent(coordinator, "kim") as it, agent(coordinator, "lou") as other:
        saga_id = (await it.done("saga_submit", plan=PLAN))["saga_id"]
        assert (await it.done("saga_show", saga_id=saga_id, wait_s=60))["ended"]
        for name in ("saga_show", "saga_undo"):
            assert (await other.refused(name, saga_id=saga_id)).startswith("saga-not-found")
        assert (await other.done("saga_list"))["sagas"] == []
        assert not (await other.done("saga_check", plan={**PLAN, "tags": ["agent:kim"]}))["valid"]
        assert rooms == ["Ann"]


async def test_what_an_agent_may_not_write() -> None:
    """Parts of the format that need leave, and undos that are switched off, are problems of its plan."""
    irreversible = {"steps": [{**step(1, "cancel", guest="Ann"), "kind": "irreversible"}]}
    other = {"tool": "cancel", "params": {"guest": "Bo"}}
    redirected = {"steps": [{**step(1, "book", guest="Ann"), "rollback": other}]}
    async with engine() as coordinator, agent(coordinator) as it:
        problems = (await it.done("saga_check", plan=irreversible))["problems"]
        refused = next(each for each in problems if each["code"] == "feature-not-allowed")
        assert "saga mcp --engine --may-use irreversible" in refused["hint"], "its operator can allow it"
        computed = {"steps": [{"step_id": 1, "compute": {"add": [1, 2]}}]}
        assert (await it.done("saga_check", plan=computed))["valid"], "what changes nothing needs no leave"
        assert not (await it.done("saga_check", plan=redirected))["valid"]
        with pytest.raises(MCPError):
            await it.call("saga_show", saga_id=7)
        with pytest.raises(MCPError):
            await it.call("saga_resolve", saga_id="kim-1")


async def test_the_checks_of_an_agent_are_counted() -> None:
    """One that has as many as it may is refused, for checks and simulations; another one and its own plans are not."""
    async with engine() as coordinator:
        face = EngineFace(coordinator, "desk")
        with ExitStack() as held:
            for _ in range(4):
                held.enter_context(face._checks.taken("ann"))
            for made in (face._check, face._simulate):
                with pytest.raises(QuotaExceeded, match="being checked or simulated"):
                    await made("ann", {"plan": PLAN})
            assert (await face._check("bob", {"plan": PLAN}))["valid"] is True
            assert (await face._submit("ann", {"plan": PLAN}))["status"] == "RUNNING"
        assert (await face._check("ann", {"plan": PLAN}))["valid"] is True


@pytest.mark.parametrize("asked", ["saga_check", "saga_submit", "saga_simulate"])
async def test_no_turn_takes_long_whatever_an_agent_writes(asked: str) -> None:
    """Large plans of an agent are read, checked and submitted beside the loop, which has many turns meanwhile."""
    async with engine() as coordinator:
        face = EngineFace(coordinator, "desk", PlannerSettings(max_steps=5_000))
        made = {"saga_check": face._check, "saga_submit": face._submit, "saga_simulate": face._simulate}[asked]
        count = 40 if asked == "saga_simulate" else 1_500
        steps = [step(at, "book", guest="x") for at in range(count)]
        turns = Turns()
        await made("ann", {"plan": {"steps": steps}})
        turns.end()
    assert turns.longest < turns.whole / 4, f"{turns.longest:.3f} of {turns.whole:.3f} s in {turns.count} turns"


async def test_an_agent_does_not_approve_its_own_plan() -> None:
    """The policy holds a call of its plan; it sees the question, has no tool that answers, and may give up."""
    policy = {"default": "ask"}
    async with engine(policy=policy) as coordinator, agent(coordinator) as it:
        saga_id = (await it.done("saga_submit", plan=PLAN))["saga_id"]
        shown = await it.done("saga_show", saga_id=saga_id, wait_s=60)
        assert [each["kind"] for each in shown["questions"]] == ["approval"]
        names = await it.names()
        assert not [name for name in names if "resolve" in name or "stop" in name or "policy" in name]
        assert (await it.done("saga_undo", saga_id=saga_id))["status"] == "COMPENSATED"
        assert rooms == []


class Slow:
    """The undo of a child is read until somebody has left, and a while longer; it asks all the time whether it may."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.begun, self.left = threading.Event(), threading.Event()
        self._inner = undo.state_of
        patch.setattr(undo, "state_of", self._state_of)

    def _state_of(self, records: Any, catalog: Any) -> Any:
        if records[0].parent is not None:
            self.begun.set()
            while not self.left.wait(0.01):
                spend()
            for _ in range(1_000):
                spend()
        return self._inner(records, catalog)


FAMILY = {
    "steps": [
        {
            "step_id": "kid",
            "saga": {"plan": {"steps": [{**step(at, "book", guest=f"g{at}"), "depends_on": []} for at in range(250)]}},
        }
    ]
}


async def test_a_client_that_leaves_amid_an_undo_ends_nothing_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Over HTTP: the saga that undoes reads a large child as its own work, whoever asked for the undo."""
    visits: list[Visit] = []

    def noted(saga: str) -> Visit:
        visits.append(Visit(saga))
        return visits[-1]

    monkeypatch.setattr(door, "Visit", noted)
    async with engine() as coordinator, engine_served(coordinator) as url:
        await coordinator.run(FAMILY, saga_id="kim-trip", tags=["agent:kim"])
        assert len(rooms) == 250
        slow = Slow(monkeypatch)
        async with asyncio.timeout(60), legacy_session(url) as http:
            params = {"name": "saga_undo", "arguments": {"saga_id": "kim-trip"}}
            body = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": params}
            async with http.stream("POST", url, json=body):
                assert await asyncio.to_thread(slow.begun.wait, 60)
        try:
            async with asyncio.timeout(60):
                await visits[-1].gone.wait()
        finally:
            slow.left.set()
        undone = await coordinator.wait("kim-trip-undo")
    assert (undone.status, rooms) == ("COMPENSATED", [])


ASKS = {"steps": [step(1, "book", guest="Ann"), {"step_id": 2, "ask": {"question": "Go on?", "options": ["yes"]}}]}


async def test_an_agent_grows_its_own_saga() -> None:
    """Added steps are checked, limited and undone like those of a plan, and bind what the saga has already."""
    rules = PlannerSettings(may_use=("ask",), max_steps=9)
    async with engine() as coordinator, agent(coordinator, rules=rules) as it:
        saga_id = (await it.done("saga_submit", plan=ASKS, key="trip"))["saga_id"]
        more = [
            step(3, "book", guest="$output.step_1.guest"),
            {"step_id": 4, "tool": "book", "params": {"guest": "Bo"}},
        ]
        shown = await it.done("saga_amend", saga_id=saga_id, steps=more, note="two more")
        assert [each["step"] for each in shown["steps"]] == ["1", "2", "3", "4"]
        added = next(record for record in await coordinator.history(saga_id) if record["k"] == "StepsAdded")
        assert added["by"] == "agent kim"
        await coordinator.resolve(saga_id, 2, "yes")
        assert rooms == ["Ann", "Ann", "Bo"]
        assert "has ended" in await it.refused("saga_amend", saga_id=saga_id, steps=more)


@pytest.mark.parametrize(
    ("steps", "code"),
    [
        ([step(3, "bok", guest="Bo")], "tool-not-offered"),
        ([step(3, "book", guest="$output.step_7.guest")], "binding"),
        ([step(1, "book", guest="Bo")], "step-duplicate"),
        ([step(at, "book", guest="Bo") for at in (3, 4, 5)], "limit-steps"),
        ([{"step_id": 3, "wait": {"event": "paid"}}], "not-allowed"),
        ([{**step(3, "book", guest="Bo"), "kind": "irreversible"}], "not-allowed"),
    ],
)
async def test_what_an_agent_may_not_write_into_a_plan_it_may_not_add(steps: Any, code: str) -> None:
    """Tools, ids, bindings, the number of steps, parts without leave, undos switched off: nothing is added."""
    rules = PlannerSettings(may_use=("ask",), max_steps=4)
    async with engine() as coordinator, agent(coordinator, rules=rules) as it:
        saga_id = (await it.done("saga_submit", plan=ASKS, key="trip"))["saga_id"]
        told = (await it.call("saga_amend", saga_id=saga_id, steps=steps)).structured_content or {}
        assert any(code in each["code"] for each in told["problems"]), told
        assert len((await it.done("saga_show", saga_id=saga_id))["steps"]) == 2


YES = {"expires_s": 60, "on_timeout": {"value": "yes"}}


@pytest.mark.parametrize(
    ("steps", "code", "path"),
    [
        ([{"step_id": 3, "ask": {"question": "What is your password?"}}], "ask-for-secret", "$.steps[0].ask.question"),
        (
            [{"step_id": 3, "ask": {"question": "Pay?", "options": ["yes", "no"], **YES}}],
            "timeout-means-yes",
            "$.steps[0].ask.on_timeout",
        ),
        (
            [{**step(3, "book", guest="Bo"), "when": [{"value": 1, "op": "==", "to": 1}]}],
            "condition-constant",
            "$.steps[0].when[0]",
        ),
    ],
)
async def test_an_addition_decides_what_it_seems_to(steps: Any, code: str, path: str) -> None:
    """Questions, waits and conditions of an addition are held to what those of a plan are, with their own places."""
    async with engine() as coordinator, agent(coordinator, rules=PlannerSettings(may_use=("ask",))) as it:
        saga_id = (await it.done("saga_submit", plan=ASKS, key="trip"))["saga_id"]
        told = (await it.call("saga_amend", saga_id=saga_id, steps=steps)).structured_content or {}
        assert [(each["code"], each["path"]) for each in told["problems"]] == [(code, path)]


async def test_additions_at_the_same_time_have_one_limit() -> None:
    """Each counts the steps of the others, and is answered once it is recorded, although the saga waits."""
    rules = PlannerSettings(may_use=("wait",), max_steps=9)
    plan = {"steps": [step(1, "book", guest="Ann"), {"step_id": 2, "wait": {"event": "go", "timeout_s": 6000}}]}
    async with engine() as coordinator, agent(coordinator, rules=rules) as it, asyncio.timeout(25):
        saga_id = (await it.done("saga_submit", plan=plan, key="trip"))["saga_id"]
        several = [[step(at + each, "write", chars=1) for each in (0, 1, 2)] for at in (10, 20, 30, 40)]
        answers = await asyncio.gather(*(it.call("saga_amend", saga_id=saga_id, steps=each) for each in several))
        assert sorted(bool(each.is_error) for each in answers) == [False, False, True, True]
        assert len((await it.done("saga_show", saga_id=saga_id))["steps"]) == 8


async def test_a_saga_of_somebody_else_is_not_there() -> None:
    """An agent adds to its own sagas alone."""
    async with engine() as coordinator, agent(coordinator) as it:
        await coordinator.submit(PLAN, saga_id="theirs")
        assert "there is no saga theirs" in await it.refused("saga_amend", saga_id="theirs", steps=[step(9, "write")])
