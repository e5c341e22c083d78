"""Forks: what has not changed is not run again, and no effect is ever undone by two sagas."""

from __future__ import annotations

from typing import Any

import pytest

from saga_engine import Coordinator, RetryPolicy, ToolError, tool
from saga_engine.errors import ForkRefused, PlanInvalid, SagaExists

ONCE = RetryPolicy(max_attempts=1)
LOG: list[str] = []
FULL: set[str] = set()


@pytest.fixture(autouse=True)
def fresh() -> None:
    LOG.clear()
    FULL.clear()


@tool(undo="unbook", retry=ONCE)
async def book(what: str, note: str = "") -> dict:
    if what in FULL:
        raise ToolError("full", error_code="full")
    LOG.append(f"book {what}")
    return {"ref": f"r-{what}"}


@tool(undo="unbook", retry=ONCE)
async def other(what: str) -> dict:
    LOG.append(f"other {what}")
    return {"ref": f"o-{what}"}


@tool(retry=ONCE)
async def unbook(ref: str) -> dict:
    LOG.append(f"unbook {ref}")
    return {}


@tool(undo="forget", retry=ONCE)
async def remember(what: str) -> dict:
    LOG.append(f"remember {what}")
    return {}


@tool(retry=ONCE)
async def forget(key: str) -> dict:
    LOG.append(f"forget {key}")
    return {}


@tool(effect="read", retry=ONCE)
async def look(at: str) -> dict:
    LOG.append(f"look {at}")
    return {"seen": at}


TOOLS = [book, other, unbook, remember, forget, look]


def booking(what: str, **others: Any) -> dict[str, Any]:
    return {"tool": "book", "params": {"what": what}, **others}


def plan(*steps: Any, **fields: Any) -> dict[str, Any]:
    return {"steps": [{"step_id": number, **step} for number, step in enumerate(steps, 1)], **fields}


def taken(outcome: Any) -> list[Any]:
    return [step["step_id"] for step in outcome.body["steps"] if step.get("via") == "fork"]


async def test_a_mended_step_is_run_and_what_came_before_it_is_not() -> None:
    """The third step was wrong: the fork reuses the first two, runs the third, and undoes all if it fails later."""
    FULL.add("hotl")
    async with Coordinator.open("memory://", TOOLS) as engine:
        old = await engine.run(plan(booking("flight"), booking("car"), booking("hotl"), on_failure="pause"))
        assert old.status == "ESCALATED"
        LOG.clear()
        mended = plan(booking("flight"), booking("car"), booking("hotel"), on_failure="pause")
        look_first = await engine.fork(old.saga_id, plan=mended, dry_run=True)
        assert look_first.to_dict()["runs"] == [3]
        assert LOG == []
        new = await engine.fork(old.saga_id, plan=mended)
        assert new.completed
        assert LOG == ["book hotel"]
        assert taken(new) == [1, 2]
        assert (await engine.show(old.saga_id)).status == "COMPENSATED"
        assert (await engine.show(old.saga_id)).report == {
            "compensated": [], "failed": [], "unresolved": [], "left_in_place": [], "clean": True,
        }  # fmt: skip


async def test_a_fault_of_form_hides_no_other_problem_of_a_mended_plan() -> None:
    """All that is wrong with the new plan is told at once, and nothing is taken over."""
    async with Coordinator.open("memory://", TOOLS) as engine:
        FULL.add("b")
        await engine.run(plan(booking("a"), booking("b"), on_failure="pause"), saga_id="s")
        with pytest.raises(PlanInvalid) as refused:
            await engine.fork("s", plan=plan(booking("a", why=""), {"tool": "nope"}))
        assert [problem.path for problem in refused.value.problems] == ["$.steps[0].why", "$.steps[1].tool"]


async def test_what_was_taken_over_is_undone_by_the_fork_and_by_nobody_else() -> None:
    """The fork fails: it undoes the effects it took over, once, with the outputs they had."""
    FULL.update({"hotl", "hotel"})
    async with Coordinator.open("memory://", TOOLS) as engine:
        old = await engine.run(plan(booking("flight"), booking("hotl"), on_failure="pause"))
        new = await engine.fork(old.saga_id, plan=plan(booking("flight"), booking("hotel")))
        assert new.status == "COMPENSATED"
        assert LOG == ["book flight", "unbook r-flight"]


async def test_what_is_not_taken_over_is_undone_by_the_old_saga() -> None:
    """The mended plan wants another car: the old saga undoes the one that nobody wants any more."""
    FULL.add("hotl")
    async with Coordinator.open("memory://", TOOLS) as engine:
        old = await engine.run(
            plan(booking("flight"), booking("car", depends_on=[1]), booking("hotl"), on_failure="pause")
        )
        LOG.clear()
        new = await engine.fork(old.saga_id, plan=plan(booking("flight"), booking("bus"), booking("hotel")))
        assert new.completed
        assert sorted(LOG) == ["book bus", "book hotel", "unbook r-car"]


async def test_a_change_upstream_invalidates_what_follows_and_nothing_else() -> None:
    """In a graph, independent branches are kept."""
    steps = [booking("a"), booking("b", depends_on=[]), booking("c", depends_on=[1]), booking("d", depends_on=[2])]
    async with Coordinator.open("memory://", TOOLS) as engine:
        old = await engine.run(plan(*steps))
        LOG.clear()
        steps[0] = booking("A")
        new = await engine.fork(old.saga_id, plan=plan(*steps))
        assert taken(new) == [2, 4]
        assert LOG == ["book A", "book c"]


async def test_a_step_can_be_run_anew_with_all_that_depends_on_it() -> None:
    """``run_from``: although nothing has changed."""
    async with Coordinator.open("memory://", TOOLS) as engine:
        old = await engine.run(plan(booking("a"), booking("b"), booking("c")))
        LOG.clear()
        new = await engine.fork(old.saga_id, run_from=2)
        assert taken(new) == [1]
        assert LOG == ["book b", "book c"]
        with pytest.raises(ForkRefused):
            await engine.fork(old.saga_id, run_from="nobody")


async def test_nothing_that_was_undone_is_taken_over() -> None:
    """A fork of a compensated saga runs everything."""
    FULL.add("hotl")
    async with Coordinator.open("memory://", TOOLS) as engine:
        old = await engine.run(plan(booking("flight"), booking("hotl")))
        assert old.status == "COMPENSATED"
        LOG.clear()
        new = await engine.fork(old.saga_id, plan=plan(booking("flight"), booking("hotel")))
        assert taken(new) == []
        assert LOG == ["book flight", "book hotel"]


async def test_two_forks_never_own_the_same_effect() -> None:
    """The second fork of a finished saga finds its effects taken, and makes its own."""
    async with Coordinator.open("memory://", TOOLS) as engine:
        old = await engine.run(plan(booking("a"), booking("b")))
        LOG.clear()
        first = await engine.fork(old.saga_id, run_from=2)
        second = await engine.fork(old.saga_id, run_from=2, new_id="second")
        assert (taken(first), taken(second)) == ([1], [])
        assert LOG == ["book b", "book a", "book b"]


async def test_the_same_fork_is_the_same_saga() -> None:
    """Repeated (a lost answer, a crash), it is one saga, and nothing runs twice."""
    async with Coordinator.open("memory://", TOOLS) as engine:
        old = await engine.run(plan(booking("a"), booking("b")))
        first = await engine.fork(old.saga_id, run_from=2)
        LOG.clear()
        again = await engine.fork(old.saga_id, run_from=2)
        assert first.saga_id == again.saga_id
        assert LOG == []


async def test_two_identical_steps_are_taken_over_once_each() -> None:
    """Two identical calls are two effects."""
    step = booking("a", depends_on=[])
    async with Coordinator.open("memory://", TOOLS) as engine:
        old = await engine.run(plan(step, step))
        LOG.clear()
        new = await engine.fork(old.saga_id, plan=plan(step, step, step))
        assert taken(new) == [1, 2]
        assert LOG == ["book a"]


async def test_an_undo_by_request_id_uses_the_id_of_the_call_that_was_made() -> None:
    """``$key`` in the rollback of a step that was taken over is the key under which its effect was made."""
    step = {"tool": "remember", "params": {"what": "x"}, "rollback": {"tool": "forget", "params": {"key": "$key"}}}
    FULL.update({"no", "never"})
    async with Coordinator.open("memory://", TOOLS) as engine:
        old = await engine.run(plan(step, booking("no"), on_failure="pause"))
        key = f"{old.saga_id}:1:f:"
        await engine.fork(old.saga_id, plan=plan(step, booking("never")))
    assert LOG[0] == "remember x"
    assert LOG[1].startswith(f"forget {key}")


async def test_a_read_is_not_read_again_and_a_binding_reaches_it() -> None:
    """Results of reads are reused, and later steps bind to them."""
    steps = [{"tool": "look", "params": {"at": "sky"}}, booking("$output.step_1.seen")]
    async with Coordinator.open("memory://", TOOLS) as engine:
        old = await engine.run(plan(*steps))
        LOG.clear()
        new = await engine.fork(old.saga_id, plan=plan(*steps, booking("{$output.step_1.seen}!")))
        assert taken(new) == [1, 2]
        assert LOG == ["book sky!"]


async def test_a_saga_that_is_under_way_or_past_its_pivot_is_not_forked() -> None:
    """Whoever might still act on the effects keeps them."""
    FULL.add("full")
    pivot = plan(
        {"tool": "look", "params": {"at": "x"}},
        {**booking("a"), "kind": "pivot"},
        {**booking("full"), "kind": "retriable"},
    )
    async with Coordinator.open("memory://", TOOLS) as engine:
        rests = await engine.run(pivot)
        assert rests.status == "ESCALATED"
        with pytest.raises(ForkRefused):
            await engine.fork(rests.saga_id)
        async with engine.session("s") as s:
            await s.call("look", at="x")
            with pytest.raises(ForkRefused):
                await engine.fork("s")


async def test_a_fallback_that_was_used_is_taken_over_as_what_it_was() -> None:
    """The other tool's effect is recognised, and undone by its own undo."""
    FULL.update({"a", "b", "c"})
    step = {**booking("a"), "fallback": {"tool": "other"}}
    async with Coordinator.open("memory://", TOOLS) as engine:
        old = await engine.run(plan(step, booking("b"), on_failure="pause"))
        new = await engine.fork(old.saga_id, plan=plan(step, booking("c")))
        assert new.status == "COMPENSATED"
    assert LOG == ["other a", "unbook o-a"]


@tool(retry=ONCE)
async def vanish(what: str) -> dict:
    LOG.append(f"vanish {what}")
    raise ConnectionError("the line is dead")


async def test_a_saga_that_may_have_passed_its_pivot_is_not_forked() -> None:
    """It cannot give away what it may need to go forward with."""
    doubtful = plan(booking("a"), {"tool": "vanish", "params": {"what": "x"}, "kind": "pivot"})
    async with Coordinator.open("memory://", [*TOOLS, vanish]) as engine:
        rests = await engine.run(doubtful)
        assert rests.status == "ESCALATED"
        with pytest.raises(ForkRefused, match="may have passed"):
            await engine.fork(rests.saga_id)
        assert not await engine.store.messages(rests.saga_id)


async def test_an_id_that_is_taken_is_refused_before_anything_changes_hands() -> None:
    """Another saga's id, and that of another fork: nothing is claimed, and the old saga still rests."""
    FULL.add("no")
    async with Coordinator.open("memory://", TOOLS) as engine:
        old = await engine.run(plan(booking("a"), booking("no"), on_failure="pause"))
        other = await engine.run(plan(booking("z")), saga_id="other")
        for name in (old.saga_id, other.saga_id):
            with pytest.raises(SagaExists):
                await engine.fork(old.saga_id, plan=plan(booking("a"), booking("b")), new_id=name)
        assert (await engine.show(old.saga_id)).status == "ESCALATED"
        new = await engine.fork(old.saga_id, plan=plan(booking("a"), booking("b")), new_id="new")
        assert taken(new) == [1]
        with pytest.raises(SagaExists):
            await engine.fork(old.saga_id, plan=plan(booking("a"), booking("c")), new_id="new")


async def test_a_step_that_has_kept_its_id_keeps_its_own_result() -> None:
    """Of two identical calls the first failed: the second keeps what it did, and so does what depends on it."""
    FULL.add("twin")
    first = booking("twin", depends_on=[])
    second = {**booking("twin", depends_on=[]), "fallback": {"tool": "other"}}
    async with Coordinator.open("memory://", TOOLS) as engine:
        old = await engine.run(plan(first, second, booking("{$output.step_2.ref}"), on_failure="pause"))
        assert old.status == "ESCALATED"
        FULL.clear()
        LOG.clear()
        first = {**first, "tool": "other"}
        new = await engine.fork(old.saga_id, plan=plan(first, second, booking("{$output.step_2.ref}")))
        assert new.completed
        assert 2 in taken(new)


@tool(undo="unbook", retry=ONCE)
async def big(what: str) -> dict:
    LOG.append(f"big {what}")
    return {"ref": what * 100_000}


async def test_a_large_result_is_taken_over_whole() -> None:
    """What lies beside the journal of the old saga lies beside that of the fork: steps and undos bind to all of it."""
    steps = [{"tool": "big", "params": {"what": "x"}}, booking("$output.step_1.ref")]
    async with Coordinator.open("memory://", [*TOOLS, big]) as engine:
        old = await engine.run(plan(*steps))
        FULL.add("no")
        new = await engine.fork(old.saga_id, plan=plan(*steps, booking("no")))
        assert taken(new) == [1, 2]
        assert new.status == "COMPENSATED"
    assert LOG[2:] == [f"unbook r-{'x' * 100_000}", f"unbook {'x' * 100_000}"]


@tool(undo="unbook", dedupe_ttl_s=3600, retry=ONCE)
async def pay(what: str) -> dict:
    LOG.append(f"pay {what}")
    return {"ref": f"p-{what}"}


async def test_a_result_that_a_fork_took_over_is_still_remembered() -> None:
    """The old saga was undone but for what it handed over: an identical call gets that result, not another effect."""
    FULL.add("no")
    step = {"tool": "pay", "params": {"what": "rent"}}
    async with Coordinator.open("memory://", [*TOOLS, pay]) as engine:
        old = await engine.run(plan(step, booking("no"), on_failure="pause"))
        assert (await engine.fork(old.saga_id, plan=plan(step))).completed
        third = await engine.run(plan(step))
        assert third.body["steps"][0]["via"] == "deduplicated"
    assert LOG == ["pay rent"]
