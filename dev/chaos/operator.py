"""A simulated operator: reads questions, examines the external system, and answers truthfully. It cancels some sagas.

It is a process like a worker, and is killed like one. Its answers follow from the run's seed and from the truth.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from random import Random
from typing import Any, NamedTuple

from dev.chaos.child import play
from dev.chaos.world import Outside
from saga_engine import Coordinator, SagaError, SagaResult
from saga_engine.core import transitions as t

_log = logging.getLogger("dev.chaos.operator")
_IDLE_S = 0.2
_AT_ONCE = 32
#: After so many seconds it lets a saga go on without watching: what others wait for must not wait for them.
_LONGEST_S = 10.0
_CANCELS_PERCENT = 5
#: How often the same call may be asked about before the operator gives up on it.
_ENOUGH = 3
#: Of how many kept sessions the operator decides.
_DECIDED = 0.12


class Duties(NamedTuple):
    """The operator's configuration."""

    url: str
    world: str
    log: str
    seed: int
    lease_s: float


def main(duties: Duties) -> None:
    """The process; it ends when it is killed."""
    play(duties, lambda coordinator: Desk(coordinator, duties.seed).serve())


class Desk:
    """The operator's work. A saga that takes long must not delay the others."""

    def __init__(self, coordinator: Coordinator, seed: int) -> None:
        self._coordinator = coordinator
        self._seed = seed
        self._at: dict[str, asyncio.Task[None]] = {}
        self._cancelled: set[str] = set()

    async def serve(self) -> None:
        """Answer the questions, and cancel the sagas that are due for it, until the store is away for too long."""
        coordinator = self._coordinator
        while True:
            for head in await coordinator.list(t.ESCALATED, limit=500):
                if not head.messages:
                    self._take(head.saga_id, _answer_saga(coordinator, head.saga_id, self._seed))
            for head in await coordinator.list(t.RUNNING, limit=200):
                dice = Random(f"{self._seed}:cancel:{head.saga_id}")
                if head.saga_id not in self._cancelled and dice.random() * 100 < _CANCELS_PERCENT:
                    self._cancelled.add(head.saga_id)
                    self._take(head.saga_id, coordinator.cancel(head.saga_id, by="ada"))
            await asyncio.sleep(_IDLE_S)

    def _take(self, saga_id: str, work: Coroutine[Any, Any, Any]) -> None:
        if saga_id in self._at or len(self._at) >= _AT_ONCE:
            work.close()
            return
        self._at[saga_id] = asyncio.create_task(self._see_through(saga_id, work))

    async def _see_through(self, saga_id: str, work: Coroutine[Any, Any, Any]) -> None:
        """An answer, and what the saga does then, for some time: it may wait for the customer, who waits for others."""
        try:
            async with asyncio.timeout(_LONGEST_S):
                await work
        except (SagaError, OSError, TimeoutError) as error:
            _log.info("saga %s: it came to nothing: %s", saga_id, error)
        finally:
            del self._at[saga_id]


async def _answer_saga(coordinator: Coordinator, saga_id: str, seed: int) -> None:
    outcome = await coordinator.show(saga_id, full=True)
    for question in outcome.body["questions"]:
        if question["kind"] == "session-kept":
            await _decide_session(coordinator, saga_id, question, seed)
            return
        if question["kind"] == "ask":
            answer = Random(f"{seed}:{saga_id}:{question['question_id']}").choice(question["options"])
            await coordinator.resolve(saga_id, question["step_id"], answer, by="ada")
            return
        decision, output = await _look(outcome, question, Random(f"{seed}:{saga_id}:{question['question_id']}"))
        # As an operator does who answers with the command line of the inbox: refused if other effects follow by now.
        mark = question["outlooks"][decision]["mark"]
        await coordinator.resolve(saga_id, question["step_id"], decision, output=output, by="ada", expect=mark)
        return  # the others once the saga has continued


async def _decide_session(coordinator: Coordinator, saga_id: str, question: dict[str, Any], seed: int) -> None:
    """Most sessions wait for their agent; of some the operator decides what becomes of them."""
    chance = Random(f"{seed}:{saga_id}:kept").random()
    if chance < _DECIDED:
        decision = "undo" if chance < _DECIDED / 2 else "close"
        await coordinator.resolve(saga_id, question["step_id"], decision, by="ada")


async def _look(outcome: SagaResult, question: dict[str, Any], dice: Random) -> tuple[str, Any]:
    """The truthful answer: an effect happened; a request without one is closed first, so that it never happens."""
    saga_id, step_id, direction = outcome.saga_id, str(question["step_id"]), question["direction"]
    step = next(each for each in outcome.body["steps"] if str(each["step_id"]) == step_id)
    options, again = question["options"], int(question["question_id"].rpartition(":")[2])
    if not step["tool"] and (step["builtin"], direction) != ("wait", "compensate"):
        # A child, or a wait: once more, unless that has failed often enough already. It did not happen: who says
        # that it did has to know its output, or is refused each time.
        others = [option for option in options if option not in ("retry", "happened")]
        return "retry" if "retry" in options and (again < _ENOUGH or not others) else dice.choice(others), None
    forward = direction == "forward"
    key = question["idempotency_key"]
    settle = {"op": "settle", "saga_id": saga_id, "key": key, "epoch": 0, "attempt": _attempts(step, key, direction)}
    found = await Outside.ask(settle)
    by_hand = {"op": "by-hand", "saga_id": saga_id, "step_id": step_id, **_restores(step)}
    if "output" in found:
        if "happened" in options:
            return "happened", found["output"] if forward else None
        if question.get("undo_call"):  # the rest of the undo
            await Outside.ask(by_hand)
        return "undone", None  # it was the last of several attempts, and its answer was lost
    if "undo" in options and dice.random() < 0.6:
        if dice.random() < 0.3:  # what the operator has seen is not there any more
            await Outside.ask({"op": "rival", "saga_id": saga_id, "register": by_hand["register"]})
        return "undo", None
    if "undone" in options and (again >= _ENOUGH or dice.random() < 0.3):
        if dice.random() < 0.2:
            return "accept", None
        await Outside.ask(by_hand)
        return "undone", None
    if again >= _ENOUGH:
        return ("not-happened" if "not-happened" in options else "accept"), None
    likely = ["retry", "retry", "retry"] + ["not-happened"] * ("not-happened" in options)
    return dice.choice(likely), None


def _attempts(step: dict[str, Any], key: str, direction: str) -> int:
    """How often the call with this key was made; an undo may have several calls."""
    if direction == "forward":
        return int(step["attempts"])
    calls = step["compensation"].get("calls", [step["compensation"]])
    return int(next(call["attempts"] for call in calls if call["idempotency_key"] == key))


def _restores(step: dict[str, Any]) -> dict[str, Any]:
    """What undoes a step by hand, beside a word in the ledger: the value as it was."""
    if "before" not in step:
        return {}
    value = None if step["before"].get("absent") else step["before"]["value"]["ref"]
    return {"register": step["params"]["register"], "value": value}
