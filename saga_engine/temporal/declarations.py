"""The tools as a workflow knows them: declared when the saga was submitted, and updated by workers since.

A workflow must decide the same way each time it is replayed, on any worker. So it never reads the tools of its worker:
every declaration is in its input, or in the result of an activity in its history.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from saga_engine.analysis.trace import DeclaredTools
from saga_engine.plan.compiled import CompiledPlan
from saga_engine.plan.tool_spec import ParamsCheck, ToolSpec

#: Makes the check of params from a tool's name and its input schema.
CheckMaker = Callable[[str, dict[str, Any]], ParamsCheck]


class Declarations:
    """A tool catalog of declarations; ``fresh`` ones take precedence over those from the submission."""

    __slots__ = ("_check", "_tools", "declared", "fresh")

    def __init__(self, declared: Mapping[str, Any], fresh: Mapping[str, Any], check: CheckMaker) -> None:
        self.declared: dict[str, Any] = dict(declared)
        self.fresh: dict[str, Any] = dict(fresh)
        self._check = check
        self._tools = self._made()

    def spec(self, name: str) -> ToolSpec | None:
        """The declaration of a tool; None if none is known."""
        return self._tools.spec(name)

    def names(self) -> Sequence[str]:
        """The names of all known tools."""
        return self._tools.names()

    def learn(self, declared: Mapping[str, Any]) -> None:
        """Add the declarations of tools that are not known yet."""
        new = {name: facts for name, facts in declared.items() if name not in self.declared}
        if new:
            self.declared |= new
            self._tools = self._made()

    def renew(self, fresh: Mapping[str, Any]) -> None:
        """Replace declarations that a worker says have changed."""
        self.fresh |= fresh
        self._tools = self._made()

    def restore(self, name: str) -> None:
        """Restore the declaration from the submission; a worker may report a change again."""
        if self.fresh.pop(name, None) is not None:
            self._tools = self._made()

    def with_(self, declared: Mapping[str, Any]) -> Declarations:
        """A catalog that also knows these tools; this one is unchanged."""
        return Declarations({**declared, **self.declared}, self.fresh, self._check)

    def respecify(self, plan: CompiledPlan) -> None:
        """Put the current declarations into a compiled plan. Retry policies and time-outs stay as compiled."""
        for call in plan.calls():
            call.spec = self.spec(call.tool)

    def _made(self) -> DeclaredTools:
        return DeclaredTools({"declared": {**self.declared, **self.fresh}}, None, self._check)
