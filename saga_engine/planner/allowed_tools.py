"""The tools offered to a model, and the checks that enforce the offer: they do not rely on its cooperation."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from saga_engine.errors import Problem
from saga_engine.plan.problems import known_names
from saga_engine.plan.values import cut, json_path

if TYPE_CHECKING:
    from saga_engine.plan.model import Plan
    from saga_engine.plan.tool_spec import ToolCatalog, ToolSpec
    from saga_engine.planner.settings import UndoByModel

_Path = tuple[str | int, ...]
#: It may find too many (in a text where it would not bind), never too few.
_SECRET = re.compile(r"\$secret\.(\w*)")
_MAX_PROBLEMS = 20


class Offer:
    """The tools that a model may use, with the undos and probes registered for them. Is a ``ToolCatalog``.

    ``catalog`` resolves registered undos; without it they must be among ``specs``. A step may call the offered tools; a
    rollback may also call the registered undo of such a tool. ``secrets`` are the names that a step may bind; ``None``
    leaves that to another check. ``undo_by_model``, ``max_steps`` and ``may_use`` are those of ``PlannerSettings``.
    """

    def __init__(
        self,
        specs: Sequence[ToolSpec],
        catalog: ToolCatalog | None = None,
        secrets: Sequence[str] | None = (),
        *,
        undo_by_model: UndoByModel = "registered",
        max_steps: int = 50,
        may_use: Sequence[str] = (),
    ) -> None:
        self.undo_by_model: UndoByModel = undo_by_model
        self.max_steps = max_steps
        self.may_use = tuple(may_use)
        self.offered = {spec.name: spec for spec in specs}
        self.secrets = None if secrets is None else tuple(sorted(set(secrets)))
        self._specs = dict(self.offered)
        for spec in specs:
            for other in (spec.undo, spec.probe):
                found = catalog.spec(other) if catalog is not None and other is not None else None
                if found is not None:
                    self._specs.setdefault(found.name, found)

    def spec(self, name: str) -> ToolSpec | None:
        """The declaration of an offered tool or of the undo of one."""
        return self._specs.get(name)

    def names(self) -> Sequence[str]:
        """The names of the offered tools."""
        return list(self.offered)

    def check(self, plan: Plan) -> list[Problem]:
        """The problems of a plan: those that ``saga check`` finds with the offered tools, and where it exceeds them."""
        from saga_engine.plan.compiler import check_plan

        body = plan.model_dump(exclude_unset=True)
        return self.beside(check_plan(plan, self), body["steps"], body.get("finally", ()))

    def beside(
        self, found: Sequence[Problem], steps: Sequence[Mapping[str, Any]], final: Sequence[Mapping[str, Any]] = ()
    ) -> list[Problem]:
        """The places where steps exceed the offer, before the problems ``found``, which name some of them already.

        ``final``: the steps of ``finally``.
        """
        known = {problem.path for problem in found}
        beyond: list[Problem] = []
        places: list[tuple[_Path, Mapping[str, Any]]] = [(("steps", at), step) for at, step in enumerate(steps)]
        for path, step in [*places, *((("finally", at), step) for at, step in enumerate(final))]:
            beyond += [*self._tools(step, path), *self._secrets(step, path)]
            if len(beyond) >= _MAX_PROBLEMS:
                break
        return [*(problem for problem in beyond[:_MAX_PROBLEMS] if problem.path not in known), *found]

    def _tools(self, step: Mapping[str, Any], path: _Path) -> Iterator[Problem]:
        for tool, place, undoes in _called(step, path):
            if tool not in self.offered and not (undoes and tool in self._specs):
                message, hint = f"the tool {cut(tool, 80)} was not offered for a step", "use it in a rollback only"
                if tool not in self._specs:
                    hint = known_names(sorted(self.offered), "tools")
                yield Problem("tool-not-offered", json_path(place), message, hint)

    def _secrets(self, value: Any, path: _Path) -> Iterator[Problem]:
        if self.secrets is None:
            return
        items: Iterable[tuple[str | int, Any]] = ()
        if isinstance(value, str):
            for name in _SECRET.findall(value):
                if name not in self.secrets:
                    message = f"the secret {cut(name, 80)} was not offered"
                    hint = f"secrets: {', '.join(self.secrets) or 'none'}"
                    yield Problem("secret-not-offered", json_path(path), message, hint)
        elif isinstance(value, Mapping):
            items = value.items()
        elif isinstance(value, list | tuple):
            items = enumerate(value)
        for key, item in items:
            yield from self._secrets(item, (*path, key))


def _undoing(rollback: Any, path: _Path) -> Iterator[tuple[str, _Path, bool]]:
    """The tools of an undo."""
    if not isinstance(rollback, Mapping):
        return
    if isinstance(rollback.get("tool"), str):
        yield rollback["tool"], (*path, "tool"), True
    then = rollback.get("then")
    for number, call in enumerate(then if isinstance(then, list | tuple) else ()):
        yield from _undoing(call, (*path, "then", number))
    yield from _undoing(rollback.get("when_absent"), (*path, "when_absent"))


def _called(step: Mapping[str, Any], path: _Path) -> Iterator[tuple[str, _Path, bool]]:
    """The tools that a step names, each with its place and whether it only undoes."""
    if isinstance(step.get("tool"), str):
        yield step["tool"], (*path, "tool"), False
    yield from _undoing(step.get("rollback"), (*path, "rollback"))
    fallback = step.get("fallback")
    for number, each in enumerate(fallback if isinstance(fallback, list | tuple) else (fallback,)):
        if isinstance(each, Mapping):
            yield from _called(each, (*path, "fallback", number))
