"""Forks of sagas that went on without a step: it runs again, what did not need it is kept, and nothing is made twice."""

from __future__ import annotations

from typing import Any

import pytest

from saga_engine import Coordinator, RetryPolicy, ToolError, tool
from saga_engine.errors import ForkRefused

ONCE = RetryPolicy(max_attempts=1)
LOG: list[str] = []
FULL: set[str] = set()


@pytest.fixture(autouse=True)
def fresh() -> None:
    LOG.clear()
    FULL.clear()


@tool(undo="unbook", retry=ONCE)
async def book(what: str) -> dict:
    if what in FULL:
        raise ToolError("full", error_code="full")
    LOG.append(f"book {what}")
    return {"ref": f"r-{what}"}


@tool(retry=ONCE)
async def unbook(ref: str) -> dict:
    LOG.append(f"unbook {ref}")
    return {}


@tool(retry=ONCE)
async def pay(what: str) -> dict:
    LOG.append(f"pay {what}")
    return {"ref": f"p-{what}"}


@tool(effect="read", retry=ONCE)
async def look(at: str) -> dict:
    LOG.append(f"look {at}")
    return {"seen": at}


TOOLS = [book, unbook, pay, look]
#: What a step binds of the first one, which may have no output.
MAYBE = {"$first": ["$output.step_1.ref", "none"]}


def booking(what: Any, **others: Any) -> dict[str, Any]:
    return {"tool": "book", "params": {"what": what}, **others}


def trying(what: Any, **others: Any) -> dict[str, Any]:
    return booking(what, on_error="continue", **others)


def paying(what: Any, **others: Any) -> dict[str, Any]:
    return {"tool": "pay", "params": {"what": what}, "kind": "irreversible", **others}


def plan(*steps: Any, **fields: Any) -> dict[str, Any]:
    return {"steps": [{"step_id": number, **step} for number, step in enumerate(steps, 1)], **fields}


def taken(outcome: Any) -> list[Any]:
    return [step["step_id"] for step in outcome.body["steps"] if step.get("via") == "fork"]


@pytest.mark.parametrize("mended", ["hotl", "hotel"])
async def test_what_followed_a_failure_is_kept_and_only_the_step_that_failed_runs_again(mended: str) -> None:
    """As it was, or corrected: neither the payment nor the car, which came after it, is made a second time."""
    FULL.add("hotl")
    async with Coordinator.open("memory://", TOOLS) as engine:
        old = await engine.run(plan(trying("hotl"), booking("car"), paying("fee")), saga_id="trip")
        assert (old.status, LOG) == ("COMPLETED", ["book car", "pay fee"])
        LOG.clear()
        FULL.clear()
        again = plan(trying(mended), booking("car"), paying("fee"))
        preview = (await engine.fork("trip", plan=again, dry_run=True)).to_dict()
        assert (preview["runs"], preview["passed"], preview["left"]) == ([1], [1], [])
        new = await engine.fork("trip", plan=again)
        assert (new.status, taken(new), LOG) == ("COMPLETED", [2, 3], [f"book {mended}"])


async def test_a_step_that_fails_again_is_passed_again_and_what_is_undone_is_undone_once() -> None:
    """The fork goes on without it as well; a later failure undoes what was reused, and the payment stays."""
    FULL.update({"hotl", "never"})
    steps = [trying("hotl"), booking("car"), paying("fee")]
    async with Coordinator.open("memory://", TOOLS) as engine:
        await engine.run(plan(*steps), saga_id="trip")
        LOG.clear()
        new = await engine.fork("trip", plan=plan(*steps, booking("never")))
        assert (new.status, taken(new), LOG) == ("WAIVED", [2, 3], ["unbook r-car"])
        assert (new.report["compensated"], new.report["left_in_place"]) == ([2], [3])


async def test_what_would_be_made_twice_is_refused_by_name_unless_it_is_asked_for() -> None:
    """It binds what the failed step gives now, also through a read; its effect in the old saga stays."""
    FULL.add("hotl")
    steps = [
        trying("hotl"),
        {"tool": "look", "params": {"at": MAYBE}},
        paying("for {$output.step_2.seen}"),
        booking("car", depends_on=[]),
    ]
    async with Coordinator.open("memory://", TOOLS) as engine:
        await engine.run(plan(*steps), saga_id="trip")
        assert sorted(LOG) == ["book car", "look none", "pay for none"]
        LOG.clear()
        FULL.clear()
        for dry_run in (True, False):
            with pytest.raises(ForkRefused, match="step 3 ") as refused:
                await engine.fork("trip", dry_run=dry_run)
            assert refused.value.context["steps"] == [3]
            assert refused.value.context["passed"] == [1]
        assert not LOG
        new = await engine.fork("trip", run_from="3")
        assert (new.status, taken(new)) == ("COMPLETED", [4])
        assert LOG == ["book hotl", "look r-hotl", "pay for r-hotl"]


async def test_what_the_old_saga_undoes_is_made_anew_with_the_new_output() -> None:
    """It waits for an operator: what needs the failed step is undone there, with what came after it, and made here."""
    FULL.update({"hotl", "no"})
    steps = [trying("hotl"), booking("car"), booking(MAYBE), booking("bus")]
    async with Coordinator.open("memory://", TOOLS) as engine:
        await engine.run(plan(*steps, booking("no"), on_failure="pause"), saga_id="trip")
        assert LOG == ["book car", "book none", "book bus"]
        LOG.clear()
        FULL.clear()
        new = await engine.fork("trip", plan=plan(*steps))
        assert (new.status, taken(new)) == ("COMPLETED", [2])
        undone = [line for line in LOG if line.startswith("unbook")]
        assert undone == ["unbook r-bus", "unbook r-none"]
        assert [line for line in LOG if line not in undone] == ["book hotl", "book r-hotl", "book bus"]


async def test_what_stays_behind_a_step_that_is_made_anew_is_not_made_twice() -> None:
    """The payment needs nothing of the failed step, but comes after one that is undone and made with its output."""
    FULL.update({"hotl", "no"})
    steps = [trying("hotl"), booking(MAYBE), paying("fee")]
    async with Coordinator.open("memory://", TOOLS) as engine:
        await engine.run(plan(*steps, booking("no"), on_failure="pause"), saga_id="trip")
        with pytest.raises(ForkRefused) as refused:
            await engine.fork("trip", plan=plan(*steps))
        assert refused.value.context["steps"] == [3]
        assert (await engine.show("trip")).status == "ESCALATED"


async def test_what_only_looks_is_looked_up_again_and_keeps_nothing_else_back() -> None:
    """A read of the failed step's output runs again; a booking after it that does not need it stays."""
    FULL.add("hotl")
    steps = [trying("hotl"), {"tool": "look", "params": {"at": MAYBE}}, booking("car")]
    async with Coordinator.open("memory://", TOOLS) as engine:
        await engine.run(plan(*steps), saga_id="trip")
        LOG.clear()
        FULL.clear()
        new = await engine.fork("trip")
        assert (taken(new), LOG) == ([3], ["book hotl", "look r-hotl"])


async def test_what_comes_after_reused_steps_waits_for_the_one_that_runs_again() -> None:
    """The new last step follows one that is reused, which follows the one that runs again: so it comes after both."""
    FULL.add("hotl")
    steps = [trying("hotl"), booking("car"), booking("bus")]
    async with Coordinator.open("memory://", TOOLS) as engine:
        await engine.run(plan(*steps), saga_id="trip")
        LOG.clear()
        FULL.clear()
        new = await engine.fork("trip", plan=plan(*steps, booking("ferry")))
        assert (taken(new), LOG) == ([2, 3], ["book hotl", "book ferry"])


async def test_nothing_is_passed_where_the_pivot_stands() -> None:
    """The pivot came after the failure: its fork could not go back for what is before it."""
    FULL.add("hotl")
    steps = [trying("hotl"), {**paying("fee"), "kind": "pivot"}, {**booking("seat"), "kind": "retriable"}]
    async with Coordinator.open("memory://", TOOLS) as engine:
        await engine.run(plan(*steps), saga_id="trip")
        with pytest.raises(ForkRefused) as refused:
            await engine.fork("trip")
        assert refused.value.context["steps"] == [2, 3]


async def test_a_fork_of_a_fork_makes_nothing_anew() -> None:
    """The corrected step is a step like any other by then, and so is what was kept although it came later."""
    FULL.add("hotl")
    mended = plan(trying("hotel"), booking("car"), paying("fee"))
    async with Coordinator.open("memory://", TOOLS) as engine:
        await engine.run(plan(trying("hotl"), booking("car"), paying("fee")), saga_id="trip")
        await engine.fork("trip", plan=mended, new_id="second")
        await engine.fork("second", plan=plan(*mended["steps"], booking("bus")), new_id="third")
        assert sorted(LOG) == ["book bus", "book car", "book hotel", "pay fee"]


async def test_an_item_that_was_collected_as_a_failure_is_called_again() -> None:
    """What needs the list is refused by name; what came after it and does not need it is kept."""
    FULL.add("b")
    listed = {
        "each": {"of": ["a", "b"], "on_error": "collect"},
        "tool": "book",
        "params": {"what": "$item"},
    }
    async with Coordinator.open("memory://", TOOLS) as engine:
        await engine.run(plan(listed, booking("car")), saga_id="kept")
        paid = plan(listed, {"compute": {"count": "$output.step_1.outputs"}}, paying("{$output.step_2}"))
        await engine.run(paid, saga_id="refused")
        LOG.clear()
        FULL.clear()
        new = await engine.fork("kept")
        assert (new.status, LOG) == ("COMPLETED", ["book b"])
        with pytest.raises(ForkRefused) as refused:
            await engine.fork("refused")
        assert refused.value.context["steps"] == [3]


@pytest.mark.parametrize(
    "first",
    [
        {"sleep": 0.01},
        {"wait": {"event": "paid", "timeout_s": 0.01, "on_timeout": "continue"}},
        {"wait": {"event": "paid", "timeout_s": 0.01, "on_timeout": {"value": {"ref": "none"}}}},
        {"wait": {"all": [{"event": "paid"}, {"event": "packed"}], "timeout_s": 0.01, "on_timeout": "continue"}},
        {"ask": {"question": "Which?", "expires_s": 0.01, "on_timeout": "continue"}},
    ],
)
async def test_a_time_that_passed_and_a_wait_in_vain_keep_nothing_back(first: dict[str, Any]) -> None:
    """What came after them is the same as it was, and is reused."""
    async with Coordinator.open("memory://", TOOLS) as engine:
        old = await engine.run(plan(first, booking("car")), saga_id="trip")
        while old.status != "COMPLETED":  # a question expires when its time has come, and not before
            old = await engine.resume("trip")
        assert 2 in taken(await engine.fork("trip"))
        assert LOG == ["book car"]
