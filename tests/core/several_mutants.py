"""Engines that are broken on purpose for waits for several events."""

from __future__ import annotations

from saga_engine.core import evolve, late_events
from saga_engine.core.evolve import events
from saga_engine.core.state_values import StepState
from saga_engine.core.steps import wait
from tests.core.engine_mutants import Patch, rewrite

_FORGET = "state.epoch = record.epoch\n    for step in state.steps:\n        step.came = {}"

SEVERAL_MUTANTS: dict[str, Patch] = {
    "any event ends a wait for all": rewrite(wait, "came", ("len(found) < len(wait.events())", "False")),
    "an event of a wait for all counts twice": rewrite(
        wait, "arrived", ("if entry in state.steps[index].came:", "if False:")
    ),
    "the output has the events in the order in which they came": rewrite(wait, "came", ("sorted(found)", "found")),
    "the first event is said to be another one": rewrite(
        wait, "came", ("source=event.id, entry=entry", "source=event.id, entry=0")
    ),
    "a wait for several takes events after its time-out": rewrite(
        wait, "arrived", ("if wait.due is not None", "if not wait.word and wait.due is not None")
    ),
    "every event is checked like the first one of the plan": rewrite(
        wait, "entry_of", ("entry for entry", "0 for entry")
    ),
    "what came is lost at a takeover": rewrite(evolve, "_resumed", ("state.epoch = record.epoch", _FORGET)),
    "what came is lost when another one comes": rewrite(events, "_came", ("{**step.came, entry", "{entry")),
    "what came in vain is taken": rewrite(
        StepState, "took", ("if not self.event or not self.came", "if not self.came")
    ),
    "all events of a wait for the first are taken": rewrite(StepState, "took", ("or not self.came", "or True")),
    "after the first event the others are nobody's": rewrite(
        late_events, "may_be_late", ('if word == "first"', "if False")
    ),
}
