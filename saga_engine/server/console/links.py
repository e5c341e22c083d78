"""The page of a link that was sent with a question: a GET shows what is asked, and only its form decides.

Mail scanners, previews of chats and impatient browsers open links by themselves. So a link that is opened changes
nothing, however often; its page has the one button that gives the answer, and says who was first if it is too late.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from saga_engine.errors import DecisionRefused, Forbidden, SagaError, SagaNotFound, SignatureInvalid
from saga_engine.hooks.links import PATH, Link, Links
from saga_engine.ports.machine_clock import machine_clock
from saga_engine.server import acts, views
from saga_engine.server.bodies import form_of
from saga_engine.server.console.frame import Frame, bare_page, facts, moment
from saga_engine.server.console.handling import Handler, Handling
from saga_engine.server.console.html import Html, Part, tag
from saga_engine.server.console.questions import GRAVE, MAIN, known_facts, outlook
from saga_engine.server.identity import Identity
from saga_engine.server.keys import hashed
from saga_engine.server.problems import status_of, without_address

if TYPE_CHECKING:
    from saga_engine.server.desk import Desk

#: What the page leaves out: it is read by whoever has the link.
_NOT_SHOWN: Final = ("standing", "probe")
_NOTE_CHARS: Final = 500


class _Asked(NamedTuple):
    """A link, its question as it is now (None: it is closed), and the answer that was given."""

    link: Link
    question: Mapping[str, Any] | None
    first: views.Answered | None

    @property
    def expired(self) -> bool:
        """Whether the link is too old."""
        return self.link.ends_ms <= machine_clock.time_ns() // 1_000_000

    @property
    def mark(self) -> str:
        """The mark of what follows from the link's answer."""
        follows = {} if self.question is None else self.question.get("outlooks", {})
        return str(follows.get(self.link.option, {}).get("mark", ""))

    @property
    def about(self) -> str:
        """What the page shows: the call, and what follows from the answer. A page that shows another one is old."""
        return f"{'' if self.question is None else self.question.get('call') or ''}{self.mark}"

    @property
    def open(self) -> bool:
        """Whether the link's answer can be given now."""
        asked = self.question is not None and self.link.option in self.question["options"]
        return asked and self.first is None and not self.expired


class LinkPages(Handling):
    """The two handlers of links."""

    def __init__(self, desk: Desk, links: Links) -> None:
        super().__init__(desk)
        self._links = links

    async def show(self, request: Request) -> Response:
        """What is asked, or who has answered. Nothing changes."""
        frame, token = self.frame(request), request.path_params["token"]
        asked = await self._asked(token)
        return _page(self._drawn(frame, token, asked), _status(asked))

    async def decide(self, request: Request) -> Response:
        """Give the link's answer: to the question that the page showed, once."""
        frame, token = self.frame(request), request.path_params["token"]
        fields = await form_of(request)
        asked = await self._asked(token)
        if not asked.open or asked.question is None:
            return _page(self._drawn(frame, token, asked), _status(asked))
        link = asked.link
        if not self._links.fits_page(fields.get("page", ""), token, asked.about):
            return _page(self._drawn(frame, token, asked, frame.words("said.old-page")), 403)
        identity = Identity(link.by, frozenset({"resolve"}), link.tenant, via="link")
        step, note = str(asked.question["step_id"]), fields.get("note", "")[:_NOTE_CHARS]
        key = f"key-{hashed('link', token)}"
        try:
            await acts.resolve(
                self.desk,
                identity,
                link.saga_id,
                step,
                link.option,
                note=note,
                key=key,
                question=link.question_id,
                expect=asked.mark,
            )
        except DecisionRefused as error:
            asked = await self._asked(token)
            told = self.frame(request).words.refused(error)
            said = "" if asked.first is not None else f"{told}. {error.hint or ''}"
            return _page(self._drawn(frame, token, asked, said), 409)
        return RedirectResponse(f"{PATH}{token}", 303)

    async def _asked(self, token: str) -> _Asked:
        """Raises ``SignatureInvalid``, and ``SagaNotFound`` for a saga that is gone."""
        link = self._links.read(token)
        engine = self.desk.engine_of_tenant(link.tenant)
        await views.require_same(engine, link.saga_id, link.identity)
        listed = views.questions_of((await engine.show(link.saga_id)).to_dict(full=False))
        # Afterwards: what closed the question in between is found.
        first = await views.first_answer(engine, link.saga_id, link.question_id)
        found = next((each for each in listed if each["question_id"] == link.question_id), None)
        return _Asked(link, found, first)

    def _drawn(self, frame: Frame, token: str, asked: _Asked, said: str = "") -> Html:
        words, link, question = frame.words, asked.link, asked.question
        head = str(question.get("text") or "") if question is not None and question["kind"] == "ask" else ""
        if question is not None and not head:
            head = words.asks(question)
        parts: list[Part] = [tag("h1", {"class": "asked"}, head[:2000] or words("link.title"))]
        if said:
            parts.append(tag("div", {"class": "said error", "role": "alert"}, said))
        if asked.first is not None:
            parts.append(_answered(frame, asked.first, link))
        elif question is None:
            parts.append(tag("div", {"class": "said", "id": "state"}, words("said.gone")))
        elif asked.expired:
            parts.append(tag("div", {"class": "said error", "id": "state"}, words("link.expired")))
        parts.append(_about(frame, link, question))
        if asked.open and question is not None:
            key = self._links.page_key(token, asked.about)
            parts.append(_form(frame, f"{PATH}{token}", link, question, key))
        return bare_page(frame, words("link.title"), tag("article", {"class": "card question"}, parts))

    def handled_link(self, handler: Handler) -> Handler:
        """The handler, whose errors are pages without a way into the console."""

        async def handle(request: Request) -> Response:
            try:
                return await handler(request)
            except SagaError as error:
                frame = self.frame(request)
                wrong = isinstance(error, SignatureInvalid | SagaNotFound | Forbidden)
                said = (
                    frame.words("link.wrong")
                    if wrong
                    else frame.words.refused(error, without_address(error.message))[:500]
                )
                return _page(
                    bare_page(
                        frame,
                        frame.words("link.title"),
                        tag("h1", None, frame.words("link.title")),
                        tag("div", {"class": "said error", "role": "alert"}, tag("code", None, error.code), " ", said),
                    ),
                    status_of(error),
                )

        return handle

    def routes(self) -> list[BaseRoute]:
        """The page of a link, and its form."""
        path = f"{PATH}{{token}}"
        return [
            Route(path, self.handled_link(self.show), methods=["GET"]),
            Route(path, self.handled_link(self.decide), methods=["POST"]),
        ]


def link_routes(desk: Desk) -> list[BaseRoute]:
    """The routes of links; none without ``[escalation.links]``."""
    links = desk.settings.links
    return [] if links is None else LinkPages(desk, links).routes()


def _status(asked: _Asked) -> int:
    """200 while the answer can be given or was given through this link; else what stands against it."""
    if asked.first is not None:
        return 200 if asked.first.by == asked.link.by else 409
    if asked.question is None:
        return 409
    return 410 if asked.expired else 200


def _page(page: Html, status: int) -> Response:
    """The page: no search engine lists it, and no cache keeps it."""
    headers = {"Vary": "Cookie, Accept-Language", "X-Robots-Tag": "noindex, nofollow"}
    return Response(page, status, headers, media_type="text/html")


def _answered(frame: Frame, first: views.Answered, link: Link) -> Html:
    words = frame.words
    answer = words.known("answer", first.decision)[:120]
    if first.by == link.by:
        return tag("div", {"class": "said ok", "role": "status", "id": "state"}, words("link.done", answer=answer))
    by = first.by or words("said.somebody")
    return tag("div", {"class": "said", "role": "status", "id": "state"}, words("link.decided", by=by, answer=answer))


def _about(frame: Frame, link: Link, question: Mapping[str, Any] | None) -> list[Part]:
    words = frame.words
    rows: list[tuple[str, Part]] = [(words("link.saga"), link.saga_id)]
    if question is not None:
        name = str(question.get("step_name") or "")[:80]
        step = str(question["step_id"])
        rows.append((words("link.step"), step if name in ("", step) else f"{step} · {name}"))
        rows.append((words("link.tool"), str(question["tool"])[:80] or None))
        rows.append((words("link.goal"), str(question.get("goal") or "")[:500] or None))
        rows.append((words("link.to"), str(question.get("to") or "") or None))
        rows.append((words("question.expires"), moment(question.get("expires_ms"))))
    # For a screen reader: the page's heading is the question, and what is known about it has smaller headings.
    shown: list[Part] = [tag("h2", {"class": "hidden"}, words("link.about")), facts(*rows)]
    if question is not None:
        known = {name: value for name, value in question.items() if name not in _NOT_SHOWN}
        shown.append(known_facts(frame, known))
    return shown


def _form(frame: Frame, action: str, link: Link, question: Mapping[str, Any], key: str) -> Html:
    words, option = frame.words, link.option
    own = question["kind"] == "ask"
    css = "button" + (" main" if option in MAIN else " danger" if option in GRAVE and not own else " main")
    return tag(
        "form",
        {"method": "post", "action": action, "class": "answers"},
        tag("input", {"type": "hidden", "name": "page", "value": key}),
        tag(
            "div",
            {"class": "note"},
            tag("label", {"for": "note"}, words("question.note")),
            tag(
                "input", {"type": "text", "name": "note", "id": "note", "maxlength": _NOTE_CHARS, "autocomplete": "off"}
            ),
        ),
        tag(
            "div",
            {"class": "buttons"},
            tag("button", {"class": css, "id": "decide"}, option[:120] if own else words.known("answer", option)),
        ),
        outlook(words, question, option),
        tag("p", {"class": "quiet"}, words("link.explained", to=link.to), " ", moment(link.ends_ms)),
    )
