"""Signing in to the console: the cookie of a browser, which scripts cannot read and other sites cannot send."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from saga_engine.server.bodies import form_of
from saga_engine.server.desk import Desk
from saga_engine.server.guard import COOKIE, SIGN_IN
from saga_engine.server.sessions import LASTS_S


def signin_routes(desk: Desk) -> list[BaseRoute]:
    """The handlers of the two forms; the pages are the console's."""

    async def sign_in(request: Request) -> Response:
        fields = await form_of(request)
        text = fields.get("token", "").strip()
        found = await desk.tokens.identity(text)
        if found is None:
            return RedirectResponse(f"{SIGN_IN}?wrong=1", 303)
        value = await desk.sign_ins.begin(found.token_id)
        answer = RedirectResponse(own_path(fields.get("next", "/")), 303)
        secure = desk.by_https(request)
        answer.set_cookie(COOKIE, value, max_age=LASTS_S, path="/", secure=secure, httponly=True, samesite="strict")
        return answer

    async def sign_out(request: Request) -> Response:
        await desk.sign_ins.end(request.cookies.get(COOKIE, ""))
        answer = RedirectResponse(SIGN_IN, 303)
        answer.delete_cookie(COOKIE, path="/", httponly=True, samesite="strict")
        return answer

    return [Route(SIGN_IN, sign_in, methods=["POST"]), Route("/ui/sign-out", sign_out, methods=["POST"])]


def own_path(target: str) -> str:
    """A path of this server; ``/`` for what could lead elsewhere."""
    leads_here = target.startswith("/") and not target.startswith(("//", "/\\")) and target.isprintable()
    return target if leads_here and "\\" not in target else "/"
