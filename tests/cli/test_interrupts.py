"""Ctrl-C, SIGTERM, kills, and a second process that wants the same saga."""

from __future__ import annotations

import fcntl
import os
import pty
import signal
import struct
import termios
import threading

import pytest

from tests.cli.conftest import TOOLS

WITH = ("--tools", str(TOOLS))
_LIMIT_S = 120
_HIDDEN, _VISIBLE = b"\x1b[?25l", b"\x1b[?25h"


@pytest.fixture
def blocked(cli, book, request):
    """A `saga submit` whose second step hangs at a gate; returns its process once the call has begun."""
    os.mkfifo(cli.folder / "begun")
    os.mkfifo(cli.folder / "gate")
    cli.plan("trip.json", book("a"), {"tool": "block", "params": {"item": "b"}}, book("c"), task_id="trip")
    cli.env["SAGA_LEASE_S"] = getattr(request, "param", "6")
    process = cli.start("submit", "trip.json", *WITH, "--json")
    with (cli.folder / "begun").open() as begun:
        assert begun.read() == "begun"
    yield process
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate(timeout=_LIMIT_S)


def until(stream, text: str) -> str:
    """Read lines until one has ``text`` in it."""
    for line in stream:
        if text in line:
            return line
    raise AssertionError(f"the stream ended without {text!r}")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_one_interrupt_awaits_and_journals_the_call_in_flight(cli, blocked, number):
    """One Ctrl-C starts nothing new, journals what comes of the call in flight, exits 130 and says how to go on."""
    os.killpg(blocked.pid, number)
    until(blocked.stderr, "stopping")
    (cli.folder / "gate").write_text("open")
    out, err = blocked.communicate(timeout=_LIMIT_S)

    assert blocked.returncode == 130
    assert '"interrupted"' in out
    assert "saga resume trip --tools" in out
    assert "Traceback" not in err
    assert cli.world == ["book:a", "begun:b", "ended:b"]
    shown = cli.look("show", "trip", "--json")
    assert (shown.code, [step["status"] for step in shown.json["steps"]]) == (8, ["SUCCEEDED", "SUCCEEDED", "PENDING"])
    assert cli.look("list", "--json").json["sagas"][0]["owner"] is None
    done = cli("resume", "trip", *WITH, "--json")
    assert (done.code, done.json["status"]) == (0, "COMPLETED")
    assert cli.world == ["book:a", "begun:b", "ended:b", "book:c"]


def test_a_second_interrupt_ends_at_once_and_loses_nothing(cli, blocked):
    """A second Ctrl-C does not wait for the call; its intent is in the journal, so the step is in doubt, not lost."""
    os.killpg(blocked.pid, signal.SIGINT)
    until(blocked.stderr, "stopping")
    os.killpg(blocked.pid, signal.SIGINT)
    _, err = blocked.communicate(timeout=_LIMIT_S)

    assert blocked.returncode == 130
    assert "resume with: saga resume trip --tools" in err
    kinds = [(record["k"], record.get("step")) for record in cli.look("history", "trip", "--json").json["records"]]
    assert kinds[-1] == ("StepIntended", "2")
    resumed = cli("resume", "trip", *WITH, "--json")
    assert (resumed.code, resumed.json["questions"][0]["step_id"]) == (4, 2)
    assert cli.world == ["book:a", "begun:b"]


def test_a_second_interrupt_gives_the_terminal_back(cli, book):
    """On a terminal, where the live view hides the cursor, the second Ctrl-C shows it again and says how to go on."""
    os.mkfifo(cli.folder / "begun")
    os.mkfifo(cli.folder / "gate")
    cli.plan("trip.json", book("a"), {"tool": "block", "params": {"item": "b"}}, task_id="trip")
    cli.env["COLUMNS"] = "160"  # (workers of pytest-xdist have one of their own, which would wrap what is read here)
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 160, 0, 0))
    process = cli.start("submit", "trip.json", *WITH, stdin=theirs, stdout=theirs, stderr=theirs)
    ender = threading.Timer(_LIMIT_S, os.killpg, (process.pid, signal.SIGKILL))
    ender.start()
    os.close(theirs)
    screen = _Screen(ours)
    try:
        with (cli.folder / "begun").open() as begun:
            assert begun.read() == "begun"
        os.killpg(process.pid, signal.SIGINT)
        shown = screen.until(b"again to end at once")
        assert shown.rfind(_HIDDEN) > shown.rfind(_VISIBLE)
        os.killpg(process.pid, signal.SIGINT)
        shown = screen.until(None)
        assert process.wait(_LIMIT_S) == 130, shown
    finally:
        ender.cancel()
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(_LIMIT_S)
        screen.close()
    assert shown.rfind(_VISIBLE) > shown.rfind(_HIDDEN)
    assert f"resume with: saga resume trip --tools {TOOLS}".encode() in shown[shown.rfind(_VISIBLE) :]


class _Screen:
    """What is written to a terminal. It is read all the time: a full terminal would hold up whoever draws on it."""

    def __init__(self, terminal: int) -> None:
        self._terminal = terminal
        self._found, self._ended = b"", False
        self._more = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def until(self, text: bytes | None) -> bytes:
        """All of it, as soon as it holds the text; None: as soon as nobody writes any more."""
        with self._more:
            self._more.wait_for(lambda: self._ended or (text is not None and text in self._found))
            return self._found

    def close(self) -> None:
        self._reader.join(_LIMIT_S)
        os.close(self._terminal)

    def _read(self) -> None:
        while True:
            try:
                piece = os.read(self._terminal, 65536)
            except OSError:  # Linux's way to say that nobody writes any more
                piece = b""
            with self._more:
                self._found += piece
                self._ended = not piece
                self._more.notify_all()
            if not piece:
                return


# (On a slow machine a shorter lease ends before the command looks at it.)
@pytest.mark.parametrize("blocked", ["60"], indirect=True)
def test_a_killed_saga_is_taken_over_at_once(cli, blocked):
    """After a kill, resume takes over without waiting, asks about the call in flight, and repeats nothing (pitfall 21)."""
    os.killpg(blocked.pid, signal.SIGKILL)
    blocked.communicate(timeout=_LIMIT_S)

    ran = cli("resume", "trip", *WITH)

    assert ran.code == 4
    assert "waiting up to" not in ran.err
    assert cli.world == ["book:a", "begun:b"]


def test_a_saga_that_a_live_process_drives(cli, blocked):
    """Elsewhere in flight: `show` and `cancel` exit 8, the owner acts on the cancel, and its exit code is 3."""
    assert cli.look("show", "trip").code == 8
    cancelled = cli("cancel", "trip", "--note", "no more", *WITH)
    assert cancelled.code == 8
    assert "another live process" in cancelled.err

    (cli.folder / "gate").write_text("open")
    out, _ = blocked.communicate(timeout=_LIMIT_S)

    assert blocked.returncode == 3
    assert '"cancelled"' in out
    # The owner may begin step 3 before it looks into its mail; whatever it did, it undid.
    done = [line.split(":")[1] for line in cli.world if line.startswith(("book:", "ended:"))]
    undone = [line.split(":")[1] for line in cli.world if line.startswith("unbook:")]
    assert done[:2] == ["a", "b"]
    assert undone == done[::-1]


@pytest.mark.parametrize("blocked", ["600"], indirect=True)
def test_an_interrupt_ends_the_wait_for_another_owner(cli, blocked):
    """A resume that waits for a live owner's lease says so, and Ctrl-C ends the wait at once, with 130."""
    waiting = cli.start("resume", "trip", *WITH)
    until(waiting.stderr, "waiting up to")
    os.killpg(waiting.pid, signal.SIGINT)
    waiting.communicate(timeout=_LIMIT_S)

    assert waiting.returncode == 130
    (cli.folder / "gate").write_text("open")
    blocked.communicate(timeout=_LIMIT_S)
    assert blocked.returncode == 0


def test_a_resume_of_a_saga_that_a_live_process_keeps_exits_8(cli, blocked):
    """When the owner renews its lease, the other process prints where the saga stands and exits 8."""
    ran = cli("resume", "trip", *WITH, "--json")

    assert (ran.code, ran.json["status"]) == (8, "RUNNING")
