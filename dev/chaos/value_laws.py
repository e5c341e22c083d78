"""The laws of values: nobody's value is overwritten by an undo unless the engine looked, or an operator released it.

The log of the external system is compared with the journal. Between a look and the call or undo that follows it
somebody else may write: no engine can close that gap (docs/before-images.md), so the laws are about the looks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from dev.chaos.told import Told
from dev.chaos.values import Entry

_NONE: Final = object()
#: Records after which the next attempt of a call needs the value as it is then: the call was not made, or not done.
_NEW_LOOK: Final = frozenset(
    {"StepRetryScheduled", "StepBlocked", "QuestionResolved", "FallbackChosen", "StepDeferred"}
)
#: Records and answers that leave a call in doubt as it is. Only "it did not happen" lets the next one look.
_KEEP_DOUBT: Final = frozenset({"StepQueued", "StepRetryScheduled", "StepBlocked", "retry", "approve", "deny"})
_INTENTS: Final = frozenset({"StepIntended", "StepBegun"})


class Intent(NamedTuple):
    """A record that orders a call. ``since_ms``: when the record before it was made. ``repeats``: a call in doubt."""

    step: str
    epoch: int
    since_ms: int
    image: Any
    repeats: bool


def breaches(told: Told, log: Sequence[Entry], origin: Told | None = None) -> Iterator[str]:
    """Every law that a saga breaks, as sentences. ``origin``: the saga that it undoes."""
    mine = [entry for entry in log if entry.saga_id == told.body["saga_id"]]
    steps = {str(step["step_id"]): step for step in told.body["steps"]}
    before = {} if origin is None else {str(step["step_id"]): step for step in origin.body["steps"]}
    for step_id, step in steps.items():
        own = [entry for entry in mine if entry.step_id == step_id]
        images = step if "before" in step else before.get(step_id, step)
        called = next((entry.register for entry in own if entry.who), None)
        others = [entry for entry in log if entry.register == called]
        for sentence in (*_undone(step_id, images, own, others, told), *_asked(step_id, images, told)):
            yield f"step {step_id}: {sentence}"
    yield from _looked(told, mine)


def figures(told: Told, log: Sequence[Entry]) -> Counter[str]:
    """What of all this happened."""
    own = Counter(entry.who for entry in log if entry.saga_id == told.body["saga_id"])
    drifts = [each for each in told.history if each["k"] == "StepEscalated" and "found" in each]
    released = [each for each in told.history if each["k"] == "QuestionResolved" and each["decision"] == "undo"]
    return Counter({"values set": own["do"], "restored": own["undo"], "drifts": len(drifts), "released": len(released)})


def value_of(image: Mapping[str, Any] | None) -> Any:
    """The value that an image of ``look_value`` shows; what is equal to no value, if it shows none."""
    if image is None or "unread" in image:
        return _NONE
    return None if image.get("absent") else image["value"]["ref"]


def _undone(
    step_id: str, images: Mapping[str, Any], own: Sequence[Entry], others: Sequence[Entry], told: Told
) -> Iterator[str]:
    """An undo restores the before-image, and only over what the call left or an operator has released."""
    turned_ms = next((each["at"] for each in told.history if each["k"] == "CompensationStarted"), 0)
    for undo in [entry for entry in own if entry.who == "undo"]:
        looks = [
            entry.old
            for entry in own
            if not entry.who and entry.epoch == undo.epoch and turned_ms <= entry.at_ms and entry.at_s <= undo.sent_s
        ]
        left = [each.new for each in others if each.who == "do" and each.at_s < undo.at_s]
        if undo.new != value_of(images.get("before")):
            yield f"its undo wrote {undo.new}, and its before-image is {images.get('before')}"
        if not looks:
            yield f"its undo overwrote {undo.old}, and its owner had not looked"
        elif looks[-1] not in {*left[-1:], value_of(images.get("after")), *_released(step_id, told)}:
            yield f"its undo overwrote {undo.old}: it saw {looks[-1]}, the call had left {left[-1:]}"


def _released(step_id: str, told: Told) -> Iterator[Any]:
    """The values that an operator has seen, and wants overwritten."""
    seen: dict[str, Any] = {}
    for record in told.history:
        if record["k"] == "StepEscalated" and record["step"] == step_id:
            seen[record["question"]] = value_of(record.get("found"))
        elif record["k"] == "QuestionResolved" and record["decision"] == "undo" and record["question"] in seen:
            yield seen[record["question"]]


def _asked(step_id: str, images: Mapping[str, Any], told: Told) -> Iterator[str]:
    """Nobody is asked about a value that is as the call found it, or as the call left it."""
    for record in told.history:
        if record["k"] != "StepEscalated" or record["step"] != step_id or record["kind"] != "drift":
            continue
        if value_of(record["found"]) in (value_of(images.get("before")), value_of(images.get("after"))):
            yield f"an operator was asked about {record['found']}, which nobody else wrote"


def _looked(told: Told, mine: Sequence[Entry]) -> Iterator[str]:
    """The image of each call is what its owner saw after the record before it; only a call in doubt keeps its first."""
    others = {str(record["step"]) for record in told.history if record["k"] == "FallbackChosen"}
    looking = {
        str(step["step_id"])
        for step in told.body["steps"]
        if step["tool"].startswith("put_") and step["kind"] == "compensatable" and str(step["step_id"]) not in others
    }
    for intent in intents(told.history):
        if intent.image is None:
            if intent.step in looking and not intent.repeats:
                yield f"step {intent.step}: it was called without a before-image"
            continue
        seen = [
            entry.old
            for entry in mine
            if not entry.who
            and (entry.step_id, entry.epoch) == (intent.step, intent.epoch)
            and entry.at_ms >= intent.since_ms
        ]
        if value_of(intent.image) not in seen:
            yield (
                f"step {intent.step}: its before-image is {intent.image}, and its owner saw {seen} "
                f"in epoch {intent.epoch} from {intent.since_ms} on; {_story(intent.step, told, mine)}"
            )


def _story(step_id: str, told: Told, mine: Sequence[Entry]) -> str:
    """Everything that happened to a step and its value, with its times: such a run may not come twice."""
    about = ("epoch", "direction", "attempt", "decision", "before", "error")
    records = [
        f"{each['at']} {each['k']} { ({name: each[name] for name in about if each.get(name) is not None}) }"
        for each in told.history
        if each.get("step") == step_id or each["k"] == "SagaResumed"
    ]
    entries = [
        f"{entry.at_ms} {entry.who or 'look'} in epoch {entry.epoch}: {entry.old} -> {entry.new}"
        for entry in mine
        if entry.step_id == step_id
    ]
    return f"journal: {'; '.join(records)}; log: {'; '.join(entries)}"


def intents(history: Sequence[Mapping[str, Any]]) -> Iterator[Intent]:
    """The forward intents of a journal. One that waited for a guard counts when it begins."""
    epoch = 1
    last: dict[str, int] = {}
    doubtful: set[str] = set()
    unsure: set[str] = set()  # an attempt was in doubt; that a later one was not done says nothing of it
    for record in history:
        if record["k"] == "SagaResumed":
            epoch = record["epoch"]
            unsure |= doubtful  # their answers are lost
        step = record.get("step")
        if step is None or record.get("direction", "forward") != "forward":
            continue
        if record["k"] in _INTENTS:
            yield Intent(step, epoch, last.get(step, 0), record.get("before"), step in doubtful)
            doubtful.add(step)
        elif record["k"] == "StepInDoubt":
            unsure.add(step)
        elif step in unsure and (record["k"] in _KEEP_DOUBT or record.get("decision") in _KEEP_DOUBT):
            pass
        elif record["k"] == "StepDeferred" and record.get("in_doubt"):
            unsure.add(step)  # the same call is repeated under its key when its tool is back
        elif record["k"] == "StepQueued" or record["k"] in _NEW_LOOK:
            doubtful.discard(step)
            unsure.discard(step)
        last[step] = record["at"]
