"""The open questions, and the forms that answer them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import urlencode

from saga_engine.core.outlooks import then_words
from saga_engine.server.console.frame import (
    Frame,
    empty,
    facts,
    form,
    image,
    json_block,
    moment,
    page,
    saga_address,
)
from saga_engine.server.console.html import Html, Part, tag
from saga_engine.server.console.words import Words

#: Answers that leave or refuse something, and those that are what was asked for.
GRAVE: Final = frozenset({"accept", "deny", "close"})
MAIN: Final = frozenset({"approve", "answer"})
_MOST: Final = 30


def questions_page(
    frame: Frame,
    questions: Sequence[Mapping[str, Any]],
    *,
    unreadable: Sequence[str],
    more: bool,
    now_ms: int,
    to: str = "",
) -> Html:
    """All open questions, the oldest first; with ``to`` those that plans ask of that name."""
    words = frame.words
    cards = [
        question_card(frame, question, saga_id=str(question["saga_id"]), listed=True, now_ms=now_ms)
        for question in questions
    ]
    return page(
        frame,
        words("nav.questions"),
        "questions",
        tag("h1", None, words("nav.questions"), " ", tag("span", {"class": "quiet number"}, len(questions))),
        _only(words, to) if to else None,
        [tag("div", {"class": "said error"}, words("questions.unreadable", saga=each)) for each in unreadable],
        tag("div", {"class": "questions", "id": "questions"}, cards) if cards else empty(words, "questions.none"),
        tag("p", {"class": "quiet"}, words("questions.more")) if more else None,
        live="/v1/stream",
    )


def _only(words: Words, to: str) -> Html:
    every = tag("a", {"href": "/ui/questions"}, words("questions.of-all"))
    return tag("p", {"class": "quiet", "id": "only"}, words("questions.only", to=to), " ", every)


def question_card(
    frame: Frame, question: Mapping[str, Any], *, saga_id: str, listed: bool = False, now_ms: int = 0
) -> Html:
    """One question with what is known, and its answers."""
    words = frame.words
    kind, step = str(question["kind"]), str(question["step_id"])
    title = f"question-{saga_id}-{question['question_id']}"
    undo = question.get("undo_call")
    asked = str(question.get("text") or "") if kind == "ask" else words.asks(question)
    about: list[Part] = [
        tag(
            "span",
            None,
            words("question.undo-of")
            if question["direction"] != "forward" and kind != "ask"
            else words("question.step"),
            " ",
            tag("b", None, step),
            " ",
            str(question.get("step_name") or "")[:80],
        ),
        tag("span", None, words("step.call-of", n=undo["number"] + 1, of=undo["of"])) if undo else None,
        # (A step that has no name of its own is called as its tool.)
        tag("code", None, str(question["tool"])[:80])
        if question["tool"] and question["tool"] != question.get("step_name")
        else None,
        tag("span", None, moment(question["asked_ms"])),
        _whom(words, question, listed=listed),
        tag("span", {"class": "due"}, words("question.expires"), " ", moment(question["expires_ms"]))
        if question.get("expires_ms")
        else None,
    ]
    link = tag("a", {"href": saga_address(saga_id), "class": "id"}, saga_id) if listed else None
    waited = (
        tag("span", {"class": "quiet number"}, words.duration(max(now_ms - question["asked_ms"], 0)))
        if now_ms
        else None
    )
    return tag(
        "article",
        {"class": f"card question {kind}", "id": title, "aria-labelledby": f"{title}-title"},
        tag("div", {"class": "line"}, link, tag("div", {"class": "grow"}), waited) if listed else None,
        tag("h2", {"id": f"{title}-title", "class": "asked"}, asked[:2000]),
        tag("div", {"class": "meta"}, about),
        tag("p", {"class": "goal"}, str(question["goal"])[:500]) if listed and question.get("goal") else None,
        known_facts(frame, question),
        _answers(frame, question, saga_id)
        if "resolve" in frame.may
        else tag("p", {"class": "quiet"}, words("question.may-not")),
    )


def _whom(words: Words, question: Mapping[str, Any], *, listed: bool) -> Html | None:
    """Whom the plan asks; on the page of all questions, a link to those of the same addressee."""
    to = str(question.get("to") or "")
    if not to:
        return None
    named = tag("a", {"href": "/ui/questions?" + urlencode({"to": to})}, to) if listed else tag("b", None, to)
    return tag("span", {"class": "whom"}, words("question.to"), " ", named)


def known_facts(frame: Frame, question: Mapping[str, Any]) -> list[Part]:
    """What is known about a question: the error, the call, what was probed, the images, what stands."""
    words = frame.words
    parts: list[Part] = []
    error = question.get("error")
    if error and question["kind"] not in ("approval", "ask"):
        parts.append(
            tag(
                "div",
                {"class": "said error"},
                tag("code", None, error["error_code"]),
                " ",
                words.error(error)[:1000],
            )
        )
    parts.append(
        facts(
            (words("question.rule"), question.get("rule")),
            (words("question.why"), str(question["why"])[:500] if question.get("why") else None),
            (words("question.probed"), _probe(words, question)),
        )
    )
    if question.get("called_ms") and question.get("idempotency_key") is None:
        parts.append(tag("p", {"class": "quiet"}, words("question.keyless"), " ", moment(question["called_ms"])))
    if question.get("params") is not None:
        parts += [tag("h3", None, words("question.call")), json_block(question["params"], words("question.call"))]
    if question.get("steps"):
        parts += [
            tag("h3", None, words("question.proposed")),
            json_block(question["steps"], words("question.proposed")),
        ]
    images = [(name, question[name]) for name in ("before", "after", "found") if question.get(name) is not None]
    if images:
        shown = [image(words, name, value) for name, value in images]
        parts.append(tag("div", {"class": "images"}, shown))
    standing = question.get("standing") or []
    if standing:
        rows = [
            tag(
                "li",
                None,
                tag("b", None, str(each["step_id"])),
                f" {each['name']} ",
                tag("code", None, str(each["tool"])),
                " ",
                words.known("step", str(each.get("status", ""))),
            )
            for each in standing[:_MOST]
        ]
        parts.append(
            tag(
                "details",
                {"id": f"standing-{question['question_id']}"},
                tag("summary", None, words("question.standing", n=len(standing))),
                tag("ul", None, rows),
            )
        )
    return parts


def outlook(words: Words, question: Mapping[str, Any], option: str) -> Html | None:
    """What follows from an answer, in a line; None if that is not known."""
    follows = (question.get("outlooks") or {}).get(option)
    return None if follows is None else tag("p", {"class": "quiet then"}, then_text(words, follows))


def then_text(words: Words, follows: Mapping[str, Any]) -> str:
    """What follows from an answer: what is called and undone, what stays, and how the saga goes on."""
    return words("then.then", what=then_words(follows, words.language))


def may_happen_twice(question: Mapping[str, Any]) -> bool:
    """Whether 'retry' repeats a call that may have happened, and that its tool does not know again."""
    follows = (question.get("outlooks") or {}).get("retry", {})
    return any(call.get("twice") for call in follows.get("calls", ()))


def _twice(words: Words, question: Mapping[str, Any], name: str) -> Html | None:
    """The box to tick before a call is repeated that may happen twice."""
    if not may_happen_twice(question):
        return None
    box = tag("input", {"type": "checkbox", "name": "twice", "value": "1", "id": f"twice-{name}"})
    return tag("label", {"class": "check", "for": f"twice-{name}"}, box, " ", words("question.twice"))


def _means(words: Words, question: Mapping[str, Any], option: str) -> str:
    """What an answer means; a repeat is one under the same key only if the tool honours it."""
    bare = question.get("called_ms") and question.get("idempotency_key") is None
    return words("answer-means.retry-keyless") if option == "retry" and bare else words.known("answer-means", option)


def _probe(words: Words, question: Mapping[str, Any]) -> str | None:
    probe = question.get("probe")
    if not probe:
        return None
    return f"{probe['tries']}× {probe['error'].get('error_code', '')}: {words.error(probe['error'])}"[:300]


def _answers(frame: Frame, question: Mapping[str, Any], saga_id: str) -> Html:
    words = frame.words
    kind, options = str(question["kind"]), [str(each) for each in question["options"]]
    hidden = [
        tag("input", {"type": "hidden", "name": name, "value": str(value)})
        for name, value in (
            ("step", question["step_id"]),
            ("question", question["question_id"]),
            ("next", frame.here),
            ("call", question.get("call") or ""),
            *((f"expect-{option}", body["mark"]) for option, body in (question.get("outlooks") or {}).items()),
        )
    ]
    own = kind == "ask"
    needs_value = "answer" in options or ("happened" in options and question["direction"] == "forward" and not own)
    name = f"{saga_id}-{question['question_id']}"
    value = None
    if needs_value:
        label = words("question.value" if "answer" in options else "question.output")
        field = tag(
            "textarea",
            {"name": "output", "id": f"output-{name}", "rows": 2, "spellcheck": "false", "placeholder": "{}"},
        )
        body = [tag("label", {"for": f"output-{name}"}, label), field]
        value = (
            tag("div", None, body)
            if "answer" in options
            else tag("details", {"id": f"value-{name}"}, tag("summary", None, words("question.output-short")), body)
        )
    note = [
        tag("label", {"for": f"note-{name}"}, words("question.note")),
        tag("input", {"type": "text", "name": "note", "id": f"note-{name}", "maxlength": 500, "autocomplete": "off"}),
    ]
    follows = question.get("outlooks") or {}
    buttons = [_button(words, question, option, name) for option in options]
    explained = [
        (tag("dt", None, words.known("answer", option)), tag("dd", None, _means(words, question, option)))
        for option in options
    ]
    means = (
        None
        if own
        else tag(
            "details",
            {"id": f"means-{name}"},
            tag("summary", None, words("question.means")),
            tag("dl", {"class": "facts"}, explained),
        )
    )
    return form(
        frame,
        saga_address(saga_id, "resolve"),
        hidden,
        value,
        tag("div", {"class": "note"}, note),
        _twice(words, question, name),
        tag("div", {"class": "choices" if follows else "buttons"}, buttons),
        means,
        css="answers",
        label=words("question.answer", step=question["step_id"]),
    )


def _button(words: Words, question: Mapping[str, Any], option: str, name: str) -> Html:
    """The button of an answer, marked if the answer is grave; beside it what follows."""
    own, follows = question["kind"] == "ask", (question.get("outlooks") or {}).get(option)
    grave = option in GRAVE or any(call.get("twice") for call in (follows or {}).get("calls", ()))
    css = "button" + (" main" if option in MAIN else " danger" if grave and not own else "")
    what = option if own and option != "answer" else words.known("answer", option)
    title = None if own else _means(words, question, option)
    button = tag("button", {"name": "decision", "value": option, "class": css, "title": title}, what[:120])
    if follows is None:
        return button
    then = tag("span", {"class": "quiet"}, then_text(words, follows))
    return tag("div", {"class": "choice", "id": f"choice-{name}-{option}"}, button, then)
