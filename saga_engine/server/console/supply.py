"""Pages about what sagas need: workers and tools, templates and schedules."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote

from saga_engine.execution.owner import words_of
from saga_engine.guards.stats import COUNTERS
from saga_engine.server.console.frame import Frame, empty, facts, form, json_block, moment, page, saga_address
from saga_engine.server.console.html import Html, Part, tag
from saga_engine.server.console.words import Words

_MOST: Final = 500
#: A tick that is due for so long has no worker that fires it.
_OVERDUE_MS: Final = 60_000


def workers_page(
    frame: Frame,
    overview: Mapping[str, Any],
    tools: Sequence[Mapping[str, Any]],
    holds: Sequence[Mapping[str, Any]] = (),
) -> Html:
    """The queue, the workers, what sagas hold, and the tools with their breakers."""
    words, queue = frame.words, overview["queue"]
    oldest = queue["oldest_wait_ms"]
    numbers: list[tuple[str, Part]] = [
        ("workers.queued", queue["queued"]),
        ("workers.oldest", words.duration(oldest) if oldest is not None else "–"),
        ("workers.timed", queue["timed"]),
        ("workers.alive", overview["owners"]["alive"]),
        ("workers.running", sum(each["driving"] for each in overview["workers"])),
        ("workers.flight", sum(each["under_way"] for each in overview["workers"])),
    ]
    tiles = [
        tag("div", {"class": "tile"}, tag("dt", None, words(key)), tag("dd", {"class": "number"}, value))
        for key, value in numbers
    ]
    return page(
        frame,
        words("nav.workers"),
        "workers",
        tag("h1", None, words("nav.workers")),
        tag("dl", {"class": "tiles", "id": "load"}, tiles),
        _differing(frame, overview["differing"]),
        _workers(frame, overview["workers"], waiting=queue["queued"]),
        _holds(frame, holds),
        _tools(frame, tools),
        live="/v1/stream",
    )


def _holds(frame: Frame, holds: Sequence[Mapping[str, Any]]) -> Html | None:
    """What sagas hold, and who waits for it; nothing if none does."""
    if not holds:
        return None
    words = frame.words
    names = ("resource", "saga", "since", "waiting")
    heads = [tag("th", {"scope": "col"}, words(f"holds.{name}")) for name in names]
    rows = []
    for each in holds[:_MOST]:
        overdue = tag("span", {"class": "chip"}, words("holds.overdue")) if each["overdue"] else None
        waiting = [(_saga_link(one["saga_id"]), " ") for one in each["waiting"]]
        cells: list[Part] = [_saga_link(each["saga_id"]), moment(each["since_ms"]), waiting or "–"]
        key = tag("code", {"title": str(each["resource"])[:200]}, str(each["resource"])[:80])
        rows.append(
            tag(
                "tr",
                {"data-row": f"{each['resource']} {each['saga_id']}"[:400]},
                tag("td", None, key, " ", overdue),
                [tag("td", _named(words(f"holds.{name}")), cell) for name, cell in zip(names[1:], cells, strict=True)],
            )
        )
    table = tag(
        "table",
        {"class": "rows"},
        tag("caption", {"class": "hidden"}, words("holds.title")),
        tag("thead", None, tag("tr", None, heads)),
        tag("tbody", None, rows),
    )
    return tag(
        "section",
        {"class": "card", "id": "holds"},
        tag("h2", None, words("holds.title")),
        tag("p", {"class": "why"}, words("holds.why")),
        table,
    )


def _saga_link(saga_id: Any) -> Html:
    return tag("a", {"href": saga_address(str(saga_id))}, str(saga_id)[:128])


def _named(head: str) -> dict[str, str]:
    """The attribute of a cell that says its head on a phone, where heads are not shown."""
    return {"data-label": head}


def _differing(frame: Frame, differing: Sequence[Mapping[str, Any]]) -> Html | None:
    """Which processes hold sagas to other rules than the rest; nothing if none does."""
    if not differing:
        return None
    words = frame.words
    items = []
    for each in differing:
        groups = [
            tag(
                "li",
                {"data-row": group["digest"]},
                tag("code", None, str(group["digest"])),
                " ",
                [
                    tag("span", {"class": "chip", "title": str(one["owner"])[:200]}, words_of(str(one["owner"]))[:80])
                    for one in group["processes"][:_MOST]
                ],
            )
            for group in each["groups"][:_MOST]
        ]
        items.append([tag("h3", None, words(f"differing.{each['part']}")), tag("ul", None, groups)])
    return tag(
        "section",
        {"class": "card", "id": "differing"},
        tag("h2", None, words("differing.title")),
        tag("p", {"class": "why"}, words("differing.why")),
        items,
    )


def _workers(frame: Frame, workers: Sequence[Mapping[str, Any]], *, waiting: int) -> Html:
    words = frame.words
    names = ("owner", "driving", "under_way", "begun", "taken", "returned", "refused")
    heads = [
        tag("th", {"scope": "col", "class": None if name == "owner" else "number"}, words(f"worker.{name}"))
        for name in names
    ]
    rows = []
    for each in workers[:_MOST]:
        cells = [
            tag(
                "td",
                {"class": "number"} | _named(words(f"worker.{name}")),
                f"{each['driving']}/{each['concurrency']}" if name == "driving" else each[name],
            )
            for name in names[1:]
        ]
        rows.append(
            tag(
                "tr",
                {"data-row": each["owner"]},
                tag("td", None, tag("code", {"title": each["owner"][:200]}, words_of(each["owner"])[:80])),
                cells,
            )
        )
    table = tag(
        "table",
        {"class": "rows"},
        tag("caption", {"class": "hidden"}, words("workers.list")),
        tag("thead", None, tag("tr", None, heads)),
        tag("tbody", None, rows),
    )
    none = "workers.none-waiting" if waiting else "workers.none"
    return tag(
        "section",
        {"class": "card", "id": "workers"},
        tag("h2", None, words("workers.list")),
        table if rows else empty(words, none),
    )


def _tools(frame: Frame, tools: Sequence[Mapping[str, Any]]) -> Html:
    words = frame.words
    names = ("name", "effect", "undo", "breaker", "calls")
    heads = [
        tag("th", {"scope": "col", "class": "number" if name == "calls" else None}, words(f"tool.{name}"))
        for name in names
    ]
    heads.append(tag("th", {"scope": "col"}, tag("span", {"class": "hidden"}, words("schedule.do"))))
    rows = [_tool(frame, each) for each in tools[:_MOST]]
    table = tag(
        "table",
        {"class": "rows"},
        tag("caption", {"class": "hidden"}, words("tools.list")),
        tag("thead", None, tag("tr", None, heads)),
        tag("tbody", None, rows),
    )
    return tag(
        "section",
        {"class": "card", "id": "tools"},
        tag("h2", None, words("tools.list")),
        table if rows else empty(words, "tools.none"),
    )


def _tool(frame: Frame, tool: Mapping[str, Any]) -> Html:
    words, breaker = frame.words, tool["breaker"]
    state = str(breaker["state"])
    when = [" ", words("breaker.opens", s=words.duration(breaker["opens_ms"]))] if breaker["opens_ms"] else None
    failures = (
        [" ", tag("span", {"class": "quiet"}, words("breaker.failures", n=breaker["failures"]))]
        if breaker["failures"]
        else None
    )
    css = {"open": "failed", "half-open": "in_doubt"}.get(state, "pending")
    badge = tag("span", {"class": f"badge {css}"}, words.known("breaker", state))
    counters = tool.get("counters") or {}
    counted = [
        tag("span", {"class": "told"}, words.known("counter", key), " ", _count(words, key, counters[key]))
        for key in COUNTERS
        if counters.get(key)
    ]
    stop = (
        tag(
            "a",
            {"href": f"/ui/stop?tool={quote(str(tool['name']), safe='')}", "class": "button small"},
            words("tool.stop"),
        )
        if "admin" in frame.may
        else None
    )
    description = tag("span", {"class": "goal"}, str(tool.get("description") or "")[:160])
    undo = tag("code", None, str(tool["undo"])) if tool.get("undo") else tag("span", {"class": "quiet"}, "–")
    return tag(
        "tr",
        {"data-row": tool["name"]},
        tag("td", {"class": "wide"}, tag("code", None, str(tool["name"])), description),
        tag("td", _named(words("tool.effect")), words.known("effect", str(tool["effect"]))),
        tag("td", _named(words("tool.undo")), undo),
        tag("td", _named(words("tool.breaker")), tag("span", None, badge, when, failures)),
        tag("td", {"class": "number"} | (_named(words("tool.calls")) if counted else {}), tag("span", None, counted)),
        tag("td", {"class": "act"}, stop),
    )


def _count(words: Words, counter: str, count: int) -> str:
    return words.duration(count / 1000) if counter.endswith("_us") else f"{count:,}"


# --- templates and schedules ---------------------------------------------------------------------------------------


def templates_page(
    frame: Frame,
    templates: Sequence[tuple[str, Sequence[int]]],
    schedules: Sequence[Mapping[str, Any]],
    *,
    now_ms: int,
) -> Html:
    """The templates and what starts them by itself."""
    words = frame.words
    rows = []
    for name, versions in templates[:_MOST]:
        link = tag("a", {"href": f"/ui/templates/{quote(name, safe='')}", "class": "id"}, name)
        version = words("template.version", n=max(versions))
        rows.append(
            tag(
                "tr",
                {"data-row": name},
                tag("td", {"class": "wide"}, link),
                tag("td", {"class": "number"} | _named(words("template.latest")), version),
            )
        )
    heads = [
        tag("th", {"scope": "col"}, words("template.name")),
        tag("th", {"scope": "col", "class": "number"}, words("template.latest")),
    ]
    table = tag(
        "table",
        {"class": "rows"},
        tag("caption", {"class": "hidden"}, words("templates.list")),
        tag("thead", None, tag("tr", None, heads)),
        tag("tbody", None, rows),
    )
    return page(
        frame,
        words("nav.templates"),
        "templates",
        tag("h1", None, words("nav.templates")),
        tag(
            "section",
            {"class": "card", "id": "templates"},
            tag("h2", None, words("templates.list")),
            table if rows else empty(words, "templates.none"),
        ),
        _schedules(frame, schedules, now_ms),
        live="/v1/stream",
    )


def _schedules(frame: Frame, schedules: Sequence[Mapping[str, Any]], now_ms: int) -> Html:
    words = frame.words
    heads = [
        tag("th", {"scope": "col"}, words(f"schedule.{name}")) for name in ("name", "when", "next", "recent", "do")
    ]
    rows = [_schedule(frame, each, now_ms) for each in schedules[:_MOST]]
    table = tag(
        "table",
        {"class": "rows"},
        tag("caption", {"class": "hidden"}, words("schedules.list")),
        tag("thead", None, tag("tr", None, heads)),
        tag("tbody", None, rows),
    )
    return tag(
        "section",
        {"class": "card", "id": "schedules"},
        tag("h2", None, words("schedules.list")),
        table if rows else empty(words, "schedules.none"),
    )


def _schedule(frame: Frame, each: Mapping[str, Any], now_ms: int) -> Html:
    words, name = frame.words, str(each["name"])
    every = (
        words("schedule.every", s=words.duration(each["every_s"] * 1000))
        if each["every_s"]
        else f"{each['cron']} {each['time_zone']}"
    )
    state: Part = (
        tag("span", {"class": "badge escalated" if each["why"] else "badge pending"}, words("schedule.paused"))
        if each["paused"]
        else moment(each["next_ms"])
    )
    why = tag("span", {"class": "why"}, str(each["why"])[:200]) if each["why"] else None
    late_ms = now_ms - int(each["next_ms"] or now_ms)
    if not each["paused"] and late_ms > _OVERDUE_MS:
        state = [tag("span", {"class": "badge failed"}, words("schedule.overdue")), " ", state]
        why = tag("span", {"class": "why"}, words("schedule.overdue-why", ago=words.duration(late_ms)))
    recent = [tag("a", {"href": saga_address(saga), "class": "chip"}, saga[-24:]) for saga in list(each["recent"])[-3:]]
    buttons = None
    if "admin" in frame.may:
        verb = "resume" if each["paused"] else "pause"
        choices = [tag("button", {"name": "do", "value": verb, "class": "button small"}, words(f"schedule.{verb}"))]
        choices.append(
            tag("button", {"name": "do", "value": "trigger", "class": "button small"}, words("schedule.trigger"))
        )
        buttons = form(frame, f"/ui/schedules/{quote(name, safe='')}", choices, css="inline", label=name)
    template = tag("span", {"class": "goal"}, tag("code", None, str(each["template"])))
    cells = [
        tag("td", {"class": "wide"}, tag("b", None, name), template),
        tag("td", _named(words("schedule.when")), every),
        tag("td", _named(words("schedule.next")), tag("span", None, state, why)),
        tag("td", _named(words("schedule.recent")), tag("span", None, recent or "–")),
        tag("td", None, buttons),
    ]
    return tag("tr", {"data-row": name}, cells)


def template_page(
    frame: Frame, *, name: str, version: int, plan: Any, schema: Any, versions: Sequence[int], given: str = ""
) -> Html:
    """One template: its plan, its input, and a form that starts it."""
    words = frame.words
    start = None
    if "submit" in frame.may:
        start = form(
            frame,
            f"/ui/templates/{quote(name, safe='')}",
            tag("input", {"type": "hidden", "name": "template", "value": f"{name}@{version}"}),
            tag("label", {"for": "input"}, words("plan.input")),
            tag(
                "textarea",
                {"name": "input", "id": "input", "rows": 4, "spellcheck": "false"},
                given or _example(schema),
            ),
            tag("div", {"class": "buttons"}, tag("button", {"class": "button main"}, words("template.start"))),
            css="card answers",
        )
    others = [
        tag(
            "a",
            {
                "href": f"/ui/templates/{quote(name, safe='')}?version={each}",
                "class": "chip",
                "aria-current": "true" if each == version else None,
            },
            words("template.version", n=each),
        )
        for each in list(versions)[-20:]
    ]
    return page(
        frame,
        f"{name}@{version}",
        "templates",
        tag("h1", None, f"{name}@{version}"),
        tag("p", None, others),
        start,
        tag(
            "section",
            {"class": "card"},
            tag("h2", None, words("template.schema")),
            json_block(schema, words("template.schema")),
        )
        if schema
        else None,
        tag("section", {"class": "card"}, tag("h2", None, words("tab.plan")), json_block(plan, words("tab.plan"))),
    )


def _example(schema: Any) -> str:
    """An input with the names that the schema requires."""
    if not isinstance(schema, Mapping):
        return "{}"
    properties = schema.get("properties")
    names = schema.get("required") or (list(properties) if isinstance(properties, Mapping) else [])
    return json.dumps({str(name): None for name in names[:50]}, ensure_ascii=False, indent=2)


__all__ = ["facts", "template_page", "templates_page", "workers_page"]
