"""What the parts of a plan beyond plain calls will do, for the person who reads it before it runs.

Questions and what each answer brings about, waits and how they end, lists and how many calls they make, conditions in
words, computations with values, steps that may fail without consequence, and calls at the end.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from saga_engine.plan import graph, words
from saga_engine.plan.bindings import COMPUTE
from saga_engine.plan.misuse import decided
from saga_engine.plan.notices import names_hearer, notice_kind
from saga_engine.plan.preview import brief
from saga_engine.plan.values import cut
from saga_engine.planner.compute_samples import computed_samples
from saga_engine.planner.review_words import ENGLISH, joined, said

if TYPE_CHECKING:
    from saga_engine.plan.compiled import CompiledPlan, CompiledStep
    from saga_engine.plan.model import Plan, Step

_BINDING: Final = re.compile(r"\$(?:output\.step_)?([A-Za-z0-9_-]+)")
_SHOWN_CHARS: Final = 300


def part_facts(plan: Plan, compiled: CompiledPlan) -> dict[str, Any]:
    """The facts by kind; each list is empty if the plan has no such part."""
    by_key = {step.key: step for step in compiled.steps}
    return {
        "calls": [call for step in plan.steps if step.tool for call in _calls(step)],
        "asks": [_asked(plan, compiled, step) for step in plan.steps if step.ask is not None],
        "waits": [_waited(step) for step in plan.steps if step.wait is not None],
        "brought": [_brought(step) for step in plan.steps if step.builtin and step.builtin not in words.BUILTINS],
        "lists": [_listed(step, compiled) for step in plan.steps if step.each is not None],
        "conditions": list(_conditions(plan)),
        "computed": _computed(plan, compiled),
        "continues": [
            {"step_id": step.step_id, "tool": step.tool}
            for step in plan.steps
            if step.on_error == "continue" or getattr(step.each, "on_error", None) == "collect"
        ],
        "final": [call for step in plan.finally_ for call in _calls(step)],
        "notices": [
            {"step_id": step.step_id, "tool": step.tool, "kind": kind, "to": _recipient(by_key[step.key])}
            for step in plan.steps
            if (kind := _notice(by_key[step.key]))
        ],
    }


def in_words(raw: Any) -> str:
    """A condition as it is read: ``order.total > 100 and (answer is yes or …)``."""
    if isinstance(raw, list):
        return joined("joined.and", *map(in_words, raw))
    if not isinstance(raw, Mapping):
        return cut(raw, 80)
    if "not" in raw:
        return said("not", condition=in_words(raw["not"]))
    for name, word in (("any", "joined.or"), ("all", "joined.and")):
        if isinstance(raw.get(name), list):
            return said("group", condition=joined(word, *map(in_words, raw[name])))
    value, op = value_in_words(raw.get("value")), str(raw.get("op"))
    if op in {"exists", "absent"}:
        return said(op, value=value)
    to = value_in_words(raw.get("to"))
    return said(f"compare.{op}", value=value, to=to) if f"compare.{op}" in ENGLISH else f"{value} {op} {to}"


def value_in_words(value: Any) -> str:
    """A value, or what a binding names: ``order.total``."""
    if isinstance(value, str) and value.startswith("$"):
        return _BINDING.sub(lambda found: found[1], value)
    return value if isinstance(value, str) else cut(value, 120)


def _calls(step: Step) -> Iterator[dict[str, Any]]:
    """Every forward call that a step may make, with its params as written: its own, then what replaces it.

    ``instead_of``: the tool of the step whose failure it follows; ``how``: it is no other call, but this.
    """
    params = dict(step.params)
    yield {"step_id": step.step_id, "tool": step.tool, "params": params}
    for each in step.fallback or ():
        told: dict[str, Any] = {"step_id": step.step_id, "tool": each.tool or step.tool, "instead_of": step.tool}
        told["params"] = params if each.params is None else dict(each.params)
        if each.cached_s is not None:
            told["how"] = said("fallback.cached", seconds=f"{each.cached_s:g}")
        elif each.queue_s is not None:
            told["how"] = said("fallback.queued", seconds=f"{each.queue_s:g}")
        yield told


# --- questions and waits ---------------------------------------------------------------------------------------------


def _asked(plan: Plan, compiled: CompiledPlan, step: Step) -> dict[str, Any]:
    """The question, and what each answer and no answer brings about."""
    ask = step.ask
    assert ask is not None
    options = list(ask.options) if isinstance(ask.options, tuple) else ask.options
    told: dict[str, Any] = {"step_id": step.step_id, "question": ask.question}
    if ask.to is not None:
        told["to"] = ask.to
    if options is not None:
        told["options"] = options
    elif ask.answer_schema is not None:
        told["schema"] = dict(ask.answer_schema)
    told["expires_s"] = ask.expires_s
    told["if_nobody_answers"] = _without_answer(step, ask.on_timeout, ask.expires_s)
    if isinstance(options, list):
        told["answers"] = {option: _follows(plan, step, {"answer": option}) for option in options}
    told["whatever_is_said"] = _regardless(compiled, step)
    return told


def _without_answer(step: Step, then: Any, seconds: Any) -> str:
    if seconds is None:
        return said("endless")
    seconds = seconds if isinstance(seconds, str) else f"{seconds:g}"
    if then == "fail":
        return said("expired.fails", seconds=seconds, step=step.key)
    if then == "continue":
        return said("expired.continues", seconds=seconds)
    return said("expired.value", seconds=seconds, value=cut(then.value, 120))


def _follows(plan: Plan, step: Step, output: Any) -> str:
    runs, skipped, fails = decided(plan, step.key, output)
    if fails:
        return said("follows.fails")
    follows: list[str] = [said("follows.runs", steps=", ".join(runs))] if runs else []
    follows += [said("follows.skips", steps=", ".join(skipped))] if skipped else []
    return joined("joined.then", *follows) if follows else said("follows.binding")


def _regardless(compiled: CompiledPlan, step: Step) -> list[str]:
    """The writes after a question that no answer to it keeps from running."""
    if step.failed_when is not None:
        return []
    at = compiled.by_key[step.key]
    bound = [{compiled.by_key[key] for key in _bound_by(each) if key in compiled.by_key} for each in compiled.steps]
    decided_by = graph.reach(at, graph.dependents(bound))
    after = graph.reach(at, [each.dependents for each in compiled.steps]) - decided_by
    return [each.key for each in compiled.steps if each.index in after and _made(each).kind != "read"]


def _made(whole: CompiledStep) -> CompiledStep:
    """The step that is called: of a list, that of an item."""
    return whole if whole.each is None else whole.each.item


def _bound_by(step: CompiledStep) -> set[str]:
    """The steps whose outputs a step binds, in its params, its list and its conditions."""
    found = set(step.params.outputs_or_default)
    for each in (step, _made(step)):
        found |= each.params.outputs_or_default
        for conditions in (each.when, each.failed_when):
            found |= set() if conditions is None else conditions.outputs
    return found - {step.key}


def _brought(step: Step) -> dict[str, Any]:
    return {"step_id": step.step_id, "word": step.builtin, "does": words.told(step.builtin, step.body)}


def _waited(step: Step) -> dict[str, Any]:
    """The events, how long, and what follows without one."""
    told: dict[str, Any] = {"step_id": step.step_id}
    wait = step.wait
    assert wait is not None
    several = wait.first or wait.all_of
    events = several if several is not None else (wait,)
    told["events"] = [
        {"event": each.event, "key": said("event.saga") if each.key is None else each.key} for each in events
    ]
    told["ends_with"] = said("end.first" if wait.first else "end.all" if wait.all_of else "end.event")
    told["timeout_s"] = wait.timeout_s
    told["without_event"] = _without_answer(step, wait.on_timeout, wait.timeout_s)
    if wait.on_late is not None:
        told["late"] = {"tool": wait.on_late.tool, "params": dict(wait.on_late.params)}
    return told


# --- lists, conditions, computations ---------------------------------------------------------------------------------


def _listed(step: Step, compiled: CompiledPlan) -> dict[str, Any]:
    """How many calls of what a list makes, as far as that is known."""
    each = step.each
    of = each if isinstance(each, str) else each.of  # type: ignore[union-attr]
    calls: int | None = len(of) if isinstance(of, list) else None
    name = re.match(r"\$input\.([A-Za-z_]\w*)\Z", of) if isinstance(of, str) else None
    if name is not None and isinstance(compiled.input.get(name[1]), list):
        calls = len(compiled.input[name[1]])
    told = {"step_id": step.step_id, "tool": step.tool, "of": value_in_words(of), "calls": calls}
    if not isinstance(each, str) and each is not None:
        told["parallel"] = each.parallel
        if each.when is not None:
            told["only_if"] = in_words(each.when)
    return told


def _conditions(plan: Plan) -> Iterator[dict[str, Any]]:
    for step in plan.steps:
        what = step.tool or step.builtin
        if step.when is not None:
            yield {"step_id": step.step_id, "tool": what, "runs_if": in_words(step.when)}
        if step.failed_when is not None:
            yield {"step_id": step.step_id, "tool": what, "fails_if": in_words(step.failed_when)}


def _computed(plan: Plan, compiled: CompiledPlan) -> list[dict[str, Any]]:
    """The computations, also inside of params, with results for the input and for samples of what tools return."""
    found: list[dict[str, Any]] = []
    written: dict[str, Any] = {}
    for step in plan.steps:
        inner = {name: value for name, value in step.params.items() if COMPUTE in repr(value)}
        if step.compute is not None or (step.tool and inner):
            written[step.key] = inner if step.compute is None else step.compute
    samples = computed_samples(compiled, written) if written else {}
    for step in (step for step in plan.steps if step.key in written):
        told: dict[str, Any] = {
            "step_id": step.step_id,
            "compute": brief(written[step.key], max_bytes=_SHOWN_CHARS * 3),
        }
        worked, value = samples[step.key]
        if worked and step.compute is None:
            value = {name: value[name] for name in written[step.key] if name in value}
        told["sample" if worked else "no_sample"] = brief(value, max_bytes=_SHOWN_CHARS)
        params = compiled.steps[compiled.by_key[step.key]].params
        told["of_samples"] = step.compute is None or bool(params.outputs_or_default)
        found.append(told)
    return found


# --- messages --------------------------------------------------------------------------------------------------------


def _notice(whole: CompiledStep) -> str:
    step = whole if whole.each is None else whole.each.item
    return "" if step.spec is None or step.builtin else notice_kind(step.spec)


def _recipient(whole: CompiledStep) -> str:
    step = whole if whole.each is None else whole.each.item
    return value_in_words(next((value for name, value in step.params.raw.items() if names_hearer(name)), ""))
