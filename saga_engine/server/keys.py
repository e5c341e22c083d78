"""Idempotency keys of requests: what was done under a key is not done again, and its answer is given again.

A key is claimed in the store before its request acts, and the answer is remembered there afterwards. A server that is
killed between the two leaves a claim without an answer: the request acts again then, under the ids that its key gives
to all that it makes, so that the store and the sagas know it again.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

import msgspec

from saga_engine.errors import KeyReused, RequestInvalid, SagaError, StoreRefused
from saga_engine.loggers import logger_of
from saga_engine.ports import Document, DocumentStore
from saga_engine.ports.machine_clock import machine_clock
from saga_engine.server.identity import Identity
from saga_engine.server.problems import status_of

_log = logger_of("saga_engine.server")

KEY_CHARS: Final = 255
_KEEP_MS: Final = 24 * 3600 * 1000
#: A longer answer is not remembered: its request acts again, which changes nothing.
_MOST_BYTES: Final = 256 * 1024
_AT_ONCE: Final = 100
_TRIES: Final = 20


@dataclass(frozen=True, slots=True)
class Answer:
    """A response with a JSON body; None: without a body. ``saga_id``: the body is this saga, as it is now."""

    body: Any
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    saga_id: str = ""


class _Claim(msgspec.Struct):
    """``request``: the digest of what is asked. ``status`` 0: nothing is remembered yet."""

    request: str
    nonce: str
    status: int = 0
    body: Any = None
    headers: dict[str, str] = {}
    saga_id: str = ""


@dataclass(frozen=True, slots=True)
class Keyed:
    """The key of one request. ``id``: what the things that it makes are called after; empty: it has no key.

    ``repeated``: the same request came before, and may have acted.
    """

    id: str = ""
    repeated: bool = False


NO_KEY: Final = Keyed()


def checked_key(key: str) -> str:
    """Raises ``RequestInvalid``."""
    if not 1 <= len(key) <= KEY_CHARS or not key.isascii() or not key.isprintable() or " " in key:
        raise RequestInvalid(
            f"an idempotency key is 1 to {KEY_CHARS} printable ASCII characters without spaces", where="idempotency-key"
        )
    return key


def hashed(*parts: str) -> str:
    """A name for what these texts say."""
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:40]


class Keys:
    """The keys of a store's servers."""

    def __init__(self, documents: DocumentStore) -> None:
        self._documents = documents

    async def once(
        self, identity: Identity, key: str, request: str, act: Callable[[Keyed], Awaitable[Answer]]
    ) -> tuple[Answer, bool]:
        """The answer of ``act``, or the one that is remembered; and whether it is that.

        ``request``: the digest of the request. Raises ``KeyReused`` if the key stands for another one, and what
        ``act`` raises: what is refused is not remembered, and its key is free again.
        """
        whose = (identity.tenant, identity.token_id or identity.who, checked_key(key))
        name = hashed(*whose)
        there, repeated = await self._claimed(name, request)
        claim = msgspec.json.decode(there.body, type=_Claim)
        if claim.request != request:
            raise KeyReused(
                "this idempotency key was used for another request", hint="take a new key for each request, for a day"
            )
        if claim.status:
            return Answer(claim.body, claim.status, claim.headers, claim.saga_id), True
        try:
            answer = await act(Keyed(f"key-{hashed(*whose, request)}", repeated))
        except SagaError as error:
            if not repeated and status_of(error) < 500:
                await self._documents.remove("request", name, there.revision)
            raise
        await self._remember(there, claim, answer)
        return answer, False

    async def _claimed(self, name: str, request: str) -> tuple[Document, bool]:
        """The claim of a key, and whether it was there already."""
        body = msgspec.json.encode(_Claim(request, secrets.token_hex(8)))
        for _ in range(_TRIES):
            there = await self._documents.read("request", name)
            if there is not None:
                return there, True
            made = await self._documents.write("request", Document(name, 0, body), due_ms=_now_ms() + _KEEP_MS)
            if made is not None:
                return made, False
        raise StoreRefused("the idempotency key is being used by too many at once", hint="try again")

    async def _remember(self, there: Document, claim: _Claim, answer: Answer) -> None:
        claim.status, claim.headers, claim.saga_id = answer.status, dict(answer.headers), answer.saga_id
        claim.body = None if answer.saga_id else answer.body
        body = msgspec.json.encode(claim, enc_hook=str)
        if len(body) > _MOST_BYTES:
            return
        try:
            await self._documents.write("request", there._replace(body=body), due_ms=_now_ms() + _KEEP_MS)
        except SagaError as error:
            _log.warning("an answer is not remembered; its request acts again under its key: %s", error)

    async def sweep(self) -> None:
        """Forget keys of yesterday."""
        for name in (await self._documents.due("request", _AT_ONCE)).names:
            there = await self._documents.read("request", name)
            if there is not None:
                await self._documents.remove("request", name, there.revision)


def shown_again(answer: Answer, body: Any) -> Answer:
    """The answer, with its saga as it is now."""
    return replace(answer, body=body)


def _now_ms() -> int:
    return machine_clock.time_ns() // 1_000_000
