"""Plans that differ in nothing but values: the first of them is compiled, and each other one takes its own values.

A program, or a model that is asked the same again, writes the same steps with other texts and numbers. What it means to
compile such a plan is known: which tools, which bindings, which order, that nothing is wrong with it. Only what depends
on the values is done for each plan: its params are checked against the schemas of the tools. If they have a problem,
the plan is compiled from the beginning, so that its problems are told as ever.

A shape knows tools, names of fields and bindings, and no value of any plan.
"""

from __future__ import annotations

from dataclasses import fields, replace
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from saga_engine.plan.before_images import ReadParams
from saga_engine.plan.binder import Binder, bindings_in
from saga_engine.plan.bindings import COMPUTE, FIRST, Template
from saga_engine.plan.checks import binds_input, check_input
from saga_engine.plan.compiled import CompiledPlan, CompiledStep
from saga_engine.plan.compiler import Prepared
from saga_engine.plan.draft import CheckedParams
from saga_engine.plan.effort import spend
from saga_engine.plan.problems import Problems
from saga_engine.plan.values import plain

if TYPE_CHECKING:
    from collections.abc import Mapping

    from saga_engine.plan.model import Plan, Step
    from saga_engine.plan.model_parts import Retry, Rollback

#: What a step may have, and its undo. Everything else holds words of its author that decide more than a param.
_FIELDS: Final = frozenset(
    {"step_id", "name", "tool", "params", "rollback", "depends_on", "kind", "retry", "timeout_s", "on_error"}
)
_OF_UNDO: Final = frozenset({"tool", "params", "retry", "timeout_s"})
#: Marks in a key, where a text is the name of a field or a binding.
_VALUE, _OBJECT, _LIST, _TEXT, _END = range(5)

#: The shape of a plan: what two plans share that differ in nothing but values.
Key = tuple[Any, ...]

_step_values = attrgetter(*(field.name for field in fields(CompiledStep) if field.init))
_plan_values = attrgetter(*(field.name for field in fields(CompiledPlan) if field.init))


def shape_of(plan: Plan) -> Key | None:
    """The shape of a plan; None: it has something in which more than the shape decides."""
    if plan.finally_:
        return None
    key: list[Any] = []
    for step in plan.steps:
        spend()
        if step.__pydantic_extra__ or not step.tool or not step.__pydantic_fields_set__ <= _FIELDS:
            return None
        key += (step.step_id, step.tool, step.depends_on, step.kind, step.timeout_s, step.on_error)
        key.append(None if step.retry is None else _of_retry(step.retry))
        undo = step.rollback
        if not _into(key, step.params):
            return None
        if undo is not None:
            said = undo.__pydantic_fields_set__
            if not said <= _OF_UNDO:
                return None
            key += (undo.tool, "params" in said, undo.timeout_s)
            key.append(None if undo.retry is None else _of_retry(undo.retry))
            if not _into(key, undo.params):
                return None
        key.append(_END)
    return tuple(key)


def _of_retry(retry: Retry) -> Key:
    return (retry.max_attempts, retry.base_s, retry.max_s, retry.jitter)


def _into(key: list[Any], value: Any) -> bool:
    """Add the shape of a value to a key; False: it has none."""
    kind = type(value)
    if kind is dict:
        if FIRST in value or COMPUTE in value:
            return False
        key.append(_OBJECT)
        for name, inner in value.items():
            key.append(name)
            if (kind := type(inner)) is dict or kind is list or (kind is str and "$" in inner):
                if not _into(key, inner):
                    return False
            else:
                key.append(_VALUE)
        key.append(_END)
    elif kind is list:
        key.append(_LIST)
        for inner in value:
            if not _into(key, inner):
                return False
        key.append(_END)
    elif kind is str and "$" in value:
        bound = bindings_in(value)
        if bound is None or any(text.startswith("$secret") for text in bound):
            return False
        key += (value,) if bound == [value] else (_TEXT, *bound, _END) if bound else (_VALUE,)
    else:
        key.append(_VALUE)
    return True


class _Open(NamedTuple):
    """Where a plan says values of its own: in the params of a step, and of its undo.

    ``texts``: some stand around bindings, which are read again with them.
    """

    params: bool
    undo: bool
    texts: bool


class Shape:
    """A compiled plan without its values."""

    __slots__ = ("_bound", "_checked", "_compiled", "_draft", "_open")

    def __init__(self, prepared: Prepared) -> None:
        """From a plan that has a shape, and in which nothing was wrong."""
        compiled, draft = prepared
        plan = _hollow_plan(draft.plan)
        self._open = [_Open(_is_open(step), _is_open(step.rollback), _has_texts(step)) for step in draft.plan.steps]
        swapped, steps = self._steps(compiled, plan)
        self._checked = [
            each._replace(params=swapped.get(id(each.params), each.params))
            for each in draft.checked
            if id(each.params) in swapped or binds_input(each.params)
        ]
        bound = {
            index: [each._replace(template=swapped.get(id(each.template), each.template)) for each in some]
            for index, some in draft.bound.items()
        }
        self._bound = any(binds_input(each.template) for some in bound.values() for each in some)
        self._compiled = replace(compiled, goal="", input={}, name="", tags=(), steps=steps)
        self._draft = replace(draft, plan=plan, input={}, steps=steps, bound=bound, checked=[])

    @staticmethod
    def of(prepared: Prepared) -> Shape | None:
        """The shape of a plan; None: more than that has to be known of it.

        A value in the params of an undo may make them those of its registration. The names of fields inside of a
        sensitive param may be what is sensitive.
        """
        for step, written in zip(prepared.compiled.steps, prepared.draft.plan.steps, strict=True):
            undo = step.rollback
            if undo is not None and isinstance(undo.usual, Template) and _is_open(written.rollback):
                return None
            for call in (step, undo):
                sensitive = () if call is None or call.spec is None else call.spec.sensitive
                if call is not None and any(isinstance(call.params.raw.get(name), dict | list) for name in sensitive):
                    return None
        return Shape(prepared)

    def filled(self, plan: Plan, given: Mapping[str, Any] | None) -> Prepared | None:
        """The plan with this shape, compiled; ``given``: its input. None: it has problems, or may have."""
        values = {**plan.input, **plain(dict(given))} if given else plan.input
        swapped, steps = self._steps(self._compiled, plan)
        draft = replace(self._draft, plan=plan, input=values, steps=steps, problems=Problems(), checked=[])
        checked = [CheckedParams(spec, swapped.get(id(params), params), base) for spec, params, base in self._checked]
        check_input(draft, checked, bound=self._bound)
        if draft.problems:
            return None
        made = CompiledPlan(*_plan_values(self._compiled))
        made.goal, made.input, made.steps = plan.goal, values, steps
        made.name, made.tags = plan.name or "", plan.tags
        made.deadline_s, made.max_tool_calls, made.max_cost = plan.deadline_s, plan.max_tool_calls, plan.max_cost or {}
        made.on_failure = plan.on_failure
        made.tools = self._compiled.tools
        return Prepared(made, draft)

    def _steps(self, compiled: CompiledPlan, plan: Plan) -> tuple[dict[int, Template], list[CompiledStep]]:
        """The steps with the values of a plan; and its templates by the id of those whose place they take."""
        swapped: dict[int, Template] = {}
        steps: list[CompiledStep] = []
        for step, written, is_open in zip(compiled.steps, plan.steps, self._open, strict=True):
            name = written.title
            if not is_open.params and not is_open.undo and step.name == name:
                steps.append(step)
                continue
            made = CompiledStep(*_step_values(step))
            made.name = name
            if is_open.params:
                assert isinstance(step.params, Template)
                params = made.params = swapped[id(step.params)] = (
                    _read_again(compiled, step.key, written.params)
                    if is_open.texts
                    else step.params.over(written.params)
                )
                if step.before is not None:
                    schema = None if step.before.spec is None else step.before.spec.input_schema
                    made.before = replace(step.before, params=ReadParams(schema, params))
            if is_open.undo:
                undo = step.rollback
                assert undo is not None
                assert isinstance(undo.params, Template)
                assert written.rollback is not None
                raw = written.rollback.params
                params = swapped[id(undo.params)] = (
                    _read_again(compiled, step.key, raw) if is_open.texts else undo.params.over(raw)
                )
                made.rollback = replace(undo, params=params)
            steps.append(made)
        return swapped, steps


def _read_again(compiled: CompiledPlan, key: str, raw: dict[str, Any]) -> Template:
    return Binder(compiled.by_key, Problems()).template(raw, key, ())


def _hollow_plan(plan: Plan) -> Plan:
    """A plan without its values, and without what it says of itself."""
    steps = []
    for step in plan.steps:
        undo = step.rollback
        if undo is not None:
            undo = undo.model_copy(update={"params": _hollow(undo.params)})
        steps.append(step.model_copy(update={"name": None, "params": _hollow(step.params), "rollback": undo}))
    empty: dict[str, Any] = {"task_id": None, "name": None, "tags": (), "goal": "", "input": {}, "assumptions": ()}
    made = plan.model_copy(update={**empty, "steps": tuple(steps)})
    for said in ("json_bytes", "digest"):  # a copy has what was worked out of the other one
        made.__dict__.pop(said, None)
    return made


def _hollow(value: Any) -> Any:
    """A value of the same shape in which only the bindings are left."""
    if isinstance(value, str):
        bound = (bindings_in(value) or []) if "$" in value else []
        return value if bound == [value] else "".join(f"{{{text}}}" for text in bound) or None
    if isinstance(value, dict):
        return {name: _hollow(inner) for name, inner in value.items()}
    return [_hollow(inner) for inner in value] if isinstance(value, list) else None


def _is_open(call: Step | Rollback | None) -> bool:
    """Whether a plan says values in the params of a call."""
    return call is not None and _hollow(call.params) != call.params


def _has_texts(step: Step) -> bool:
    """Whether a text in the params of a step, or of its undo, has bindings inside of it."""
    key: list[Any] = []
    _into(key, step.params)
    _into(key, {} if step.rollback is None else step.rollback.params)
    return _TEXT in key
