"""The text for operators: the question in plain words, and the command lines that answer it.

Goals, names and messages come from models and from the network. Each is quoted as one line, cut, and made inert for
chats: no such line looks like one of ours, and an ``@`` in it mentions no one.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final

from saga_engine.core.outlooks import then_words
from saga_engine.core.session_records import FORKED
from saga_engine.language import LANGUAGES, Fragment, capital, catalogue
from saga_engine.language.errors import translated
from saga_engine.language.questions import QUESTIONS, about, asked, expires
from saga_engine.plan.values import printable
from saga_engine.ports import Question

#: The lines of a message.
LINES: Final[Fragment] = {
    "title": ("{again}saga {saga}, {about}: {asks}{whom}{text}", "{again}saga {saga}，{about}：{asks}{whom}{text}"),
    "again": ("Reminder {n}: ", "第 {n} 次提醒："),
    "text": (": {text}", "：{text}"),
    "first": ("{about} of saga {saga}: {asks}", "关于 saga {saga}，{about}：{asks}"),
    "question": ("Question: {text}", "提问：{text}"),
    "to": ("Asked of: {to}", "提问对象：{to}"),
    "asked": ("Asked: {when}", "提问时间：{when}"),
    "known": ("What is known: {error}", "已知：{error}"),
    "call": ("The exact call: {tool} {params}", "确切的调用：{tool} {params}"),
    "sealed": ("What it is about is sealed: read it before you answer", "其内容已加密：请先查看再答复"),
    "link": ("To answer {option}, open this link and confirm: {link}", "要答复 {option}，请打开此链接并确认：{link}"),
    "more": ("More: {line}", "更多：{line}"),
    "page": ("The saga's page: {page}", "saga 的页面：{page}"),
    "id": ("Question {id}", "提问 {id}"),
}
_TEXTS: Final = {each: catalogue(each, LINES, QUESTIONS) for each in LANGUAGES}
_TEXT_CHARS: Final = 500
_TITLE_CHARS: Final = 200
_PARAMS_CHARS: Final = 2000
_STEP_CHARS: Final = 500
_QUESTION_CHARS: Final = 2200
_THEN_CHARS: Final = 500
#: What chats take for a mention: ``@name``, ``<!channel>``, ``<@U1>``, ``<#C1>``.
_CALLS: Final = re.compile(r"@|<(?=[!@#&])")


def _line(key: str, language: str, **values: object) -> str:
    """A line, or a part of one."""
    return _TEXTS[language][key].format(**values)


def asks(kind: str, question_id: str = "", language: str = "en") -> str:
    """What a question of this kind asks, in words; ``question_id`` says whether it is that of a fork."""
    return asked("forked" if question_id == FORKED else printable(kind, 60), language)


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


def title(question: Question, language: str = "en") -> str:
    """One line: which saga, about what, and what is asked."""
    say = partial(_line, language=language)
    again = say("again", n=question.round) if question.round else ""
    text = say("text", text=quoted(question.text, _TITLE_CHARS)) if question.text else ""
    whom = f" {quoted(question.to, _TITLE_CHARS)}" if question.to else ""
    saga, what = quoted(question.saga_id, 128), asks(question.kind, language=language)
    return say("title", again=again, saga=saga, about=subject(question, language), asks=what, whom=whom, text=text)


def body(question: Question, links: Mapping[str, str] | None = None, page: str = "", *, language: str = "en") -> str:
    """All known facts, a line each, the links and command lines to answer with, and the saga's page."""
    say = partial(_line, language=language)
    lines = [*_facts(question, say, language)]
    lines += [say("link", option=quoted(option, 100), link=link) for option, link in (links or {}).items()]
    lines += _answers(question, say, language)
    lines += [say("page", page=page)] if page else []
    return "\n".join([*lines, say("id", id=quoted(question.question_id, 128))])


def _facts(question: Question, say: Callable[..., str], language: str) -> Iterator[str]:
    about, what = capital(subject(question, language)), asks(question.kind, language=language)
    yield say("first", about=about, saga=quoted(question.saga_id, 128), asks=what)
    if question.text:
        yield say("question", text=quoted(question.text, _QUESTION_CHARS))
    if question.to:
        yield say("to", to=quoted(question.to))
    if question.schema is not None:
        yield capital(say("line.schema", schema=quoted(json.dumps(question.schema, ensure_ascii=False), 1000)))
    if question.goal:
        yield capital(say("line.goal", goal=quoted(question.goal)))
    if question.asked_ms:
        yield say("asked", when=moment(question.asked_ms))
    if question.error:
        code = str(question.error.get("error_code") or "")
        told = [translated(code, str(question.error.get(name) or ""), language) for name in ("message", "suggestion")]
        yield say("known", error=quoted(": ".join(each for each in (code, told[0]) if each)))
        if told[1]:
            yield capital(say("line.suggestion", text=quoted(told[1])))
    if question.params is not None:
        shown = json.dumps(question.params, ensure_ascii=False, default=str)
        yield say("call", tool=quoted(question.tool, 64), params=quoted(shown, _PARAMS_CHARS))
    if question.called_ms is not None:
        key = "line.keyless" if question.params is None else "line.keyless.params"
        yield capital(say(key, when=moment(question.called_ms)))
    if question.steps:
        yield capital(say("line.proposed"))
        yield from (f"  - {proposed(step, _STEP_CHARS)}" for step in question.steps)
    if question.sealed:
        yield say("sealed")
    if question.expires_ms is not None:
        yield say("line.until", then=capital(expires(question.kind, language)), when=moment(question.expires_ms))


def _answers(question: Question, say: Callable[..., str], language: str) -> Iterator[str]:
    if question.options:
        yield capital(say("line.answers"))
    for option in question.options:
        follows = question.outlooks.get(option)
        mark = [] if follows is None else ["--expect", str(follows["mark"])]
        yield "    " + answer_line(question.saga_id, str(question.step_id), question.direction, option, mark)
        if follows is not None:
            yield "        " + say("line.then", then=quoted(then_words(follows, language), _THEN_CHARS))
    if question.answerable:
        yield say("more", line=show_line(question.saga_id))


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
