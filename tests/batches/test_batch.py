"""Many sagas are cancelled, resumed and answered as one saga is: what was shown is what is done, and nothing else."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from saga_engine import Coordinator, tool
from saga_engine.errors import SettingInvalid
from saga_engine.server.settings import ServerSettings
from tests.server.harness import serving

UNDONE: list[str] = []


@tool(undo="unbook")
async def book(item: str) -> dict[str, str]:
    return {"ref": item}


@tool(tolerates_absence=True)
async def unbook(ref: str) -> None:
    UNDONE.append(ref)


@tool(undo="unbook")
async def vanish(item: str) -> dict[str, str]:
    raise ConnectionError("the line is dead")


ASK = {"step_id": "ask", "ask": {"question": "Shall we?", "options": ["yes", "no"]}}
LOST = {"step_id": "lost", "tool": "vanish", "params": {"item": "z"}}


def asking(item: str, asked: dict[str, Any] = ASK) -> dict[str, Any]:
    """A plan that books, and then asks."""
    return {"steps": [{"step_id": "book", "tool": "book", "params": {"item": item}}, asked]}


@asynccontextmanager
async def opened(**plans: dict[str, Any]) -> AsyncIterator[Coordinator]:
    """A store with a saga of each plan, all of the tag ``wrong``."""
    UNDONE.clear()
    async with Coordinator.open("memory://", [book, unbook, vanish], durability="relaxed") as coordinator:
        for saga_id, plan in plans.items():
            await coordinator.run(plan, saga_id=saga_id, tags=["wrong"])
        yield coordinator


async def test_what_was_shown_is_cancelled_and_nothing_else() -> None:
    """A selection changes nothing and says what would be undone; a saga that fits the search later stays."""
    async with opened(a=asking("a"), b=asking("b")) as coordinator:
        await coordinator.run(asking("c"), saga_id="c", tags=["right"])
        batch = await coordinator.select("cancel", tags=["wrong"], by="ada", note="wrong file")
        assert {each.saga_id: each.undoes for each in batch.taken} == {"a": 1, "b": 1}
        assert UNDONE == []
        await coordinator.run(asking("d"), saga_id="d", tags=["wrong"])
        heard: list[str] = []
        report = await coordinator.act_on(batch, wait=True, on_done=lambda saga_id, _: heard.append(saga_id))
        assert {saga_id: found.status for saga_id, found in report.done.items()} == {
            "a": "COMPENSATED",
            "b": "COMPENSATED",
        }
        assert sorted(heard) == ["a", "b"]
        assert sorted(UNDONE) == ["a", "b"]
        assert [(await coordinator.show(each)).status for each in ("c", "d")] == ["ESCALATED", "ESCALATED"]
        cancelled = next(each for each in await coordinator.history("a") if each["k"] == "CancelRequested")
        assert (cancelled["by"], cancelled["note"]) == ("ada", "wrong file")


async def test_what_cannot_be_done_is_said_before() -> None:
    """A saga that has ended, and an id that nobody has, are refused in the selection, and stand in the report."""
    async with opened(a=asking("a")) as coordinator:
        await coordinator.run({"steps": [{"step_id": 1, "tool": "book", "params": {"item": "x"}}]}, saga_id="done")
        batch = await coordinator.select("cancel", saga_ids=["a", "done", "nobody"])
        refused = {each.saga_id: each.refused.code for each in batch.sagas if each.refused is not None}
        assert refused == {"done": "cancel-refused", "nobody": "saga-not-found"}
        report = await coordinator.act_on(batch)
        assert set(report.done) == {"a"}
        assert {saga_id: error.code for saga_id, error in report.refused.items()} == refused


async def test_questions_are_answered_alike() -> None:
    """Each open question of the step and kind gets the decision; a saga none of whose questions offers it stays."""
    async with opened(a=asking("a"), b=asking("b"), lost=asking("l", LOST)) as coordinator:
        batch = await coordinator.select("resolve", tags=["wrong"], decision="yes")
        assert {each.saga_id for each in batch.taken} == {"a", "b"}
        assert [each.refused.code for each in batch.sagas if each.refused is not None] == ["decision-refused"]
        report = await coordinator.act_on(batch, wait=True)
        assert {saga_id: found.status for saga_id, found in report.done.items()} == {"a": "COMPLETED", "b": "COMPLETED"}
        only = await coordinator.select("resolve", tags=["wrong"], kind="in-doubt", decision="not-happened")
        assert [(each.saga_id, each.answers[0]["step_id"]) for each in only.taken] == [("lost", "lost")]
        assert "undoes book" in only.taken[0].answers[0]["then"]


async def test_an_answer_that_is_refused_keeps_no_other_question_from_its_own() -> None:
    """Somebody answered one of two questions meanwhile: the report says so, and the other one has its answer."""
    two = {"steps": [{**asking("a")["steps"][1], "step_id": at, "depends_on": []} for at in ("one", "two")]}
    async with opened(a=two) as coordinator:
        batch = await coordinator.select("resolve", tags=["wrong"], decision="yes")
        assert [each["step_id"] for each in batch.taken[0].answers] == ["one", "two"]
        await coordinator.resolve("a", "one", "no", by="bob")
        report = await coordinator.act_on(batch)
        assert report.failed["a"].code == "decision-refused"
        ended = await coordinator.resume("a")
        assert ended.status == "COMPLETED"
        assert [ended.output(each)["answer"] for each in ("one", "two")] == ["no", "yes"]


async def test_a_call_that_may_happen_twice_is_not_repeated_by_the_hundred() -> None:
    """'retry' of a call without a key needs its own mark for one saga, so it is no answer for many."""
    async with opened(lost=asking("l", LOST)) as coordinator:
        batch = await coordinator.select("resolve", tags=["wrong"], decision="retry")
        assert batch.taken == []
        refused = batch.sagas[0].refused
        assert refused is not None
        assert "may happen twice" in refused.message
        assert [
            each.saga_id
            for each in (await coordinator.select("resolve", tags=["wrong"], decision="retry", twice=True)).taken
        ] == ["lost"]


async def test_only_sagas_that_can_go_on_are_resumed() -> None:
    """One that waits for an operator or has ended stays, with the reason."""
    async with opened(a=asking("a")) as coordinator:
        await coordinator.cancel("a", wait=True)
        await coordinator.run(asking("b"), saga_id="b", tags=["wrong"])
        batch = await coordinator.select("resume", saga_ids=["a", "b"])
        assert [each.refused.code for each in batch.sagas if each.refused is not None] == ["resume-refused"] * 2


async def test_a_saga_that_waits_takes_no_place_of_those_that_go_on() -> None:
    """More than are acted on at a time wait for an event; the one behind them is done all the same."""
    wait = {"steps": [{"step_id": 1, "wait": {"event": "go", "timeout_s": 600}}]}
    async with opened() as coordinator:
        names = [f"w{nth:02}" for nth in range(17)]
        for saga_id in names:
            await (await coordinator.submit(wait, saga_id=saga_id, detach=True)).journalled()
        book_one = {"steps": [{"step_id": 1, "tool": "book", "params": {"item": "x"}}]}
        await (await coordinator.submit(book_one, saga_id="quick", detach=True)).journalled()
        batch = await coordinator.select("resume", saga_ids=[*names, "quick"])
        report = await coordinator.act_on(batch, wait=True)
        assert report.done["quick"].completed
        assert {report.done[each].status for each in names} == {"RUNNING"}


async def test_an_error_of_who_listens_ends_nothing() -> None:
    """The report has every saga, and what was heard is logged."""

    def broken(saga_id: str, _found: Any) -> None:
        raise ValueError(saga_id)

    async with opened(a=asking("a"), b=asking("b")) as coordinator:
        batch = await coordinator.select("cancel", tags=["wrong"])
        report = await coordinator.act_on(batch, wait=True, on_done=broken)
    assert set(report.done) == {"a", "b"}


@pytest.mark.parametrize(
    ("verb", "fields"),
    [
        ("cancel", {}),
        ("cancel", {"saga_ids": ["a"], "tags": ["wrong"]}),
        ("cancel", {"tags": ["wrong"], "decision": "yes"}),
        ("resolve", {"tags": ["wrong"]}),
        ("resolve", {"tags": ["wrong"], "decision": "yes", "limit": 0}),
        ("undo", {"tags": ["wrong"]}),
    ],
)
async def test_a_selection_that_can_mean_nothing_is_refused(verb: Any, fields: dict[str, Any]) -> None:
    """Nothing is selected without ids or a search, nor by both, nor with what belongs to another action."""
    async with opened() as coordinator:
        with pytest.raises(SettingInvalid):
            await coordinator.select(verb, **fields)


async def test_a_job_of_the_http_api_is_previewed_alike() -> None:
    """A dry run says what a job would do to each saga; no job is made, and nothing is recorded."""
    async with (
        opened(a=asking("a"), b=asking("b")) as coordinator,
        serving(coordinator, ServerSettings(port=0)) as server,
    ):
        api = await server.api("read", "resolve")
        asked = {"action": "cancel", "where": {"tags": ["wrong"]}, "dry_run": True}
        would = (await api("POST", "/v1/jobs", asked)).json()
        assert {each["saga_id"]: each["undoes"] for each in would["sagas"]} == {"a": 1, "b": 1}
        assert (await api.get("/v1/jobs"))["jobs"] == []
        assert [head.messages for head in await coordinator.list()] == [0, 0]
        assert (await api("POST", "/v1/jobs", {**asked, "sagas": ["a"]})).status_code == 422
