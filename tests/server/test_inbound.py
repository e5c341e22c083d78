"""Events with a signature, and callback URLs."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import time
from collections.abc import Mapping
from pathlib import Path

import pytest
from standardwebhooks import Webhook

from saga_engine.cli import run
from saga_engine.errors import SettingInvalid, SignatureInvalid
from saga_engine.ports import Document
from saga_engine.server.settings import Inbound, ServerSettings, server_settings
from saga_engine.server.signatures import Callbacks, at_path, verified_id
from tests.server.harness import WAIT, worked

SECRET = "whsec_" + base64.b64encode(b"0123456789abcdef01234567").decode()
NOW = 1_800_000_000
BODY = b'{"id":"evt_1","type":"paid","data":{"order":[{"no":"17"}]}, "sum": 1.50}'


def standard(body: bytes, secret: str = SECRET, at: int = NOW, event_id: str = "msg_1") -> dict[str, str]:
    from datetime import UTC, datetime

    signature = Webhook(secret).sign(event_id, datetime.fromtimestamp(at, UTC), body.decode())
    return {"webhook-id": event_id, "webhook-timestamp": str(at), "webhook-signature": f"v1,AAAA {signature}"}


def stripe(body: bytes, secret: str = SECRET, at: int = NOW) -> dict[str, str]:
    signature = hmac.new(secret.encode(), f"{at}.".encode() + body, hashlib.sha256).hexdigest()
    return {"stripe-signature": f"t={at},v1=00,v1={signature},v0=ff"}


def github(body: bytes, secret: str = SECRET, at: int = NOW) -> dict[str, str]:
    return {"x-hub-signature-256": "sha256=" + hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()}


SIGNED = {
    "standard": (standard, "msg_1"),
    "stripe": (stripe, "evt_1"),
    "github": (github, "sha256:" + hashlib.sha256(BODY).hexdigest()),
}
OTHER = "whsec_" + base64.b64encode(b"another secret of 24 byt").decode()


@pytest.mark.parametrize("scheme", SIGNED)
def test_only_what_is_signed_now_and_byte_for_byte_is_accepted(scheme: str) -> None:
    """Another byte, another secret, a missing header, and a time that is too far away are refused; old secrets go on."""
    sign, event_id = SIGNED[scheme]

    def verified(headers: Mapping[str, str], body: bytes = BODY, *secrets: str) -> str:
        return verified_id(scheme, secrets or (SECRET,), headers, body, 300, NOW)

    assert verified(sign(BODY)) == event_id
    assert verified(sign(BODY), BODY, OTHER, SECRET) == event_id
    assert verified(sign(BODY, at=NOW - 299)) == event_id
    for headers, body in (
        (sign(BODY), BODY + b" "),
        (sign(BODY), BODY.replace(b"1.50", b"1.5")),
        (sign(BODY, OTHER), BODY),
        ({}, BODY),
        ({name: "" for name in sign(BODY)}, BODY),
        *([] if scheme == "github" else [(sign(BODY, at=NOW - 301), BODY), (sign(BODY, at=NOW + 301), BODY)]),
    ):
        with pytest.raises(SignatureInvalid):
            verified(headers, body)


def test_what_is_not_signed_changes_no_id() -> None:
    """The id under which an event counts once is signed itself, so a replay cannot get another one."""
    headers = standard(BODY) | {"webhook-id": "msg_2"}
    with pytest.raises(SignatureInvalid):
        verified_id("standard", [SECRET], headers, BODY, 300, NOW)
    again = github(BODY) | {"x-github-delivery": "another"}
    assert verified_id("github", [SECRET], again, BODY, 300, NOW) == SIGNED["github"][1]


def test_a_value_is_found_at_its_path() -> None:
    """Names and indexes with dots between them; anything else is nothing."""
    body = json.loads(BODY)
    assert at_path(body, "data.order.0.no") == "17"
    assert [at_path(body, path) for path in ("data.order.1.no", "data.order.no", "id.x", "", "..")] == [None] * 5


async def test_a_signed_event_reaches_its_saga_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The step gets the whole body; a replay changes nothing; what is not signed by the source is refused."""
    monkeypatch.setenv("SHOP", SECRET)
    shop = Inbound("shop", "standard", ("SHOP",), "data.order.0.no", event_field="type")
    settings = ServerSettings(port=0, inbound={"shop": shop})
    async with worked(settings=settings) as (server, _):
        api = await server.api()
        nobody = await server.api()
        nobody.headers = {}
        await api.post("/v1/sagas", {"plan": WAIT, "saga_id": "s"})
        now = int(time.time())
        headers = {"content-type": "application/json", **standard(BODY, at=now)}
        url = "/v1/in/shop"
        first = await api.client.post(url, content=BODY, headers=headers)
        again = await api.client.post(url, content=BODY, headers=headers)
        assert (first.json(), again.json()) == (
            {"event_id": "msg_1", "repeated": False},
            {"event_id": "msg_1", "repeated": True},
        )
        done = await api.get("/v1/sagas/s", wait=60)
        assert (done["status"], done["steps"][0]["output"]) == ("COMPLETED", json.loads(BODY))
        wrong = await api.client.post(url, content=BODY + b" ", headers=headers)
        assert (wrong.status_code, wrong.json()["code"]) == (401, "signature-invalid")
        nameless = b'{"type": "paid"}'
        refused = await api.client.post(url, content=nameless, headers=standard(nameless, at=now))
        assert (refused.status_code, refused.json()["code"]) == (422, "event-refused")
        assert (await nobody("POST", "/v1/in/nobody")).status_code == 404


async def test_a_callback_ends_its_own_wait_and_nothing_else() -> None:
    """Two sagas wait for the same name and key: the URL of the second ends the second; twice, it is refused."""
    async with worked() as (server, coordinator):
        api = await server.api("submit", "read")
        nobody = await server.api()
        nobody.headers = {}
        for saga_id in ("first", "second"):
            await coordinator.submit(WAIT, saga_id=saga_id, detach=True)
            async for record in coordinator.follow(saga_id):
                if record["k"] == "StepWaiting":
                    break
        made = await api.post("/v1/sagas/second/callbacks", {"step_id": 1}, status=201)
        path = made["url"].removeprefix(server.url)
        for wrong in (
            path[:-1] + ("A" if path[-1] != "A" else "B"),
            path[:20],
            path.partition(".")[0],
            "/v1/callbacks/x.y",
        ):
            assert (await nobody("POST", wrong, {"sum": 5})).status_code == 401
        assert (await nobody("GET", path)).status_code == 405
        await nobody.post(path, {"sum": 5})
        done = await api.get("/v1/sagas/second", wait=60)
        assert (done["status"], done["steps"][0]["output"]) == ("COMPLETED", {"sum": 5})
        assert (await nobody("POST", path, {"sum": 6})).json()["code"] == "event-refused"
        assert (await api.get("/v1/sagas/first"))["status"] == "RUNNING"
        assert (await api.post("/v1/sagas/second/callbacks", {"step_id": 1}, status=422))["code"] == "event-refused"


async def test_a_callback_after_the_wait_is_handled_by_on_late() -> None:
    """The URL that was made for the wait works on: its payload begins the saga of the step's on_late."""
    wait = {"event": "paid", "on_late": {"tool": "cancel", "params": {"item": "$output.step_1.item"}}}
    async with worked() as (server, coordinator):
        api = await server.api("submit", "read")
        nobody = await server.api()
        nobody.headers = {}
        await coordinator.submit({"steps": [{"step_id": 1, "wait": wait}]}, saga_id="s", detach=True)
        async for record in coordinator.follow("s"):
            if record["k"] == "StepWaiting":
                break
        made = await api.post("/v1/sagas/s/callbacks", {"step_id": 1}, status=201)
        path = made["url"].removeprefix(server.url)
        await coordinator.cancel("s")
        assert (await api.get("/v1/sagas/s", wait=60))["status"] == "COMPENSATED"
        late = (await nobody.post(path, {"item": "room"}))["late_saga"]
        assert (await api.get(f"/v1/sagas/{late}", wait=60))["status"] == "COMPLETED"
        assert (await nobody.post(path, {"item": "room"}))["late_saga"] == late
        refused = await api.post("/v1/sagas/s/callbacks", {"step_id": 1}, status=422)
        assert "saga event paid s" in refused["hint"]


async def test_each_event_of_a_wait_for_several_has_its_own_callback() -> None:
    """A URL is for one of them; the wait for all ends with the last one, and needs to be told which event is meant."""
    both = {"steps": [{"step_id": 1, "wait": {"all": [{"event": "a"}, {"event": "b"}]}}]}
    async with worked() as (server, coordinator):
        api = await server.api("submit", "read")
        await coordinator.submit(both, saga_id="s", detach=True)
        async for record in coordinator.follow("s"):
            if record["k"] == "StepWaiting":
                break
        for body in ({"step_id": 1}, {"step_id": 1, "entry": 2}):
            assert (await api.post("/v1/sagas/s/callbacks", body, status=422))["code"] == "event-refused"
        for entry in (1, 0):
            made = await api.post("/v1/sagas/s/callbacks", {"step_id": 1, "entry": entry}, status=201)
            await api.post(made["url"].removeprefix(server.url), {"number": entry})
            async for record in coordinator.follow("s"):
                if record["k"] in ("EventArrived", "SagaCompleted"):
                    break
        done = await api.get("/v1/sagas/s", wait=60)
        assert (done["status"], [each["payload"]["number"] for each in done["steps"][0]["output"]]) == (
            "COMPLETED",
            [0, 1],
        )


@pytest.mark.parametrize(
    ("secret", "said"), [(None, "no secret of [server.inbound.shop] is set: SHOP_SECRET"), ("whsec_-", "is no base64")]
)
def test_a_server_that_can_verify_nothing_does_not_start(
    secret: str | None,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A source without a secret, or with one that is none, is found at the start and not by the sender's first event."""
    source = 'scheme = "standard"\nsecret_env = ["SHOP_SECRET"]\nevent = "paid"\nkey_field = "id"\n'
    (tmp_path / "saga.toml").write_text(f"[server.inbound.shop]\n{source}", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SHOP_SECRET", raising=False)
    if secret is not None:
        monkeypatch.setenv("SHOP_SECRET", secret)
    assert run(["serve", "--port", "0", "--store", "memory://", "--auth", "none"]) == 1
    assert said in capsys.readouterr().err


async def test_a_sender_whose_secret_is_gone_is_told_to_try_again(caplog: pytest.LogCaptureFixture) -> None:
    """An application that began without the secret answers 503, so that no event is given up; only the log names it."""
    source = Inbound("shop", "stripe", ("NO_SUCH_SECRET",), "id", "paid")
    async with worked(settings=ServerSettings(port=0, inbound={"shop": source})) as (server, _):
        found = await (await server.api())("POST", "/v1/in/shop", {"id": "1"})
        assert (found.status_code, found.headers["retry-after"]) == (503, "1")
        assert "NO_SUCH_SECRET" not in found.text
        assert "NO_SUCH_SECRET" in caplog.text


def test_a_callback_url_expires() -> None:
    """Its end is signed, so nobody can move it."""
    callbacks = Callbacks(b"k" * 32)
    token = callbacks.made("", "s", "i", "1", int(time.time() * 1000) + 60_000)
    assert callbacks.read(token) == ("", "s", "i", "1", None)
    of_several = callbacks.made("", "s", "i", "1", int(time.time() * 1000) + 60_000, 1)
    assert callbacks.read(of_several) == ("", "s", "i", "1", 1)
    for wrong in (
        callbacks.made("", "s", "i", "1", 1),
        Callbacks(b"x" * 32).made("", "s", "i", "1", 2**53),
        "",
        ".",
        "é.é",
    ):
        with pytest.raises(SignatureInvalid):
            callbacks.read(wrong)


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ({"inbound": {"a": {"scheme": "paypal", "secret_env": ["A"], "key_field": "k", "event": "e"}}}, "standard, stripe"),
        ({"inbound": {"a": {"scheme": "stripe", "key_field": "k", "event": "e"}}}, "secret_env"),
        ({"inbound": {"a": {"scheme": "stripe", "secret_env": ["A"], "event": "e"}}}, "key_field"),
        ({"inbound": {"a": {"scheme": "stripe", "secret_env": ["A"], "key_field": "k"}}}, "event_field"),
        ({"inbound": {"a b": {}}}, "is no name"),
        ({"inbound": {"a": {"scheme": "stripe", "secret_env": ["A"], "key_field": "k", "event": "e", "tenant": "t"}}}, "tenant"),
        ({"tenants": {"t": {"namespace": "a:b"}}}, "namespace"),
        ({"tenants": {"t": {"live": 1}}}, "means nothing"),
        ({"tenants": []}, "must be tables"),
        ({"port": 70000}, "65535"),
        ({"port": 1.5}, "whole number"),
        ({"auth": "maybe"}, "token, or none"),
        ({"auth": "none", "host": "10.0.0.1"}, "does not listen"),
        ({"allowed_hosts": "x"}, "list of texts"),
        ({"public_url": "ftp://x"}, "no address of a site"),
        ({"hots": "x"}, "did you mean host?"),
    ],
)  # fmt: skip
def test_settings_that_are_refused(table: dict[str, object], said: str) -> None:
    """A typing error starts no server."""
    with pytest.raises(SettingInvalid) as refused:
        server_settings(table, "saga.toml")
    assert said in str(refused.value)
    assert server_settings({"auth": "none"}, "saga.toml", port=0).port == 0


async def test_a_callback_of_a_saga_that_is_gone_does_nothing_to_another_with_its_id() -> None:
    """The saga's identity is signed: here the same id in another store, whose servers share the key."""
    async with worked() as (first, one), worked() as (second, other):
        for engine in (one, other):
            await engine.submit(WAIT, saga_id="s", detach=True)
            async for record in engine.follow("s"):
                if record["k"] == "StepWaiting":
                    break
        api, there = await first.api(), await second.api()
        made = await api.post("/v1/sagas/s/callbacks", {"step_id": 1}, status=201)
        key = await one.store.documents().read("server", "callback-key")
        assert key is not None
        assert await other.store.documents().write("server", Document("callback-key", 0, key.body)) is not None
        path = made["url"].removeprefix(first.url)
        refused = await there("POST", path, {"sum": 5})
        assert (refused.status_code, refused.json()["code"]) == (401, "signature-invalid"), refused.text
        assert (await there.get("/v1/sagas/s"))["status"] == "RUNNING"
        await api.post(path, {"sum": 5})
