"""What an agent is told of its sagas: what was done, what was undone, what is left.

A report is about the present saga. Those before it that have not ended are named in each one, with their questions:
an agent is never told that nothing is left while an operator is still asked about one of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

from saga_engine.core.state import State
from saga_engine.core.states import SAGA_FINAL
from saga_engine.core.undo_ahead import would_wait
from saga_engine.errors import SagaError
from saga_engine.gateway.answers import bounded
from saga_engine.plan.tool_spec import ToolCatalog
from saga_engine.plan.values import canonical, cut, printable

#: Larger params are cut.
_PARAMS_BYTES: Final = 300
_ABOUT_CHARS: Final = 500
_NO_UNDO: Final = "its tool has no undo: a model or an operator finds one"
#: How many calls a list names, the latest first.
_MOST: Final = 200


@dataclass(slots=True)
class Report:
    """``undone``: what this rollback undid; ``left``: what still stands of it; ``unknown``: what nobody knows yet.

    ``earlier``: the agent's sagas before this one that have not ended. ``made_after``: calls that arrived meanwhile,
    which are made after it: it undoes none of them.
    """

    saga_id: str
    status: str
    undone: list[dict[str, Any]] = field(default_factory=list)
    left: list[dict[str, Any]] = field(default_factory=list)
    unknown: list[dict[str, Any]] = field(default_factory=list)
    questions: list[dict[str, Any]] = field(default_factory=list)
    problem: str = ""
    earlier: list[dict[str, Any]] = field(default_factory=list)
    made_after: list[dict[str, Any]] = field(default_factory=list)

    @property
    def clean(self) -> bool:
        """Whether nothing is left of what was to be undone, now and before."""
        return not (self.left or self.unknown or self.questions or self.problem or self.earlier)

    @property
    def summary(self) -> str:
        """One line."""
        said = f"{len(self.undone)} calls undone, {len(self.left)} left, {len(self.unknown)} unknown"
        said += f", {len(self.earlier)} earlier sagas unsettled" if self.earlier else ""
        return f"{said}: {self.problem}" if self.problem else said

    def add_earlier(self, before: Mapping[str, Any], after: Mapping[str, Any], problem: SagaError | None) -> None:
        """Two views of an earlier saga, before and after it was driven on."""
        more = report_of(before, after, problem=problem)
        self.problem = self.problem or more.problem
        if after["status"] not in SAGA_FINAL:
            self.earlier.append(_unsettled(after))
            self.questions += more.questions
        else:
            self.left += _of_saga(more.left, more.saga_id)
        self.undone += _of_saga(more.undone, more.saga_id)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON."""
        made: dict[str, Any] = {
            "saga_id": self.saga_id,
            "status": self.status,
            "clean": self.clean,
            "undone": self.undone,
            "left": self.left,
            "unknown": self.unknown,
            "questions": self.questions,
            "earlier": self.earlier,
        }
        made |= {"made_after": self.made_after} if self.made_after else {}
        return bounded(made | ({"problem": self.problem} if self.problem else {}), _MOST)


def report_of(
    before: Mapping[str, Any], after: Mapping[str, Any], *, since: int = 0, problem: SagaError | None = None
) -> Report:
    """What changed between two views of a saga, in the calls after the first ``since``."""
    undone = set(before["report"]["compensated"])
    made = Report(after["saga_id"], after["status"], questions=_questions(after))
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


def status_of(
    saga_id: str, body: Mapping[str, Any] | None, earlier: Iterable[Mapping[str, Any]] = ()
) -> dict[str, Any]:
    """The saga as its agent sees it: its calls, the latest first; ``earlier``: those before it that have not ended.

    It is clean if nobody is asked about a call of the agent, and no outcome is unknown.
    """
    steps = [] if body is None else body["steps"]
    kinds = [_standing(each, body["report"]) for each in steps] if body is not None else []
    made = _beside(body, earlier)
    told = {
        "saga_id": saga_id,
        "status": "NOTHING" if body is None else body["status"],
        "clean": not (made["questions"] or made["earlier"] or "unknown" in kinds),
        "calls": [{**_called(each), "status": each["status"]} for each in reversed(steps)],
        "standing": 0 if body is None else body["counts"]["in_effect"],
        "unknown": kinds.count("unknown"),
        **made,
        **({} if body is None else {name: body[name] for name in ("error", "answers") if body.get(name)}),
    }
    return bounded(told, _MOST)


def preview_of(
    saga_id: str,
    body: Mapping[str, Any] | None,
    earlier: Iterable[Mapping[str, Any]],
    tools: ToolCatalog,
    *,
    since: int,
    asks: Mapping[str, str] = MappingProxyType({}),
    state: State | None = None,
) -> dict[str, Any]:
    """What a rollback would do now. The undo of a call is known by its tool; what it finds is not.

    ``asks``: why the undo of a call would be a question to an operator, by call. What was done before such a call is
    undone once the operator has answered (``would_wait``), unless the values before both prove that it need not wait:
    ``state`` has them.
    """
    lists = ("would_undo", "would_ask", "would_wait", "would_remain", "unknown")
    made: dict[str, Any] = {"saga_id": saga_id, **{name: [] for name in lists}}
    steps = [] if body is None or body["session"] != "open" else body["steps"][since:]
    report = {} if body is None else body["report"]
    undoes: list[tuple[Mapping[str, Any], str | None, str]] = []
    for each in sorted(steps, key=lambda step: (step["ended_ms"] or 0, step["step_id"]), reverse=True):
        kind, spec = _standing(each, report), tools.spec(each["tool"])
        if kind == "unknown":
            made["unknown"].append(_called(each))
        elif kind == "stands" and each["kind"] != "irreversible" and spec is not None and (spec.undo or spec.semantic):
            undoes.append((each, spec.undo, asks.get(str(each["step_id"]), "" if spec.undo else _NO_UNDO)))
        elif kind == "stands":
            made["would_remain"].append(_called(each))
    waits = _would_wait(state, undoes, [str(each["step_id"]) for each in steps])
    for each, undo, why in undoes:
        name = "would_ask" if why else "would_wait" if str(each["step_id"]) in waits else "would_undo"
        said = {"why": printable(why, _ABOUT_CHARS)} if why else {"undo": undo}
        made[name].append({**_called(each), **said})
    made |= _beside(body, earlier)
    unclean = ("would_ask", "would_wait", "would_remain", "unknown", "questions", "earlier")
    made["clean"] = not any(made[name] for name in unclean)
    return bounded(made, _MOST)


def _would_wait(
    state: State | None, undoes: Sequence[tuple[Mapping[str, Any], str | None, str]], calls: Sequence[str]
) -> set[str]:
    """What would wait for an operator: about an undo, or about one of the ``calls`` in doubt that is asked about."""
    if state is None:
        return set()
    steps, places = state.plan.steps, state.plan.by_key
    asked = {places[str(each["step_id"])] for each, _, why in undoes if why}
    open_ = {question.step for question in state.questions.values() if not question.of_session}
    asked |= open_.intersection(places[call] for call in calls)
    waits = would_wait(state, {*asked, *(places[str(each["step_id"])] for each, _, _ in undoes)}, asked)
    return {steps[index].key for index in waits}


def _beside(body: Mapping[str, Any] | None, earlier: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """The open questions of a saga and of those before it, and those sagas. One that is being undone is one of them."""
    bodies = [] if body is None else [body]
    over = [one for one in bodies if one.get("session") not in (None, "open") and one["status"] not in SAGA_FINAL]
    others = [*earlier, *over]
    asked = [*([] if over else bodies), *others]
    return {
        "questions": [question for each in asked for question in _questions(each)],
        "earlier": [_unsettled(each) for each in others],
    }


def _unsettled(body: Mapping[str, Any]) -> dict[str, Any]:
    """A saga that takes no more calls and has not ended: what stands of it, and what nobody knows."""
    kinds = [(each, _standing(each, body["report"])) for each in reversed(body["steps"])]
    told = {
        "saga_id": body["saga_id"],
        "status": body["status"],
        "left": [_called(each) for each, kind in kinds if kind == "stands"],
        "unknown": [_called(each) for each, kind in kinds if kind == "unknown"],
    }
    return bounded(told, _MOST)


def _of_saga(calls: list[dict[str, Any]], saga_id: str) -> list[dict[str, Any]]:
    return [{"saga_id": saga_id, **each} for each in calls]


def _standing(step: Mapping[str, Any], report: Mapping[str, Any]) -> str:
    """Whether a call's effect stands, was undone, is unknown, or never was."""
    key, status = step["step_id"], step["status"]
    if step["kind"] in ("read", "finally") or step.get("via") == "deduplicated" or step.get("handed_to"):
        # Nothing, or another saga's.
        return "nothing"
    if "undoes" in step and status == "SUCCEEDED":  # what is undone by it is another call
        return "nothing"
    if key in report["compensated"]:
        return "undone"
    if key in report["failed"] or key in report["left_in_place"] or status == "SUCCEEDED":
        return "stands"
    return "unknown" if key in report["unresolved"] or status in ("RUNNING", "IN_DOUBT") else "nothing"


def named(tool: str, params: Mapping[str, Any]) -> dict[str, Any]:
    """A call that is not made yet."""
    return {"tool": tool, "params": _params(dict(params))}


def _called(step: Mapping[str, Any]) -> dict[str, Any]:
    made = {"call": str(step["step_id"]), "tool": step["tool"] or step["name"], "params": _params(step["params"])}
    undo = step["compensation"]
    if undo is not None and "verified" in undo:
        made["verified"] = undo["verified"]
    if undo is not None and "calls" in undo and any(call["status"] != "COMPENSATED" for call in undo["calls"]):
        made["undo_calls"] = [
            {"tool": call["tool"], "params": _params(call["params"]), "status": call["status"]}
            for call in undo["calls"]
        ]
    return bounded(made, _MOST)


def _params(params: Any) -> Any:
    return params if len(canonical(params)) <= _PARAMS_BYTES else cut(params, _PARAMS_BYTES)


def _questions(body: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [
        {
            "saga_id": body["saga_id"],
            "call": str(each["step_id"]),
            "tool": each["tool"],
            "kind": each["kind"],
            "options": each["options"],
            **({"asked_of": each["to"]} if each.get("to") else {}),
            "about": printable(str((each.get("error") or {}).get("message", "")), _ABOUT_CHARS),
            "answer_with": f"saga resolve {body['saga_id']} {each['step_id']} ANSWER",
        }
        for each in body["questions"]
    ]
