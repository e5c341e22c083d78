"""What a tenant may use is counted where a saga is journalled and where steps are added: no way leads past it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest

from saga_engine import Coordinator
from saga_engine.errors import QuotaExceeded, StoreUnavailable
from saga_engine.execution.governed import Governed, differences, found_in
from saga_engine.ports import Channel
from saga_engine.runtime import quota
from saga_engine.runtime.quota import Quota as Counted
from saga_engine.server.app import create_app
from saga_engine.server.settings import Quota, ServerSettings, Tenant, server_settings
from tests.server.harness import BOOK, TOOLS, WAIT, Api, Server, serving, worked

LIVE = Quota(live_sagas=2)
#: A step, ten of which are more than a second's and fewer than what may be added at once.
STEP = {"tool": "book", "params": {"item": "x"}, "depends_on": []}


def settings(found: Quota) -> ServerSettings:
    return ServerSettings(port=0, requests_per_s=1e6, burst=1_000_000, quota=found)


async def live(api: Api) -> int:
    """How many sagas have not ended."""
    counts = (await api.get("/v1/overview"))["sagas"]
    return sum(count for status, count in counts.items() if status not in ("COMPLETED", "COMPENSATED", "WAIVED"))


async def ready(api: Api) -> None:
    """A template, a schedule of it, and one saga that waits."""
    await api("PUT", "/v1/templates/hold", {"plan": WAIT})
    await api("PUT", "/v1/schedules/tick", {"template": "hold", "cron": "0 * * * *", "overlap": "allow"})
    await api.post("/v1/sagas", {"plan": WAIT, "saga_id": "first"})


SPAN = {"since": "2026-01-01T00:00:00Z", "until": "2026-01-01T12:00:00Z"}
#: Ways to begin three more sagas.
WAYS: dict[str, Callable[[Api, int], Awaitable[Any]]] = {
    "plan": lambda api, n: api("POST", "/v1/sagas", {"plan": WAIT, "saga_id": f"s{n}"}),
    "template": lambda api, n: api("POST", "/v1/sagas", {"template": "hold", "saga_id": f"s{n}"}),
    "trigger": lambda api, n: api("POST", "/v1/schedules/tick/trigger", headers={"idempotency-key": f"k{n}"}),
    "backfill": lambda api, n: api("POST", "/v1/schedules/tick/backfill", SPAN),
    "fork": lambda api, n: api("POST", "/v1/sagas/done/fork", {"new_id": f"f{n}", "plan": WAIT}),
}


@pytest.mark.parametrize("way", WAYS)
async def test_no_way_begins_more_than_may_be_live(way: str) -> None:
    """By a plan, a template, a schedule or a fork: what is too much is refused with 429, and nothing is journalled."""
    async with Coordinator.open("memory://", TOOLS, durability="relaxed") as coordinator:
        await coordinator.run(BOOK, saga_id="done")
        async with serving(coordinator, settings(LIVE)) as server:
            api = await server.api()
            await ready(api)
            answers = [await WAYS[way](api, number) for number in range(3)]
            codes = [each.status_code for each in answers]
            assert codes[-1] == 429, [each.text for each in answers]
            assert await live(api) == 2


async def test_children_are_counted() -> None:
    """A saga that begins a child for each of five steps gets one; the others fail as not begun, and it is undone."""
    children = [{"step_id": f"c{n}", "saga": {"plan": WAIT}, "depends_on": []} for n in range(5)]
    async with worked(settings=settings(LIVE)) as (server, coordinator):
        await coordinator.submit({"steps": children}, saga_id="parent", detach=True)
        found = await coordinator.wait("parent")
        assert found.status == "COMPENSATED"
        records = await coordinator.history("parent")
        assert "quota-exceeded" in str(records)
        assert 1 <= sum(head.saga_id != "parent" for head in (await coordinator.search()).sagas) <= 4
        assert await live(await server.api()) <= 2


async def test_two_servers_count_together() -> None:
    """Of submissions to both at the same time only so many begin as may be live."""
    async with (
        Coordinator.open("memory://two", TOOLS, durability="relaxed") as one,
        Coordinator.open("memory://two", TOOLS, durability="relaxed") as two,
        serving(one, settings(LIVE)) as first,
        serving(two, settings(LIVE)) as second,
    ):
        apis = [await first.api(), await second.api()]
        for turn in range(3):
            bodies = [{"plan": WAIT, "saga_id": f"s{turn}-{n}"} for n in range(8)]
            found = await asyncio.gather(*(apis[n % 2]("POST", "/v1/sagas", body) for n, body in enumerate(bodies)))
            assert sorted(each.status_code for each in found) == [202] * 2 + [429] * 6
            for body, answer in zip(bodies, found, strict=True):
                if answer.status_code == 202:
                    await one.cancel(body["saga_id"])


async def test_a_worker_that_knows_no_settings_keeps_the_quota() -> None:
    """It stands in the namespace of the tenant: who works there is bound by it."""
    chosen = ServerSettings(port=0, tenants={"blue": Tenant("blue", "blue", LIVE)})
    async with (
        Coordinator.open("memory://quota", TOOLS, durability="relaxed") as own,
        Coordinator.open("memory://quota?namespace=blue", TOOLS, durability="relaxed") as theirs,
        serving(own, chosen, {"blue": theirs}),
        Coordinator.open("memory://quota?namespace=blue", TOOLS, durability="relaxed") as worker,
    ):
        for number in range(2):
            await worker.submit(WAIT, saga_id=f"s{number}", detach=True)
        with pytest.raises(QuotaExceeded, match="2 sagas have not ended, and 2 may be live"):
            await worker.run(WAIT, saga_id="more")
        await own.submit(WAIT, saga_id="more", detach=True)
        await worker.cancel("s0")
        await worker.submit(WAIT, saga_id="more", detach=True)


@pytest.mark.parametrize("strict_first", [True, False])
async def test_the_smallest_quota_of_servers_that_run_holds(
    strict_first: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Whichever began last; the other's log names it, and what a server has declared ends with its lease."""
    found = {True: settings(LIVE), False: settings(Quota(live_sagas=5, steps_per_s=1000))}
    async with AsyncExitStack() as stack:
        engines = {
            strict: await stack.enter_async_context(Coordinator.open("memory://differ", TOOLS, durability="relaxed"))
            for strict in (True, False)
        }
        desks = {strict: create_app(engines[strict], found[strict]).state.desk for strict in (True, False)}
        for strict in (strict_first, not strict_first):
            await desks[strict].limit()
        await desks[False].limit()
        assert await stated(engines[True]) == (2, 1000)
        owner = (await engines[True].supervisor.lease()).owner
        told = [each.getMessage() for each in caplog.records if "smaller quota" in each.getMessage()]
        assert sum(f"declared by {owner}" in each for each in told) == 1, told
        assert [each.part for each in differences(await governed(engines[True]))] == ["quota"]
        await engines[True].close()
        assert await stated(engines[False]) == (2, 1000)
        await desks[False].limit()
        assert await stated(engines[False]) == (5, 1000)


async def test_a_server_that_states_no_quota_changes_none() -> None:
    """Only a word does: 0 lifts what was stated before, once no server that runs states it any more."""
    async with Coordinator.open("memory://silent", TOOLS, durability="relaxed") as one:
        await create_app(one, settings(LIVE)).state.desk.limit()
    async with Coordinator.open("memory://silent", TOOLS, durability="relaxed") as two:
        silent = ServerSettings(port=0)
        assert server_settings({}, "saga.toml").quota is None
        await create_app(two, silent).state.desk.limit()
        assert await stated(two) == (2, 0)
        for number in range(2):
            await two.submit(WAIT, saga_id=f"s{number}", detach=True)
        with pytest.raises(QuotaExceeded):
            await two.submit(WAIT, saga_id="more", detach=True)
        word = server_settings({"live_sagas": 0}, "saga.toml").quota
        assert word == Quota()
        await create_app(two, settings(word)).state.desk.limit()
        await two.submit(WAIT, saga_id="more", detach=True)


async def stated(engine: Coordinator) -> tuple[int, float]:
    """The quota that holds in a namespace."""
    found = await engine.store.documents().read("server", "quota")
    assert found is not None
    body = json.loads(found.body)
    return body["live_sagas"], body["steps_per_s"]


async def governed(engine: Coordinator) -> dict[str, Governed]:
    load = await engine.overview()
    return found_in(load.notes, load.owners)


@asynccontextmanager
async def limited(found: Quota) -> AsyncIterator[tuple[Server, Coordinator, Api]]:
    async with worked(settings=settings(found)) as (server, coordinator):
        yield server, coordinator, await server.api()


@pytest.mark.parametrize("how", ["one by one", "in one list", "in an amend"])
async def test_steps_are_counted_wherever_they_are_added(how: str) -> None:
    """A list that is written out is as many steps as it has items, and an amendment is counted like a plan."""
    async with limited(Quota(steps_per_s=0.001)) as (_, _, api):
        steps: list[dict[str, Any]] = [{**STEP, "step_id": n} for n in range(11)]
        each = {"tool": "book", "step_id": 1, "each": {"of": ["x"] * 11}, "params": {"item": "$item"}}
        if how == "in an amend":
            await api.post("/v1/sagas", {"plan": WAIT, "saga_id": "s"})
            refused = await api("POST", "/v1/sagas/s/amend", {"steps": steps[:1]})
        else:
            plan = {"steps": [each] if how == "in one list" else steps}
            refused = await api("POST", "/v1/sagas", {"plan": plan})
            assert "11 steps are too many at once: 10 may be added" in refused.text
            assert (await api("POST", "/v1/sagas", {"plan": {"steps": steps[:10]}})).status_code == 202
            refused = await api("POST", "/v1/sagas", {"plan": BOOK})
        assert (refused.status_code, refused.json()["code"]) == (429, "quota-exceeded")


async def test_what_undoes_is_never_refused() -> None:
    """A cancel, an undo and what handles a late event go on at a quota that is used up; so does a repetition."""
    late = {"tool": "cancel", "params": {"item": "x"}}
    wait = {"steps": [{"step_id": 1, "wait": {"event": "paid", "key": "18", "timeout_s": 3600, "on_late": late}}]}
    async with limited(Quota(live_sagas=2, steps_per_s=1000)) as (_, coordinator, api):
        await coordinator.run(BOOK, saga_id="done")
        await api.post("/v1/sagas", {"plan": wait, "saga_id": "late"})
        while await coordinator.store.event_store().first(Channel("paid", "18")) is None:  # noqa: ASYNC110 - of another
            await asyncio.sleep(0.005)
        await coordinator.cancel("late")
        for number in range(2):
            await api.post("/v1/sagas", {"plan": WAIT, "saga_id": f"s{number}"})
        assert (await api("POST", "/v1/sagas", {"plan": WAIT})).status_code == 429
        assert (await api("POST", "/v1/sagas", {"plan": WAIT, "saga_id": "s0"})).status_code == 202
        assert (await api("POST", "/v1/sagas/done/undo", {})).status_code == 202
        sent = await api.post("/v1/events", {"name": "paid", "key": "18", "payload": {"item": "x"}})
        assert (await api.get("/v1/sagas/done-undo", wait=60))["status"] == "COMPENSATED"
        assert (await api.get(f"/v1/sagas/{sent['late_saga']}", wait=60))["status"] == "COMPLETED"


async def test_a_saga_that_is_being_journalled_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between its place and its journal it has its place; one that never comes gives it back after a while."""
    async with limited(Quota(live_sagas=1)) as (_, coordinator, _):
        counted = Counted(coordinator.store)
        await counted.admit("being-made", b"{}")
        await counted.admit("being-made", b"{}")
        with pytest.raises(QuotaExceeded), monkeypatch.context() as patched:
            patched.setattr(quota, "_TRIES", 3)
            await counted.admit("other", b"{}")
        monkeypatch.setattr(quota, "_PENDING_MS", -1)
        await counted.admit("other", b"{}")


@pytest.mark.parametrize("limited", [False, True], ids=["none is known", "one is known"])
async def test_a_quota_that_cannot_be_read_holds_up_only_who_knows_of_one(
    limited: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """One partition has it: while that is away, sagas of the others begin; but no known limit is passed meanwhile."""
    async with Coordinator.open("memory://", [], durability="relaxed") as engine:
        counted = Counted(engine.store)
        if limited:
            await counted.set(1, 0)
            await counted.admit("first", b'{"steps": [{}]}')
        documents = engine.store.documents()

        async def away(*_: object) -> None:
            raise StoreUnavailable("its partition is away")

        monkeypatch.setattr(type(documents), "read", away)
        if limited:
            with pytest.raises(StoreUnavailable):
                await counted.admit("s", b'{"steps": [{}]}')
        else:
            await counted.admit("s", b'{"steps": [{}]}')
            assert "cannot be read" in caplog.text
