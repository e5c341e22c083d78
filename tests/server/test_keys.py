"""A request that is sent again under its ``Idempotency-Key`` acts once: each operation, by one law and one table."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from saga_engine import Coordinator
from saga_engine.api.holds import held
from saga_engine.api.stops import stops
from saga_engine.guards.holds.holding import Note, token_of
from saga_engine.ports import HoldClaim
from saga_engine.server.routes import operations
from tests.server.harness import ASK, BOOK, TOOLS, WAIT, Planner, serving, worked

MORE = {"steps": [{"step_id": 9, "tool": "book", "params": {"item": "car"}}]}
SPAN = {"since": "2026-03-01T00:00:00+00:00", "until": "2026-03-15T00:00:00+00:00"}
#: By the operation's name: its path, a body, and another body (None: the operation has no other).
TABLE: dict[str, tuple[str, Any, Any]] = {
    "submitSaga": ("/v1/sagas", {"plan": BOOK}, {"plan": ASK}),
    "cancelSaga": ("/v1/sagas/queued/cancel", {"note": "a"}, {"note": "b"}),
    "resolveSaga": ("/v1/sagas/asks/resolve", {"step_id": 1, "decision": "yes"}, {"step_id": 1, "decision": "no"}),
    "amendSaga": ("/v1/sagas/queued/amend", MORE, {**MORE, "note": "b"}),
    "undoSaga": ("/v1/sagas/done/undo", {}, {"accept": True}),
    "forkSaga": ("/v1/sagas/two/fork", {"run_from": 2}, {"run_from": 1}),
    "eraseSaga": ("/v1/sagas/old/erase", {"why": "a"}, {"why": "b"}),
    "resumeSaga": ("/v1/sagas/asks/resume", {}, None),
    "makeCallback": ("/v1/sagas/waits/callbacks", {"step_id": 1}, {"step_id": 2}),
    "sendEvent": ("/v1/events", {"name": "told", "key": 1}, {"name": "told", "key": 2}),
    "checkPlan": ("/v1/check", {"plan": BOOK}, {"plan": ASK}),
    "simulatePlan": ("/v1/simulate", {"plan": BOOK}, {"plan": ASK}),
    "makePlan": ("/v1/plan", {"goal": "a room"}, {"goal": "a car"}),
    "createJob": ("/v1/jobs", {"action": "resume", "sagas": ["nowhere"]}, {"action": "cancel", "sagas": ["nowhere"]}),
    "putTemplate": ("/v1/templates/trip", {"plan": ASK}, {"plan": BOOK}),
    "deleteTemplate": ("/v1/templates/old", None, None),
    "putSchedule": ("/v1/schedules/new", {"template": "trip", "every_s": 86_400}, {"template": "trip", "every_s": 61}),
    "deleteSchedule": ("/v1/schedules/old", None, None),
    "pauseSchedule": ("/v1/schedules/weekly/pause", {"note": "a"}, {"note": "b"}),
    "resumeSchedule": ("/v1/schedules/weekly/resume", {}, None),
    "triggerSchedule": ("/v1/schedules/weekly/trigger", {}, None),
    "backfillSchedule": ("/v1/schedules/weekly/backfill", SPAN, {**SPAN, "until": "2026-03-08T00:00:00+00:00"}),
    "stopCalls": ("/v1/stop", {"tool": "book"}, {"tool": "cancel"}),
    "liftStop": ("/v1/go", {"tool": "fail"}, {"tool": "book"}),
    "releaseHold": ("/v1/release", {"resource": "seat"}, {"resource": "row"}),
}


async def effect(coordinator: Coordinator) -> dict[str, Any]:
    """All that the store holds of sagas, messages, events, templates, schedules, jobs and stops."""
    store, found = coordinator.store, {}
    for head in (await coordinator.search(limit=1000)).sagas:
        found[head.saga_id] = (await coordinator.history(head.saga_id), await store.messages(head.saga_id))
    documents = store.documents()
    jobs = [name for name in await documents.names("job")]
    schedules = [each.to_dict() for each in await coordinator.schedules.list()]
    templates = [(name, tuple(versions)) for name, versions in await coordinator.templates.list()]
    events = [each.id for each in await coordinator.events()]
    return {**found, "": (jobs, schedules, templates, events, await stops(store), await held(store))}


async def forget_answers(coordinator: Coordinator) -> None:
    """As if each server had been killed after it acted, and before it remembered its answer."""
    documents = coordinator.store.documents()
    for name in await documents.names("request"):
        there = await documents.read("request", name)
        assert there is not None
        claim = msgspec.json.decode(there.body) | {
            "status": 0,
            "body": None,
            "headers": {},
            "saga_id": "",
            "nonce": "x",
        }
        assert await documents.write("request", there._replace(body=msgspec.json.encode(claim))) is not None


async def prepare(coordinator: Coordinator) -> None:
    """What the table's paths name."""
    two = {"steps": [*BOOK["steps"], {"step_id": 2, "tool": "book", "params": {"item": "car"}}]}
    for saga_id, plan in (("done", BOOK), ("two", two), ("asks", ASK), ("old", BOOK)):
        await coordinator.run(plan, saga_id=saga_id)
    await coordinator.submit(WAIT, saga_id="queued", detach=True)
    waiting = await coordinator.submit(WAIT, saga_id="waits")
    async for record in coordinator.follow(waiting.saga_id):
        if record["k"] == "StepWaiting":
            break
    for key in ("seat", "row"):
        note = msgspec.json.encode(Note(token_of(key), key, "asks", "1", "book")).decode()
        claim = HoldClaim("asks", "asks", 1, write=True, ticket="asks", note=note)
        await coordinator.store.guard_store().hold(token_of(key), claim, 1000)
    for name in ("trip", "old"):
        await coordinator.templates.put(name, BOOK)
    for name in ("weekly", "old"):
        await coordinator.schedules.put(name, template="trip", cron="0 9 * * MON")


@pytest.mark.parametrize("privacy", [None, {"k1": bytes(32)}], ids=["clear", "sealed"])
async def test_each_request_acts_once_under_its_key(privacy: dict[str, bytes] | None) -> None:
    """Sent twice with one key, and again after a kill between act and answer, the store is as after the first one.

    The status and the place are the same, and the same key with another body is refused.
    """
    opened = Coordinator.open("memory://", TOOLS, durability="relaxed", planner=Planner(), privacy=privacy)
    async with opened as coordinator:
        await prepare(coordinator)
        async with serving(coordinator) as server:
            api = await server.api()
            listed = {each.name: each for each in operations() if each.keyed}
            assert TABLE.keys() == listed.keys()
            for name, (path, body, other) in TABLE.items():
                method, key = listed[name].method, {"idempotency-key": f"the-{name}"}
                first = await api(method, path, body, headers=key)
                if name == "eraseSaga" and privacy is None:
                    assert (first.status_code, first.json()["code"]) == (409, "erase-refused")
                    continue
                assert first.status_code < 300, (name, first.text)
                after = await effect(coordinator)
                for forgotten in (False, True, False):
                    if forgotten:
                        await forget_answers(coordinator)
                    again = await api(method, path, body, headers=key)
                    assert again.status_code == first.status_code, (name, again.text)
                    if name != "makeCallback":  # its URL has its expiry, and the store has nothing of it
                        assert again.headers.get("location") == first.headers.get("location"), name
                    assert await effect(coordinator) == after, name
                if other is not None:
                    reused = await api(method, path, other, headers=key)
                    assert (reused.status_code, reused.json()["code"]) == (409, "key-reused"), name
                    assert await effect(coordinator) == after, name


async def test_what_is_refused_leaves_its_key_free() -> None:
    """A request that was refused can be mended, and sent again under its key."""
    async with worked() as (server, _):
        api, key = await server.api(), {"idempotency-key": "k"}
        wrong = {"plan": {"steps": [{"tool": "nothing"}]}}
        assert (await api("POST", "/v1/sagas", wrong, headers=key)).json()["code"] == "plan-invalid"
        assert (await api("POST", "/v1/sagas", {"plan": BOOK}, headers=key)).status_code == 202
        for bad in ("", "x" * 256):
            found = await api("POST", "/v1/sagas", {"plan": BOOK}, headers={"idempotency-key": bad})
            assert (found.status_code, found.json()["where"]) == (400, "idempotency-key")


@pytest.mark.parametrize("remembered", [True, False])
async def test_an_amend_that_was_read_is_not_added_again(remembered: bool) -> None:
    """Asked again once the owner has added the steps, also by a server that was killed in between, it adds none."""
    async with worked() as (server, coordinator):
        api, key = await server.api(), {"idempotency-key": "amend-1"}
        await api.post("/v1/sagas", {"plan": WAIT, "saga_id": "s"})
        await api.post("/v1/sagas/s/amend", MORE, headers=key)
        await seen(coordinator, "StepsAdded")
        if not remembered:
            await forget_answers(coordinator)
        await api.post("/v1/sagas/s/amend", MORE, headers=key)
        # A race with an owner that reads between the check and the post: the store itself knows the message.
        message = next(each for each in await coordinator.history("s") if each["k"] == "StepsAdded")["message"]
        await coordinator.store.post("s", msgspec.json.encode({"id": message, "kind": "amend", **MORE}))
        await api.post("/v1/events", {"name": "paid", "key": "17"})
        done = await api.get("/v1/sagas/s", wait=60)
        assert (done["status"], len(done["steps"])) == ("COMPLETED", 2)
        kinds = [each["k"] for each in await coordinator.history("s")]
        assert (kinds.count("StepsAdded"), kinds.count("MessageRefused")) == (1, 0)


async def seen(coordinator: Coordinator, kind: str) -> None:
    """Once the saga's journal has a record of this kind."""
    async for record in coordinator.follow("s"):
        if record["k"] == kind:
            return
