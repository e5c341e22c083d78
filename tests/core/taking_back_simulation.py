"""Sessions whose agent takes its own calls back: with the undo that the engine would make, again, or with half of it.

The world knows one effect for each call and one key for its undo, whoever makes that. Laws: no effect is undone twice,
nobody undoes what does not stand, and what stands at the end is told.
"""

from __future__ import annotations

from saga_engine.core import records as r
from saga_engine.core import session_records
from saga_engine.core import transitions as t
from saga_engine.core.effects import COMPENSATE, FORWARD, NotDone, Outcome
from saga_engine.core.state import State
from saga_engine.plan.tool_spec import ToolSpec
from tests.core.session_simulation import MAX_CALLS, SessionSimulation
from tests.core.world import Violation


class TakingBackSimulation(SessionSimulation):
    """Runs one session of such an agent."""

    def _wish_call(self, state: State) -> r.CallAdded | None:
        if len(state.steps) < MAX_CALLS and self.dice.random() < 0.4:
            found = [
                compiled.key
                for compiled, step in zip(state.plan.steps, state.steps, strict=True)
                if step.effect is not None and compiled.rollback is not None
            ]
            if found:
                return self._taking_back(state, self.dice.choice(found))
        return super()._wish_call(state)

    def _taking_back(self, state: State, key: str) -> r.CallAdded | None:
        params = {"ref": f"ref-{key}"}
        if self.dice.random() < 0.15:  # a near miss
            params["half"] = "yes"
        after = [step.key for step, at in zip(state.plan.steps, state.steps, strict=True) if at.status == t.SUCCEEDED]
        call = r.CallAdded(at=0, step="", tool=f"undo_{key}", params=params, irreversible=True)
        return session_records.add_call(state, call, after, max(self.now, state.at))

    # --- the world: the call is the undo of the other step --------------------------------------------------------

    def _place(self, state: State, index: int, direction: str) -> tuple[str, str]:
        other = state.steps[index].undoes
        if other >= 0 and direction == FORWARD:
            return state.plan.steps[other].key, COMPENSATE
        return super()._place(state, index, direction)

    def _call(self, step: str, direction: str, spec: ToolSpec, key: str) -> Outcome:
        outcome = super()._call(step, direction, spec, key)
        if isinstance(outcome, NotDone) and direction == COMPENSATE and self.world.happened(step, direction):
            return outcome._replace(definite=False)  # a tool that has undone it does not say for good that it has not
        return outcome

    def _check_end(self, state: State) -> None:
        for compiled, step in zip(state.plan.steps, state.steps, strict=True):
            if step.undoes < 0:
                continue
            undone = state.steps[step.undoes]
            if step.status == t.SUCCEEDED and undone.status not in (t.COMPENSATED, t.RESOLVED):
                raise Violation(
                    f"{compiled.key} took {state.plan.steps[step.undoes].key} back, which is {undone.status}"
                )
            if self.world.standing.get(compiled.key):
                raise Violation(f"{compiled.key} is an undo, and has an effect of its own")
        super()._check_end(state)

    def _should_stand(self, state: State, index: int) -> bool:
        return super()._should_stand(state, index) and state.steps[index].undoes < 0 and state.owns(index)
