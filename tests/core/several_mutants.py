"""Engines that are broken on purpose for waits for several events."""

from __future__ import annotations

from tests.support.mutating import Mutant, rewrite

SEVERAL_MUTANTS: dict[str, Mutant] = {
    "any event ends a wait for all": rewrite(("len(found) < len(wait.events())", "False")),
    "an event of a wait for all counts twice": rewrite(
        (
            'if entry in state.steps[index].came:\n        why = f"step {step} has the event {event.name} already, and waits for others"',
            'if False:\n        why = f"step {step} has the event {event.name} already, and waits for others"',
        )
    ),
    "the output has the events in the order in which they came": rewrite(
        (
            "outputs = [found[number].output() for number in sorted(found)]",
            "outputs = [found[number].output() for number in found]",
        )
    ),
    "the first event is said to be another one": rewrite(("source=event.id, entry=entry", "source=event.id, entry=0")),
    "a wait for several takes events after its time-out": rewrite(
        ("if wait.due is not None", "if not wait.word and wait.due is not None")
    ),
    "every event is checked like the first one of the plan": rewrite(
        (
            "return next((entry for entry, each in enumerate(wait.events()) if each == (name, key)), -1)",
            "return next((0 for entry, each in enumerate(wait.events()) if each == (name, key)), -1)",
        )
    ),
    "what came is lost at a takeover": rewrite(
        (
            "state.epoch = record.epoch",
            "state.epoch = record.epoch\n    for step in state.steps:\n        step.came = {}",
        )
    ),
    "what came is lost when another one comes": rewrite(("{**step.came, entry", "{entry")),
    "what came in vain is taken": rewrite(("if not self.event or not self.came", "if not self.came")),
    "all events of a wait for the first are taken": rewrite(("or not self.came", "or True")),
    "after the first event the others are nobody's": rewrite(('if word == "first"', "if False")),
}
