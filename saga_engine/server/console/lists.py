"""The list of sagas, with its search."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final
from urllib.parse import urlencode

from saga_engine.core.states import SAGA_STATES
from saga_engine.server.console.batches import bar, pick_all, pick_box
from saga_engine.server.console.frame import Frame, badge, empty, moment, page, saga_address
from saga_engine.server.console.html import Html, Part, tag

if TYPE_CHECKING:
    from saga_engine.ports import Head

#: The fields of the search, as the address has them.
FIELDS: Final = ("status", "name", "tag", "tool", "since", "asks")
#: The spans of time that the search offers, in hours.
SINCE: Final = {"1h": 1, "24h": 24, "7d": 168, "30d": 720}


def sagas_page(
    frame: Frame,
    heads: Sequence[Head],
    *,
    asked: Mapping[str, str],
    counts: Mapping[str, int],
    following: str | None,
    now_ms: int,
) -> Html:
    """The list. ``asked``: the fields of the search; ``counts``: sagas by status; ``following``: the next cursor."""
    words = frame.words
    rows = [_row(frame, head, now_ms) for head in heads]
    boxes = "resolve" in frame.may
    heads_of = ("list.saga", "list.status", "list.progress", "list.changed", "list.took")
    titles = [
        tag("th", {"scope": "col", "class": "number" if key == "list.took" else None}, words(key)) for key in heads_of
    ]
    if boxes:
        titles.insert(0, tag("th", {"scope": "col", "class": "pick"}, pick_all(frame)))
    table = tag(
        "table",
        {"class": "rows dense", "id": "sagas"},
        tag("caption", {"class": "hidden"}, words("nav.sagas")),
        tag("thead", None, tag("tr", None, titles)),
        tag("tbody", None, rows),
    )
    searched = any(asked.get(name) for name in FIELDS)
    return page(
        frame,
        words("nav.sagas"),
        "sagas",
        tag("h1", {"class": "hidden"}, words("nav.sagas")),
        _statuses(frame, asked, counts),
        _search(frame, asked),
        table if rows else empty(words, "list.none-found" if searched else "list.none"),
        bar(frame) if rows else None,
        _next(frame, asked, following),
        live="/v1/stream" if not asked.get("cursor") else "",
    )


def _statuses(frame: Frame, asked: Mapping[str, str], counts: Mapping[str, int]) -> Html:
    words, kept = frame.words, {name: asked[name] for name in FIELDS if asked.get(name) and name != "status"}
    tabs = [("", words("list.all"), sum(counts.values()))]
    tabs += [(status, words.known("status", status), counts.get(status, 0)) for status in SAGA_STATES]
    links = []
    for status, name, count in tabs:
        address = "/ui/sagas?" + urlencode(kept | ({"status": status} if status else {}))
        here = "true" if asked.get("status", "") == status else None
        css = f"tab {status.lower()}" + ("" if count else " none")
        number = tag("span", {"class": "number"}, count)
        links.append(tag("a", {"href": address, "class": css, "aria-current": here}, name, " ", number))
    return tag("nav", {"class": "tabs", "aria-label": words("list.statuses")}, links)


def _search(frame: Frame, asked: Mapping[str, str]) -> Html:
    words = frame.words
    fields: list[Part] = [
        tag("input", {"type": "hidden", "name": "status", "value": asked["status"]}) if asked.get("status") else None
    ]
    for name in ("name", "tag", "tool"):
        label = words(f"list.by-{name}")
        value = asked.get(name) or None
        given = {"type": "search", "name": name, "value": value, "placeholder": label, "aria-label": label}
        fields.append(tag("input", given | {"data-search": name == "name", "autocomplete": "off"}))
    options = [tag("option", {"value": ""}, words("list.any-time"))]
    options += [
        tag("option", {"value": span, "selected": asked.get("since") == span}, words(f"list.since-{span}"))
        for span in SINCE
    ]
    fields.append(tag("select", {"name": "since", "aria-label": words("list.by-time")}, options))
    box = tag("input", {"type": "checkbox", "name": "asks", "value": "1", "checked": bool(asked.get("asks"))})
    fields.append(tag("label", {"class": "check"}, box, " ", words("list.asks")))
    fields.append(tag("button", {"class": "button"}, words("list.search")))
    if any(asked.get(name) for name in FIELDS):
        fields.append(tag("a", {"href": "/ui/sagas", "class": "button"}, words("list.clear")))
    return tag("form", {"class": "search", "role": "search", "action": "/ui/sagas", "method": "get"}, fields)


def _row(frame: Frame, head: Head, now_ms: int) -> Html:
    words, body = frame.words, head.told()
    error = body.get("error") if isinstance(body.get("error"), dict) else None
    tags = [
        tag("span", {"class": "chip"}, str(each))
        for each in list(body.get("tags") or [])[:6]
        if each != body.get("name")
    ]
    goal, name = str(body.get("goal") or ""), str(body.get("name") or "")
    if name:
        tags.insert(0, tag("span", {"class": "chip name"}, name[:64]))
    link = tag("a", {"href": saga_address(head.saga_id), "class": "id"}, head.saga_id)
    under = [tag("span", {"class": "goal", "title": goal[:500]}, goal[:160])] if goal else []
    ended = head.status in ("COMPLETED", "COMPENSATED", "WAIVED")
    took = (head.changed_ms if ended else now_ms) - head.created_ms
    why: Part = None
    if questions := body.get("questions"):
        why = tag("span", {"class": "why asks"}, words("list.questions", n=len(questions)))
    elif error is not None:
        why = tag("span", {"class": "why"}, (words.error(error) or words.known("reason", str(error.get("code"))))[:140])
    elif body.get("waits"):
        why = tag("span", {"class": "why"}, words("list.waits"))
    steps, done = int(body.get("steps") or 0), int(body.get("done") or 0)
    return tag(
        "tr",
        {"data-row": head.saga_id, "id": f"saga-{head.saga_id}"},
        tag("td", {"class": "pick"}, pick_box(frame, head.saga_id)) if "resolve" in frame.may else None,
        tag("td", {"class": "wide"}, tag("div", {"class": "one"}, link, " ", tags, " ", under)),
        tag("td", {"class": "state"}, tag("div", {"class": "one"}, badge(words, head.status), " ", why)),
        tag("td", {"class": "progress"}, _progress(steps, done), f"{done}/{steps}"),
        tag("td", None, moment(head.changed_ms)),
        tag("td", {"class": "number"}, words.duration(max(took, 0))),
    )


def _progress(steps: int, done: int) -> Html:
    share = 0 if steps <= 0 else min(100 * done / steps, 100)
    bar = [tag("rect", {"width": "100%", "height": "4", "class": "rail", "rx": 2})]
    if share:
        bar.append(tag("rect", {"width": f"{share:.1f}%", "height": "4", "class": "done", "rx": 2}))
    return tag("svg", {"class": "bar", "width": "64", "height": "4", "aria-hidden": "true"}, bar)


def _next(frame: Frame, asked: Mapping[str, str], following: str | None) -> Html | None:
    kept = {name: asked[name] for name in FIELDS if asked.get(name)}
    links = []
    if asked.get("cursor"):
        links.append(tag("a", {"href": "/ui/sagas?" + urlencode(kept), "class": "button"}, frame.words("list.newest")))
    if following:
        address = "/ui/sagas?" + urlencode(kept | {"cursor": following})
        links.append(tag("a", {"href": address, "class": "button", "rel": "next"}, frame.words("list.older")))
    return tag("nav", {"class": "pager", "aria-label": frame.words("pager.label")}, links) if links else None
