"""The steps of a session: calls that an agent makes one after the other, with values instead of bindings.

An agent's values may come from a model or from another tool, so the engine never searches them for bindings or secrets.
Only the params of an undo may bind, and only to the output and the key of the call itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from saga_engine.plan.bindings import OwnBinder, Template
from saga_engine.plan.builtin_steps import builtin_spec, check_builtin, tolerated
from saga_engine.plan.child import KIND as CHILD
from saga_engine.plan.child_plans import session_child
from saga_engine.plan.compiled import CompiledRead, CompiledRollback, CompiledStep, Kind, Params
from saga_engine.plan.draft import DEFAULT, child_step, compile_read, undo_retry
from saga_engine.plan.problems import Problems
from saga_engine.plan.tool_spec import ToolCatalog, ToolSpec
from saga_engine.plan.undo_params import UndoParams
from saga_engine.plan.values import cut


class UndoMore(NamedTuple):
    """What an undo has beside one tool and its params: the list of which each item gets a call, and the next calls."""

    each: str | None = None
    then: Sequence[Mapping[str, Any]] = ()


def compile_call(
    index: int,
    key: str,
    tool: str,
    params: dict[str, Any],
    *,
    deps: tuple[int, ...],
    catalog: ToolCatalog | None,
    undo: str | None,
    undo_params: Mapping[str, Any] | None,
    kind: Kind,
    timeout_s: float | None,
    more: UndoMore = UndoMore(),  # noqa: B008 - it is immutable
) -> CompiledStep:
    """One call as a step. Raises ``PlanInvalid`` for an invalid path in its undo's params."""
    spec = catalog.spec(tool) if catalog is not None else None
    values = Template(params, None, ())
    declared = spec or DEFAULT
    read = None
    if spec is not None and spec.before is not None and catalog is not None and kind == "compensatable":
        read = compile_read(spec, values, catalog.spec(spec.before))
    rollback = None
    if undo is not None:
        rollback = _rollback(key, undo, undo_params, values, catalog, declared.undo, read, more)
        if (undo, undo_params, more) == (declared.undo, declared.undo_params, declared_more(declared)):
            for call in (rollback, *rollback.then):
                call.usual = call.params
        if declared.undo_absent is not None:
            rollback.absent = _rollback(key, declared.undo_absent, None, values, catalog, declared.undo_absent, read)
    return CompiledStep(
        index=index,
        step_id=int(key) if key.isdecimal() else key,
        key=key,
        name=tool,
        kind=kind,
        tool=tool,
        spec=spec,
        params=values,
        rollback=rollback,
        retry=declared.retry,
        timeout_s=declared.timeout_s if timeout_s is None else timeout_s,
        deps=deps,
        data_deps=frozenset(deps),
        before=read,
    )


def declared_more(spec: ToolSpec) -> UndoMore:
    """What the undo of a tool has by its declaration."""
    return UndoMore(spec.undo_each, list(spec.undo_then))


def builtin_body(word: str, body: Any) -> Any:
    """The body of a built-in step. Raises ``PlanInvalid``."""
    from saga_engine.plan.model import form_of

    if word == CHILD:
        body = {"input": {}, **body}
    problems = Problems()
    written = body if word == "sleep" and not isinstance(body, dict) else form_of(word, body, problems)
    if written is not None:
        check_builtin(problems, word, Template({word: written}, None, ()), ())
        if tolerated(word, written):
            message = "'continue' belongs to plans: in a session, the agent catches 'CallFailed' and goes on"
            problems.add("builtin-invalid", (word, "on_timeout"), message, "remove it, or give a value")
    if written is None or problems:
        problems.refuse()
    return written


def compile_builtin(
    index: int,
    key: str,
    word: str,
    params: dict[str, Any],
    *,
    deps: tuple[int, ...],
    catalog: ToolCatalog | None = None,
    undo: str | None = None,
    undo_params: Mapping[str, Any] | None = None,
    more: UndoMore = UndoMore(),  # noqa: B008 - it is immutable
    kind: Kind = "read",
) -> CompiledStep:
    """A built-in step of a session. Its body consists of values, too. Raises ``PlanInvalid`` as ``compile_call``.

    ``kind`` is that of a child saga.
    """
    values = Template(params, None, ())
    if word == CHILD:
        body = params[word]
        step_id = int(key) if key.isdecimal() else key
        made = child_step(index, step_id, key, word, values, body, kind, session_child(body, None))
        return replace(made, deps=deps, data_deps=frozenset(deps))
    return CompiledStep(
        index=index,
        step_id=int(key) if key.isdecimal() else key,
        key=key,
        name=word,
        kind="read" if undo is None else "compensatable",
        tool="",
        spec=builtin_spec(word, params[word], undone=undo is not None),
        params=values,
        rollback=None if undo is None else _rollback(key, undo, undo_params or {}, values, catalog, None, None, more),
        retry=DEFAULT.retry,
        timeout_s=DEFAULT.timeout_s,
        deps=deps,
        data_deps=frozenset(deps),
        builtin=word,
        late=_late(key, values, params[word], catalog) if word == "wait" else None,
    )


def _late(key: str, values: Template, body: Mapping[str, Any], catalog: ToolCatalog | None) -> CompiledRollback | None:
    """The call for an event that comes after its wait is over; it binds as the undo of the wait."""
    call = body.get("on_late")
    if call is None:
        return None
    return _rollback(key, call["tool"], call.get("params") or {}, values, catalog, None, None)


def _rollback(  # noqa: PLR0917
    key: str,
    undo: str,
    given: Mapping[str, Any] | None,
    forward: Template,
    catalog: ToolCatalog | None,
    registered: str | None,
    read: CompiledRead | None,
    more: UndoMore = UndoMore(),  # noqa: B008 - it is immutable
) -> CompiledRollback:
    """The undo of a call; ``given``: its params, or None if its registration fills them in."""
    if given is None and more.each is not None:
        given = {}
    spec = catalog.spec(undo) if catalog is not None else None
    usual: Params | None = None
    if given is None or undo == registered:
        usual = UndoParams(
            spec.input_schema if spec is not None else None, key, forward, None if read is None else read.params.raw
        )
    params = usual
    if given is not None or params is None:
        problems = Problems()
        params = OwnBinder({}, problems).template(dict(given or {}), key, ("undo",), item=more.each is not None)
        if problems:
            problems.refuse()
    declared = spec or DEFAULT
    each = None
    if more.each is not None:
        problems = Problems()
        each = OwnBinder({}, problems).template({"each": more.each}, key, ("undo",))
        if not each.places:
            message = f"'each' of an undo binds a list: '$output.items', not {cut(more.each, 80)}"
            problems.add("each-invalid", ("undo", "each"), message, "bind the call's own output")
        if problems:
            problems.refuse()
    then = tuple(
        _rollback(key, call["tool"], call.get("params") or {}, forward, catalog, None, read, UndoMore(call.get("each")))
        for call in more.then
    )
    return CompiledRollback(
        tool=undo,
        spec=spec,
        params=params,
        retry=undo_retry(declared.retry),
        timeout_s=declared.timeout_s,
        needs_output=key in params.outputs or each is not None or any(call.needs_output for call in then),
        usual=usual if undo == registered else None,
        then=then,
        each=each,
    )
