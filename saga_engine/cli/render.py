"""One saga as text."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from saga_engine.cli import times
from saga_engine.cli.hints import options_line, rerun_line
from saga_engine.cli.output import fits, line_fits, paint, shown, table
from saga_engine.cli.render_calls import (
    call_lines,
    calls_of,
    present_call,
    shown_calls,
    undo_progress,
    waiting_lines,
)
from saga_engine.core.outlooks import then_words
from saga_engine.core.session_records import FORKED
from saga_engine.core.states import SAGA_FINAL
from saga_engine.hooks.messages import answer_line, asks
from saga_engine.language.questions import expires

if TYPE_CHECKING:
    from saga_engine.settings import Settings

_LISTS = (
    ("compensated", "compensated"),
    ("failed", "undo failed"),
    ("unresolved", "unresolved"),
    ("left_in_place", "left in place"),
    ("semantic", "compensated by other steps"),
    ("skipped", "skipped"),
    ("continued", "failed, and the saga went on"),
)
_MAX_LISTED = 40
_OUTPUT_CHARS = 160
_REASON_CHARS = 500
_QUESTION_CHARS = 2500
_THEN_CHARS = 2000


def whole_lines(body: Mapping[str, Any], settings: Settings, *, full: bool = False) -> list[str]:
    """The full text of ``show``: the header, the steps, their outputs, the report, the open questions.

    With ``full`` no output is omitted or cut; the body must have been made so.
    """
    lines = _header(body)
    lines += ["", *_steps(body)]
    lines += _circumstances(body)
    lines += call_lines(body, full=full)
    lines += _outputs(body, full=full)
    report = _report(body)
    return [*lines, *([""] if report else []), *report, *_answers(body), *_questions(body, settings)]


def summary_lines(body: Mapping[str, Any], settings: Settings, *, unread: bool = False) -> list[str]:
    """The final output of a command that ran a saga: everything but the steps.

    With ``unread`` a message was recorded and nobody has read it yet: questions that it may answer are not repeated.
    """
    return [*_header(body), *_report(body), *([] if unread else _questions(body, settings))]


def _header(body: Mapping[str, Any]) -> list[str]:
    status = shown(body["status"])
    lines = [f"saga {shown(body['saga_id'])}: {paint(status)}"]
    if body["goal"]:
        lines.append(f"goal: {shown(body['goal'], 300)}")
    if "undo_of" in body:
        lines.append(f"undoes saga {shown(body['undo_of'], 128)}")
    if "undone_by" in body:
        lines.append(f"undone by saga {shown(body['undone_by'], 128)}")
    took = times.between(body["started_ms"], body["ended_ms"])
    when = [f"started {times.local(body['started_ms'])}"]
    if body["ended_ms"]:
        when.append(f"ended {times.local(body['ended_ms'])} ({took})")
    whole = f"{', '.join(when)}; {_standing(body)}"
    # A narrow terminal would break the line within a time.
    lines += [whole] if line_fits(whole) else [*when, _standing(body)]
    error = body["error"]
    if error:
        about = f" (step {shown(error['step_id'])})" if "step_id" in error else ""
        said = ": ".join(shown(error[name], 500) for name in ("error_code", "message") if error.get(name))
        lines.append(f"reason: {shown(error['code'])}{about}{': ' if said else ''}{said}")
        if error.get("suggestion"):
            lines.append(f"suggestion: {shown(error['suggestion'], 500)}")
    return lines


def _standing(body: Mapping[str, Any]) -> str:
    """How many steps have a remaining effect, whatever became of their undo; and for how many that is unknown.

    A step that only reads or computes has none.
    """
    counts = body["counts"]
    if not counts["steps"]:
        return "no step changes anything"
    may = f", {counts['in_doubt']} in doubt" if counts["in_doubt"] else ""
    return f"{counts['in_effect']} of {counts['steps']} steps in effect{may}"


def _answers(body: Mapping[str, Any]) -> list[str]:
    """Who answered which question, and with which note."""
    answers = body.get("answers", ())
    lines = [""] if answers else []
    for each in answers[:_MAX_LISTED]:
        about = f"step {shown(each['step_id'], 64)}: {shown(each['kind'])}"
        by = f" by {shown(each['by'], 128)}" if each["by"] else ""
        note = f": {shown(each['note'], _REASON_CHARS)}" if each["note"] else ""
        lines.append(f"answered: {about}: {shown(each['decision'], 100)}{by}, {times.local(each['at_ms'])}{note}")
    return lines + (
        [f"  and {len(answers) - _MAX_LISTED} more; --json has them all"] if len(answers) > _MAX_LISTED else []
    )


_STEP_TITLES = ("STEP", "NAME", "TOOL", "STATUS", "TRIES", "TOOK", "ERROR")


def _steps(body: Mapping[str, Any]) -> list[str]:
    """The table of the steps; errors stand below it if it would be too wide for the terminal."""
    rows = [row for step in body["steps"] for row in _step_rows(step)]
    if fits(_STEP_TITLES, rows):
        return [table(_STEP_TITLES, rows)]
    lines = [table(_STEP_TITLES[:-1], [row[:-1] for row in rows])]
    found = [(name, call["error"]) for name, call in calls_of(body) if call["error"]]
    lines += ["", "errors:"] if found else []
    lines += [
        f"  {shown(name)}: {shown(error['error_code'], 100)}: {shown(error['message'], 500)}"
        for name, error in found[:_MAX_LISTED]
    ]
    return lines + ([f"  and {len(found) - _MAX_LISTED} more; --json has them all"] if len(found) > _MAX_LISTED else [])


def _step_rows(step: Mapping[str, Any]) -> list[list[Any]]:
    rows = [_row(step, str(step["step_id"]))]
    undo = step["compensation"]
    if undo is not None and "calls" in undo:
        rows += [_undo_row(undo, number) for number in shown_calls(undo)]
    elif undo is not None:
        rows.append(_row(undo, "  undo"))
    return rows


def _undo_row(undo: Mapping[str, Any], number: int) -> list[Any]:
    """A call of an undo of several calls; how long those took that are over is not kept."""
    call = undo["calls"][number]
    took = undo["took_ms"] if number == present_call(undo) else None
    return _row({**call, "name": undo["name"], "took_ms": took}, f"  undo {number + 1}/{len(undo['calls'])}")


def _row(call: Mapping[str, Any], name: str) -> list[Any]:
    error = call["error"]
    said = f"{error['error_code']}: {error['message']}" if error else ""
    took = "-" if call["took_ms"] is None else times.duration(call["took_ms"])
    return [name, call["name"], call["tool"], call["status"], str(call["attempts"]), took, said]


def _circumstances(body: Mapping[str, Any]) -> list[str]:
    """One line for exceptional facts about a step that are not in the table."""
    made_up: dict[Any, list[Any]] = {}
    for step in body["steps"]:
        if "compensates" in step:
            made_up.setdefault(step["compensates"], []).append(step["step_id"])
    found = [
        f"  step {shown(step['step_id'])}: {words}"
        for step in body["steps"]
        for words in _remarks(step, made_up.get(step["step_id"], ()))
    ]
    more = [f"  and {len(found) - _MAX_LISTED} more; --json has them all"] if len(found) > _MAX_LISTED else []
    notes = [*found[:_MAX_LISTED], *more, *waiting_lines(body)]
    return ["", "notes:", *notes] if notes else []


def _remarks(step: Mapping[str, Any], compensates: Sequence[Any]) -> Iterator[str]:
    if "fallback" in step:
        yield f"fallback {step['fallback']['number']} was used: {shown(step['fallback']['tool'], 80)}"
    if "deferred" in step:
        often = "once" if step["deferred"] == 1 else f"{step['deferred']} times"
        yield f"deferred {often}: its tool was not available"
    if "waits" in step:
        yield _waits(step["waits"])
    if "came" in step:
        yield _came(step)
    if "on_late" in step and step["status"] != "PENDING":
        yield f"an event that comes too late: {shown(step['on_late'], 80)}, by a saga of its own"
    if step["status"] == "BLOCKED":
        yield "blocked: nothing was called"
    if "via" in step:
        answered = step["via"] == "decision" and step.get("builtin") == "ask"
        yield "an operator answered" if answered else known_by(step["via"], step.get("source", ""), step.get("age_ms"))
    if left := step.get("child", {}).get("left"):
        yield _left_by_child(left)
    if "before" in step:
        changed = f" and {image_text(step['after'])} after it" if "after" in step else ""
        yield f"the value was {image_text(step['before'])} before the call{changed}"
    undo = step["compensation"] or {}
    if undo.get("via") == "unchanged":
        yield "nothing was left to undo: the value was as before the call"
    elif "calls" in undo:
        yield undo_progress(undo)
    told = undo if "verified" in undo else step
    if "verified" in told:
        yield _verified(told)
    if "handed_to" in step:
        yield f"its effect belongs to saga {shown(step['handed_to'], 128)}"
    if step["kind"] == "finally" and step["status"] in ("FAILED", "IN_DOUBT", "BLOCKED"):
        yield "of 'finally': it did not change the saga's end"
    if "compensates" in step:
        yield f"added to compensate for step {shown(step['compensates'])}"
    if compensates:
        outcome = "compensated" if step.get("compensated_by_others") else "to be compensated"
        yield f"{outcome} by step {', '.join(shown(other) for other in compensates[:_MAX_LISTED])}"


def _verified(undo: Mapping[str, Any]) -> str:
    """Whether the engine saw that an undo did what it says."""
    if undo["verified"]:
        return "its undo is verified"
    because = undo.get("unverified_because")
    return f"undone, as the tool said{f': {shown(because, 500)}' if because else ''}"


def _left_by_child(left: Sequence[str]) -> str:
    """The effects that the step's child, or its undo, left."""
    more = f" and {len(left) - _MAX_LISTED} more" if len(left) > _MAX_LISTED else ""
    return f"left in place by its child: {', '.join(shown(each, 140) for each in left[:_MAX_LISTED])}{more}"


def _came(step: Mapping[str, Any]) -> str:
    """The events that came for a wait for several."""
    names = ", ".join(
        f"{shown(each['event'], 40)} (key {shown(each['key'], 40)})" for each in step["came"][:_MAX_LISTED]
    )
    more = f" and {len(step['came']) - _MAX_LISTED} more" if len(step["came"]) > _MAX_LISTED else ""
    back = "" if "waits" in step or step.get("via") == "event" else "; given back, as the others did not come"
    return f"came: {names}{more}{back}"


def _waits(wait: Mapping[str, Any]) -> str:
    """What a step waits for."""
    due_ms = wait["due_ms"]
    what = {"event": awaited_events, "child": _awaited_child}.get(wait["on"])
    words = "" if what is None else f" {what(wait['about'])}"
    return f"waits{words}" + ("" if due_ms is None else f", until {times.local(due_ms)}")


def _awaited_child(about: Mapping[str, Any]) -> str:
    return f"for its child, saga {shown(about['saga'], 128)}"


def awaited_events(about: Mapping[str, Any]) -> str:
    """For which events a step waits."""
    word = next((word for word in ("first", "all") if word in about), "")
    events = about[word] if word else [about]
    names = ", ".join(f"{shown(each['event'], 40)} (key {shown(each['key'], 40)})" for each in events[:_MAX_LISTED])
    more = f" and {len(events) - _MAX_LISTED} more" if len(events) > _MAX_LISTED else ""
    if not word:
        return f"for the event {shown(about['event'])}, key {shown(about['key'])}"
    return f"for {'the first' if word == 'first' else 'all'} of the events {names}{more}"


#: The images of a question about drift.
_IMAGES: Final = (("before", "before the call"), ("after", "after the call"), ("found", "now"))


def image_text(image: Mapping[str, Any]) -> str:
    """What a read returned, in a line."""
    if "value" in image:
        return shown(json.dumps(image["value"], ensure_ascii=False, separators=(",", ":")), _OUTPUT_CHARS)
    return "unknown (it could not be read)" if "unread" in image else "absent"


def known_by(via: str, source: str, age_ms: int | None) -> str:
    """How a result is known that is not the answer to the step's own call."""
    age = "" if age_ms is None else f", {times.duration(age_ms)} old"
    if via == "deduplicated":
        # The key of the call that had the effect begins with its saga and its step.
        saga_id, _, rest = source.partition(":")
        step = rest.partition(":")[0]
        return f"the result of an identical call by saga {shown(saga_id, 128)}, step {shown(step, 64)}{age}"
    if via == "fork":
        return f"reused from {shown(source, 200)}: its effect belongs to this saga"
    if via == "unchanged":
        return "nothing was left to undo: the value was as before the call"
    if via == "cache":
        return f"the last good result{age}"
    if via == "decision":
        return "happened, according to an operator"
    if via == "expired":
        return "nobody answered in time: what the plan says for that"
    if via == "each":
        return "the outputs of its items"
    if via == "computed":
        return "computed"
    if via == "timer":
        return "its time is over"
    if via == "event":
        return "its event came"
    return f"happened, according to its {shown(via, 20)}"


def _outputs(body: Mapping[str, Any], *, full: bool) -> list[str]:
    """One line for each output, as JSON."""
    found = [(name, call) for name, call in calls_of(body) if call["output"] is not None]
    listed = found if full else found[:_MAX_LISTED]
    lines = ["", "outputs:"] if found else []
    for name, call in listed:
        text = json.dumps(call["output"], ensure_ascii=False, separators=(",", ":"))
        ref = call.get("output_ref")
        size = f" ({size_words(ref['bytes'])}; --full shows the whole)" if ref else ""
        lines.append(f"  {shown(name)}: {shown(text, sys.maxsize if full else _OUTPUT_CHARS)}{size}")
    if len(found) > len(listed):
        lines.append(f"  and {len(found) - len(listed)} more; --full or --json has them all")
    return lines


def size_words(size_bytes: int) -> str:
    """A size in a readable form."""
    if size_bytes < 1_000_000:
        return f"{size_bytes / 1000:.1f} kB"
    return f"{size_bytes / 1_000_000:.1f} MB"


def _report(body: Mapping[str, Any]) -> list[str]:
    report = body["report"]
    if not report["clean"] and not any(report.get(name) for name in ("dropped", *dict(_LISTS))):
        return []  # it has not ended, and nothing is to be told yet
    remains = any(report.get(name) for name in ("failed", "unresolved", "left_in_place", "semantic"))
    if body["status"] in SAGA_FINAL or remains:
        lines = [f"report: {'clean' if report['clean'] else paint('error', 'not clean')}"]
        if report["compensated"] and report["compensated"] == report.get("verified"):
            lines[0] += ", every undo verified"
    else:
        lines = ["report so far:"]
    for name, words in _LISTS:
        steps = report.get(name)
        if steps:
            more = f" and {len(steps) - _MAX_LISTED} more" if len(steps) > _MAX_LISTED else ""
            lines.append(f"  {words}: {', '.join(shown(step) for step in steps[:_MAX_LISTED])}{more}")
    last = [each for each in report.get("finally", ()) if each["status"] != "SUCCEEDED"]
    lines += [f"  finally: step {shown(each['step_id'])} is {paint(shown(each['status']))}" for each in last]
    dropped = report.get("dropped", ())[:_MAX_LISTED]
    return lines + [f"  dropped: {shown(each['step_id'])}: {shown(each['reason'], _REASON_CHARS)}" for each in dropped]


def _questions(body: Mapping[str, Any], settings: Settings) -> list[str]:
    questions = body["questions"]
    lines: list[str] = []
    for question in questions[:_MAX_LISTED]:
        lines += ["", *question_lines(body["saga_id"], question, settings, session="session" in body)]
    if len(questions) > _MAX_LISTED:
        lines += ["", f"and {len(questions) - _MAX_LISTED} more questions; --json has them all"]
    return lines


def question_lines(
    saga_id: str,
    question: Mapping[str, Any],
    settings: Settings,
    *,
    session: bool = False,
    more: Sequence[str] = (),
) -> list[str]:
    """An open question with the known facts and the command lines that answer it; ``more`` comes before those."""
    step = shown(question["step_id"])
    direction = "undo of step" if question["direction"] == "compensate" else "step"
    if "undo_call" in question:
        direction = f"call {question['undo_call']['number'] + 1} of {question['undo_call']['of']} of the {direction}"
    kind = question["kind"]
    subject = f"{direction} {step} ({shown(question['tool'] or kind)})"
    about = asks(kind, question.get("question_id", ""))
    lines = [f"{paint('ESCALATED', 'question')} about {subject}: {shown(kind)}: {about}"]
    forked = question.get("question_id", "") == FORKED
    if question["error"] and not forked:
        lines.append(f"  {shown(question['error']['error_code'])}: {shown(question['error']['message'], 500)}")
    lines += _about_call(question)
    if "found" in question:
        lines += [f"  the value {words}: {image_text(question[name])}" for name, words in _IMAGES if question[name]]
    if kind == "compensation":
        lines += _proposed(question)
    if kind == "ask":
        lines += _wanted(question)
    elif kind in ("session-failed", "session-kept"):
        if kind == "session-kept":
            mend = "" if forked else "mend the cause and "
            lines.append(f"  {mend}{rerun_line(saga_id)}; calls that happened are not made again")
        lines += _expiry(question)
    if "undo_call" in question and "undone" in question["options"]:
        lines.append("  'undone' and 'accept' concern the whole undo, any other answer this call")
    lines += [*more, "  answer with one of:"]
    for option in question["options"]:
        lines.append(f"    {answer_of(saga_id, question, option, settings, session=session)}")
        follows = question.get("outlooks", {}).get(option)
        lines += [] if follows is None else [f"      then: {shown(then_words(follows), _THEN_CHARS)}"]
    return lines


def _about_call(question: Mapping[str, Any]) -> list[str]:
    """The call that a question is about, and how it is found at its service."""
    if question["kind"] == "approval":
        return _asked(question)
    if "called_ms" not in question:
        return []
    params = question["params"]
    said = "" if params is None else shown(json.dumps(params, ensure_ascii=False), _QUESTION_CHARS)
    lines = [f"  params of the call: {said}"] if said else []
    if question["idempotency_key"] is not None:
        return [*lines, f"  idempotency key of the call: {shown(question['idempotency_key'])}"]
    if question["called_ms"] is None:
        return lines
    what = "these params" if said else "the call"
    return [*lines, f"  this tool sends no key: look for {what} at {times.local(question['called_ms'])}"]


def _wanted(question: Mapping[str, Any]) -> list[str]:
    """What a step asks, and what its answer must fit."""
    lines = [f"  {shown(question['text'], _QUESTION_CHARS)}"]
    if question.get("to"):
        lines.append(f"  asked of {shown(question['to'])}")
    if question["schema"] is not None:
        wanted = json.dumps(question["schema"], ensure_ascii=False)
        lines.append(f"  the answer is a JSON value that fits {shown(wanted, 1000)}")
    return [*lines, *_expiry(question)]


def _asked(question: Mapping[str, Any]) -> list[str]:
    """The exact call that an operator is asked to approve."""
    params = question["params"]
    said = "cannot be shown now" if params is None else shown(json.dumps(params, ensure_ascii=False))
    lines = [f"  params of the call: {said}", f"  digest of the call: {shown(question['call'])}"]
    if question["rule"]:
        lines.append(f"  required by the rule: {shown(question['rule'], 300)}")
    return [*lines, *_expiry(question)]


def _proposed(question: Mapping[str, Any]) -> list[str]:
    """The exact steps that an operator is asked to approve."""
    steps = question["steps"] or []
    lines = ["  the proposed steps:" if steps else "  the proposed steps cannot be shown now"]
    for step in steps:
        params = json.dumps(step.get("params", {}), ensure_ascii=False)
        lines.append(f"    step {shown(step.get('step_id', ''))} {shown(step.get('tool', ''))}: {shown(params)}")
    why = [f"  asked because {shown(question['why'], 500)}"] if question.get("why") else []
    return [*lines, *why, f"  digest of the steps: {shown(question['call'])}", *_expiry(question)]


def _expiry(question: Mapping[str, Any]) -> list[str]:
    if not question["expires_ms"]:
        return []
    return [f"  {expires(question['kind'])} {times.local(question['expires_ms'])}"]


def answer_of(
    saga_id: str, question: Mapping[str, Any], option: str, settings: Settings, *, session: bool = False
) -> str:
    """The command line to type; a session's tools are its agent's, which continues with the answer."""
    given = options_line(settings, tools=settings.names_tools or not session)
    mark = question.get("outlooks", {}).get(option, {}).get("mark")
    given = [*(["--expect", mark] if mark else []), *given]
    return answer_line(saga_id, str(question["step_id"]), question["direction"], option, given)
