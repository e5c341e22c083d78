"""``saga serve`` accepts a token that an issuer signed, and no other."""

import base64
import json
import time
import urllib.error
import urllib.request
from pathlib import Path

import jwt
from cryptography.hazmat.primitives.asymmetric import ec
from desk import answering, go, serving


def number(value: int) -> str:
    return base64.urlsafe_b64encode(value.to_bytes(32, "big")).rstrip(b"=").decode()


def status(url: str, token: str) -> int:
    request = urllib.request.Request(f"{url}/v1/sagas", headers={"authorization": f"Bearer {token}"})
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status
    except urllib.error.HTTPError as refused:
        with refused:
            return refused.code


async def main() -> str:
    key, stranger = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    public = key.public_key().public_numbers()
    published = {"kty": "EC", "crv": "P-256", "kid": "k1", "alg": "ES256", "x": number(public.x), "y": number(public.y)}
    known: dict[str, object] = {"/keys": {"keys": [published]}}
    with answering(lambda _, path: (200, json.dumps(known[path]).encode())) as (issuer, _):
        known["/.well-known/openid-configuration"] = {"issuer": issuer, "jwks_uri": f"{issuer}/keys"}
        Path("saga.toml").write_text(f'[server.oidc]\nissuer = "{issuer}"\naudience = "saga"\n')
        claims = {"iss": issuer, "aud": "saga", "sub": "ada", "exp": time.time() + 300, "scope": "saga:read"}
        with serving() as url:
            right, wrong = (jwt.encode(claims, each, "ES256", {"kid": "k1"}) for each in (key, stranger))
            assert (status(url, right), status(url, wrong)) == (200, 401)
    return "a token of the issuer is accepted, one of a stranger is not"


go(main)
