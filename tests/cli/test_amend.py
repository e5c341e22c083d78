"""Adding steps from the command line."""

from __future__ import annotations

import json

import pytest

from tests.cli.conftest import TOOLS

WITH = ("--tools", str(TOOLS))


@pytest.fixture
def asking(cli, book):
    """A saga that goes forward and waits for a person: its second call's answer was lost."""
    cli.plan("trip.json", book("a"), {"step_id": "v", "tool": "vanish", "params": {"item": "b"}}, task_id="trip")
    assert cli("submit", "trip.json", *WITH).code == 4


def steps(cli, value) -> str:
    (cli.folder / "more.json").write_text(json.dumps(value))
    return "more.json"


def test_added_steps_run_after_the_plan_with_who_and_why(cli, asking):
    """The steps follow the last one, the journal says who added them and why, and the saga goes on where it stood."""
    added = steps(cli, [{"step_id": "taxi", "tool": "book", "params": {"item": "t{$output.step_1.ref}"}}])

    ran = cli("amend", "trip", added, "--by", "kim", "--note", "a taxi, too", *WITH)

    assert ran.code == 4
    assert "step taxi added by kim" in ran.err
    record = next(r for r in cli.look("history", "trip", "--json").json["records"] if r["k"] == "StepsAdded")
    assert (record["by"], record["note"]) == ("kim", "a taxi, too")
    assert "StepsAdded" in cli.look("history", "trip").out
    done = cli("resolve", "trip", "v", "happened", "--output", '{"ref": "b"}', *WITH, "--json")
    assert (done.code, [step["step_id"] for step in done.json["steps"]]) == (0, [1, "v", "taxi"])
    assert cli.world == ["book:a", "vanish:b", "book:ta"]


def test_added_steps_are_undone_with_the_rest(cli, asking):
    """When a later step fails, an added one is undone like the others, in reverse."""
    added = steps(
        cli, {"steps": [{"step_id": "x", "tool": "book", "params": {"item": "x"}}, {"step_id": "f", "tool": "fail"}]}
    )
    assert cli("amend", "trip", added, *WITH).code == 4

    done = cli("resolve", "trip", "v", "happened", "--output", '{"ref": "b"}', *WITH, "--json")

    assert (done.code, done.json["report"]["compensated"]) == (3, [1, "v", "x"])
    assert cli.world == ["book:a", "vanish:b", "book:x", "unbook:x", "unbook:b", "unbook:a"]


@pytest.mark.parametrize(
    ("text", "code", "path"),
    [
        ("", "plan-not-json", "$"),
        ('[{"step_id": 1,, }]', "plan-not-json", "$"),
        ('[{"step_id": "x", "step_id": "y", "tool": "book"}]', "plan-not-json", "$"),
        ('[{"step_id": "x", "tool": "book", "params": {"item": NaN}}]', "plan-not-json", "$"),
        ("[" * 100_000, "plan-not-json", "$"),
        ("17", "field-invalid", "$"),
        ('{"steps": "x"}', "field-invalid", "$.steps"),
        ("[17]", "field-invalid", "$.steps[0]"),
        ('{"steps": [], "goal": "more"}', "field-unknown", "$.goal"),
        ('[{"step_id": "x", "tool": "bok"}]', "tool-unknown", "$.steps[0].tool"),
        ('[{"step_id": 1, "tool": "book", "params": {"item": "x"}}]', "step-duplicate", "$.steps[0].step_id"),
        ('[{"step_id": "x", "tool": "book", "params": {"item": "x"}, "if": "y"}]', "field-unknown", "$.steps[0].if"),
    ],
)
def test_steps_that_do_not_fit_are_refused_and_nothing_is_written(cli, asking, text, code, path):
    """Whatever is wrong with the steps is an invalid plan (exit code 7), with the path in what was given; stdin is read."""
    before = cli.look("history", "trip", "--json").json

    ran = cli("amend", "trip", "-", *WITH, "--json", stdin=text)

    assert ran.code == 7
    problems = ran.json["error"]["problems"]
    assert (problems[0]["code"], problems[0]["path"]) == (code, path)
    assert cli.look("history", "trip", "--json").json == before


def test_a_file_that_is_none_is_refused(cli, asking):
    """A missing file, a folder, and more bytes than a plan may have: an invalid plan, and no waiting for a pipe."""
    for name in ("nowhere.json", "."):
        assert cli("amend", "trip", name, *WITH, "--json").json["error"]["problems"][0]["code"] == "plan-unreadable"
    (cli.folder / "big.json").write_bytes(b" " * (8 * 1024 * 1024 + 1))
    assert cli("amend", "trip", "big.json", *WITH, "--json").json["error"]["problems"][0]["code"] == "limit-size"


def test_what_has_ended_or_is_being_undone_takes_no_steps(cli, book, asking):
    """An ended saga, and an empty list, are a conflict (6); an id that is none is not found (5)."""
    assert cli("amend", "trip", steps(cli, []), *WITH).code == 6
    cli("resolve", "trip", "v", "not-happened", *WITH)
    added = steps(cli, [{"step_id": "x", "tool": "book", "params": {"item": "x"}}])

    ran = cli("amend", "trip", added, *WITH, "--json")

    assert (ran.code, ran.json["error"]["code"]) == (6, "amend-refused")
    assert cli("amend", "nobody", added, *WITH).code == 5
