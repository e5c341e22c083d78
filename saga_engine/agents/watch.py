"""Watches the calls of one session before they are made."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from saga_engine.agents.guards import NO_GUARDS, AgentGuards, Answers, LoopGuard
from saga_engine.agents.undeclared import is_undeclared, note_undeclared, undeclared_calls
from saga_engine.core.records import CallAdded
from saga_engine.core.state import State
from saga_engine.plan.costs import Costs
from saga_engine.plan.tool_spec import ToolCatalog
from saga_engine.runtime.session_options import OnFailure


class Watch:
    """What a session asks about its agent's calls. Implements ``session_options.Watching``."""

    def __init__(
        self,
        catalog: ToolCatalog,
        guards: AgentGuards = NO_GUARDS,
        repeats: Callable[[CallAdded], bool] = lambda _record: False,
        answers: Answers | None = None,
        *,
        costs_of: Callable[[str], Costs] | None = None,
        now_ms: Callable[[], int],
    ) -> None:
        """``repeats``: whether the next call is answered as it was recorded; a guard does not refuse that.

        ``answers``: those of the calls, if no saga has them. ``costs_of``: what a call of a tool costs; None: as the
        guards say. ``now_ms``: the clock.
        """
        self._answers = answers
        self._catalog = catalog
        #: The places of the calls that are meant to stay, and the keys of all calls by place.
        self._deliberate: set[int] = set()
        self._made: Sequence[str] = ()
        self._loops = LoopGuard(guards, repeats, costs_of or (lambda name: guards.costs.get(name, {})), now_ms)

    def call(self, record: CallAdded, *, irreversible: bool, state: State | None, made: Sequence[str]) -> None:
        """A call is about to be made, after those with the keys ``made``; ``irreversible``: the program said so.

        Raises ``CallFailed`` if a guard refuses it.
        """
        self._loops.check(record, state, made, self._answers)
        self._made = made
        self._deliberate.discard(len(made))
        if irreversible:
            self._deliberate.add(len(made))
        elif record.irreversible and is_undeclared(self._catalog, record.tool):
            note_undeclared(self._catalog, record.tool)

    def failing(self, state: State) -> OnFailure:
        """What an error of the agent does if nobody has said it.

        An operator is asked if a call stands of which nobody has said what it does: perhaps the rest should not be
        undone without it.
        """
        deliberate = {self._made[place] for place in self._deliberate if place < len(self._made)}
        return "ask" if undeclared_calls(state, self._catalog, deliberate) else "undo"
