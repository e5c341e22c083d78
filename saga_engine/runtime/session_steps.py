"""What an agent does in a session beside calling a tool and waiting for it: built-in steps, calls in two parts."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, overload

import msgspec
from msgspec import json

from saga_engine.core import records as r
from saga_engine.core.states import COMPENSATED, COMPENSATING, RESOLVED
from saga_engine.errors import SessionEnded
from saga_engine.plan.child import KIND as CHILD
from saga_engine.plan.child_plans import check_input, session_child
from saga_engine.plan.model import Plan
from saga_engine.plan.parser import Source, read_source
from saga_engine.plan.session_steps import builtin_body, require_brought
from saga_engine.plan.values import cut, plain
from saga_engine.runtime.session_calls import call_record, with_late, with_undo, wrapped
from saga_engine.tools.decorator import Tool

if TYPE_CHECKING:
    from saga_engine.core.state import State
    from saga_engine.execution.result import Handle, SagaResult
    from saga_engine.plan.tool_spec import Effect, ToolCatalog
    from saga_engine.runtime.session_history import Recorded
    from saga_engine.runtime.session_options import Watching

_F = TypeVar("_F", bound=Callable[..., Any])


class SessionSteps:
    """The part of ``Session`` that adds built-in steps."""

    if TYPE_CHECKING:
        saga_id: str
        catalog: ToolCatalog
        _settled: set[str]
        _made: list[str]
        _unheard: set[str]
        _complete: bool
        _handle: Handle | None
        _live: bool
        _recorded: Recorded
        expanded: Callable[[Plan | Source], Awaitable[Plan | Source]] | None

        adopt: Callable[[Any], bool] | None
        watch: Watching | None
        call: Callable[..., Awaitable[Any]]

        def _here(self) -> State: ...

        async def _placed(self, record: r.CallAdded) -> str: ...

        async def _result(self, key: str, record: r.CallAdded | None) -> Any: ...

    @overload
    def tool(
        self, function: _F, /, *, undo: Any = None, irreversible: bool = False, effect: Effect | None = None
    ) -> _F: ...

    @overload
    def tool(
        self, function: None = None, /, *, undo: Any = None, irreversible: bool = False, effect: Effect | None = None
    ) -> Callable[[_F], _F]: ...

    def tool(
        self,
        function: Any = None,
        /,
        *,
        undo: Any = None,
        irreversible: bool = False,
        effect: Effect | None = None,
    ) -> Any:
        """Wrap a function: calling it calls the tool in this session.

        Also as a decorator: ``@s.tool``, ``@s.tool(effect="read")``. ``undo`` and ``irreversible`` as in ``call``,
        ``effect`` as in ``tool``. A function that the coordinator does not know becomes a tool of it. Without a word
        about its effect it counts as a write that nothing takes back.
        Raises ``ToolInvalid``.
        """
        if function is None:
            return partial(self.tool, undo=undo, irreversible=irreversible, effect=effect)
        given = function if effect is None else Tool(function, effect=effect)
        self.bring(undo, given)
        return wrapped(self.call, given, undo=undo, irreversible=irreversible)

    def bring(self, *tools: Any) -> None:
        """Register those of the functions and tools that the coordinator does not know."""
        for each in tools:
            if isinstance(each, tuple):  # an undo with its params, and perhaps those that follow it
                self.bring(each[0], *getattr(each, "then", ()))
            elif self.adopt is not None and callable(each):
                self.adopt(each)

    async def begin_call(self, tool: str, params: Mapping[str, Any], *, irreversible: bool = False) -> str:
        """Make a call, and return the key of its step at once; ``outcome`` waits for it. Options are those of ``call``.

        Raises what ``call`` raises, except for the outcome's errors.
        """
        record = call_record(self.catalog, tool, params, None, irreversible=irreversible, timeout_s=None)
        if self.watch is not None:
            self.watch.call(record, irreversible=irreversible, state=self._here(), made=self._made)
        return await self._placed(record)

    async def outcome(self, step: str) -> Any:
        """The output of a call that was made before, in this life or another, by the key of its step.

        Raises what ``call`` raises, and ``SessionEnded`` if there is no such call.
        """
        if not self.knows(step):
            raise SessionEnded(f"session {self.saga_id} has no call {cut(step, 40)}", saga_id=self.saga_id)
        return await self._result(step, None)

    @property
    def at_rest(self) -> bool:
        """Whether it has ended, or waits for an operator: no more calls can be made through this object."""
        return self._complete or self._handle is None or self._handle.done()

    @property
    def turned(self) -> bool:
        """Whether everything that it did is being undone."""
        return self._here().status == COMPENSATING

    async def rest(self) -> SagaResult:
        """Wait until it has ended, or waits for an operator."""
        if self._handle is None:
            raise SessionEnded(f"session {self.saga_id} has not begun", saga_id=self.saga_id)
        return await self._handle.wait()

    def knows(self, step: str) -> bool:
        """Whether there is a call with this key."""
        return step in self._made or step in self._here().plan.by_key

    def open_calls(self) -> list[str]:
        """The calls that have no durable outcome yet, in their order."""
        return [key for key in self._made if key not in self._settled]

    def unheard_calls(self) -> dict[str, tuple[str, Any]]:
        """Tool and params of the last calls whose outcomes the agent may not know, because its former life ended.

        Those that were undone are none of them.
        """
        state = self._here()
        places = [state.plan.by_key[key] for key in self._unheard if key in state.plan.by_key]
        steps = [state.plan.steps[at] for at in places if state.steps[at].status not in (COMPENSATED, RESOLVED)]
        return {step.key: (step.tool, step.params.raw) for step in steps if step.tool}

    async def ask(
        self,
        question: str,
        *,
        options: Sequence[str] | None = None,
        schema: Mapping[str, Any] | None = None,
        expires_s: float | None = None,
        on_timeout: Mapping[str, Any] | None = None,
        to: str | None = None,
    ) -> Any:
        """Ask a person, as an ``ask`` step of a plan does; returns the answer, who gave it and the note.

        ``to``: who is asked, a name, a role or an address.

        Raises ``NeedsPerson`` until there is an answer: run the agent again with the same id then. Else as ``call``.
        """
        body = {"question": question, "schema": schema, "expires_s": expires_s, "on_timeout": on_timeout, "to": to}
        record = builtin_record("ask", {**body, "options": None if options is None else list(options)})
        return await self._result(await self._placed(record), record)

    async def sleep(self, duration: float | str | None = None, *, until: str | None = None) -> None:
        """Let time pass, as a ``sleep`` step of a plan does: seconds, ``"P1D"``, or until a moment with an offset.

        The end of the sleep is journalled when it begins: an agent that runs again sleeps for the rest of it only.
        Raises ``PlanInvalid``; else as ``call``.
        """
        given = [each for each in (duration, until) if each is not None]
        if len(given) != 1:
            raise TypeError("give either a duration or until")
        record = builtin_record("sleep", {"until": until} if duration is None else duration)
        await self._result(await self._placed(record), record)

    async def step(self, word: str, body: Any) -> Any:
        """A step whose word a package brings, as in a plan: ``step("sleep", "P1D")``. Returns its output.

        Raises ``PlanInvalid`` for a word that no package here brings, or a body that is none; else as ``call``.
        """
        record = builtin_record(word, body, brought=True)
        return await self._result(await self._placed(record), record)

    async def wait_for(
        self,
        event: str | None = None,
        *,
        first: Sequence[str | Mapping[str, Any]] | None = None,
        all_of: Sequence[str | Mapping[str, Any]] | None = None,
        key: str | int | None = None,
        schema: Mapping[str, Any] | None = None,
        timeout_s: float | None = None,
        on_timeout: Mapping[str, Any] | None = None,
        undo: tuple[str, Mapping[str, Any]] | None = None,
        on_late: tuple[str, Mapping[str, Any]] | None = None,
    ) -> Any:
        """Wait for an event from outside, as a ``wait`` step of a plan does; returns its payload.

        In place of ``event``, ``first`` and ``all_of`` are several events: names, or ``{"event": …, "key": …,
        "schema": …}``. Returns the first one that came, ``{"event": …, "key": …, "payload": …}``, or the list of all in
        their order.

        ``undo``: the tool that undoes what the event stands for, and its params, in which ``"$output.sum"`` is a field
        of what this returns. ``on_late``: the same for an event that comes after the time-out or the undo of the
        session; a saga of its own makes that call, once for each event. Raises ``CallFailed`` (``wait_timed_out``)
        after ``timeout_s``; else as ``call``.
        """
        several = {"first": _named(first), "all": _named(all_of)}
        body = {"event": event, "key": key, "schema": schema, "timeout_s": timeout_s, "on_timeout": on_timeout}
        record = builtin_record("wait", {**body, **several})
        if on_late is not None:
            record = with_late(record, on_late, self.catalog)
        if undo is not None:
            record = with_undo(record, undo, self.catalog)
        return await self._result(await self._placed(record), record)

    async def saga(
        self,
        plan: Plan | Source | None = None,
        *,
        template: str | None = None,
        input: Mapping[str, Any] | None = None,  # noqa: A002 - the plan's own word
    ) -> Any:
        """Run a child saga, as a ``saga`` step of a plan does; returns its id and the outputs of its steps.

        It has a plan, or a ``template`` of the store (``NAME`` or ``NAME@VERSION``), whose version is journalled; no
        other call may begin while the first life of the agent reads it. If the child asks an operator, this waits.
        Raises ``PlanInvalid``, ``CallFailed`` if the child did not complete, and ``RuntimeError``; else as ``call``.
        """
        if (plan is None) == (template is None):
            raise TypeError("give either a plan or a template")
        given = {"input": dict(input or {})}
        if template is not None:
            body = {**given, "template": template}
            known = self._recorded_child(body)
        else:
            assert plan is not None
            body = {**given, "plan": json.decode(plan.json_bytes) if isinstance(plan, Plan) else read_source(plan)}
            known = None
        if known is None:
            place = len(self._made)
            assert self.expanded is not None
            whole = await self.expanded({"steps": [{"step_id": 1, CHILD: body}]})
            assert isinstance(whole, Mapping)
            if len(self._made) != place:
                raise RuntimeError("a call began while the template of a child saga was read: await the saga alone")
            known = child_record(whole["steps"][0][CHILD], self.catalog)
        return await self._result(await self._placed(known), known)

    def _recorded_child(self, body: dict[str, Any]) -> r.CallAdded | None:
        """The child that another life of the agent started at this place with this template and input."""
        place = len(self._made)
        if self._live or place >= len(self._recorded.keys):
            return None
        step = self._here().plan.steps[self._here().plan.by_key[self._recorded.keys[place]]]
        found = step.params.raw.get(CHILD)
        if step.builtin != CHILD or not isinstance(found, dict):
            return None
        if str(found.get("template", "")).partition("@")[0] != body["template"].partition("@")[0]:
            return None
        if "@" in body["template"] and found["template"] != body["template"]:
            return None
        return child_record({**found, "input": body["input"]}, self.catalog)


def _named(events: Sequence[str | Mapping[str, Any]] | None) -> list[dict[str, Any]] | None:
    """Several events, as the plan has them; what is not given is left out."""
    if events is None:
        return None
    given = [{"event": each} if isinstance(each, str) else each for each in events]
    return [{name: value for name, value in each.items() if value is not None} for each in given]


def child_record(body: Mapping[str, Any], catalog: ToolCatalog) -> r.CallAdded:
    """The record of a child saga, without its position. Raises ``PlanInvalid``, ``ValueNotJson``."""
    record = builtin_record(CHILD, body)
    made = session_child(record.params[CHILD], catalog)
    check_input(made, record.params[CHILD]["input"])
    kind = made.kind()
    return msgspec.structs.replace(
        record,
        read=kind == "read",
        irreversible=kind in {"pivot", "irreversible"},
        sensitive={name: list(params) for name, params in made.sensitive.items()},
    )


def builtin_record(word: str, body: Any, *, brought: bool = False) -> r.CallAdded:
    """The record of a built-in step, without its position. Raises ``PlanInvalid``, ``ValueNotJson``."""
    given = plain(body)
    if brought:
        require_brought(word)
    elif isinstance(given, dict):
        given = {name: value for name, value in given.items() if value is not None}
    return r.CallAdded(at=0, step="0", tool="", params={word: builtin_body(word, given)}, builtin=word, read=True)
