"""The tools offered to a model, and the checks that enforce the offer: they do not rely on its cooperation."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from saga_engine.errors import Problem
from saga_engine.plan.values import cut, json_path

if TYPE_CHECKING:
    from saga_engine.plan.model import Plan, Step
    from saga_engine.plan.tool_spec import ToolCatalog, ToolSpec

#: It may find too many (in a text where it would not bind), never too few.
_SECRET = re.compile(r"\$secret\.(\w*)")
_MAX_PROBLEMS = 20


class Offer:
    """The tools that a model may use, with the undos and probes registered for them. Is a ``ToolCatalog``.

    ``catalog`` resolves registered undos; without it they must be among ``specs``. A step may call the offered tools; a
    rollback may also call the registered undo of such a tool.
    """

    def __init__(
        self, specs: Sequence[ToolSpec], catalog: ToolCatalog | None = None, secrets: Sequence[str] = ()
    ) -> None:
        self.offered = {spec.name: spec for spec in specs}
        self.secrets = frozenset(secrets)
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

    def problems(self, plan: Plan) -> list[Problem]:
        """The places where a plan exceeds the offer: tools that serve as undo only, and secrets."""
        found: list[Problem] = []
        for index, step in enumerate(plan.steps):
            found += self._tools(step, index)
            found += self._secrets(step.model_dump(exclude_unset=True), ("steps", index))
            if len(found) >= _MAX_PROBLEMS:
                break
        return found[:_MAX_PROBLEMS]

    def _tools(self, step: Step, index: int) -> list[Problem]:
        called: list[tuple[str, tuple[str | int, ...]]] = [(step.tool, ("steps", index, "tool"))]
        for number, each in enumerate(step.fallback or ()):
            if each.tool is not None:
                called.append((each.tool, ("steps", index, "fallback", number, "tool")))
        return [
            Problem(
                "tool-not-offered",
                json_path(path),
                f"{cut(tool, 80)} undoes another tool's call; it was not offered for a step",
                "use it in a rollback only",
            )
            for tool, path in called
            if tool in self._specs and tool not in self.offered
        ]

    def _secrets(self, value: Any, path: tuple[str | int, ...]) -> list[Problem]:
        if isinstance(value, str):
            return [
                Problem(
                    "secret-not-offered",
                    json_path(path),
                    f"the secret {cut(name, 80)} was not offered",
                    f"secrets: {', '.join(sorted(self.secrets)) or 'none'}",
                )
                for name in _SECRET.findall(value)
                if name not in self.secrets
            ]
        items: Iterable[tuple[str | int, Any]] = ()
        if isinstance(value, dict):
            items = value.items()
        elif isinstance(value, list | tuple):
            items = enumerate(value)
        return [problem for key, item in items for problem in self._secrets(item, (*path, key))]
