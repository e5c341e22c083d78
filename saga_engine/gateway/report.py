"""What an agent is told of its saga: what was done, what was undone, what is left."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from saga_engine.errors import SagaError
from saga_engine.plan.tool_spec import ToolCatalog
from saga_engine.plan.values import canonical, cut, printable

#: Larger params are cut.
_PARAMS_BYTES: Final = 300
_ABOUT_CHARS: Final = 500
#: How many calls a list names, the latest first.
_MOST: Final = 200


@dataclass(slots=True)
class Report:
    """``undone``: what this rollback undid; ``left``: what still stands of it; ``unknown``: what nobody knows yet."""

    saga_id: str
    status: str
    undone: list[dict[str, Any]] = field(default_factory=list)
    left: list[dict[str, Any]] = field(default_factory=list)
    unknown: list[dict[str, Any]] = field(default_factory=list)
    questions: list[dict[str, Any]] = field(default_factory=list)
    problem: str = ""

    @property
    def clean(self) -> bool:
        """Whether nothing is left of what was to be undone."""
        return not (self.left or self.unknown or self.questions or self.problem)

    @property
    def summary(self) -> str:
        """One line."""
        said = f"{len(self.undone)} calls undone, {len(self.left)} left, {len(self.unknown)} unknown"
        return f"{said}: {self.problem}" if self.problem else said

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON."""
        made: dict[str, Any] = {
            "saga_id": self.saga_id,
            "status": self.status,
            "clean": self.clean,
            "undone": self.undone[:_MOST],
            "left": self.left[:_MOST],
            "unknown": self.unknown[:_MOST],
            "questions": self.questions,
        }
        return made | ({"problem": self.problem} if self.problem else {})


def report_of(
    saga_id: str,
    before: Mapping[str, Any] | None,
    after: Mapping[str, Any] | None,
    *,
    since: int = 0,
    problem: SagaError | None = None,
) -> Report:
    """What changed between two views of a saga, in the calls after the first ``since``."""
    if before is None or after is None:
        return Report(saga_id, "NOTHING")
    undone = set(before["report"]["compensated"])
    made = Report(saga_id, after["status"], questions=_questions(after))
    made.problem = "" if problem is None else f"{problem.message} [{problem.code}]"
    for each in reversed(after["steps"][since:]):
        kind = _standing(each, after["report"])
        if kind == "undone" and each["step_id"] not in undone:
            made.undone.append(_called(each))
        elif kind == "stands":
            made.left.append(_called(each))
        elif kind == "unknown":
            made.unknown.append(_called(each))
    return made


def status_of(saga_id: str, body: Mapping[str, Any] | None) -> dict[str, Any]:
    """The saga as its agent sees it: its calls, the latest first."""
    if body is None:
        return {"saga_id": saga_id, "status": "NOTHING", "calls": [], "standing": 0, "questions": []}
    kinds = [_standing(each, body["report"]) for each in body["steps"]]
    return {
        "saga_id": saga_id,
        "status": body["status"],
        "calls": [{**_called(each), "status": each["status"]} for each in reversed(body["steps"])][:_MOST],
        "standing": kinds.count("stands"),
        "unknown": kinds.count("unknown"),
        "questions": _questions(body),
    }


def preview_of(saga_id: str, body: Mapping[str, Any] | None, tools: ToolCatalog, *, since: int) -> dict[str, Any]:
    """What a rollback would do now. The undo of a call is known by its tool; what it finds is not."""
    made: dict[str, Any] = {"saga_id": saga_id, "would_undo": [], "would_remain": [], "unknown": []}
    steps = [] if body is None or body["session"] != "open" else body["steps"][since:]
    report = {} if body is None else body["report"]
    for each in sorted(steps, key=lambda step: (step["ended_ms"] or 0, step["step_id"]), reverse=True):
        kind, spec = _standing(each, report), tools.spec(each["tool"])
        if kind == "unknown":
            made["unknown"].append(_called(each))
        elif kind == "stands" and each["kind"] != "irreversible" and spec is not None and (spec.undo or spec.semantic):
            made["would_undo"].append({**_called(each), "undo": spec.undo or spec.semantic})
        elif kind == "stands":
            made["would_remain"].append(_called(each))
    return made


def _standing(step: Mapping[str, Any], report: Mapping[str, Any]) -> str:
    """Whether a call's effect stands, was undone, is unknown, or never was."""
    key, status = step["step_id"], step["status"]
    if step["kind"] == "read" or step.get("via") == "deduplicated":  # the effect is another saga's
        return "nothing"
    if key in report["compensated"]:
        return "undone"
    if key in report["failed"] or key in report["left_in_place"] or status == "SUCCEEDED":
        return "stands"
    return "unknown" if key in report["unresolved"] or status in ("RUNNING", "IN_DOUBT") else "nothing"


def _called(step: Mapping[str, Any]) -> dict[str, Any]:
    made = {"call": str(step["step_id"]), "tool": step["tool"] or step["name"], "params": _params(step["params"])}
    undo = step["compensation"]
    if undo is not None and "calls" in undo and any(call["status"] != "COMPENSATED" for call in undo["calls"]):
        made["undo_calls"] = [
            {"tool": call["tool"], "params": _params(call["params"]), "status": call["status"]}
            for call in undo["calls"][:_MOST]
        ]
    return made


def _params(params: Any) -> Any:
    return params if len(canonical(params)) <= _PARAMS_BYTES else cut(params, _PARAMS_BYTES)


def _questions(body: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [
        {
            "call": str(each["step_id"]),
            "tool": each["tool"],
            "kind": each["kind"],
            "options": each["options"],
            "about": printable(str((each.get("error") or {}).get("message", "")), _ABOUT_CHARS),
            "answer_with": f"saga resolve {body['saga_id']} {each['step_id']} ANSWER",
        }
        for each in body["questions"]
    ]
