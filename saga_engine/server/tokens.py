"""Bearer tokens: made once, shown once, kept as hashes in the store.

A token is ``saga_ID_SECRET``. The secret has 256 random bits, so a plain SHA-256 of it cannot be searched.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Sequence
from typing import Final

import msgspec

from saga_engine.errors import QuotaExceeded, SettingInvalid, StoreRefused, TokenNotFound
from saga_engine.listener.limits import Rates
from saga_engine.plan.values import cut
from saga_engine.ports import Document, DocumentStore
from saga_engine.ports.machine_clock import machine_clock
from saga_engine.server.identity import Identity, check_scopes

_TOKEN: Final = re.compile(r"saga_(t[0-9a-f]{11})_([A-Za-z0-9_-]{43})", re.ASCII)
_ID: Final = re.compile(r"t[0-9a-f]{11}", re.ASCII)
_NAME_CHARS: Final = 100
_PAGE: Final = 1000
_TRIES: Final = 20
#: How many tokens a server knows by their hash, and how many that it does not know it looks for in the store: in a
#: second, and at once.
_REMEMBERED: Final = 10_000
_LOOKS: Final = (50, 500)


class Token(msgspec.Struct, frozen=True):
    """A token as it is stored, without its secret. Times are Unix ms; 0: never."""

    id: str
    name: str
    hash: str
    scopes: tuple[str, ...]
    tenant: str = ""
    created_ms: int = 0
    created_by: str = ""
    expires_ms: int = 0
    revoked_ms: int = 0

    def valid(self, now_ms: int) -> bool:
        """Whether it opens anything now."""
        return not self.revoked_ms and not 0 < self.expires_ms <= now_ms

    def shown(self) -> dict[str, object]:
        """For a list: without its hash."""
        body = msgspec.to_builtins(self)
        del body["hash"]
        return {**body, "scopes": list(self.scopes)}


class Tokens:
    """The tokens of a store."""

    def __init__(self, documents: DocumentStore) -> None:
        self._documents = documents
        self._hashes: dict[str, str] = {}
        self._unknown = Rates(*_LOOKS)

    async def create(
        self,
        name: str,
        scopes: Sequence[str],
        *,
        tenant: str = "",
        expires_s: float | None = None,
        by: str = "",
    ) -> tuple[Token, str]:
        """A new token, and its text, which is stored nowhere. ``name`` is recorded as ``by`` of what it does.

        Raises ``SettingInvalid``.
        """
        if not name or not name.isprintable() or name != name.strip() or len(name) > _NAME_CHARS:
            raise SettingInvalid(
                f"{cut(name, 80)!r} is no name of a token", hint=f"1 to {_NAME_CHARS} printable characters: who uses it"
            )
        if expires_s is not None and expires_s <= 0:
            raise SettingInvalid("a token expires after more than 0 seconds", hint="leave it out: it does not expire")
        now_ms = _now_ms()
        secret = secrets.token_urlsafe(32)
        made = Token(
            id=f"t{secrets.token_hex(6)[:11]}",
            name=name,
            hash=_hash(secret),
            scopes=check_scopes(list(scopes)),
            tenant=tenant,
            created_ms=now_ms,
            created_by=by,
            expires_ms=0 if expires_s is None else now_ms + round(expires_s * 1000),
        )
        if await self._documents.write("token", Document(made.id, 0, msgspec.json.encode(made))) is None:
            raise StoreRefused("the id of the new token is taken", hint="try again")
        return made, f"saga_{made.id}_{secret}"

    async def list(self) -> Sequence[Token]:
        """All tokens, revoked ones as well, the oldest first."""
        found, after = [], ""
        while names := await self._documents.names("token", after, _PAGE):
            after = names[-1]
            for name in names:
                there = await self._documents.read("token", name)
                if there is not None:
                    found.append(_decoded(there))
        return sorted(found, key=lambda each: (each.created_ms, each.id))

    async def any(self) -> bool:
        """Whether there is a token that opens something now."""
        now_ms = _now_ms()
        return any(each.valid(now_ms) for each in await self.list())

    async def revoke(self, token_id: str) -> Token:
        """Revoke a token, by its id; the next request with it is refused. Raises ``TokenNotFound``."""
        for _ in range(_TRIES):
            there = await self._documents.read("token", token_id) if _ID.fullmatch(token_id) else None
            if there is None:
                raise TokenNotFound(f"there is no token {cut(token_id, 80)}", hint="`saga token list` shows their ids")
            token = _decoded(there)
            if token.revoked_ms:
                return token
            gone = msgspec.structs.replace(token, revoked_ms=_now_ms())
            if await self._documents.write("token", there._replace(body=msgspec.json.encode(gone))) is not None:
                return gone
        raise StoreRefused(f"token {token_id} is being changed by too many at once", hint="try again")

    async def valid(self, token_id: str) -> bool:
        """Whether a token opens something now."""
        there = await self._documents.read("token", token_id)
        return there is not None and _decoded(there).valid(_now_ms())

    async def identity(self, text: str) -> Identity | None:
        """Whom a token stands for; None if it opens nothing. It is read from the store each time."""
        match = _TOKEN.fullmatch(text)
        if match is None:
            return None
        token_id, given = match[1], _hash(match[2])
        known = self._hashes.get(token_id)
        if known is None:  # a flood of ids that nobody has must not cost the store as many reads
            wait_s = self._unknown.wait_s("")
            if wait_s:
                raise QuotaExceeded("too many tokens that are not known", hint="try again later", retry_after_s=wait_s)
        elif not hmac.compare_digest(known, given):
            return None  # the secret of an id never changes
        there = await self._documents.read("token", token_id)
        if there is None:
            return None
        token = _decoded(there)
        self._hashes[token_id] = token.hash
        if len(self._hashes) > _REMEMBERED:
            del self._hashes[next(iter(self._hashes))]
        if not hmac.compare_digest(token.hash, given):
            return None
        return _identity_of(token)

    async def known(self, token_id: str) -> Identity | None:
        """Whom the token with this id stands for, if it opens something; its bearer has been recognized otherwise."""
        there = await self._documents.read("token", token_id) if _ID.fullmatch(token_id) else None
        return None if there is None else _identity_of(_decoded(there))


def state_of(token: Token) -> str:
    """In a word: ``valid``, ``expired`` or ``revoked``."""
    return "revoked" if token.revoked_ms else "valid" if token.valid(_now_ms()) else "expired"


def _identity_of(token: Token) -> Identity | None:
    if not token.valid(_now_ms()):
        return None
    return Identity(token.name, frozenset(token.scopes), token.tenant, token.id)


def _decoded(document: Document) -> Token:
    return msgspec.json.decode(document.body, type=Token)


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def _now_ms() -> int:
    return machine_clock.time_ns() // 1_000_000
