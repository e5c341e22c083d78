"""The pages of the console: reads what each needs, and draws it. Nothing is decided by a GET."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any, Final

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from saga_engine.api.holds import concerning, held
from saga_engine.api.stops import stops
from saga_engine.core.report import summary
from saga_engine.errors import SettingInvalid, UndoRefused
from saga_engine.plan.limits import MAX_TO_CHARS
from saga_engine.ports.machine_clock import machine_clock
from saga_engine.server import acts, views
from saga_engine.server.console.deciding import cancel_page, sign_in_page, stop_page, undo_page
from saga_engine.server.console.frame import Frame, json_text
from saga_engine.server.console.goals import goal_page
from saga_engine.server.console.handling import Handling
from saga_engine.server.console.html import Html
from saga_engine.server.console.lists import FIELDS, SINCE, sagas_page
from saga_engine.server.console.plans import plan_page
from saga_engine.server.console.questions import questions_page
from saga_engine.server.console.reading import Reading
from saga_engine.server.console.records import WINDOW as RECORDS
from saga_engine.server.console.sagas import GRAPH_WINDOW, VIEWS, WINDOW, Saga, first_of_interest, saga_page
from saga_engine.server.console.supply import template_page, templates_page, workers_page
from saga_engine.server.streams import may_hold

if TYPE_CHECKING:
    from saga_engine.api import Coordinator
    from saga_engine.server.desk import Desk

_PAGE: Final = 50
_QUESTIONS: Final = 100
_MAX_PLACE: Final = 100_000_000


class Pages(Handling):
    """The handlers of pages."""

    def __init__(self, desk: Desk) -> None:
        super().__init__(desk)
        self.reading = Reading()

    async def home(self, _: Request) -> Response:
        """The console begins with the list."""
        return RedirectResponse("/ui/sagas", 303)

    async def sign_in(self, request: Request) -> Response:
        """The page that asks for a token."""
        given = request.query_params
        page = sign_in_page(self.frame(request), following=given.get("next", ""), wrong="wrong" in given)
        return self.answer(request, page)

    async def sagas(self, request: Request) -> Response:
        """The list of sagas."""
        frame, engine, _ = await self.whole_frame(request)
        asked = {name: request.query_params.get(name, "").strip()[:200] for name in (*FIELDS, "cursor")}
        load = await engine.overview()
        hours = SINCE.get(asked["since"], 0)
        found = await engine.search(
            status=asked["status"] or None,
            name=asked["name"] or None,
            tags=[asked["tag"]] if asked["tag"] else [],
            tool=asked["tool"] or None,
            asks=bool(asked["asks"]),
            since_ms=load.now_ms - hours * 3_600_000 if hours else 0,
            limit=_PAGE,
            cursor=asked["cursor"] or None,
        )
        page = sagas_page(
            frame, found.sagas, asked=asked, counts=load.statuses, following=found.cursor, now_ms=load.now_ms
        )
        return self.answer(request, page)

    async def saga(self, request: Request) -> Response:
        """One saga."""
        frame, engine, _ = await self.whole_frame(request)
        return self.answer(request, await self.saga_html(request, frame, engine))

    async def saga_html(self, request: Request, frame: Frame, engine: Coordinator) -> Html:
        """The page of the saga in the path."""
        saga_id, given = self.desk.saga_id(request), request.query_params
        read, head = await self.reading.saga(engine, saga_id)
        view = given.get("view", VIEWS[0])
        view = view if view in VIEWS else VIEWS[0]
        steps = read.body["steps"]
        size = GRAPH_WINDOW if view == "graph" else WINDOW
        first = _place(given.get("first"), len(steps), first_of_interest(steps, size))
        at = _place(given.get("at"), head.length, max(len(read.records) - 1, 0) // RECORDS * RECORDS)
        now = [each for each in await stops(engine.store) if may_hold(each, saga_id)]
        stopped = [each.by or each.scope for each in now if _holds(each.scope, steps)]
        saga = Saga(
            body=read.body,
            lanes=read.lanes,
            records=read.history(at, RECORDS) if view == "records" else (),
            length=len(read.records),
            graph=read.graph(first, GRAPH_WINDOW) if view == "graph" else (),
            plan=read.history(0, 1)[0].get("plan") if view == "plan" else None,
            tags=summary(read.state).get("tags", ()),
            owner=head.owner if head.owner_ttl_ms > 0 else "",
            unread=head.messages,
            held=stopped,
            holds=[each.body() for each in concerning(await held(engine.store), saga_id)],
            scopes=[each.scope for each in now],
            questions=views.questions_of(read.body, waiting_messages=head.messages),
        )
        return saga_page(frame, saga, view=view, step=given.get("step", "")[:200], first=first, at=at, now_ms=_now_ms())

    async def questions(self, request: Request) -> Response:
        """All open questions."""
        frame, engine, _ = await self.whole_frame(request)
        to = request.query_params.get("to", "")[:MAX_TO_CHARS]
        found, cursor = await views.questions(engine, limit=_QUESTIONS, to=to or None)
        asked = sorted((each for each in found if "question_id" in each), key=lambda each: each["asked_ms"])
        unreadable = [str(each["saga_id"]) for each in found if "question_id" not in each]
        page = questions_page(frame, asked, unreadable=unreadable, more=cursor is not None, now_ms=_now_ms(), to=to)
        return self.answer(request, page)

    async def workers(self, request: Request) -> Response:
        """Workers and tools."""
        frame, engine, _ = await self.whole_frame(request)
        holds = [each.body() for each in await held(engine.store)]
        page = workers_page(frame, await views.overview(engine), await views.tools(engine), holds)
        return self.answer(request, page)

    async def templates(self, request: Request) -> Response:
        """Templates and schedules."""
        frame, engine, _ = await self.whole_frame(request)
        schedules = [each.to_dict() for each in await engine.schedules.list()]
        return self.answer(request, templates_page(frame, await engine.templates.list(), schedules, now_ms=_now_ms()))

    async def template(self, request: Request) -> Response:
        """One template."""
        frame, engine, _ = await self.whole_frame(request)
        return self.answer(request, await self.template_html(request, frame, engine))

    async def template_html(self, request: Request, frame: Frame, engine: Coordinator, given: str = "") -> Html:
        """The page of the template in the path."""
        name = request.path_params["name"]
        version = request.query_params.get("version", "")
        if version and not (version.isascii() and version.isdecimal()):
            raise SettingInvalid("a version is a number")
        found = await engine.templates.get(f"{name}@{version}" if version else name)
        versions = next((kept for each, kept in await engine.templates.list() if each == found.name), ())
        return template_page(
            frame,
            name=found.name,
            version=found.version,
            plan=found.plan,
            schema=found.input_schema,
            versions=versions,
            given=given,
        )

    async def plan(self, request: Request) -> Response:
        """A place to paste a plan."""
        frame, _, _ = await self.whole_frame(request)
        return self.answer(request, plan_page(frame))

    async def cancel(self, request: Request) -> Response:
        """What a cancel would do now."""
        frame, engine, _ = await self.whole_frame(request, "resolve")
        saga_id = self.desk.saga_id(request)
        read, _ = await self.reading.saga(engine, saga_id)
        return self.answer(request, cancel_page(frame, saga_id, asdict(await read.cancel())))

    async def undo(self, request: Request) -> Response:
        """What the undo of a completed saga would do now."""
        frame, _, identity = await self.whole_frame(request, "resolve")
        saga_id = self.desk.saga_id(request)
        try:
            preview = (await acts.undo_preview(self.desk, identity, saga_id)).to_dict()
        except UndoRefused as error:
            return self.answer(request, undo_page(frame, saga_id, None, f"{error.message}. {error.hint}"))
        return self.answer(request, undo_page(frame, saga_id, preview))

    async def goal(self, request: Request) -> Response:
        """The form for a goal; with an id what has become of one: loaded anew while the model works."""
        frame, engine, identity = await self.whole_frame(request)
        found = request.path_params.get("asking_id")
        if found is None:
            allowed = engine.planner_may_use
            return self.answer(request, goal_page(frame, has_model=allowed is not None, may_use=allowed or ()))
        identity.require("submit")
        asking = self.desk.goals.of(identity, found)
        given = "" if asking.input is None else json_text(asking.input)
        page = goal_page(frame, asking, has_model=True, goal=asking.goal, given=given, may_use=asking.may_use)
        made = self.answer(request, page)
        if asking.running:
            made.headers["Refresh"] = "1"
        return made

    async def stop(self, request: Request) -> Response:
        """What is held."""
        frame, engine, _ = await self.whole_frame(request)
        now = [each._asdict() for each in await stops(engine.store)]
        given = request.query_params
        saga, tool = given.get("saga", "")[:128], given.get("tool", "")[:200]
        return self.answer(request, stop_page(frame, now, list(engine.tools.names()), saga=saga, tool=tool))

    def routes(self) -> list[BaseRoute]:
        """The routes of all pages."""
        paths: dict[str, Any] = {
            "/ui/sagas": self.sagas,
            "/ui/sagas/{saga_id}": self.saga,
            "/ui/sagas/{saga_id}/cancel": self.cancel,
            "/ui/sagas/{saga_id}/undo": self.undo,
            "/ui/questions": self.questions,
            "/ui/workers": self.workers,
            "/ui/templates": self.templates,
            "/ui/templates/{name}": self.template,
            "/ui/plan": self.plan,
            "/ui/goal": self.goal,
            "/ui/goal/{asking_id}": self.goal,
            "/ui/stop": self.stop,
            "/ui/sign-in": self.sign_in,
            "/": self.home,
        }
        pages = [Route(path, self.handled(handler), methods=["GET"]) for path, handler in paths.items()]
        return [*super().routes(), *pages]


def error_frame(frame: Frame, said: str) -> Frame:
    """The frame of a page that says why its form was not carried out."""
    return replace(frame, said=("error", said))


def _holds(scope: str, steps: Any) -> bool:
    """Whether a stop that may hold a saga holds calls of it."""
    kind, _, name = scope.partition(":")
    return kind != "tool" or any(step["tool"] == name for step in steps)


def _place(given: str | None, total: int, otherwise: int) -> int:
    """A place in a list that came with the address."""
    if given is None or not given.isascii() or not given.isdecimal() or len(given) > 9:
        return otherwise
    return min(int(given), max(total - 1, 0), _MAX_PLACE)


def _now_ms() -> int:
    return machine_clock.time_ns() // 1_000_000
