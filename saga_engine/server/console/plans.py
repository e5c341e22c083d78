"""The page on which a plan is pasted: what is wrong with it, its graph, and what every single failure would leave."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from saga_engine.server.console.drawing import Node, graph_svg
from saga_engine.server.console.frame import Frame, form, page
from saga_engine.server.console.html import Html, Part, tag
from saga_engine.server.console.words import Words

#: The most steps of the matrix, and problems on the page.
_ROWS: Final = 60
_PROBLEMS: Final = 100
_NODES: Final = 120
#: The columns of the matrix: kinds of faults of a call, then of its undo.
_KINDS: Final = (
    "refused",
    "refused-all",
    "unavailable",
    "blocked",
    "lost-happened",
    "lost-not-happened",
    "raised-happened",
    "raised-not-happened",
    "silent",
    "crash-happened",
    "crash-not-happened",
    "changed",
    "unanswered",
    "no-event",
    "not-computable",
    "child-undone",
    "skipped",
    "output-fails",
    "cancel",
    "deadline",
)
_UNDO_KINDS: Final = (
    "refused",
    "lost-happened",
    "lost-not-happened",
    "crash-happened",
    "crash-not-happened",
    "drift",
    "lied",
    "child-undone",
)
_SIGNS: Final = {"clean": "●", "asks": "?", "left": "✕"}
_WORSE: Final = {"clean": 0, "asks": 1, "left": 2}


def plan_page(
    frame: Frame,
    *,
    plan: str = "",
    given: str = "",
    problems: Sequence[Mapping[str, Any]] | None = None,
    rehearsal: Mapping[str, Any] | None = None,
    nodes: Sequence[Node] = (),
    said: str = "",
) -> Html:
    """The page. ``problems`` None: nothing was checked yet."""
    words = frame.words
    buttons = [tag("button", {"name": "do", "value": "check", "class": "button main"}, words("plan.check"))]
    if "submit" in frame.may:
        buttons.append(tag("button", {"name": "do", "value": "submit", "class": "button"}, words("plan.submit")))
    asking = form(
        frame,
        "/ui/plan",
        tag("label", {"for": "plan"}, words("plan.plan")),
        tag(
            "textarea",
            {
                "name": "plan",
                "id": "plan",
                "rows": 14,
                "spellcheck": "false",
                "required": True,
                "placeholder": words("plan.placeholder"),
            },
            plan,
        ),
        tag("label", {"for": "input"}, words("plan.input")),
        tag("textarea", {"name": "input", "id": "input", "rows": 2, "spellcheck": "false", "placeholder": "{}"}, given),
        tag("div", {"class": "buttons"}, buttons),
        css="card answers",
    )
    results: list[Part] = []
    if said:
        results.append(tag("div", {"class": "said error", "role": "alert"}, said))
    if problems is not None:
        results.append(_problems(frame, problems))
    if rehearsal is not None:
        results.append(_matrix(frame, rehearsal))
    if nodes:
        graph = graph_svg(words, nodes[:_NODES], lambda key: f"#row-{key}")
        results.append(tag("section", {"class": "card", "id": "graph"}, tag("h2", None, words("tab.graph")), graph))
    return page(
        frame,
        words("nav.plan"),
        "plan",
        tag("h1", None, words("nav.plan")),
        tag("p", {"class": "quiet"}, words("plan.explained")),
        tag("p", None, tag("a", {"href": "/ui/goal"}, words("goal.by-model"))),
        asking,
        tag("div", {"id": "results"}, results),
    )


def _problems(frame: Frame, problems: Sequence[Mapping[str, Any]]) -> Html:
    words = frame.words
    if not problems:
        return tag("div", {"class": "said ok", "role": "status"}, words("plan.no-problems"))
    rows = []
    for each in problems[:_PROBLEMS]:
        hint = tag("p", {"class": "quiet"}, str(each["hint"])[:1000]) if each.get("hint") else None
        rows.append(
            tag("li", None, tag("code", None, str(each.get("path", ""))[:200]), " ", str(each["message"])[:1000], hint)
        )
    more = (
        tag("p", {"class": "quiet"}, words("more", n=len(problems) - _PROBLEMS)) if len(problems) > _PROBLEMS else None
    )
    heading = tag("h2", None, words("plan.problems"), " ", tag("span", {"class": "number quiet"}, len(problems)))
    return tag("section", {"class": "card", "id": "problems"}, heading, tag("ol", None, rows), more)


def _matrix(frame: Frame, rehearsal: Mapping[str, Any]) -> Html:
    words, summary = frame.words, rehearsal["summary"]
    found: dict[tuple[str, str, str], Mapping[str, Any]] = {}
    steps: dict[str, str] = {}
    for each in rehearsal["scenarios"]:
        key = str(each["step_id"])
        steps.setdefault(key, str(each["step_name"]))
        place = key, str(each["direction"]), str(each["fault"])
        if place not in found or _WORSE[each["verdict"]] > _WORSE[found[place]["verdict"]]:
            found[place] = each  # of the calls of an undo, and of the undos of fallbacks, the worst
    columns = [("forward", kind) for kind in _KINDS if any(("forward", kind) == place[1:] for place in found)]
    columns += [
        ("compensate", kind) for kind in _UNDO_KINDS if any(("compensate", kind) == place[1:] for place in found)
    ]
    rows = []
    for key, name in list(steps.items())[:_ROWS]:
        cells = [_cell(frame, found.get((key, *column))) for column in columns]
        title = tag("th", {"scope": "row"}, tag("b", None, key[:40]), " ", name[:40] if name != key else "")
        rows.append(tag("tr", {"id": f"row-{key}"}, title, cells))
    forward = sum(1 for direction, _ in columns if direction == "forward")
    groups = [
        tag("td", None),
        tag("th", {"colspan": forward, "scope": "colgroup"}, words("lane.forward")) if forward else None,
    ]
    if len(columns) > forward:
        groups.append(tag("th", {"colspan": len(columns) - forward, "scope": "colgroup"}, words("lane.undo")))
    heads = [
        tag("th", {"scope": "col", "class": "tall"}, tag("span", None, words(f"fault.{kind}"))) for _, kind in columns
    ]
    table = tag(
        "table",
        {"class": "matrix"},
        tag("caption", {"class": "hidden"}, words("matrix.title")),
        tag("thead", None, tag("tr", None, groups), tag("tr", None, tag("td", None), heads)),
        tag("tbody", None, rows),
    )
    legend = [
        tag(
            "span",
            None,
            tag("b", {"class": f"cell {verdict}"}, sign),
            " ",
            words(f"verdict.{verdict}"),
            f" {summary[verdict]}",
        )
        for verdict, sign in _SIGNS.items()
    ]
    worst = [each for each in rehearsal["scenarios"] if each["verdict"] != "clean"][:40]
    listed = [_scenario(frame, each) for each in worst]
    return tag(
        "section",
        {"class": "card", "id": "matrix"},
        tag("h2", None, words("matrix.title"), " ", tag("span", {"class": "number quiet"}, summary["points"])),
        tag("p", {"class": "legend"}, legend),
        tag("div", {"class": "scroll", "tabindex": "0", "role": "region", "aria-label": words("matrix.title")}, table),
        tag("p", {"class": "quiet"}, words("matrix.left-out", n=summary["left_out"])) if summary["left_out"] else None,
        tag(
            "details",
            {"id": "worst", "open": len(listed) <= 12},
            tag("summary", None, words("matrix.worst", n=len(worst))),
            tag("ul", {"class": "plain-list"}, listed),
        )
        if listed
        else None,
    )


def _cell(frame: Frame, scenario: Mapping[str, Any] | None) -> Html:
    if scenario is None:
        return tag("td", {"class": "cell none"}, tag("span", {"class": "hidden"}, "–"))
    verdict = str(scenario["verdict"])
    words = frame.words
    title = f"{_happens(words, scenario)} → {words.known('status', str(scenario['status']))}"
    return tag(
        "td",
        {"class": f"cell {verdict}", "title": title},
        tag("span", {"aria-hidden": "true"}, _SIGNS.get(verdict, "")),
        tag("span", {"class": "hidden"}, words.known("verdict", verdict)),
    )


def _happens(words: Words, scenario: Mapping[str, Any]) -> str:
    """What is simulated: the engine's English sentence, in another language the words of the matrix."""
    if words.language == "en":
        return str(scenario["what"])
    lane = words("lane.undo" if scenario["direction"] == "compensate" else "lane.forward")
    return f"{lane} · {words.known('fault', str(scenario['fault']))}"


def _scenario(frame: Frame, each: Mapping[str, Any]) -> Html:
    words, verdict = frame.words, str(each["verdict"])
    half = {
        half["step_id"]: f" ({words('matrix.half', done=half['done'], of=half['of'])})" for half in each["half_undone"]
    }
    standing = ", ".join(f"{step}{half.get(step, '')}" for step in each["standing"][:8]) or words("nothing")
    sign = tag("b", {"class": f"cell {verdict}", "aria-hidden": "true"}, _SIGNS.get(verdict, ""))
    where = tag("b", None, str(each["step_id"])) if each["step_id"] is not None else None
    return tag(
        "li",
        None,
        sign,
        " ",
        where,
        " ",
        _happens(words, each),
        " → ",
        words.known("status", str(each["status"])),
        tag("span", {"class": "quiet"}, " ", words("matrix.stands"), " ", standing),
    )
