"""The engine itself as tools: an agent that writes plans checks, simulates, submits and follows them, and undoes them.

An agent reaches its own sagas alone: those that it submitted, which carry its tag. What an operator decides is out of
its reach: it answers no question, lifts no stop and changes no policy. What it may write into a plan is what a model
may (``[planner]``): the tools' registered undos, a maximum number of steps, and parts of the format by leave.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext, suppress
from functools import partial
from typing import Any, Final
from weakref import WeakValueDictionary

import msgspec
from mcp import MCPError
from mcp.server.lowlevel import Server
from mcp_types import INVALID_PARAMS

from saga_engine._version import __version__
from saga_engine.api import Coordinator
from saga_engine.core.steps.child import undo_id
from saga_engine.errors import PlanInvalid, Problem, SagaError, SagaExists, SagaNotFound, UndoRefused
from saga_engine.execution.aside import Allowance, allowing, beside, context_of_its_own
from saga_engine.execution.ids import check_saga_id, new_saga_id
from saga_engine.gateway.additions import Standing, recorded
from saga_engine.gateway.answers import COMPLETE, bounded, document, refusal
from saga_engine.gateway.engine_schemas import INSTRUCTIONS, MAX_WAIT_S, TOOLS
from saga_engine.gateway.server import CallHandler
from saga_engine.gateway.visit import telling_gone, traced, visit_of
from saga_engine.listener.limits import CHECK_S, checks
from saga_engine.plan.misuse import UNUSED, misuses
from saga_engine.plan.model import Plan, load_plan
from saga_engine.plan.salvage import load_checked
from saga_engine.plan.schema import plan_schema
from saga_engine.plan.undo_rules import undo_findings
from saga_engine.plan.value_schema import ValueSchema
from saga_engine.plan.values import canonical, cut, digest
from saga_engine.planner.allowed_tools import Offer
from saga_engine.planner.features import FEATURES, not_allowed, part_about, refused_parts, usable
from saga_engine.planner.settings import PlannerSettings
from saga_engine.ports import Head

#: The size of a part of a large output, and of an output in a list of steps.
_PART_CHARS: Final = 20_000
_SHOWN_CHARS: Final = 1_000
_MOST: Final = 100
_TAG: Final = "agent:"
#: A longer name does not fit into a tag.
_NAME_CHARS: Final = 40
_FINAL: Final = ("COMPLETED", "COMPENSATED", "WAIVED")

#: What is counted as a whole, and not only while it works beside the loop.
_COUNTED: Final = ("saga_check", "saga_simulate")

#: What the arguments of each tool must fit.
_GATES: Final = {name: ValueSchema(each["inputSchema"]) for name, each in TOOLS.items()}

Body = dict[str, Any]


async def _listed(_: Any, __: Any) -> Any:
    return {"tools": [*TOOLS.values()], **COMPLETE, "ttlMs": 0, "cacheScope": "private"}


def engine_server(call: CallHandler) -> Server:
    """The SDK's server, which gives the calls to ``call``."""
    return Server(
        "saga-engine",
        version=__version__,
        instructions=INSTRUCTIONS,
        on_list_tools=_listed,
        on_call_tool=traced(call),
    )


class EngineFace:
    """Serves a coordinator's engine. ``own``: the name of an agent that gives none; ``rules``: what agents may."""

    def __init__(self, coordinator: Coordinator, own: str, rules: PlannerSettings | None = None) -> None:
        self._coordinator = coordinator
        self._own = own
        self._rules = rules or PlannerSettings()
        specs = [spec for name in coordinator.tools.names() if (spec := coordinator.tools.spec(name)) is not None]
        self._specs = {spec.name: spec for spec in specs}
        self._offer = Offer(
            specs,
            coordinator.tools,
            self._rules.secrets,
            undo_by_model=self._rules.undo_by_model,
            max_steps=self._rules.max_steps,
            may_use=self._rules.may_use,
        )
        self._work: set[asyncio.Task[Any]] = set()
        self._adding: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._checks = checks()
        self._made: Mapping[str, Callable[[str, Body], Awaitable[Body]]] = {
            "saga_tools": self._tools,
            "saga_plan_format": self._format,
            "saga_check": self._check,
            "saga_simulate": self._simulate,
            "saga_submit": self._submit,
            "saga_show": self._show,
            "saga_list": self._list,
            "saga_amend": self._amend,
            "saga_undo": self._undo,
        }

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[CallHandler]:
        """What answers calls in a block; after it the sagas go on, here or in a worker."""
        try:
            yield self.call
        finally:
            for task in self._work:
                task.cancel()
            await asyncio.gather(*self._work, return_exceptions=True)

    async def call(self, ctx: Any, params: Any) -> Any:
        """Answer a call of a tool."""
        made = self._made.get(params.name)
        if made is None:
            raise MCPError(code=INVALID_PARAMS, message=f"Unknown tool: {params.name[:100]}")
        given = dict(params.arguments or {})
        _checked(params.name, given)
        visit = visit_of(ctx)
        name = self._own if visit is None else visit.saga
        try:
            counted = None if params.name in _COUNTED else partial(self._working, name)
            with allowing(CHECK_S, counted) as allowance, telling_gone(visit, allowance.give_up):
                body = await made(name, given)
        except PlanInvalid as error:
            return document({"valid": False, "problems": [each.to_dict() for each in error.problems]}, failed=True)
        except SagaError as error:
            return refusal(error)
        return document(body)

    def _working(self, name: str, _: Allowance, first: bool) -> AbstractContextManager[None]:
        """Around each work beside the loop: the first one of a request is counted, as in the HTTP API."""
        return self._checks.taken(name) if first else nullcontext()

    # --- plans ---------------------------------------------------------------------------------------------------

    async def _tools(self, _: str, given: Body) -> Body:
        word, first = str(given.get("query", "")).lower(), given.get("offset", 0)
        fits = [spec for name, spec in sorted(self._specs.items()) if word in f"{name} {spec.description}".lower()]
        page = [
            {
                "name": spec.name,
                "description": spec.description,
                "effect": spec.effect,
                "undo": spec.undo or "",
                "params": dict(spec.input_schema),
            }
            for spec in fits[first : first + _MOST]
        ]
        more = {"next_offset": first + _MOST} if first + _MOST < len(fits) else {}
        return {"tools": page, "total": len(fits), **more}

    async def _format(self, _: str, __: Body) -> Body:
        rules = self._rules.may_use
        allowed = {name: part_about(name, rules) for name in usable(rules)}
        barred = [name for name in FEATURES if name not in allowed]
        return {"schema": plan_schema(), "may_use": allowed, "may_not_use": barred, "max_steps": self._rules.max_steps}

    async def _check(self, name: str, given: Body) -> Body:
        try:
            with self._checks.taken(name):
                await self._planned(given)
        except PlanInvalid as error:
            return {"valid": False, "problems": [each.to_dict() for each in error.problems]}
        return {"valid": True, "problems": []}

    async def _simulate(self, name: str, given: Body) -> Body:
        with self._checks.taken(name):
            plan = await self._planned(given)
            rehearsal = await self._coordinator.simulate(plan, input=given.get("input"))
        told = rehearsal.to_dict()
        failing = [each for each in told["scenarios"] if each.get("verdict") != "clean"]
        return bounded({**told, "scenarios": failing, "said": rehearsal.summary()}, _MOST)

    async def _planned(self, given: Body) -> Plan:
        """``_plan``, without holding up other agents."""
        return await beside(partial(self._plan, given), given["plan"], given.get("input"))

    def _plan(self, given: Body) -> Plan:
        """The plan, as far as an agent may write it. Raises ``PlanInvalid`` with all its problems."""
        values = given.get("input")
        plan = load_checked(given["plan"], self._coordinator.tools, input=values)
        problems = self._coordinator.check(plan, input=values)
        found = self._beyond(plan, problems, len(plan.steps))
        if any(str(tag).startswith(_TAG) for tag in plan.tags or ()):
            said = f"a tag that begins with {_TAG!r} says whose a saga is"
            found.append(Problem("field-invalid", "$.tags", said, "use another tag"))
        if not found:
            registered = self._rules.undo_by_model == "registered"
            found = list(undo_findings(plan, self._offer)) if registered else []
            # Of an answer that no step binds yet, the agent may add the steps that do.
            found += [each for each in misuses(plan, self._offer) if each.code != UNUSED]
        if found:
            raise PlanInvalid(found)
        return plan

    def _beyond(self, plan: Plan, problems: Sequence[Problem], count: int) -> list[Problem]:
        """These problems, and where steps are more than an agent may write; ``count``: how many the saga would have."""
        body = plan.model_dump(exclude_unset=True)
        found = self._offer.beside(problems, body["steps"], body.get("finally", ()))
        if count > self._rules.max_steps:
            said = f"the plan has {count} steps, but only {self._rules.max_steps} are allowed"
            found.append(Problem("limit-steps", "$.steps", said, "serve the goal with fewer steps"))
        return found + [_to_operator(each) for each in not_allowed(plan, self._rules.may_use, self._offer)]

    # --- sagas ---------------------------------------------------------------------------------------------------

    async def _submit(self, name: str, given: Body) -> Body:
        plan = await self._planned(given)
        saga_id = _id_of(name, given.get("key") or new_saga_id())
        await self._require_free(name, saga_id)
        handle = await self._coordinator.submit(plan, saga_id=saga_id, input=given.get("input"), tags=[_tag(name)])
        await handle.journalled()
        await self._require_free(name, saga_id)  # another may have been quicker, with the same plan
        return {"saga_id": handle.saga_id, "status": "RUNNING", "next": f"saga_show {handle.saga_id} with wait_s"}

    async def _require_free(self, name: str, saga_id: str) -> None:
        """The same key is the same saga for its agent alone. Raises ``SagaExists`` for a saga of somebody else."""
        try:
            head = await self._coordinator.store.head(saga_id)
        except SagaNotFound:
            return
        if not _is_own(name, head):
            raise SagaExists(f"there is a saga {saga_id} already, and it is not yours", hint="choose another key")

    async def _show(self, name: str, given: Body) -> Body:
        saga_id = given["saga_id"]
        body = await self._body(name, saga_id)
        if given.get("wait_s") and body["status"] not in _FINAL:
            with suppress(TimeoutError):  # the answer says what it is now
                async with asyncio.timeout(given["wait_s"]):
                    await self._coordinator.wait(saga_id)
            body = await self._body(name, saga_id)
        if "step" in given:
            return await self._part(saga_id, str(given["step"]), given.get("offset", 0))
        undoing = await self._undoing(saga_id) if body["status"] in ("COMPLETED", "WAIVED") else None
        return _told(body) | ({} if undoing is None else {"undo": undoing})

    async def _part(self, saga_id: str, step: str, first: int) -> Body:
        """A part of one output, as text."""
        body = (await self._coordinator.show(saga_id, full=True)).body
        found = [each for each in body["steps"] if str(each["step_id"]) == step]
        if not found:
            raise SagaNotFound(f"saga {saga_id} has no step {step[:80]}", hint="saga_show lists its steps")
        text = json.dumps(found[0].get("output"), ensure_ascii=False)
        rest = {"next_offset": first + _PART_CHARS} if first + _PART_CHARS < len(text) else {}
        return {"step": step, "output_json": text[first : first + _PART_CHARS], "total_chars": len(text), **rest}

    async def _list(self, name: str, given: Body) -> Body:
        page = await self._coordinator.search(
            status=given.get("status"), tags=[_tag(name)], limit=_MOST, cursor=given.get("cursor")
        )
        sagas = [{"saga_id": head.saga_id, "status": head.status, "changed_ms": head.changed_ms} for head in page.sagas]
        return {"sagas": sagas, **({} if page.cursor is None else {"cursor": page.cursor})}

    async def _amend(self, name: str, given: Body) -> Body:
        """Add steps to a saga of the agent, which are held to what a plan is held to. Raises ``PlanInvalid``."""
        saga_id, steps = given["saga_id"], given["steps"]
        await self._body(name, saga_id)
        adding = self._adding.setdefault(saga_id, asyncio.Lock())
        async with adding:  # one after the other: each counts the steps of those before it
            unread = await self._coordinator.store.messages(saga_id)
            standing = Standing.of(await self._coordinator.history(saga_id, full=True), unread)
            await beside(partial(self._added, steps, standing), standing.plan, steps)
            work = self._coordinator.amend(saga_id, steps, by=f"agent {name}", note=str(given.get("note", "")))
            records = self._coordinator.follow(saga_id, since=standing.length)
            await self._begun(work, recorded(records, steps))
        return await self._show(name, {"saga_id": saga_id})

    def _added(self, steps: Sequence[Mapping[str, Any]], standing: Standing) -> None:
        plan = load_plan({"steps": list(steps)})
        found = self._beyond(plan, (), standing.count(steps))
        if not found and self._rules.undo_by_model == "registered":
            found = list(undo_findings(plan, self._offer))
        found = found or standing.misused(steps, self._offer)
        if found:
            raise PlanInvalid(found)

    async def _undo(self, name: str, given: Body) -> Body:
        saga_id, by, note = given["saga_id"], f"agent {name}", str(given.get("note", ""))
        body = await self._body(name, saga_id)
        if body["status"] in _FINAL:
            if body["status"] != "COMPLETED":
                raise UndoRefused(f"saga {saga_id} has ended as {body['status']}", hint="saga_show tells what remains")
            await self._coordinator.undo(saga_id, dry_run=True)  # whether it can be
            work: Any = self._coordinator.undo(saga_id, by=by, note=note)
        else:
            work = self._coordinator.cancel(saga_id, by=by, note=note)
        await self._begun(work)
        return await self._show(name, {"saga_id": saga_id})

    async def _begun(self, work: Any, enough: Coroutine[Any, Any, None] | None = None) -> None:
        """Wait a while for an undo or an addition, which goes on without the request; or until ``enough`` is done."""
        task = asyncio.create_task(work, context=context_of_its_own())
        self._work.add(task)
        task.add_done_callback(self._over)
        awaited = [task, *(() if enough is None else (asyncio.create_task(enough),))]
        try:
            done, _ = await asyncio.wait(awaited, timeout=MAX_WAIT_S / 2, return_when=asyncio.FIRST_COMPLETED)
            for each in done:
                each.result()
        finally:
            for each in awaited[1:]:
                each.cancel()

    def _over(self, task: asyncio.Task[Any]) -> None:
        self._work.discard(task)
        if not task.cancelled():
            task.exception()  # what it raises after its request, the saga's records tell

    async def _undoing(self, saga_id: str) -> Body | None:
        """The saga that undoes a completed one, if there is one."""
        try:
            body = (await self._coordinator.show(undo_id(saga_id))).body
        except SagaNotFound:
            return None
        return {name: value for name, value in _told(body).items() if name != "steps"}

    async def _body(self, name: str, saga_id: str) -> Mapping[str, Any]:
        """What ``show`` says of an agent's own saga. Raises ``SagaNotFound``, also for one of somebody else."""
        head = await self._coordinator.store.head(check_saga_id(saga_id))
        if not _is_own(name, head):
            raise SagaNotFound(f"there is no saga {saga_id}", hint="saga_list names those that you submitted")
        return (await self._coordinator.show(saga_id)).body


def _to_operator(problem: Problem) -> Problem:
    """An agent cannot ask for leave: its operator gives it."""
    names = refused_parts([problem])
    if not names:
        return problem
    hint = f"write the plan without it; an operator allows it with saga mcp --engine --may-use {names[0]}"
    return Problem(problem.code, problem.path, problem.message, hint)


def _id_of(name: str, key: str) -> str:
    """The id of an agent's saga: no other name and key have the same one, as no key begins with a hyphen.

    Raises ``PlanInvalid``.
    """
    return check_saga_id(f"{name.replace('-', '--')}-{check_saga_id(key, 'key')}", "key")


def _is_own(name: str, head: Head) -> bool:
    summary = msgspec.json.decode(head.summary) if head.summary else {}
    return _tag(name) in summary.get("tags", ())


def _tag(name: str) -> str:
    """What an agent's sagas carry."""
    return _TAG + (name if len(name) <= _NAME_CHARS else digest(name))


def _told(body: Mapping[str, Any]) -> Body:
    """A saga, bounded: large outputs are cut, and ``saga_show`` with ``step`` reads the rest."""
    steps = [_step(each) for each in body["steps"]]
    questions = [
        {"step": str(each["step_id"]), "kind": each["kind"], "asked_of": each.get("to") or "an operator"}
        for each in body["questions"]
    ]
    made = {
        "saga_id": body["saga_id"],
        "status": body["status"],
        "ended": body["status"] in _FINAL,
        "steps": steps,
        "questions": questions,
        "clean": body["report"]["clean"],
        "left_in_place": [str(each) for each in body["report"]["left_in_place"]],
        "unresolved": [str(each) for each in body["report"]["unresolved"]],
    }
    return bounded(made, _MOST)


def _step(each: Mapping[str, Any]) -> Body:
    made: Body = {"step": str(each["step_id"]), "tool": each["tool"] or each["name"], "status": each["status"]}
    if each.get("output") is not None:
        is_short = "output_ref" not in each and len(canonical(each["output"])) <= _SHOWN_CHARS
        made["output"] = each["output"] if is_short else cut(each["output"], _SHOWN_CHARS)
        if not is_short:
            made["output_is_cut"] = True
    if each.get("error"):
        made["error"] = each["error"]
    return made


def _checked(name: str, given: Body) -> None:
    """Refuse arguments that the tool's schema does not allow."""
    if found := _GATES[name](given):
        path, message = found[0]
        where = f"the argument {cut(path[0], 80)}" if path else "its arguments"
        raise MCPError(code=INVALID_PARAMS, message=f"{name}: {where}: {message}"[:1000])
