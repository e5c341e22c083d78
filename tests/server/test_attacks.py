"""What a hostile client sends: refused with a problem, and nothing of it is done."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import ExitStack
from typing import Any

import pytest
import pytest_asyncio

from saga_engine.errors import QuotaExceeded, StoreUnavailable
from saga_engine.listener.limits import Places, Rates
from saga_engine.server import listen, streams
from saga_engine.server.problems import problem_of
from saga_engine.server.settings import ServerSettings
from saga_engine.server.signin import own_path
from tests.server.harness import BOOK, JSON, WAIT, Server, events, worked
from tests.support.children import reaches
from tests.support.journals import until

SETTINGS = ServerSettings(port=0, max_body_bytes=4096, request_timeout_s=0.2, max_streams=2, max_streams_each=1)


@pytest_asyncio.fixture
async def server() -> AsyncIterator[Server]:
    async with worked(settings=SETTINGS) as (found, _):
        yield found


async def raw(server: Server, data: bytes) -> bytes:
    """What the server answers to these bytes until it closes the connection."""
    host, port = server.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(data)
    try:
        return await reader.read()
    except ConnectionResetError:
        return b""
    finally:
        writer.close()


async def nothing_was_begun(server: Server) -> bool:
    return (await (await server.api()).get("/v1/sagas"))["sagas"] == []


BODIES = [
    (b"[" * 3000, {}, 400),
    (b'{"plan": ' + b'{"a":' * 600 + b"1" + b"}" * 600 + b"}", {}, 422),
    (b'{"plan": {"steps": []', {}, 400),
    (b'{"plan": {"steps": [NaN]}}', {}, 400),
    (b"\xff\xfe", {}, 400),
    (b"[]", {}, 422),
    (b"null", {}, 422),
    (b"{}", {}, 422),
    (json.dumps({"plan": BOOK, "by": "root"}).encode(), {}, 422),
    (json.dumps({"plan": BOOK, "saga_id": "../../etc/passwd"}).encode(), {}, 422),
    (json.dumps({"plan": BOOK, "saga_id": "a\r\nSet-Cookie: x=1"}).encode(), {}, 422),
    (json.dumps({"plan": BOOK, "template": "x"}).encode(), {}, 422),
    (json.dumps({"plan": BOOK}).encode(), {"content-type": "text/plain"}, 415),
    (json.dumps({"plan": BOOK}).encode(), {"content-type": "application/x-www-form-urlencoded"}, 415),
    (json.dumps({"plan": BOOK}).encode(), {"content-encoding": "gzip"}, 415),
    (json.dumps({"plan": BOOK}).encode(), {"idempotency-key": "k" * 256}, 400),
    (json.dumps({"plan": BOOK}).encode(), {"idempotency-key": ""}, 400),
    (json.dumps({"plan": BOOK, "tags": ["x" * 5000]}).encode(), {}, 413),
    (b" " * 5000, {}, 413),
]


async def test_bodies_that_are_refused(server: Server) -> None:
    """Deep, broken, oversized, mistyped, with unknown or hostile fields: a problem, quickly, and no saga."""
    api = await server.api()
    for body, headers, status in BODIES:
        found = await server.client.post("/v1/sagas", content=body, headers={**api.headers, **JSON, **headers})
        said = (found.status_code, found.headers["content-type"])
        assert said == (status, "application/problem+json"), (body[:80], found.text)
        api.check("POST", "/v1/sagas", found)
    assert await nothing_was_begun(server)


async def test_a_body_that_does_not_fit_is_told_what_would(server: Server) -> None:
    """The problem lists the fields of the object that is wrong, also within the body, and those that it needs."""
    api = await server.api()
    for path, body, hint in (
        ("/v1/go", {"note": "x"}, "its fields: tool, saga_id"),
        ("/v1/events", {"name": "paid"}, "its fields: name, key, payload, event_id; it needs name, key"),
        (
            "/v1/jobs",
            {"action": "cancel", "where": {"id": "x"}},
            "its fields: status, name, tags, tool, asks, since_ms",
        ),
        ("/v1/go", {"tool": ""}, None),
    ):
        found = await server.client.post(path, json=body, headers=api.headers)
        assert (found.status_code, found.json().get("hint")) == (422, hint), found.text


async def test_a_body_without_a_length_is_bounded_as_well(server: Server) -> None:
    """Chunks are counted as they come."""
    api = await server.api()

    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(100):
            yield b" " * 1000

    found = await server.client.post("/v1/sagas", content=chunks(), headers={**api.headers, **JSON})
    assert found.status_code == 413


async def test_a_slow_request_does_not_last(monkeypatch: pytest.MonkeyPatch) -> None:
    """A body that does not arrive is answered with 408; a head that never ends is cut off."""
    monkeypatch.setattr(listen, "_GRACE_S", 0.0)
    async with worked(settings=SETTINGS) as (server, _):
        assert await raw(server, b"GET /v1/sagas HTTP/1.1\r\nHost: loc") == b""
    monkeypatch.undo()
    async with worked(settings=SETTINGS) as (server, _):
        api = await server.api()
        head = f"POST /v1/sagas HTTP/1.1\r\nHost: localhost\r\nAuthorization: {api.headers['authorization']}\r\n"
        slow = (head + "Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{").encode()
        assert (await raw(server, slow)).startswith(b"HTTP/1.1 408")
        assert await nothing_was_begun(server)


HEADS = [
    ("GET /v1/sagas HTTP/1.1\r\nHost: evil.example\r\n", 403),
    ("GET /v1/sagas HTTP/1.1\r\nHost: localhost.evil.example\r\n", 403),
    ("GET /v1/sagas HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n", 400),
    ("GET /v1/sagas HTTP/1.1\r\n", 400),
    ("GET /v1/sagas HTTP/1.1\r\nHost: localhost:evil\r\n", 403),
    ("GET /v1/sagas HTTP/1.1\r\nHost: localhost:99999\r\n", 403),
    ("GET /v1/sagas HTTP/1.1\r\nHost: localhost:80:80\r\n", 403),
    ("POST /v1/sagas HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n", 400),
    ("POST /v1/sagas HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nContent-Length: 2\r\n", 400),
    ("GET /v1/sagas HTTP/1.1\r\nHost: localhost\r\nX: a\x00b\r\n", 400),
    ("GET /v1/%2e%2e/%2e%2e/etc/passwd HTTP/1.1\r\nHost: localhost\r\n", 404),
    ("GET /v1/../../etc/passwd HTTP/1.1\r\nHost: localhost\r\n", 404),
    ("GET /assets/..%2f..%2fetc/passwd HTTP/1.1\r\nHost: localhost\r\n", 404),
    ("GET /v1/sagas/..%2F..%2Fx HTTP/1.1\r\nHost: localhost\r\n", 404),
    ("GET /v1/sagas/%0d%0aSet-Cookie:x HTTP/1.1\r\nHost: localhost\r\n", 404),
    ("TRACE /v1/sagas HTTP/1.1\r\nHost: localhost\r\n", 405),
    ("PUT /v1/sagas HTTP/1.1\r\nHost: localhost\r\n", 405),
    ("GET /v1/sagas?limit=x HTTP/1.1\r\nHost: localhost\r\n", 400),
    ("GET /v1/sagas?limit=1&limit=2 HTTP/1.1\r\nHost: localhost\r\n", 400),
    ("GET /v1/sagas?by=x HTTP/1.1\r\nHost: localhost\r\n", 400),
    ("GET /v1/sagas?cursor=x HTTP/1.1\r\nHost: localhost\r\n", 400),
]


async def test_heads_that_are_refused(server: Server) -> None:
    """Foreign hosts, doubled headers, paths that lead elsewhere, wrong methods and queries."""
    api = await server.api()
    for head, status in HEADS:
        data = f"{head}Authorization: {api.headers['authorization']}\r\nConnection: close\r\n\r\n".encode()
        found = await raw(server, data)
        assert found.startswith(f"HTTP/1.1 {status}".encode()), (head, found)
        assert b"set-cookie" not in found.lower().partition(b"\r\n\r\n")[0]
        assert b"root:" not in found


PAGES = [
    ({"origin": "https://evil.example"}, 403),
    ({"origin": "null"}, 403),
    ({"sec-fetch-site": "cross-site"}, 403),
    ({"sec-fetch-site": "same-site"}, 403),
    ({}, 403),
    ({"origin": "OWN"}, 200),
    ({"sec-fetch-site": "same-origin"}, 200),
]


async def test_a_page_of_another_site_does_nothing(server: Server) -> None:
    """With the cookie that a browser adds by itself, only a page of the server acts; the cookie is kept from scripts."""
    api = await server.api()
    token = api.headers["authorization"].removeprefix("Bearer ")
    signed = await server.client.post("/ui/sign-in", data={"token": token, "next": "//evil.example"})
    assert (signed.status_code, signed.headers["location"]) == (303, "/")
    cookie = signed.headers["set-cookie"]
    assert all(part in cookie for part in ("HttpOnly", "SameSite=strict", "Path=/"))
    server.client.cookies.clear()
    for headers, status in PAGES:
        assert await nothing_was_begun(server)
        sent = {**JSON, "cookie": cookie.partition(";")[0]}
        sent |= {name: server.url if value == "OWN" else value for name, value in headers.items()}
        found = await server.client.post("/v1/check", content=json.dumps({"plan": BOOK}), headers=sent)
        assert found.status_code == status, (headers, found.text)


async def test_a_cookie_is_no_token_and_ends_with_the_sign_out(server: Server) -> None:
    """It is a value of the browser's own: whoever kept a copy is signed out as well, and the token goes on."""
    api = await server.api()
    token = api.headers["authorization"].removeprefix("Bearer ")
    signed = await server.client.post("/ui/sign-in", data={"token": token})
    cookie = signed.headers["set-cookie"].partition(";")[0]
    assert token not in signed.headers["set-cookie"]
    server.client.cookies.clear()

    async def opens(value: str) -> bool:
        return (await server.client.get("/v1/stops", headers={"cookie": value})).status_code == 200

    assert await opens(cookie)
    assert not await opens(f"saga_token={token}")
    await server.client.post("/ui/sign-out", headers={"cookie": cookie, "origin": server.url})
    assert not await opens(cookie)
    again = await server.client.post("/ui/sign-in", data={"token": token})
    server.client.cookies.clear()
    await server.desk.tokens.revoke(token.split("_")[1])
    assert not await opens(again.headers["set-cookie"].partition(";")[0])


async def test_a_form_key_of_other_letters_is_refused(server: Server) -> None:
    """As any wrong one."""
    token = (await server.api()).headers["authorization"].removeprefix("Bearer ")
    await server.client.post("/ui/sign-in", data={"token": token})
    await server.client.get("/", headers={"accept": "text/html"})
    sent = {"form_key": "schlüssel", "scope": "all"}
    found = await server.client.post("/ui/stop", data=sent, headers={"origin": server.url})
    server.client.cookies.clear()
    assert found.status_code == 403, found.text


TWICE = [
    ("POST", "/v1/check", '{"plan": {"steps": []}, "plan": {"steps": []}}'),
    ("POST", "/v1/events", '{"name": "paid", "key": "1", "payload": {"a": 1, "a": 2}}'),
]


@pytest.mark.parametrize(("method", "path", "text"), TWICE)
async def test_a_member_that_stands_twice_is_refused(server: Server, method: str, path: str, text: str) -> None:
    """Two readers could understand it differently; at any depth, and in a body of any size."""
    api = await server.api()
    for body in (text, text[:-1] + " " * 3000 + "}"):
        found = await server.client.request(method, path, content=body, headers={**api.headers, **JSON})
        assert (found.status_code, "occurs twice" in found.text) == (400, True)


@pytest.mark.parametrize("year", ["0001", "9999"])
async def test_times_of_no_calendar_are_refused(server: Server, year: str) -> None:
    """A backfill of the year 1 or 9999 is a mistake of the caller, and no defect."""
    api = await server.api()
    await api("PUT", "/v1/templates/book", {"plan": BOOK})
    await api("PUT", "/v1/schedules/tick", {"template": "book", "cron": "0 * * * *"})
    span = {"since": f"{year}-01-01T00:00:00Z", "until": f"{year}-12-31T23:59:59Z"}
    found = await api("POST", "/v1/schedules/tick/backfill", span)
    assert (found.status_code, found.json()["code"]) == (422, "setting-invalid")


async def test_tokens_that_nobody_has_cost_the_store_little(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """A wrong secret of a known id costs no read, and made-up ids a bounded number; known tokens open meanwhile."""
    api = await server.api()
    await api.get("/v1/stops")
    tokens, reads = server.desk.tokens, 0
    real = tokens._documents.read

    async def read(*args: Any) -> Any:
        nonlocal reads
        reads += 1
        return await real(*args)

    monkeypatch.setattr(tokens._documents, "read", read)
    right = api.headers["authorization"].removeprefix("Bearer ")
    wrong = right[:-1] + ("A" if right[-1] != "A" else "B")
    for _ in range(100):
        assert await tokens.identity(wrong) is None
    assert reads == 0
    monkeypatch.setattr(tokens, "_unknown", Rates(1e-9, 5))
    for number in range(5):
        assert await tokens.identity(f"saga_t{number:011x}_{'x' * 43}") is None
    with pytest.raises(QuotaExceeded):
        await tokens.identity(f"saga_t{99:011x}_{'x' * 43}")
    assert reads == 5
    assert await tokens.identity(right) is not None


async def test_behind_tls_no_cookie_goes_over_plain_http() -> None:
    """A proxy ends TLS: the form's origin or the public address says so, and cookies are for https alone."""
    for settings, origin in (
        (ServerSettings(port=0, allowed_hosts=("saga.example.com",)), "https://saga.example.com"),
        (ServerSettings(port=0, public_url="https://saga.example.com"), ""),
    ):
        async with worked(settings=settings) as (server, _):
            token = (await server.api()).headers["authorization"].removeprefix("Bearer ")
            headers = {"host": "saga.example.com"} | ({"origin": origin} if origin else {})
            signed = await server.client.post("/ui/sign-in", data={"token": token}, headers=headers)
            assert (signed.status_code, "Secure" in signed.headers["set-cookie"]) == (303, True)
            if not origin:
                page = await server.client.get("/ui/sign-in", headers=headers)
                assert "Secure" in page.headers["set-cookie"]


async def test_no_caller_is_told_where_the_store_is(server: Server) -> None:
    """Neither who asks for a saga that is not there, nor a stranger while the store is away."""
    found = await (await server.api())("GET", "/v1/sagas/none")
    assert (found.status_code, found.json()["detail"]) == (404, "no saga none in the store")
    for url in (
        "redis://127.0.0.1:1/0",
        "rediss://ada:***@10.0.0.1:6379/0?namespace=blue",
        "redis+sentinel://10.0.0.1:1,10.0.0.2:1/main",
        "unix:///run/store.sock",
        "embedded:///srv/store",
    ):
        error = StoreUnavailable(f"the store at {url} could not be reached for 10 s: TimeoutError", url=url)
        told = problem_of(error)
        assert told["detail"] == "the store could not be reached for 10 s: TimeoutError"
        assert "context" not in told


async def test_a_wrong_token_signs_nobody_in(server: Server) -> None:
    """The form answers with its own page, and sets no cookie."""
    found = await server.client.post("/ui/sign-in", data={"token": "saga_x", "next": "/"})
    assert (found.headers["location"], "set-cookie" in found.headers) == ("/ui/sign-in?wrong=1", False)


@pytest.mark.parametrize(
    "target", ["//evil.example", "/\\evil.example", "https://evil.example", "", "/a\r\nb", "/\\", "x"]
)
def test_a_sign_in_leads_to_this_server_only(target: str) -> None:
    """Whatever the link says, a browser stays here."""
    assert own_path(target) == "/"
    assert own_path("/sagas?x=1") == "/sagas?x=1"


async def test_streams_are_counted(server: Server) -> None:
    """One more than a token may have open is refused; the place of a stream that has ended is free again."""
    api = await server.api()
    first = events(api, "/v1/stream")
    await anext(first)
    refused = await api("GET", "/v1/stream")
    assert (refused.status_code, refused.json()["code"]) == (429, "quota-exceeded")
    await first.aclose()
    while True:
        async with api.client.stream("GET", "/v1/stream", headers=api.headers) as answer:
            if answer.status_code == 200:
                break


async def test_a_stream_that_nobody_reads_ends_with_its_token(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that does not read is told nothing: its connection is cut off, and its place is free."""
    monkeypatch.setattr(streams, "BEAT_S", 0.05)
    monkeypatch.setattr(streams, "_LOOK_S", 0.01)
    settings = ServerSettings(port=0, write_timeout_s=3600)
    plan = {"steps": [{"step_id": n, "tool": "book", "params": {"item": "x" * 25_000}} for n in range(60)]}
    async with worked(settings=settings) as (server, coordinator):
        await coordinator.run(plan, saga_id="large")
        token, text = await server.desk.tokens.create("Ada", ["read"])
        with socket.socket() as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.connect(("127.0.0.1", int(server.url.rpartition(":")[2])))
            head = f"GET /v1/sagas/large/stream HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {text}\r\n\r\n"
            client.sendall(head.encode())
            connections = server.listener.server_state.connections
            await until(lambda: any(each.flow.write_paused for each in connections))
            await server.desk.tokens.revoke(token.id)
            await until(lambda: not server.desk.streams._open)


async def test_a_caller_who_asks_too_often_waits() -> None:
    """A token has its own rate, and so have those without one."""
    settings = ServerSettings(port=0, requests_per_s=0.1, burst=3)
    async with worked(settings=settings) as (server, _):
        first, second = await server.api(), await server.api()
        assert [(await first("GET", "/v1/stops")).status_code for _ in range(4)] == [200, 200, 200, 429]
        assert (await second("GET", "/v1/stops")).status_code == 200


def test_buckets_and_places() -> None:
    """What costs more than a burst empties the bucket; the longest silent caller is forgotten; places are given back."""
    rates = Rates(1e-9, 2)
    assert [rates.wait_s("a") > 0 for _ in range(3)] == [False, False, True]
    assert rates.wait_s("b", 100) == 0
    assert rates.wait_s("b", 0.001) > 0
    places = Places(1, 1, "streams are open", "close one")
    with places.taken("a"), pytest.raises(QuotaExceeded), places.taken("b"):
        pass
    with places.taken("b"):
        pass


def test_a_tenth_of_the_places_is_kept_for_operators() -> None:
    """Whatever others hold open; and an operator's own are counted like theirs."""
    places = Places(10, 10, "requests wait", "ask without `wait`")
    with ExitStack() as stack:
        for _ in range(9):
            stack.enter_context(places.taken("a"))
        with pytest.raises(QuotaExceeded):
            stack.enter_context(places.taken("b"))
        stack.enter_context(places.taken("b", operator=True))
        with pytest.raises(QuotaExceeded):
            stack.enter_context(places.taken("c", operator=True))


WAITING = [
    ("POST", "/v1/sagas", {"plan": WAIT, "saga_id": "other"}),
    ("GET", "/v1/sagas/held", None),
    ("POST", "/v1/sagas/held/cancel", {}),
]


@pytest.mark.parametrize(("method", "path", "body"), WAITING, ids=["submit", "show", "cancel"])
async def test_requests_that_wait_are_counted(method: str, path: str, body: Any) -> None:
    """Whatever they wait for: one too many of a token is refused before it acts."""
    async with worked(settings=ServerSettings(port=0, max_waits_each=0)) as (server, coordinator):
        api = await server.api()
        await api.post("/v1/sagas", {"plan": WAIT, "saga_id": "held"})
        await reaches(coordinator, "held", "RUNNING", waits=True)
        refused = await api(method, path, body, wait=0.01)
        assert (refused.status_code, refused.json()["code"]) == (429, "quota-exceeded")
        assert (await api.get("/v1/sagas/held"))["status"] == "RUNNING"
        assert [each.saga_id for each in (await coordinator.search()).sagas] == ["held"]


async def test_the_place_of_a_request_that_waits_is_given_back() -> None:
    """Others have theirs beside it."""
    async with worked(settings=ServerSettings(port=0, max_waits_each=1)) as (server, _):
        api, other = await server.api(), await server.api(name="Bo")
        await api.post("/v1/sagas", {"plan": WAIT, "saga_id": "held"})
        waiting = asyncio.create_task(api.get("/v1/sagas/held", wait=60))
        await until(lambda: server.desk.waits._open)
        assert (await api("GET", "/v1/sagas/held", wait=1)).status_code == 429
        assert (await other("GET", "/v1/sagas/held", wait=0.01)).status_code == 200
        await other.post("/v1/sagas/held/cancel", {})
        assert (await waiting)["status"] == "COMPENSATED"
        assert (await api("GET", "/v1/sagas/held", wait=1)).status_code == 200


async def test_no_page_runs_foreign_code_or_stands_in_a_frame(server: Server) -> None:
    """Each answer, also one that refuses, has the headers that say so."""
    for path in ("/healthz", "/v1/openapi.json", "/v1/sagas", "/nowhere"):
        headers = (await server.client.get(path)).headers
        assert "default-src 'none'" in headers["content-security-policy"]
        assert (headers["x-frame-options"], headers["x-content-type-options"]) == ("DENY", "nosniff")
        assert "server" not in headers
