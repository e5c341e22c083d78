"""What must be true of a saga whose process was killed and that was resumed.

Laws about the plan, the journal and the outside world, each checked from what another process told and from the ledger.
Every breach is a sentence.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from saga_engine.core import transitions as t
from saga_engine.testing.ledger import Line, OutsideLedger
from tests.kill.world import ALL, ENDS

Place = tuple[str, str]

_SETTLES = {"StepSucceeded", "StepFailed", "StepRetryScheduled", "QuestionResolved"}


def in_doubt(history: Sequence[dict[str, Any]]) -> set[Place]:
    """Calls with an intent and no known result, read from the journal without the engine's help."""
    found: set[Place] = set()
    for record in history:
        if record["k"] == "StepIntended":
            found.add(_place(record))
        elif record["k"] in _SETTLES:
            found.discard(_place(record))
    return found


def asked(history: Sequence[dict[str, Any]]) -> set[Place]:
    """What a person was ever asked about."""
    return {_place(record) for record in history if record["k"] == "StepEscalated"}


def _place(record: dict[str, Any]) -> Place:
    return record["step"], record.get("direction", "forward")


def questions(body: dict[str, Any]) -> set[Place]:
    """What a person is asked."""
    return {(str(question["step_id"]), question["direction"]) for question in body["questions"]}


def breaches(
    *, plan: str, variant: str, told: dict[str, Any], ledger: OutsideLedger, saga_id: str, kills: int = 1
) -> list[str]:
    """Every law that the resumed saga breaks; ``told`` is what the resuming process said."""
    lines = ledger.lines(saga_id)
    if told["others"]:
        return [f"other sagas were resumed: {told['others']}"]
    if told["before"] is None:
        # The plan was never journalled: then nothing at all happened.
        return [f"no saga is journalled, and the world was asked: {line}" for line in lines]
    found = list(_asked_rightly(variant, told))
    found += _repeats(variant, told, lines, kills)
    found += _end(plan, told, ledger, saga_id)
    found += ledger.compare(told["final"], ALL[plan])
    found += _reverse_order(plan, told, lines)
    found += _journal(told)
    return found


def _asked_rightly(variant: str, told: dict[str, Any]) -> Iterator[str]:
    """Nobody is asked what can be found out; what cannot be found out is always asked, and nothing else."""
    body = told["resumed"]
    answered = {(step, "forward" if way == "f" else "compensate") for step, way in told["messages"]}
    doubted = in_doubt(told["before"]) - answered if variant == "bare" else set()
    if questions(body) != doubted:
        yield f"in doubt were {sorted(doubted)}, asked is about {sorted(questions(body))}"
    if (body["status"] == t.ESCALATED) != bool(doubted):
        yield f"in doubt were {sorted(doubted)}, the saga is {body['status']}"
    if variant != "bare" and asked(told["history"]):
        yield f"somebody was asked for no reason: {asked(told['history'])}"
    for question in body["questions"]:
        kind = "in-doubt" if question["direction"] == "forward" else "undo-in-doubt"
        if question["kind"] != kind:
            yield f"step {question['step_id']} is asked about as {question['kind']}"


def _repeats(variant: str, told: dict[str, Any], lines: Sequence[Line], kills: int) -> Iterator[str]:
    """No effect twice, ever; and no request twice where nothing says that it may be repeated."""
    applied = Counter((line.step_id, line.direction) for line in lines if line.what == "applied")
    sent = Counter((line.step_id, line.direction) for line in lines if line.what == "sent")
    for (step, direction), count in applied.items():
        if count > 1:
            yield f"step {step} ({direction}) happened {count} times"
    approved = Counter(
        _place(record)
        for record in told["history"]
        if record["k"] == "QuestionResolved" and record["decision"] in ("retry", "not-happened")
    )
    raised = {(line.step_id, line.direction) for line in lines if line.tool == "crack"}  # repeated once, under its key
    for place, count in sent.items():
        allowed = 1 + (approved[place] if variant == "bare" else kills) + (place in raised)
        if count > allowed:
            yield f"step {place[0]} ({place[1]}) was sent {count} times, {allowed} are allowed"


def _end(plan: str, told: dict[str, Any], ledger: OutsideLedger, saga_id: str) -> Iterator[str]:
    """All or nothing. Only a step that a person says did not happen turns a good plan around."""
    final, standing = told["final"], {line.step_id for line in ledger.standing(saga_id)}
    everything = {str(step["step_id"]) for step in ALL[plan]["steps"] if "each" not in step}
    everything |= {str(step["step_id"]) for step in final["steps"] if "[" in str(step["step_id"])}
    # Which forward calls a person said no about can be read from the decisions alone.
    refused = any(
        record["k"] == "QuestionResolved"
        and record["decision"] == "not-happened"
        and record.get("direction") != "compensate"
        for record in told["history"]
    )
    expected = "COMPENSATED" if refused else ENDS[plan]
    if final["status"] != expected:
        yield f"it ended {final['status']}, not {expected}"
    if final["status"] == t.COMPLETED and standing != everything:
        yield f"completed, and only {sorted(standing)} of {sorted(everything)} stand"
    if final["status"] == t.COMPENSATED and (standing or not final["report"]["clean"]):
        yield f"compensated, {sorted(standing)} stand, clean is {final['report']['clean']}"


def _reverse_order(plan: str, told: dict[str, Any], lines: Sequence[Line]) -> Iterator[str]:
    """In a plan without branches the undos are the mirror image of what happened.

    The order of a graph or of lanes is `compare`'s, and so is that around an undo that a person was asked about: what it merely
    follows in the list does not wait for it.
    """
    if plan in ("graph", "lanes") or any(direction == "compensate" for _, direction in asked(told["history"])):
        return
    applied = [line for line in lines if line.what == "applied"]
    did = [line.step_id for line in applied if line.direction == "forward" and not line.undoes]
    made = {line.key: line.step_id for line in applied if line.direction == "forward"}
    undid = [
        made.get(line.undoes, line.step_id) for line in applied if line.direction == "compensate" or line.undoes in made
    ]
    if undid and undid != did[::-1]:
        yield f"done {did}, undone {undid}"


def _journal(told: dict[str, Any]) -> Iterator[str]:
    """What was journalled before the kill is still there, and each owner's epoch is greater than the one before."""
    before, after = told["before"], told["history"]
    if after[: len(before)] != before:
        yield "the journal is not the continuation of what it was"
    epochs = [record["epoch"] for record in after if record["k"] == "SagaResumed"]
    if epochs != sorted(set(epochs)) or 1 in epochs:
        yield f"the epochs are {epochs}"
