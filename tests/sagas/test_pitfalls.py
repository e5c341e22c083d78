"""Faults that were seen in packages that do a similar job: each scenario comes out right here.

Numbers are those of the list the project started from. ``ELSEWHERE`` names the tests of those that need a killed process,
a store that is down, or the command line.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from saga_engine import Coordinator, RetryPolicy, ToolContext, ToolError, tool
from saga_engine.core import transitions as t
from tests.support.servers import EmbeddedFolder

FAST = RetryPolicy(max_attempts=3, base_s=0.001, max_s=0.002)

ELSEWHERE = {
    1: "tests/kill/test_messages.py::test_a_cancel_from_another_process_while_a_call_is_in_flight",
    4: "tests/stores/test_lost_replies.py::test_refusals_of_the_server_change_nothing",
    6: "tests/cli/test_flows.py::test_a_detached_saga_waits_and_is_resumed_with_tools",
    8: "tests/kill/test_outages.py::test_a_server_that_stays_away",
    22: "tests/kill/test_sessions.py::test_killed_anywhere",
    23: "tests/ground/test_wheel.py::test_the_base_install_starts_without_any_extra",
}
ROOT = Path(__file__).parents[2]


class World:
    """What stands outside, by booking; every call is logged."""

    def __init__(self) -> None:
        self.standing: list[str] = []
        self.log: list[str] = []
        self.keys: dict[str, list[str]] = {}
        self.behave: dict[str, Callable[[], Any]] = {}

    def tools(self, *names: str, keyed: bool = True, **options: Any) -> list[Any]:
        return [one for name in names for one in self.pair(name, keyed=keyed, **options)]

    def pair(self, name: str, *, keyed: bool = True, probe: bool = False, **options: Any) -> list[Any]:
        """A tool and its undo; ``behave`` may make either of them fail."""

        async def act(ctx: ToolContext, tag: str = "") -> dict:
            self.log.append(f"{name}{tag}")
            self.keys.setdefault(name, []).append(ctx.idempotency_key)
            if name in self.behave:
                answer = self.behave[name]()
                if answer is not None:
                    return answer
            self.standing.append(name + tag)
            return {"ref": name + tag}

        async def undo(ref: str, ctx: ToolContext) -> dict:
            self.log.append(f"undo {ref}")
            if f"undo {name}" in self.behave:
                self.behave[f"undo {name}"]()
            if ref in self.standing:
                self.standing.remove(ref)
            return {}

        async def look(tag: str = "") -> dict | None:
            return {"ref": name + tag} if name + tag in self.standing else None

        settings = {"retry": FAST, "keyed": keyed, **options}
        if probe:
            settings["probe"] = f"look_{name}"
        made = [tool(name=name, undo=f"undo_{name}", **settings)(act)]
        made.append(tool(name=f"undo_{name}", retry=FAST, keyed=True)(undo))
        if probe:
            made.append(tool(name=f"look_{name}", effect="read", retry=FAST)(look))
        return made


@asynccontextmanager
async def engine(*tools: Any, store: str = "memory://") -> AsyncIterator[Coordinator]:
    async with Coordinator.open(store, list(tools)) as coordinator:
        yield coordinator


def fail(**fields: Any) -> Callable[[], Any]:
    def behave() -> Any:
        raise ToolError("no", **fields)

    return behave


def lose_the_answer(world: World, name: str) -> Callable[[], Any]:
    """The effect happens and nobody hears of it."""

    def behave() -> Any:
        world.standing.append(name)
        raise TimeoutError("no answer")

    return behave


def steps(*names: str, **common: Any) -> dict[str, Any]:
    return {"steps": [{"step_id": name, "tool": name, **common} for name in names]}


def status_of(outcome: Any, step: str) -> str:
    return next(one["status"] for one in outcome.body["steps"] if one["step_id"] == step)


def test_every_number_has_a_home() -> None:
    """No fault of the list is forgotten: each has a test of its own here, or one that is named and there."""
    tests = [(name, made) for name, made in globals().items() if re.match(r"test_\d\d_", name)]
    assert len({made for _, made in tests}) == len(tests), "one test has two names"
    assert sorted([*(int(name[5:7]) for name, _ in tests), *ELSEWHERE]) == list(range(1, 31))
    for home in ELSEWHERE.values():
        file, name = home.split("::")
        assert re.search(rf"^(async )?def {name}\(", (ROOT / file).read_text("utf-8"), re.MULTILINE), home


async def test_02_a_parallel_group_that_succeeded_is_never_undone_later() -> None:
    """Recovery finds nothing to do in a completed saga."""
    world = World()
    async with engine(*world.tools("a", "b", "c")) as coordinator:
        outcome = await coordinator.run(steps("a", "b", "c", depends_on=[]))
        assert await coordinator.resume_all() == {}
        assert (await coordinator.resume(outcome.saga_id)).status == t.COMPLETED
    assert sorted(world.standing) == ["a", "b", "c"]


async def test_03_a_failing_step_of_a_graph_leaves_no_upstream_effect() -> None:
    """A → (b, c) → d: d fails, all three are undone."""
    world = World()
    world.behave["d"] = fail()
    plan = {
        "steps": [
            {"step_id": "a", "tool": "a"},
            {"step_id": "b", "tool": "b", "depends_on": ["a"]},
            {"step_id": "c", "tool": "c", "depends_on": ["a"]},
            {"step_id": "d", "tool": "d", "depends_on": ["b", "c"]},
        ]
    }
    async with engine(*world.tools("a", "b", "c", "d")) as coordinator:
        outcome = await coordinator.run(plan)
    assert (outcome.status, world.standing) == (t.COMPENSATED, [])
    assert world.log[-1] == "undo a"


async def test_05_an_approval_of_one_amount_lets_no_other_pass() -> None:
    """``wire(10)`` was approved: ``wire(1_000_000)`` of the same saga asks anew, and is not made without an answer."""
    made: list[int] = []

    @tool(undo="unwire", retry=FAST)
    async def wire(amount: int) -> dict:
        made.append(amount)
        return {"amount": amount}

    @tool(retry=FAST)
    async def unwire(amount: int) -> dict:
        made.remove(amount)
        return {}

    listed = [{"step_id": at, "tool": "wire", "params": {"amount": much}} for at, much in ((1, 10), (2, 1_000_000))]
    policy = {"rules": [{"name": "wires", "tools": ["wire"], "verdict": "ask"}]}
    async with Coordinator.open("memory://", [wire, unwire], policy=policy) as coordinator:
        asked = await coordinator.run({"steps": listed}, saga_id="w")
        assert (asked.status, made) == (t.ESCALATED, [])
        again = await coordinator.resolve("w", 1, "approve", by="ada")
        assert (again.status, made) == (t.ESCALATED, [10])
        assert again.body["questions"][0]["params"] == {"amount": 1_000_000}
        ended = await coordinator.resolve("w", 2, "deny", by="ada")
    assert (ended.status, made) == (t.COMPENSATED, [])


async def test_07_a_failed_undo_is_never_stored_as_rolled_back() -> None:
    """It is a question to a person, the report says failed, and the word is not clean."""
    world = World()
    world.behave |= {"b": fail(), "undo a": fail()}
    async with engine(*world.tools("a", "b")) as coordinator:
        outcome = await coordinator.run(steps("a", "b"))
        assert (outcome.status, status_of(outcome, "a")) == (t.ESCALATED, t.ESCALATED)
        assert outcome.report == {
            "compensated": [],
            "failed": ["a"],
            "unresolved": [],
            "left_in_place": [],
            "clean": False,
        }
        assert [head.status for head in await coordinator.list()] == [t.ESCALATED]


async def test_09_finished_sagas_leave_the_running_index() -> None:
    """The index follows the status in the same write."""
    world = World()
    async with engine(*world.tools("a")) as coordinator:
        await coordinator.run(steps("a"))
        assert await coordinator.list(t.RUNNING) == []
        assert len(await coordinator.list(t.COMPLETED)) == 1


async def test_10_documented_retries_happen() -> None:
    """max_attempts counts the first one, a retryable error is retried with the same key, and the plan may overrule."""
    world = World()
    world.behave["a"] = fail(retryable=True)
    async with engine(*world.tools("a")) as coordinator:
        await coordinator.run(steps("a"))
        assert world.log == ["a"] * 3
        assert len(set(world.keys["a"])) == 1
        await coordinator.run(steps("a", retry={"max_attempts": 5}))
        assert world.log == ["a"] * 8


async def test_11_a_charge_that_timed_out_is_not_repeated_without_a_key() -> None:
    """No key, no probe: one call, then a person is asked."""
    world = World()
    world.behave["charge"] = lose_the_answer(world, "charge")
    async with engine(*world.tools("charge", keyed=False)) as coordinator:
        outcome = await coordinator.run(steps("charge"))
        assert (outcome.status, world.log) == (t.ESCALATED, ["charge"])
        assert outcome.body["questions"][0]["kind"] == "in-doubt"


async def test_12_a_compensation_that_failed_once_can_be_tried_again() -> None:
    """The answer 'retry' gives the undo a fresh budget."""
    world = World()
    world.behave |= {"b": fail(), "undo a": fail()}
    async with engine(*world.tools("a", "b")) as coordinator:
        outcome = await coordinator.run(steps("a", "b"))
        del world.behave["undo a"]
        outcome = await coordinator.resolve(outcome.saga_id, "a", "retry", by="ada")
    assert (outcome.status, world.standing, outcome.report["clean"]) == (t.COMPENSATED, [], True)


async def test_13_a_step_in_doubt_is_not_forgotten_while_others_are_undone() -> None:
    """A happened, b is in doubt, the saga is cancelled: the doubt stays open and a waits for it."""
    world = World()
    world.behave["b"] = lose_the_answer(world, "b")
    async with engine(*world.tools("a"), *world.tools("b", keyed=False)) as coordinator:
        outcome = await coordinator.run(steps("a", "b"))
        assert outcome.status == t.ESCALATED
        outcome = await coordinator.cancel(outcome.saga_id)
        assert (outcome.status, world.standing) == (t.ESCALATED, ["a", "b"])
        assert outcome.report["unresolved"] == ["a", "b"]
        outcome = await coordinator.resolve(outcome.saga_id, "b", "happened", output={"ref": "b"})
    assert (outcome.status, world.standing, world.log[-2:]) == (t.COMPENSATED, [], ["undo b", "undo a"])


async def test_14_a_time_out_is_not_stored_as_failed() -> None:
    """A tool that hangs is in doubt when its time is up."""
    world = World()
    world.pair("a")

    @tool(undo="undo_a", timeout_s=0.01)
    async def hang() -> dict:
        await asyncio.Event().wait()
        return {}

    async with engine(hang, *world.tools("a")) as coordinator:
        outcome = await coordinator.run(steps("hang"))
        kinds = [record["k"] for record in await coordinator.history(outcome.saga_id)]
    assert status_of(outcome, "hang") == t.ESCALATED
    assert "StepInDoubt" in kinds
    assert "StepFailed" not in kinds


async def test_15_two_identical_calls_are_two_calls() -> None:
    """The key comes from the step, not from its arguments."""
    world = World()
    plan = {"steps": [{"step_id": 1, "tool": "a"}, {"step_id": 2, "tool": "a"}]}
    async with engine(*world.tools("a")) as coordinator:
        await coordinator.run(plan)
    assert len(set(world.keys["a"])) == 2


async def test_16_parallel_steps_never_erase_each_other() -> None:
    """Sixteen branches end at once; the next step fails: all sixteen are undone."""
    world = World()
    names = [f"p{number}" for number in range(16)]
    world.behave["last"] = fail()
    plan = steps(*names, depends_on=[])
    plan["steps"].append({"step_id": "last", "tool": "last", "depends_on": names})
    async with engine(*world.tools(*names, "last")) as coordinator:
        outcome = await coordinator.run(plan)
    assert (outcome.status, world.standing, len(outcome.report["compensated"])) == (t.COMPENSATED, [], 16)


async def test_17_a_live_but_idle_saga_never_expires(tmp_path: Path) -> None:
    """An escalated saga may wait for years: none of its keys has a time to live; a finished one's have."""
    world = World()
    world.behave["a"] = lose_the_answer(world, "a")
    with EmbeddedFolder(tmp_path / "saga") as folder:
        async with engine(*world.tools("a", keyed=False), *world.tools("b"), store=folder.url) as coordinator:
            await coordinator.run(steps("a"), saga_id="idle")
            await coordinator.run(steps("b"), saga_id="over")
            with folder.raw() as raw:
                idle = {raw.pttl(key) for key in raw.scan_iter("*:idle")}
                # (The search index is cleaned by the terms of a saga, at an append after its other keys have gone.)
                over = {raw.pttl(key) for key in raw.scan_iter("*:over") if b":terms:" not in key}
    assert idle == {-1}
    assert over
    assert min(over) > 0


async def test_18_running_a_compensated_saga_again_changes_nothing() -> None:
    """It stays COMPENSATED, calls nothing, and its journal is as it was."""
    world = World()
    world.behave["b"] = fail()
    async with engine(*world.tools("a", "b")) as coordinator:
        await coordinator.run(steps("a", "b"), saga_id="once")
        del world.behave["b"]
        seen, history = list(world.log), await coordinator.history("once")
        assert (await coordinator.run(steps("a", "b"), saga_id="once")).status == t.COMPENSATED
        assert (await coordinator.resume("once")).status == t.COMPENSATED
        assert await coordinator.history("once") == history
    assert world.log == seen


async def test_19_a_compensated_saga_never_ends_completed() -> None:
    """Every step but the last happened, all are undone, and each way to look says COMPENSATED and never COMPLETED."""
    world = World()
    world.behave["c"] = fail()
    async with engine(*world.tools("a", "b", "c")) as coordinator:
        outcome = await coordinator.run(steps("a", "b", "c"), saga_id="back")
        shown = await coordinator.show("back")
        kinds = [record["k"] for record in await coordinator.history("back")]
        assert (outcome.status, shown.status, outcome.completed) == (t.COMPENSATED, t.COMPENSATED, False)
        assert [head.status for head in await coordinator.list()] == [t.COMPENSATED]
    assert kinds[-1] == "SagaCompensated"
    assert "SagaCompleted" not in kinds


async def test_20_the_last_step_times_out_and_its_effect_is_not_forgotten() -> None:
    """The answer of the last step is lost, then the tool refuses: what stands is undone, or asked about, never 'compensated'."""
    world = World()
    world.behave["b"] = lose_the_answer(world, "b")
    async with engine(*world.tools("a"), *world.pair("b", keyed=False, probe=True)) as coordinator:
        outcome = await coordinator.run(steps("a", "b"))
        assert (outcome.status, world.standing) == (t.COMPLETED, ["a", "b"])
        assert next(one for one in outcome.body["steps"] if one["step_id"] == "b")["via"] == "probe"


async def test_21_the_step_in_flight_is_called_again_only_with_its_key() -> None:
    """The answer is lost once; the repeat carries the same key, so the other side answers with the first result."""
    world = World()
    answers: dict[str, dict] = {}
    sent: list[str] = []

    @tool(undo="undo_a", retry=FAST)
    async def book(idempotency_key: str) -> dict:
        sent.append(idempotency_key)
        if idempotency_key in answers:
            return answers[idempotency_key]
        answers[idempotency_key] = {"ref": "a"}
        raise ConnectionResetError("cut")

    async with engine(book, *world.tools("a")) as coordinator:
        outcome = await coordinator.run(steps("book"))
    assert (outcome.status, len(sent), len(answers)) == (t.COMPLETED, 2, 1)


async def test_24_an_error_that_a_retry_mends_starts_no_rollback() -> None:
    """One retryable error, then success: nothing is undone."""
    world = World()
    tries = iter([fail(retryable=True), lambda: None])
    world.behave["b"] = lambda: next(tries)()  # noqa: PLW0108 - the next one each time
    async with engine(*world.tools("a", "b")) as coordinator:
        outcome = await coordinator.run(steps("a", "b"))
    assert (outcome.status, world.standing) == (t.COMPLETED, ["a", "b"])
    assert not [entry for entry in world.log if entry.startswith("undo")]


async def test_25_nothing_is_compensated_twice() -> None:
    """Two failing sagas one after the other, each resumed again: every undo is called once."""
    world = World()
    world.behave["b"] = fail()
    async with engine(*world.tools("a", "b")) as coordinator:
        for name in ("one", "two"):
            await coordinator.run(steps("a", "b"), saga_id=name)
            await coordinator.resume(name)
        await coordinator.resume_all()
    assert world.log.count("undo a") == 2


async def test_26_recovery_marks_nothing_compensated_that_it_has_no_tool_for() -> None:
    """A tool that is missing at resume leaves the saga exactly as it is, with an error that names it."""
    world = World()
    world.behave |= {"b": fail(), "undo a": fail()}
    async with engine(*world.tools("a", "b"), store="memory://shared26") as coordinator:
        saga_id = (await coordinator.run(steps("a", "b"))).saga_id
        before = await coordinator.history(saga_id)
    async with engine(*world.tools("b"), store="memory://shared26") as poorer:
        from saga_engine.errors import ToolMissing

        with pytest.raises(ToolMissing, match=r"undo_a") as caught:
            await poorer.resolve(saga_id, "a", "retry")
        assert "a" in caught.value.context["tools"]
        assert await poorer.history(saga_id) == before


async def test_27_a_saga_that_failed_before_any_effect_is_over() -> None:
    """The first step fails: COMPENSATED, clean, and recovery has nothing to do."""
    world = World()
    world.behave["a"] = fail()
    async with engine(*world.tools("a")) as coordinator:
        outcome = await coordinator.run(steps("a"))
        assert (outcome.status, outcome.report["clean"]) == (t.COMPENSATED, True)
        assert await coordinator.resume_all() == {}


async def test_28_a_failed_compensation_is_told_to_people() -> None:
    """The hook gets the saga, the step and the error; the failure is in the journal."""
    world = World()
    world.behave |= {"b": fail(), "undo a": fail(error_code="closed")}
    told: list[Any] = []
    async with Coordinator.open("memory://", world.tools("a", "b"), on_escalation=told.append) as coordinator:
        outcome = await coordinator.run(steps("a", "b"))
    assert [(question.saga_id, question.step_id, question.kind) for question in told] == [
        (outcome.saga_id, "a", "undo-failed")
    ]
    assert told[0].error["error_code"] == "closed"


async def test_29_after_a_cancel_the_undo_still_runs() -> None:
    """A cancel turns the saga around; it does not forbid the calls that put things right."""
    world = World()
    started, go_on = asyncio.Event(), asyncio.Event()

    @tool(undo="undo_b", retry=FAST)
    async def slow() -> dict:
        started.set()
        await go_on.wait()
        world.standing.append("b")
        return {"ref": "b"}

    async with engine(slow, *world.tools("a", "b")) as coordinator:
        handle = await coordinator.submit(steps("a", "slow", "b"), saga_id="c")
        await started.wait()
        cancelling = asyncio.create_task(coordinator.cancel("c", by="ada"))
        while not (await coordinator.store.head("c")).messages:  # noqa: ASYNC110 - until the message lies there
            await asyncio.sleep(0)
        go_on.set()
        outcome = await handle.wait()
        await cancelling
    assert (outcome.status, world.standing, world.log) == (t.COMPENSATED, [], ["a", "undo b", "undo a"])


async def test_30_five_actions_are_undone_in_reverse_order() -> None:
    """What happened last is undone first, and no undo begins before the one before it has ended."""
    world = World()
    world.behave["f"] = fail()
    ended: list[str] = []

    async def undo(ref: str) -> dict:
        world.log.append(f"undo {ref}")
        for _ in range(
            10 * ord(ref) - 900
        ):  # of undos that ran side by side the first to begin would be the last to end
            await asyncio.sleep(0)
        ended.append(f"undo {ref}")
        return {}

    tools = world.tools(*"abcdef")
    slow = [tool(name=f"undo_{name}", retry=FAST, keyed=True)(undo) for name in "abcdef"]
    async with engine(*tools[::2], *slow) as coordinator:
        await coordinator.run(steps(*"abcdef"))
    assert world.log[-5:] == ended == ["undo e", "undo d", "undo c", "undo b", "undo a"]
