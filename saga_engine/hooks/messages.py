"""The text for operators: the question in plain words, and the command lines that answer it.

Goals, names and messages come from models and from the network. Each is quoted as one line, cut, and made inert for
chats: no such line looks like one of ours, and an ``@`` in it mentions no one.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from saga_engine.core.outlooks import then_words
from saga_engine.core.session_records import FORKED
from saga_engine.language import capital
from saga_engine.language.questions import about, asked, expires
from saga_engine.plan.values import printable
from saga_engine.ports import Question

_TEXT_CHARS: Final = 500
_TITLE_CHARS: Final = 200
_PARAMS_CHARS: Final = 2000
_STEP_CHARS: Final = 500
_QUESTION_CHARS: Final = 2200
_THEN_CHARS: Final = 500
#: What chats take for a mention: ``@name``, ``<!channel>``, ``<@U1>``, ``<#C1>``.
_CALLS: Final = re.compile(r"@|<(?=[!@#&])")


def asks(kind: str, question_id: str = "") -> str:
    """What a question of this kind asks, in words; ``question_id`` says whether it is that of a fork."""
    return asked("forked" if question_id == FORKED else printable(kind, 60))


def answer_line(saga_id: str, step_id: str, direction: str, option: str, options: Sequence[str] = ()) -> str:
    """The command line that gives this answer, safe to paste into a shell. ``options`` are added as they are."""
    words = ["saga", "resolve", _word(saga_id)]
    extra = list(options)
    if option in ("happened", "answer") and direction == "forward":
        extra = ["--output", "'{…}'" if option == "happened" else "'…'", *extra]
    if step_id.startswith("-") or option.startswith("-"):
        # A step, or an option of a plan's question, may be called --help: after a bare -- nothing is an option.
        return " ".join([*words, *extra, "--", _word(step_id), _word(option)])
    return " ".join([*words, _word(step_id), _word(option), *extra])


def show_line(saga_id: str) -> str:
    """The command line that shows a saga whole."""
    return f"saga show {_word(saga_id)}"


def _word(text: str) -> str:
    return shlex.quote(printable(text, 4000))


def subject(question: Question, language: str = "en") -> str:
    """The subject of the question: ``step 2 (book_hotel)``."""
    step, tool = quoted(str(question.step_id), 64), quoted(question.tool or question.step_name, 64)
    return about(step, tool, undo=question.direction == "compensate", call=question.undo_call, language=language)


def title(question: Question) -> str:
    """One line: which saga, about what, and what is asked."""
    again = f"Reminder {question.round}: " if question.round else ""
    text = f": {quoted(question.text, _TITLE_CHARS)}" if question.text else ""
    whom = f" {quoted(question.to, _TITLE_CHARS)}" if question.to else ""
    return f"{again}saga {quoted(question.saga_id, 128)}, {subject(question)}: {asks(question.kind)}{whom}{text}"


def body(question: Question, links: Mapping[str, str] | None = None, page: str = "") -> str:
    """All known facts, a line each, the links and command lines to answer with, and the saga's page."""
    return "\n".join(_lines(question, links or {}, page))


def _lines(question: Question, links: Mapping[str, str], page: str) -> Iterator[str]:
    yield f"{capital(subject(question))} of saga {quoted(question.saga_id, 128)}: {asks(question.kind)}"
    if question.text:
        yield f"Question: {quoted(question.text, _QUESTION_CHARS)}"
    if question.to:
        yield f"Asked of: {quoted(question.to)}"
    if question.schema is not None:
        yield f"The answer is a JSON value that fits {quoted(json.dumps(question.schema, ensure_ascii=False), 1000)}"
    if question.goal:
        yield f"Goal: {quoted(question.goal)}"
    if question.asked_ms:
        yield f"Asked: {moment(question.asked_ms)}"
    if question.error:
        said = [str(question.error[name]) for name in ("error_code", "message") if question.error.get(name)]
        yield f"What is known: {quoted(': '.join(said))}"
        if question.error.get("suggestion"):
            yield f"Suggestion: {quoted(str(question.error['suggestion']))}"
    if question.params is not None:
        shown = json.dumps(question.params, ensure_ascii=False, default=str)
        yield f"The exact call: {quoted(question.tool, 64)} {quoted(shown, _PARAMS_CHARS)}"
    if question.called_ms is not None:
        what = "the call" if question.params is None else "these params"
        yield f"This tool sends no key: look for {what} at {moment(question.called_ms)}"
    if question.steps:
        yield "The proposed steps:"
        for step in question.steps:
            yield f"  - {proposed(step, _STEP_CHARS)}"
    if question.sealed:
        yield "What it is about is sealed: read it before you answer"
    if question.expires_ms is not None:
        yield f"{capital(expires(question.kind))} {moment(question.expires_ms)}"
    for option, link in links.items():
        yield f"To answer {quoted(option, 100)}, open this link and confirm: {link}"
    if question.options:
        yield "Answer with one of:"
        for option in question.options:
            follows = question.outlooks.get(option)
            mark = [] if follows is None else ["--expect", str(follows["mark"])]
            yield "    " + answer_line(question.saga_id, str(question.step_id), question.direction, option, mark)
            if follows is not None:
                yield f"        then: {quoted(then_words(follows), _THEN_CHARS)}"
    if question.answerable:
        yield f"More: {show_line(question.saga_id)}"
    if page:
        yield f"The saga's page: {page}"
    yield f"Question {quoted(question.question_id, 128)}"


def proposed(step: Mapping[str, Any], limit_chars: int) -> str:
    """A step that a model proposes: the tool, and the params as in the plan."""
    shown = json.dumps(step.get("params", {}), ensure_ascii=False, default=str)
    return f"{quoted(str(step.get('tool', '')), 64)} {quoted(shown, limit_chars)}"


def quoted(text: str, limit_chars: int = _TEXT_CHARS) -> str:
    """An external text as one inert line."""
    return _CALLS.sub(lambda found: found[0] + "\u200b", printable(text, limit_chars))


def moment(at_ms: int) -> str:
    """Unix milliseconds as ISO 8601 in UTC, to the second: its readers are anywhere."""
    try:
        return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="seconds")
    except (OverflowError, ValueError, OSError):
        return f"{at_ms} ms"  # beyond the calendar; a damaged journal may contain it
