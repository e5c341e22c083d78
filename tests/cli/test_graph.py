"""Diagrams: the text, its escaping, and graphviz where it is installed."""

from __future__ import annotations

import html
import re
import shutil
import subprocess

import pytest

from saga_engine.core.states import STEP_STATES
from saga_engine.plan import diagram
from saga_engine.plan.compiler import compile_plan
from saga_engine.plan.model import load_plan
from tests.cli.conftest import TOOLS

HOSTILE = 'a"]; click s0 "javascript:alert(1)" %%{init}%% `md` <b>&amp; end\\N {x} #35; | \n'


def compiled(*names: str):
    undo = {"tool": "u", "params": {}}
    return compile_plan(
        load_plan(
            {"steps": [{"step_id": at, "name": name, "tool": "t", "rollback": undo} for at, name in enumerate(names)]}
        ),
        None,
    )


def test_arrows_follow_the_dependencies():
    """A solid arrow for what a step names itself, a dotted one for the order of the list alone."""
    rollback = {"tool": "u", "params": {}}
    steps = [
        {"step_id": "a", "tool": "t", "rollback": rollback},
        {"step_id": "b", "tool": "t", "rollback": rollback},
        {"step_id": "c", "tool": "t", "params": {"x": "$output.step_a.y"}, "depends_on": ["a"], "kind": "read"},
    ]
    plan = compile_plan(load_plan({"steps": steps}), None)

    arrows = re.findall(r"s\d -\S+ s\d", diagram.mermaid(plan))

    assert sorted(arrows) == ["s0 --> s2", "s0 -.-> s1"]
    assert '(["' in diagram.mermaid(plan)
    assert "ellipse" in diagram.dot(plan)


def test_labels_cannot_leave_their_quotes():
    """Whatever a name holds, Mermaid sees one quoted label per step and no statement of the name's making."""
    text = diagram.mermaid(compiled(HOSTILE, "b"))
    lines = text.splitlines()
    assert len(lines) == 4
    label = re.fullmatch(r'    s0\["([^"]*)"\]', lines[1]).group(1)
    assert not set('"`{}%|\\<>') & set(label.replace("<br/>", ""))
    # Mermaid's references are HTML's with another first character: read back, they are what the name was.
    assert html.unescape(re.sub(r"#(\d+);", r"&#\1;", label.split("<br/>")[0])).startswith(
        '0 · a"]; click s0 "javascript'
    )


def test_statuses_colour_the_steps():
    """Each status that occurs has one class, and its steps are in it."""
    text = diagram.mermaid(compiled("a", "b", "c"), {"0": "SUCCEEDED", "1": "FAILED", "2": "SUCCEEDED"})
    assert "class s0,s2 SUCCEEDED" in text
    assert "class s1 FAILED" in text
    assert text.count("classDef") == 2


def test_each_status_of_a_step_has_a_colour():
    """Also that of a step that waits."""
    names = [f"n{status}" for status in STEP_STATES]
    text = diagram.mermaid(compiled(*names), {str(at): status for at, status in enumerate(STEP_STATES)})
    assert text.count("classDef") == len(STEP_STATES)


def test_a_child_saga_names_its_steps():
    """It is one step with the keys of the child's steps, which undo it; one that only reads has no undo."""
    writes = {"tool": "t", "rollback": {"tool": "u", "params": {}}}
    for inner, undo in ((writes, r"\nundo: that of its steps"), ({"tool": "t", "kind": "read"}, "")):
        child = {"plan": {"steps": [{"step_id": key, **inner} for key in "ab"]}, "template": "trip@2"}
        plan = compile_plan(load_plan({"steps": [{"step_id": "x", "saga": child}]}), None)
        assert rf'label="x\nsaga trip@2: a, b{undo}"' in diagram.dot(plan)


def test_a_plan_is_read_as_by_check(cli, book):
    """All faults of a plan are told at once, and what looks like a binding and is none is a warning."""
    cli.plan("bad.json", book("a", nmae="x"), book("$output.step_9.ref"))
    ran = cli.look("graph", "bad.json", "--json")
    assert ran.code == 7
    assert {problem["path"] for problem in ran.json["error"]["problems"]} == {
        "$.steps[0].nmae",
        "$.steps[1].params.item",
    }
    cli.plan("like.json", book("{{item}}"))
    ran = cli.look("graph", "like.json")
    assert (ran.code, ran.out.startswith("flowchart")) == (0, True)
    assert "warning: $.steps[0].params.item" in ran.err


@pytest.mark.skipif(shutil.which("dot") is None, reason="graphviz is not installed")
def test_graphviz_draws_hostile_labels_as_they_are():
    """The DOT text is well-formed whatever the names are, and the names come out of graphviz as they went in."""
    text = diagram.dot(compiled(HOSTILE.strip(), "b"), {"0": "IN_DOUBT"})
    drawn = subprocess.run(["dot", "-Tsvg"], input=text, capture_output=True, text=True, check=True).stdout
    labels = [html.unescape(label) for label in re.findall(r"<text[^>]*>(.*?)</text>", drawn)]
    assert any(label.replace("\xa0", " ").startswith('0 · a"]; click s0 "javascript:alert(1)"') for label in labels)


def test_a_saga_is_drawn_with_its_states(cli, book):
    """`graph ID` needs no tools and colours by status; `graph PLAN` draws the file; svg goes to a file or to stdout."""
    cli.plan("trip.json", book("a"), {"tool": "fail"}, task_id="trip")
    cli("submit", "trip.json", "--tools", str(TOOLS))

    saga, plan = cli.look("graph", "trip"), cli.look("graph", "trip.json")

    assert (saga.code, plan.code) == (0, 0)
    assert "class s0 COMPENSATED" in saga.out
    assert "class s1 FAILED" in saga.out
    assert "class" not in plan.out
    assert "s0" in plan.out
    assert cli.look("graph", "trip", "--json").json["diagram"].startswith("flowchart")
    assert cli.look("graph", "trip", "-o", "trip.mmd").out == ""
    assert (cli.folder / "trip.mmd").read_text().startswith("flowchart")


def test_without_graphviz_svg_is_a_clear_error(cli, book):
    """Where `dot` is missing, svg and png say so and what to do instead; nothing is written."""
    cli.plan("trip.json", book("a"))
    ran = cli("graph", "trip.json", "--format", "svg", "-o", "x.svg", env={"PATH": str(cli.folder)})
    assert ran.code == 1
    assert "graphviz" in ran.err
    assert "mermaid" in ran.err
    assert not (cli.folder / "x.svg").exists()
