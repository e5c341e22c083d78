"""The review of a plan as rows for people: which step, what about it, and in a sentence what it does."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from saga_engine.planner.review_words import joined, said

_CHARS: Final = 300


class Row(NamedTuple):
    """``step``: its id, empty for the whole plan. ``what``: the kind of the fact. ``text``: the fact."""

    step: str
    what: str
    text: str


def review_rows(told: Mapping[str, Any], *, calls: bool = False) -> list[Row]:
    """The rows of a planned plan (``PlannedPlan.to_dict``), what nobody can take back first.

    With ``calls`` every call stands before them with all of its params, for who does not see the plan itself; without
    it, those that replace a call that fails.
    """
    facts = told.get("review") or {}
    found: list[Row] = [*_calls(facts, own=calls)]
    for make in (_finality, _people, _waits, _flow, _values, _undos):
        found += make(facts)
    found += [Row("", "assumed", text) for text in told.get("assumptions", ()) if told.get("source") == "model"]
    found += [Row("", "looked up", f"{each['tool']} {_json(each['params'])}") for each in told.get("reads", ())]
    if "simulation" in facts:
        found.append(Row("", "simulated", facts["simulation"]["summary"]))
    return [*found, *_changes(told.get("changes") or {})]


def _calls(facts: Mapping[str, Any], *, own: bool) -> Iterator[Row]:
    for call in facts.get("calls", ()):
        if "instead_of" in call:
            yield Row(_id(call), "fallback", _fallback(call))
        elif own:
            yield Row(_id(call), "calls", _call(call))


def _call(call: Mapping[str, Any]) -> str:
    return f"{call['tool']} {_whole(call['params'])}"


def _fallback(call: Mapping[str, Any]) -> str:
    return said("fallback", tool=call["instead_of"], then=call.get("how") or _call(call))


def _finality(facts: Mapping[str, Any]) -> Iterator[Row]:
    kinds = {each["step_id"]: each for each in facts.get("notices", ())}
    for call in facts.get("irreversible", ()):
        notice = kinds.get(call["step_id"])
        if "instead_of" in call or notice is None:
            key = "final.fallback" if "instead_of" in call else "final"
            yield Row(_id(call), "final", said(key, tool=call["tool"], kind=call["kind"]))
        else:
            told = {"tool": call["tool"], "kind": notice["kind"]}
            text = said("notice.to", **told, to=notice["to"]) if notice["to"] else said("notice", **told)
            yield Row(_id(call), notice["kind"], text)
    for call in facts.get("final", ()):
        fallback = "instead_of" in call
        text = said("end.fallback", fallback=_fallback(call)) if fallback else said("end", call=_call(call))
        yield Row(_id(call), "at the end", text)
    for verdict in facts.get("approvals", ()):
        key = "approval" if verdict["verdict"] == "ask" else "denied"
        key += "" if verdict["certain"] else ".perhaps"
        yield Row(_id(verdict), "policy", said(key, tool=verdict["tool"], rule=verdict["rule"]))


def _people(facts: Mapping[str, Any]) -> Iterator[Row]:
    for ask in facts.get("asks", ()):
        whom = ask.get("to") or said("operator")
        options = ask.get("options")
        if options is not None:
            how = ", ".join(options) if isinstance(options, list) else options
        else:
            how = said("asks.value", schema=_json(ask["schema"])) if "schema" in ask else said("asks.text")
        otherwise = ask["if_nobody_answers"]
        text = said("asks", whom=whom, question=ask["question"], how=how, otherwise=otherwise)
        yield Row(_id(ask), "asks", text)
        for option, follows in (ask.get("answers") or {}).items():
            yield Row(_id(ask), "if answered", said("answered", option=option, follows=follows))
        if ask["whatever_is_said"]:
            steps = ", ".join(ask["whatever_is_said"])
            yield Row(_id(ask), "note", said("regardless", steps=steps))


def _waits(facts: Mapping[str, Any]) -> Iterator[Row]:
    for wait in facts.get("waits", ()):
        events = joined(
            "joined.comma", *(said("event", event=each["event"], key=each["key"]) for each in wait["events"])
        )
        text = said("waits", events=events, end=wait["ends_with"], otherwise=wait["without_event"])
        yield Row(_id(wait), "waits", text)
    for each in facts.get("brought", ()):
        yield Row(_id(each), "does", f"{each['word']}: {each['does']}")
    for call in facts.get("late", ()):
        yield Row(_id(call), "late", said("late", call=_call(call)))


def _flow(facts: Mapping[str, Any]) -> Iterator[Row]:
    for each in facts.get("lists", ()):
        told = {"of": each["of"], "tool": each["tool"]}
        parts = [
            said("list.each", **told) if each["calls"] is None else said("list.known", **told, calls=each["calls"])
        ]
        if each.get("parallel", 1) > 1:
            parts.append(said("list.parallel", most=each["parallel"]))
        if "only_if" in each:
            parts.append(said("list.only", condition=each["only_if"]))
        yield Row(_id(each), "list", joined("joined", *parts))
    for each in facts.get("conditions", ()):
        if "runs_if" in each:
            yield Row(_id(each), "condition", said("condition", tool=each["tool"], condition=each["runs_if"]))
        else:
            yield Row(_id(each), "failure", said("failure", tool=each["tool"], condition=each["fails_if"]))
    for each in facts.get("continues", ()):
        yield Row(_id(each), "on error", said("continues", tool=each["tool"] or said("it")))


def _values(facts: Mapping[str, Any]) -> Iterator[Row]:
    for each in facts.get("computed", ()):
        compute = _json(each["compute"])
        if "sample" in each:
            key = "computes.samples" if each["of_samples"] else "computes"
            yield Row(_id(each), "computes", said(key, compute=compute, result=_json(each["sample"])))
        else:
            yield Row(_id(each), "computes", said("computes.none", compute=compute, why=each["no_sample"]))


def _undos(facts: Mapping[str, Any]) -> Iterator[Row]:
    for undo in facts.get("undos", ()):
        told = {"tool": undo["tool"], "undo": undo["undo"]}
        written = undo["by"] != "registered"
        text = said("undo.written", **told, params=_whole(undo["params"])) if written else said("undo", **told)
        yield Row(_id(undo), "undo", text)


def _changes(changes: Mapping[str, Any]) -> Iterator[Row]:
    for word in ("added", "removed"):
        for key in changes.get(word, ()):
            yield Row(str(key), "change", said(word))
    for key, fields in changes.get("changed", {}).items():
        for name, values in fields.items():
            yield Row(str(key), "change", f"{name} {_json(values['from'])} -> {_json(values['to'])}")


def _id(fact: Mapping[str, Any]) -> str:
    return str(fact["step_id"])


def _whole(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _json(value: Any) -> str:
    text = _whole(value)
    return text if len(text) <= _CHARS else f"{text[: _CHARS - 1]}…"
