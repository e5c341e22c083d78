"""The steps of a session: calls that an agent makes one after the other, with values instead of bindings.

An agent's values may come from a model or from another tool, so the engine never searches them for bindings or secrets.
Only the params of an undo may bind, and only to the output and the key of the call itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from saga_engine.plan import words
from saga_engine.plan.bindings import Template
from saga_engine.plan.builtin_steps import builtin_spec, check_builtin, tolerated
from saga_engine.plan.child import KIND as CHILD
from saga_engine.plan.child_plans import session_child
from saga_engine.plan.compiled import CompiledRead, CompiledRollback, CompiledStep, Kind, Params
from saga_engine.plan.draft import DEFAULT, child_step, compile_read
from saga_engine.plan.problems import Problems
from saga_engine.plan.tool_spec import ToolCatalog, ToolSpec, undo_retry
from saga_engine.plan.undo_looks import compile_check
from saga_engine.plan.values import cut
from saga_engine.plan.which_undo import UndoOf, own_params, registered_undo, usual_params


def compile_call(
    index: int,
    key: str,
    tool: str,
    params: dict[str, Any],
    *,
    deps: tuple[int, ...],
    catalog: ToolCatalog | None,
    undo: UndoOf | None,
    kind: Kind,
    timeout_s: float | None,
    expect: str | None = None,
) -> CompiledStep:
    """One call as a step. Raises ``PlanInvalid`` for an invalid path in its undo's params."""
    spec = catalog.spec(tool) if catalog is not None else None
    values = Template(params, None, ())
    declared = spec or DEFAULT
    read = None
    if spec is not None and spec.before is not None and catalog is not None and _is_read(spec, kind, expect):
        read = compile_read(spec, values, catalog.spec(spec.before), expect)
    check = None
    if spec is not None and spec.undo_check is not None and catalog is not None and kind == "compensatable":
        check = compile_check(spec, catalog.spec(spec.undo_check.tool), key, values, Problems(), ())
    rollback = None
    if undo is not None:
        registered = registered_undo(spec)
        rollback = _rollback(key, undo, values, catalog, registered, read)
        if declared.undo_absent is not None:
            gone = UndoOf(declared.undo_absent)
            rollback.absent = _rollback(key, gone, values, catalog, gone, read)
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
        check=check,
    )


def _is_read(spec: ToolSpec, kind: Kind, expect: str | None) -> bool:
    """Whether anything uses the value before the call."""
    return kind == "compensatable" or (kind != "read" and bool(expect or spec.expect))


def require_brought(word: str) -> None:
    """Refuse a word that no package here brings, and one that has a method of its own. Raises ``PlanInvalid``."""
    if not words.known(word):
        known = ", ".join(words.names()) or "none"
        problems = Problems()
        problems.add("field-unknown", (), f"no package here brings the word {cut(word, 64)}", f"words here: {known}")
        problems.refuse()


def builtin_body(word: str, body: Any) -> Any:
    """The body of a built-in step. Raises ``PlanInvalid``."""
    from saga_engine.plan.model import form_of

    if word == CHILD:
        body = {"input": {}, **body}
    problems = Problems()
    written = form_of(word, body, problems) if word in words.BUILTINS else body
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
    undo: UndoOf | None = None,
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
        rollback=None if undo is None else _rollback(key, undo._replace(params=undo.params or {}), values, catalog),
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
    return _rollback(key, UndoOf(call["tool"], call.get("params") or {}), values, catalog)


def _rollback(  # noqa: PLR0917
    key: str,
    undo: UndoOf,
    forward: Template,
    catalog: ToolCatalog | None,
    registered: UndoOf | None = None,
    read: CompiledRead | None = None,
) -> CompiledRollback:
    """The undo of a call."""
    made, *then = (_undo_call(key, call, forward, catalog, read) for call in undo.calls())
    made.then = tuple(then)
    made.needs_output = any(call.needs_output for call in (made, *then))
    if undo == registered:
        for call in (made, *then):
            call.usual = call.params
    elif registered is not None and undo.tool == registered.tool and registered.each is None:
        made.usual = _undo_call(key, registered, forward, catalog, read).params
    return made


def _undo_call(
    key: str, undo: UndoOf, forward: Template, catalog: ToolCatalog | None, read: CompiledRead | None
) -> CompiledRollback:
    spec = catalog.spec(undo.tool) if catalog is not None else None
    problems = Problems()
    own, each = own_params(undo, key, forward, problems, ("undo",))
    if each is not None and not each.places:
        message = f"'each' of an undo binds a list: '$output.items', not {cut(undo.each, 80)}"
        problems.add("each-invalid", ("undo", "each"), message, "bind the call's own output")
    if problems:
        problems.refuse()
    params: Params = own if own is not None else usual_params(spec, key, forward, read)
    declared = spec or DEFAULT
    return CompiledRollback(
        tool=undo.tool,
        spec=spec,
        params=params,
        retry=undo_retry(declared.retry),
        timeout_s=declared.timeout_s,
        needs_output=key in params.outputs or each is not None,
        each=each,
    )
