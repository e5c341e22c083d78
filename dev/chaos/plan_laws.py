"""The laws of the kinds of steps beside calls: conditions, sleeps, events, questions of the plan, finally, and undos.

They compare the journal with the plan, with what the simulated people did, and with what the store says of the events.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from dev.chaos import event_laws, plans
from dev.chaos.told import Told
from saga_engine.core import transitions as t
from saga_engine.ports import ListedEvent
from saga_engine.testing.ledger import Line, OutsideLedger

#: What a step of ``finally`` is when the saga has ended.
_OVER: Final = frozenset({t.SUCCEEDED, t.FAILED, t.IN_DOUBT, t.BLOCKED, t.SKIPPED})
_UNKNOWN: Final = object()
#: The failures of a step that waits for an event or an answer which does not come.
_EXPIRED: Final = frozenset({"wait_timed_out", "ask_expired"})


def breaches(
    plan: Mapping[str, Any],
    sent: Sequence[plans.Sending],
    ledger: OutsideLedger,
    told: Told,
    events: Sequence[ListedEvent],
) -> Iterator[str]:
    """Every law that a saga breaks, as sentences."""
    steps = {str(step["step_id"]): step for step in told.body["steps"]}
    for written in plan["steps"]:
        step = steps[written["step_id"]]
        for sentence in (*_conditions(written, steps, told), *_sleep(step, told), *_answer(written, step, told)):
            yield f"step {step['step_id']}: {sentence}"
    yield from event_laws.breaches(plan, sent, told, events)
    yield from _finally(plan, steps, told, ledger.lines(told.body["saga_id"]))


def figures(told: Told) -> Counter[str]:
    """What of all this happened."""
    found = Counter(
        {"skipped": told.kinds()["StepSkipped"], "gone on from": len(told.body["report"].get("continued", ()))}
    )
    found["waits"] = told.kinds()["StepWaiting"]
    for record in told.history:
        if record["k"] == "StepSucceeded" and record.get("via") in ("event", "timer", "decision"):
            found[f"ended by {record['via']}"] += 1
    found["asked by the plan"] = sum(
        record["k"] == "StepEscalated" and record.get("kind") == "ask" for record in told.history
    )
    found["finally"] = len(told.body["report"].get("finally", ()))
    return found


def _conditions(written: Mapping[str, Any], steps: Mapping[str, Any], told: Told) -> Iterator[str]:
    """A step is skipped if its conditions do not hold, and called only if they do; failures are as the plan says."""
    report, step = told.body["report"], steps[written["step_id"]]
    skipped, called = step["step_id"] in report.get("skipped", ()), bool(step["attempts"])
    holds = _holds(written["when"][0], steps) if "when" in written else True
    if holds is not _UNKNOWN and ((skipped and holds) or (called and not holds)):
        yield f"its conditions {'hold' if holds else 'do not hold'}, and it was {'called' if called else 'skipped'}"
    if step["step_id"] in report.get("continued", ()) and not _may_fail(written, step):
        yield "the saga went on from its failure, which the plan does not say"
    bad = "failed_when" in written and step["status"] == t.SUCCEEDED and not step.get("fallback")
    if bad and told.body["status"] == t.COMPLETED:
        yield "its output means failure, and the saga is COMPLETED"


def _may_fail(written: Mapping[str, Any], step: Mapping[str, Any]) -> bool:
    """Whether the plan says that the saga goes on from this failure."""
    waiting = written.get("wait", written.get("ask", {}))
    expired = step["error"] is not None and step["error"]["error_code"] in _EXPIRED
    return written.get("on_error") == "continue" or (waiting.get("on_timeout") == "continue" and expired)


def _holds(condition: Mapping[str, Any], steps: Mapping[str, Any]) -> Any:
    binding = condition["value"]["$first"][0]
    step = steps[binding.removeprefix("$output.step_").removesuffix(".ref")]
    if step["status"] in (t.FAILED, t.SKIPPED, t.PENDING, t.BLOCKED):
        found = "none"
    elif isinstance(step["output"], dict) and "output_ref" not in step:
        found = step["output"]["ref"]
    else:
        return _UNKNOWN
    return found == condition["to"]


def _sleep(step: Mapping[str, Any], told: Told) -> Iterator[str]:
    """Nothing that waits for a time goes on before it."""
    due = None
    for record in told.history:
        if record.get("step") != step["step_id"] or record.get("direction", "forward") != "forward":
            continue
        if record["k"] == "StepWaiting":
            if due is not None:
                yield "it began to wait twice"
            due = record.get("due_ms") or 0
        elif record["k"] == "QuestionResolved" and record.get("decision") == "retry":
            due = None  # the wait failed, and the operator had it begin anew
        elif record["k"] == "StepSucceeded" and record.get("via") == "timer" and due is not None and record["at"] < due:
            yield f"it waited until {due}, and went on at {record['at']}"


def _answer(written: Mapping[str, Any], step: Mapping[str, Any], told: Told) -> Iterator[str]:
    """A question has one end, and the answer is one of the options: the operator's or that of the expiry.

    An operator may have the step ask anew after its question has expired. The output comes from the last question.
    """
    if "ask" not in written:
        return
    ends = [record for record in told.history if record.get("step") == step["step_id"] and record["k"] in _ENDS_ASK]
    for question, number in Counter(end["question"] for end in ends).items():
        if number > 1:
            yield f"its question {question} has {number} ends"
    if step["status"] != t.SUCCEEDED:
        return
    output = step["output"]
    expired = bool(ends) and ends[-1]["k"] == "ApprovalExpired"
    if output["answer"] not in plans.OPTIONS:
        yield f"its answer is {output['answer']!r}"
    if expired is not bool(output.get("expired")) or (not expired and output["by"] != "ada"):
        yield f"its end is {ends}, and its output {output}"


_ENDS_ASK: Final = frozenset({"QuestionResolved", "ApprovalExpired"})


def _finally(plan: Mapping[str, Any], steps: Mapping[str, Any], told: Told, lines: Sequence[Line]) -> Iterator[str]:
    """Its steps run once the end is certain, and the end stays what they were told."""
    for written in plan.get("finally", ()):
        key = written["step_id"]
        if key not in steps:
            yield f"finally: step {key} is missing"
        elif steps[key]["status"] not in _OVER:
            yield f"finally: step {key} is {steps[key]['status']}"
        for line in lines:
            if line.step_id == key and line.what == "applied" and line.output["ref"] != f"end:{told.body['status']}":
                yield f"finally: step {key} was told {line.output['ref']}, and the saga is {told.body['status']}"


# --- the undo of a completed saga ------------------------------------------------------------------------------------


class Both(OutsideLedger):
    """The lines of a completed saga and of its undo as those of one saga."""

    def __init__(self, lines: Sequence[Line]) -> None:
        self._lines = lines

    def lines(self, saga_id: str | None = None, *, what: Any = None) -> Sequence[Line]:  # noqa: ARG002
        return [line for line in self._lines if what is None or line.what == what]


def undo_breaches(plan: Mapping[str, Any], ledger: OutsideLedger, told: Told, undo: Told) -> Iterator[str]:
    """An undo does what its report says with the effects of the saga that completed."""
    last = {step["step_id"] for step in plan.get("finally", ())}
    # What a step of the plan took back was over before: nothing of the two is left to undo.
    taken = {step["step_id"] for step in told.body["steps"] if "undone_by" in step}
    taken |= {step["undone_by"] for step in told.body["steps"] if "undone_by" in step}
    if again := sorted({str(line.step_id) for line in ledger.lines(undo.body["saga_id"]) if line.step_id in taken}):
        yield f"steps {', '.join(again)} were taken back before, and are undone again"
    both = [*ledger.lines(told.body["saga_id"]), *ledger.lines(undo.body["saga_id"])]
    lines = Both([line for line in sorted(both) if line.step_id not in last | taken])
    before = {str(step["step_id"]): step for step in told.body["steps"]}
    steps = []
    for step in undo.body["steps"]:
        if step["step_id"] not in last | taken:
            first = before[str(step["step_id"])]
            own = {name: value for name, value in step.items() if name not in ("via", "source", "handed_to")}
            if first.get("via") in ("event", "timer"):  # what it undoes came from outside, or nothing came
                own["via"] = first["via"]
            status = first["status"] if step["status"] == t.SKIPPED else step["status"]  # as it ended without an effect
            steps.append({**own, "attempts": first["attempts"], "status": status})
    yield from lines.compare({**undo.body, "steps": steps}, {**plan, "finally": []})
    if told.body["status"] != t.COMPLETED or told.body.get("undone_by") != undo.body["saga_id"]:
        yield f"it was undone, and is {told.body['status']}, undone by {told.body.get('undone_by')}"
    if any(line.step_id in last for line in ledger.lines(undo.body["saga_id"])):
        yield "its finally ran again in its undo"
