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
from saga_engine.cli.words import counted, hidden, joined, language, more, named, say, state, told
from saga_engine.core.outlooks import then_words
from saga_engine.core.session_records import FORKED
from saga_engine.core.states import SAGA_FINAL
from saga_engine.hooks.messages import answer_line, asks
from saga_engine.language.questions import about, expires

if TYPE_CHECKING:
    from saga_engine.settings import Settings

_LISTS = ("compensated", "failed", "unresolved", "left_in_place", "semantic", "skipped", "continued")
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
    lines = [say("saga.status", saga=shown(body["saga_id"]), status=status_words(body["status"]))]
    if body["goal"]:
        lines.append(say("line.goal", goal=shown(body["goal"], 300)))
    if "undo_of" in body:
        lines.append(say("undo-of", saga=shown(body["undo_of"], 128)))
    if "undone_by" in body:
        lines.append(say("undone-by", saga=shown(body["undone_by"], 128)))
    took = times.between(body["started_ms"], body["ended_ms"])
    when = [say("started", when=times.local(body["started_ms"]))]
    if body["ended_ms"]:
        when.append(say("ended", when=times.local(body["ended_ms"]), took=took))
    whole = say("times", times=joined(*when), standing=_standing(body))
    # A narrow terminal would break the line within a time.
    lines += [whole] if line_fits(whole) else [*when, _standing(body)]
    error = body["error"]
    if error:
        about = say("reason.step", step=shown(error["step_id"])) if "step_id" in error else ""
        said = [shown(each, 500) for each in (error.get("error_code"), told(error)) if each]
        reason = say("reason", code=named("reason", shown(error["code"])), about=about)
        lines.append(say("colon").join([reason, *said]))
        if error.get("suggestion"):
            lines.append(say("line.suggestion", text=shown(told(error, "suggestion"), 500)))
    return lines


def status_words(status: str) -> str:
    """The status of a saga, in its colour; in words, and as ``--status`` wants it."""
    code = shown(status)
    return paint(code, say("status.both", status=code, words=state(code)))


def _standing(body: Mapping[str, Any]) -> str:
    """How many steps have a remaining effect, whatever became of their undo; and for how many that is unknown.

    A step that only reads or computes has none.
    """
    counts = body["counts"]
    if not counts["steps"]:
        return say("standing.none")
    may = say("standing.doubt", n=counts["in_doubt"]) if counts["in_doubt"] else ""
    return say("standing", n=counts["in_effect"], of=counts["steps"]) + may


def _answers(body: Mapping[str, Any]) -> list[str]:
    """Who answered which question, and with which note."""
    answers = body.get("answers", ())
    lines = [""] if answers else []
    for each in answers[:_MAX_LISTED]:
        by = say("by", who=shown(each["by"], 128)) if each["by"] else ""
        note = say("colon") + shown(each["note"], _REASON_CHARS) if each["note"] else ""
        step, kind, decision = shown(each["step_id"], 64), shown(each["kind"]), shown(each["decision"], 100)
        when = times.local(each["at_ms"])
        lines.append(say("answered", step=step, kind=kind, decision=decision, by=by, when=when, note=note))
    return lines + hidden(len(answers) - _MAX_LISTED)


_STEP_TITLES = ("step", "name", "tool", "status", "tries", "took", "error")


def _steps(body: Mapping[str, Any]) -> list[str]:
    """The table of the steps; errors stand below it if it would be too wide for the terminal."""
    rows = [row for step in body["steps"] for row in _step_rows(step)]
    titles = [say(f"title.{each}") for each in _STEP_TITLES]
    if fits(titles, rows):
        return [table(titles, rows)]
    lines = [table(titles[:-1], [row[:-1] for row in rows])]
    found = [(name, call["error"]) for name, call in calls_of(body) if call["error"]]
    lines += ["", say("errors")] if found else []
    lines += [
        say("line.error", name=shown(name), code=shown(error["error_code"], 100), message=shown(told(error), 500))
        for name, error in found[:_MAX_LISTED]
    ]
    return lines + hidden(len(found) - _MAX_LISTED)


def _step_rows(step: Mapping[str, Any]) -> list[list[Any]]:
    rows = [_row(step, str(step["step_id"]))]
    undo = step["compensation"]
    if undo is not None and "calls" in undo:
        rows += [_undo_row(undo, number) for number in shown_calls(undo)]
    elif undo is not None:
        rows.append(_row(undo, say("row.undo")))
    return rows


def _undo_row(undo: Mapping[str, Any], number: int) -> list[Any]:
    """A call of an undo of several calls; how long those took that are over is not kept."""
    call = undo["calls"][number]
    took = undo["took_ms"] if number == present_call(undo) else None
    name = say("row.undo-of", n=number + 1, of=len(undo["calls"]))
    return _row({**call, "name": undo["name"], "took_ms": took}, name)


def _row(call: Mapping[str, Any], name: str) -> list[Any]:
    error = call["error"]
    said = f"{error['error_code']}: {told(error)}" if error else ""
    took = "-" if call["took_ms"] is None else times.duration(call["took_ms"])
    return [name, call["name"], call["tool"], state(call["status"], "step"), str(call["attempts"]), took, said]


def _circumstances(body: Mapping[str, Any]) -> list[str]:
    """One line for exceptional facts about a step that are not in the table."""
    made_up: dict[Any, list[Any]] = {}
    for step in body["steps"]:
        if "compensates" in step:
            made_up.setdefault(step["compensates"], []).append(step["step_id"])
    found = [
        say("line", name=say("of.step", step=shown(step["step_id"])), text=words)
        for step in body["steps"]
        for words in _remarks(step, made_up.get(step["step_id"], ()))
    ]
    notes = [*found[:_MAX_LISTED], *hidden(len(found) - _MAX_LISTED), *waiting_lines(body)]
    return ["", say("notes"), *notes] if notes else []


def _remarks(step: Mapping[str, Any], compensates: Sequence[Any]) -> Iterator[str]:
    if "fallback" in step:
        yield say("fallback", n=step["fallback"]["number"], tool=shown(step["fallback"]["tool"], 80))
    if "deferred" in step:
        yield counted("deferred", step["deferred"])
    if "waits" in step:
        yield _waits(step["waits"])
    if "came" in step:
        yield _came(step)
    if "on_late" in step and step["status"] != "PENDING":
        yield say("on-late", tool=shown(step["on_late"], 80))
    if step["status"] == "BLOCKED":
        yield say("blocked")
    if "via" in step:
        answered = step["via"] == "decision" and step.get("builtin") == "ask"
        yield (
            say("operator-answered") if answered else known_by(step["via"], step.get("source", ""), step.get("age_ms"))
        )
    if left := step.get("child", {}).get("left"):
        yield _left_by_child(left)
    if "before" in step:
        changed = say("value-after", after=image_text(step["after"])) if "after" in step else ""
        yield say("value-was", before=image_text(step["before"])) + changed
    undo = step["compensation"] or {}
    if undo.get("via") == "unchanged":
        yield say("unchanged")
    elif "calls" in undo:
        yield undo_progress(undo)
    looked = undo if "verified" in undo else step
    if "verified" in looked:
        yield _verified(looked)
    if "handed_to" in step:
        yield say("handed-to", saga=shown(step["handed_to"], 128))
    if step["kind"] == "finally" and step["status"] in ("FAILED", "IN_DOUBT", "BLOCKED"):
        yield say("finally-only")
    if "compensates" in step:
        yield say("compensates", step=shown(step["compensates"]))
    if compensates:
        outcome = "compensated-by" if step.get("compensated_by_others") else "compensated-later"
        yield say(outcome, steps=", ".join(shown(other) for other in compensates[:_MAX_LISTED]))


def _verified(undo: Mapping[str, Any]) -> str:
    """Whether the engine saw that an undo did what it says."""
    if undo["verified"]:
        return say("undo.verified")
    because = undo.get("unverified_because")
    return say("undo.said-because", why=shown(because, 500)) if because else say("undo.said")


def _left_by_child(left: Sequence[str]) -> str:
    """The effects that the step's child, or its undo, left."""
    effects = ", ".join(shown(each, 140) for each in left[:_MAX_LISTED])
    return say("left-by-child", effects=effects, more=more(len(left) - _MAX_LISTED))


def _came(step: Mapping[str, Any]) -> str:
    """The events that came for a wait for several."""
    back = "" if "waits" in step or step.get("via") == "event" else say("came.back")
    return say("came", names=_events(step["came"]), more=more(len(step["came"]) - _MAX_LISTED), back=back)


def _events(events: Sequence[Mapping[str, Any]]) -> str:
    return ", ".join(
        say("event", event=shown(each["event"], 40), key=shown(each["key"], 40)) for each in events[:_MAX_LISTED]
    )


def _waits(wait: Mapping[str, Any]) -> str:
    """What a step waits for."""
    due_ms = wait["due_ms"]
    what = {"event": awaited_events, "child": _awaited_child}.get(wait["on"])
    words = "" if what is None else what(wait["about"])
    until = "" if due_ms is None else say("waits.until", when=times.local(due_ms))
    return say("waits", what=words and f" {words}", until=until)


def _awaited_child(about: Mapping[str, Any]) -> str:
    return say("waits.child", saga=shown(about["saga"], 128))


def awaited_events(about: Mapping[str, Any]) -> str:
    """For which events a step waits."""
    word = next((word for word in ("first", "all") if word in about), "")
    events = about[word] if word else [about]
    if not word:
        return say("waits.event", event=shown(about["event"]), key=shown(about["key"]))
    return say(f"waits.{word}", names=_events(events), more=more(len(events) - _MAX_LISTED))


#: The images of a question about drift.
_IMAGES: Final = ("before", "after", "found")


def image_text(image: Mapping[str, Any]) -> str:
    """What a read returned, in a line."""
    if "value" in image:
        return shown(json.dumps(image["value"], ensure_ascii=False, separators=(",", ":")), _OUTPUT_CHARS)
    return say("image.unread") if "unread" in image else say("image.absent")


def known_by(via: str, source: str, age_ms: int | None) -> str:
    """How a result is known that is not the answer to the step's own call."""
    age = "" if age_ms is None else say("known.age", age=times.duration(age_ms))
    if via == "deduplicated":
        # The key of the call that had the effect begins with its saga and its step.
        saga_id, _, rest = source.partition(":")
        step = rest.partition(":")[0]
        return say("known.deduplicated", saga=shown(saga_id, 128), step=shown(step, 64), age=age)
    if via == "fork":
        return say("known.fork", source=shown(source, 200))
    if via == "unchanged":
        return say("unchanged")
    if via == "cache":
        return say("known.cache", age=age)
    if via in ("decision", "expired", "each", "computed", "timer", "event"):
        return say(f"known.{via}")
    return say("known.other", via=shown(via, 20))


def _outputs(body: Mapping[str, Any], *, full: bool) -> list[str]:
    """One line for each output, as JSON."""
    found = [(name, call) for name, call in calls_of(body) if call["output"] is not None]
    listed = found if full else found[:_MAX_LISTED]
    lines = ["", say("outputs")] if found else []
    for name, call in listed:
        text = json.dumps(call["output"], ensure_ascii=False, separators=(",", ":"))
        ref = call.get("output_ref")
        size = say("size", size=size_words(ref["bytes"])) if ref else ""
        lines.append(say("line", name=shown(name), text=shown(text, sys.maxsize if full else _OUTPUT_CHARS) + size))
    if len(found) > len(listed):
        lines.append(say("hidden.full", n=len(found) - len(listed)))
    return lines


def size_words(size_bytes: int) -> str:
    """A size in a readable form."""
    if size_bytes < 1_000_000:
        return f"{size_bytes / 1000:.1f} kB"
    return f"{size_bytes / 1_000_000:.1f} MB"


def _report(body: Mapping[str, Any]) -> list[str]:
    report = body["report"]
    if not report["clean"] and not any(report.get(name) for name in ("dropped", *_LISTS)):
        return []  # it has not ended, and nothing is to be told yet
    remains = any(report.get(name) for name in ("failed", "unresolved", "left_in_place", "semantic"))
    if body["status"] in SAGA_FINAL or remains:
        how = say("report.clean") if report["clean"] else paint("error", say("report.not-clean"))
        lines = [say("report", how=how)]
        if report["compensated"] and report["compensated"] == report.get("verified"):
            lines[0] = joined(lines[0], say("report.verified"))
    else:
        lines = [say("report.so-far")]
    for name in _LISTS:
        steps = report.get(name)
        if steps:
            listed = ", ".join(shown(step) for step in steps[:_MAX_LISTED]) + more(len(steps) - _MAX_LISTED)
            lines.append(say("line", name=say(f"report.{name}"), text=listed))
    for each in report.get("finally", ()):
        if each["status"] != "SUCCEEDED":
            status = paint(shown(state(each["status"], "step")))
            lines.append(say("report.finally", step=shown(each["step_id"]), status=status))
    return lines + [
        say("report.dropped", step=shown(each["step_id"]), reason=shown(each["reason"], _REASON_CHARS))
        for each in report.get("dropped", ())[:_MAX_LISTED]
    ]


def _questions(body: Mapping[str, Any], settings: Settings) -> list[str]:
    questions = body["questions"]
    lines: list[str] = []
    for question in questions[:_MAX_LISTED]:
        lines += ["", *question_lines(body["saga_id"], question, settings, session="session" in body)]
    if len(questions) > _MAX_LISTED:
        lines += ["", say("question.many", n=len(questions) - _MAX_LISTED)]
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
    kind = question["kind"]
    lines = [_head_line(question)]
    forked = question.get("question_id", "") == FORKED
    if question["error"] and not forked:
        code, message = shown(question["error"]["error_code"]), shown(told(question["error"]), 500)
        lines.append(say("question.error", code=code, message=message))
    lines += _about_call(question)
    if "found" in question:
        values = [(say(f"question.{name}"), image_text(question[name])) for name in _IMAGES if question[name]]
        lines += [say("question.value", when=when, value=value) for when, value in values]
    if kind == "compensation":
        lines += _proposed(question)
    if kind == "ask":
        lines += _wanted(question)
    elif kind in ("session-failed", "session-kept"):
        if kind == "session-kept":
            lines.append(say("question.rerun" if forked else "question.mend", rerun=rerun_line(saga_id)))
        lines += _expiry(question)
    if "undo_call" in question and "undone" in question["options"]:
        lines.append(say("question.whole"))
    lines += [*more, f"  {say('line.answers')}"]
    for option in question["options"]:
        lines.append(f"    {answer_of(saga_id, question, option, settings, session=session)}")
        follows = question.get("outlooks", {}).get(option)
        then = "" if follows is None else shown(then_words(follows, language()), _THEN_CHARS)
        lines += [f"      {say('line.then', then=then)}"] if then else []
    return lines


def _head_line(question: Mapping[str, Any]) -> str:
    """What a question is about, and what it asks."""
    kind = question["kind"]
    step, tool = shown(question["step_id"]), shown(question["tool"] or kind)
    undo = question["direction"] == "compensate"
    subject = about(step, tool, undo=undo, call=question.get("undo_call"), language=language()).removeprefix("the ")
    asked = asks(kind, question.get("question_id", ""), language())
    word = paint("ESCALATED", say("question.word"))
    return say("question.head", question=word, subject=subject, kind=shown(kind), asks=asked)


def _about_call(question: Mapping[str, Any]) -> list[str]:
    """The call that a question is about, and how it is found at its service."""
    if question["kind"] == "approval":
        return _asked(question)
    if "called_ms" not in question:
        return []
    params = question["params"]
    said = "" if params is None else shown(json.dumps(params, ensure_ascii=False), _QUESTION_CHARS)
    lines = [say("question.params", params=said)] if said else []
    if question["idempotency_key"] is not None:
        return [*lines, say("question.key", key=shown(question["idempotency_key"]))]
    if question["called_ms"] is None:
        return lines
    when = times.local(question["called_ms"])
    return [*lines, f"  {say('line.keyless.params' if said else 'line.keyless', when=when)}"]


def _wanted(question: Mapping[str, Any]) -> list[str]:
    """What a step asks, and what its answer must fit."""
    lines = [f"  {shown(question['text'], _QUESTION_CHARS)}"]
    if question.get("to"):
        lines.append(say("question.asked-of", to=shown(question["to"])))
    if question["schema"] is not None:
        wanted = json.dumps(question["schema"], ensure_ascii=False)
        lines.append(f"  {say('line.schema', schema=shown(wanted, 1000))}")
    return [*lines, *_expiry(question)]


def _asked(question: Mapping[str, Any]) -> list[str]:
    """The exact call that an operator is asked to approve."""
    params = question["params"]
    said = "" if params is None else shown(json.dumps(params, ensure_ascii=False))
    lines = [say("question.params", params=said) if said else say("question.no-params")]
    lines.append(say("question.digest", digest=shown(question["call"])))
    if question["rule"]:
        lines.append(say("question.rule", rule=shown(question["rule"], 300)))
    return [*lines, *_expiry(question)]


def _proposed(question: Mapping[str, Any]) -> list[str]:
    """The exact steps that an operator is asked to approve."""
    steps = question["steps"] or []
    lines = [f"  {say('line.proposed')}" if steps else say("question.no-steps")]
    for step in steps:
        params = shown(json.dumps(step.get("params", {}), ensure_ascii=False))
        named_step, tool = shown(step.get("step_id", "")), shown(step.get("tool", ""))
        lines.append(say("question.step", step=named_step, tool=tool, params=params))
    why = [say("question.why", why=shown(question["why"], 500))] if question.get("why") else []
    return [*lines, *why, say("question.steps-digest", digest=shown(question["call"])), *_expiry(question)]


def _expiry(question: Mapping[str, Any]) -> list[str]:
    if not question["expires_ms"]:
        return []
    then = expires(question["kind"], language())
    return [f"  {say('line.until', then=then, when=times.local(question['expires_ms']))}"]


def answer_of(
    saga_id: str, question: Mapping[str, Any], option: str, settings: Settings, *, session: bool = False
) -> str:
    """The command line to type; a session's tools are its agent's, which continues with the answer."""
    given = options_line(settings, tools=settings.names_tools or not session)
    mark = question.get("outlooks", {}).get(option, {}).get("mark")
    given = [*(["--expect", mark] if mark else []), *given]
    return answer_line(saga_id, str(question["step_id"]), question["direction"], option, given)
