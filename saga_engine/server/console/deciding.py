"""Pages on which a person decides about what runs: previews of a cancel or an undo, and the stop. Also signing in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from saga_engine.server.console.frame import Frame, empty, form, moment, page, saga_address
from saga_engine.server.console.html import Html, Part, local_path, tag

_MOST: Final = 200
#: The lists of a preview, and whether what they name remains.
_CANCEL: Final = (("undoes", ""), ("settles", "unsure"), ("remains", "remains"), ("elsewhere", ""), ("never", "quiet"))
_UNDO: Final = (("undoes", ""), ("remains", "remains"), ("elsewhere", ""))


def cancel_page(frame: Frame, saga_id: str, preview: Mapping[str, Any]) -> Html:
    """What a cancel would undo now, and what would remain."""
    words = frame.words
    refused = preview["refused"]
    confirm = None
    if not refused:
        confirm = form(
            frame,
            saga_address(saga_id, "cancel"),
            _note(frame, "note"),
            tag(
                "div",
                {"class": "buttons"},
                tag("button", {"class": "button danger main"}, words("cancel.do")),
                _leave(frame, saga_id),
            ),
            css="card answers",
        )
    return page(
        frame,
        words("cancel.title", saga=saga_id),
        "sagas",
        tag("h1", None, words("cancel.title", saga=saga_id)),
        tag("div", {"class": "said error"}, words("cancel.refused", why=refused))
        if refused
        else tag("p", {"class": "quiet"}, words("cancel.explained")),
        _lists(frame, preview, _CANCEL, "cancel") if not refused else None,
        confirm or _leave(frame, saga_id),
        live=f"/v1/sagas/{saga_id}/stream" if not refused else "",
    )


def undo_page(frame: Frame, saga_id: str, preview: Mapping[str, Any] | None, refused: str = "") -> Html:
    """What the undo of a completed saga would undo, and what would remain."""
    words = frame.words
    shown: list[Part] = []
    if preview is not None:
        remains = bool(preview["remains"])
        accept = None
        if remains:
            box = tag("input", {"type": "checkbox", "name": "accept", "value": "1", "required": True})
            accept = tag("label", {"class": "check"}, box, " ", words("undo.accept"))
        shown = [
            _lists(frame, preview, _UNDO, "cancel"),
            form(
                frame,
                saga_address(saga_id, "undo"),
                accept,
                _note(frame, "note"),
                tag(
                    "div",
                    {"class": "buttons"},
                    tag("button", {"class": "button danger main"}, words("undo.do")),
                    _leave(frame, saga_id),
                ),
                css="card answers",
            ),
        ]
    return page(
        frame,
        words("undo.title", saga=saga_id),
        "sagas",
        tag("h1", None, words("undo.title", saga=saga_id)),
        tag("div", {"class": "said error"}, refused)
        if refused
        else tag("p", {"class": "quiet"}, words("undo.explained")),
        shown or _leave(frame, saga_id),
    )


def _lists(frame: Frame, preview: Mapping[str, Any], lists: Sequence[tuple[str, str]], prefix: str) -> Html:
    words = frame.words
    cards = []
    for name, css in lists:
        steps = preview.get(name) or []
        if not steps and name not in ("undoes", "remains"):
            continue
        rows = [_step(frame, step, name) for step in steps[:_MOST]]
        more = tag("p", {"class": "quiet"}, words("more", n=len(steps) - _MOST)) if len(steps) > _MOST else None
        listed = (
            tag("ol" if name == "undoes" else "ul", {"class": "plain-list"}, rows) if rows else empty(words, "nothing")
        )
        heading = tag("h2", None, words(f"{prefix}.{name}"), " ", tag("span", {"class": "number quiet"}, len(steps)))
        cards.append(
            tag(
                "section",
                {"class": f"card {css if steps else ''}".strip(), "id": f"list-{name}"},
                heading,
                listed,
                more,
            )
        )
    return tag("div", {"class": "columns", "id": "preview"}, cards)


def _step(frame: Frame, step: Mapping[str, Any], name: str) -> Html:
    words = frame.words
    parts: list[Part] = [
        tag("b", None, str(step["step_id"])),
        " ",
        str(step["name"])[:80] if str(step["name"]) != str(step["step_id"]) else "",
        " ",
    ]
    if name in ("undoes", "settles") and step.get("undo"):
        parts += [tag("span", {"class": "quiet"}, "↩ "), tag("code", None, str(step["undo"])[:80])]
    elif step.get("tool") and step["tool"] != step["name"]:
        parts.append(tag("code", None, str(step["tool"])[:80]))
    if step.get("asks"):
        parts.append(tag("span", {"class": "quiet"}, " ", words("cancel.asks")))
    if step.get("owner"):
        parts.append(tag("a", {"href": saga_address(str(step["owner"]))}, str(step["owner"])))
    return tag("li", None, parts)


def _note(frame: Frame, name: str) -> Html:
    return tag(
        "div",
        {"class": "note"},
        tag("label", {"for": name}, frame.words("question.note")),
        tag("input", {"type": "text", "name": name, "id": name, "maxlength": 500, "autocomplete": "off"}),
    )


def _leave(frame: Frame, saga_id: str) -> Html:
    return tag("a", {"href": saga_address(saga_id), "class": "button"}, frame.words("cancel.leave"))


# --- the stop ------------------------------------------------------------------------------------------------------


def stop_page(
    frame: Frame, stops: Sequence[Mapping[str, Any]], tools: Sequence[str], *, saga: str = "", tool: str = ""
) -> Html:
    """What is held, and the button that holds everything, a tool or a saga."""
    words = frame.words
    rows = [_stop(frame, each) for each in stops]
    may = "admin" in frame.may
    options = [tag("option", {"value": ""}, words("stop.all"))]
    options += [
        tag("option", {"value": f"tool:{name}", "selected": name == tool}, words("stop.tool", tool=name))
        for name in tools[:500]
    ]
    if saga:
        options.append(tag("option", {"value": f"saga:{saga}", "selected": True}, words("stop.saga", saga=saga)))
    asking = form(
        frame,
        "/ui/stop",
        tag(
            "div",
            {"class": "note"},
            tag("label", {"for": "scope"}, words("stop.what")),
            tag("select", {"name": "scope", "id": "scope"}, options),
        ),
        _note(frame, "note"),
        tag("div", {"class": "buttons"}, tag("button", {"class": "button danger main"}, words("stop.do"))),
        css="card answers",
    )
    return page(
        frame,
        words("stop.title"),
        "stop",
        tag("h1", None, words("stop.title")),
        tag("p", {"class": "quiet"}, words("stop.explained")),
        tag(
            "section",
            {"class": "card", "id": "stops"},
            tag("h2", None, words("stop.held")),
            tag("ul", {"class": "plain-list"}, rows) if rows else empty(words, "stop.none"),
        ),
        asking if may else tag("p", {"class": "quiet"}, words("stop.may-not")),
        live="/v1/stream",
    )


def _stop(frame: Frame, stop: Mapping[str, Any]) -> Html:
    words = frame.words
    scope = str(stop["scope"])
    kind, _, name = scope.partition(":")
    what = (
        words("stop.all")
        if scope == "all"
        else words(f"stop.{kind}", **{kind: name})
        if kind in ("tool", "saga")
        else scope
    )
    lift = None
    if "admin" in frame.may:
        lift = form(
            frame,
            "/ui/go",
            tag("input", {"type": "hidden", "name": "scope", "value": scope}),
            tag("button", {"class": "button small"}, words("stop.go")),
            css="inline",
        )
    said = [
        tag("span", {"class": "quiet"}, " ", str(stop["by"])[:80], " ", moment(stop["at_ms"])),
        tag("span", None, " ", str(stop["note"])[:300]),
    ]
    return tag("li", None, tag("b", None, what), said, " ", lift)


# --- signing in, and what goes wrong -------------------------------------------------------------------------------


def sign_in_page(frame: Frame, *, following: str, wrong: bool) -> Html:
    """The page that asks for a token."""
    words = frame.words
    return page(
        frame,
        words("sign.title"),
        "",
        tag(
            "form",
            {"method": "post", "action": "/ui/sign-in", "class": "card answers narrow"},
            tag("h1", None, words("sign.title")),
            tag("p", {"class": "quiet"}, words("sign.explained")),
            tag("div", {"class": "said error", "role": "alert"}, words("sign.wrong")) if wrong else None,
            tag("input", {"type": "hidden", "name": "next", "value": local_path(following, "/ui/sagas")}),
            tag("label", {"for": "token"}, words("sign.token")),
            tag(
                "input",
                {
                    "type": "password",
                    "name": "token",
                    "id": "token",
                    "autocomplete": "current-password",
                    "required": True,
                    "autofocus": True,
                },
            ),
            tag("div", {"class": "buttons"}, tag("button", {"class": "button main"}, words("sign.in"))),
        ),
    )


def error_page(frame: Frame, *, code: str, what: str, hint: str) -> Html:
    """What went wrong, in the engine's words."""
    words = frame.words
    return page(
        frame,
        words("error.title"),
        "",
        tag("h1", None, words("error.title")),
        tag("div", {"class": "said error", "role": "alert"}, tag("code", None, code), " ", what[:2000]),
        tag("p", {"class": "quiet"}, hint[:1000]) if hint else None,
        tag("a", {"href": "/ui/sagas", "class": "button"}, words("error.back")),
    )
