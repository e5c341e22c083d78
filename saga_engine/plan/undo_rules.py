"""Finds steps of a plan whose undo is weaker than what their tools register: legal, but rarely meant.

A person who writes a plan may decide so and is warned. A model may not decide it: for its plan these are problems,
except with the operator's leave (``[planner] undo_by_model``).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from saga_engine.errors import Problem
from saga_engine.plan import graph, jsonpath, schema_types
from saga_engine.plan.bindings import Template
from saga_engine.plan.compiler import checked_draft
from saga_engine.plan.undo_calls import written_undos
from saga_engine.plan.values import cut, json_path
from saga_engine.plan.which_undo import EACH, registered_undo

if TYPE_CHECKING:
    from saga_engine.plan.compiled import CompiledFallback, CompiledRollback, CompiledStep
    from saga_engine.plan.draft import Draft
    from saga_engine.plan.model import Plan
    from saga_engine.plan.problems import Path
    from saga_engine.plan.tool_spec import ToolCatalog, ToolSpec
    from saga_engine.plan.which_undo import UndoOf

SWITCHED_OFF: Final = "undo-switched-off"
REPLACED: Final = "undo-replaced"
REDIRECTED: Final = "undo-redirected"
UNRELATED: Final = "undo-unrelated"
EARLY: Final = "irreversible-early"
AS_STEP: Final = "undo-as-step"

#: What the registration of an undo may bind.
_BOUND: Final = re.compile(r"\$(?:output|before|params|item)(?![^.\[])")
#: Values that say nothing about which object is meant.
_SHORT: Final = 2
#: Parameters of an undo that only explain it.
_WORDS: Final = frozenset({"reason", "note", "notes", "comment", "message", "memo", "description", "why", "text"})


def undo_steps(made: Draft) -> list[Problem]:
    """The steps that call the undo of an earlier step, about what that returned: each is that undo, if all fits."""
    found: list[Problem] = []
    for step in made.steps:
        for other in made.steps[: step.index]:
            rollback = other.rollback
            if rollback is None or not step.tool or rollback.tool != step.tool or other.before is not None:
                continue
            own = _Own(other.key, other)
            if not any(own.has(value) for value in _leaves(list(step.params.raw.values()))):
                continue
            message = (
                f"step {step.key} calls {cut(step.tool, 80)}, which undoes step {other.key}: "
                f"with the params of that undo it is the undo, and step {other.key} then counts as undone"
            )
            hint = "leave the step out if only a failure is to undo it"
            found.append(Problem(AS_STEP, json_path(("steps", step.index)), message, hint))
            break
    return found


def undo_findings(plan: Plan, catalog: ToolCatalog) -> list[Problem]:
    """The steps of a valid plan that switch off, replace or redirect an undo, or that cannot be undone and come early.

    A plan with problems of its own may have more findings than these.
    """
    made = checked_draft(plan, catalog)
    found: list[Problem] = []
    for step in made.steps:
        path: Path = ("steps", step.index)
        found += _kind(made, step, path)
        found += _rollback(step, step, path)
        for number, fallback in enumerate(step.fallbacks):
            if fallback.way == "tool":
                found += _rollback(step, fallback, (*path, "fallback", number))
    return [*found, *_early(made)]


# --- kinds ---------------------------------------------------------------------------------------------------------


def _kind(made: Draft, step: CompiledStep, path: Path) -> Iterator[Problem]:
    """A step that its tool's registered undo could undo, and that is never undone."""
    if step.spec is None or step.spec.undo is None or step.kind not in {"irreversible", "pivot", "retriable"}:
        return
    if step.kind == "retriable" and _needs_pivot(made, step):
        return  # after the point of no return nothing else is legal
    message = f"the kind '{step.kind}' of step {step.key} switches off what {cut(step.tool, 80)} registers: the undo "
    hint = "remove the kind; a step with an undo stands before the pivot"
    yield Problem(SWITCHED_OFF, json_path((*path, "kind")), f"{message}{cut(step.spec.undo, 80)}", hint)


def _needs_pivot(made: Draft, step: CompiledStep) -> bool:
    """Whether a required param of a step is an output of the pivot, or of a step that needs one."""
    pivot = next((each for each in made.steps if each.kind == "pivot"), None)
    if pivot is None:
        return False
    behind = {pivot.key}
    for index in graph.sort([each.deps for each in made.steps]):
        each = made.steps[index]
        template = each.params
        required = each.spec.input_schema.get("required") if each.spec is not None else None
        names = required if isinstance(required, list) else []
        places = template.places if isinstance(template, Template) else ()
        if any(
            place.source == "output" and place.step in behind and not place.embedded and place.path[0] in names
            for place in places
        ):
            behind.add(each.key)
    return step.key in behind


def _early(made: Draft) -> Iterator[Problem]:
    """Steps without an undo that come before steps with one, although these do not need them."""
    for step in early_steps(made):
        message = f"step {step.key} cannot be undone, and a step that can be undone may run after it"
        hint = f"move step {step.key} behind the steps that can be undone"
        yield Problem(EARLY, json_path(("steps", step.index)), message, hint)


def early_steps(made: Draft) -> list[CompiledStep]:
    """The steps whose compensation their tools leave to a model, and that may run before a step that can be undone.

    A step that needs the output of such a step can only come after it.
    """
    semantic = [step for step in made.steps if step.semantic and step.index not in made.guessed]
    if not semantic:
        return []
    deps = [step.deps for step in made.steps]
    needing = graph.dependents([bound_to(made, step) for step in made.steps])
    found: list[CompiledStep] = []
    for step in semantic:
        settled = graph.reach(step.index, deps) | graph.reach(step.index, needing) | {step.index}
        if any(each.rollback is not None and each.index not in settled for each in made.steps):
            found.append(step)
    return found


def bound_to(made: Draft, step: CompiledStep) -> set[int]:
    """The steps whose outputs the calls of a step bind."""
    calls: list[CompiledStep | CompiledFallback] = [step, *step.fallbacks]
    return {made.by_key[key] for call in calls for key in call.params.outputs if key in made.by_key}


# --- rollbacks -----------------------------------------------------------------------------------------------------


def _rollback(step: CompiledStep, call: CompiledStep | CompiledFallback, path: Path) -> Iterator[Problem]:
    """A written rollback, compared with the undo that the tool registers."""
    rollback, spec = call.rollback, call.spec
    if rollback is None or spec is None or not rollback.tool:
        return
    place = (*path, "rollback")
    leave = "leave 'rollback' out: the engine calls the registered undo"
    own = _Own(step.key, call)
    for where, undo in written_undos(rollback, place):
        if (spec.undo is None or undo is not rollback) and not own.concerns(undo):
            message = f"the rollback of step {step.key} has no value of the step, so it undoes something else"
            hint = f"bind what the step returned: $output.step_{step.key}.field"
            yield Problem(UNRELATED, json_path((*where, "params")), message, hint)
    registered = registered_undo(spec)
    if registered is None:
        return
    tools = [each.tool for each in (rollback, *rollback.then)]
    if rollback.tool != registered.tool and isinstance(rollback.params, Template):
        if registered.tool not in tools:  # else what the tool registers is done, too
            which = f"{cut(spec.undo, 80)}, the undo that {cut(spec.name, 80)} registers, by {cut(rollback.tool, 80)}"
            yield Problem(REPLACED, json_path((*place, "tool")), f"the rollback replaces {which}", leave)
        return
    for later in registered.then or ():
        if later["tool"] not in tools:
            message = f"the rollback leaves out {cut(later['tool'], 80)}, which the registered undo calls as well"
            yield Problem(REPLACED, json_path(place), message, leave)
    if isinstance(rollback.params, Template) and not rollback.declared and rollback.spec is not None:
        for name in own.unlike(registered, rollback):
            where = place if name == EACH else (*place, "params", name)
            message = f"the registered undo {cut(spec.undo, 80)} would not get this value for '{cut(name, 80)}'"
            yield Problem(REDIRECTED, json_path(where), message, leave)


class _Own:
    """What belongs to one call: its params as written, and the bindings to its output."""

    def __init__(self, key: str, call: CompiledStep | CompiledFallback) -> None:
        assert call.spec is not None
        self._params: Mapping[str, Any] = call.params.raw
        self._output = call.spec.output_schema
        self._input = call.spec.input_schema
        #: The binding, whole or inside of a text without spaces: an address or a key, not a message.
        self._bound = re.compile(
            rf"(?:[^\s{{}}]*\{{)?\$(?:output\.step_(?:{re.escape(key)}|{_doubled(key)})|key)(?![\w-])"
        )
        self._prefix = re.compile(rf"\$output\.step_(?:{re.escape(key)}|{_doubled(key)})(?![\w-])")
        self._values = [value for value in _leaves(list(self._params.values())) if _telling(value)]

    def concerns(self, rollback: CompiledRollback) -> bool:
        """Whether an undo gets a value of the call; a call without params has an undo without params."""
        values = list(_leaves([rollback.params.raw, {} if rollback.each is None else rollback.each.raw]))
        if any(self.has(value) for value in values):
            return True
        return not values and not self._params and not _names(rollback.spec.input_schema if rollback.spec else {})

    def has(self, value: Any) -> bool:
        """Whether a value is the call's: bound to its output or key, or one of its params."""
        if isinstance(value, str) and self._bound.match(value) and not re.search(r"\s", value):
            return True
        return _telling(value) and value in self._values

    def unlike(self, registered: UndoOf, rollback: CompiledRollback) -> Iterator[str]:
        """The params (or the list) of a written undo for which the registered one would get other values."""
        raw = rollback.params.raw
        if registered.only_names:
            assert rollback.spec is not None
            yield from (name for name, value in raw.items() if not self._fits(name, value, rollback.spec))
            return
        usual = registered.params or {}
        for name in [*raw, *(each for each in usual if each not in raw)]:
            if name not in raw or name not in usual or self._spelt(raw[name]) != self._spelt(usual[name]):
                yield name
        if self._spelt(registered.each) != self._spelt(None if rollback.each is None else rollback.each.raw[EACH]):
            yield EACH

    def _spelt(self, value: Any) -> Any:
        """A value in one spelling, whether a plan or a registration has it."""
        if isinstance(value, Mapping):
            return {name: self._spelt(each) for name, each in value.items()}
        if isinstance(value, Sequence) and not isinstance(value, str):
            return [self._spelt(each) for each in value]
        if not isinstance(value, str) or (found := self._prefix.match(value) or _BOUND.match(value)) is None:
            return value
        rest = value[found.end() :]
        tail = jsonpath.parse(rest) if rest else None
        source = "$output" if found[0].startswith("$output") else found[0]
        if isinstance(tail, jsonpath.TailFault):
            return value
        return source, None if tail is None else tail.path or tail.text

    def _fits(self, name: str, value: Any, undo: ToolSpec) -> bool:
        """Whether the registered undo could get ``value`` as its parameter ``name``."""
        in_output = self._output is not None and schema_types.told_of(self._output, name)
        if isinstance(value, str) and self._prefix.match(value):
            rest = self._prefix.sub("", value, count=1)
            if rest in {f".{name}", f"['{name}']", f'["{name}"]'}:
                return True
            return name not in self._params and (self._output is None or not in_output)
        if value == "$key":
            return name not in self._params and not in_output
        if name in self._params:
            return bool(value == self._params[name])
        if in_output and self._output is not None:
            return False
        if all(self.has(each) for each in _leaves(value)) or (name.lower() in _WORDS and isinstance(value, str)):
            return True
        required = undo.input_schema.get("required")
        # What nothing can fill must be written; a number or an id of the author's own would aim somewhere else.
        return (
            isinstance(required, list) and name in required and isinstance(value, str) and not re.search(r"\d", value)
        )


def _doubled(key: str) -> str:
    """A plan whose ids are texts such as 'step_1' binds '$output.step_1' to that step."""
    return re.escape(key.removeprefix("step_"))


def _telling(value: Any) -> bool:
    """Whether a value can tell one object from another."""
    if isinstance(value, str):
        return len(value.strip()) >= _SHORT
    return isinstance(value, int | float) and not isinstance(value, bool)


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, Sequence) and not isinstance(value, str):
        for item in value:
            yield from _leaves(item)
    else:
        yield value


def _names(schema: Mapping[str, Any]) -> list[str]:
    properties = schema.get("properties")
    return list(properties) if isinstance(properties, dict) else []
