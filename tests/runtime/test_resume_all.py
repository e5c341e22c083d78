"""All sagas that can go on are resumed, however many there are."""

import asyncio

import pytest

from saga_engine import Coordinator, tool
from saga_engine.errors import Interrupted, SagaError, StoreUnavailable
from tests.support.servers import GIVE_UP_S


@tool(undo="unmake")
async def make(number: int) -> dict:
    return {"number": number}


@tool
async def unmake(number: int) -> dict:
    return {"number": number}


def plan(number: int) -> dict:
    return {"steps": [{"step_id": 1, "tool": "make", "params": {"number": number}}]}


async def test_all_are_resumed_some_hundreds_at_a_time(monkeypatch) -> None:
    """No list of all is asked for; one whose journal cannot be read has its error in its place."""
    ids = [f"s{number:04}" for number in range(700)]
    async with Coordinator.open("memory://", [make, unmake], patience_s=GIVE_UP_S) as coordinator:
        for number, saga_id in enumerate(ids):
            await coordinator.submit(plan(number), saga_id=saga_id, detach=True)
        store = coordinator.store
        read, pages, most = store.read, [], []
        page = store.page

        async def failing(saga_id, start=0, *more, **options):
            most.append(coordinator.supervisor.count()[0])
            if saga_id == "s0007":
                raise SagaError("it cannot be read")
            return await read(saga_id, start, *more, **options)

        async def counted(status, *at):
            found = await page(status, *at)
            pages.append(len(found[0]))
            return found

        async def listed(*_, **__):
            raise AssertionError("all sagas at once")

        monkeypatch.setattr(store, "read", failing)
        monkeypatch.setattr(store, "page", counted)
        monkeypatch.setattr(store, "list", listed)
        results = await coordinator.resume_all()
    assert list(results) == ids
    assert isinstance(results.pop("s0007"), SagaError)
    assert {outcome.status for outcome in results.values()} == {"COMPLETED"}
    assert max(most) <= 256
    assert max(pages) < 700


async def test_a_store_that_goes_away_while_sagas_are_looked_up_ends_it(monkeypatch) -> None:
    """The error is raised, and what has been resumed goes on."""
    async with Coordinator.open("memory://", [make, unmake]) as coordinator:
        await coordinator.submit(plan(1), saga_id="s1", detach=True)
        store = coordinator.store
        page = store.page

        async def failing(status, *at):
            if status == "RUNNING":
                raise StoreUnavailable("away")
            return await page(status, *at)

        monkeypatch.setattr(store, "page", failing)
        with pytest.raises(StoreUnavailable):
            await coordinator.resume_all()
        assert (await coordinator.wait("s1")).completed


@pytest.mark.parametrize("trouble", [asyncio.CancelledError(), RuntimeError("a defect")], ids=["cancelled", "a defect"])
async def test_what_ends_one_driver_is_the_error_of_that_saga(monkeypatch, trouble) -> None:
    """A task that is cancelled, or a defect, costs one saga its driver: the others are resumed, and each has its result."""
    async with Coordinator.open("memory://", [make, unmake]) as coordinator:
        for saga_id in ("s1", "s2", "s3"):
            await coordinator.submit(plan(1), saga_id=saga_id, detach=True)
        store = coordinator.store
        read = store.read

        async def failing(saga_id, start=0, *more, **options):
            if saga_id == "s2":
                raise trouble
            return await read(saga_id, start, *more, **options)

        monkeypatch.setattr(store, "read", failing)
        results = await coordinator.resume_all()
    stopped = results.pop("s2")
    assert isinstance(stopped, Interrupted) if trouble.args == () else "a defect" in stopped.message
    assert [outcome.status for outcome in results.values()] == ["COMPLETED"] * 2


async def test_a_lease_that_is_over_as_it_opens_is_opened_anew():
    """The opening has ended, nobody was told yet, and what it opened is over: the next one opens another lease."""
    async with Coordinator.open("memory://", [], lease_s=3600) as engine:
        supervisor = engine.supervisor
        over = await supervisor.lease()
        over.lose()
        opened = asyncio.get_running_loop().create_future()
        opened.set_result(over)
        supervisor._opening = opened
        performer = await supervisor._performer_for("x")
        assert performer.lease.valid()
