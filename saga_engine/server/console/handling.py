"""What is common to the console's handlers: who looks and how, the keys of forms, errors as pages, the static files."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Final
from urllib.parse import urlencode, urlsplit

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from saga_engine.api.stops import ALL, stops
from saga_engine.errors import RequestInvalid, SagaError
from saga_engine.language import LANGUAGES
from saga_engine.server.bodies import LARGE_FORM_BYTES, form_of
from saga_engine.server.console.deciding import error_page
from saga_engine.server.console.frame import THEMES, Frame
from saga_engine.server.console.html import Html, local_path
from saga_engine.server.console.words import Words, language_of
from saga_engine.server.identity import SCOPES
from saga_engine.server.problems import status_of, without_address

if TYPE_CHECKING:
    from saga_engine.api import Coordinator
    from saga_engine.server.desk import Desk
    from saga_engine.server.identity import Identity

Handler = Callable[[Request], Awaitable[Response]]

_LANGUAGE: Final = "saga_language"
_THEME: Final = "saga_theme"
#: A secret of this browser from which the keys of its forms are made.
_FORMS: Final = "saga_forms"
#: So many sagas that ask are counted.
_MOST_ASKING: Final = 100
_YEAR_S: Final = 365 * 24 * 3600
_ASSETS: Final = {"console.css": "text/css", "console.js": "text/javascript", "icon.svg": "image/svg+xml"}
#: What a page may say after a form: the address names one of these, never a text.
_SAID: Final = frozenset(
    {
        "answered",
        "batch",
        "cancelled",
        "undoing",
        "nothing-to-undo",
        "stopped",
        "lifted",
        "started",
        "schedule",
        "gone",
        "none-chosen",
    }
)


class OldPage(RequestInvalid):
    """A form whose key is not of this browser: it was sent by another site, or the page is old."""


class Handling:
    """Draws the frame of pages for one server."""

    def __init__(self, desk: Desk) -> None:
        self.desk = desk

    def frame(self, request: Request) -> Frame:
        """The frame of a page that needs no identity."""
        words = Words(language_of(request.cookies.get(_LANGUAGE), request.headers.get("accept-language", "")))
        theme = request.cookies.get(_THEME, "auto")
        here = request.url.path + (f"?{request.url.query}" if request.url.query else "")
        said = request.query_params.get("said", "")
        return Frame(
            words=words,
            theme=theme if theme in THEMES else "auto",
            here=_without_said(here),
            form_key=_form_key(_secret(request)),
            said=("ok", words(f"said.{said}")) if said in _SAID else None,
            may=frozenset(),
        )

    async def whole_frame(self, request: Request, scope: str = "read") -> tuple[Frame, Coordinator, Identity]:
        """The frame of a page, its engine and its reader. Raises ``Unauthenticated`` and ``Forbidden``."""
        identity = self.desk.require(request, scope)
        engine = self.desk.engine(request)
        asking = await engine.search(asks=True, limit=_MOST_ASKING)
        held = await stops(engine.store)
        return (
            replace(
                self.frame(request),
                who="" if identity.via == "open" else identity.who,
                may=frozenset(each for each in SCOPES if identity.may(each)),
                asking=sum(len(head.told().get("questions") or "1") for head in asking.sagas),
                stopped=any(each.scope == ALL for each in held),
            ),
            engine,
            identity,
        )

    def answer(self, request: Request, page: Html, status: int = 200) -> Response:
        """A page as a response."""
        made = Response(page, status, media_type="text/html")
        made.headers["Vary"] = "Cookie, Accept-Language"
        if _FORMS not in request.cookies:
            self._set(request, made, _FORMS, _secret(request), None, lax=False)
        return made

    async def fields(self, request: Request) -> dict[str, str]:
        """The fields of a form of this browser. Raises ``OldPage`` for any other."""
        found = await form_of(request, most=LARGE_FORM_BYTES)
        known = request.cookies.get(_FORMS, "")
        if not known or not hmac.compare_digest(found.get("form_key", "").encode(), _form_key(known).encode()):
            raise OldPage("this form does not come from a page of this browser", status=403, where="form_key")
        return found

    def back(self, fields: dict[str, str], said: str, otherwise: str) -> Response:
        """Back to the page that the form was on, which says what became of it."""
        return RedirectResponse(_saying(local_path(fields.get("next", ""), otherwise), said), 303)

    def handled(self, handler: Handler) -> Handler:
        """The handler with its errors as pages."""

        async def handle(request: Request) -> Response:
            try:
                return await handler(request)
            except SagaError as error:
                frame = self.frame(request)
                what = (
                    frame.words("said.old-page")
                    if isinstance(error, OldPage)
                    else frame.words.refused(error, without_address(error.message))
                )
                page = error_page(
                    frame, code=error.code, what=what, hint="" if isinstance(error, OldPage) else error.hint or ""
                )
                return self.answer(request, page, status_of(error))

        return handle

    # --- the switches and the static files ---------------------------------------------------------------------------

    async def prefer(self, request: Request) -> Response:
        """Remember a language or a theme in this browser."""
        fields = await self.fields(request)
        made = RedirectResponse(local_path(fields.get("next", ""), "/ui/sagas"), 303)
        if fields.get("language") in LANGUAGES:
            self._set(request, made, _LANGUAGE, fields["language"], _YEAR_S, lax=True)
        elif fields.get("theme") in THEMES:
            self._set(request, made, _THEME, fields["theme"], _YEAR_S, lax=True)
        return made

    def _set(
        self, request: Request, answer: Response, name: str, value: str, seconds: int | None, *, lax: bool
    ) -> None:
        site = "lax" if lax else "strict"
        secure = self.desk.by_https(request)
        answer.set_cookie(name, value, max_age=seconds, path="/", secure=secure, httponly=True, samesite=site)  # type: ignore[arg-type]

    def routes(self) -> list[BaseRoute]:
        """The routes of switches and static files."""
        return [
            Route("/ui/preferences", self.handled(self.prefer), methods=["POST"]),
            *(Route(f"/assets/{name}", _asset(name, media), methods=["GET"]) for name, media in _ASSETS.items()),
        ]


def _asset(name: str, media: str) -> Handler:
    async def serve(request: Request) -> Response:
        body, tag = _read(name)
        headers = {"ETag": tag, "Cache-Control": "no-cache"}
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers=headers)
        return Response(body, media_type=media, headers=headers)

    return serve


@cache
def _read(name: str) -> tuple[bytes, str]:
    body = files("saga_engine.server.console").joinpath("assets", name).read_bytes()
    return body, f'"{hashlib.sha256(body).hexdigest()[:20]}"'


def _secret(request: Request) -> str:
    """The secret of the browser; a new one is the same for the whole request."""
    known = request.cookies.get(_FORMS) or getattr(request.state, "forms", None)
    if known is None:
        known = request.state.forms = secrets.token_urlsafe(24)
    return str(known)


def _form_key(secret: str) -> str:
    return hashlib.sha256(f"saga console form\0{secret}".encode()).hexdigest()[:40]


def _without_said(address: str) -> str:
    parts = urlsplit(address)
    kept = "&".join(each for each in parts.query.split("&") if each and not each.startswith("said="))
    return f"{parts.path}?{kept}" if kept else parts.path


def _saying(address: str, said: str) -> str:
    plain = _without_said(address)
    return f"{plain}{'&' if '?' in plain else '?'}{urlencode({'said': said})}"
