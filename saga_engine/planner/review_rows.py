"""The review of a plan as rows for people: which step, what about it, and in a sentence what it does."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

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
        found.append(Row("", "simulated", str(facts["simulation"]["summary"])))
    return [*found, *_changes(told.get("changes") or {})]


def _calls(facts: Mapping[str, Any], *, own: bool) -> Iterator[Row]:
    for call in facts.get("calls", ()):
        if "instead_of" in call:
            yield Row(_id(call), "fallback", _fallback(call))
        elif own:
            yield Row(_id(call), "calls", f"{call['tool']} {_whole(call['params'])}")


def _fallback(call: Mapping[str, Any]) -> str:
    then = call.get("how") or f"{call['tool']} {_whole(call['params'])}"
    return f"if {call['instead_of']} fails: {then}"


def _finality(facts: Mapping[str, Any]) -> Iterator[Row]:
    kinds = {each["step_id"]: each for each in facts.get("notices", ())}
    for call in facts.get("irreversible", ()):
        notice = kinds.get(call["step_id"])
        if "instead_of" in call:
            yield Row(_id(call), "final", f"{call['tool']}, the fallback, cannot be undone ({call['kind']})")
        elif notice is None:
            yield Row(_id(call), "final", f"{call['tool']} cannot be undone ({call['kind']})")
        else:
            to = f" to {notice['to']}" if notice["to"] else ""
            yield Row(_id(call), notice["kind"], f"{call['tool']} sends a {notice['kind']}{to}, which cannot be unsent")
    for call in facts.get("final", ()):
        what = f"{call['tool']} {_whole(call['params'])} runs whatever happened"
        yield Row(_id(call), "at the end", f"{_fallback(call) if 'instead_of' in call else what}; never undone")
    for verdict in facts.get("approvals", ()):
        what = "needs approval" if verdict["verdict"] == "ask" else "is denied"
        sure = "" if verdict["certain"] else "perhaps "
        yield Row(_id(verdict), "policy", f"{verdict['tool']} {sure}{what} (rule '{verdict['rule']}')")


def _people(facts: Mapping[str, Any]) -> Iterator[Row]:
    for ask in facts.get("asks", ()):
        whom = ask.get("to") or "an operator"
        options = ask.get("options")
        how = "" if options is None else f" ({', '.join(options) if isinstance(options, list) else options})"
        how = how or (f" (a value of {_json(ask['schema'])})" if "schema" in ask else " (a text)")
        yield Row(_id(ask), "asks", f"{whom}: {ask['question']}{how}; {ask['if_nobody_answers']}")
        for option, follows in (ask.get("answers") or {}).items():
            yield Row(_id(ask), "if answered", f"{option}: {follows}")
        if ask["whatever_is_said"]:
            steps = ", ".join(ask["whatever_is_said"])
            yield Row(_id(ask), "note", f"these run whatever is answered: {steps}")


def _waits(facts: Mapping[str, Any]) -> Iterator[Row]:
    for wait in facts.get("waits", ()):
        events = ", ".join(f"{each['event']} (key {each['key']})" for each in wait["events"])
        yield Row(_id(wait), "waits", f"for {events}; ends with {wait['ends_with']}; {wait['without_event']}")
    for each in facts.get("brought", ()):
        yield Row(_id(each), "does", f"{each['word']}: {each['does']}")
    for call in facts.get("late", ()):
        made = f"{call['tool']} {_whole(call['params'])}"
        what = f"an event that comes too late is answered by {made}, which is never undone"
        yield Row(_id(call), "late", what)


def _flow(facts: Mapping[str, Any]) -> Iterator[Row]:
    for each in facts.get("lists", ()):
        calls = "one call" if each["calls"] is None else f"{each['calls']} calls"
        side = f", {each['parallel']} at a time" if each.get("parallel", 1) > 1 else ""
        only = f", only if {each['only_if']}" if "only_if" in each else ""
        for_each = " for each item" if each["calls"] is None else ","
        yield Row(_id(each), "list", f"{calls}{for_each} of {each['of']}: {each['tool']}{side}{only}")
    for each in facts.get("conditions", ()):
        if "runs_if" in each:
            yield Row(_id(each), "condition", f"{each['tool']} runs only if {each['runs_if']}")
        else:
            yield Row(_id(each), "failure", f"{each['tool']} counts as failed if {each['fails_if']}")
    for each in facts.get("continues", ()):
        yield Row(_id(each), "on error", f"if {each['tool'] or 'it'} fails, the rest goes on all the same")


def _values(facts: Mapping[str, Any]) -> Iterator[Row]:
    for each in facts.get("computed", ()):
        of = ", with sample values" if each["of_samples"] else ""
        result = f" = {_json(each['sample'])}{of}" if "sample" in each else f": no sample ({each['no_sample']})"
        yield Row(_id(each), "computes", f"{_json(each['compute'])}{result}")


def _undos(facts: Mapping[str, Any]) -> Iterator[Row]:
    for undo in facts.get("undos", ()):
        by = "" if undo["by"] == "registered" else f" {_whole(undo['params'])}, written by the model"
        yield Row(_id(undo), "undo", f"{undo['tool']} is undone by {undo['undo']}{by}")


def _changes(changes: Mapping[str, Any]) -> Iterator[Row]:
    for word in ("added", "removed"):
        for key in changes.get(word, ()):
            yield Row(str(key), "change", word)
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
