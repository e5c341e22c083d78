"""The page of a goal: what a model makes of it by round, what the plan would do, and the button that submits it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from saga_engine.planner.features import FEATURES, NEEDS
from saga_engine.planner.review_rows import Row, review_rows
from saga_engine.server.console.frame import Frame, form, json_block, page, saga_address
from saga_engine.server.console.html import Attributes, Html, Part, tag
from saga_engine.server.problems import without_address

if TYPE_CHECKING:
    from saga_engine.server.goals import Asking

ADDRESS: Final = "/ui/goal"
#: The fields of the leave for a part, and of the answer to a question of the model.
LEAVE: Final = "may-"
ANSWER: Final = "answer-"
#: What a person may allow: all that needs leave but lookups, which the server's settings allow.
PARTS: Final = tuple(name for name in NEEDS if name in FEATURES)
_ROWS: Final = 200
_PROBLEMS: Final = 10
_TEXT_CHARS: Final = 4000


def goal_page(
    frame: Frame,
    asking: Asking | None = None,
    *,
    has_model: bool,
    goal: str = "",
    given: str = "",
    may_use: Sequence[str] = (),
    said: str = "",
) -> Html:
    """The form, and what has become of a goal. Without a model the page says so."""
    words = frame.words
    parts: list[Part] = [tag("div", {"class": "said error", "role": "alert"}, said)] if said else []
    if not has_model:
        parts.append(tag("div", {"class": "said", "id": "no-model"}, words("goal.no-model")))
    elif "submit" not in frame.may:
        parts.append(tag("p", {"class": "quiet"}, words("goal.may-not")))
    else:
        parts.append(_form(frame, asking, goal, given, may_use))
    if asking is not None:
        parts.append(tag("div", {"id": "results"}, _results(frame, asking)))
    back = tag("p", None, tag("a", {"href": "/ui/plan"}, words("goal.own-plan")))
    explained = tag("p", {"class": "quiet"}, words("goal.explained"))
    return page(frame, words("goal.title"), "plan", tag("h1", None, words("goal.title")), explained, back, *parts)


def _form(frame: Frame, asking: Asking | None, goal: str, given: str, may_use: Sequence[str]) -> Html:
    words = frame.words
    allowed = {*may_use, *(() if asking is None else asking.needs)}
    boxes = [
        tag(
            "label",
            {"class": "check"},
            tag("input", {"type": "checkbox", "name": f"{LEAVE}{name}", "value": "1", "checked": name in allowed}),
            " ",
            tag("code", None, name),
            " ",
            words(f"part.{name}"),
        )
        for name in PARTS
    ]
    listed = tag("ul", {"class": "plain-list"}, [tag("li", None, each) for each in boxes])
    questions = [_question(frame, each) for each in (() if asking is None else asking.questions)]
    area: Attributes = {
        "name": "goal",
        "id": "goal",
        "rows": 4,
        "required": True,
        "placeholder": words("goal.placeholder"),
    }
    return form(
        frame,
        ADDRESS,
        tag("label", {"for": "goal"}, words("goal.goal")),
        tag("textarea", area, goal),
        questions,
        tag("label", {"for": "input"}, words("plan.input")),
        tag("textarea", {"name": "input", "id": "input", "rows": 2, "spellcheck": "false", "placeholder": "{}"}, given),
        tag("fieldset", {"class": "parts"}, tag("legend", None, words("goal.may-use")), listed),
        tag("div", {"class": "buttons"}, tag("button", {"class": "button main"}, words("goal.ask"))),
        css="card answers",
    )


def _question(frame: Frame, question: Mapping[str, Any]) -> Html:
    name = f"{ANSWER}{str(question['name'])[:100]}"
    options = [str(each)[:200] for each in question.get("options") or ()]
    listed = [tag("option", {"value": each}, each) for each in options]
    empty = tag("option", {"value": ""}, frame.words("goal.choose"))
    field = (
        tag("select", {"name": name, "id": name}, empty, listed)
        if options
        else tag("input", {"type": "text", "name": name, "id": name, "autocomplete": "off", "maxlength": 2000})
    )
    return tag("div", {"class": "asked"}, tag("label", {"for": name}, str(question["question"])[:2000]), field)


def _results(frame: Frame, asking: Asking) -> list[Part]:
    words = frame.words
    parts: list[Part] = [_rounds(frame, asking)]
    if asking.running:
        parts.append(tag("div", {"class": "said", "role": "status", "id": "working"}, words("goal.working")))
    if asking.error is not None:
        parts.append(_ended(frame, asking))
    if asking.planned is not None:
        parts += _planned(frame, asking)
    return parts


def _rounds(frame: Frame, asking: Asking) -> Html | None:
    words, rows = frame.words, []
    for entry in asking.rounds:
        wrong = [str(each["message"])[:500] for each in entry["problems"][:_PROBLEMS]]
        state = words("goal.round-wrong", n=len(entry["problems"])) if wrong else words("goal.round-right")
        problems = tag("ul", {"class": "plain-list quiet"}, [tag("li", None, each) for each in wrong])
        rows.append(tag("li", None, words("goal.round", n=entry["round"]), ": ", state, problems if wrong else None))
    if not rows:
        return None
    heading = tag("h2", None, words("goal.rounds"), " ", tag("span", {"class": "number quiet"}, len(rows)))
    return tag("section", {"class": "card", "id": "rounds"}, heading, tag("ol", None, rows))


def _ended(frame: Frame, asking: Asking) -> Html:
    words, error = frame.words, asking.error
    assert error is not None
    if asking.questions:
        return tag("div", {"class": "said", "role": "status", "id": "asks"}, words("goal.asks"))
    if asking.needs:
        needs = ", ".join(asking.needs)
        return tag("div", {"class": "said", "role": "status", "id": "needs"}, words("goal.needs", needs=needs))
    hint = tag("p", {"class": "quiet"}, without_address(error.hint)[:_TEXT_CHARS]) if error.hint else None
    why = words.refused(error, without_address(error.message))[:_TEXT_CHARS]
    return tag(
        "div", {"class": "said error", "role": "alert", "id": "failed"}, tag("b", None, error.code), " ", why, hint
    )


def _planned(frame: Frame, asking: Asking) -> list[Part]:
    words, planned = frame.words, asking.planned
    assert planned is not None
    told = planned.to_dict()
    rows = review_rows({**told, "review": planned.review}, calls=True)
    notes = [tag("li", None, str(each)[:1000]) for each in planned.notes[:20]]
    review = tag(
        "section",
        {"class": "card", "id": "review"},
        tag("h2", None, words("goal.review")),
        _review(frame, rows),
        tag("ul", {"class": "plain-list quiet"}, notes) if notes else None,
    )
    whole = tag(
        "details",
        {"id": "whole"},
        tag("summary", None, words("goal.plan")),
        json_block(told["plan"], words("goal.plan")),
    )
    return [review, tag("section", {"class": "card"}, whole), _submit(frame, asking)]


def _review(frame: Frame, rows: Sequence[Row]) -> Html:
    words = frame.words
    heads = [tag("th", {"scope": "col"}, words(f"goal.{name}")) for name in ("step", "what", "says")]
    shown = [
        tag(
            "tr",
            {"class": "final" if row.what in ("final", "late", "at the end") else None},
            tag("td", None, tag("b", None, row.step[:80])),
            tag("td", None, words.known("review", row.what)),
            tag("td", None, words.said(row.text)[:_TEXT_CHARS]),
        )
        for row in rows[:_ROWS]
    ]
    table = tag(
        "table",
        {"class": "rows"},
        tag("caption", {"class": "hidden"}, words("goal.review")),
        tag("thead", None, tag("tr", None, heads)),
        tag("tbody", None, shown),
    )
    more = tag("p", {"class": "quiet"}, words("more", n=len(rows) - _ROWS)) if len(rows) > _ROWS else None
    region = {"class": "scroll", "tabindex": "0", "role": "region", "aria-label": words("goal.review")}
    return tag("div", None, tag("div", region, table), more)


def _submit(frame: Frame, asking: Asking) -> Html | None:
    words = frame.words
    if asking.saga_id:
        link = tag("a", {"href": saga_address(asking.saga_id), "class": "id"}, asking.saga_id)
        return tag("div", {"class": "said ok", "id": "submitted"}, words("goal.submitted"), " ", link)
    if "submit" not in frame.may:
        return None
    return form(
        frame,
        f"{ADDRESS}/{asking.id}",
        tag("p", {"class": "quiet"}, words("goal.before")),
        tag(
            "label",
            {"class": "check"},
            tag("input", {"type": "checkbox", "name": "looked", "value": "1", "required": True}),
            " ",
            words("goal.looked"),
        ),
        tag("div", {"class": "buttons"}, tag("button", {"class": "button main"}, words("goal.submit"))),
        css="card answers",
    )
