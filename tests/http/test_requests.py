"""The requests that are made, and what never gets into one."""

from __future__ import annotations

import logging
import ssl
import subprocess
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from saga_engine.core.effects import Done, NotDone, Unknown
from saga_engine.sources.http.templates import Unfit, Values, parse_text, path_piece
from saga_engine.testing.faulty_http import MisbehavingServer, Received, done, refused, typed
from tests.http.declared import declared, order_tool, outcome
from tests.tools.calls import a_call

TOKEN = "s3cr3t/tok+en"


async def received(text: str, params: dict[str, Any], path: str = "/orders") -> Received:
    """The one request that a call makes; ``{url}`` in the text is the server."""
    async with MisbehavingServer() as server:
        server.script(path, done())
        result = await declared(text.replace("{url}", server.url)).call("order", params, a_call())
        assert result == Done({}), result
        (request,) = server.received
        return request


async def refusal(text: str, params: dict[str, Any]) -> NotDone:
    """The outcome of a call that must not send anything."""
    async with MisbehavingServer() as server:
        result = await declared(text.replace("{url}", server.url)).call("order", params, a_call())
        assert server.connections == 0
        assert isinstance(result, NotDone)
        assert not result.definite
        return result


# --- places --------------------------------------------------------------------------------------------------------


async def test_every_place_is_filled() -> None:
    """Path, query, headers and body, each in its own way."""
    request = await received(
        """
        [http.order]
        method = "PUT"
        url = "{url}/flights/{flight}/orders?fixed=a%20b&lang={lang}"
        query = { currency = "{currency}", tag = "{tags}", note = "for {lang}" }
        headers = { X-Lang = "{lang}", X-None = "{none}" }
        body = { passenger = "{passenger}", text = "{lang} {passenger}", none = "{none}", list = ["{lang}", 1, true], braces = "{{x}}" }
        params = { flight = "string", lang = "string", currency = "string", passenger = "object", tags = "array", none = { type = "string", optional = true } }
        """,
        {
            "flight": "LH 1/2",
            "lang": "dé",
            "currency": "E&R",
            "passenger": {"name": "Ada", "age": 36},
            "tags": ["a", "b"],
        }
        | {"lang": "de"},
        "/flights/LH%201%2F2/orders",
    )
    assert parse_qsl(request.query) == [
        ("fixed", "a b"),
        ("lang", "de"),
        ("currency", "E&R"),
        ("tag", "a"),
        ("tag", "b"),
        ("note", "for de"),
    ]
    assert request.headers["x-lang"] == "de"
    assert "x-none" not in request.headers
    assert request.headers["content-type"] == "application/json"
    assert request.json == {
        "passenger": {"name": "Ada", "age": 36},
        "text": 'de {"age":36,"name":"Ada"}',
        "list": ["de", 1, True],
        "braces": "{x}",
    }


async def test_a_form_is_urlencoded() -> None:
    """``form`` instead of ``body``."""
    request = await received(
        '[http.order]\nmethod = "POST"\nurl = "{url}/orders"\nform = { item = "{item}", n = "{n}" }\n'
        'key = { body = "request_id" }\nparams = { item = "string", n = "integer" }',
        {"item": "a&b=c ü", "n": 3},
    )
    assert request.headers["content-type"] == "application/x-www-form-urlencoded"
    assert dict(parse_qsl(request.body.decode())) == {"item": "a&b=c ü", "n": "3", "request_id": "key-1"}


@pytest.mark.parametrize(
    ("key", "found"),
    [
        ('key = { header = "X-Request-Id" }', lambda request: request.headers["x-request-id"]),
        ('key = { query = "ref" }', lambda request: dict(parse_qsl(request.query))["ref"]),
        ('key = { body = "ref" }', lambda request: request.json["ref"]),
    ],
)
async def test_the_key_goes_where_it_is_wanted(key: str, found: Any) -> None:
    """Header, query or body; the tool then is a keyed one."""
    async with MisbehavingServer() as server:
        server.script("/orders", done())
        text = order_tool(server, key + "\n")
        registry = declared(text)
        assert registry.spec("order").keyed
        await registry.call("order", {"item": "x"}, a_call(idempotency_key="saga:1:f:seed"))
        assert found(server.received[0]) == "saga:1:f:seed"


async def test_the_key_may_name_the_resource() -> None:
    """A PUT to an address that the key makes is the oldest way to do something once."""
    request = await received(
        '[http.order]\nmethod = "PUT"\nurl = "{url}/orders/{idempotency_key}"\nkey = { url = true, ttl_s = 60 }\nbody = {}',
        {},
        "/orders/*",
    )
    assert request.last == "key-1"


async def test_defaults_are_sent() -> None:
    """A param that is left out has the default of its schema."""
    request = await received(
        '[http.order]\nurl = "{url}/orders"\nquery = { n = "{n}" }\nparams = { n = { type = "integer", default = 7 } }',
        {},
    )
    assert request.query == "n=7"


# --- hostile values ------------------------------------------------------------------------------------------------

PATH = '[http.order]\nurl = "{url}/orders/{item}/lines"\nparams = { item = "string" }'


@pytest.mark.parametrize("value", ["", ".", "..", "../admin", "a/../../b", "..\\b", "a\nb", "\x00", "\x7f", "\ud800"])
async def test_what_could_lead_elsewhere_in_a_path_is_refused(value: str) -> None:
    """A param is one piece of a path; nothing is sent if it could be more."""
    assert (await refusal(PATH, {"item": value})).error.error_code == "params_invalid"


@given(st.text(max_size=40))
def test_a_param_stays_in_its_piece_of_the_path(value: str) -> None:
    """Whatever it is: refused, or one piece that decodes to it, with no character that a URL gives a meaning."""
    piece = parse_text("{item}")
    try:
        made = path_piece(piece, Values({"item": value}, {}))
    except Unfit:
        return
    assert unquote(made, errors="strict") == value
    assert not set(made) & set("/?#;:@&=+$,\\ ")


async def test_a_path_piece_made_of_two_params_is_checked_as_a_whole() -> None:
    """Two harmless dots make a harmful piece."""
    text = '[http.order]\nurl = "{url}/o/{a}{b}/x"\nparams = { a = "string", b = "string" }'
    await refusal(text, {"a": ".", "b": "."})


async def test_a_query_value_is_never_more_than_a_value() -> None:
    """Ampersands, hashes and percent signs are its own."""
    value = "a&admin=1#x%26\r\nHost: evil"
    request = await received(
        '[http.order]\nurl = "{url}/orders?q={item}"\nparams = { item = "string" }', {"item": value}
    )
    assert parse_qsl(request.query) == [("q", value)]


@pytest.mark.parametrize("value", ["a\r\nX-Admin: 1", "a\nb", "a\x00b", "é", " a", "a ", "\u2028"])
async def test_what_could_end_a_header_is_refused(value: str) -> None:
    """Only visible ASCII goes into a header."""
    text = '[http.order]\nurl = "{url}/orders"\nheaders = { X-Item = "{item}" }\nparams = { item = "string" }'
    assert (await refusal(text, {"item": value})).error.error_code == "params_invalid"


@pytest.mark.parametrize("value", [{"a": 1}, [["a"]], [None], [{}]])
async def test_what_is_no_plain_value_is_no_query(value: object) -> None:
    """Nobody knows what an object in a query would mean."""
    text = '[http.order]\nurl = "{url}/orders"\nquery = { q = "{item}" }\nparams = { item = {} }'
    await refusal(text, {"item": value})


async def test_a_value_is_no_template() -> None:
    """Braces and secrets in a param are text: they are filled once."""
    text = '[http.order]\nmethod = "POST"\nurl = "{url}/orders"\nbody = { a = "{item}", b = "x {item}" }\nparams = { item = "string" }'
    request = await received(text, {"item": "{item} $secret.PATH"})
    assert request.json == {"a": "{item} $secret.PATH", "b": "x {item} $secret.PATH"}


# --- secrets -------------------------------------------------------------------------------------------------------

SECRET = 'headers = { Authorization = "Bearer $secret.AIRLINE_TOKEN", X-Literal = "$$secret.X" }\nquery = { t = "$secret.AIRLINE_TOKEN" }'


async def test_a_secret_is_read_when_the_call_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not when the tool is declared: the listing of tools needs none."""
    async with MisbehavingServer() as server:
        server.script("/orders", done())
        registry = declared(order_tool(server, SECRET))
        call = a_call()
        missing = await registry.call("order", {"item": "x"}, call)
        assert isinstance(missing, NotDone)
        assert missing.error.error_code == "secret_missing"
        assert not missing.definite
        monkeypatch.setenv("AIRLINE_TOKEN", TOKEN)
        assert await registry.call("order", {"item": "x"}, call) == Done({})
        (request,) = server.received
        assert request.headers["authorization"] == f"Bearer {TOKEN}"
        assert request.headers["x-literal"] == "$secret.X"


async def test_no_secret_comes_back(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """Not in an output, an error or a log, although the endpoint echoes whatever it is sent."""
    caplog.set_level(logging.DEBUG)
    monkeypatch.setenv("AIRLINE_TOKEN", TOKEN)
    async with MisbehavingServer() as server:
        echo = lambda request: {"said": request.headers["authorization"], "query": request.query, TOKEN: [TOKEN]}  # noqa: E731
        server.script(
            "/orders",
            lambda request: done(echo(request)),
            lambda request: refused(401, {"message": str(echo(request))}),
            lambda request: refused(500, {"message": str(echo(request))}),
            lambda request: typed("application/json", b'{"%b": 1, "%b": 2}' % (TOKEN.encode(), TOKEN.encode())),
        )
        results = [await outcome(order_tool(server, SECRET)) for _ in range(4)]
    assert [type(result) for result in results] == [Done, NotDone, Unknown, Unknown]
    text = repr(results) + caplog.text
    assert "$secret.AIRLINE_TOKEN" in text
    for form in (TOKEN, "s3cr3t%2Ftok%2Ben", "s3cr3t"):
        assert form not in text


async def test_a_secret_that_fits_in_no_header_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """A line break at its end is a common accident."""
    monkeypatch.setenv("AIRLINE_TOKEN", TOKEN + "\n")
    async with MisbehavingServer() as server:
        result = await outcome(order_tool(server, SECRET))
        assert isinstance(result, NotDone)
        assert "s3cr3t" not in repr(result)
        assert server.connections == 0


# --- TLS -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A certificate for 127.0.0.1 that signs itself, and its key."""
    folder = tmp_path_factory.mktemp("tls")
    made, key = folder / "cert.pem", folder / "key.pem"
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=test"
    names = ["-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run([*command.split(), *names, "-keyout", str(key), "-out", str(made)], check=True, capture_output=True)
    return made, key


async def test_the_other_side_proves_its_name(certificate: tuple[Path, Path]) -> None:
    """An unknown authority is refused before anything is sent; a named one is taken; the loopback may go without."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(*certificate)
    async with MisbehavingServer(tls=context) as server:
        server.script("/orders", done())
        result = await outcome(order_tool(server))
        assert isinstance(result, NotDone)
        assert (result.retryable, result.definite) == (True, False)
        assert server.received == []
        assert await outcome(order_tool(server, "verify = false")) == Done({})
        named = declared(order_tool(server, f'ca_file = "{certificate[0].name}"'), base=certificate[0].parent)
        assert await named.call("order", {"item": "x"}, a_call()) == Done({})
