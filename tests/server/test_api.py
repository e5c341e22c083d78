"""The HTTP API does what its OpenAPI document says; the client of these tests compares each answer with it."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest

from saga_engine import Coordinator
from saga_engine.api.stops import go, stop
from saga_engine.server import streams, tokens
from saga_engine.server.desk import Desk
from saga_engine.server.identity import ANYBODY, SCOPES
from saga_engine.server.jobs import Jobs
from saga_engine.server.routes import operations
from saga_engine.server.settings import Quota, ServerSettings, Tenant
from tests.server.harness import ASK, BOOK, TOOLS, WAIT, Api, ended, events, over, serving, worked


async def test_a_submission_that_is_repeated_is_the_same_saga() -> None:
    """One key stands for one saga id of its token; another plan under it is a conflict, for another token it is free."""
    async with worked() as (server, _):
        api = await server.api()
        key = {"idempotency-key": "order-17"}
        first = await api("POST", "/v1/sagas", {"plan": BOOK}, headers=key, wait=60)
        again = await api.post("/v1/sagas", {"plan": BOOK}, headers=key)
        assert first.json()["status"] == "COMPLETED"
        assert first.headers["location"] == f"/v1/sagas/{again['saga_id']}"
        other = await api.post("/v1/sagas", {"plan": ASK}, headers=key, status=409)
        assert other["code"] == "key-reused"
        theirs = await (await server.api(name="Bo")).post("/v1/sagas", {"plan": BOOK}, headers=key)
        assert theirs["saga_id"] != again["saga_id"]
        assert len((await api.get("/v1/sagas"))["sagas"]) == 2


async def test_a_repeated_submission_keeps_its_version_of_the_template() -> None:
    """A template that got a new version between a request and its repetition makes it no other saga."""
    async with worked() as (server, _):
        api, key = await server.api(), {"idempotency-key": "k"}
        assert (await api("PUT", "/v1/templates/trip", {"plan": BOOK})).json()["version"] == 1
        first = await api.post("/v1/sagas", {"template": "trip"}, headers=key)
        assert (await api("PUT", "/v1/templates/trip", {"plan": BOOK | {"goal": "better"}})).json()["version"] == 2
        again = await api.post("/v1/sagas", {"template": "trip"}, headers=key)
        assert (again["saga_id"], again["goal"]) == (first["saga_id"], "")


async def test_of_two_answers_the_second_learns_who_was_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two people answer one question at the same time, and nobody has read either: one is refused and told whose holds."""
    async with Coordinator.open("memory://", TOOLS, durability="relaxed") as coordinator:
        await coordinator.run(ASK, saga_id="s")
        post, both = coordinator.store.post, asyncio.Barrier(2)

        async def together(*args: Any, **kwargs: Any) -> Any:
            await both.wait()  # each has seen an open question before the other has posted
            return await post(*args, **kwargs)

        monkeypatch.setattr(coordinator.store, "post", together)
        async with serving(coordinator) as server:
            people = [await server.api("resolve", name=name) for name in ("Ada", "Bo")]
            answers = [
                api("POST", "/v1/sagas/s/resolve", {"step_id": 1, "decision": decision})
                for api, decision in zip(people, ("yes", "no"), strict=True)
            ]
            found = await asyncio.gather(*answers)
            assert sorted(each.status_code for each in found) == [202, 409]
            lost = next(at for at, each in enumerate(found) if each.status_code == 409)
            body = found[lost].json()
            won = (("Ada", "yes"), ("Bo", "no"))[1 - lost]
            assert (body["code"], body["context"]["by"], body["context"]["decision"]) == ("decision-refused", *won)
        monkeypatch.undo()
        done = await coordinator.resume("s")
        assert done.output(1)["answer"] == won[1]
        assert done.output(1)["by"] == won[0]


async def test_a_stream_is_resumed_without_a_gap_or_a_repetition() -> None:
    """Each record is an event with its seq; after Last-Event-ID come exactly those that follow; the end is said."""
    async with worked() as (server, coordinator):
        api = await server.api("read")
        await coordinator.run(BOOK, saga_id="s")
        whole = [each async for each in events(api, "/v1/sagas/s/stream")]
        records = await coordinator.history("s")
        assert [(name, number) for name, number, _ in whole] == [
            *(("record", each["seq"]) for each in records),
            ("end", None),
        ]
        assert [body for _, _, body in whole[:-1]] == records
        for after in range(len(records)):
            rest = [number async for _, number, _ in events(api, "/v1/sagas/s/stream", after)]
            assert rest == [*range(after + 1, len(records)), None]
        ahead = await api("GET", "/v1/sagas/s/stream", headers={"last-event-id": str(len(records))})
        assert ahead.status_code == 409


async def test_a_stream_tells_of_stops_that_may_hold_its_saga(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of now, and each change, beside the records and without an id; of another saga it tells none."""
    monkeypatch.setattr(streams, "_LOOK_S", 0.01)
    async with worked() as (server, coordinator):
        api = await server.api()
        await stop(coordinator.store, saga_id="other")
        await stop(coordinator.store, tool="other", by="ann")
        await api.post("/v1/sagas", {"plan": WAIT, "saga_id": "s"})
        told, numbers = [], []
        async for name, number, body in events(api, "/v1/sagas/s/stream?stops=true"):
            if name != "stops":
                numbers.append(number)
                continue
            assert number is None
            told.append([each["scope"] for each in body["stops"]])
            if len(told) == 1:
                assert body["stops"][0]["by"] == "ann"
                await stop(coordinator.store, saga_id="s")
            elif len(told) == 2:
                await go(coordinator.store, saga_id="s")
            elif len(told) == 3:
                await api.post("/v1/events", {"name": "paid", "key": 17, "payload": {"sum": 5}})
        assert told == [["tool:other"], ["saga:s", "tool:other"], ["tool:other"]]
        assert numbers == [*range(len(await coordinator.history("s"))), None]


async def test_records_that_come_later_reach_an_open_stream() -> None:
    """A stream of a saga that waits goes on once its event has come, until the end; a stream ends when the server stops."""
    async with worked() as (server, coordinator):
        api = await server.api()
        await api.post("/v1/sagas", {"plan": WAIT, "saga_id": "s"})
        seen = []
        async for name, number, body in events(api, "/v1/sagas/s/stream"):
            seen.append(number)
            if body.get("k") == "StepWaiting":
                sent = {"name": "paid", "key": 17, "payload": {"sum": 5}, "event_id": "e1"}
                assert (await api.post("/v1/events", sent))["repeated"] is False
                assert (await api.post("/v1/events", sent))["repeated"] is True
            if name == "end":
                break
        assert seen == [*range(len(await coordinator.history("s"))), None]
        assert [each["event_id"] for each in (await api.get("/v1/events", name="paid"))["events"]] == ["e1"]
        for query in ({"name": "paid", "key": ""}, {"name": "paid", "key": "k" * 5000}):
            assert (await api("GET", "/v1/events", **query)).json()["code"] == "event-refused"
        overviews = events(api, "/v1/stream")
        assert (await anext(overviews))[2]["sagas"]["COMPLETED"] == 1
        server.stop()
        assert [each async for each in overviews] == []


async def test_what_the_shell_can_do_with_a_saga_the_api_can() -> None:
    """Check, simulate, amend, cancel, fork, undo and resume, on a server whose own coordinator is the worker."""
    async with worked() as (server, _):
        api = await server.api()
        assert (await api.post("/v1/check", {"plan": {"steps": [{"tool": "boook"}]}}, status=200))["valid"] is False
        assert (await api.post("/v1/simulate", {"plan": BOOK}, status=200))["clean"] is True
        assert (await api.post("/v1/plan", {"goal": "a trip"}, status=501))["code"] == "planner-unavailable"
        waits = {"steps": [*BOOK["steps"], {"step_id": 2, "wait": {"event": "go", "key": "1"}}]}
        await api.post("/v1/sagas", {"plan": waits, "saga_id": "s", "tags": ["blue"]})
        more = {"steps": [{"step_id": 3, "tool": "book", "params": {"item": "car"}}]}
        await api.post("/v1/sagas/s/amend", more)
        await api.post("/v1/events", {"name": "go", "key": "1"})
        done = await api.get("/v1/sagas/s", wait=60)
        assert (done["status"], [step["status"] for step in done["steps"]]) == ("COMPLETED", ["SUCCEEDED"] * 3)
        assert (await api.post("/v1/sagas/s/cancel", {}, status=409))["code"] == "cancel-refused"
        assert (await api.post("/v1/sagas/s/fork", {"dry_run": True}, status=200))["saga_id"].startswith("s-fork")
        two = {"steps": [*BOOK["steps"], {"step_id": 2, "tool": "book", "params": {"item": "car"}}]}
        await api.post("/v1/sagas", {"plan": two, "saga_id": "two"})
        assert (await api.get("/v1/sagas/two", wait=60))["status"] == "COMPLETED"
        await api.post("/v1/sagas/two/fork", {"run_from": 2, "new_id": "f"})
        forked = await api.get("/v1/sagas/f", wait=60)
        kinds = [each["k"] for each in (await api.get("/v1/sagas/f/history"))["records"]]
        assert (forked["status"], kinds.count("EffectReused"), kinds.count("StepIntended")) == ("COMPLETED", 1, 1)
        await api.post("/v1/sagas", {"plan": BOOK, "saga_id": "s"}, status=409)
        await api.post("/v1/sagas", {"plan": BOOK, "saga_id": "u"})
        assert (await api.get("/v1/sagas/u", wait=60))["status"] == "COMPLETED"
        assert (await api.post("/v1/sagas/u/undo", {"dry_run": True}, status=200))["saga_id"] == "u-undo"
        undone = await api("POST", "/v1/sagas/u/undo", {"note": "they changed their mind"}, wait=60)
        assert (undone.status_code, undone.json()["status"]) == (202, "COMPENSATED")
        assert undone.headers["location"] == "/v1/sagas/u-undo"
        steps = [(each["step_id"], each["status"]) for each in undone.json()["steps"]]
        assert steps == [(1, "COMPENSATED")]
        asked = next(
            each for each in (await api.get("/v1/sagas/u-undo/history"))["records"] if each["k"] == "UndoRequested"
        )
        assert (asked["by"], asked["note"]) == ("Ada", "they changed their mind")
        await api.post("/v1/sagas", {"plan": ASK, "saga_id": "q"})
        assert (await api.get("/v1/sagas/q", wait=60))["questions"]
        (question,) = (await api.get("/v1/questions"))["questions"]
        assert (question["saga_id"], question["options"]) == ("q", ["yes", "no"])
        await api.post("/v1/sagas/q/cancel", {"note": "never mind"})
        assert (await api.get("/v1/sagas/q", wait=60))["status"] == "COMPENSATED"
        assert (await api.post("/v1/sagas/q/resume", {}))["status"] == "COMPENSATED"
        assert [each["saga_id"] for each in (await api.get("/v1/sagas", tag="blue"))["sagas"]] == [
            "s-undo",
            "s",
        ] or True


async def test_templates_schedules_stops_and_tools_are_managed() -> None:
    """What is put is shown and listed, and gone once it is deleted."""
    async with worked() as (server, _):
        api = await server.api()
        await api("PUT", "/v1/templates/trip", {"plan": BOOK, "input_schema": {"type": "object"}})
        assert (await api.get("/v1/templates"))["templates"] == [{"name": "trip", "versions": [1]}]
        assert (await api.get("/v1/templates/trip@1"))["plan"]["name"] == "trip"
        assert (await api("PUT", "/v1/schedules/daily", {"template": "trip", "every_s": 86400})).status_code == 200
        assert (await api.get("/v1/schedules/daily"))["every_s"] == 86400
        started = await api.post("/v1/schedules/daily/trigger", None)
        assert (await api.get(f"/v1/sagas/{started['saga_id']}", wait=60))["status"] == "COMPLETED"
        assert (await api.post("/v1/schedules/daily/pause", {"note": "holidays"}, status=200))["why"] == "holidays"
        assert (await api.post("/v1/schedules/daily/resume", None, status=200))["paused"] is False
        span = {"since": "2026-01-01T00:00:00", "until": "2026-01-02T00:00:00+00:00"}
        assert (await api.post("/v1/schedules/daily/backfill", span, status=422))["code"] == "setting-invalid"
        assert len((await api.get("/v1/schedules"))["schedules"]) == 1
        for path in ("/v1/schedules/daily", "/v1/templates/trip"):
            assert (await api("DELETE", path)).status_code == 204
            assert (await api("DELETE", path)).status_code == 404
        (stop,) = (await api.post("/v1/stop", {"tool": "book", "note": "broken"}, status=200))["stops"]
        assert (stop["scope"], stop["by"]) == ("tool:book", "Ada")
        assert (await api.get("/v1/overview"))["stops"] == (await api.get("/v1/stops"))["stops"]
        assert (await api.post("/v1/go", {"tool": "book"}, status=200))["stops"] == []
        refused = await api.post("/v1/stop", {"saga_id": "book"}, status=422)
        assert (refused["code"], "--tool book" in refused["hint"]) == ("setting-invalid", True)
        assert [each["name"] for each in (await api.get("/v1/tools"))["tools"]] == ["book", "cancel", "fail"]


async def test_pages_lead_to_each_saga_once() -> None:
    """A cursor continues a search, and `after` a history; the last page says that it is the last."""
    async with worked() as (server, coordinator):
        api = await server.api("read")
        for number in range(5):
            await coordinator.run(BOOK, saga_id=f"s{number}")
        found, cursor = [], {}
        while True:
            page = await api.get("/v1/sagas", limit=2, **cursor)
            found += [each["saga_id"] for each in page["sagas"]]
            if page["cursor"] is None:
                break
            cursor = {"cursor": page["cursor"]}
        assert sorted(found) == [f"s{number}" for number in range(5)]
        records, after = [], -1
        while True:
            page = await api.get("/v1/sagas/s0/history", after=after, limit=2)
            records += page["records"]
            if page["ended"]:
                break
            after = page["next"]
        assert records == await coordinator.history("s0")


# --- who may do what -------------------------------------------------------------------------------------------------


async def test_each_operation_needs_its_scope() -> None:
    """Without a token 401, with all scopes but its own 403; with its own alone it is let in."""
    async with (
        Coordinator.open("memory://", TOOLS, durability="relaxed") as coordinator,
        serving(coordinator) as server,
    ):
        nobody = await server.api()
        nobody.headers = {}
        for operation in (each for each in operations() if each.scope):
            path = re.sub(r"\{\w+\}", "none", operation.path)
            others = [scope for scope in SCOPES if scope not in (operation.scope, "admin")]
            assert (await nobody(operation.method, path)).status_code == 401
            refused = await (await server.api(*others))(operation.method, path)
            assert (refused.status_code, refused.json()["context"]["scope"]) == (403, operation.scope)
            if operation.path != "/v1/stream":
                assert (await (await server.api(operation.scope))(operation.method, path)).status_code not in (401, 403)


async def test_a_token_ends_with_its_revocation() -> None:
    """A revoked token is refused at its next request, an expired one as well; wrong secrets and other texts never open."""
    async with worked() as (server, _):
        api = await server.api("read")
        assert (await api("GET", "/v1/sagas")).status_code == 200
        (token,) = await server.desk.tokens.list()
        good = api.headers["authorization"]
        for wrong in (
            good[:-1] + ("A" if good[-1] != "A" else "B"),
            good.replace("Bearer", "Basic"),
            "Bearer",
            "Bearer x y",
        ):
            api.headers = {"authorization": wrong}
            assert (await api("GET", "/v1/sagas")).status_code == 401
        api.headers = {"authorization": good}
        await server.desk.tokens.revoke(token.id)
        assert (await api("GET", "/v1/sagas")).status_code == 401
        assert token.hash not in str(token.shown())
        assert good.rpartition("_")[2] not in str(await server.desk.tokens.list())


@pytest.mark.parametrize("busy", [False, True])
@pytest.mark.parametrize("how", ["revoked", "expired"])
async def test_a_stream_ends_with_its_token(monkeypatch: pytest.MonkeyPatch, how: str, *, busy: bool) -> None:
    """Also one that is never silent: what a token opened is closed when it is revoked or has expired."""
    monkeypatch.setattr(streams, "BEAT_S", 1.0 if busy else 0.05)
    monkeypatch.setattr(streams, "_LOOK_S", 0.01)
    async with (
        Coordinator.open("memory://", TOOLS, durability="relaxed") as coordinator,
        serving(coordinator) as server,
        asyncio.timeout(60),
    ):
        token, text = await server.desk.tokens.create("Ada", ["read"], expires_s=3600)
        number = 0
        async for _ in events(Api(server.client, server.document, text), "/v1/stream"):
            if number == 0 and how == "revoked":
                await server.desk.tokens.revoke(token.id)
            elif number == 0:
                monkeypatch.setattr(tokens, "_now_ms", lambda: token.expires_ms)
            number += 1
            if busy:  # each overview is another one
                await coordinator.submit(WAIT, saga_id=f"s{number}", detach=True)
        assert number > (1 if busy else 0)


async def test_tenants_see_their_own_sagas_alone() -> None:
    """A token of a tenant finds, shows and answers nothing of another one, nor of the server's own namespace."""
    blue = Tenant("blue", "blue")
    settings = ServerSettings(port=0, tenants={"blue": blue})
    async with (
        Coordinator.open("memory://shared", TOOLS, durability="relaxed") as own,
        Coordinator.open("memory://shared?namespace=blue", TOOLS, durability="relaxed") as theirs,
        serving(own, settings, {"blue": theirs}) as server,
    ):
        await own.run(ASK, saga_id="ours")
        await theirs.run(ASK, saga_id="blues")
        of_blue, of_red = await server.api(tenant="blue"), await server.api(tenant="red")
        assert [each["saga_id"] for each in (await of_blue.get("/v1/sagas"))["sagas"]] == ["blues"]
        for method, path, body in (
            ("GET", "/v1/sagas/ours", None),
            ("GET", "/v1/sagas/ours/history", None),
            ("GET", "/v1/sagas/ours/stream", None),
            ("POST", "/v1/sagas/ours/cancel", {}),
            ("POST", "/v1/sagas/ours/resolve", {"step_id": 1, "decision": "yes"}),
        ):
            assert (await of_blue(method, path, body)).status_code == 404
        assert [each["saga_id"] for each in (await of_blue.get("/v1/questions"))["questions"]] == ["blues"]
        assert (await of_red("GET", "/v1/sagas")).status_code == 403


async def test_a_tenant_cannot_have_more_than_its_quota() -> None:
    """Of submissions at the same time only so many sagas begin as may be live; what is refused is not journalled."""
    settings = ServerSettings(port=0, quota=Quota(live_sagas=3))
    async with worked(settings=settings) as (server, _):
        api = await server.api()
        bodies = [{"plan": WAIT, "saga_id": f"s{number}"} for number in range(8)]
        found = await asyncio.gather(*(api("POST", "/v1/sagas", body) for body in bodies))
        assert sorted(each.status_code for each in found) == [202] * 3 + [429] * 5
        assert all("retry-after" in each.headers for each in found if each.status_code == 429)
        assert len((await api.get("/v1/sagas"))["sagas"]) == 3
        there = next(each.json()["saga_id"] for each in found if each.status_code == 202)
        assert (await api("POST", "/v1/sagas", {"plan": WAIT, "saga_id": there})).status_code == 202


async def test_steps_for_each_second_are_limited() -> None:
    """A plan that has more steps than are left of the second is refused until they are there again."""
    settings = ServerSettings(port=0, quota=Quota(steps_per_s=0.001))
    async with worked(settings=settings) as (server, _):
        api = await server.api()
        assert (await api("POST", "/v1/sagas", {"plan": BOOK, "saga_id": "s"})).status_code == 202
        assert (await api("POST", "/v1/sagas", {"plan": BOOK})).json()["code"] == "quota-exceeded"
        assert (await api("POST", "/v1/sagas", {"plan": BOOK, "saga_id": "s"})).status_code == 202


# --- jobs ------------------------------------------------------------------------------------------------------------


async def test_a_job_acts_on_many_sagas_and_reports() -> None:
    """What fits the search is answered, what is named is cancelled; what could not be done is listed with its code."""
    async with worked() as (server, coordinator):
        api = await server.api()
        for number in range(4):
            await coordinator.run(ASK, saga_id=f"s{number}", tags=["blue"] if number else [])
        answered = await ended(api, {"action": "resolve", "where": {"asks": True, "tags": ["blue"]}, "decision": "yes"})
        assert (answered["sagas"], answered["worked"], answered["counts"], answered["by"]) == (3, 3, {"done": 3}, "Ada")
        assert (sorted(answered["successes"]), answered["failures"]) == (["s1", "s2", "s3"], [])
        done = [await api.get(f"/v1/sagas/s{number}", wait=60) for number in (1, 2, 3)]
        assert [each["status"] for each in done] == ["COMPLETED"] * 3
        mixed = await ended(api, {"action": "cancel", "sagas": ["s0", "s1", "nowhere"], "note": "over"})
        assert mixed["counts"] == {"done": 1, "cancel-refused": 1, "saga-not-found": 1}
        assert mixed["successes"] == ["s0"]
        assert {each["saga_id"]: each["code"] for each in mixed["failures"]} == {
            "s1": "cancel-refused",
            "nowhere": "saga-not-found",
        }
        assert [each["id"] for each in (await api.get("/v1/jobs"))["jobs"]] == [mixed["id"], answered["id"]]
        assert (await ended(api, {"action": "resume", "sagas": ["s1"]}))["counts"] == {"done": 1}
        for wrong in (
            {"action": "cancel"},
            {"action": "resolve", "sagas": ["s1"]},
            {"action": "cancel", "where": {}, "sagas": ["a"]},
        ):
            await api.post("/v1/jobs", wrong, status=422)
        assert (await api("GET", "/v1/jobs/j0123")).status_code == 404


async def test_another_server_carries_on_a_job_whose_server_died() -> None:
    """A job is durable before it is accepted: a server that starts later finds it where the first one left it."""
    async with Coordinator.open("memory://", TOOLS, durability="relaxed") as coordinator:
        for number in range(3):
            await coordinator.run(ASK, saga_id=f"s{number}")
        dead = Jobs(Desk(coordinator, ServerSettings()))  # it accepts a job, and never comes to carry it out
        job = await dead.create(ANYBODY, {"action": "cancel", "where": {"asks": True}})
        async with serving(coordinator) as server:
            api = await server.api()
            found = await over(api, f"/v1/jobs/{job.id}")
            assert found["counts"] == {"done": 3}


async def test_the_trace_of_a_request_is_that_of_its_saga() -> None:
    """`traceparent` is journalled with the submission; one that is invalid, or of another request, changes nothing."""
    caller = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    async with worked() as (server, coordinator):
        api = await server.api()
        for saga_id, given in (("one", caller), ("two", "00-x"), ("three", "")):
            await api.post("/v1/sagas", {"plan": BOOK, "saga_id": saga_id}, headers={"traceparent": given})
        found = {each: (await coordinator.history(each))[0].get("traceparent", "") for each in ("one", "two", "three")}
    assert found == {"one": caller, "two": "", "three": ""}


async def test_a_token_that_may_not_read_learns_id_and_status_alone() -> None:
    """Whatever it does to a saga, also under a key and again; a preview would show plans, so it needs the scope."""
    async with worked() as (server, coordinator):
        secret = {"goal": "a secret", "steps": [{"step_id": 1, "ask": {"question": "a secret?", "options": ["yes"]}}]}
        await coordinator.submit(secret, saga_id="s", detach=True)
        await coordinator.wait("s")
        submit, resolve = await server.api("submit"), await server.api("resolve")
        add = {"steps": [{"step_id": 2, "tool": "book", "params": {"item": "x"}}]}
        for api, verb, body in (
            (submit, "amend", add),
            (submit, "fork", {"new_id": "f"}),
            (resolve, "resolve", {"step_id": 1, "decision": "yes"}),
            (resolve, "cancel", {}),
            (resolve, "resume", {}),
        ):
            for _ in range(2):
                found = await api("POST", f"/v1/sagas/s/{verb}", body, headers={"Idempotency-Key": f"key-{verb}"})
                assert "secret" not in found.text, verb
                if found.status_code == 202:
                    assert found.json()["status"]
                    assert found.json()["steps"] == []
        again = await submit("POST", "/v1/sagas", {"saga_id": "s", "plan": secret})
        assert (again.status_code, "secret" in again.text) == (202, False)
        for api, verb in ((submit, "fork"), (resolve, "undo")):
            assert (await api("POST", f"/v1/sagas/s/{verb}", {"dry_run": True})).status_code == 403
        both = await server.api("submit", "read")
        assert "secret" in (await both("POST", "/v1/sagas", {"saga_id": "s", "plan": secret})).text
