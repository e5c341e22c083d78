"""The calls of a saga as text: params, keys, the next attempt, and where a tool broke."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, Final

from saga_engine.cli import times
from saga_engine.cli.output import shown
from saga_engine.cli.words import hidden, joined, say

_MAX_LISTED: Final = 40
#: How many calls of one undo a table shows.
_MAX_CALLS: Final = 12
_DONE: Final = "COMPENSATED"
#: The states of the other calls of an undo of several calls.
_UNDO_CALLS: Final = (
    *("COMPENSATING", "IN_DOUBT", "COMPENSATION_FAILED", "ESCALATED", "PENDING", "SKIPPED", "RESOLVED"),
)
_PARAMS_CHARS: Final = 160


def call_lines(body: Mapping[str, Any], *, full: bool = False) -> list[str]:
    """One line for each call that was made, or that an undo of several calls has left to make.

    It has the params, without secrets and sensitive values, and the key.
    """
    made = [(name, call) for name, call in calls_of(body) if call["attempts"] or call.get("left")]
    listed = made if full else made[:_MAX_LISTED]
    lines = ["", say("calls")] if made else []
    for name, call in listed:
        params = say("params.none") if call["params"] is None else json.dumps(call["params"], ensure_ascii=False)
        said = shown(params, 1 << 20 if full else _PARAMS_CHARS)
        key = say("key.later") if call.get("left") else _key(call["idempotency_key"])
        lines.append(say("call", name=shown(name), tool=shown(call["tool"], 80), params=said, key=key))
    if len(made) > len(listed):
        lines.append(say("hidden.full", n=len(made) - len(listed)))
    return lines


def _key(key: str | None) -> str:
    return say("key.none") if key is None else say("key", key=shown(key))


def waiting_lines(body: Mapping[str, Any], now_ms: float | None = None) -> list[str]:
    """When waiting calls are tried again, and models that could not be reached are asked again.

    The time is the store's clock's, the wait from now this machine's.
    """
    now = time.time() * 1000 if now_ms is None else now_ms
    waiting = [
        (name, key, call[field])
        for name, call in calls_of(body)
        for field, key in (("next_try_ms", "next-try"), ("model_asked_ms", "model-asked"))
        if field in call
    ]
    lines = [
        say("line", name=shown(name), text=say(key, when=_in(due_ms - now)))
        for name, key, due_ms in waiting[:_MAX_LISTED]
    ]
    return [*lines, *hidden(len(waiting) - _MAX_LISTED)]


def _in(ms: float) -> str:
    return say("due.now") if ms <= 0 else say("due.in", span=times.duration(ms))


def traceback_lines(body: Mapping[str, Any]) -> list[str]:
    """Where tools raised unexpected errors: files, lines and source lines, from the journal."""
    found = [(name, call["traceback"]) for name, call in calls_of(body) if "traceback" in call]
    lines = ["", say("tracebacks")] if found else []
    for name, text in found[:_MAX_LISTED]:
        lines.append(say("line", name=shown(name), text="").rstrip(" "))
        lines += [f"    {shown(line)}" for line in text.splitlines()]
    return lines


def has_traceback(body: Mapping[str, Any]) -> bool:
    """Whether ``show --debug`` has more to show."""
    return any("traceback" in call for _, call in calls_of(body))


def calls_of(body: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Each step and each undo, with its name."""
    for step in body["steps"]:
        yield say("of.step", step=step["step_id"]), step
        undo = step["compensation"]
        if undo is None:
            continue
        if "calls" not in undo:
            yield say("of.undo", step=step["step_id"]), undo
            continue
        for number, call in enumerate(undo["calls"]):
            again = {name: undo[name] for name in ("next_try_ms", "traceback") if name in undo}
            name = say("of.undo-call", n=number + 1, of=len(undo["calls"]), step=step["step_id"])
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
    said = [say("undo-calls.all", of=count) if counts[_DONE] == count else say("undo-calls", n=counts[_DONE], of=count)]
    said += [say(f"undo-calls.{status}", n=counts[status]) for status in _UNDO_CALLS if counts[status]]
    left_out = count - len(shown_calls(undo))
    return joined(*said) + (say("undo-calls.hidden", n=left_out) if left_out else "")
