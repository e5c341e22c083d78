"""What every page of the console has: its head, the navigation, the switches, and the small parts that pages share."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import quote, urlencode

from saga_engine.server.console.html import EMPTY, Html, Part, local_path, tag, text
from saga_engine.server.console.words import NAMES, TAGS, Words

#: The navigation: the page, its address, the key that follows ``g``.
PAGES: Final = (
    ("sagas", "/ui/sagas", "s"),
    ("questions", "/ui/questions", "q"),
    ("workers", "/ui/workers", "w"),
    ("templates", "/ui/templates", "t"),
    ("plan", "/ui/plan", "p"),
)
THEMES: Final = ("auto", "light", "dark")
#: The one script: a file of this server.
_SCRIPT: Final = Html('<script src="/assets/console.js" defer></script>')
#: The most characters of a JSON value on a page.
_JSON_CHARS: Final = 6000


@dataclass(frozen=True, slots=True)
class Frame:
    """Who looks, in which language and how; and what every page says.

    ``here``: the address of the page. ``may``: scopes. ``form_key`` goes with every form. ``asking``: how many sagas
    ask; ``stopped``: a stop holds everything. ``said``: what became of the last form, and how (``ok``, ``error``).
    """

    words: Words = field(default_factory=Words)
    theme: str = "auto"
    here: str = "/ui/sagas"
    who: str = ""
    may: frozenset[str] = frozenset({"read", "submit", "resolve", "admin"})
    form_key: str = ""
    asking: int = 0
    stopped: bool = False
    said: tuple[str, str] | None = None


def page(frame: Frame, title: str, current: str, *parts: Part, live: str = "", held: str | None = None) -> Html:
    """A whole page. ``live``: the stream of events that says when it is out of date; ``held``: the stops it shows."""
    words = frame.words
    main = tag(
        "main",
        {"id": "main", "tabindex": "-1", "data-live": live or None, "data-held": held},
        _said(frame),
        *parts,
    )
    return _document(
        frame,
        title,
        tag("a", {"class": "skip", "href": "#main"}, words("skip")),
        _header(frame, current),
        main,
        # (The script says which zone the times of the page have; without it they are in UTC.)
        tag("footer", {"class": "zone quiet", "id": "zone", "data-zone": words("zone")}, words("zone"), " UTC"),
        _shortcuts(frame),
        tag("div", {"id": "live-state", "role": "status", "class": "live", "data-lost": words("live.lost")}),
    )


def bare_page(frame: Frame, title: str, *parts: Part) -> Html:
    """A page for somebody who has not signed in: it leads to no other."""
    return _document(frame, title, tag("main", {"id": "main", "class": "bare"}, *parts))


def _document(frame: Frame, title: str, *parts: Part) -> Html:
    root = {"lang": TAGS[frame.words.language], "data-theme": None if frame.theme == "auto" else frame.theme}
    head = tag(
        "head",
        None,
        tag("meta", {"charset": "utf-8"}),
        tag("meta", {"name": "viewport", "content": "width=device-width, initial-scale=1"}),
        tag("meta", {"name": "color-scheme", "content": "light dark"}),
        tag("title", None, f"{title} · saga"),
        tag("link", {"rel": "icon", "href": "/assets/icon.svg", "type": "image/svg+xml"}),
        tag("link", {"rel": "stylesheet", "href": "/assets/console.css"}),
        _SCRIPT,
    )
    return Html("<!doctype html>" + tag("html", root, head, tag("body", None, *parts)))


def _header(frame: Frame, current: str) -> Html:
    words = frame.words
    links = []
    for name, address, key in PAGES:
        count = frame.asking if name == "questions" else 0
        more = tag("span", {"class": "count"}, tag("span", None, count)) if count else None
        here = "page" if name == current else None
        links.append(
            tag("a", {"href": address, "aria-current": here, "data-key": f"g {key}"}, words(f"nav.{name}"), more)
        )
    return tag(
        "header",
        {"class": "top", "id": "top"},
        tag("a", {"href": "/ui/sagas", "class": "brand"}, "saga"),
        tag("nav", {"aria-label": words("nav.label")}, *links),
        tag("div", {"class": "grow"}),
        _stop_button(frame),
        _preferences(frame),
    )


def _stop_button(frame: Frame) -> Html:
    words = frame.words
    css = "button small" + (" danger" if frame.stopped else "")
    return tag("a", {"href": "/ui/stop", "class": css}, words("stop.on" if frame.stopped else "nav.stop"))


def _preferences(frame: Frame) -> Html:
    words = frame.words
    other = "zh" if words.language == "en" else "en"
    following = THEMES[(THEMES.index(frame.theme) + 1) % len(THEMES)]
    switch = form(
        frame,
        "/ui/preferences",
        tag("input", {"type": "hidden", "name": "next", "value": frame.here}),
        tag("button", {"name": "language", "value": other, "class": "plain", "lang": TAGS[other]}, NAMES[other]),
        tag(
            "button",
            {"name": "theme", "value": following, "class": "plain", "title": words("theme.title")},
            f"◐ {words(f'theme.{frame.theme}')}",
        ),
        css="inline",
    )
    shortcuts = tag(
        "button",
        {"type": "button", "class": "plain keys-button", "data-opens": "keys", "aria-label": words("keys.title")},
        "?",
    )
    out = None
    if frame.who:
        out = form(
            frame,
            "/ui/sign-out",
            tag("button", {"class": "plain", "title": words("sign.out")}, frame.who[:40]),
            css="inline",
        )
    return tag("div", {"class": "switches"}, switch, shortcuts, out)


def _shortcuts(frame: Frame) -> Html:
    words = frame.words
    rows = [(f"g {key}", words(f"nav.{name}")) for name, _, key in PAGES]
    rows += [("/", words("keys.search")), ("j k", words("keys.rows")), ("Enter", words("keys.open"))]
    rows += [("?", words("keys.title")), ("Esc", words("keys.close"))]
    listed = [
        (tag("dt", None, [tag("kbd", None, part) for part in key.split()]), tag("dd", None, what)) for key, what in rows
    ]
    closing = tag("form", {"method": "dialog"}, tag("button", {"class": "button"}, words("keys.close")))
    title = tag("h2", {"id": "keys-title"}, words("keys.title"))
    return tag("dialog", {"id": "keys", "aria-labelledby": "keys-title"}, title, tag("dl", None, listed), closing)


def _said(frame: Frame) -> Html | None:
    if frame.said is None:
        return None
    kind, what = frame.said
    return tag("div", {"class": f"said {kind}", "role": "alert" if kind == "error" else "status", "id": "said"}, what)


# --- small parts ---------------------------------------------------------------------------------------------------


def form(frame: Frame, action: str, *parts: Part, css: str = "", label: str = "", name: str = "") -> Html:
    """A form that is sent by POST, with the key that only a page of this server knows.

    ``name``: its id, for fields that stand elsewhere on the page.
    """
    return tag(
        "form",
        {
            "method": "post",
            "action": action,
            "class": css or None,
            "aria-label": label or None,
            "id": name or None,
        },
        tag("input", {"type": "hidden", "name": "form_key", "value": frame.form_key}),
        *parts,
    )


def back(frame: Frame) -> Html:
    """The hidden field that says where a form leads after it was carried out."""
    return tag("input", {"type": "hidden", "name": "next", "value": local_path(frame.here, "/ui/sagas")})


def badge(words: Words, status: str) -> Html:
    """A status, in words and colour."""
    return tag("span", {"class": f"badge {_css(status)}"}, words.known("status", status))


def _css(name: str) -> str:
    return "".join(c if c.isascii() and c.isalnum() else "-" for c in name.lower())[:40]


def moment(ms: int | None) -> Html | None:
    """A time; the page's script shows it in the zone of the browser."""
    if not ms:
        return None
    try:
        at = datetime.fromtimestamp(ms / 1000, UTC)
    except (OverflowError, OSError, ValueError):
        return None
    whole = at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return tag("time", {"datetime": whole, "title": whole}, f"{at:%Y-%m-%d %H:%M:%S} UTC")


def json_text(value: Any, most: int = _JSON_CHARS) -> str:
    """A value as JSON in lines, cut where it is too long for a page."""
    shown = json.dumps(value, ensure_ascii=False, indent=2, default=str)
    return shown if len(shown) <= most else f"{shown[:most]}\n… ({len(shown):,} characters)"


def json_block(value: Any, label: str) -> Html:
    """A value as JSON in a block that keys can scroll."""
    return tag("pre", {"tabindex": "0", "role": "group", "aria-label": label}, json_text(value))


def facts(*rows: tuple[str, Part]) -> Html:
    """Names and values; those without a value are left out."""
    shown = [(tag("dt", None, name), tag("dd", None, value)) for name, value in rows if value not in (None, "", ())]
    return tag("dl", {"class": "facts"}, shown) if shown else EMPTY


def image(words: Words, name: str, value: Any) -> Html:
    """A value before or after a call, or as it was found."""
    label = words(f"step.{name}")
    if isinstance(value, dict) and value.get("absent") is True:
        shown = tag("p", {"class": "quiet"}, words("step.absent"))
    else:
        whole = value["value"] if isinstance(value, dict) and set(value) == {"value"} else value
        shown = json_block(whole, label)
    return tag("div", None, tag("h3", {"class": "minor"}, label), shown)


def saga_address(saga_id: str, *more: str, **query: str | int | None) -> str:
    """The address of a page of a saga."""
    path = "/".join(["/ui/sagas", quote(saga_id, safe=""), *more])
    asked = urlencode({key: value for key, value in query.items() if value not in (None, "")})
    return f"{path}?{asked}" if asked else path


def empty(words: Words, key: str) -> Html:
    """What stands where a list is empty; between backticks is a command."""
    parts = words(key).split("`")
    return tag("p", {"class": "empty"}, [tag("code", None, each) if at % 2 else each for at, each in enumerate(parts)])


def pager(words: Words, first: int, shown: int, total: int, address: Any) -> Html | None:
    """Links to other windows of a long list; ``address`` makes the address of the window that begins at a place."""
    if total <= shown and first == 0:
        return None
    size = max(shown, 1)
    last = max((total - 1) // size * size, 0)
    places = [
        ("pager.first", 0),
        ("pager.before", max(first - size, 0)),
        ("pager.after", first + size),
        ("pager.last", last),
    ]
    links: list[Html] = []
    for key, place in places:
        usable = 0 <= place < total and place != first
        links.append(
            tag("a", {"href": address(place), "class": "button small"}, words(key))
            if usable
            else tag("span", {"class": "button small off"}, words(key))
        )
    where = words("pager.where", first=first + 1, last=min(first + size, total), total=total)
    return tag("nav", {"class": "pager", "aria-label": words("pager.label")}, tag("span", None, where), *links)


def section(title: str, *parts: Part, css: str = "", name: str = "") -> Html:
    """A titled part of a page."""
    return tag("section", {"class": f"card {css}".strip(), "id": name or None}, tag("h2", None, title), *parts)


__all__ = [
    "Frame",
    "back",
    "badge",
    "empty",
    "facts",
    "form",
    "json_block",
    "json_text",
    "moment",
    "page",
    "pager",
    "saga_address",
    "section",
    "text",
]
