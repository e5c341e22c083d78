"""Stands before every handler: hosts, origins, sizes, times, tokens, rates, and the headers of every response."""

from __future__ import annotations

import asyncio
import ipaddress
from http.cookies import CookieError, SimpleCookie
from typing import Final
from urllib.parse import quote

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from saga_engine.errors import Forbidden, QuotaExceeded, RequestInvalid, SagaError, Unauthenticated
from saga_engine.hooks.links import PATH as LINKS
from saga_engine.listener import is_same_origin, split_host
from saga_engine.server.desk import Desk
from saga_engine.server.identity import ANYBODY, Identity
from saga_engine.server.problems import problem_response, unexpected_response

COOKIE: Final = "saga_token"
SIGN_IN: Final = "/ui/sign-in"
#: Paths that need no identity; what they need they check themselves.
_OPEN: Final = ("/healthz", "/readyz", "/v1/openapi.json", SIGN_IN)
_OPEN_FOLDERS: Final = ("/assets/", "/v1/in/", "/v1/callbacks/", LINKS)
_SAFE: Final = ("GET", "HEAD", "OPTIONS")
_LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")
_HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "font-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


class Guard:
    """ASGI middleware around the whole application."""

    def __init__(self, app: ASGIApp, desk: Desk) -> None:
        self._app = app
        self._desk = desk

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            if scope["type"] == "websocket":
                await receive()
                await send({"type": "websocket.close", "code": 1003})
                return
            await self._app(scope, receive, send)
            return
        begun = False

        async def sending(message: Message) -> None:
            nonlocal begun
            if message["type"] == "http.response.start":
                begun = True
                _add_headers(message)
            await send(message)

        try:
            body = self._checked(scope, receive)
            answer = await self._admitted(scope)
            if answer is not None:
                await answer(scope, body, sending)
                return
            await self._app(scope, body, sending)
        except ClientDisconnect:
            return  # nobody is left to answer, and nothing has failed
        except SagaError as error:
            if begun:
                raise
            await problem_response(error)(scope, receive, sending)
        except Exception as error:
            if begun:
                raise
            await unexpected_response(error)(scope, receive, sending)

    def _checked(self, scope: Scope, receive: Receive) -> _Body:
        """What is checked without the store."""
        headers = Headers(scope=scope)
        settings = self._desk.settings
        host = headers.get("host", "")
        if len(headers.getlist("host")) != 1 or not self._serves(host):
            raise Forbidden(f"this server is not {host[:120]!r}", hint="allowed_hosts of [server] names its hosts")
        if scope["method"] not in _SAFE:
            self._require_origin(headers, host)
        length = headers.get("content-length", "0")
        if not length.isascii() or not length.isdecimal():
            raise RequestInvalid("the content length is no number", where="content-length")
        if int(length) > settings.max_body_bytes:
            raise _too_large(settings.max_body_bytes)
        return _Body(receive, settings.max_body_bytes, settings.request_timeout_s)

    def _serves(self, host: str) -> bool:
        found = split_host(host)
        if found is None:
            return False
        name, settings = found[0].strip("[]"), self._desk.settings
        if name in (*_LOOPBACK, settings.host.lower(), *(each.lower() for each in settings.allowed_hosts)):
            return True
        public = split_host(settings.public_url.partition("://")[2].partition("/")[0])
        if public is not None and name == public[0].strip("[]"):
            return True
        if settings.links is not None and name == settings.links.host.lower():
            return True
        try:
            ipaddress.ip_address(name)  # no name of somebody else's site leads here then
        except ValueError:
            return False
        return not settings.on_loopback

    def _require_origin(self, headers: Headers, host: str) -> None:
        """A page of another site must not act with what the browser adds by itself."""
        origin = headers.get("origin")
        site = headers.get("sec-fetch-site")
        own = origin is not None and is_same_origin(origin, host)
        if own or (origin is not None and origin in self._desk.settings.allowed_origins):
            return
        if origin is not None or site in ("cross-site", "same-site"):
            raise Forbidden("this request comes from a page of another site", hint="allowed_origins of [server]")

    async def _admitted(self, scope: Scope) -> Response | None:
        """Find out who calls, and count it; a response if it is answered already."""
        path, headers = scope["path"], Headers(scope=scope)
        desk = self._desk
        address = (scope.get("client") or ("", 0))[0]
        free = path in _OPEN or path.startswith(_OPEN_FOLDERS)
        identity = None
        if desk.settings.auth == "none":
            identity = ANYBODY
        elif (given := _given(headers)) is not None:
            text, via = given
            identity = await self._known(text, via, address)
            if via == "cookie" and scope["method"] not in _SAFE and not _from_page(headers):
                raise Forbidden("a cookie acts only for a page of this server", hint="send the token as a header")
        if identity is None:
            _require_room(desk.strangers.wait_s(address))
            if not free:
                if _wants_page(scope, headers):
                    target = path + (f"?{scope['query_string'].decode('latin-1')}" if scope["query_string"] else "")
                    return RedirectResponse(f"{SIGN_IN}?next={quote(target, safe='')}", 303)
                raise Unauthenticated(
                    "this needs a valid token",
                    hint="send 'Authorization: Bearer TOKEN'; `saga token create` makes one",
                )
        else:
            _require_room(desk.rates.wait_s(identity.token_id or identity.who))
        scope["saga.identity"] = identity
        return None

    async def _known(self, text: str, via: str, address: str) -> Identity | None:
        """Whom a token stands for; a wrong one costs its sender more than a right one."""
        _require_room(self._desk.strangers.wait_s(address, 0.0))
        if self._desk.oidc is not None and via == "token" and text.count(".") == 2:
            try:
                return await self._desk.oidc.identity(text)
            except Unauthenticated:
                _require_room(self._desk.strangers.wait_s(address))
                raise
        return await (self._desk.signed_in(text) if via == "cookie" else self._desk.tokens.identity(text))


def _given(headers: Headers) -> tuple[str, str] | None:
    """The token that the request has, and where."""
    said = headers.get("authorization")
    if said is not None:
        kind, _, text = said.partition(" ")
        return (text.strip(), "token") if kind.lower() == "bearer" else ("", "token")
    try:
        found = SimpleCookie(headers.get("cookie", "")).get(COOKIE)
    except CookieError:
        return None
    return None if found is None else (found.value, "cookie")


def _from_page(headers: Headers) -> bool:
    """Whether the browser says that the request comes from a page of this server."""
    return "origin" in headers or headers.get("sec-fetch-site") == "same-origin"


def _wants_page(scope: Scope, headers: Headers) -> bool:
    return (
        scope["method"] in _SAFE and not scope["path"].startswith("/v1/") and "text/html" in headers.get("accept", "")
    )


def _require_room(wait_s: float) -> None:
    if wait_s:
        raise QuotaExceeded("too many requests", hint="slow down", retry_after_s=wait_s)


def _add_headers(message: Message) -> None:
    headers = MutableHeaders(scope=message)
    for name, value in _HEADERS.items():
        headers.setdefault(name, value)
    headers.setdefault("Cache-Control", "no-store")


def _too_large(limit: int) -> RequestInvalid:
    return RequestInvalid(f"the body has more than {limit} bytes", status=413, where="body")


class _Body:
    """Reads a request's body: so many bytes, within so many seconds."""

    def __init__(self, receive: Receive, limit: int, seconds: float) -> None:
        self._receive = receive
        self._left = self._limit = limit
        self._until = asyncio.get_running_loop().time() + seconds
        self._whole = False

    async def __call__(self) -> Message:
        if self._whole:
            return await self._receive()
        try:
            async with asyncio.timeout_at(self._until):
                message = await self._receive()
        except TimeoutError:
            raise RequestInvalid("the request did not arrive in time", status=408, where="body") from None
        if message["type"] == "http.request":
            self._left -= len(message.get("body", b""))
            self._whole = not message.get("more_body", False)
            if self._left < 0:
                raise _too_large(self._limit)
        return message
