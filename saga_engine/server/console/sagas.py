"""The page of one saga: its timeline, its graph, its records and its plan, and the step that was chosen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from saga_engine.core.states import SAGA_FINAL
from saga_engine.execution.owner import words_of
from saga_engine.language import capital
from saga_engine.plan.values import cut
from saga_engine.server.console.drawing import Node, axis_svg, graph_svg, row_svg
from saga_engine.server.console.frame import (
    Frame,
    badge,
    facts,
    image,
    json_block,
    moment,
    page,
    pager,
    saga_address,
    section,
)
from saga_engine.server.console.html import Html, Part, tag
from saga_engine.server.console.questions import question_card
from saga_engine.server.console.records import records_part
from saga_engine.server.console.timeline import Row, Timeline, axis_of
from saga_engine.server.console.words import Words

VIEWS: Final = ("timeline", "graph", "records", "plan")
#: The most steps of a window: they bound the page, whatever the saga's length.
WINDOW: Final = 60
GRAPH_WINDOW: Final = 120
#: The lists of the report, in the order in which an operator needs them.
_REPORT: Final = ("failed", "unresolved", "left_in_place", "semantic", "compensated", "skipped", "continued")
#: How many calls of one undo the inspector shows, those around the present one.
_UNDO_CALLS: Final = 30
_PARAMS_CHARS: Final = 200
_REMAINS: Final = frozenset({"failed", "unresolved", "left_in_place", "semantic"})
#: So many answers are shown, the latest.
_ANSWERS: Final = 50


@dataclass(frozen=True, slots=True)
class Saga:
    """What the page shows. ``body``: the saga as ``show`` has it; ``records``: the window of its history.

    ``length``: how many records there are; ``graph``: the steps with their dependencies.
    """

    body: Mapping[str, Any]
    lanes: Timeline
    records: Sequence[Mapping[str, Any]]
    length: int
    graph: Sequence[Node] = ()
    plan: Any = None
    tags: Sequence[str] = ()
    owner: str = ""
    unread: int = 0
    held: Sequence[str] = ()
    holds: Sequence[Mapping[str, Any]] = ()
    scopes: Sequence[str] = ()
    questions: Sequence[Mapping[str, Any]] = field(default=())


def saga_page(frame: Frame, saga: Saga, *, view: str, step: str, first: int, at: int, now_ms: int) -> Html:
    """The page. ``first``: where the window of steps begins; ``at``: where that of records begins."""
    words, body = frame.words, saga.body
    saga_id = str(body["saga_id"])
    ended = body["status"] in SAGA_FINAL
    shown: Part
    if view == "graph":
        shown = _graph(frame, saga, step, first)
    elif view == "records":
        shown = records_part(words, saga_id, saga.records, at, saga.length)
    elif view == "plan":
        shown = tag("section", {"class": "card"}, json_block(saga.plan, words("tab.plan")))
    else:
        shown = _timeline(frame, saga, step, first, now_ms)
    chosen = next((each for each in body["steps"] if str(each["step_id"]) == step), None) if step else None
    asked = [question_card(frame, question, saga_id=saga_id) for question in saga.questions]
    inspector = None if chosen is None else _inspector(frame, saga_id, chosen, view, first)
    return page(
        frame,
        saga_id,
        "sagas",
        _head(frame, saga, now_ms),
        _notices(frame, saga),
        tag("div", {"class": "questions", "id": "questions"}, asked) if asked else None,
        _report(frame, body),
        _answered(frame, body),
        _tabs(frame, saga, view, step),
        tag("div", {"class": "split" if inspector else "whole", "id": "view"}, shown, inspector),
        live="" if ended else f"/v1/sagas/{saga_id}/stream?after={saga.length - 1}&stops=true",
        held=" ".join(saga.scopes),
    )


def _head(frame: Frame, saga: Saga, now_ms: int) -> Html:
    words, body = frame.words, saga.body
    saga_id = str(body["saga_id"])
    ended = body["status"] in SAGA_FINAL
    long = (body["ended_ms"] or now_ms) - body["started_ms"]
    links: list[Part] = []
    if not ended and "admin" in frame.may:
        links.append(_hold(frame, saga_id, held=bool(saga.held)))
    if not ended and "resolve" in frame.may:
        links.append(
            tag("a", {"href": saga_address(saga_id, "cancel"), "class": "button danger"}, words("saga.cancel"))
        )
    if body["status"] == "COMPLETED" and "resolve" in frame.may and not body.get("undone_by"):
        links.append(tag("a", {"href": saga_address(saga_id, "undo"), "class": "button danger"}, words("saga.undo")))
    other = None
    for key in ("undo_of", "undone_by"):
        if body.get(key):
            other = tag(
                "span", None, words(f"saga.{key}"), " ", tag("a", {"href": saga_address(str(body[key]))}, body[key])
            )
    lines: list[Part] = [
        tag("span", None, words("saga.started"), " ", moment(body["started_ms"])),
        tag("span", {"class": "number"}, words.duration(max(long, 0))),
        tag("span", None, words("standing", n=body["counts"]["in_effect"], of=body["counts"]["steps"])),
        tag("span", None, words("saga.records", n=saga.length)),
        tag(
            "span",
            None,
            words("saga.owner"),
            " ",
            tag("code", {"title": saga.owner[:200]}, words_of(saga.owner)[:80]),
        )
        if saga.owner
        else None,
        tag("span", None, words("saga.session")) if body.get("session") else None,
        other,
        [tag("span", {"class": "chip"}, each) for each in saga.tags[:20]],
    ]
    goal = tag("p", {"class": "goal"}, str(body["goal"])[:2000]) if body["goal"] else None
    return tag(
        "div",
        {"class": "head", "id": "head"},
        tag(
            "div",
            {"class": "line"},
            tag("h1", None, saga_id),
            badge(words, body["status"]),
            tag("div", {"class": "grow"}),
            tag("div", {"class": "buttons"}, links) if links else None,
        ),
        goal,
        tag("div", {"class": "meta"}, lines),
    )


def _hold(frame: Frame, saga_id: str, *, held: bool) -> Html:
    """The way to stop the saga's forward calls, or to the stops that hold them."""
    words = frame.words
    address = "/ui/stop" if held else f"/ui/stop?saga={saga_id}"
    return tag("a", {"href": address, "class": "button"}, words("stop.on" if held else "saga.hold"))


def _held(words: Words, hold: Mapping[str, Any], saga_id: str) -> list[Part]:
    """A resource that the saga holds, or waits for."""
    since = next((each["since_ms"] for each in hold["waiting"] if each["saga_id"] == saga_id), None)
    said = "saga.holds" if since is None else "saga.waits-for"
    shown = words(said, resource=str(hold["resource"])[:200], saga=hold["saga_id"], n=len(hold["waiting"]))
    overdue = tag("span", {"class": "chip"}, words("holds.overdue")) if hold["overdue"] else None
    return [shown, " ", moment(hold["since_ms"] if since is None else since), " ", overdue]


def _notices(frame: Frame, saga: Saga) -> list[Html]:
    words, body = frame.words, saga.body
    found = []
    error = body.get("error")
    if error:
        what = words.known("reason", str(error["code"]))
        step = words("saga.at-step", step=error["step_id"]) if "step_id" in error else ""
        parts: list[Part] = [tag("strong", None, what), " ", step]
        if error.get("message"):
            parts += [" ", tag("code", None, str(error.get("error_code", ""))), " ", words.error(error)[:1000]]
        if error.get("suggestion"):
            parts.append(tag("p", None, words("saga.suggestion", text=words.hint(error)[:500])))
        found.append(tag("div", {"class": "said error", "id": "why"}, parts))
    if saga.held and body["status"] not in SAGA_FINAL:
        found.append(tag("div", {"class": "said warn", "id": "held"}, words("saga.held", by=", ".join(saga.held))))
    if saga.holds:
        lines = [tag("li", None, _held(words, each, str(body["saga_id"]))) for each in saga.holds[:20]]
        found.append(tag("div", {"class": "said", "id": "holds"}, tag("ul", {"class": "plain-list"}, lines)))
    if saga.unread:
        found.append(tag("div", {"class": "said", "id": "unread"}, words("saga.unread", n=saga.unread)))
    return found


def _report(frame: Frame, body: Mapping[str, Any]) -> Html | None:
    words, report = frame.words, body["report"]
    names = {str(step["step_id"]): str(step["name"]) for step in body["steps"]}
    rows = []
    for name in _REPORT:
        listed = report.get(name) or []
        if not listed:
            continue
        steps = [
            tag(
                "a",
                {"href": saga_address(str(body["saga_id"]), step=str(each)), "class": "chip"},
                _named(str(each), names),
            )
            for each in listed[:30]
        ]
        more = words("more", n=len(listed) - 30) if len(listed) > 30 else None
        css = "remains" if name in _REMAINS else ""
        rows.append((tag("dt", {"class": css}, capital(words(f"report.{name}"))), tag("dd", None, steps, more)))
    dropped = (report.get("dropped") or [])[:10]
    rows += [
        (tag("dt", None, words("report.dropped")), tag("dd", None, f"{each['step_id']}: {each['reason']}"[:500]))
        for each in dropped
    ]
    if not rows and body["status"] not in ("COMPENSATED", "WAIVED"):
        return None
    clean = (
        tag(
            "span",
            {"class": f"badge {'completed' if report['clean'] else 'escalated'}"},
            words("report.clean" if report["clean"] else "report.not-clean"),
        )
        if body["status"] in ("COMPENSATED", "WAIVED", "ESCALATED")
        else None
    )
    return tag(
        "section",
        {"class": "card report", "id": "report"},
        tag("h2", None, words("report.title"), " ", clean, _verified(frame, report)),
        tag("dl", {"class": "facts"}, rows) if rows else tag("p", {"class": "quiet"}, words("report.nothing")),
    )


def _verified(frame: Frame, report: Mapping[str, Any]) -> Html | None:
    """Whether every undo was looked at, and did what it says."""
    if not report["compensated"] or report["compensated"] != report.get("verified"):
        return None
    return tag("span", {"class": "quiet"}, " ", frame.words("report.verified"))


def _answered(frame: Frame, body: Mapping[str, Any]) -> Html | None:
    """Who answered which question, and with which note; nothing if nobody was asked."""
    answers, words, saga_id = body.get("answers"), frame.words, str(body["saga_id"])
    if not answers:
        return None
    rows = [
        (
            tag(
                "dt",
                None,
                tag("a", {"href": saga_address(saga_id, step=str(each["step_id"]))}, str(each["step_id"])[:60]),
            ),
            tag(
                "dd",
                None,
                *(words.asks(each), " ", tag("b", None, _said(words, each))),
                *([" ", words("answered.by", who=str(each["by"])[:128])] if each["by"] else []),
                *(" ", moment(each["at_ms"])),
                tag("span", {"class": "quiet"}, " ", str(each["note"])[:1000]) if each["note"] else None,
            ),
        )
        for each in answers[-_ANSWERS:]
    ]
    return tag(
        "section",
        {"class": "card report", "id": "answered"},
        tag("h2", None, words("answered.title")),
        tag("dl", {"class": "facts"}, rows),
    )


def _said(words: Words, answer: Mapping[str, Any]) -> str:
    """An answer in the words of its button; of a question of the plan the options are the plan's own."""
    decision = str(answer["decision"])[:100]
    own = answer["kind"] == "ask" and decision != "expired"
    return decision if own else words.known("answer", decision)


def _named(key: str, names: Mapping[str, str]) -> str:
    name = names.get(key, "")
    return f"{key} {name}"[:60] if name and name != key else key[:60]


def _tabs(frame: Frame, saga: Saga, view: str, step: str) -> Html:
    words, saga_id = frame.words, str(saga.body["saga_id"])
    numbers = {"timeline": len(saga.body["steps"]), "records": saga.length}
    links = []
    for name in VIEWS:
        count = tag("span", {"class": "number"}, numbers[name]) if name in numbers else None
        here = "true" if name == view else None
        address = saga_address(
            saga_id, view=name if name != "timeline" else "", step=step if name in ("timeline", "graph") else ""
        )
        links.append(
            tag("a", {"href": address, "class": "tab", "aria-current": here}, words(f"tab.{name}"), " ", count)
        )
    return tag("nav", {"class": "tabs", "id": "tabs", "aria-label": words("tab.label")}, links)


# --- the timeline --------------------------------------------------------------------------------------------------


def window_of(steps: Sequence[Mapping[str, Any]], first: int, size: int) -> Sequence[Mapping[str, Any]]:
    """The steps that are shown."""
    return steps[first : first + size]


def first_of_interest(steps: Sequence[Mapping[str, Any]], size: int) -> int:
    """Where the window begins if nobody chose: at the first step that is not simply done."""
    if len(steps) <= size:
        return 0
    for at, step in enumerate(steps):
        if step["status"] not in ("SUCCEEDED", "SKIPPED", "COMPENSATED"):
            return min(at // size * size, len(steps) - 1)
    return 0


def _timeline(frame: Frame, saga: Saga, chosen: str, first: int, now_ms: int) -> Html:
    words, body, lanes = frame.words, saga.body, saga.lanes
    steps = window_of(body["steps"], first, WINDOW)
    rows = [lanes.rows.get(str(step["step_id"])) or Row(str(step["step_id"])) for step in steps]
    spans = [span for row in rows for span in (*row.forward, *row.undo)]
    now = max(lanes.stop or now_ms, lanes.last)
    whole = len(body["steps"]) <= WINDOW
    start = lanes.start if whole or not spans else min(span.start for span in spans)
    stop = now if whole or not spans else max(now if span.stop is None else span.stop for span in spans)
    axis = axis_of(rows, start, stop)
    marks = [mark for mark in lanes.marks if start <= mark.at <= stop]
    turned = any(row.undo for row in rows)
    saga_id = str(body["saga_id"])
    listed = []
    for step, row in zip(steps, rows, strict=True):
        key = str(step["step_id"])
        address = saga_address(saga_id, step=key, first=first or None)
        name = tag(
            "a",
            {"href": address, "class": "name", "aria-current": "true" if key == chosen else None},
            tag("b", None, key),
            " ",
            step["name"] if str(step["name"]) != key else "",
        )
        undo = step.get("compensation")
        state = str(step["status"])
        status = tag("span", {"class": f"badge {state.lower()}"}, words.known("step", state))
        tool = _tool_of(step)
        kind = (
            tag("span", {"class": "chip"}, words.known("kind", str(step["kind"])))
            if step["kind"] not in ("compensatable", "read")
            else None
        )
        took = step.get("took_ms")
        spent = tag("span", {"class": "number"}, "" if took is None else words.duration(took))
        tries = tag("span", {"class": "tries"}, f"×{step['attempts']}") if step["attempts"] > 1 else None
        if undo and undo["attempts"] > 1:
            tries = tag("span", {"class": "tries"}, f"×{step['attempts']} ↩×{undo['attempts']}")
        listed.append(
            tag(
                "li",
                {"class": "step" + (" here" if key == chosen else ""), "data-row": key, "id": f"step-{key}"},
                tag("div", {"class": "what"}, name, tool, kind),
                tag("div", {"class": "state"}, status, tries),
                tag("div", {"class": "lane"}, row_svg(words, row, axis, marks, now, turned=turned)),
                tag("div", {"class": "took"}, spent),
            )
        )
    label = tag(
        "div",
        {"class": "step axis-row"},
        tag("div", {"class": "what"}),
        tag("div", {"class": "state"}),
        tag("div", {"class": "lane"}, axis_svg(words, axis, start, marks)),
        tag("div", {"class": "took"}),
    )
    return tag(
        "section",
        {"class": "card timeline", "aria-label": words("tab.timeline"), "id": "timeline"},
        label,
        tag("ol", {"class": "steps"}, listed),
        pager(words, first, WINDOW, len(body["steps"]), lambda place: saga_address(saga_id, first=place)),
        _legend(frame, turned=turned),
    )


def _tool_of(step: Mapping[str, Any]) -> Html | None:
    """The tool, if the name of the step does not say it already."""
    name = str(step["tool"] or step.get("builtin", ""))
    return tag("span", {"class": "tool"}, name[:60]) if name != str(step["name"]) else None


def _legend(frame: Frame, *, turned: bool) -> Html:
    words = frame.words
    shown: list[Html] = []
    for css, key in (
        ("forward call ok", "legend.ok"),
        ("forward call failed", "legend.failed"),
        ("undo call ok", "legend.undo"),
        ("forward doubt", "legend.doubt"),
        ("forward asks", "legend.asks"),
        ("forward wait", "legend.wait"),
    ):
        if key == "legend.undo" and not turned:
            continue
        swatch = tag(
            "svg",
            {"width": 14, "height": 9, "aria-hidden": "true"},
            tag("rect", {"width": 14, "height": 9, "rx": 2, "class": f"span {css}"}),
        )
        shown.append(tag("span", None, swatch, " ", words(key)))
    swatch = tag(
        "svg",
        {"width": 14, "height": 9, "aria-hidden": "true"},
        tag("rect", {"width": 14, "height": 9, "class": "idle"}),
    )
    shown.append(tag("span", None, swatch, " ", words("legend.idle")))
    return tag("p", {"class": "legend"}, shown)


def _graph(frame: Frame, saga: Saga, chosen: str, first: int) -> Html:
    words, saga_id = frame.words, str(saga.body["saga_id"])
    total = len(saga.body["steps"])
    svg = graph_svg(
        words, saga.graph, lambda key: saga_address(saga_id, view="graph", step=key, first=first or None), chosen
    )
    more = pager(words, first, GRAPH_WINDOW, total, lambda place: saga_address(saga_id, view="graph", first=place))
    return tag(
        "section",
        {"class": "card", "id": "graph"},
        svg,
        more,
        tag("p", {"class": "legend"}, words("graph.legend")),
    )


# --- the chosen step -----------------------------------------------------------------------------------------------


def _inspector(frame: Frame, saga_id: str, step: Mapping[str, Any], view: str, first: int) -> Html:
    words = frame.words
    closing = saga_address(saga_id, view=view if view != "timeline" else "", first=first or None)
    undo = step.get("compensation")
    state = str(step["status"])
    return tag(
        "aside",
        {"class": "card inspector", "id": "inspector", "aria-label": words("step.title", step=step["step_id"])},
        tag(
            "div",
            {"class": "line"},
            tag("h2", None, f"{step['step_id']} {step['name']}"[:120]),
            tag("span", {"class": f"badge {state.lower()}"}, words.known("step", state)),
            tag("div", {"class": "grow"}),
            tag("a", {"href": closing, "class": "button small", "data-closes": "true"}, words("keys.close")),
        ),
        facts(
            (words("step.tool"), tag("code", None, step["tool"]) if step["tool"] else step.get("builtin")),
            (words("step.kind"), words.known("kind", str(step["kind"]))),
            (words("step.via"), words.known("via", str(step["via"])) if step.get("via") else None),
            (words("step.source"), step.get("source")),
            (words("step.handed"), step.get("handed_to")),
            (words("step.fallback"), step["fallback"]["tool"] if step.get("fallback") else None),
            (
                words("step.waits"),
                moment(step["waits"]["due_ms"]) or words("step.waits-event") if step.get("waits") else None,
            ),
        ),
        _call(frame, step),
        _images(frame, step),
        tag(
            "h3",
            None,
            words("step.undo"),
            " ",
            tag("span", {"class": f"badge {str(undo['status']).lower()}"}, words.known("step", str(undo["status"]))),
            *([" ", words("undo.verified" if undo["verified"] else "undo.said")] if "verified" in undo else []),
        )
        if undo
        else None,
        _undo_calls(frame, undo) if undo and "calls" in undo else None,
        facts((words("step.tool"), tag("code", None, undo["tool"]))) if undo else None,
        _call(frame, undo) if undo else None,
    )


def _undo_calls(frame: Frame, undo: Mapping[str, Any]) -> list[Part]:
    """The calls of an undo of several calls: what was done, what is in doubt, and what is left."""
    words, calls = frame.words, undo["calls"]
    open_from = next((at for at, call in enumerate(calls) if call["status"] != "COMPENSATED"), 0)
    first = max(0, min(open_from - 2, len(calls) - _UNDO_CALLS))
    rows: list[tuple[str, Part]] = []
    for at, call in enumerate(calls[first : first + _UNDO_CALLS], first):
        state = str(call["status"])
        said: list[Part] = [
            tag("span", {"class": f"badge {state.lower()}"}, words.known("step", state)),
            " ",
            tag("code", None, str(call["tool"])[:60]),
        ]
        if call["params"] is not None:
            said += [" ", tag("code", {"class": "break"}, cut(call["params"], _PARAMS_CHARS))]
        rows.append((words("step.call-of", n=at + 1, of=len(calls)), said))
    hidden = len(calls) - len(rows)
    return [facts(*rows), tag("p", {"class": "quiet"}, words("more", n=hidden)) if hidden else None]


def _call(frame: Frame, call: Mapping[str, Any]) -> list[Part]:
    words = frame.words
    error = call.get("error")
    parts: list[Part] = [
        facts(
            (words("step.attempts"), call["attempts"] or None),
            (words("step.began"), moment(call["started_ms"])),
            (words("step.took"), None if call.get("took_ms") is None else words.duration(call["took_ms"])),
            (words("step.next"), moment(call.get("next_try_ms"))),
            (
                words("step.key"),
                tag("code", {"class": "break"}, call["idempotency_key"]) if call.get("idempotency_key") else None,
            ),
        )
    ]
    if error:
        parts.append(
            tag(
                "div",
                {"class": "said error"},
                tag("code", None, error["error_code"]),
                " ",
                words.error(error)[:2000],
                tag("p", None, words.hint(error)[:500]) if error.get("suggestion") else None,
            )
        )
    if call.get("params") is not None:
        parts += [tag("h3", {"class": "minor"}, words("step.params")), json_block(call["params"], words("step.params"))]
    if call.get("output") is not None:
        ref = call.get("output_ref")
        size = words("step.cut", bytes=f"{ref['bytes']:,}") if ref else ""
        parts += [
            tag("h3", {"class": "minor"}, words("step.output"), " ", tag("small", None, size)),
            json_block(call["output"], words("step.output")),
        ]
    if call.get("traceback"):
        label = words("step.traceback")
        parts.append(
            tag(
                "details",
                {"id": f"traceback-{call['step_id']}"},
                tag("summary", None, label),
                tag("pre", {"tabindex": "0", "role": "group", "aria-label": label}, str(call["traceback"])[-6000:]),
            )
        )
    return parts


def _images(frame: Frame, step: Mapping[str, Any]) -> Html | None:
    shown = [image(frame.words, name, step[name]) for name in ("before", "after") if step.get(name) is not None]
    return tag("div", {"class": "images"}, shown) if shown else None


__all__ = ["GRAPH_WINDOW", "VIEWS", "WINDOW", "Saga", "first_of_interest", "saga_page", "section"]
