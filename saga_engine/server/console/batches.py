"""Many sagas at once: the bar that acts on the chosen ones, and the page that shows what would happen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from saga_engine.server.console.frame import Frame, badge, empty, form, page, saga_address
from saga_engine.server.console.html import Attributes, Html, Part, tag
from saga_engine.server.console.questions import then_text

if TYPE_CHECKING:
    from saga_engine.batches.batch import Batch, Selected

#: The fields of a form that choose a saga begin so.
PICK: Final = "pick-"
#: Each button of the bar, and whether it is marked as dangerous.
VERBS: Final = (("resolve", ""), ("resume", ""), ("cancel", "danger"))
_FORM: Final = "batch"
_MOST: Final = 200


def pick_box(frame: Frame, saga_id: str) -> Html | None:
    """The box that chooses a saga of the list."""
    if "resolve" not in frame.may:
        return None
    label = frame.words("batch.pick", saga=saga_id)
    about = {"type": "checkbox", "name": f"{PICK}{saga_id}", "value": "1", "form": _FORM, "aria-label": label}
    return tag("input", about | {"data-pick": True})


def pick_all(frame: Frame) -> Html | None:
    """The box that chooses all sagas of the page; it works by the script alone, which shows it."""
    if "resolve" not in frame.may:
        return None
    label = frame.words("batch.pick-all")
    return tag("input", {"type": "checkbox", "data-pick-all": True, "hidden": True, "aria-label": label})


def bar(frame: Frame) -> Html | None:
    """The buttons that act on the chosen sagas."""
    if "resolve" not in frame.may:
        return None
    words = frame.words
    buttons = [
        tag("button", {"name": "verb", "value": verb, "class": f"button small {css}".strip()}, words(f"batch.{verb}"))
        for verb, css in VERBS
    ]
    chosen = tag("span", {"class": "quiet", "data-chosen": True}, words("batch.chosen"))
    made = form(frame, "/ui/batch", chosen, buttons, css="inline", name=_FORM)
    # (On a phone the head of the list is not shown, and its box for all neither.)
    return tag("div", {"class": "chosen", "id": "chosen"}, tag("span", {"class": "narrow-only"}, pick_all(frame)), made)


def batch_page(frame: Frame, batch: Batch, *, options: Sequence[tuple[str, int]] = ()) -> Html:
    """What an action would do to each chosen saga. ``options``: the answers to choose from, with their questions."""
    words, verb = frame.words, batch.verb
    asking = verb == "resolve" and not batch.decision
    listed = [_item(frame, batch, each) for each in batch.sagas[:_MOST]]
    more = tag("p", {"class": "quiet"}, words("more", n=len(batch.sagas) - _MOST)) if len(batch.sagas) > _MOST else None
    fields: list[Part] = [tag("input", {"type": "hidden", "name": "verb", "value": verb})]
    fields += [tag("input", {"type": "hidden", "name": f"{PICK}{each.saga_id}", "value": "1"}) for each in batch.taken]
    title = words(f"batch.title-{verb}", n=len(batch.taken))
    return page(
        frame,
        title,
        "sagas",
        tag("h1", None, title),
        _decisions(frame, fields, options) if asking else _confirm(frame, batch, fields),
        tag("ul", {"class": "plain-list card", "id": "batch-list"}, listed) if listed else empty(words, "batch.none"),
        more,
    )


def _item(frame: Frame, batch: Batch, each: Selected) -> Html:
    words = frame.words
    then: Part = None
    if each.refused is not None:
        then = tag(
            "span",
            {"class": "due"},
            words("batch.stays", why=words.refused(each.refused)[:200]),
        )
    elif batch.verb == "cancel":
        counts: Mapping[str, int] = {"undoes": each.undoes, "settles": each.settles, "remains": each.remains}
        said = [words(f"batch.{name}", n=count) for name, count in counts.items() if count]
        then = " · ".join(said) or words("batch.nothing-to-undo")
    elif batch.verb == "resolve" and batch.decision:
        then = [tag("div", None, str(one["step_id"]), ": ", _then(frame, one, batch.decision)) for one in each.answers]
    link = tag("a", {"href": saga_address(each.saga_id), "class": "id"}, each.saga_id)
    status = badge(words, each.status) if each.status else None
    return tag("li", {"data-row": each.saga_id, "class": "line"}, link, status, tag("span", {"class": "quiet"}, then))


def _then(frame: Frame, answer: Mapping[str, Any], decision: str) -> str:
    follows: Mapping[str, Any] = answer["follows"]
    return then_text(frame.words, follows) if follows else decision


def _decisions(frame: Frame, fields: Sequence[Part], options: Sequence[tuple[str, int]]) -> Html:
    words = frame.words
    if not options:
        return tag("div", {"class": "said warn"}, words("batch.no-question"))
    choices = [
        tag("option", {"value": option}, f"{words.known('answer', option)} ({words('batch.questions', n=count)})")
        for option, count in options
    ]
    return form(
        frame,
        "/ui/batch",
        fields,
        tag(
            "div",
            {"class": "note"},
            tag("label", {"for": "decision"}, words("batch.decision")),
            tag("select", {"name": "decision", "id": "decision"}, choices),
        ),
        tag("div", {"class": "buttons"}, tag("button", {"class": "button main"}, words("batch.look")), _leave(frame)),
        css="card answers",
    )


def _confirm(frame: Frame, batch: Batch, fields: Sequence[Part]) -> Html:
    words, taken = frame.words, len(batch.taken)
    if not taken:
        return tag("div", {"class": "said warn"}, words("batch.nothing"), " ", _leave(frame))
    css = "button main danger" if batch.verb == "cancel" else "button main"
    about: Attributes = {"type": "text", "name": "note", "id": "note", "maxlength": 500, "autocomplete": "off"}
    hidden: list[Part] = [
        tag("input", {"type": "hidden", "name": "confirmed", "value": "1"}),
        tag("input", {"type": "hidden", "name": "decision", "value": batch.decision}) if batch.decision else None,
    ]
    return form(
        frame,
        "/ui/batch",
        fields,
        hidden,
        tag("p", {"class": "quiet"}, words(f"batch.explained-{batch.verb}")),
        tag("div", {"class": "note"}, tag("label", {"for": "note"}, words("question.note")), tag("input", about))
        if batch.verb != "resume"
        else None,
        tag(
            "div",
            {"class": "buttons"},
            tag("button", {"class": css}, words(f"batch.do-{batch.verb}", n=taken)),
            _leave(frame),
        ),
        css="card answers",
    )


def _leave(frame: Frame) -> Html:
    return tag("a", {"href": "/ui/sagas", "class": "button"}, frame.words("batch.leave"))
