"""The main flows, each with its exit code, as processes on the embedded store."""

from __future__ import annotations

import json

from tests.cli.conftest import TOOLS

WITH = ("--tools", str(TOOLS))


def test_a_completed_saga_exits_0_and_is_shown_listed_and_told(cli, book):
    """A saga that completes exits 0, and `show`, `list` and `history` know it without any tools."""
    cli.plan("trip.json", book("a"), book("b"), task_id="trip", goal="two bookings")

    done = cli("submit", "trip.json", *WITH, "--json")

    assert done.code == 0
    assert done.json["status"] == "COMPLETED"
    assert [step["output"] for step in done.json["steps"]] == [{"ref": "a"}, {"ref": "b"}]
    shown = cli("show", "trip", "--json")
    assert (shown.code, shown.json) == (0, done.json)
    listed = cli("list", "--json").json["sagas"]
    assert [(one["saga_id"], one["status"], one["summary"]["goal"]) for one in listed] == [
        ("trip", "COMPLETED", "two bookings")
    ]
    told = cli("history", "trip", "--json").json["records"]
    assert [record["seq"] for record in told] == list(range(len(told)))
    assert [told[0]["k"], told[-1]["k"]] == ["SagaStarted", "SagaCompleted"]
    assert cli.world == ["book:a", "book:b"]


def test_a_failed_saga_is_undone_and_exits_3(cli, book):
    """A saga whose step fails is undone in reverse and never says COMPLETED (pitfalls 7 and 19)."""
    cli.plan("trip.json", book("a"), book("b"), {"tool": "fail"}, task_id="trip")

    done = cli("submit", "trip.json", *WITH)

    assert done.code == 3
    assert "COMPENSATED" in done.out
    assert "COMPLETED" not in done.out
    assert "no rooms" in done.out
    assert "try another day" in done.out
    assert cli.world == ["book:a", "book:b", "unbook:b", "unbook:a"]
    again = cli.look("show", "trip", "--json")
    assert again.code == 3
    report = again.json["report"]
    assert sorted(report.pop("compensated")) == [1, 2]
    assert report == {"failed": [], "unresolved": [], "left_in_place": [], "clean": True}


def test_submitting_again_returns_the_saga_that_exists(cli, book):
    """The same plan under the same id is the same saga: nothing is done twice, also after it was undone (pitfall 18)."""
    cli.plan("good.json", book("a"), task_id="good")
    cli.plan("bad.json", book("b"), {"tool": "fail"}, task_id="bad")
    first = [cli("submit", name, *WITH, "--json") for name in ("good.json", "bad.json")]

    second = [cli("submit", name, *WITH, "--json") for name in ("good.json", "bad.json")]

    assert [(one.code, one.json) for one in second] == [(one.code, one.json) for one in first]
    assert [one.code for one in second] == [0, 3]
    assert cli.world == ["book:a", "book:b", "unbook:b"]


def test_an_id_of_another_plan_is_a_conflict(cli, book):
    """An id that belongs to another plan is refused with exit code 6, and nothing runs."""
    cli.plan("a.json", book("a"))
    cli.plan("b.json", book("b"))
    assert cli("submit", "a.json", "--id", "one", *WITH).code == 0

    refused = cli("submit", "b.json", "--id", "one", *WITH, "--json")

    assert refused.code == 6
    assert refused.json["error"]["code"] == "saga-exists"
    assert cli.world == ["book:a"]


def test_an_unknown_saga_is_not_found(cli):
    """Every command that names a saga exits 5 for one that is not there, and says so in one JSON document if asked."""
    for args in (
        ("cancel", "nope"),
        ("resolve", "nope", "1", "retry"),
        ("resume", "nope"),
    ):
        ran = cli(*args, "--json")
        assert (args, ran.code, ran.json["error"]["code"]) == (args, 5, "saga-not-found")
    for name in ("show", "history", "graph"):
        ran = cli.look(name, "nope", "--json")
        assert (name, ran.code, ran.json["error"]["code"]) == (name, 5, "saga-not-found")
    human = cli("show", "nope")
    assert human.out == ""
    assert "saga-not-found" in human.err
    assert "Traceback" not in human.err


def test_an_invalid_plan_exits_7_with_all_problems(cli, book):
    """A plan that is refused names all its problems, each with code, path and hint, and nothing is journalled."""
    cli.plan("bad.json", {"tool": "buk", "params": {}}, book("a", depends_on=[9]), task_id="bad")

    refused = cli("submit", "bad.json", *WITH, "--json")
    human = cli("submit", "bad.json", *WITH)
    checked = cli("check", "bad.json", *WITH, "--json")

    assert (refused.code, human.code, checked.code) == (7, 7, 7)
    problems = refused.json["error"]["problems"]
    assert {problem["code"] for problem in problems} >= {"tool-unknown"}
    assert len(problems) >= 2
    assert checked.json == {"valid": False, "problems": problems, "tools_checked": True}
    assert human.out == ""
    assert all(problem["path"] in human.err for problem in problems)
    assert cli.look("show", "bad").code == 5


def test_check_without_tools_says_that_only_the_structure_is_checked(cli, book):
    """Without tools, `check` checks the structure alone and says so on stderr."""
    cli.plan("plan.json", book("a"), {"tool": "nobody-has-it", "rollback": {"tool": "nor-this", "params": {}}})

    ran = cli("check", "plan.json")

    assert ran.code == 0
    assert "only the structure" in ran.err
    assert "only the structure" not in ran.out


def test_a_plan_comes_from_stdin(cli, book):
    """`-` is stdin, for submit, check and graph."""
    text = json.dumps({"steps": [{"step_id": 1, **book("a")}]})

    assert cli("submit", "-", *WITH, stdin=text).code == 0
    assert cli("check", "-", stdin=text).code == 0
    assert "flowchart" in cli("graph", "-", stdin=text).out
    assert cli.world == ["book:a"]


def test_input_values_are_json_or_text(cli):
    """`--input K=V` takes JSON where it is JSON, else text, and refuses a K that is given twice."""
    cli.plan(
        "plan.json",
        {"tool": "book", "params": {"item": "$input.item"}},
        {"tool": "book", "params": {"item": "{$input.n}"}},
    )

    ran = cli("submit", "plan.json", *WITH, "--input", "item=NaN", "--input", "n=[1]", "--json")

    assert (ran.code, [step["output"]["ref"] for step in ran.json["steps"]]) == (0, ["NaN", "[1]"])
    assert cli("submit", "plan.json", *WITH, "--input", "n=1", "--input", "n=2").code == 2
    assert cli("submit", "plan.json", *WITH, "--input", "novalue").code == 2
    assert cli("submit", "plan.json", *WITH, "--input", 'n={"a":1,"a":2}').code == 2


def test_what_tools_print_never_reaches_stdout(cli):
    """Stdout carries the result alone: prints of tools and of their children go to stderr."""
    cli.plan("plan.json", {"tool": "noisy", "params": {"item": "x"}})

    ran = cli("submit", "plan.json", *WITH, "--json")

    assert ran.json["status"] == "COMPLETED"
    assert "NOISE of the tool" in ran.err
    assert "NOISE of a child" in ran.err


def test_a_detached_saga_waits_and_is_resumed_with_tools(cli, book):
    """`submit --detach` only journals (exit 0, `show` 8); `resume` loads the tools and drives it (pitfall 6)."""
    cli.plan("plan.json", book("a"), task_id="later")

    submitted = cli("submit", "plan.json", *WITH, "--detach", "--json")

    assert (submitted.code, submitted.json["status"]) == (0, "PENDING")
    assert cli.look("show", "later").code == 8
    assert cli.world == []
    resumed = cli("resume", "later", *WITH, "--json")
    assert (resumed.code, resumed.json["status"]) == (0, "COMPLETED")
    assert cli.world == ["book:a"]


def test_a_missing_tool_leaves_the_saga_exactly_as_it_is(cli, book):
    """A resume without the tools names them and the option that gives them, exits 1 and writes nothing."""
    cli.plan("plan.json", book("a"), task_id="later")
    cli("submit", "plan.json", *WITH, "--detach")
    before = cli.look("history", "later", "--json").json

    ran = cli("resume", "later")

    assert ran.code == 1
    assert "book" in ran.err
    assert "--tools" in ran.err
    assert cli.look("history", "later", "--json").json == before


def test_settings_come_from_the_environment_and_from_saga_toml(cli, book):
    """SAGA_TOOLS and saga.toml are as good as --tools, for every command that drives a saga."""
    cli.plan("plan.json", book("a"))
    assert cli("submit", "plan.json", env={"SAGA_TOOLS": str(TOOLS)}).code == 0
    (cli.folder / "saga.toml").write_text(f'[saga]\ntools = ["{TOOLS}"]\nstore = "embedded://other"\n')
    assert cli("submit", "plan.json", "--id", "toml").code == 0
    assert [saga["saga_id"] for saga in cli("list", "--json").json["sagas"]] == ["toml"]
    assert len(cli.look("list", "--json").json["sagas"]) == 1


def test_resume_all_ends_with_the_gravest_code(cli, book):
    """`resume --all` drives every saga that can go on, prints each, and exits with the gravest code: 4 over 3 over 0."""
    cli.plan("ok.json", book("a"), task_id="ok")
    cli.plan("undone.json", book("b"), {"tool": "fail"}, task_id="undone")
    cli.plan("asks.json", book("c"), {"tool": "vanish", "params": {"item": "c"}}, task_id="asks")
    assert cli("resume", "--all", "--json").json == {"sagas": []}
    for name in ("ok", "undone"):
        cli("submit", f"{name}.json", *WITH, "--detach")

    first = cli("resume", "--all", *WITH, "--json")

    assert first.code == 3
    assert {one["saga_id"]: one["status"] for one in first.json["sagas"]} == {
        "ok": "COMPLETED",
        "undone": "COMPENSATED",
    }
    for name in ("ok", "asks"):
        cli("submit", f"{name}.json", *WITH, "--id", f"{name}-2", "--detach")
    missing = cli("resume", "--all", "--json")
    assert missing.code == 1
    assert {one["error"]["code"] for one in missing.json["sagas"]} == {"tool-missing"}
    second = cli("resume", "--all", *WITH)
    assert second.code == 4
    assert "asks-2" in second.out
    assert "ok-2" in second.out
    assert cli("resolve", "asks-2", "2", "retry").code == 6  # its tool honours no key: only with the mark
    assert cli("resume", "--all", *WITH, "--json").json == {"sagas": []}
    assert cli.world.count("vanish:c") == 1


def test_usage_errors_exit_2(cli):
    """What the command line itself has wrong exits 2, as one JSON document where that was asked for."""
    for args in (("submit",), ("nonsense",), ("resume", "x", "--all")):
        assert (args, cli(*args).code) == (args, 2)
    assert cli.look("list", "--status", "lost").code == 2
    ran = cli.look("list", "--status", "lost", "--json")
    assert (ran.code, ran.json["error"]["code"]) == (2, "usage")


def test_list_filters_by_status(cli, book):
    """`list --status` takes a status in any case and shows those sagas alone, the last changed first."""
    cli.plan("ok.json", book("a"))
    for name in ("one", "two"):
        cli("submit", "ok.json", "--id", name, *WITH)
    cli("submit", "ok.json", "--id", "three", *WITH, "--detach")

    assert [one["saga_id"] for one in cli.look("list", "--status", "Completed", "--json").json["sagas"]] == [
        "two",
        "one",
    ]
    cut = cli.look("list", "--limit", "1", "--json").json
    assert ([one["saga_id"] for one in cut["sagas"]], cut["has_more"]) == (["three"], True)
    assert "no sagas with status ESCALATED" in cli.look("list", "--status", "escalated").err


def test_errors_have_no_traceback_unless_it_is_asked_for(cli):
    """A broken tools module is told in a line, with a hint; --debug or SAGA_DEBUG=1 shows the traceback."""
    (cli.folder / "broken.py").write_text("1 / 0\n")
    cli.plan("plan.json", {"tool": "book", "params": {}})

    plain = cli("submit", "plan.json", "--tools", "broken.py")

    assert plain.code == 1
    assert "ZeroDivisionError" in plain.err
    assert "Traceback" not in plain.err
    assert "Traceback" in cli("submit", "plan.json", "--tools", "broken.py", "--debug").err
    assert "Traceback" in cli("submit", "plan.json", "--tools", "broken.py", env={"SAGA_DEBUG": "1"}).err


def test_a_reader_that_goes_away_ends_the_command_quietly(cli):
    """`saga schema | head -1` ends without a traceback."""
    process = cli.start("schema")
    process.stdout.close()
    _, err = process.communicate(timeout=60)
    assert err == ""


def test_a_saga_is_in_the_trace_of_the_shell(cli, book):
    """TRACEPARENT of the command's environment is journalled with the submission; what is none is left out."""
    caller = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    cli.plan("trip.json", book("a"))
    for saga_id, given in (("traced", caller), ("plain", "none")):
        assert cli("submit", "trip.json", "--id", saga_id, *WITH, "--detach", env={"TRACEPARENT": given}).code == 0
    found = [cli("history", each, "--json").json["records"][0].get("traceparent", "") for each in ("traced", "plain")]
    assert found == [caller, ""]
