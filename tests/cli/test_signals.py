"""Questions and their answers from the command line."""

from __future__ import annotations

import shlex

import pytest

from tests.cli.conftest import TOOLS

WITH = ("--tools", str(TOOLS))


@pytest.fixture
def in_doubt(cli, book):
    """A saga whose second call's answer was lost: it asks a person."""
    cli.plan(
        "trip.json", book("a"), {"step_id": "v", "tool": "vanish", "params": {"item": "b"}}, book("c"), task_id="trip"
    )
    ran = cli("submit", "trip.json", *WITH)
    assert ran.code == 4
    return ran


def test_a_question_is_shown_with_its_answers_and_the_line_to_type(cli, in_doubt):
    """An escalated saga exits 4, lists the legal answers, and the line it prints for one of them works as it stands."""
    assert cli.look("show", "trip").code == 4
    shown = cli.look("show", "trip", "--json").json
    assert [question["step_id"] for question in shown["questions"]] == ["v"]
    for option in shown["questions"][0]["options"]:
        assert f"saga resolve trip v {option}" in in_doubt.out
    line = next(line for line in in_doubt.out.splitlines() if "not-happened" in line)

    done = cli(*shlex.split(line)[1:])

    assert done.code == 3
    assert cli.world == ["book:a", "vanish:b", "unbook:a"]
    assert "QuestionResolved" in cli.look("history", "trip").out


def test_happened_takes_an_output_and_goes_on(cli, in_doubt):
    """'happened' with its output is journalled with who said so, and the saga goes on here, to its end."""
    done = cli("resolve", "trip", "v", "happened", "--output", '{"ref": "b"}', "--note", "seen", *WITH, "--json")

    assert (done.code, done.json["status"]) == (0, "COMPLETED")
    assert [step["output"] for step in done.json["steps"]] == [{"ref": "a"}, {"ref": "b"}, {"ref": "c"}]
    decision = next(r for r in cli.look("history", "trip", "--json").json["records"] if r["k"] == "QuestionResolved")
    assert (decision["by"], decision["note"], decision["output"]) == ("ada", "seen", {"ref": "b"})
    assert cli.world == ["book:a", "vanish:b", "book:c"]


def test_answers_that_do_not_fit_are_refused(cli, in_doubt):
    """A decision that is not asked for exits 6, whatever its word (a plan's options are any), and --output is JSON."""
    before = cli.look("history", "trip", "--json").json
    assert cli("resolve", "trip", "1", "retry", *WITH).code == 6
    assert cli("resolve", "trip", "v", "undone", *WITH, "--json").json["error"]["code"] == "decision-refused"
    assert cli("resolve", "trip", "v", "perhaps", *WITH).code == 6
    for output in ('{"ref": NaN}', '{"ref": 1, "ref": 2}', "{"):
        assert cli("resolve", "trip", "v", "happened", "--output", output, *WITH).code == 2
    assert cli.look("history", "trip", "--json").json == before


def test_a_decision_is_recorded_even_where_the_tools_are_missing(cli, in_doubt):
    """Without tools the decision is only recorded: exit code 8 and the way to go on; a resume with tools acts on it."""
    ran = cli("resolve", "trip", "v", "not-happened")

    assert ran.code == 8
    assert "is recorded" in ran.err
    assert "saga resume trip" in ran.err
    assert "message waiting" in cli.look("list").out
    assert cli.look("show", "trip").code == 4
    assert cli("resume", "trip", *WITH).code == 3
    assert cli.world == ["book:a", "vanish:b", "unbook:a"]


def test_an_answer_that_nobody_has_read_yet_holds(cli, in_doubt):
    """The same answer again is no conflict and is posted once; a contradictory one is refused."""
    for _ in range(2):
        assert cli("resolve", "trip", "v", "not-happened").code == 8
    assert "1 message waiting" in cli.look("list").out
    refused = cli("resolve", "trip", "v", "happened", "--output", "{}", "--json")
    assert (refused.code, refused.json["error"]["code"]) == (6, "decision-refused")
    assert "answered already by ada: 'not-happened'" in refused.json["error"]["message"]


def test_an_answer_that_was_given_already_ends_with_the_code_of_the_saga(cli, in_doubt):
    """Resolving twice, without tools and then with them, acts on the first; a contradiction stays a conflict."""
    assert cli("resolve", "trip", "v", "not-happened").code == 8
    for _ in range(2):
        assert cli("resolve", "trip", "v", "not-happened", *WITH).code == 3
    assert cli("resolve", "trip", "v", "not-happened").code == 3
    assert cli("resolve", "trip", "v", "retry", *WITH).code == 6
    assert cli.world == ["book:a", "vanish:b", "unbook:a"]


def test_cancelling_again_is_no_conflict(cli, book):
    """Cancel without tools, with tools and once more: 8 while nobody has acted, then the code of the saga."""
    plan = [book("a"), {"step_id": "v", "tool": "vanish", "params": {"item": "b"}}]
    cli.plan("trip.json", *plan, task_id="trip")
    assert cli("submit", "trip.json", "--detach", *WITH).code == 0
    assert [cli("cancel", "trip").code for _ in range(2)] == [8, 8]
    assert [cli("cancel", "trip", *WITH).code for _ in range(2)] == [3, 3]
    assert cli("cancel", "trip").code == 3
    cli.plan("other.json", book("a"), task_id="other")
    assert cli("submit", "other.json", *WITH).code == 0
    assert cli("cancel", "other", *WITH).code == 6


def test_an_undo_that_failed_asks_and_can_be_tried_again(cli, book):
    """A saga whose undo fails is not reported as rolled back (pitfall 7); 'retry' tries again (pitfall 12)."""
    (cli.folder / "undo-is-broken").touch()
    cli.plan(
        "trip.json",
        book("a", rollback={"tool": "unbook", "params": {"ref": "a"}, "retry": {"max_attempts": 1}}),
        {"tool": "fail"},
        task_id="trip",
    )
    ran = cli("submit", "trip.json", *WITH, "--json")
    assert (ran.code, ran.json["status"], ran.json["report"]["failed"]) == (4, "ESCALATED", [1])
    (cli.folder / "undo-is-broken").unlink()

    done = cli("resolve", "trip", "1", "retry", *WITH, "--json")

    assert (done.code, done.json["status"], done.json["report"]["clean"]) == (3, "COMPENSATED", True)
    assert cli.world == ["book:a", "unbook:a"]


def test_accept_ends_a_saga_as_waived_and_not_clean(cli, book):
    """What a person leaves in place ends the saga WAIVED, exit code 3, and the report says not clean."""
    (cli.folder / "undo-is-broken").touch()
    cli.plan(
        "trip.json",
        book("a", rollback={"tool": "unbook", "params": {"ref": "a"}, "retry": {"max_attempts": 1}}),
        {"tool": "fail"},
        task_id="trip",
    )
    cli("submit", "trip.json", *WITH)

    done = cli("resolve", "trip", "1", "accept", *WITH)

    assert done.code == 3
    assert "WAIVED" in done.out
    assert "not clean" in done.out
    assert "left in place: 1" in done.out


def test_cancel_undoes_and_is_refused_at_the_end(cli, book):
    """A saga that nobody drives is undone here; one that has ended otherwise cannot be cancelled (exit code 6)."""
    cli.plan("trip.json", book("a"), {"tool": "vanish", "params": {"item": "b"}}, task_id="trip")
    cli("submit", "trip.json", *WITH)
    cli.plan("later.json", book("z"), task_id="later")
    cli("submit", "later.json", *WITH, "--detach")

    cancelled = cli("cancel", "later", *WITH, "--json")

    assert (cancelled.code, cancelled.json["error"]["code"]) == (3, "cancelled")
    assert "book:z" not in cli.world
    cli.plan("done.json", book("y"), task_id="done")
    cli("submit", "done.json", *WITH)
    assert cli("cancel", "done", *WITH, "--json").json["error"]["code"] == "cancel-refused"
    assert cli("cancel", "done", *WITH).code == 6
