"""Children that are templates: their plans are read from the store and stand in the plan of their parent.

That pins them. The parent's journal has the steps and the version with which it was submitted, so a later version of a
template changes no saga, and no journal needs the store's templates.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec

from saga_engine.errors import PlanInvalid, Problem, SettingInvalid, TemplateNotFound
from saga_engine.execution.aside import beside
from saga_engine.plan.child import KIND
from saga_engine.plan.limits import MAX_CHILD_DEPTH, MAX_CHILDREN, MAX_PLAN_NODES
from saga_engine.plan.model import Plan, load_plan
from saga_engine.plan.parser import read_source
from saga_engine.plan.values import count_values, cut, json_path

if TYPE_CHECKING:
    from saga_engine.plan.parser import Source

_WORD: Final = "template"


class Found(Protocol):
    """One version of a template."""

    @property
    def name(self) -> str:
        """Its name."""
        ...

    @property
    def reference(self) -> str:
        """``NAME@VERSION``."""
        ...

    @property
    def plan(self) -> dict[str, Any]:
        """Its plan."""
        ...

    @property
    def input_schema(self) -> dict[str, Any] | None:
        """The JSON Schema of its input."""
        ...


_Get = Callable[[str], Awaitable[Found]]
_Path = tuple[str | int, ...]


async def with_templates(source: Plan | Source, get: _Get, *, within: str = "") -> Plan | Source:
    """The plan, in which each child that is a template has the plan of that template, and its version.

    ``within``: the name under which the plan is about to be stored; it cannot contain its own latest version. A plan
    that cannot be read is returned as it is. Raises ``PlanInvalid``.
    """
    if (isinstance(source, Plan) and b'"saga"' not in source.json_bytes) or _calls_tools_only(source):
        return source
    read = partial(msgspec.json.decode, source.json_bytes) if isinstance(source, Plan) else partial(read_source, source)
    try:
        data = await beside(read, source)
    except PlanInvalid:
        return source
    expansion = _Expansion(get)
    made = await expansion.plan(data, (), (within,) if within else ())
    if expansion.problems:
        raise PlanInvalid(expansion.problems)
    if not expansion.count:
        return source
    return await beside(partial(load_plan, made), made) if isinstance(source, Plan) else made


def _calls_tools_only(source: Plan | Source) -> bool:
    """Whether a plan as a dict has no child, as far as that can be seen without reading it."""
    steps = source.get("steps") if isinstance(source, dict) else None
    return isinstance(steps, list) and all(type(step) is dict and KIND not in step for step in steps)


class _Expansion:
    """One plan whose templates are read, each of them once."""

    def __init__(self, get: _Get) -> None:
        self._get = get
        self._known: dict[str, Found] = {}
        #: The values of each template, and of all of them where they stand.
        self._sizes: dict[str, int] = {}
        self._values = 0
        self.count = 0
        self.problems: list[Problem] = []

    async def plan(self, data: Any, path: _Path, inside: tuple[str, ...], level: int = 0) -> Any:
        """The plan at ``path``, which is ``inside`` these templates."""
        steps = data.get("steps") if isinstance(data, Mapping) else None
        if not isinstance(steps, list) or level > MAX_CHILD_DEPTH:
            return data
        made = list(steps)
        for number, step in enumerate(steps):
            body = step.get(KIND) if isinstance(step, Mapping) else None
            if isinstance(body, Mapping):
                place = (*path, "steps", number, KIND)
                made[number] = {**step, KIND: await self._child(dict(body), place, inside, level)}
        return {**data, "steps": made}

    async def _child(self, body: dict[str, Any], path: _Path, inside: tuple[str, ...], level: int) -> dict[str, Any]:
        reference = body.get(_WORD)
        if not isinstance(reference, str):
            if "plan" in body:
                body["plan"] = await self.plan(body["plan"], (*path, "plan"), inside, level + 1)
            return body
        self.count += 1
        if self.count > MAX_CHILDREN:
            if self.count == MAX_CHILDREN + 1:
                message = f"the plan and its templates have more than {MAX_CHILDREN} child sagas"
                self._add("saga-children", path, message, "make several sagas of it")
            return body
        found = await self._template(reference, path)
        if found is None:
            return body
        if found.reference in inside or reference in inside:
            message = f"the template {cut(reference, 80)} contains itself: {' → '.join([*inside, reference])}"
            self._add("saga-cycle", (*path, _WORD), message, "name a version that does not, or another template")
            return body
        if not self._has_room(found, path):
            return body
        plan = await self.plan(found.plan, (*path, "plan"), (*inside, found.reference), level + 1)
        if body.get("plan", plan) != plan:
            message = f"the plan is not that of the template {found.reference}"
            self._add("saga-invalid", (*path, "plan"), message, f"remove 'plan' or '{_WORD}'")
        made = {**body, _WORD: found.reference, "plan": plan}
        if found.input_schema is not None:
            if body.get("input_schema", found.input_schema) != found.input_schema:
                message = f"the template {found.reference} has an input schema of its own"
                self._add("saga-invalid", (*path, "input_schema"), message, "remove 'input_schema'")
            made["input_schema"] = found.input_schema
        return made

    def _has_room(self, found: Found, path: _Path) -> bool:
        """Whether the plan stays within the limits of a plan with one more copy of a template, before it is made."""
        size = self._sizes[found.reference]
        before, self._values = self._values, self._values + size
        if before <= MAX_PLAN_NODES < self._values:
            has = f"({found.reference}, {size:,} values) the plan has more than {MAX_PLAN_NODES:,} values"
            message = f"with this template {has}"
            self._add("limit-nodes", path, message, "make several sagas of it")
        return self._values <= MAX_PLAN_NODES

    async def _template(self, reference: str, path: _Path) -> Found | None:
        if reference not in self._known:
            try:
                found = self._known[reference] = await self._get(reference)
                size = partial(count_values, found.plan, MAX_PLAN_NODES)
                self._sizes[found.reference] = await beside(size, found.plan)
            except (TemplateNotFound, SettingInvalid) as error:
                self._add("saga-template", (*path, _WORD), error.message, error.hint or "")
                return None
        return self._known[reference]

    def _add(self, code: str, path: _Path, message: str, hint: str) -> None:
        self.problems.append(Problem(code, json_path(path), message, hint))
