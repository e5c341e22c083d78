"""The next command, for each state in which a saga does not move by itself."""

from __future__ import annotations

import os
import shlex
import signal

import pytest

from tests.cli.conftest import TOOLS
from tests.support.servers import until

WITH = ("--tools", str(TOOLS))


@pytest.fixture
def killed(cli, book):
    """A saga whose process was killed while its second call was in flight."""
    os.mkfifo(cli.folder / "begun")
    os.mkfifo(cli.folder / "gate")
    cli.plan("trip.json", book("a"), {"tool": "block", "params": {"item": "b"}}, task_id="trip")
    process = cli.start("submit", "trip.json", *WITH)
    with (cli.folder / "begun").open() as begun:
        assert begun.read() == "begun"
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    return cli


def test_a_killed_saga_names_the_command_that_continues_it(killed):
    """The owner is provably dead: `show` and `list` say that no process owns the saga, and the printed line works."""
    shown = killed("show", "trip")
    assert shown.code == 8
    (hint,) = [line for line in shown.err.splitlines() if "owns this saga" in line]
    assert "no process owns this saga" in hint
    assert hint.endswith("saga resume trip --tools …")

    listed = killed("list")
    assert "no owner" in listed.out
    assert "saga resume --all --tools …" in listed.err

    line = hint.rpartition(": ")[2].replace("--tools …", shlex.join(WITH))
    assert killed(*shlex.split(line)[1:]).code == 4  # the call in flight has neither key nor probe
    assert "question about step 2" in killed("show", "trip").out


def test_a_queued_saga_names_its_worker(cli, book):
    """Where no worker runs, each view says what to start."""
    cli.plan("trip.json", book("a"), task_id="trip")
    assert cli("submit", "trip.json", *WITH, "--detach").code == 0
    assert "a worker runs it, or: saga resume trip --tools …" in cli("show", "trip").err
    assert "no owner" in cli("list").out
    assert "sagas wait for a worker: saga worker --tools …" in cli("top", "--once", "--every", "0.2").out
    assert "1 saga waits for a worker, and none runs" in cli("doctor", *WITH).out


def test_a_saga_that_asks_names_the_inbox(cli, book):
    """An undo that failed and a call in doubt: each view leads to the commands that answer."""
    (cli.folder / "undo-is-broken").touch()
    cli.plan("undo.json", book("a"), {"tool": "fail"}, task_id="undo")
    assert cli("submit", "undo.json", *WITH).code == 4
    cli.plan("doubt.json", {"tool": "vanish", "params": {"item": "b"}}, task_id="doubt")
    assert cli("submit", "doubt.json", *WITH).code == 4

    assert "saga resolve undo 1 undone" in cli("show", "undo").out
    assert "saga inbox" in cli("list").err
    assert "2 sagas wait for an operator: saga inbox" in cli("top", "--once", "--every", "0.2").out
    doctor = cli("doctor", *WITH)
    assert "2 sagas wait for an operator" in doctor.out
    assert "answer them: saga inbox" in doctor.out
    assert "saga resolve doubt 1 happened" in cli("inbox").out


def test_a_recorded_answer_names_who_reads_it(cli, book):
    """After a decision without tools, `show` says that it waits to be read, and how."""
    cli.plan("doubt.json", {"tool": "vanish", "params": {"item": "b"}}, task_id="doubt")
    assert cli("submit", "doubt.json", *WITH).code == 4
    assert cli("resolve", "doubt", "1", "not-happened").code == 8
    shown = cli("show", "doubt")
    assert "a message to this saga is recorded and not yet read: a worker reads it, or: saga resume doubt" in shown.err


def test_an_ended_saga_names_no_command(cli, book):
    """Nothing is left to do."""
    cli.plan("trip.json", book("a"), task_id="trip")
    assert cli("submit", "trip.json", *WITH).code == 0
    assert cli("show", "trip").err == ""
    assert cli("list").err == ""


@pytest.mark.parametrize("command", ["submit", "fork"])
def test_a_bad_id_is_reported_as_the_option(cli, book, command):
    """The plan is right; the option is not."""
    cli.plan("trip.json", book("a"), task_id="trip")
    if command == "fork":
        assert cli("submit", "trip.json", *WITH).code == 0
    ran = cli(command, "trip.json" if command == "submit" else "trip", "--id", "a b", *WITH)
    assert (ran.code, "'a b' is not a valid saga id (--id)" in ran.err) == (7, True)
    assert "task_id" not in ran.err


def test_a_saga_that_only_waits_names_what_it_waits_for(cli, book):
    """No resume helps before the event has come: the progress and `show` name it, and the printed line sends it."""
    cli.plan("w.json", {"wait": {"event": "paid.by-card", "key": "order 17"}}, book("a"), task_id="w")
    process = cli.start("submit", "w.json", *WITH)
    until(lambda: process.poll() is not None or "WAITING" in cli("show", "w").out, "the step that waits")
    process.send_signal(signal.SIGINT)
    assert "step 1 wait: waits (for the event paid.by-card, key order 17)" in process.communicate()[1]

    (hint,) = [line for line in cli("show", "w").err.splitlines() if "waits for" in line]
    line = hint.partition("send what it waits for: ")[2].partition(";")[0]
    assert line == "saga event paid.by-card 'order 17' '{…}'"
    assert "to give it up: saga cancel w" in hint
    resumed = cli.start("resume", "w", *WITH)
    told = resumed.stderr.readline()
    resumed.send_signal(signal.SIGINT)
    resumed.communicate()
    assert f"{line}; this command continues then; to give it up: saga cancel w" in told
    sent = cli(*shlex.split(line.replace("{…}", '{"sum": 7}'))[1:])
    assert (sent.code, "held for the step that waits for it; its saga decides" in sent.out) == (0, True)
    resumed = cli("resume", "w", *WITH)
    assert (resumed.code, "send what it waits for" in resumed.err) == (0, False)


def test_a_saga_that_waits_for_its_child_names_it(cli, book):
    """The child asks a person: `show` of the parent leads to it, and then says what the child left."""
    asks = {"step_id": "sure", "ask": {"question": "Sure?", "options": ["yes", "no"]}}
    post = book("p", kind="irreversible", depends_on=["sure"])
    child = {"step_id": "trip", "saga": {"plan": {"steps": [asks, {"step_id": "post", **post}]}}}
    cli.plan("p.json", child, {"step_id": "last", "tool": "fail"}, task_id="p")
    process = cli.start("submit", "p.json", *WITH)
    until(lambda: process.poll() is not None or "p.trip" in cli("inbox").out, "the question of the child")
    process.send_signal(signal.SIGINT)
    process.communicate()

    shown = cli("show", "p")
    assert "step trip: waits for its child, saga p.trip" in shown.out
    assert "it waits for the end of: saga show p.trip;" in shown.err
    assert cli("resolve", "p.trip", "sure", "yes", *WITH).code == 0
    assert cli("resume", "p", *WITH).code == 3
    assert "step trip: left in place by its child: p.trip-undo/post" in cli("show", "p").out
    refused = cli("undo", "p", *WITH)
    assert (refused.code, "cannot be undone" in refused.err) == (6, True)


def test_an_event_after_a_cancel_that_nobody_has_read_is_held_and_continues_nothing(cli, book):
    """The saga has the event and decides: `saga event` does not say that the step has it, and no later step runs."""
    cli.plan("w.json", {"wait": {"event": "paid"}}, book("a"), task_id="w")
    process = cli.start("submit", "w.json", *WITH)
    until(lambda: process.poll() is not None or "WAITING" in cli("show", "w").out, "the step that waits")
    process.send_signal(signal.SIGINT)
    process.communicate()
    assert cli("cancel", "w").code == 8
    sent = cli("event", "paid", "w", "--id", "e1")
    assert (sent.code, "event e1 held for the step that waits for it; its saga decides" in sent.out) == (0, True)
    assert cli("resume", "w", *WITH).code == 3
    assert ("late" in cli("events").out, "taken" in cli("events").out, cli.world) == (True, False, [])
