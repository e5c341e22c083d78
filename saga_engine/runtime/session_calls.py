"""Calls of an agent in a session: how they are recorded, and the errors of those that failed."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from saga_engine.core import records as r
from saga_engine.core import transitions as t
from saga_engine.core.effects import ErrorInfo
from saga_engine.core.masking import Mask, mask_of, tools_of_step
from saga_engine.core.plan_growth import Growth
from saga_engine.core.state import State
from saga_engine.errors import (
    CallBlocked,
    CallFailed,
    CallInvalid,
    NeedsPerson,
    PlanInvalid,
    Problem,
    SessionEnded,
    ValueNotJson,
)
from saga_engine.execution.result import SagaResult
from saga_engine.language.errors import said
from saga_engine.plan.bindings import Template
from saga_engine.plan.compiled import CompiledRollback
from saga_engine.plan.expect import KNOWN
from saga_engine.plan.limits import MAX_UNDO_CALLS
from saga_engine.plan.schema_types import unfillable
from saga_engine.plan.tool_spec import ToolCatalog, ToolSpec
from saga_engine.plan.values import cut, digest, json_path, plain, printable
from saga_engine.plan.which_undo import UndoOf, lacking, registered_undo


class Undo(NamedTuple):
    """The undo of a call: a tool and its params.

    In the params, a text that consists of ``$output`` and a path, such as ``"$output.order_id"``, is the call's own
    output, and ``"$key"`` its idempotency key.
    """

    tool: str
    params: Mapping[str, Any] | None = None
    #: A list, such as ``"$output.items"``: the undo is called once for each item, which ``"$item"`` binds.
    each: str | None = None
    #: The calls that follow this one, in order.
    then: Sequence[Undo | tuple[Any, Mapping[str, Any]]] = ()


class NumberedOutput(NamedTuple):
    """The key of a call's step, and the call's output."""

    step: str
    output: Any


def refusal(state: State, index: int) -> CallFailed:
    """The exception for a call that was not done, or not allowed."""
    error = state.steps[index].forward.error or ErrorInfo("tool_error", said("tool_error"))
    tool = state.acting(index).tool or state.plan.steps[index].builtin
    kind = CallBlocked if state.steps[index].status == t.BLOCKED else CallFailed
    return kind(
        f"{tool}: {error.message}",
        hint=error.suggestion,
        error_code=error.error_code,
        tool=tool,
        step=state.plan.steps[index].key,
        retryable=error.retryable,
    )


def needs_person(saga_id: str, key: str, kind: str) -> NeedsPerson:
    """The exception for a call that only an operator can settle; ``kind`` is the question's."""
    return NeedsPerson(
        f"session {saga_id} waits for a person: {kind} about call {key}",
        hint=f"answer with `saga resolve {saga_id} {key} …`, then run the agent again with the same id",
        saga_id=saga_id,
        step=key,
        kind=kind,
    )


def no_more_calls(saga_id: str, outcome: SagaResult, *, complete: bool) -> Exception:
    """The exception for a call in a session that has ended or rests; ``complete``: it was, before this life of it."""
    if outcome.status == t.ESCALATED:
        question = next(iter(outcome.body["questions"]), {"step_id": "?", "kind": "?"})
        return needs_person(saga_id, str(question["step_id"]), str(question["kind"]))
    if complete:
        return SessionEnded(
            f"session {saga_id} is complete: what it did is answered again, and nothing can be added",
            hint="open a session with another id for more work",
            saga_id=saga_id,
        )
    return SessionEnded(f"session {saga_id} has ended: {outcome.status}", hint="see `saga show`", saga_id=saga_id)


def failure_of(error: BaseException) -> tuple[str, ErrorInfo]:
    """The call with which an agent failed, and why; an empty key if its error is no call's."""
    inner = error
    while isinstance(inner, BaseExceptionGroup):  # of the calls of a task group, the first that failed
        inner = next((each for each in inner.exceptions if isinstance(each, CallFailed)), inner.exceptions[0])
    if isinstance(inner, CallFailed):
        known = ErrorInfo(inner.error_code or "call_failed", inner.message[:1000], inner.hint or None)
        return str(inner.context.get("step", "")), known
    return "", ErrorInfo("session_failed", f"{type(inner).__name__}: {inner}"[:1000])


def wrapped(call: Callable[..., Awaitable[Any]], function: Any, *, undo: Any, irreversible: bool) -> Any:
    """A function whose calls are calls of a session."""
    inner = getattr(function, "function", function)
    signature = by_name(inner)

    @functools.wraps(inner)
    async def made(*args: Any, **named: Any) -> Any:
        return await call(function, params_of(signature, args, named), undo=undo, irreversible=irreversible)

    return made


def by_name(function: Callable[..., Any]) -> inspect.Signature:
    """The signature of a function whose params are all named, as those of a tool are: without ``*args``."""
    found = inspect.signature(function)
    return found.replace(parameters=[each for each in found.parameters.values() if each.kind != each.VAR_POSITIONAL])


def params_of(signature: inspect.Signature, args: Sequence[Any], named: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a call by their names. Raises ``TypeError`` for those that have none."""
    bound = signature.bind_partial(*args, **named)
    return dict(zip(signature.parameters, bound.args, strict=False)) | bound.kwargs


def is_kept(outcome: SagaResult) -> bool:
    """Whether a session is kept for its agent, or an operator is asked about it."""
    return any(question["kind"] in ("session-failed", "session-kept") for question in outcome.body["questions"])


def told_kept(saga_id: str, outcome: SagaResult) -> str:
    """What an agent's author reads under the error that left a session's block."""
    kind = next((question["kind"] for question in outcome.body["questions"]), "")
    if outcome.body.get("session") != "open":
        return f"session {saga_id} was not kept ({outcome.status}): see `saga show {saga_id}`"
    if kind == "session-kept":
        return f"session {saga_id} is kept: mend the cause and run the agent again with this id (`saga inbox` lists it)"
    if kind:
        return f"session {saga_id} waits for an operator ({kind}): `saga inbox` has the commands to answer with"
    return f"session {saga_id} is open, and nothing happened in it: run the agent again with this id"


def next_number(state: State, last: int) -> int:
    """The number of a new call after ``last``. Raises ``PlanInvalid`` beyond the operator's ``max_steps``."""
    before = max(last, len(state.plan.steps))
    limits = None if state.growth is None else state.growth.limits
    if limits is not None:
        limits.check_steps(before + 1, before)
    return before + 1


def call_record(
    catalog: ToolCatalog,
    name: str,
    params: Mapping[str, Any],
    undo: Any,
    *,
    irreversible: bool,
    timeout_s: float | None,
    expect: str | None = None,
) -> r.CallAdded:
    """The record of a call, without its position. Raises ``CallInvalid`` and ``PlanInvalid``.

    A tool that nobody declared is a write that nothing takes back, whether or not ``irreversible`` says so.
    ``CallInvalid`` is the agent's mistake, which a model can mend; an undo that does not fit is its author's.
    """
    spec = catalog.spec(name)
    if spec is None:
        raise CallInvalid.of(printable(name, 80), [_no_tool(catalog, name)])
    values = _values(spec.name, params)
    problems = [
        Problem("params-invalid", json_path(("params", *path)), message) for path, message in spec.check_params(values)
    ]
    if problems:
        raise CallInvalid.of(name, problems, "mend the params and call it again")
    meant = None if spec.effect == "read" else _undo_of(undo, spec)
    undo_tool = None if meant is None else meant.tool
    then = [] if meant is None else [dict(call) for call in meant.then or ()]
    undo_spec = None if undo_tool is None else catalog.spec(undo_tool)
    if undo_tool is not None and undo_spec is None:
        problems.append(Problem("tool-unknown", "$.undo", f"there is no tool {cut(undo_tool, 80)}"))
    if undo_spec is not None and undo_spec.effect == "read":
        message = f"the undo of {name}, {cut(undo_tool, 80)}, only reads, so it undoes nothing"
        problems.append(Problem("rollback-reads", "$.undo", message, "name the tool that takes the effect back"))
    problems += [*_problems_of_more(name, then, catalog), *problems_of_expect(spec, expect)]
    if meant is not None and undo_spec is not None and meant.only_names and spec.before is None:  # a read may have them
        why = unfillable(undo_spec.input_schema, values, spec.output_schema, known=True)
        if why:
            message = (
                f"the undo of {name}, {cut(undo_tool, 80)}, would be called without its parameters: {cut(why, 300)}"
            )
            hint = "give its params: undo=(TOOL, {…})"
            problems.append(Problem("undo-unfillable", "$.undo", message, hint))
    unsaid = undo_tool is None and spec.effect == "write" and not irreversible and spec.semantic in (None, "never")
    if unsaid and spec.declared:
        hint = "give undo=…, register an undo for the tool, or say irreversible=True"
        problems.append(Problem("rollback-missing", "$", f"{name} writes, and nothing says how that is undone", hint))
    if problems:
        raise PlanInvalid(problems)
    made = r.CallAdded(
        at=0,
        step="0",
        tool=name,
        params=values,
        undo=undo_tool,
        undo_params=None if meant is None or meant.params is None else plain(dict(meant.params)),
        undo_each=None if meant is None else meant.each,
        undo_then=then,
        irreversible=(irreversible or unsaid) and undo_tool is None,
        read=spec.effect == "read",
        timeout_s=timeout_s,
        expect=expect or "",
        tool_digest=spec.digest,
        sensitive={
            each.name: list(each.sensitive)
            for each in (spec, undo_spec, *(catalog.spec(call["tool"]) for call in then))
            if each and each.sensitive
        },
    )
    _require_bound(made, catalog)
    return made


def _no_tool(catalog: ToolCatalog, name: str) -> Problem:
    from difflib import get_close_matches

    near = get_close_matches(name, catalog.names(), n=1)
    hint = f"did you mean {near[0]!r}?" if near else "register it with the coordinator, or wrap it with session.tool"
    return Problem("tool-missing", "$", f"no tool is called {printable(name, 80)} here", hint)


def _values(name: str, params: Any) -> dict[str, Any]:
    """The params of a call as plain JSON. Raises ``CallInvalid``, also for a text: nothing is coerced."""
    if not isinstance(params, Mapping):
        if isinstance(params, str | bytes):
            what, hint = "a text and not an object", "read the text of the arguments first: json.loads(arguments)"
        else:
            what, hint = f"{type(params).__name__} and no object", "give the params by their names"
        raise CallInvalid.of(name, [Problem("params-no-object", "$.params", f"the params are {what}", hint)])
    try:
        values: dict[str, Any] = plain(dict(params))
    except ValueNotJson as error:
        where = str(error.context.get("path", "$"))
        problem = Problem("value-not-json", f"$.params{where[1:]}", error.message, error.hint or "")
        raise CallInvalid.of(name, [problem]) from error
    return values


def _require_bound(made: r.CallAdded, catalog: ToolCatalog) -> None:
    """Refuse a call whose undo binds what it cannot have: an invalid path, or a param that the call lacks."""
    step = Growth.call_of(made, 0, {}, catalog)
    for call in () if step.rollback is None else step.rollback.calls():
        for place in lacking(call.params, step.params):
            message = f"the undo {cut(call.tool, 80)} binds {cut(place.text, 120)}, which the call lacks"
            raise PlanInvalid([Problem("undo-unfillable", "$.undo", message, "give the param, or undo=(TOOL, {…})")])


def with_undo(record: r.CallAdded, undo: tuple[Any, Mapping[str, Any]], catalog: ToolCatalog) -> r.CallAdded:
    """The record of a built-in step that is undone by this tool. Raises ``PlanInvalid``, ``ValueNotJson``."""
    name, params, sensitive = _taking_back(record, undo, "undo", catalog)
    made = msgspec.structs.replace(record, undo=name, undo_params=params, read=False, sensitive=sensitive)
    Growth.call_of(made, 0, {}, catalog)
    return made


def with_late(record: r.CallAdded, call: tuple[Any, Mapping[str, Any]], catalog: ToolCatalog) -> r.CallAdded:
    """The record of a wait whose late events are handled by this tool. Raises ``PlanInvalid``, ``ValueNotJson``."""
    name, params, sensitive = _taking_back(record, call, "on_late", catalog)
    body = {**record.params["wait"], "on_late": {"tool": name, "params": params}}
    made = msgspec.structs.replace(record, params={"wait": body}, sensitive=sensitive)
    Growth.call_of(made, 0, {}, catalog)
    return made


def _taking_back(
    record: r.CallAdded, call: tuple[Any, Mapping[str, Any]], field: str, catalog: ToolCatalog
) -> tuple[str, dict[str, Any], dict[str, list[str]]]:
    """A call that takes back what a built-in step stands for: its tool, its params, and what is sensitive with it."""
    name, params = name_of(call[0]), plain(dict(call[1]))
    spec = catalog.spec(name)
    if spec is None:
        raise PlanInvalid([Problem("tool-unknown", f"$.{field}", f"there is no tool {cut(name, 80)}")])
    if spec.effect == "read":
        message = f"{cut(name, 80)} only reads, so as {field} it undoes nothing"
        hint = "name the tool that takes the effect back"
        raise PlanInvalid([Problem("rollback-reads", f"$.{field}", message, hint)])
    return name, params, record.sensitive | ({spec.name: list(spec.sensitive)} if spec.sensitive else {})


def _problems_of_more(name: str, then: Sequence[Mapping[str, Any]], catalog: ToolCatalog) -> list[Problem]:
    """The problems of the tools that follow the first one of an undo."""
    found: list[Problem] = []
    for call in then:
        spec = catalog.spec(call["tool"])
        if spec is None:
            found.append(Problem("tool-unknown", "$.undo", f"there is no tool {cut(call['tool'], 80)}"))
        elif spec.effect == "read":
            message = f"the undo of {name}, {cut(call['tool'], 80)}, only reads, so it undoes nothing"
            found.append(Problem("rollback-reads", "$.undo", message, "name the tool that takes the effect back"))
    if len(then) > MAX_UNDO_CALLS:
        found.append(Problem("field-invalid", "$.undo", f"at most {MAX_UNDO_CALLS} calls follow the first one"))
    return found


def problems_of_expect(spec: ToolSpec, expect: str | None) -> list[Problem]:
    """Why a call of this tool cannot expect that."""
    if expect is None:
        return []
    if expect != KNOWN:
        hint = f"write expect={KNOWN!r}: the call is made only if the value is still what this session last read"
        return [Problem("field-invalid", "$.expect", f"expect={cut(expect, 80)} has no meaning", hint)]
    if spec.before is None:
        message = f"nothing reads the value before the call of {cut(spec.name, 80)}"
        return [Problem("before-missing", "$.expect", message, "declare the tool with before='the tool that reads it'")]
    return []


def _undo_of(undo: Any, spec: ToolSpec) -> UndoOf | None:
    """The undo of a call of the tool ``spec``: what the agent says of it, or what is registered."""
    registered = registered_undo(spec)
    if undo is None:
        return registered
    if isinstance(undo, Undo):
        then = tuple(_call_of(each) for each in undo.then) or None
        said = UndoOf(name_of(undo.tool), undo.params, undo.each, then)
    elif isinstance(undo, tuple):
        said = UndoOf(name_of(undo[0]), undo[1])
    else:
        said = UndoOf(name_of(undo))
    return said.like(registered)


def _call_of(given: Any) -> dict[str, Any]:
    """One of the calls that follow the first one of an undo, as it is recorded."""
    tool, params, each, then = (*given, None, ())[:4] if isinstance(given, tuple) else (given, {}, None, ())
    if then:
        message = "a call that follows the first one of an undo has no calls of its own that follow it"
        raise PlanInvalid([Problem("field-invalid", "$.undo", message, "list all of them in the first one's 'then'")])
    return {"tool": name_of(tool), "params": plain(dict(params or {})), **({} if each is None else {"each": each})}


def name_of(tool: Any) -> str:
    """The name of a tool that is given by name or as its function."""
    return tool if isinstance(tool, str) else str(getattr(tool, "name", "") or getattr(tool, "__name__", repr(tool)))


def difference(state: State, key: str, record: r.CallAdded) -> str | None:
    """How the agent's call differs from the recorded one at the same position; sensitive values are masked."""
    step = state.plan.steps[state.plan.by_key[key]]
    mask = _mask(state, record)
    if (step.tool, step.builtin) != (record.tool, record.builtin):
        return f"it called {step.tool or step.builtin} before, and now {record.tool or record.builtin}"
    # What this process has added itself is the same object: nothing of it is worked out again.
    if step.params.raw is not record.params and digest(step.params.raw) != digest(record.params):
        before, now = (mask.params(params, *tools_of_step(step)) for params in (step.params.raw, record.params))
        where = "" if before != now else ": they differ in what is not shown"
        return f"the params of {step.tool or step.builtin} were {cut(before, 200)}, and now {cut(now, 200)}{where}"
    if step.child is not None:
        return None
    undo = step.rollback.tool if step.rollback is not None else None
    said = bool(record.undo_then) or record.undo_each is not None
    more = step.rollback is not None and (said or bool(step.rollback.then) or step.rollback.each is not None)
    if undo == record.undo and more and step.rollback is not None and _more_of(step.rollback) != _more_in(record):
        return f"the undo of {step.tool} by {undo} was followed by other calls than now"
    if undo != record.undo:
        return f"{step.tool} was to be undone by {undo}, and now by {record.undo}"
    given = step.rollback.params.raw if step.rollback and isinstance(step.rollback.params, Template) else None
    if given is not record.undo_params and digest(given) != digest(record.undo_params):
        before, now = (mask.params(params, *tools_of_step(step)) for params in (given, record.undo_params))
        where = "" if before != now else ": they differ in what is not shown"
        return f"{undo} was to be called with {cut(before, 200)}, and now with {cut(now, 200)}{where}"
    return None


def _more_of(rollback: CompiledRollback) -> str:
    then = [
        {"tool": call.tool, "params": call.params.raw, "each": None if call.each is None else call.each.raw["each"]}
        for call in rollback.then
    ]
    return digest([None if rollback.each is None else rollback.each.raw["each"], then])


def _more_in(record: r.CallAdded) -> str:
    then = [
        {"tool": call["tool"], "params": call.get("params") or {}, "each": call.get("each")}
        for call in record.undo_then
    ]
    return digest([record.undo_each, then])


def _mask(state: State, record: r.CallAdded) -> Mask:
    """What is sensitive in the saga and in a call that is not recorded."""
    mask = mask_of(state) or Mask({})
    mask.mark(record.sensitive or {})
    names = mask.names(record.tool, record.undo or "")
    for params in (record.params, record.undo_params or {}):
        for name in names & params.keys():
            mask.learn(params[name])
    return mask


def stands(state: State, key: str) -> bool:
    """Whether a call happened and was not undone."""
    return state.steps[state.plan.by_key[key]].status == t.SUCCEEDED


def has_undo(state: State, index: int) -> bool:
    """Whether a call that happened can be undone by a rollback; the agent's own call may have done that before."""
    if state.steps[index].status == t.COMPENSATED and state.steps[index].undone_by >= 0:
        return False
    undo = state.undoing(index) is not None or (state.plan.steps[index].semantic and state.owns(index))
    return state.steps[index].effect is not None and undo


def to_undo(state: State, index: int) -> bool:
    """Whether a call stands and can be undone."""
    return state.steps[index].status == t.SUCCEEDED and has_undo(state, index)
