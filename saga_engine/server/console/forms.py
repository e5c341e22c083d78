"""The forms of the console: each is a POST with the key of its browser, and says afterwards what became of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from saga_engine.api.stops import go, stop
from saga_engine.batches.batch import Batch, Selected
from saga_engine.errors import (
    CancelRefused,
    DecisionRefused,
    PlanInvalid,
    RequestInvalid,
    UndoRefused,
    ValueNotJson,
)
from saga_engine.execution.aside import allowing, aside
from saga_engine.listener.limits import CHECK_S
from saga_engine.plan.compiler import compile_plan
from saga_engine.plan.limits import MAX_GOAL_CHARS
from saga_engine.plan.salvage import load_checked
from saga_engine.plan.strict_json import strict_json
from saga_engine.server import acts, views
from saga_engine.server.console.batches import PICK, batch_page
from saga_engine.server.console.deciding import cancel_page, undo_page
from saga_engine.server.console.drawing import Node
from saga_engine.server.console.frame import Frame, saga_address
from saga_engine.server.console.goals import ADDRESS, ANSWER, LEAVE, PARTS, goal_page
from saga_engine.server.console.plans import plan_page
from saga_engine.server.console.questions import may_happen_twice
from saga_engine.server.console.reading import nodes_of
from saga_engine.server.console.routes import Pages, error_frame

if TYPE_CHECKING:
    from saga_engine.api import Coordinator


#: So many sagas are acted on by one form.
_MOST_CHOSEN: Final = 1000


async def _offered(engine: Coordinator, chosen: Sequence[str]) -> list[tuple[str, int]]:
    """The answers that questions of these sagas take, each with the number of its questions."""
    counts: Counter[str] = Counter()
    for saga_id in chosen:
        for question in (await engine.show(saga_id)).body["questions"]:
            counts.update(str(option) for option in question["options"])
    return [(option, count) for option, count in counts.most_common() if option != "answer"]


class Forms(Pages):
    """The handlers of forms."""

    async def resolve(self, request: Request) -> Response:
        """Answer a question. Whoever is second sees who was first."""
        fields = await self.fields(request)
        frame, engine, identity = await self.whole_frame(request, "resolve")
        saga_id = self.desk.saga_id(request)
        question, decision = fields.get("question", ""), fields.get("decision", "")
        read, _ = await self.reading.saga(engine, saga_id)
        asked = next((each for each in read.body["questions"] if each["question_id"] == question), None)
        said = ""
        if asked is None:
            said = frame.words("said.gone")
        elif (fields.get("call") or "") != (asked.get("call") or ""):
            said = frame.words("said.changed")
        elif decision == "retry" and may_happen_twice(asked) and not fields.get("twice"):
            said = frame.words("said.twice")
        else:
            try:
                output = _json(fields.get("output", ""))
                note, expect = fields.get("note", "")[:500], fields.get(f"expect-{decision}", "")
                step = str(asked["step_id"])
                await acts.resolve(self.desk, identity, saga_id, step, decision, output, note, expect=expect)
            except ValueError as error:
                said = frame.words("said.no-json", why=str(error)[:200])
            except DecisionRefused as error:
                told = frame.words.refused(error)
                said = f"{told}. {error.hint}" if error.hint else told
        first = await views.first_answer(engine, saga_id, question)
        if first is not None and (first.by != identity.who or first.decision != decision):
            by = first.by or frame.words("said.somebody")
            said = frame.words("said.faster", by=by, answer=frame.words.known("answer", first.decision))
        if said:
            shown = await self.saga_html(request, error_frame(frame, said), engine)
            return self.answer(request, shown, 409)
        return self.back(fields, "answered", saga_address(saga_id))

    async def do_cancel(self, request: Request) -> Response:
        """Cancel a saga."""
        fields = await self.fields(request)
        frame, _, identity = await self.whole_frame(request, "resolve")
        saga_id = self.desk.saga_id(request)
        try:
            await acts.cancel(self.desk, identity, saga_id, fields.get("note", "")[:500])
        except CancelRefused as error:
            return self.answer(request, cancel_page(frame, saga_id, {"refused": frame.words.refused(error)}), 409)
        return self.back({}, "cancelled", saga_address(saga_id))

    async def do_batch(self, request: Request) -> Response:
        """Show what an action would do to the chosen sagas, or begin the job that carries it out."""
        fields = await self.fields(request)
        frame, engine, identity = await self.whole_frame(request, "resolve")
        verb, decision = fields.get("verb", ""), fields.get("decision", "")[:200]
        chosen = [name.removeprefix(PICK) for name in fields if name.startswith(PICK)][:_MOST_CHOSEN]
        if not chosen:
            return self.back({}, "none-chosen", "/ui/sagas")
        if verb == "resolve" and not decision:
            batch = Batch("resolve", tuple(Selected(each, "") for each in chosen))
            return self.answer(request, batch_page(frame, batch, options=await _offered(engine, chosen)))
        if not fields.get("confirmed"):
            found = await engine.select(verb, saga_ids=chosen, decision=decision)  # type: ignore[arg-type]  # or refused
            return self.answer(request, batch_page(frame, found))
        body = {"action": verb, "sagas": chosen, "note": fields.get("note", "")[:500], "decision": decision}
        await request.app.state.jobs.create(identity, body)
        return self.back({}, "batch", "/ui/sagas")

    async def do_undo(self, request: Request) -> Response:
        """Undo a completed saga."""
        fields = await self.fields(request)
        frame, _, identity = await self.whole_frame(request, "resolve")
        saga_id = self.desk.saga_id(request)
        accept = bool(fields.get("accept"))
        try:
            found = await acts.undo(self.desk, identity, saga_id, accept=accept, note=fields.get("note", "")[:500])
        except UndoRefused as error:
            return self.answer(
                request,
                undo_page(frame, saga_id, None, f"{frame.words.refused(error)}. {error.hint}"),
                409,
            )
        said = "undoing" if found.saga_id != saga_id else "nothing-to-undo"
        return self.back({}, said, saga_address(found.saga_id))

    async def do_stop(self, request: Request) -> Response:
        """Hold all calls, those of a tool or those of a saga."""
        fields = await self.fields(request)
        _, engine, identity = await self.whole_frame(request, "admin")
        tool, saga_id = _scope(fields.get("scope", ""))
        why = fields.get("note", "")[:500]
        await stop(engine.store, tool=tool, saga_id=saga_id, by=identity.who, note=why, tools=lambda: engine.tools)
        return self.back({}, "stopped", "/ui/stop")

    async def do_go(self, request: Request) -> Response:
        """Lift a stop."""
        fields = await self.fields(request)
        _, engine, _ = await self.whole_frame(request, "admin")
        tool, saga_id = _scope(fields.get("scope", ""))
        await go(engine.store, tool=tool, saga_id=saga_id)
        return self.back(fields, "lifted", "/ui/stop")

    async def do_plan(self, request: Request) -> Response:
        """Check and simulate a plan, or submit it."""
        fields = await self.fields(request)
        submits = fields.get("do") == "submit"
        frame, engine, identity = await self.whole_frame(request, "submit" if submits else "read")
        plan, given = fields.get("plan", ""), fields.get("input", "")
        try:
            body, values = await aside(partial(strict_json, plan)), await aside(partial(_json, given))
            if values is not None and not isinstance(values, dict):
                raise ValueError("the input is an object")
        except (ValueError, ValueNotJson) as error:
            said = frame.words("said.no-json", why=str(error)[:200])
            return self.answer(request, plan_page(frame, plan=plan, given=given, said=said), 422)
        try:
            with self.desk.place(self.desk.works, identity), allowing(CHECK_S):
                if submits:
                    result, _ = await acts.submit(self.desk, identity, {"plan": body, "input": values})
                    return self.back({}, "started", saga_address(result.saga_id))
                problems = await aside(partial(engine.check, plan, input=values))
                rehearsal = None if problems else (await engine.simulate(plan, input=values)).to_dict()
                nodes = [] if problems else await aside(partial(_nodes, engine, plan, values))
        except PlanInvalid as error:
            found = [each.to_dict() for each in error.problems]
            return self.answer(request, plan_page(frame, plan=plan, given=given, problems=found), 422)
        found = [each.to_dict() for each in problems]
        page = plan_page(frame, plan=plan, given=given, problems=found, rehearsal=rehearsal, nodes=nodes)
        return self.answer(request, page)

    async def do_goal(self, request: Request) -> Response:
        """Give a model a goal; the page that follows shows its rounds."""
        fields = await self.fields(request)
        frame, engine, identity = await self.whole_frame(request, "submit")
        goal, given = fields.get("goal", "").strip(), fields.get("input", "")
        may_use = [name for name in PARTS if fields.get(f"{LEAVE}{name}")]
        answers = {name.removeprefix(ANSWER): text for name, text in fields.items() if name.startswith(ANSWER) and text}
        said = ""
        values = None
        try:
            values = await aside(partial(_json, given))
            if values is not None and not isinstance(values, dict):
                raise ValueError("the input is an object")
        except (ValueError, ValueNotJson) as error:
            said = frame.words("said.no-json", why=str(error)[:200])
        if not 1 <= len(goal) <= MAX_GOAL_CHARS:
            said = frame.words("goal.too-long", most=MAX_GOAL_CHARS, n=len(goal))
        has_model = engine.planner_may_use is not None
        if said or not has_model:
            page = goal_page(frame, has_model=has_model, goal=goal, given=given, may_use=may_use, said=said)
            return self.answer(request, page, 422 if said else 501)
        asking = self.desk.goals.begin(engine, identity, goal, given=values, may_use=may_use, answers=answers)
        return RedirectResponse(f"{ADDRESS}/{asking.id}", 303)

    async def do_planned(self, request: Request) -> Response:
        """Submit the plan that the page of a goal shows."""
        fields = await self.fields(request)
        frame, _, identity = await self.whole_frame(request, "submit")
        asking = self.desk.goals.of(identity, request.path_params["asking_id"])
        if asking.planned is None or not fields.get("looked"):
            said = frame.words("goal.not-looked")
            page = goal_page(frame, asking, has_model=True, goal=asking.goal, may_use=asking.may_use, said=said)
            return self.answer(request, page, 422)
        if not asking.saga_id:
            plan = asking.planned.plan.model_dump(mode="json", exclude_unset=True)
            saga_id = plan.get("task_id") or f"goal-{asking.id}"  # sent twice it is one saga
            body = {"plan": plan, "input": asking.input, "saga_id": saga_id}
            result, _ = await acts.submit(self.desk, identity, body)
            asking.saga_id = result.saga_id
        return self.back({}, "started", saga_address(asking.saga_id))

    async def do_template(self, request: Request) -> Response:
        """Start a saga from a template."""
        fields = await self.fields(request)
        frame, engine, identity = await self.whole_frame(request, "submit")
        given = fields.get("input", "")
        try:
            body = {"template": fields.get("template", ""), "input": _json(given)}
            result, _ = await acts.submit(self.desk, identity, body)
        except ValueError as error:
            return await self._refused_template(request, frame, engine, given, str(error))
        except PlanInvalid as error:
            said = "; ".join(f"{each.path}: {each.message}" for each in error.problems[:5])
            return await self._refused_template(request, frame, engine, given, said)
        return self.back({}, "started", saga_address(result.saga_id))

    async def _refused_template(
        self, request: Request, frame: Frame, engine: Coordinator, given: str, said: str
    ) -> Response:
        shown = await self.template_html(request, error_frame(frame, said[:1000]), engine, given)
        return self.answer(request, shown, 422)

    async def do_schedule(self, request: Request) -> Response:
        """Pause, resume or trigger a schedule."""
        fields = await self.fields(request)
        _, engine, identity = await self.whole_frame(request, "admin")
        name, verb = request.path_params["name"], fields.get("do", "")
        if verb == "pause":
            await engine.schedules.pause(name, why="" if identity.via == "open" else f"by {identity.who}")
        elif verb == "resume":
            await engine.schedules.resume(name)
        elif verb == "trigger":
            return self.back({}, "started", saga_address(await engine.schedules.trigger(name)))
        else:
            raise RequestInvalid("a schedule is paused, resumed or triggered", where="do")
        return self.back({}, "schedule", "/ui/templates")

    def routes(self) -> list[BaseRoute]:
        """The routes of pages and forms."""
        forms = {
            "/ui/sagas/{saga_id}/resolve": self.resolve,
            "/ui/sagas/{saga_id}/cancel": self.do_cancel,
            "/ui/sagas/{saga_id}/undo": self.do_undo,
            "/ui/batch": self.do_batch,
            "/ui/stop": self.do_stop,
            "/ui/go": self.do_go,
            "/ui/plan": self.do_plan,
            ADDRESS: self.do_goal,
            f"{ADDRESS}/{{asking_id}}": self.do_planned,
            "/ui/templates/{name}": self.do_template,
            "/ui/schedules/{name}": self.do_schedule,
        }
        posts = [Route(path, self.handled(handler), methods=["POST"]) for path, handler in forms.items()]
        return [*super().routes(), *posts, Route("/ui/sagas/{saga_id}/resolve", self._to_saga, methods=["GET"])]

    async def _to_saga(self, request: Request) -> Response:
        """A page that answers a form may be loaded anew: that decides nothing."""
        return RedirectResponse(saga_address(request.path_params["saga_id"]), 303)


def _nodes(engine: Coordinator, plan: str, values: dict[str, Any] | None) -> list[Node]:
    loaded = load_checked(plan, engine.tools, input=values)
    return nodes_of(list(compile_plan(loaded, engine.tools, input=values).all_steps()))


def _json(text: str) -> Any:
    """A value that a person typed; None for an empty field. Raises ``ValueError``."""
    try:
        return strict_json(text) if text.strip() else None
    except ValueNotJson as error:
        raise ValueError(error.message) from None


def _scope(scope: str) -> tuple[str | None, str | None]:
    """The tool and the saga of a stop's scope."""
    kind, _, name = scope.partition(":")
    if kind in ("tool", "saga") and name:
        return (name, None) if kind == "tool" else (None, name)
    if scope in ("", "all"):
        return None, None
    raise RequestInvalid("a stop is of all calls, of a tool or of a saga", where="scope")
