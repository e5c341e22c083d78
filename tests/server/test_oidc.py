"""Tokens of an OpenID Connect issuer, a real one on a socket whose keys the tests make and change."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from saga_engine import Coordinator
from saga_engine.errors import IssuerUnavailable, SettingInvalid, Unauthenticated
from saga_engine.server.oidc import Oidc
from saga_engine.server.oidc_settings import OidcSettings
from saga_engine.server.settings import ServerSettings, Tenant, server_settings
from tests.server.harness import ASK, TOOLS, Api, serving


class Issuer:
    """Publishes the keys in ``keys``, and signs with any key."""

    def __init__(self) -> None:
        self.keys: dict[str, Any] = {}
        self.up, self.asked, self.drips = True, 0, False
        #: What it says in place of where its keys are, and of the keys.
        self.jwks_uri, self.said = "", b""
        self.closing = threading.Event()
        issuer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                issuer.asked += 1
                here = issuer.url
                known = {
                    "/.well-known/openid-configuration": {
                        "issuer": here,
                        "jwks_uri": issuer.jwks_uri or f"{here}/keys",
                    },
                    "/keys": {"keys": [issuer.published(name) for name in issuer.keys]},
                }
                if issuer.drips:
                    self.send_response(200)
                    self.send_header("content-length", "1000000")
                    self.end_headers()
                    with contextlib.suppress(OSError):
                        while not issuer.closing.wait(0.002):
                            self.wfile.write(b" ")
                            self.wfile.flush()
                    return
                body = (self.path == "/keys" and issuer.said) or json.dumps(known.get(self.path, {})).encode()
                self.send_response(200 if issuer.up and self.path in known else 503)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Quiet."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.01,))
        self.thread.start()

    def close(self) -> None:
        self.closing.set()
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()

    def published(self, name: str) -> dict[str, Any]:
        key = self.keys[name]
        rsa_key = isinstance(key, rsa.RSAPrivateKey)
        algorithm = jwt.get_algorithm_by_name("RS256" if rsa_key else "ES256")
        found = algorithm.to_jwk(key.public_key(), as_dict=True)  # type: ignore[attr-defined]
        return {**found, "kid": name, "use": "sig", "alg": "RS256" if rsa_key else "ES256"}

    def token(self, name: str = "k1", key: Any = None, algorithm: str = "ES256", **claims: Any) -> str:
        now = time.time()
        said = {"iss": self.url, "aud": "saga", "sub": "ada", "exp": now + 300, "scope": "saga:resolve", **claims}
        kept = {claim: value for claim, value in said.items() if value is not None}
        return jwt.encode(kept, key or self.keys[name], algorithm, {"kid": name})

    def settings(self, **more: Any) -> OidcSettings:
        return OidcSettings(self.url, "saga", **more)


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    made = Issuer()
    made.keys["k1"] = ec.generate_private_key(ec.SECP256R1())
    yield made
    made.close()


async def test_who_what_and_where_come_from_the_token(issuer: Issuer) -> None:
    """`by`, scopes and tenant are the claims'; without a scope 403, with an unknown tenant 403, and tokens of the store stay."""
    oidc = issuer.settings(tenant_claim="org")
    settings = ServerSettings(port=0, oidc=oidc, tenants={"blue": Tenant("blue", "blue")})
    async with (
        Coordinator.open("memory://oidc", TOOLS, durability="relaxed") as own,
        Coordinator.open("memory://oidc?namespace=blue", TOOLS, durability="relaxed") as blue,
        serving(own, settings, {"blue": blue}) as server,
    ):
        await blue.run(ASK, saga_id="s")
        api = Api(server.client, server.document, issuer.token(org="blue"))
        await api.post("/v1/sagas/s/resolve", {"step_id": 1, "decision": "yes"})
        assert (await blue.resume("s")).output(1)["by"] == "ada"
        assert (await api("GET", "/v1/sagas")).json()["context"]["scope"] == "read"
        red = Api(server.client, server.document, issuer.token(org="red", scope=["saga:read", "x"]))
        assert (await red("GET", "/v1/sagas")).status_code == 403
        for wrong in (None, "", 7):
            nobody = Api(server.client, server.document, issuer.token(org=wrong))
            assert (await nobody("GET", "/v1/sagas")).status_code == 401
        assert (await (await server.api("read"))("GET", "/v1/sagas")).status_code == 200


async def test_only_what_the_issuer_signed_for_this_server_now_is_accepted(issuer: Issuer) -> None:
    """No other signature, algorithm, audience, issuer or time; `none` and a public key as a shared secret neither."""
    oidc, now = Oidc(issuer.settings(leeway_s=60)), time.time()
    issuer.keys["r1"] = rsa.generate_private_key(65537, 2048)
    stranger = ec.generate_private_key(ec.SECP256R1())
    for good in (
        issuer.token(),
        issuer.token("r1", algorithm="RS256"),
        issuer.token(exp=now - 20),
        issuer.token(nbf=now + 20),
        issuer.token(aud=["else", "saga"]),
    ):
        assert (await oidc.identity(good)).who == "ada"
    wrong = [
        issuer.token(key=stranger),
        issuer.token("k9", key=stranger),
        issuer.token("r1", algorithm="RS384"),
        issuer.token("r1", key=issuer.keys["k1"]),
        issuer.token(exp=now - 90),
        issuer.token(exp=None),
        issuer.token(nbf=now + 90),
        issuer.token(aud="other"),
        issuer.token(aud=None),
        issuer.token(iss="https://elsewhere.example"),
        issuer.token(sub=None),
        issuer.token(sub=""),
        issuer.token(sub="a\nb"),
        issuer.token()[:-4] + "AAAA",
        "a.b.c",
        "x" * 20_000,
    ]
    body = issuer.token().split(".")[1]
    secret = issuer.keys["k1"].public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    for algorithm in ("none", "None", "HS256"):
        signed = f"{encoded(json.dumps({'alg': algorithm, 'kid': 'k1'}).encode())}.{body}"
        wrong += [f"{signed}.", f"{signed}.{encoded(hmac.digest(secret, signed.encode(), hashlib.sha256))}"]
    for each in wrong:
        with pytest.raises(Unauthenticated):
            await oidc.identity(each)


async def test_keys_change_and_the_issuer_may_be_down(issuer: Issuer) -> None:
    """A new key is found at its first token; one that is withdrawn holds some minutes; the last keys outlive the issuer."""
    clock = [0.0]
    oidc = Oidc(issuer.settings(), lambda: clock[0])
    issuer.up = False
    with pytest.raises(IssuerUnavailable):
        await oidc.identity(issuer.token())
    issuer.up, clock[0] = True, 20.0
    old = issuer.token()
    assert (await oidc.identity(old)).who == "ada"
    issuer.keys = {"k2": ec.generate_private_key(ec.SECP256R1())}
    clock[0] += 20
    assert (await oidc.identity(issuer.token("k2"))).who == "ada"
    with pytest.raises(Unauthenticated):  # it is withdrawn
        await oidc.identity(old)
    asked = issuer.asked
    for number in range(20):
        with pytest.raises(Unauthenticated):
            await oidc.identity(issuer.token(f"made-up-{number}", key=issuer.keys["k2"]))
    assert issuer.asked == asked  # who makes up keys does not make the server ask
    issuer.up = False
    clock[0] += 3600
    assert (await oidc.identity(issuer.token("k2"))).who == "ada"
    clock[0] += 24 * 3600
    with pytest.raises(IssuerUnavailable):
        await oidc.identity(issuer.token("k2"))


async def test_an_issuer_that_drips_counts_as_away(issuer: Issuer, monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer that never ends is none: the last keys hold on, and without any the issuer is said to be away."""
    clock = [0.0]
    monkeypatch.setattr("saga_engine.server.oidc._TIMEOUT_S", 0.2)
    known, new = Oidc(issuer.settings(), lambda: clock[0]), Oidc(issuer.settings())
    assert (await known.identity(issuer.token())).who == "ada"
    issuer.drips = True
    clock[0] += 3600
    assert (await known.identity(issuer.token())).who == "ada"
    with pytest.raises(IssuerUnavailable):
        await new.identity(issuer.token())


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("https://\0/", b""),
        ("https://é..b/", b""),
        ("http://127.0.0.1:70000/", b""),
        ("https://[::1", b""),
        ("", b'{"keys":' + b"[" * 100_000),
        ("", b"\xff"),
        ("", b'{"keys": {"kid": 1}}'),
    ],
    ids=["a null", "no name", "no port", "half an address", "depth", "no text", "no list"],
)
async def test_an_issuer_that_answers_nonsense_counts_as_away(issuer: Issuer, address: str, said: bytes) -> None:
    """Whatever it says: no token is a fault of the server, and the last keys hold on."""
    clock = [0.0]
    known, new = Oidc(issuer.settings(), lambda: clock[0]), Oidc(issuer.settings())
    assert (await known.identity(issuer.token())).who == "ada"
    issuer.jwks_uri, issuer.said = address, said
    clock[0] += 3600
    assert (await known.identity(issuer.token())).who == "ada"
    with pytest.raises(IssuerUnavailable):
        await new.identity(issuer.token())


async def test_an_issuer_that_is_down_is_said_to_be(issuer: Issuer) -> None:
    """503 with Retry-After, not 401: the caller's token may be good."""
    issuer.up = False
    settings = ServerSettings(port=0, oidc=issuer.settings())
    async with (
        Coordinator.open("memory://", TOOLS, durability="relaxed") as coordinator,
        serving(coordinator, settings) as server,
    ):
        found = await Api(server.client, server.document, issuer.token())("GET", "/v1/sagas")
        assert (found.status_code, found.json()["code"]) == (503, "issuer-unavailable")
        assert "retry-after" in found.headers


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"issuer": "http://idp.example"}, "https"),
        ({"audience": ""}, "audience"),
        ({"algorithms": ["HS256"]}, "HS256"),
        ({"algorithms": ["none"]}, "none"),
        ({"algorithms": []}, "algorithms"),
        ({"scopes": {"ops": "root"}}, "root"),
        ({"leeway_s": 6000}, "leeway_s"),
        ({"issuers": "x"}, "issuers"),
    ],
)
def test_settings_that_would_let_others_in_are_refused(change: dict[str, Any], says: str) -> None:
    """A shared secret, no signature, no audience, an unprotected issuer, unknown fields."""
    good = {"issuer": "https://idp.example", "audience": "saga", "scopes": {"ops": "admin"}}
    assert server_settings({"oidc": good}, "x").oidc == OidcSettings(
        "https://idp.example", "saga", scopes={"ops": "admin"}
    )
    with pytest.raises(SettingInvalid) as caught:
        server_settings({"oidc": good | change}, "x")
    assert says in f"{caught.value.message} {caught.value.hint}"


def encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
