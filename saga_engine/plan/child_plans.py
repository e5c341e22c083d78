"""The plan of a child saga, inside the plan of its parent. Pure: nothing is read from the store.

A child is a saga of its own, with its own id and journal. Its plan is compiled here for what the parent must know: its
problems, whether it can be undone, and which params no view shows. A template stands in the plan with its steps as they
were when the parent was submitted (``execution.templates``), so a later version changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from saga_engine.errors import PlanInvalid, Problem
from saga_engine.plan.binder import Binder
from saga_engine.plan.bindings import Template
from saga_engine.plan.checks import examine
from saga_engine.plan.child import KIND
from saga_engine.plan.compiled import CompiledChild, CompiledStep
from saga_engine.plan.draft import Draft, draft
from saga_engine.plan.limits import MAX_CHILD_DEPTH
from saga_engine.plan.problems import Problems
from saga_engine.plan.value_schema import SCHEMA_HINT, ValueSchema
from saga_engine.plan.values import cut, json_path

if TYPE_CHECKING:
    from collections.abc import Iterator

    from saga_engine.plan.model import Plan
    from saga_engine.plan.problems import Path
    from saga_engine.plan.tool_spec import ToolCatalog

_LATER: Final = "binding-input-missing"


class Above(Protocol):
    """What a child needs of the plan that it is in."""

    @property
    def problems(self) -> Problems:
        """Gets its problems, too."""
        ...

    @property
    def by_key(self) -> Mapping[str, int]:
        """The steps that its input may bind."""
        ...

    @property
    def level(self) -> int:
        """How many levels it is below the first plan."""
        ...


class _Session(NamedTuple):
    """A session as a plan: its values bind nothing."""

    problems: Problems
    by_key: Mapping[str, int] = MappingProxyType({})
    level: int = 0


def compile_child(
    above: Above, body: Mapping[str, Any], params: Template, catalog: ToolCatalog | None, path: Path
) -> CompiledChild | None:
    """The child of the ``saga`` step at ``path`` of the plan ``above``; None: there is no plan that can be read."""
    from saga_engine.plan.model import load_plan  # pydantic is loaded with it

    problems = above.problems
    given = body.get("plan")
    if given is None:
        if body.get("template") is None:
            problems.add("saga-invalid", path, "a child saga has a plan or a template", "give one of the two")
        else:
            message = f"the plan of the template {cut(body['template'], 80)} is not known here"
            hint = "a submission reads it from its store; where there is none, give the child's plan itself"
            problems.add("saga-template", (*path, "template"), message, hint)
        return None
    if above.level >= MAX_CHILD_DEPTH:
        message = f"child sagas are nested more than {MAX_CHILD_DEPTH} levels deep"
        problems.add("saga-depth", (*path, "plan"), message, "give the inner steps to their parent")
        return None
    try:
        plan = load_plan(dict(given), recorded=catalog is None)
    except PlanInvalid as error:
        _relay(problems, error.problems, (*path, "plan"))
        return None
    if plan.task_id is not None:
        hint = "remove it: the id of a child follows from the ids of its parent and of its step"
        problems.add("saga-invalid", (*path, "plan", "task_id"), "a child saga cannot choose its id", hint)
    made = _draft(plan, body, params, catalog, above.level + 1)
    _relay(problems, _unknown_only(made, params), (*path, "plan"))
    schema = _input_schema(problems, {**plan.input, **_known(body, params)}, body, params, path)
    steps = list(made.steps)
    last = made.final.steps[len(steps) :] if made.final is not None else []
    return CompiledChild(
        plan=plan.json_bytes,
        digest=plan.digest,
        steps=[*steps, *last],
        input=plan.input,
        given=Binder(above.by_key, Problems()).template(dict(body.get("input") or {}), "", path),
        input_schema=schema,
        template=str(body.get("template") or "") if "@" in str(body.get("template")) else "",
        children=sum(1 + step.child.children for step in steps if step.child is not None),
        sensitive=_sensitive([*steps, *last]),
    )


def _draft(plan: Plan, body: Mapping[str, Any], params: Template, catalog: ToolCatalog | None, level: int) -> Draft:
    check_from = 0 if catalog is not None else len(plan.steps)
    made = draft(
        plan, catalog, _known(body, params), None, None, check_from=check_from, child=compile_child, level=level
    )
    examine(made)
    return made


def _known(body: Mapping[str, Any], params: Template) -> dict[str, Any]:
    """The values of the child's input that are known before it starts."""
    bound = _bound(params)
    return {name: value for name, value in (body.get("input") or {}).items() if name not in bound}


def _input_schema(
    problems: Problems, known: Mapping[str, Any], body: Mapping[str, Any], params: Template, path: Path
) -> dict[str, Any] | None:
    """The schema that the child's input must have. What is bound is checked when it starts."""
    schema: dict[str, Any] | None = body.get("input_schema")
    if schema is None:
        return None
    check = ValueSchema(schema)
    if why := check.problem():
        message = f"it is no JSON Schema that can be used: {why}"
        problems.add("saga-input", (*path, "input_schema"), message, SCHEMA_HINT)
        return None
    for where, message in check(known) if not _bound(params) else ():
        hint = "the schema is 'input_schema' of the step"
        problems.add("saga-input", (*path, "input", *where), message, hint)
    return schema


def session_child(body: Mapping[str, Any], catalog: ToolCatalog | None) -> CompiledChild:
    """The child of a session's ``saga`` step, whose input consists of values. Raises ``PlanInvalid``."""
    above = _Session(Problems())
    params = Template({KIND: dict(body)}, None, ())
    made = compile_child(above, body, params, catalog, (KIND,))
    if made is None or above.problems:
        above.problems.refuse()
    return replace(made, given=Template(dict(body.get("input") or {}), None, ()))


def _bound(params: Template) -> frozenset[str]:
    """The names in the child's input whose values are known only when it starts."""
    return frozenset(str(place.path[2]) for place in params.places if place.path[:2] == (KIND, "input"))


def _unknown_only(made: Draft, params: Template) -> Iterator[Problem]:
    """The problems of a child, without those of input that only its start can give."""
    bound = _bound(params)
    later: set[str] = set()
    for templates in [*made.bound.values(), *(made.final.bound.values() if made.final is not None else ())]:
        for template, *_ in templates:
            for place in template.places:
                names = () if place.tail is None else place.tail.path
                if place.source == "input" and names and names[0] in bound:
                    later.add(cut(place.text, 120))
    for problem in made.problems.listed():
        if problem.code != _LATER or not any(problem.message.startswith(f"{text} has no value") for text in later):
            yield problem


def _relay(problems: Problems, found: Any, path: Path) -> None:
    for problem in found:
        problems.relay(problem, json_path(path))


def _sensitive(steps: list[CompiledStep]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for step in steps:
        for call in step.calls():
            if call.spec is not None and call.spec.sensitive:
                found[call.tool] = list(call.spec.sensitive)
        if step.child is not None:
            found |= step.child.sensitive
    return found


def check_input(child: CompiledChild, given: Mapping[str, Any] | None) -> None:
    """Raises ``PlanInvalid`` if the input of a child does not have the form that it declares."""
    if child.input_schema is None:
        return
    found = ValueSchema(child.input_schema)({**child.input, **(given or {})})
    if found:
        raise PlanInvalid([Problem("saga-input", json_path(("input", *path)), message) for path, message in found])
