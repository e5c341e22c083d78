"""Bearer tokens of an OpenID Connect issuer: JWTs, verified with the issuer's published keys (extra ``oidc``)."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from saga_engine.errors import IssuerUnavailable, SettingInvalid, Unauthenticated
from saga_engine.loggers import logger_of
from saga_engine.ports.machine_clock import machine_clock
from saga_engine.server.identity import Identity

if TYPE_CHECKING:
    import jwt

    from saga_engine.server.oidc_settings import OidcSettings

_log = logger_of("saga_engine.server")

_TIMEOUT_S: Final = 5.0
_MOST_BYTES: Final = 1 << 20
_MOST_TOKEN_CHARS: Final = 16_384
_NAME_CHARS: Final = 100
#: Keys that are older are fetched again; a key id that is not known is looked for at most this often.
_FRESH_S: Final = 300.0
_AGAIN_S: Final = 10.0
#: While the issuer does not answer, its last keys hold for so long.
_STALE_S: Final = 24 * 3600.0


class Oidc:
    """Finds out whom a JWT stands for. ``now_s``: a monotonic clock."""

    def __init__(self, settings: OidcSettings, now_s: Callable[[], float] | None = None) -> None:
        try:
            import httpx2
            import jwt
        except ImportError as error:
            raise SettingInvalid(
                "[server.oidc] needs an extra that is not installed", hint="pip install 'saga-engine[oidc]'"
            ) from error
        self._settings = settings
        self._now_s = now_s or (lambda: machine_clock.monotonic())  # noqa: PLW0108 - read at each use
        self._jwt, self._http = jwt, httpx2
        self._keys: dict[str, jwt.PyJWK] = {}
        self._fetched_s: float | None = None
        self._tried_s: float | None = None
        self._fetching = asyncio.Lock()

    async def identity(self, text: str) -> Identity:
        """Whom the token stands for. Raises ``Unauthenticated`` and ``IssuerUnavailable``."""
        settings = self._settings
        if len(text) > _MOST_TOKEN_CHARS:
            raise _refused("it is too long")
        try:
            header = self._jwt.get_unverified_header(text)
        except self._jwt.PyJWTError:
            raise _refused("it is no JWT") from None
        algorithm, key_id = header.get("alg"), header.get("kid", "")
        if algorithm not in settings.algorithms:
            raise _refused("it is signed with an algorithm that is not allowed")
        key = await self._key(key_id)
        if key.algorithm_name != algorithm:
            raise _refused("its algorithm is not that of its key")
        try:
            claims = self._jwt.decode(
                text,
                key,
                algorithms=[algorithm],
                audience=settings.audience,
                issuer=settings.issuer,
                leeway=settings.leeway_s,
                options={"require": ["exp", "iss", "aud", settings.who_claim]},
            )
        except self._jwt.PyJWTError as error:
            raise _refused(str(error)[:200]) from None
        return self._identity_of(claims)

    def _identity_of(self, claims: Mapping[str, Any]) -> Identity:
        settings = self._settings
        who = claims[settings.who_claim]
        if not isinstance(who, str) or not who.isprintable() or not 1 <= len(who.strip()) <= _NAME_CHARS:
            raise _refused(f"its claim {settings.who_claim} is no name of 1 to {_NAME_CHARS} printable characters")
        given = claims.get(settings.scope_claim, [])
        said = given.split() if isinstance(given, str) else given if isinstance(given, list) else []
        scopes = frozenset(settings.scopes[each] for each in said if isinstance(each, str) and each in settings.scopes)
        tenant = claims.get(settings.tenant_claim) if settings.tenant_claim else ""
        if settings.tenant_claim and (not isinstance(tenant, str) or not tenant):
            raise _refused(f"it has no claim {settings.tenant_claim}, which names the tenant")
        subject = "\0".join((settings.issuer, str(claims.get("sub", who))))
        known = f"oidc:{hashlib.sha256(subject.encode()).hexdigest()[:32]}"
        ends_ms = round((float(claims["exp"]) + settings.leeway_s) * 1000)
        return Identity(who.strip(), scopes, str(tenant), known, "oidc", ends_ms)

    # --- keys ----------------------------------------------------------------------------------------------------

    async def _key(self, key_id: object) -> jwt.PyJWK:
        """The issuer's key with this id. Keys change: an id that is not known may be new."""
        name = key_id if isinstance(key_id, str) else ""
        if not self._fresh() or name not in self._keys:
            async with self._fetching:
                if not self._fresh() or name not in self._keys:
                    await self._renew()
        found = self._keys.get(name)
        if found is None and not name and len(self._keys) == 1:
            (found,) = self._keys.values()
        if found is None:
            raise _refused("its key is none of the issuer's")
        return found

    def _fresh(self) -> bool:
        return self._fetched_s is not None and self._now_s() - self._fetched_s < _FRESH_S

    async def _renew(self) -> None:
        """Fetch the keys, unless that was just tried. Raises ``IssuerUnavailable`` if there are none to use."""
        now = self._now_s()
        if self._tried_s is None or now - self._tried_s >= _AGAIN_S:
            self._tried_s = now
            try:
                self._keys = await self._fetched()
                self._fetched_s = now
                return
            except Exception as error:  # noqa: BLE001 - whatever an issuer answers, it is as good as away
                why = str(error)[:300] or "its answer takes too long"
                _log.warning("the keys of %s cannot be fetched: %s", self._settings.issuer, why)
        if self._fetched_s is None or now - self._fetched_s > _STALE_S:
            raise IssuerUnavailable(
                f"the keys of {self._settings.issuer} cannot be had", hint="try again later", retry_after_s=_AGAIN_S
            )

    async def _fetched(self) -> dict[str, jwt.PyJWK]:
        settings = self._settings
        async with self._http.AsyncClient(timeout=_TIMEOUT_S, follow_redirects=False) as client:
            told = await self._json(client, settings.issuer.rstrip("/") + "/.well-known/openid-configuration")
            if told.get("issuer") != settings.issuer:
                raise ValueError(f"it calls itself {str(told.get('issuer'))[:200]!r}")
            address = told.get("jwks_uri")
            if not isinstance(address, str) or not settings.trusts(address):
                raise ValueError("its jwks_uri is no https address")
            listed = (await self._json(client, address)).get("keys")
        found: dict[str, jwt.PyJWK] = {}
        for each in listed if isinstance(listed, list) else []:
            if not isinstance(each, dict) or each.get("use", "sig") != "sig" or each.get("kty") == "oct":
                continue
            try:
                found[str(each.get("kid", ""))] = self._jwt.PyJWK(each)
            except self._jwt.PyJWTError:
                continue  # of a kind that no allowed algorithm uses; a token with it is refused
        if not found:
            raise ValueError("it publishes no keys")
        return found

    async def _json(self, client: Any, address: str) -> dict[str, Any]:
        async with asyncio.timeout(_TIMEOUT_S * 2), client.stream("GET", address) as answer:
            if answer.status_code != 200:
                raise ValueError(f"{address} answers {answer.status_code}")
            data = b""
            async for part in answer.aiter_bytes():
                data += part
                if len(data) > _MOST_BYTES:
                    raise ValueError(f"{address} answers with too much")
        import msgspec

        return msgspec.json.decode(data, type=dict[str, Any])


def _refused(why: str) -> Unauthenticated:
    return Unauthenticated(f"the token is not accepted: {why}", hint="get a new one from the issuer")
