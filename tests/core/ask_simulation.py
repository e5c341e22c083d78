"""The simulation of plans that ask: a person answers, in time or too late, or nobody does."""

from __future__ import annotations

from typing import Any

from saga_engine.core import records as r
from saga_engine.core import transitions as t
from saga_engine.core.messages import Message, answer
from saga_engine.core.state import State
from tests.core.cases import Catalog
from tests.core.simulation import Simulation
from tests.core.world import Violation

KEY = "q"
#: Words that the engine knows, and one that it does not: here each is only a value.
OPTIONS = ("yes", "accept", "retry", "not-happened", "deny")


class AskSimulation(Simulation):
    """One step of the plan asks; the steps behind it get what was said."""

    def _case(self) -> tuple[dict[str, Any], Catalog]:
        plan, catalog = super()._case()
        steps: list[dict[str, Any]] = plan["steps"]
        at = self.dice.randint(0, len(steps))
        ask: dict[str, Any] = {"question": "how?", "options": list(self.dice.sample(OPTIONS, 3))}
        if self.dice.random() < 0.7:
            ask["expires_s"] = self.dice.choice([1, 3, 9])
            if self.dice.random() < 0.5:
                ask["on_timeout"] = self.dice.choice(["continue", {"value": ask["options"][0]}])
        steps.insert(at, {"step_id": KEY, "ask": ask})
        if "depends_on" in steps[-1] or (at + 1 < len(steps) and "depends_on" in steps[at + 1]):
            steps[at]["depends_on"] = []
        for step in (step for step in steps[at + 1 :] if "tool" in step):
            said = f"$output.step_{KEY}.answer"
            step["params"]["said"] = {"$first": [said, None]} if ask.get("on_timeout") == "continue" else said
        self.ask = ask
        return plan, catalog

    def _person(self, state: State) -> None:
        now = max(self.now, state.at)
        asked = next((each for each in state.questions.values() if each.kind == "ask"), None)
        if asked is None or any(message.kind == "resolve" for message in self.inbox):
            return super()._person(state)
        if self.dice.random() < 0.3 and asked.expires is not None:
            self.now = max(self.now, asked.expires + self.dice.choice([-1, 0, 5]))  # it takes a while to answer
            now = max(self.now, state.at)
        decision = self.dice.choice(asked.options)
        message = Message(id="d", kind="resolve", step=KEY, decision=decision, by="p", question=asked.id)
        fits = isinstance(answer(state, message, now), r.QuestionResolved)
        if fits != (asked.expires is None or now < asked.expires):
            raise Violation(f"an answer at {now} to {asked} {'counts' if fits else 'is refused'}")
        self.inbox.append(message)
        return None

    def _told(self, step: str) -> dict[str, Any]:
        return {"answer": self.ask["options"][0], "by": "", "note": ""} if step == KEY else super()._told(step)

    def _passed_over(self, statuses: dict[str, str], dropped: set[str]) -> set[str]:
        goes_on = self.ask.get("on_timeout") == "continue" and statuses[KEY] == t.FAILED
        return super()._passed_over(statuses, dropped) | ({KEY} if goes_on else set())

    def _check_end(self, state: State) -> None:
        super()._check_end(state)
        if self.ask.get("on_timeout") == "continue":
            for record in self.journalled():
                turns = isinstance(record, r.CompensationStarted) and record.reason == "step-failed"
                failed = isinstance(record, r.StepEscalated) and record.kind == "step-failed"
                if (turns or failed) and record.step == KEY:  # type: ignore[union-attr]
                    raise Violation(f"nobody answered, and the plan goes on then: {record}")
        step = state.steps[state.plan.by_key[KEY]]
        said: list[str] = []
        for record in self.journalled():
            if getattr(record, "step", "") != KEY:
                continue
            if isinstance(record, r.QuestionResolved) and record.decision in self.ask["options"]:
                said.append(record.decision)
            elif isinstance(record, r.QuestionResolved) and record.decision == "happened":
                said.append(record.output["answer"])  # of a step that failed, past the pivot
            elif isinstance(record, r.ApprovalExpired):
                then = self.ask.get("on_timeout")
                said += [then["value"]] if isinstance(then, dict) else []
        if step.status == t.SUCCEEDED and step.output["answer"] not in said:
            raise Violation(f"the answer is {step.output}, and said was {said}")
        if step.status not in (t.SUCCEEDED, t.FAILED, t.SKIPPED, t.RESOLVED):
            raise Violation(f"a question ends as {step.status}")
        if said and step.status == t.FAILED and not step.forward.asked > 1:
            raise Violation(f"{said} was said, and the step failed")
