"""The tools as a workflow knows them: what they declared when the saga was submitted, and what workers have said since.

A workflow must decide the same way each time it is replayed, on whatever worker. So it never looks at the tools of its
worker: every declaration is in its input, or in the result of an activity that is in its history.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from saga_engine.analysis.trace import DeclaredTools
from saga_engine.plan.compiled import CompiledPlan
from saga_engine.plan.tool_spec import ParamsCheck, ToolSpec

#: Makes the judge of params from a tool's name and its input schema.
CheckMaker = Callable[[str, dict[str, Any]], ParamsCheck]


class Declarations:
    """A tool catalog of declarations; ``fresh`` ones stand before those of the day."""

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
        """The names of all tools that are known."""
        return self._tools.names()

    def learn(self, declared: Mapping[str, Any]) -> None:
        """Take in the declarations of tools that are not known yet."""
        new = {name: facts for name, facts in declared.items() if name not in self.declared}
        if new:
            self.declared |= new
            self._tools = self._made()

    def renew(self, fresh: Mapping[str, Any]) -> None:
        """A worker says that these tools are declared otherwise today."""
        self.fresh |= fresh
        self._tools = self._made()

    def restore(self, name: str) -> None:
        """Take a tool as it was declared on the day; a worker may say again that it is another."""
        if self.fresh.pop(name, None) is not None:
            self._tools = self._made()

    def with_(self, declared: Mapping[str, Any]) -> Declarations:
        """A catalog that knows these tools, too; this one is as before."""
        return Declarations({**declared, **self.declared}, self.fresh, self._check)

    def respecify(self, plan: CompiledPlan) -> None:
        """Put the declarations of now into a compiled plan. Retry policies and time-outs stay as they were compiled."""
        for call in plan.calls():
            call.spec = self.spec(call.tool)
            if call.rollback is not None:
                call.rollback.spec = self.spec(call.rollback.tool)

    def _made(self) -> DeclaredTools:
        return DeclaredTools({"declared": {**self.declared, **self.fresh}}, None, self._check)
