"""Steps that wait for several events, the first or all of them: through the API, on a real store.

What the core decides is simulated (tests/core); deaths of processes: tests/kill.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from saga_engine import Coordinator, tool
from saga_engine.errors import EventRefused, PlanInvalid
from saga_engine.plan.compiler import compile_plan
from saga_engine.plan.diagram import dot, mermaid
from saga_engine.plan.model import load_plan
from saga_engine.ports import Channel
from saga_engine.runtime import events as delivering
from saga_engine.runtime.events import Events
from saga_engine.tools.registry import ToolRegistry

CALLS: list[tuple[str, Any]] = []
SUM = {"type": "object", "required": ["sum"], "properties": {"sum": {"type": "integer"}}}
CARD, BANK = {"event": "paid.card", "schema": SUM}, {"event": "paid.bank", "schema": SUM}
ADA, BOB = {"event": "confirmed", "key": "ada"}, {"event": "confirmed", "key": "bob"}


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nothing was called yet, and what workers look after is looked at without a delay."""
    CALLS.clear()
    monkeypatch.setattr(delivering, "_TELL_AGAIN_MS", 0)
    yield
    CALLS.clear()


@tool
async def ship(what: Any) -> dict[str, Any]:
    """Ships it."""
    CALLS.append(("ship", what))
    return {}


@tool
async def refund(event: str, sum: int) -> dict[str, Any]:  # noqa: A002 - a param
    """Gives the money back."""
    CALLS.append((f"refund {event}", sum))
    return {}


@tool
async def tell(names: Any) -> dict[str, Any]:
    """Says that it does not take place."""
    CALLS.append(("tell", names))
    return {}


LATE = {"tool": "refund", "params": {"event": "$output.step_1.event", "sum": "$output.step_1.payload.sum"}}


def plan(wait: dict[str, Any], what: str = "$output.step_1", **step: Any) -> dict[str, Any]:
    call = {"step_id": 2, "tool": "ship", "params": {"what": what}, "kind": "pivot"}
    return {"steps": [{"step_id": 1, "wait": wait, **step}, call]}


def opened(url: str = "memory://") -> Any:
    return Coordinator.open(url, [ship, refund, tell], on_escalation=())


async def armed(engine: Coordinator, *channels: tuple[str, str]) -> None:
    """Wait until the store knows of the waits for these events."""
    async with asyncio.timeout(60):
        for channel in channels:
            while await engine.store.event_store().first(Channel(*channel)) is None:  # noqa: ASYNC110 - of another task
                await asyncio.sleep(0.005)


async def came(engine: Coordinator, saga_id: str, count: int) -> None:
    """Wait until the journal has so many of the events of a wait for all."""
    async with asyncio.timeout(60):
        while len((await engine.show(saga_id)).to_dict()["steps"][0].get("came", [])) < count:  # noqa: ASYNC110 - as above
            await asyncio.sleep(0.005)


async def dispositions(engine: Coordinator) -> dict[str, str]:
    return {event.id: event.disposition for event in await engine.events()}


# --- the first -------------------------------------------------------------------------------------------------------


async def test_the_first_event_ends_the_wait_and_the_others_are_late() -> None:
    """The output says which event came, and its payload; another one is late, and its call is made once."""
    async with opened() as engine:
        handle = await engine.submit(plan({"first": [CARD, BANK], "on_late": LATE}), saga_id="s")
        await armed(engine, ("paid.card", "s"), ("paid.bank", "s"))
        sent = await engine.send_event("paid.bank", "s", {"sum": 7}, event_id="b")
        assert (sent.saga_id, sent.step) == ("s", "1")
        assert (await handle.wait()).status == "COMPLETED"
        assert CALLS == [("ship", {"event": "paid.bank", "key": "s", "payload": {"sum": 7}})]
        late = await engine.send_event("paid.card", "s", {"sum": 9}, event_id="c")
        assert (late.disposition, late.saga_id) == ("handled", "s")
        assert (await engine.wait(late.late_saga)).status == "COMPLETED"
        assert CALLS[1:] == [("refund paid.card", 9)]
        assert await dispositions(engine) == {"b": "taken", "c": "handled"}
        assert (await engine.send_event("paid.bank", "s", {"sum": 7})).disposition == "kept"


async def test_an_answer_to_another_event_of_a_wait_that_is_over_is_late() -> None:
    """Its call is made; the answer that ended the wait is no late one, and changes nothing when it is repeated."""
    async with opened() as engine:
        await engine.submit(plan({"first": [CARD, BANK], "on_late": LATE}), saga_id="s")
        await armed(engine, ("paid.card", "s"), ("paid.bank", "s"))
        await engine.answer_wait("s", 1, {"sum": 7}, entry=1)
        assert (await engine.wait("s")).status == "COMPLETED"
        late = await engine.answer_wait("s", 1, {"sum": 9}, entry=0)
        assert (await engine.wait(late)).status == "COMPLETED"
        assert CALLS[1:] == [("refund paid.card", 9)]
        for entry, said in ((1, "had its end"), (None, "several events"), (2, "waits for no event")):
            with pytest.raises(EventRefused, match=said):
                await engine.answer_wait("s", 1, {"sum": 8}, entry=entry)
        assert await engine.answer_wait("s", 1, {"sum": 7}, entry=1) == ""
        assert await engine.answer_wait("s", 1, {"sum": 9}, entry=0) == late
        assert len(CALLS) == 2


async def test_the_answers_of_a_wait_that_was_in_vain_are_late() -> None:
    """What came by a URL is given back as what came by its name is; no later wait for the same event gets it."""
    async with opened() as engine:
        await engine.submit(plan({"all": [CARD, BANK], "on_late": LATE}), saga_id="s")
        await armed(engine, ("paid.card", "s"), ("paid.bank", "s"))
        await engine.answer_wait("s", 1, {"sum": 9}, entry=0)
        await came(engine, "s", 1)
        assert await engine.answer_wait("s", 1, {"sum": 9}, entry=0) == ""
        with pytest.raises(EventRefused, match="has had another answer"):
            await engine.answer_wait("s", 1, {"sum": 8}, entry=0)
        assert list((await dispositions(engine)).values()) == ["held"]
        assert (await engine.cancel("s")).status == "COMPENSATED"
        await tell_again(engine)
        (late,) = (await engine.search(tags=["late-event"])).sagas
        assert (await engine.wait(late.saga_id)).status == "COMPLETED"
        assert await engine.answer_wait("s", 1, {"sum": 9}, entry=0) == late.saga_id
        with pytest.raises(EventRefused, match="has had another answer"):
            await engine.answer_wait("s", 1, {"sum": 8}, entry=0)
        late_bank = await engine.answer_wait("s", 1, {"sum": 2}, entry=1)
        assert (await engine.wait(late_bank)).status == "COMPLETED"
        assert CALLS == [("refund paid.card", 9), ("refund paid.bank", 2)]
        assert {*(await dispositions(engine)).values()} == {"handled"}


async def test_answers_in_vain_without_an_on_late_are_for_no_other_wait() -> None:
    """They were meant for one wait: a later wait for the same event waits for an event of its own."""
    async with opened() as engine:
        await engine.submit(plan({"all": [ADA, BOB]}), saga_id="s")
        await armed(engine, ("confirmed", "ada"), ("confirmed", "bob"))
        await engine.answer_wait("s", 1, "yes", entry=0)
        await came(engine, "s", 1)
        assert (await engine.cancel("s")).status == "COMPENSATED"
        assert list((await dispositions(engine)).values()) == ["late"]
        handle = await engine.submit(plan({**ADA}), saga_id="t")
        await armed(engine, ("confirmed", "ada"))
        await engine.send_event("confirmed", "ada", "of course")
        assert (await handle.wait()).status == "COMPLETED"
        assert CALLS == [("ship", "of course")]


async def test_of_two_early_events_one_is_taken_and_the_other_is_late() -> None:
    """Both were there before the wait: the first of the plan's order is taken, and the money of the other goes back."""
    async with opened() as engine:
        await engine.send_event("paid.bank", "s", {"sum": 7}, event_id="e")
        await engine.send_event("paid.card", "s", {"sum": 9}, event_id="e")
        assert (await engine.run(plan({"first": [CARD, BANK], "on_late": LATE}), saga_id="s")).status == "COMPLETED"
        await tell_again(engine)
        (late,) = (await engine.search(tags=["late-event"])).sagas
        assert (await engine.wait(late.saga_id)).status == "COMPLETED"
        assert [name for name, _ in CALLS] == ["ship", "refund paid.bank"]


async def tell_again(engine: Coordinator) -> None:
    """What a worker does from time to time."""
    events = Events(engine.store, engine.supervisor, engine._begin_late)
    await events.tell_again(range(engine.store.work().count))


async def test_the_event_that_came_first_is_undone_in_its_turn() -> None:
    """A rollback binds which event it was, and its payload."""
    refused = {"step_id": 2, "tool": "ship", "params": {"what": "$output.step_1.payload.none"}, "kind": "pivot"}
    first = {"first": [{"event": "paid.card"}, {"event": "paid.bank"}]}
    body = plan(first, rollback=LATE)
    body["steps"][1] = refused
    async with opened() as engine:
        await engine.send_event("paid.card", "s", {"sum": 9})
        assert (await engine.run(body, saga_id="s")).status == "COMPENSATED"
        assert CALLS == [("refund paid.card", 9)]


# --- all -------------------------------------------------------------------------------------------------------------


async def test_a_wait_for_all_ends_with_the_last_event(tmp_path: Path) -> None:
    """The output has all of them in the plan's order; an event that is sent again changes nothing."""
    async with opened(f"embedded://{tmp_path}") as engine:
        handle = await engine.submit(plan({"all": [ADA, BOB]}, "$output.step_1[0].payload"), saga_id="s")
        await armed(engine, ("confirmed", "ada"), ("confirmed", "bob"))
        await engine.send_event("confirmed", "bob", "yes", event_id="e")
        await came(engine, "s", 1)
        shown = (await engine.show("s")).to_dict()["steps"][0]
        assert shown["came"] == [{"event": "confirmed", "key": "bob"}]
        assert shown["waits"]["about"] == {"all": [ADA, BOB]}
        assert (await engine.send_event("confirmed", "bob", "yes", event_id="e")).repeated
        assert await dispositions(engine) == {"e": "held"}
        await engine.send_event("confirmed", "ada", "of course", event_id="e")
        assert (await handle.wait()).status == "COMPLETED"
        assert CALLS == [("ship", "of course")]
        outputs = [{**ADA, "payload": "of course"}, {**BOB, "payload": "yes"}]
        assert (await engine.show("s", full=True)).steps[0].output == outputs
        kinds = [record["k"] for record in await engine.history("s")]
        assert [kinds.count(kind) for kind in ("EventArrived", "StepSucceeded")] == [1, 2]
        assert {event.disposition for event in await engine.events()} == {"taken"}
        assert (await engine.send_event("confirmed", "bob", "again")).disposition == "kept"


async def test_the_halves_of_a_wait_that_was_in_vain_are_late() -> None:
    """The time-out names what did not come. The event that had come is given back, once, by its call."""
    wait = {"all": [CARD, BANK], "timeout_s": 0.4, "on_late": LATE}
    async with opened() as engine:
        handle = await engine.submit(plan(wait), saga_id="s")
        await armed(engine, ("paid.card", "s"), ("paid.bank", "s"))
        await engine.send_event("paid.card", "s", {"sum": 9}, event_id="c")
        found = await handle.wait()
        assert found.status == "COMPENSATED"
        assert found.steps[0].error is not None
        assert "no event paid.bank with the key s" in found.steps[0].error.message
        await tell_again(engine)
        (late,) = (await engine.search(tags=["late-event"])).sagas
        assert (await engine.wait(late.saga_id)).status == "COMPLETED"
        assert CALLS == [("refund paid.card", 9)]
        assert await dispositions(engine) == {"c": "handled"}
        assert (await engine.show("s")).to_dict()["steps"][0]["came"] == [{"event": "paid.card", "key": "s"}]


async def test_the_halves_of_a_cancelled_wait_go_to_the_next_one() -> None:
    """Without an on_late nobody handles them: a later wait for the same event has it."""
    async with opened() as engine:
        await engine.submit(plan({"all": [ADA, BOB]}), saga_id="s")
        await armed(engine, ("confirmed", "ada"), ("confirmed", "bob"))
        await engine.send_event("confirmed", "ada", 1, event_id="a")
        await came(engine, "s", 1)
        assert (await engine.cancel("s")).status == "COMPENSATED"
        assert await dispositions(engine) == {"a": "late"}
        assert (await engine.run(plan({**ADA}), saga_id="t")).status == "COMPLETED"
        assert CALLS == [("ship", 1)]
        assert await dispositions(engine) == {"a": "taken"}


async def test_an_event_that_does_not_fit_leaves_the_others_awaited() -> None:
    """It is refused when it is sent; the step has what came before it, and waits for the rest."""
    async with opened() as engine:
        handle = await engine.submit(plan({"all": [CARD, BANK]}), saga_id="s")
        await armed(engine, ("paid.card", "s"), ("paid.bank", "s"))
        await engine.send_event("paid.card", "s", {"sum": 1})
        with pytest.raises(EventRefused):
            await engine.send_event("paid.bank", "s", {"sum": "much"})
        await engine.send_event("paid.bank", "s", {"sum": 2})
        assert (await handle.wait()).status == "COMPLETED"


async def test_an_owner_that_ends_between_two_events_loses_none(tmp_path: Path) -> None:
    """Its journal has the first one. The next owner waits for the other, and gets it although it came in between."""
    url = f"embedded://{tmp_path}"
    async with opened(url) as engine:
        await engine.submit(plan({"all": [ADA, BOB]}), saga_id="s")
        await armed(engine, ("confirmed", "ada"), ("confirmed", "bob"))
        await engine.send_event("confirmed", "ada", 1)
        await came(engine, "s", 1)
    async with opened(url) as engine:
        await engine.send_event("confirmed", "bob", 2)
        await tell_again(engine)
        assert (await engine.resume("s")).status == "COMPLETED"
        assert [each["payload"] for each in CALLS[0][1]] == [1, 2]


# --- the plan --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wait", "path"),
    [
        ({}, "wait"),
        ({"event": "a", "first": [ADA]}, "wait.first"),
        ({"first": [ADA], "all": [BOB]}, "wait.all"),
        ({"all": [ADA, ADA]}, "wait.all[1]"),
        ({"all": [{"event": "a", "key": 1}, {"event": "a", "key": "1"}]}, "wait.all[1]"),
        ({"first": [ADA], "key": "k"}, "wait.key"),
        ({"first": [ADA], "schema": {}}, "wait.schema"),
        ({"first": [{"event": "a b"}]}, "wait.first[0].event"),
        ({"all": [{"event": "a", "schema": {"type": "nothing"}}]}, "wait.all[0].schema"),
        ({"all": []}, "wait.all"),
        ({"all": [{"event": f"e{number}"} for number in range(21)]}, "wait.all"),
        ({"all": [{"event": "a", "late": 1}]}, "wait.all[0].late"),
    ],
)
async def test_what_is_no_wait_for_several_is_a_problem_of_the_plan(wait: dict[str, Any], path: str) -> None:
    """Each problem names its place."""
    async with opened() as engine:
        with pytest.raises(PlanInvalid) as caught:
            await engine.run({"steps": [{"step_id": 1, "wait": wait}]})
        assert [problem.path for problem in caught.value.problems] == [f"$.steps[0].{path}"]


async def test_two_bound_keys_that_are_the_same_fail_the_step() -> None:
    """What only a value shows is found when the wait begins."""
    wait = {"all": [{"event": "a", "key": "$input.one"}, {"event": "a", "key": "$input.two"}]}
    body = {"input": {"one": 1, "two": "1"}, "steps": [{"step_id": 1, "wait": wait}]}
    async with opened() as engine:
        found = await engine.run(body, saga_id="s")
        assert (found.status, found.steps[0].error and found.steps[0].error.error_code) == (
            "COMPENSATED",
            "wait_invalid",
        )


async def test_what_an_output_cannot_have_is_a_problem_of_the_plan() -> None:
    """The checks know the output of both forms."""
    async with opened() as engine:
        for wait, bad in (
            ({"first": [CARD]}, ".sum"),
            ({"all": [CARD]}, "[0].payload.total"),
            ({"all": [CARD]}, "[1]"),
        ):
            closed = {**wait, next(iter(wait)): [{**CARD, "schema": {**SUM, "additionalProperties": False}}]}
            with pytest.raises(PlanInvalid) as caught:
                await engine.run(plan(closed, f"$output.step_1{bad}"))
            assert [problem.code for problem in caught.value.problems] == ["binding-path-absent"]


def test_a_drawing_names_the_events() -> None:
    """One line for each, with its key; of many the first ones, and how many more."""
    many = [{"event": f"e{number}"} for number in range(7)]
    for wait, told in (
        ({"event": "paid"}, "wait\\npaid"),
        ({"first": [CARD, BANK]}, "wait for the first of\\npaid.card\\npaid.bank"),
        (
            {"all": [ADA, {**BOB, "key": "$input.who"}]},
            "wait for all of\\nconfirmed, key ada\\nconfirmed, key $input.who",
        ),
        ({"all": many}, "wait for all of\\ne0\\ne1\\ne2\\ne3\\ne4\\nand 2 more"),
    ):
        compiled = compile_plan(
            load_plan({"input": {"who": "x"}, "steps": [{"step_id": 1, "wait": wait}]}), ToolRegistry([])
        )
        assert f'label="1\\n{told}"' in dot(compiled)
        assert all(escaped(line) in mermaid(compiled) for line in told.split("\\n"))


def escaped(line: str) -> str:
    """As Mermaid has it."""
    return line.replace("$", "#36;")


@pytest.mark.parametrize("word", ["first", "all"])
async def test_simulation_knows_waits_for_several(word: str) -> None:
    """Each scenario of the plan ends, with the events and without them."""
    wait = {word: [CARD, {**BANK, "key": "$input.who"}], "timeout_s": 5, "on_late": LATE}
    async with opened() as engine:
        found = await engine.simulate({"input": {"who": "ada"}, **plan(wait)})
        assert found.goes_well
        assert any("refund if it comes later" in scenario.what for scenario in found.scenarios)
