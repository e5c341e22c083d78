"""The calls of a saga as text: params, keys, the next attempt, and where a tool broke."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, Final

from saga_engine.cli import times
from saga_engine.cli.output import shown

_MAX_LISTED: Final = 40
#: How many calls of one undo a table shows.
_MAX_CALLS: Final = 12
_DONE: Final = "COMPENSATED"
#: The states of the other calls of an undo of several calls.
_UNDO_CALLS: Final = (
    ("COMPENSATING", "is being made"),
    ("IN_DOUBT", "is in doubt"),
    ("COMPENSATION_FAILED", "failed"),
    ("ESCALATED", "waits for an operator"),
    ("PENDING", "left"),
    ("SKIPPED", "not needed"),
    ("RESOLVED", "not made: an operator resolved the whole undo"),
)
_PARAMS_CHARS: Final = 160


def call_lines(body: Mapping[str, Any], *, full: bool = False) -> list[str]:
    """One line for each call that was made, or that an undo of several calls has left to make.

    It has the params, without secrets and sensitive values, and the key.
    """
    made = [(name, call) for name, call in calls_of(body) if call["attempts"] or call.get("left")]
    listed = made if full else made[:_MAX_LISTED]
    lines = ["", "calls:"] if made else []
    for name, call in listed:
        params = "params not at hand" if call["params"] is None else json.dumps(call["params"], ensure_ascii=False)
        said = shown(params, 1 << 20 if full else _PARAMS_CHARS)
        key = "not made yet" if call.get("left") else _key(call["idempotency_key"])
        lines.append(f"  {shown(name)}: {shown(call['tool'], 80)} {said}, {key}")
    if len(made) > len(listed):
        lines.append(f"  and {len(made) - len(listed)} more; --full or --json has them all")
    return lines


def _key(key: str | None) -> str:
    return "no key" if key is None else f"key {shown(key)}"


def waiting_lines(body: Mapping[str, Any], now_ms: float | None = None) -> list[str]:
    """When waiting calls are tried again, and models that could not be reached are asked again.

    The time is the store's clock's, the wait from now this machine's.
    """
    now = time.time() * 1000 if now_ms is None else now_ms
    waiting = [
        (name, words, call[field])
        for name, call in calls_of(body)
        for field, words in (("next_try_ms", "next try"), ("model_asked_ms", "the model is asked again"))
        if field in call
    ]
    lines = [f"  {shown(name)}: {words} {_in(due_ms - now)}" for name, words, due_ms in waiting[:_MAX_LISTED]]
    more = [f"  and {len(waiting) - _MAX_LISTED} more; --json has them all"] if len(waiting) > _MAX_LISTED else []
    return [*lines, *more]


def _in(ms: float) -> str:
    return "due now" if ms <= 0 else f"in {times.duration(ms)}"


def traceback_lines(body: Mapping[str, Any]) -> list[str]:
    """Where tools raised unexpected errors: files, lines and source lines, from the journal."""
    found = [(name, call["traceback"]) for name, call in calls_of(body) if "traceback" in call]
    lines = ["", "tracebacks:"] if found else []
    for name, text in found[:_MAX_LISTED]:
        lines.append(f"  {shown(name)}:")
        lines += [f"    {shown(line)}" for line in text.splitlines()]
    return lines


def has_traceback(body: Mapping[str, Any]) -> bool:
    """Whether ``show --debug`` has more to show."""
    return any("traceback" in call for _, call in calls_of(body))


def calls_of(body: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Each step and each undo, with its name."""
    for step in body["steps"]:
        yield f"step {step['step_id']}", step
        undo = step["compensation"]
        if undo is None:
            continue
        if "calls" not in undo:
            yield f"undo of step {step['step_id']}", undo
            continue
        for number, call in enumerate(undo["calls"]):
            again = {name: undo[name] for name in ("next_try_ms", "traceback") if name in undo}
            name = f"undo {number + 1}/{len(undo['calls'])} of step {step['step_id']}"
            left = {"left": call["status"] == "PENDING"}
            yield name, {**call, **left, **(again if number == present_call(undo) else {})}


def present_call(undo: Mapping[str, Any]) -> int:
    """The number of the first call of an undo of several calls that did not happen; that of the last, if all did."""
    calls = undo["calls"]
    return next((number for number, call in enumerate(calls) if call["status"] != _DONE), len(calls) - 1)


def shown_calls(undo: Mapping[str, Any]) -> range:
    """The calls of an undo of several calls that a table shows: of many, those around the present one."""
    count = len(undo["calls"])
    first = max(0, min(present_call(undo) - 2, count - _MAX_CALLS))
    return range(first, min(first + _MAX_CALLS, count))


def undo_progress(undo: Mapping[str, Any]) -> str:
    """How far an undo of several calls has come, in words."""
    counts = Counter(call["status"] for call in undo["calls"])
    count = len(undo["calls"])
    said = [f"{'all' if counts[_DONE] == count else counts[_DONE]} of the {count} calls of its undo have happened"]
    said += [f"{counts[status]} {words}" for status, words in _UNDO_CALLS if counts[status]]
    hidden = count - len(shown_calls(undo))
    more = f" ({hidden} are not shown; --json has them all)" if hidden else ""
    return ", ".join(said) + more
