"""Another way to the goal after a step failed: what is kept of the plan, and the rules for what a model writes.

A step that has not started is kept unless it depends on a step that failed: by name, in a binding or in ``depends_on``.
(A step that only follows it in the list does not.) The model writes again what depends on the failed step, may drop
more, and gives a reason for each write that nothing replaces. The engine checks this and never trusts the model's word.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from saga_engine.core import transitions as t
from saga_engine.core.effects import FORWARD
from saga_engine.core.state import State, StateScope
from saga_engine.errors import BindingUnresolved, Problem
from saga_engine.plan.amendments import Addition
from saga_engine.plan.binder import Binder
from saga_engine.plan.compiled import CompiledFallback, CompiledStep
from saga_engine.plan.problems import Problems
from saga_engine.plan.tool_spec import ToolCatalog
from saga_engine.plan.values import cut, json_path
from saga_engine.plan.written_again import changed_before, unasked

#: The longest reason for dropping a step, in characters.
MAX_REASON: Final = 500


class Remainder(NamedTuple):
    """What becomes of the steps of a plan, as indexes: those that ``failed``, that go with them, and that are kept."""

    failed: tuple[int, ...]
    gone: tuple[int, ...]
    kept: tuple[int, ...]


def remainder(state: State, dropped: Iterable[str] = ()) -> Remainder:
    """What becomes of the plan without the steps that failed and those that are ``dropped``, by key."""
    failed = tuple(step.index for step in state.plan.steps if step.index in state.failed)
    left = [step for step in state.plan.steps if _left(state, step.index)]
    wanted = set(dropped)
    without = {*failed, *(step.index for step in left if step.key in wanted)}
    grows = True
    while grows:
        more = {step.index for step in left if step.index not in without and _needs(state, step, without)}
        without |= more
        grows = bool(more)
    gone = tuple(step.index for step in left if step.index in without)
    return Remainder(failed, gone, tuple(step.index for step in left if step.index not in without))


def _left(state: State, index: int) -> bool:
    """Whether a step has not started and is still wanted."""
    wanted = state.steps[index].status == t.PENDING and (index, FORWARD) not in state.waiting
    return wanted and state.plan.steps[index].compensates is None


def _needs(state: State, step: CompiledStep, others: set[int]) -> bool:
    """Whether a step names one of the ``others``: it waits for it, or it or its undo binds to its output."""
    if step.data_deps & others:
        return True
    calls: list[CompiledStep | CompiledFallback] = [step, *step.fallbacks]
    undos = [call.rollback for call in calls if call.rollback is not None]
    return any(
        state.plan.by_key[key] in others
        for undo in undos
        for params in undo.templates()
        for key in params.outputs
        if key != step.key
    )


def other_way(state: State, failed: int, steps: Sequence[Mapping[str, Any]], reasons: Mapping[str, str]) -> Addition:
    """What the steps that a model wrote would change; ``reasons`` has the keys of the steps that it drops."""
    found = remainder(state, reasons)
    # Several steps may have failed side by side: all of them are replaced.
    dropped = {*found.failed, *found.gone}
    keys = tuple(step.key for step in state.plan.steps if step.index in dropped)
    known = {key: reason for key, reason in reasons.items() if key in keys}
    return Addition(list(steps), keys, place=state.plan.steps[failed].key, reasons=known)


# --- the rules ---------------------------------------------------------------------------------------------------


def problems(
    state: State, steps: Sequence[Mapping[str, Any]], reasons: Mapping[str, Any], catalog: ToolCatalog
) -> list[Problem]:
    """The places where an answer repeats a call, or drops a write without saying why."""
    return [
        *_wrong_reasons(state, reasons),
        *_repeats(state, steps, reasons, catalog),
        *_silent(state, steps, reasons, catalog),
    ]


def _wrong_reasons(state: State, reasons: Mapping[str, Any]) -> Iterator[Problem]:
    found = remainder(state)
    droppable = {state.plan.steps[index].key for index in (*found.failed, *found.gone, *found.kept)}
    for key, reason in reasons.items():
        path = json_path(("dropped", key))
        if key not in state.plan.by_key:
            hint = f"these can be dropped: {', '.join(sorted(droppable))[:300]}"
            yield Problem("dropped-unknown", path, f"there is no step {cut(key, 80)} in the plan", hint)
        elif key not in droppable:
            message = f"step {key} has started or happened: it stands and cannot be dropped"
            yield Problem("dropped-unknown", path, message, f"leave {cut(key, 80)} out of 'dropped'")
        elif not isinstance(reason, str) or not reason.strip() or len(reason) > MAX_REASON:
            message = f"step {key} is dropped without a reason of 1 to {MAX_REASON} characters"
            yield Problem("dropped-silently", path, message, "say in a sentence why the goal does not need it")


def _silent(
    state: State, steps: Sequence[Mapping[str, Any]], reasons: Mapping[str, Any], catalog: ToolCatalog
) -> Iterator[Problem]:
    """Writes that are neither made again nor dropped with a reason: another call of the same tool makes one again.

    A call of any tool replaces a step that failed.
    """
    found = remainder(state, reasons)
    new = [str(step.get("tool")) for step in steps if _writes(catalog, str(step.get("tool")))]

    def silent(indexes: Iterable[int], *, same: bool) -> list[CompiledStep]:
        rest = []
        for step in (state.plan.steps[index] for index in indexes):
            if step.key in reasons or step.kind == "read":
                continue
            if step.tool in new:
                new.remove(step.tool)
            elif new and not same:
                new.pop()
            else:
                rest.append(step)
        return rest

    failed = silent(found.failed, same=True)
    gone = [*silent(found.gone, same=True), *unasked([state.plan.steps[at] for at in found.gone], steps, reasons)]
    failed = silent((step.index for step in failed), same=False)
    for step, why in [*((step, "failed") for step in failed), *((step, _because(state, step, found)) for step in gone)]:
        what = cut(step.tool, 80) if step.tool else f"'{step.builtin}'"
        message = f"step {step.key} ({what}) {why}, and your answer neither makes it again nor drops it"
        hint = (
            f"write it again as a step with a new id, or, if the goal does not need it, give the reason: "
            f'"dropped": {{"{step.key}": "…"}}'
        )
        yield Problem("dropped-silently", "$.steps", message, hint)


def _because(state: State, step: CompiledStep, found: Remainder) -> str:
    before = sorted(step.data_deps & {*found.failed, *found.gone})
    return f"depends on step {state.plan.steps[before[0]].key}, which will not run" if before else "will not run"


def _writes(catalog: ToolCatalog, tool: str) -> bool:
    spec = catalog.spec(tool)
    return spec is None or spec.effect == "write"


def _repeats(
    state: State, steps: Sequence[Mapping[str, Any]], reasons: Mapping[str, Any], catalog: ToolCatalog
) -> Iterator[Problem]:
    found = remainder(state, reasons)
    again = [_call_of(state, state.plan.steps[index]) for index in found.gone]
    known = list(_known_calls(state, found))
    writes = partial(_writes, catalog)
    for index, step in enumerate(steps):
        for path, call in _written(state, step):
            match = next((each for each in known if _same(call, each.call)), None)
            if match is None:
                continue
            planned = next((each for each in again if _same(call, each)), None)
            if planned is not None and match.kind != "failed":
                again.remove(planned)  # the plan had the same call twice, and it is written again once
                continue
            if match.kind == "failed" and not path and changed_before(steps, index, writes):
                continue  # the door is closed first, so the alarm may be armed this time
            yield Problem("call-repeated", json_path(("steps", index, *path)), match.message, match.hint)


class _Call(NamedTuple):
    """A tool and its params: as written, and their values if all are known."""

    tool: str
    raw: Any
    values: Any = None


class _Known(NamedTuple):
    call: _Call
    kind: str
    message: str
    hint: str


def _known_calls(state: State, found: Remainder) -> Iterator[_Known]:
    """Calls that must not be made (again): those that failed, that happened, and that are kept."""
    for step in state.plan.steps:
        at, tool = state.steps[step.index], cut(step.tool, 80)
        if at.status == t.FAILED:
            tried: list[CompiledStep | CompiledFallback] = [step]
            for call in [*tried, *(each for each in step.fallbacks[: at.using] if each.way == "tool")]:
                message = f"this is the call of step {step.key} ({cut(call.tool, 80)}), which failed with these params"
                hint = (
                    "use another tool or other params; or, if another step of yours changes what it failed for, put it "
                    "behind that step; or answer with 'impossible'"
                )
                yield _Known(_call_of(state, call), "failed", message, hint)
        elif step.index in found.kept:
            message = f"step {step.key} ({tool}) makes this call: it is kept and runs as it was planned"
            hint = f"leave your step out; steps may bind to step {step.key}"
            yield _Known(_call_of(state, step), "kept", message, hint)
        elif at.status not in (t.PENDING, t.SKIPPED) and step.kind != "read":
            done = "happened" if at.effect is not None else "is under way"
            message = f"this is the call of step {step.key} ({tool}), which {done}: it stands"
            hint = f"leave your step out; steps may bind $output.step_{step.key}"
            yield _Known(_call_of(state, state.acting(step.index)), "stands", message, hint)


def _call_of(state: State, call: CompiledStep | CompiledFallback) -> _Call:
    try:
        values = call.params.resolve(StateScope(state))
    except BindingUnresolved:
        values = None
    return _Call(call.tool, call.params.raw, values)


def _written(state: State, step: Mapping[str, Any]) -> Iterator[tuple[tuple[str | int, ...], _Call]]:
    """The calls of a step that a model wrote, with their places. Its form may be wrong: another check tells."""
    fallback = step.get("fallback")
    others = fallback if isinstance(fallback, list) else [fallback]
    for path, each in [((), step), *((("fallback", number), each) for number, each in enumerate(others))]:
        params = each.get("params", step.get("params", {})) if isinstance(each, Mapping) else None
        if not isinstance(params, dict) or not isinstance(each.get("tool"), str):
            continue
        try:
            template = Binder(state.plan.by_key, Problems()).template(params, "", ())
            values = template.resolve(StateScope(state))
        except (BindingUnresolved, RecursionError):
            values = None
        yield path, _Call(each["tool"], params, values)


def _same(one: _Call, other: _Call) -> bool:
    if one.tool != other.tool:
        return False
    return one.raw == other.raw or (one.values is not None and one.values == other.values)
