"""What came of a call, against a real server that misbehaves."""

from __future__ import annotations

import asyncio
import gzip
import json
import subprocess
import sys
from pathlib import Path

import pytest

from saga_engine.core.effects import Done, NotDone, Unknown
from saga_engine.policy import hosts
from saga_engine.testing.faulty_http import (
    Act,
    MisbehavingServer,
    bad_chunks,
    cut,
    done,
    failed,
    garbage,
    gzip_bomb,
    held,
    huge,
    moved,
    refused,
    throttled,
    typed,
)
from tests.http.declared import after, declared, order_tool, outcome
from tests.tools.calls import a_call

ROOT = Path(__file__).parents[2]
KEYED = 'key = { header = "Idempotency-Key" }'
#: Small, and only ever waited for by a call that is meant to give up.
SHORT = "read_timeout_s = 0.05"


# --- done ----------------------------------------------------------------------------------------------------------


async def test_a_good_answer_is_the_output() -> None:
    """A 2xx with JSON is done, and its body the output."""
    assert await after(done({"order": "A1"})) == (Done({"order": "A1"}), 1)


async def test_the_output_is_found_by_its_path() -> None:
    """``output`` names the part of the answer that counts."""
    result, _ = await after(done({"data": {"orders": [{"id": 7}]}}), 'output = "$.data.orders[0]"')
    assert result == Done({"id": 7})


async def test_an_answer_without_its_output_leaves_a_write_in_doubt() -> None:
    """The effect happened, and what it made cannot be read: neither done nor not done."""
    result, effects = await after(done({"other": 1}), 'output = "$.data"')
    assert isinstance(result, Unknown)
    assert effects == 1


@pytest.mark.parametrize("more", ["", 'answer = "none"'])
async def test_an_empty_answer_is_enough_where_no_output_is_wanted(more: str) -> None:
    """A 204 says all there is to say."""
    result, _ = await after(Act(204), more)
    assert result == Done({})


@pytest.mark.parametrize("more", ['output = "$.id"', 'output_schema = { type = "object" }'])
async def test_an_empty_answer_is_not_enough_where_an_output_is_wanted(more: str) -> None:
    """Later steps bind to the output, so a done call without it is in doubt."""
    result, _ = await after(Act(204), more)
    assert isinstance(result, Unknown)


async def test_an_answer_that_says_no_is_no() -> None:
    """A 200 with ``success: false`` is the endpoint's word that it did nothing, wherever the output would stand."""
    said = refused(200, {"success": False, "error_code": "full", "message": "no rooms"})
    result, _ = await after(said, 'output = "$.data"')
    assert isinstance(result, NotDone)
    assert result.error.error_code == "full"


async def test_gzip_is_read() -> None:
    """A body may come compressed."""
    act = Act(200, gzip.compress(b'{"a": 1}'), {"Content-Type": "application/json", "Content-Encoding": "gzip"})
    assert (await after(act))[0] == Done({"a": 1})


async def test_text_where_text_is_declared() -> None:
    """``answer = "text"`` takes what is text."""
    assert (await after(typed("text/plain; charset=utf-8", "é".encode()), 'answer = "text"'))[0] == Done({"text": "é"})
    assert isinstance((await after(typed("application/pdf", b"x"), 'answer = "text"'))[0], Unknown)


# --- answers that cannot be read -----------------------------------------------------------------------------------

UNREADABLE = {
    "cut in the body": cut("in-body", {"a": "b" * 100}),
    "cut in the headers": cut("in-headers"),
    "cut before the answer": cut("before-answer"),
    "garbage": garbage(),
    "bad chunks": bad_chunks(),
    "a length that is too long": Act(200, b"{}", {"Content-Type": "application/json"}, length=100),
    "huge": huge(200_000),
    "a bomb": gzip_bomb(5_000_000),
    "broken gzip": Act(200, b"no gzip", {"Content-Type": "application/json", "Content-Encoding": "gzip"}),
    "an unknown encoding": Act(200, b"\x00", {"Content-Type": "application/json", "Content-Encoding": "zzz"}),
    "gzip that breaks off": Act(
        200, gzip.compress(b'{"a": 1}')[:-8], {"Content-Type": "application/json", "Content-Encoding": "gzip"}
    ),
    "gzip and something more": Act(
        200, gzip.compress(b'{"a": 1}') + b"x", {"Content-Type": "application/json", "Content-Encoding": "gzip"}
    ),
    "gzip that goes on and holds nothing": Act(
        200,
        gzip.compress(b"")[:10] + b"\x00\x00\x00\xff\xff" * 100_000,
        {"Content-Type": "application/json", "Content-Encoding": "gzip"},
    ),
    "another content type": typed("text/html", b"<p>Please log in</p>"),
    "no content type": Act(200, b"{}"),
    "a name twice": typed("application/json", b'{"order": "A1", "order": "A2"}'),
    "NaN": typed("application/json", b'{"a": NaN}'),
    "an infinite number": typed("application/json", b'{"a": 1e999}'),
    "a huge number": typed("application/json", b'{"a": ' + b"9" * 50_000 + b"}"),
    "too deep": typed("application/json", b"[" * 50_000 + b"]" * 50_000),
    "not UTF-8": typed("application/json", b'{"a": "\xff"}'),
    "a lone surrogate": typed("application/json", b'{"a": "\\ud800"}'),
    "cut short": typed("application/json", b'{"a": '),
}


@pytest.mark.parametrize("act", UNREADABLE.values(), ids=UNREADABLE)
async def test_a_write_whose_answer_cannot_be_read_is_in_doubt(act: Act) -> None:
    """The effect happened; whoever says 'not done' would have it done twice, whoever says 'done' has no output."""
    result, effects = await after(act, "max_response_bytes = 100_000")
    assert isinstance(result, Unknown), result
    assert effects == 1


@pytest.mark.parametrize("name", ["huge", "a bomb", "gzip that goes on and holds nothing"])
async def test_what_is_too_long_is_not_read_to_its_end(name: str) -> None:
    """Both lengths count: as sent and as decoded."""
    result, _ = await after(UNREADABLE[name], "max_response_bytes = 100_000")
    assert isinstance(result, Unknown)
    assert result.error.error_code == "answer_too_large"


@pytest.mark.parametrize("act", UNREADABLE.values(), ids=UNREADABLE)
async def test_a_read_whose_answer_cannot_be_read_is_not_done(act: Act) -> None:
    """A read changes nothing: nobody has to be asked about it."""
    result, _ = await after(act, "max_response_bytes = 100_000", method="GET")
    assert isinstance(result, NotDone), result
    assert not result.definite


async def test_any_content_type_where_that_is_declared() -> None:
    """Some endpoints send JSON under another name."""
    act = typed("text/html", b'{"a": 1}')
    assert (await after(act, "accept_any_content_type = true"))[0] == Done({"a": 1})


@pytest.mark.parametrize("when", ["before-effect", "before-answer", "in-headers", "in-body"])
async def test_silence_leaves_a_write_in_doubt(when: str) -> None:
    """A server that stops to speak, at whatever moment, is given up, and the write is in doubt."""
    async with MisbehavingServer() as server:
        server.script("/orders", held(when, {"a": "b" * 100}))  # type: ignore[arg-type]
        result = await outcome(order_tool(server, SHORT))
        assert isinstance(result, Unknown)
        assert result.error.error_code == "read_timeout"
        server.release()


async def test_a_tool_s_time_out_is_in_doubt() -> None:
    """``timeout_s`` bounds the whole, whatever the phases are allowed."""
    async with MisbehavingServer() as server:
        server.script("/orders", held("before-answer"))
        result = await outcome(order_tool(server), timeout_s=0.05)
        assert isinstance(result, Unknown)
        assert result.error.error_code == "timeout"


async def test_a_server_that_goes_before_the_effect_leaves_a_write_in_doubt() -> None:
    """From here it looks the same as one that goes after it."""
    result, effects = await after(cut("before-effect"))
    assert isinstance(result, Unknown)
    assert effects == 0


# --- what never left -----------------------------------------------------------------------------------------------


async def test_a_refused_connection_is_not_done() -> None:
    """Nothing was sent, so it may be tried again; about earlier attempts that says nothing."""
    async with MisbehavingServer() as server:
        text = order_tool(server)
    result = await outcome(text)
    assert isinstance(result, NotDone)
    assert (result.retryable, result.definite, result.error.error_code) == (True, False, "connect_error")


async def test_a_plain_server_is_no_tls_server() -> None:
    """A handshake that fails comes before the request: not done."""
    async with MisbehavingServer() as server:
        result = await outcome(order_tool(server).replace("http://", "https://"))
    assert isinstance(result, NotDone)
    assert (result.retryable, result.definite) == (True, False)
    assert server.received == []


async def test_an_address_that_is_not_public_is_refused() -> None:
    """Without leave nothing is called that is not public, and nothing is sent there."""
    async with MisbehavingServer() as server:
        registry = declared(order_tool(server), allow_private=())
        result = await registry.call("order", {"item": "chair"}, a_call())
        assert isinstance(result, NotDone)
        assert (result.retryable, result.error.error_code) == (False, "host_refused")
        assert server.connections == 0
        registry = declared(order_tool(server, "allow_private = true"), allow_private=())
        server.script("/orders", done())
        assert await registry.call("order", {"item": "chair"}, a_call()) == Done({})


async def test_a_name_that_leads_to_the_loopback_is_refused() -> None:
    """Addresses are checked, not names."""
    async with MisbehavingServer() as server:
        text = order_tool(server).replace("127.0.0.1", "localhost")
        result = await declared(text, allow_private=()).call("order", {"item": "chair"}, a_call())
        assert isinstance(result, NotDone)
        assert result.error.error_code == "host_refused"
        assert server.connections == 0


async def test_the_environment_has_no_say(monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy of the environment is not used."""
    async with MisbehavingServer() as server, MisbehavingServer() as proxy:
        server.script("/orders", done())
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
            monkeypatch.setenv(name, proxy.url)
        assert await outcome(order_tool(server)) == Done({})
        assert proxy.connections == 0


# --- statuses ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [400, 401, 402, 403, 404, 405, 409, 410, 412, 413, 415, 422, 451])
async def test_a_client_error_is_not_done_and_not_worth_a_retry(status: int) -> None:
    """The endpoint says that it did not do it, and will not."""
    result, _ = await after(refused(status, {"error": {"message": "no such flight"}}))
    assert isinstance(result, NotDone)
    assert (result.retryable, result.definite) == (False, False)
    assert result.error.error_code == f"http_{status}"
    assert result.error.message == f"127.0.0.1 answered {status}: no such flight"


@pytest.mark.parametrize("status", [425, 429, 503])
async def test_not_now_is_not_done_and_worth_a_retry(status: int) -> None:
    """The endpoint was too busy to do it."""
    for more in ('key = { header = "Idempotency-Key" }', f"not_done = [{status}]"):
        result, _ = await after(throttled("7", status), more)
        assert isinstance(result, NotDone)
        assert (result.retryable, result.retry_after_s, result.once) == (True, 7.0, False)


@pytest.mark.parametrize("status", [425, 429, 503])
async def test_without_a_key_not_now_is_not_repeated(status: int) -> None:
    """A second request could be a second effect: a 503 leaves it open, and the others are believed only once."""
    result, _ = await after(throttled("7", status))
    if status == 503:
        assert isinstance(result, Unknown)
    else:
        assert isinstance(result, NotDone)
        assert (result.retryable, result.once) == (True, True)


async def test_a_date_to_come_back_at_is_measured_by_the_server_s_own_clock() -> None:
    """The two machines' clocks need not agree."""
    act = throttled("Thu, 01 Jan 2026 00:01:30 GMT")  # the server dates its answers to the beginning of that day
    result, _ = await after(act)
    assert isinstance(result, NotDone)
    assert result.retry_after_s == 90.0


@pytest.mark.parametrize("text", ["soon", "-5", "1e9", "9" * 30, "Thu, 99 Foo 2026"])
async def test_a_wait_that_makes_no_sense_is_none(text: str) -> None:
    """The tool's own backoff stands in."""
    result, _ = await after(throttled(text))
    assert isinstance(result, NotDone)
    assert result.retry_after_s is None


@pytest.mark.parametrize("status", [301, 302, 303, 304, 408, 499, 500, 502, 504, 520])
async def test_a_server_that_failed_at_work_leaves_a_write_in_doubt(status: int) -> None:
    """A 500 may come after the effect; a 303 is how web applications answer a form that they have processed."""
    result, effects = await after(failed(status))
    assert isinstance(result, Unknown)
    assert result.error.error_code == f"http_{status}"
    assert effects == 1


@pytest.mark.parametrize(("status", "retryable"), [(500, False), (502, True), (504, True), (408, True), (302, False)])
async def test_a_server_that_failed_at_a_read_did_not_do_it(status: int, retryable: bool) -> None:
    """A read is not done, and again later where that may help."""
    result, _ = await after(failed(status), method="GET")
    assert isinstance(result, NotDone)
    assert result.retryable is retryable


@pytest.mark.parametrize("status", [307, 308])
async def test_a_write_that_is_sent_elsewhere_was_not_done_here(status: int) -> None:
    """These two redirects mean that the same request is to be sent to another place; it never is."""
    async with MisbehavingServer() as server:
        server.script("/orders", moved(f"{server.url}/elsewhere", status))
        result = await outcome(order_tool(server))
        assert isinstance(result, NotDone)
        assert result.retryable is False
        assert len(server.received) == 1


async def test_statuses_are_as_declared() -> None:
    """Whoever knows the endpoint better says so."""
    more = "done = [200, 409]\nnot_done = [500]\nunknown = [404]\nretryable = [500]"
    assert (await after(done({"a": 1}, status=409), more))[0] == Done({"a": 1})
    result, _ = await after(failed(500), more)
    assert isinstance(result, NotDone)
    assert result.retryable is True
    assert isinstance((await after(refused(404), more))[0], Unknown)
    assert isinstance((await after(done(status=201), more))[0], Unknown)


@pytest.mark.parametrize(
    ("status", "definite"),
    [(400, True), (402, True), (422, True), (401, False), (403, False), (404, False), (409, False), (410, False)],
)
async def test_only_the_word_of_whoever_knows_the_key_covers_earlier_attempts(status: int, definite: bool) -> None:
    """An expired token says nothing about the request before it; a refusal by the endpoint that looked up the key does."""
    result, _ = await after(refused(status), KEYED)
    assert isinstance(result, NotDone)
    assert result.definite is definite


async def test_no_word_covers_earlier_attempts_without_a_key() -> None:
    """'Already taken' may mean: by the attempt before."""
    result, _ = await after(refused(422))
    assert isinstance(result, NotDone)
    assert not result.definite


# --- refusals' texts -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "body",
    [
        {"detail": "sold out", "title": "Conflict"},
        {"message": "sold out"},
        {"error": "sold out"},
        {"error": {"message": "sold out"}},
        {"errors": [{"detail": "sold out"}]},
        {"detail": [{"msg": "sold out", "loc": ["body"]}]},
        {"error_description": "sold out", "error": "invalid"},
    ],
)
async def test_a_refusal_s_reason_is_found(body: object) -> None:
    """In the usual places."""
    result, _ = await after(refused(422, body))
    assert isinstance(result, NotDone)
    assert result.error.message.endswith(": sold out")


async def test_a_refusal_s_reason_is_cut_and_harmless() -> None:
    """It comes from the network: bounded, and no terminal acts on it."""
    result, _ = await after(refused(422, {"message": "\x1b[2J" + "x" * 10_000}))
    assert isinstance(result, NotDone)
    assert len(result.error.message) < 600
    assert "\x1b" not in result.error.message


@pytest.mark.parametrize(
    "act", [cut("in-body", {"message": "x" * 100}), huge(1_000_000), typed("application/json", b"{")]
)
async def test_a_refusal_needs_no_readable_reason(act: Act) -> None:
    """The status has said it; a broken explanation changes nothing."""
    from dataclasses import replace

    result, _ = await after(replace(act, status=422))
    assert isinstance(result, NotDone)
    assert result.error.error_code == "http_422"


# --- probes and undos ----------------------------------------------------------------------------------------------


async def test_a_probe_that_finds_nothing_says_that_it_did_not_happen() -> None:
    """The declared statuses mean: there is nothing."""
    async with MisbehavingServer() as server:
        server.script("/orders", refused(404), refused(500), done({"order": "A1"}))
        text = order_tool(server, "absent = [404]", method="GET")
        assert await outcome(text) == Done(None)
        assert isinstance(await outcome(text), NotDone)
        assert await outcome(text) == Done({"order": "A1"})


async def test_a_probe_that_searches_may_find_an_empty_list() -> None:
    """``absent_output`` is the answer of a search that found nothing."""
    result, _ = await after(done({"orders": []}), 'output = "$.orders"\nabsent_output = []', method="GET")
    assert result == Done(None)


async def test_probing_by_registry() -> None:
    """The probe is asked with the key of the call that is asked about; only a clear answer settles the doubt."""
    async with MisbehavingServer() as server:
        text = order_tool(server, 'probe = "find"\n' + KEYED) + (
            f'[http.find]\nurl = "{server.url}/find"\nkey = {{ query = "ref" }}\nabsent = [404]\n'
        )
        server.script("/find", refused(404), failed(500), done({"order": "A1"}))
        registry = declared(text)
        call = a_call(direction="forward")
        first = await registry.probe("order", {"item": "chair"}, call)
        assert isinstance(first, NotDone)
        assert first.definite
        assert isinstance(await registry.probe("order", {"item": "chair"}, call), Unknown)
        assert await registry.probe("order", {"item": "chair"}, call) == Done({"order": "A1"})
        assert {request.query for request in server.received} == {"ref=key-1"}


async def test_an_undo_with_nothing_to_undo_is_done() -> None:
    """``absent`` of a tool that tolerates absence."""
    more = "tolerates_absence = true\nabsent = [404, 410]"
    assert (await after(refused(404), more, method="DELETE"))[0] == Done({})
    assert isinstance((await after(refused(404), method="DELETE"))[0], NotDone)


# --- redirects -----------------------------------------------------------------------------------------------------


async def test_a_read_follows_on_its_own_host_only() -> None:
    """Where that is declared; secrets and params go to no other host."""
    async with MisbehavingServer() as server, MisbehavingServer() as other:
        follow = order_tool(server, "follow_redirects = true", method="GET")
        server.script(
            "/orders", moved("/there?a=b"), moved(f"{other.url}/x"), moved("ftp://127.0.0.1/"), moved("/orders")
        )
        server.script("/there", done({"here": 1}))
        assert await outcome(follow) == Done({"here": 1})
        assert server.received[-1].query == "a=b"
        for _ in range(3):
            result = await outcome(follow)
            assert isinstance(result, NotDone)
            assert result.error.error_code == "redirect_refused"
        assert other.connections == 0
        assert len(server.received) == 2 + 2 + 6


# --- connections ---------------------------------------------------------------------------------------------------


async def test_connections_are_used_again_where_a_doubt_can_be_settled() -> None:
    """A server may close a used connection at the wrong moment; a write without a key takes a fresh one."""
    for more, connections in (("", 3), (KEYED, 1)):
        async with MisbehavingServer() as server:
            server.script("/orders", done())
            registry = declared(order_tool(server, more))
            for number in range(3):
                call = a_call(idempotency_key=f"key-{number}")
                assert await registry.call("order", {"item": "chair"}, call) == Done({})
            assert server.connections == connections


async def test_many_at_once_share_what_they_share() -> None:
    """A hundred calls at once are a hundred requests, each answered once."""
    async with MisbehavingServer() as server:
        server.script("/orders", lambda request: done({"item": request.json["item"]}))
        registry = declared(order_tool(server, KEYED))
        calls = [registry.call("order", {"item": str(n)}, a_call(idempotency_key=f"k{n}")) for n in range(100)]
        assert await asyncio.gather(*calls) == [Done({"item": str(n)}) for n in range(100)]
        assert len(server.effects) == 100


_TWO_LOOPS = """
import asyncio
from saga_engine.testing.faulty_http import MisbehavingServer, done
from tests.http.declared import order_tool, outcome

async def once():
    async with MisbehavingServer() as server:
        server.script("/orders", done())
        return await outcome(order_tool(server, 'key = { header = "Idempotency-Key" }'))

print([asyncio.run(once()), asyncio.run(once())])
"""


async def test_a_loop_that_ends_closes_its_connections() -> None:
    """A second event loop has connections of its own, and nothing is left of the first one's."""
    command = [sys.executable, "-X", "dev", "-c", _TWO_LOOPS]
    ran = await asyncio.to_thread(subprocess.run, command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert ran.stdout.count("Done(output={}") == 2
    assert "ResourceWarning" not in ran.stderr


async def test_a_large_compressed_answer_is_read_whole() -> None:
    """However many pieces it is decoded in."""
    text = "".join(chr(97 + n * n % 23) for n in range(1_500_000))
    body = gzip.compress(json.dumps({"a": text}).encode())
    act = Act(200, body, {"Content-Type": "application/json", "Content-Encoding": "gzip"})
    assert (await after(act))[0] == Done({"a": text})


# --- the same request again ----------------------------------------------------------------------------------------


async def test_a_repeat_is_the_same_request_and_no_second_effect() -> None:
    """Under one key the bytes are the same, and an endpoint that honours keys gives its first answer."""
    async with MisbehavingServer() as server:
        server.script("/orders", cut("before-answer", {"order": "A1"}), done({"order": "A2"}))
        text = order_tool(server, KEYED + '\nbody = { b = 1, a = "{item}" }')
        assert isinstance(await outcome(text), Unknown)
        assert await outcome(text) == Done({"order": "A1"})
        assert len(server.effects) == 1
        first, second = server.received
        assert (first.body, first.headers, first.query) == (second.body, second.headers, second.query)
        assert first.body == json.dumps({"a": "chair", "b": 1}, separators=(",", ":")).encode()


async def test_a_name_that_does_not_resolve_is_not_done() -> None:
    """It may resolve later; nothing was sent."""
    text = '[http.order]\nurl = "http://does-not-exist.invalid/"'
    result = await outcome(text, {})
    assert isinstance(result, NotDone)
    assert (result.error.error_code, result.retryable, result.definite) == ("name_not_resolved", True, False)


# --- addresses -----------------------------------------------------------------------------------------------------


async def test_the_connection_goes_to_the_address_that_was_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name is resolved once, and its addresses are tried in turn; nobody asks for the name a second time."""
    asked: list[str] = []

    async def resolve(host: str, _: object) -> list[str]:
        asked.append(host)
        return ["127.0.0.2", "127.0.0.1"]

    monkeypatch.setattr(hosts, "_getaddrinfo", resolve)
    async with MisbehavingServer() as server:
        server.script("/orders", done())
        text = order_tool(server).replace("127.0.0.1", "api.test")
        registry = declared(text, allow_private=("127.0.0.0/8",))
        assert await registry.call("order", {"item": "chair"}, a_call()) == Done({})
        assert asked == ["api.test"]
        assert server.received[0].headers["host"] == f"api.test:{server.port}"


async def test_one_address_that_is_refused_refuses_the_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name that also leads inside leads inside."""

    async def resolve(_: str, __: object) -> list[str]:
        return ["203.0.114.1", "127.0.0.1"]

    monkeypatch.setattr(hosts, "_getaddrinfo", resolve)
    async with MisbehavingServer() as server:
        text = order_tool(server).replace("127.0.0.1", "api.test")
        result = await declared(text, allow_private=()).call("order", {"item": "chair"}, a_call())
        assert isinstance(result, NotDone)
        assert result.error.error_code == "host_refused"
        assert server.connections == 0
