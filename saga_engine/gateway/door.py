"""The door of the gateway over HTTP: who may come in, and for which saga. It lets no request through unchecked."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import ipaddress
import re
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any, Final
from urllib.parse import urlsplit

from saga_engine.errors import PlanInvalid, Problem, QuotaExceeded, RequestInvalid, SettingInvalid
from saga_engine.execution.aside import Allowance, allowing
from saga_engine.execution.ids import check_saga_id
from saga_engine.execution.incoming import require_few_values
from saga_engine.gateway.visit import KEY, Visit
from saga_engine.listener import split_host
from saga_engine.listener.limits import CHECK_S, readings
from saga_engine.loggers import logger_of
from saga_engine.plan.values import printable

_log = logger_of("saga_engine.gateway")

Scope = dict[str, Any]
Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[Mapping[str, Any]], Awaitable[None]]

#: The path of the protocol; the id of a saga may follow it.
PATH: Final = "/mcp"
#: A shorter token could be guessed.
MIN_TOKEN_CHARS: Final = 16
_TOKEN: Final = re.compile(r"[A-Za-z0-9._~+/-]+=*")
#: So many requests of one token, or of one saga without one, are answered at a time: others have room beside them.
MAX_REQUESTS_EACH: Final = 500
#: The largest request, and how many values it may have: the SDK decodes it on the event loop.
MAX_BODY_BYTES: Final = 4 * 2**20
MAX_VALUES: Final = 100_000
#: Ids of a gateway's later sagas end so.
_NUMBERED: Final = re.compile(r"\.\d+$")
_LOCAL: Final = frozenset({"localhost", "127.0.0.1", "[::1]"})


@dataclass(frozen=True, slots=True)
class Token:
    """A token's digest. ``saga``: the only saga that it is for; empty: any."""

    digest: bytes
    saga: str = ""


def tokens_in(text: str, source: str) -> list[Token]:
    """The tokens of a file: a line is ``TOKEN``, or ``ID TOKEN`` for one saga alone. Raises ``SettingInvalid``."""
    found: list[Token] = []
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        if len(words) > 2:
            raise SettingInvalid(f"line {number} of {source} is no token", hint="a line is TOKEN, or ID TOKEN")
        found.append(_token(words[-1], words[0] if words[1:] else "", f"line {number} of {source}"))
    if not found:
        raise SettingInvalid(f"{source} has no token", hint="a line is TOKEN, or ID TOKEN")
    return found


def _token(token: str, saga: str, source: str) -> Token:
    if len(token) < MIN_TOKEN_CHARS or not _TOKEN.fullmatch(token):
        raise SettingInvalid(
            f"the token in {source} is too short, or has characters that a token cannot have",
            hint="make one: python -c 'import secrets; print(secrets.token_urlsafe(32))'",
        )
    if saga:
        try:
            _checked(saga)
        except PlanInvalid as error:
            raise SettingInvalid(f"{source} names no saga", hint=error.problems[0].message) from None
    return Token(_hashed(token), saga)


def _hashed(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()


def _checked(saga: str) -> str:
    """The id of a gateway. Raises ``PlanInvalid``, also for one that a gateway gives to its later sagas."""
    if _NUMBERED.search(saga):
        said = f"{saga[:80]!r} ends in a dot and a number, as the ids of a gateway's later sagas do"
        raise PlanInvalid([Problem("field-invalid", "id", said, "leave the number out")])
    return check_saga_id(saga, "id")


def is_loopback(host: str) -> bool:
    """Whether nobody on another machine reaches this address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def hosts_for(host: str, allowed: Iterable[str]) -> frozenset[str]:
    """The values of ``Host``, without the port, that a client of this address may send. Raises ``SettingInvalid``."""
    named = {_bracketed(each.strip().lower()) for each in allowed}
    if host == "localhost" or is_loopback(host):
        return frozenset(_LOCAL | named | {_bracketed(host)})
    try:
        is_any = ipaddress.ip_address(host).is_unspecified
    except ValueError:
        is_any = False
    if is_any and not named:
        raise SettingInvalid(
            f"{host} is every address of this machine, and no name of it is known",
            hint="name those that clients use: --allow-host gateway.example.com",
        )
    return frozenset(named if is_any else named | {_bracketed(host.lower())})


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host and not host.startswith("[") else host


def _host_of(netloc: str) -> str:
    """A host with its port, without the port."""
    if netloc.startswith("["):
        return netloc.partition("]")[0].lower() + "]"
    return netloc.partition(":")[0].lower()


class Door:
    """An ASGI application around another one. ``own``: the saga of requests that name none."""

    def __init__(
        self,
        inner: Callable[[Scope, Receive, Send], Awaitable[None]],
        *,
        own: str,
        tokens: Iterable[Token] = (),
        hosts: frozenset[str],
        has_sagas: bool = True,
    ) -> None:
        self._inner = inner
        self._own = own
        self._tokens = [*tokens]
        self._hosts = hosts
        self._has_sagas = has_sagas
        self._open: Counter[str | bytes] = Counter()
        self._readings = readings()
        self.closed = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            return
        headers = _Headers(scope)
        status, said = self._refused(headers)
        if status:
            await _answer(send, status, said)
            return
        token = self._known(headers.get("authorization"))
        if self._tokens and token is None:
            _log.info("a request without a valid token was refused")
            await _answer(send, 401, "a bearer token is needed", {"www-authenticate": 'Bearer realm="saga"'})
            return
        saga = self._saga(scope["path"], token)
        if saga is None:
            await _answer(send, 404, f"there is nothing at this path; the gateway is at {PATH}")
            return
        if self.closed:
            await _answer(send, 503, "the gateway stops", {"retry-after": "5"})
            return
        caller = saga if token is None else token.digest
        if self._open[caller] >= MAX_REQUESTS_EACH:
            await _answer(send, 429, f"{MAX_REQUESTS_EACH} requests of this agent are open", {"retry-after": "5"})
            return
        self._open[caller] += 1
        try:
            await self._enter(saga, str(caller), scope, receive, send)
        finally:
            self._open[caller] -= 1
            if not self._open[caller]:
                del self._open[caller]

    async def _enter(self, saga: str, caller: str, scope: Scope, receive: Receive, send: Send) -> None:
        visit = Visit(saga)
        answered = False
        came = await _body_of(receive) if scope["method"] == "POST" else deque()
        if came is None:
            return
        try:
            body = b"".join(message.get("body", b"") for message in came)
            with allowing(CHECK_S, partial(self._reading, caller, receive)):
                await require_few_values(body, MAX_VALUES)
        except RequestInvalid as error:
            await _answer(send, error.context.get("status", 413), error.message)
            return
        except QuotaExceeded as error:
            await _answer(send, 429, error.message, {"retry-after": "5"})
            return
        del body

        async def received() -> dict[str, Any]:
            message = came.popleft() if came else await receive()
            if message["type"] == "http.disconnect" and not answered:
                visit.gone.set()
            return message

        async def sent(message: Mapping[str, Any]) -> None:
            nonlocal answered
            await send(message)
            if message["type"] == "http.response.body" and not message.get("more_body", False):
                answered = True

        await self._inner({**scope, KEY: visit}, received, sent)

    @contextmanager
    def _reading(self, caller: str, receive: Receive, allowance: Allowance, first: bool) -> Iterator[None]:
        """Around each work beside the loop, as in the HTTP API: it is counted, and given up when the caller leaves.

        The body was read before, so nothing but the end can come.
        """
        leaving = asyncio.ensure_future(receive())
        leaving.add_done_callback(lambda ended: None if ended.cancelled() or ended.exception() else allowance.give_up())
        try:
            with self._readings.taken(caller) if first else nullcontext():
                yield
        finally:
            leaving.cancel()

    def _refused(self, headers: _Headers) -> tuple[int, str]:
        """A page of the web that a browser was led to (DNS rebinding) has another host or origin."""
        host = headers.get("host")
        if host is None or split_host(host) is None or _host_of(host) not in self._hosts:
            _log.warning("a request for the host %s was refused", printable(host or "none", 100))
            return 421, "this host is not served; --allow-host names one"
        origin = headers.get("origin")
        if origin is not None and _origin_host(origin) not in self._hosts:
            _log.warning("a request of a page of %s was refused", printable(origin, 100))
            return 403, "pages of this origin are not served"
        return 0, ""

    def _known(self, authorization: str | None) -> Token | None:
        kind, _, given = (authorization or "").partition(" ")
        digest = _hashed(given.strip() if kind.lower() == "bearer" else "")
        found = None
        for token in self._tokens:  # all of them: the time tells nothing
            if hmac.compare_digest(token.digest, digest):
                found = token
        return found

    def _saga(self, path: str, token: Token | None) -> str | None:
        """The saga that a request is for; None: there is none, or its token is for another one."""
        head, _, named = path.removeprefix(PATH).partition("/")
        if not path.startswith(PATH) or head or (named and not self._has_sagas):
            return None
        bound = "" if token is None else token.saga
        if not named:
            return bound or self._own
        if bound and named != bound:
            return None
        try:
            return _checked(named)
        except PlanInvalid:
            return None


class _Headers:
    """The headers of a request; a repeated one has no value that could be trusted."""

    def __init__(self, scope: Scope) -> None:
        self._found: dict[str, str | None] = {}
        for name, value in scope["headers"]:
            key = name.decode("latin-1").lower()
            self._found[key] = None if key in self._found else value.decode("latin-1")

    def get(self, name: str) -> str | None:
        return "" if name in self._found and self._found[name] is None else self._found.get(name)


def _origin_host(origin: str) -> str:
    try:
        return _host_of(urlsplit(origin).netloc)
    except ValueError:
        return ""


async def _body_of(receive: Receive) -> deque[dict[str, Any]] | None:
    """The parts of a request; None: its client has left in the middle, which is nothing that has failed.

    Of one that is too large there are as many as say so.
    """
    parts: deque[dict[str, Any]] = deque()
    size = 0
    while True:
        message = await receive()
        if message["type"] != "http.request":
            return None
        parts.append(message)
        size += len(message.get("body", b""))
        if not message.get("more_body", False) or size > MAX_BODY_BYTES:
            return parts


async def _answer(send: Send, status: int, said: str, headers: Mapping[str, str] | None = None) -> None:
    body = said.encode() + b"\n"
    listed = {"content-type": "text/plain; charset=utf-8", "content-length": str(len(body)), **(headers or {})}
    raw = [(name.encode(), value.encode()) for name, value in listed.items()]
    await send({"type": "http.response.start", "status": status, "headers": raw})
    await send({"type": "http.response.body", "body": body})
