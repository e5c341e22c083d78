"""One saga as people read it."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from saga_engine.cli import times
from saga_engine.cli.follow_up import options_line
from saga_engine.cli.output import paint, shown, table

if TYPE_CHECKING:
    from saga_engine.settings import Settings

_LISTS = (
    ("compensated", "compensated"),
    ("failed", "undo failed"),
    ("unresolved", "unresolved"),
    ("left_in_place", "left in place"),
)
_MAX_LISTED = 40


def whole_lines(body: Mapping[str, Any], settings: Settings) -> list[str]:
    """All that ``show`` knows: the header, the steps, the report, the open questions."""
    lines = _header(body)
    lines += ["", table(_STEP_TITLES, [row for step in body["steps"] for row in _step_rows(step)])]
    report = _report(body)
    return [*lines, *([""] if report else []), *report, *_questions(body, settings)]


def summary_lines(body: Mapping[str, Any], settings: Settings) -> list[str]:
    """What a command that drove a saga says at its end: all but the steps."""
    return [*_header(body), *_report(body), *_questions(body, settings)]


def _header(body: Mapping[str, Any]) -> list[str]:
    status = shown(body["status"])
    steps = body["steps"]
    done = sum(step["status"] == "SUCCEEDED" for step in steps)
    lines = [f"saga {shown(body['saga_id'])}: {paint(status)}"]
    if body["goal"]:
        lines.append(f"goal: {shown(body['goal'], 300)}")
    took = times.between(body["started_ms"], body["ended_ms"])
    ended = f", ended {times.local(body['ended_ms'])} ({took})" if body["ended_ms"] else ""
    lines.append(f"started {times.local(body['started_ms'])}{ended}; {done} of {len(steps)} steps stand")
    error = body["error"]
    if error:
        about = f" (step {shown(error['step_id'])})" if "step_id" in error else ""
        said = ": ".join(shown(error[name], 500) for name in ("error_code", "message") if error.get(name))
        lines.append(f"reason: {shown(error['code'])}{about}{': ' if said else ''}{said}")
        if error.get("suggestion"):
            lines.append(f"suggestion: {shown(error['suggestion'], 500)}")
    return lines


_STEP_TITLES = ("STEP", "NAME", "TOOL", "STATUS", "TRIES", "TOOK", "ERROR")


def _step_rows(step: Mapping[str, Any]) -> list[list[Any]]:
    rows = [_row(step, str(step["step_id"]))]
    if step["compensation"] is not None:
        rows.append(_row(step["compensation"], "  undo"))
    return rows


def _row(call: Mapping[str, Any], name: str) -> list[Any]:
    error = call["error"]
    said = f"{error['error_code']}: {error['message']}" if error else ""
    took = times.between(call["started_ms"], call["ended_ms"])
    return [name, call["name"], call["tool"], call["status"], str(call["attempts"]), took, said]


def _report(body: Mapping[str, Any]) -> list[str]:
    report = body["report"]
    if body["status"] in ("PENDING", "RUNNING") and report["clean"]:
        return []  # it goes forward: there is nothing to be clean of yet
    lines = [f"report: {'clean' if report['clean'] else paint('error', 'not clean')}"]
    for name, words in _LISTS:
        steps = report[name]
        if steps:
            more = f" and {len(steps) - _MAX_LISTED} more" if len(steps) > _MAX_LISTED else ""
            lines.append(f"  {words}: {', '.join(shown(step) for step in steps[:_MAX_LISTED])}{more}")
    return lines


def _questions(body: Mapping[str, Any], settings: Settings) -> list[str]:
    questions = body["questions"]
    lines: list[str] = []
    for question in questions[:_MAX_LISTED]:
        step = shown(question["step_id"])
        direction = "undo of step" if question["direction"] == "compensate" else "step"
        subject = f"{direction} {step} ({shown(question['tool'])})"
        lines += ["", f"{paint('ESCALATED', 'question')} about {subject}: {shown(question['kind'])}"]
        if question["error"]:
            lines.append(f"  {shown(question['error']['error_code'])}: {shown(question['error']['message'], 500)}")
        lines.append(f"  idempotency key of the call: {shown(question['idempotency_key'])}")
        lines.append("  answer with one of:")
        lines += [f"    {_answer(body['saga_id'], question, option, settings)}" for option in question["options"]]
    if len(questions) > _MAX_LISTED:
        lines += ["", f"and {len(questions) - _MAX_LISTED} more questions; --json has them all"]
    return lines


def _answer(saga_id: str, question: Mapping[str, Any], option: str, settings: Settings) -> str:
    """The command line to type."""
    step = str(question["step_id"])
    words = ["saga", "resolve", shlex.quote(shown(saga_id))]
    extra = options_line(settings)
    if option == "happened" and question["direction"] == "forward":
        extra = ["--output", "'{…}'", *extra]
    if step.startswith("-"):
        # A step may be called --help: what follows a bare -- is never an option.
        return " ".join([*words, *extra, "--", shlex.quote(shown(step)), shown(option)])
    return " ".join([*words, shlex.quote(shown(step)), shown(option), *extra])
