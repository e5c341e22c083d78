"""Who is signed in to the console: a browser has a value of its own, which is no token and ends when it signs out."""

from __future__ import annotations

import hashlib
import secrets
from typing import Final

import msgspec

from saga_engine.errors import StoreRefused
from saga_engine.ports import Document, DocumentStore
from saga_engine.ports.machine_clock import machine_clock

#: How long a browser stays signed in.
LASTS_S: Final = 12 * 3600
#: Longer values are none.
_CHARS: Final = 64


class _SignedIn(msgspec.Struct):
    token_id: str
    ends_ms: int


class SignIns:
    """The browsers that are signed in, whatever server of a store they come to."""

    def __init__(self, documents: DocumentStore) -> None:
        self._documents = documents

    async def begin(self, token_id: str) -> str:
        """A value for the cookie of a browser. Only its hash is stored."""
        value = secrets.token_urlsafe(32)
        ends_ms = _now_ms() + LASTS_S * 1000
        body = msgspec.json.encode(_SignedIn(token_id, ends_ms))
        if await self._documents.write("request", Document(_name(value), 0, body), due_ms=ends_ms) is None:
            raise StoreRefused("the value of the new cookie is taken", hint="sign in again")
        return value

    async def token_id(self, value: str) -> str:
        """The token with which a browser signed in; empty: it has signed out, or its time is over."""
        there = await self._documents.read("request", _name(value)) if len(value) <= _CHARS else None
        if there is None:
            return ""
        found = msgspec.json.decode(there.body, type=_SignedIn)
        return found.token_id if _now_ms() < found.ends_ms else ""

    async def end(self, value: str) -> None:
        """Sign a browser out."""
        there = await self._documents.read("request", _name(value)) if len(value) <= _CHARS else None
        if there is not None:
            await self._documents.remove("request", there.name, there.revision)


def _name(value: str) -> str:
    return f"browser-{hashlib.sha256(value.encode('utf-8', 'surrogateescape')).hexdigest()[:40]}"


def _now_ms() -> int:
    return machine_clock.time_ns() // 1_000_000
