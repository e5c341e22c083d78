"""Signed webhooks, against a real server, verified by the specification's own package."""

from __future__ import annotations

import base64
import logging

import pytest
from standardwebhooks import Webhook, WebhookVerificationError

from saga_engine import Coordinator, RetryPolicy, ToolError, tool
from saga_engine.core import interpret
from saga_engine.errors import AlertUndelivered, SettingInvalid
from saga_engine.hooks.webhook import WebhookHook, message_id
from saga_engine.testing.faulty_http import Act, MisbehavingServer, cut, done, garbage, held, moved, refused
from tests.hooks.questions import OTHER_SECRET, SECRET, a_question

PATH = "/hooks/t0ken"


async def undelivered(*acts: Act, timeout_s: float = 10.0) -> tuple[AlertUndelivered, int]:
    """What a delivery raises when the server does this, and how many requests were made."""
    async with MisbehavingServer() as server:
        server.script(PATH, *acts)
        with pytest.raises(AlertUndelivered) as raised:
            await WebhookHook(server.url + PATH, SECRET, timeout_s=timeout_s)(a_question())
        return raised.value, len(server.received)


# --- what is sent --------------------------------------------------------------------------------------------------


async def test_a_question_is_signed_as_the_specification_says() -> None:
    """The official package verifies body, id and time; the body has the question whole, without empty fields."""
    async with MisbehavingServer() as server:
        server.script(PATH, done())
        await WebhookHook(f"{server.url}{PATH}?a=b%20c", SECRET, headers={"X-Team": "travel"})(a_question())
    (request,) = server.received

    body = Webhook(SECRET).verify(request.body, dict(request.headers))

    assert body == {
        "type": "saga.question",
        "timestamp": "2027-01-15T08:00:00+00:00",
        "data": {
            "saga_id": "trip-42",
            "question_id": "hotel:f:1",
            "step_id": "hotel",
            "step_name": "book the hotel",
            "tool": "book_hotel",
            "direction": "forward",
            "kind": "in-doubt",
            "options": ["happened", "not-happened", "retry", "accept"],
            "error": {"error_code": "read_timeout", "message": "no answer"},
            "goal": "two nights in Graz",
            "round": 0,
            "asked_ms": 1_800_000_000_000,
        },
    }
    assert (request.method, request.path, request.query) == ("POST", PATH, "a=b%20c")
    assert request.headers["host"] == server.url.removeprefix("http://")
    assert request.headers["content-type"] == "application/json"
    assert request.headers["x-team"] == "travel"


async def test_a_changed_body_or_another_secret_does_not_verify() -> None:
    """The signature is of this body, by this secret."""
    async with MisbehavingServer() as server:
        server.script(PATH, done())
        await WebhookHook(server.url + PATH, SECRET)(a_question())
    (request,) = server.received
    with pytest.raises(WebhookVerificationError):
        Webhook(SECRET).verify(request.body.replace(b"trip-42", b"trip-43"), dict(request.headers))
    with pytest.raises(WebhookVerificationError):
        Webhook(OTHER_SECRET).verify(request.body, dict(request.headers))


async def test_while_a_secret_is_replaced_either_verifies() -> None:
    """With two secrets the request has a signature by each."""
    async with MisbehavingServer() as server:
        server.script(PATH, done())
        await WebhookHook(server.url + PATH, [SECRET, OTHER_SECRET])(a_question())
    (request,) = server.received
    for secret in (SECRET, OTHER_SECRET):
        assert Webhook(secret).verify(request.body, dict(request.headers))["type"] == "saga.question"


async def test_hostile_texts_are_just_data() -> None:
    """Lone surrogates, control characters and other alphabets arrive as they are, and verify."""
    goal = "\ud800 \x00 \r\nX-Injected: 1 旅行 \u202e"
    async with MisbehavingServer() as server:
        server.script(PATH, done())
        await WebhookHook(server.url + PATH, SECRET)(a_question(goal=goal))
    (request,) = server.received
    assert "x-injected" not in request.headers
    assert Webhook(SECRET).verify(request.body, dict(request.headers))["data"]["goal"] == goal


def test_the_id_is_stable_for_a_round_and_new_for_a_reminder() -> None:
    """A receiver that drops ids it has seen drops repeats, and neither reminders nor other questions."""
    assert message_id(a_question()) == message_id(a_question(error=None, asked_ms=5))
    others = [a_question(round=1), a_question(saga_id="trip-4"), a_question(question_id="hotel:f:2")]
    assert len({message_id(each) for each in [a_question(), *others]}) == 4
    assert message_id(a_question()).removeprefix("msg_").isalnum()


async def test_a_notice_says_that_it_asks_nothing() -> None:
    """What has no answers is of another type."""
    async with MisbehavingServer() as server:
        server.script(PATH, done())
        await WebhookHook(server.url + PATH, SECRET)(a_question(kind="deferred", options=(), asked_ms=None))
    body = server.received[0].json
    assert body["type"] == "saga.notice"
    assert "timestamp" not in body
    assert "options" not in body["data"]


# --- what counts as delivered --------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [200, 201, 202, 204])
async def test_every_2xx_is_a_delivery(status: int) -> None:
    """Nothing is raised, and there is one request."""
    async with MisbehavingServer() as server:
        server.script(PATH, Act(status))
        await WebhookHook(server.url + PATH, SECRET)(a_question())
        assert len(server.received) == 1


@pytest.mark.parametrize(
    ("act", "said"),
    [
        (refused(400), "answered 400"),
        (refused(401), "refused the question (401)"),
        (refused(410), "says that it is gone (410)"),
        (refused(429), "answered 429"),
        (refused(500), "answered 500"),
        (cut("before-answer"), "could not be reached (RemoteProtocolError)"),
        (garbage(), "could not be reached (RemoteProtocolError)"),
    ],
    ids=["400", "401", "410", "429", "500", "cut", "garbage"],
)
async def test_anything_else_is_not_delivered(act: Act, said: str) -> None:
    """Each is an error that says what the endpoint did; the hook itself asks once, for the engine tries again."""
    error, requests = await undelivered(act)
    assert said in error.message
    assert requests == 1


async def test_a_redirect_is_not_followed() -> None:
    """A question goes where it was configured to go, and nowhere else."""
    async with MisbehavingServer() as server:
        server.script(PATH, moved("/elsewhere", 307))
        server.script("/elsewhere", done())
        with pytest.raises(AlertUndelivered, match="redirect"):
            await WebhookHook(server.url + PATH, SECRET)(a_question())
        assert [request.path for request in server.received] == [PATH]


@pytest.mark.parametrize("moment", ["before-answer", "in-headers"])
async def test_a_silent_server_is_given_up(moment) -> None:
    """The time limit is for everything: a server that accepts and says nothing, or half, does not hold the engine."""
    error, requests = await undelivered(held(moment), timeout_s=0.2)
    assert "did not answer within 0.2 s" in error.message
    assert requests <= 1  # on a slow machine the limit passes before the request has arrived


async def test_the_body_of_an_answer_is_not_waited_for() -> None:
    """The status alone decides: a body that never ends costs nothing."""
    async with MisbehavingServer() as server:
        server.script(PATH, held("in-body", {"much": "text"}))
        await WebhookHook(server.url + PATH, SECRET)(a_question())


async def test_nobody_there() -> None:
    """A refused connection is an error like the others."""
    async with MisbehavingServer() as server:
        url = server.url
    with pytest.raises(AlertUndelivered, match="could not be reached"):
        await WebhookHook(url + PATH, SECRET)(a_question())


async def test_neither_url_nor_secret_is_told(caplog) -> None:
    """Logs at every level, errors and ``repr`` have the host alone: the rest may open a door."""
    caplog.set_level(logging.DEBUG)
    async with MisbehavingServer() as server:
        server.script(PATH, refused(500))
        hook = WebhookHook(server.url + PATH, SECRET, headers={"Authorization": "Bearer t0ken"})
        with pytest.raises(AlertUndelivered) as raised:
            await hook(a_question())
    told = caplog.text + str(raised.value) + repr(raised.value.to_dict()) + repr(hook)
    assert "127.0.0.1" in told
    assert "t0ken" not in told
    assert SECRET.removeprefix("whsec_") not in told


async def test_the_environment_s_proxy_is_not_used(monkeypatch) -> None:
    """A question goes to the configured endpoint itself, whatever proxy the environment names."""
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    async with MisbehavingServer() as server:
        server.script(PATH, done())
        await WebhookHook(server.url + PATH, SECRET)(a_question())
        assert len(server.received) == 1


async def test_a_path_is_encoded_and_a_fragment_is_not_sent() -> None:
    """Spaces are escaped, escapes stay as they are, and what follows ``#`` stays here."""
    async with MisbehavingServer() as server:
        server.script("/a%20b/~c%2Fd", done())
        await WebhookHook(f"{server.url}/a b/~c%2Fd?x=1 2&y=%41#part", SECRET)(a_question())
    (request,) = server.received
    assert request.query == "x=1%202&y=%41"


# --- settings ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "secret",
    [
        [],
        "",
        "whsec_",
        SECRET.removeprefix("whsec_"),
        "whsec_not base64!",
        "whsec_" + base64.b64encode(b"x" * 23).decode(),
        "whsec_" + base64.b64encode(b"x" * 65).decode(),
    ],
)
def test_a_weak_or_broken_secret_is_refused_unsaid(secret) -> None:
    """24 to 64 bytes of base64 behind the prefix, as the specification asks; the message does not repeat it."""
    with pytest.raises(SettingInvalid) as raised:
        WebhookHook("https://example.com/", secret)
    assert not secret or len(secret) < 10 or secret.removeprefix("whsec_") not in str(raised.value)


@pytest.mark.parametrize("size", [24, 64])
def test_the_bounds_of_a_secret_are_allowed(size: int) -> None:
    """Padded or not."""
    secret = "whsec_" + base64.b64encode(b"x" * size).decode()
    WebhookHook("https://example.com/", [secret, secret.rstrip("=")])


@pytest.mark.parametrize(
    "url",
    [
        "",
        "ftp://example.com/",
        "https://",
        "//example.com",
        "https://u:p@example.com/",
        "https://exämple.com/",
        "https://example.com/\r\nX: 1",
        "https://example.com:99999/",
        "https://[::1/",
    ],
)
def test_a_url_that_is_none_is_refused(url: str) -> None:
    """Only http and https, with a host, without a user."""
    with pytest.raises(SettingInvalid):
        WebhookHook(url, SECRET)


@pytest.mark.parametrize("headers", [{"X Y": "1"}, {"X": "1\r\nY: 2"}, {"Host": "a"}, {"Webhook-Id": "1"}, {"X": "ä"}])
def test_headers_that_break_the_request_are_refused(headers) -> None:
    """No line breaks, and none of those that the hook sets itself."""
    with pytest.raises(SettingInvalid):
        WebhookHook("https://example.com/", SECRET, headers=headers)


# --- with the engine -----------------------------------------------------------------------------------------------


@tool(retry=RetryPolicy(max_attempts=1), undo="unbook")
async def book() -> dict:
    raise ToolError("no rooms", error_code="full")


@tool
async def unbook() -> dict:
    return {}


async def test_the_engine_tries_again_under_the_same_id(monkeypatch) -> None:
    """500, then 503, then 200: three requests, one id, each with a signature that verifies; then the saga rests."""
    monkeypatch.setattr(interpret, "ALERT_RETRY", RetryPolicy(max_attempts=5, base_s=0.001, max_s=0.001))
    plan = {"steps": [{"step_id": 1, "name": "b", "tool": "book", "params": {}}], "on_failure": "pause", "goal": "bed"}
    async with MisbehavingServer() as server:
        server.script(PATH, refused(500), refused(503), done())
        hook = WebhookHook(server.url + PATH, SECRET)
        async with Coordinator.open("memory://", [book, unbook], on_escalation=[hook]) as coordinator:
            outcome = await coordinator.run(plan, saga_id="trip")
            records = await coordinator.history("trip")
    assert outcome.status == "ESCALATED"
    bodies = [Webhook(SECRET).verify(request.body, dict(request.headers)) for request in server.received]
    assert [body["data"]["question_id"] for body in bodies] == ["1:f:1"] * 3
    assert len({request.headers["webhook-id"] for request in server.received}) == 1
    alerts = [record["k"] for record in records if record["k"].startswith("Alert")]
    assert alerts == ["AlertIntended", "AlertFailed"] * 2 + ["AlertIntended", "AlertSent"]
    failed = next(record for record in records if record["k"] == "AlertFailed")
    assert "answered 500" in failed["error"]["message"]
    assert "t0ken" not in failed["error"]["message"]
