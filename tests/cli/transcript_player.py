"""Plays a transcript: each command line is carried out again, and what it prints is written below it.

A transcript is a text that a person reviews:

    # A remark; it stays as it is, as do empty lines.
    $ COLUMNS=60 saga list --status escalated
    | a line of stdout
    ! a line of stderr
    = 0

``COLUMNS=N`` makes stdout and stderr a terminal of so many columns; without it both are pipes. Other assignments are the
environment of the command. ``PTY=N`` runs a real process on a real terminal, and shows what is left on its screen.
``saga … < FILE`` reads stdin. ``saga … @INT "text"`` and ``@TERM "text"`` run a real process and send it the signal once
it has printed the text; then the file ``gate`` is made, at which tools may wait. ``write FILE TEXT``, ``touch`` and ``rm``
change the folder. Times, durations, random ids, versions and paths are replaced by fixed ones of the same form.
"""

from __future__ import annotations

import codecs
import importlib
import io
import os
import pty
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from saga_engine._version import __version__
from saga_engine.cli import doctor_state, run, times
from saga_engine.stores.embedded import FolderServer, find_binary

HERE: Final = Path(__file__).with_name("transcripts")
doctor = importlib.import_module("saga_engine.cli.doctor")  # its name in the package is that of the command
version = importlib.import_module("saga_engine.cli.version")
_LIMIT_S: Final = 120  # ends a command that hangs; nothing is asserted about time
#: As long as the folder that it stands for, so that tables are as wide.
_FOLDER: Final = "/tmp/saga-00000000"
_ROOT: Final = Path(__file__).parents[2]
_COLOURS: Final = {"2": "dim", "31": "red", "32": "green", "33": "yellow", "34": "blue", "35": "magenta", "36": "cyan"}
#: What differs from run to run. Whatever stands in a table keeps its width, so that columns stay as they are.
_VOLATILE: Final = (
    (re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)"), "2026-01-02T03:04:05+00:00"),
    (re.compile(r"(?<![\dT:.-])\d\d:\d\d:\d\d(?![\d.])"), "03:04:05"),
    (re.compile(r"(\d{1,3}\.\d s|\b\d+ ms)\b"), "7 ms"),
    (re.compile(r"\d{1,3}\.\d 秒|\b\d+ 毫秒"), "7 毫秒"),
    (re.compile(r'("\w+_ms"|"at"): \d{12,}'), r"\1: 1767323045000"),
    (re.compile(r"-manual-\d{13}"), "-manual-1767323045000"),
    (re.compile(r'(--cursor |"cursor": ")\d{13}-'), r"\g<1>1767323045000-"),
    (re.compile(r'("(took|waited|oldest_wait|age)_ms"): \d+'), r"\1: 7"),
    (re.compile(r"\bpid \d+ on [\w.-]+"), "pid 4711 on vm"),
    (re.compile(r"\b(?=[0-9a-f]*\d)(?=[0-9a-f]*[a-f])[0-9a-f]{12,64}(?![0-9a-f])"), lambda found: _hex(found.group())),
    (re.compile(r"\b(Valkey|valkey|redis|Redis) \d+\.\d+\.\d+"), r"\1 9.9.9"),
    (re.compile(r"\bold/20\d\d-\d\d-\d\d/"), "old/2026-01-02/"),
    (re.compile(r"http://127\.0\.0\.1:\d+"), "http://127.0.0.1:8800"),
    (re.compile(r"(?<![0-9A-Za-z])t[0-9a-f]{11}(?![0-9A-Za-z])"), "t0123456789a"),
    (re.compile(r"\b(saga_t0123456789a_)[A-Za-z0-9_-]{43}"), r"\1" + "x" * 43),
    (re.compile(r":f:[0-9a-f]{16}\b"), ":f:0123456789abcdef"),
    (re.compile(r"saga_engine \d+\.\d+\.\S+"), "saga_engine 9.9.9"),
)


def _hex(text: str) -> str:
    return ("0123456789abcdef" * 4)[: len(text)]


class _Stream(io.StringIO):
    """One of two streams that end up on one page, in the order of what is written."""

    encoding = "utf-8"  # type: ignore[assignment]

    def __init__(self, mark: str, page: list[tuple[str, str]], *, terminal: bool) -> None:
        super().__init__()
        self._mark, self._page, self._terminal = mark, page, terminal

    @property
    def buffer(self) -> Any:
        """For what is written as bytes."""
        outer = self

        class Bytes(io.BytesIO):
            def write(self, data: Any) -> int:
                return outer.write(bytes(data).decode())

            def writelines(self, lines: Any) -> None:
                for line in lines:
                    self.write(line)

        return Bytes()

    def isatty(self) -> bool:
        return self._terminal

    def write(self, text: str) -> int:
        if not isinstance(text, str):
            raise TypeError("a stream of texts")  # typer asks so which kind it is
        if self._page and self._page[-1][0] == self._mark:
            self._page[-1] = (self._mark, self._page[-1][1] + text)
        elif text:
            self._page.append((self._mark, text))
        return len(text)


class Player:
    """Plays transcripts in a folder of their own. The folder's store keeps its server while the player lives."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        folder = self._folder = Path(tempfile.mkdtemp(prefix="saga-", dir="/tmp"))
        self._held: socket.socket | None = None
        shutil.copytree(HERE / "world", folder, dirs_exist_ok=True)
        patch.chdir(folder)
        for name in [name for name in os.environ if name.startswith("SAGA_")]:
            patch.delenv(name)
        for name, value in (("USER", "ada"), ("TZ", "UTC"), ("TERM", "xterm-256color"), ("LC_ALL", "C.UTF-8")):
            patch.setenv(name, value)
        for name in ("NO_COLOR", "COLUMNS", "FORCE_COLOR"):
            patch.delenv(name, raising=False)
        self._fix_the_clock(patch)

    @staticmethod
    def _fix_the_clock(patch: pytest.MonkeyPatch) -> None:
        """Times as texts of a fixed width: tables are as wide in each run."""
        real, ago = times.duration, times.ago
        patch.setattr(times, "local", lambda at_ms: "2026-01-02T03:04:05+00:00" if at_ms else "-")
        patch.setattr(times, "duration", lambda ms: real(7 if 0 <= ms < 300_000 else ms))
        patch.setattr(times, "ago", lambda _at, _now: ago(0, 5000))
        installed = {"python": "3.11.9", "platform": "Linux", "executable": "/usr/bin/python3", "graphviz": None}
        serving = {
            "path": "/usr/bin/valkey-server",
            "from": "PATH",
            "version": "9.9.9",
            "age_days": 7,
            "allocator": None,
        }
        found = doctor._installation
        patch.setattr(doctor_state, "program", lambda _: serving)
        patch.setattr(version, "installed", lambda _: "1.2.3")
        patch.setattr(doctor, "_installation", lambda findings: found(findings) | installed | {"saga_engine": "9.9.9"})

    def close(self) -> None:
        """Let the server go, which ends it, and remove the folder."""
        if self._held is not None:
            self._held.close()
            FolderServer(self._folder / ".saga", find_binary()).stop_if_last("nobody")
        shutil.rmtree(self._folder)

    def play(self, transcript: str) -> str:
        """The transcript as it should be now."""
        lines: list[str] = []
        for line in transcript.splitlines():
            if line.startswith("$ "):
                lines += [line, *self._command(line[2:])]
            elif line[:1] not in ("|", "!", "="):
                lines.append(line)
        return "\n".join(lines) + "\n"

    def _command(self, line: str) -> list[str]:
        words = shlex.split(line)
        given: dict[str, str] = {}
        while re.match(r"[A-Z_]+=", words[0]):
            name, _, value = words.pop(0).partition("=")
            given[name] = value
        if words[0] != "saga":
            self._builtin(words)
            return []
        words, stdin, until = _redirections(words[1:])
        self._hold()
        if "PTY" in given:
            code, page = self._on_a_terminal(words, given)
        elif until is not None:
            code, page = self._signalled(words, given, *until)
        else:
            code, page = self._here(words, given, stdin)
        return [*self._shown(page), f"= {code}"]

    def _builtin(self, words: list[str]) -> None:
        verb, name, *text = words
        path = self._folder / name
        if verb == "write":
            path.write_text(" ".join(text).replace("\\n", "\n") + "\n")
        elif verb == "touch":
            path.touch()
        elif verb == "rm":
            path.unlink()
        else:
            raise ValueError(f"{verb} is no command of a transcript")

    def _hold(self) -> None:
        """Keep the server of a store that there is: to start one for each command takes long."""
        if self._held is None and (self._folder / ".saga" / "data").exists():
            path = FolderServer(self._folder / ".saga", find_binary()).ensure(60)
            self._held = socket.socket(socket.AF_UNIX)
            self._held.connect(path)

    # --- ways to run a command -----------------------------------------------------------------------------------

    def _here(self, words: list[str], given: dict[str, str], stdin: Path | None) -> tuple[int, list[tuple[str, str]]]:
        page: list[tuple[str, str]] = []
        terminal = "COLUMNS" in given
        with pytest.MonkeyPatch.context() as patch:
            for name, value in given.items():
                patch.setenv(name, value)
            patch.setattr(sys, "argv", ["saga", *words])
            patch.setattr(sys, "stdout", _Stream("|", page, terminal=terminal))
            # A window that moves on a terminal is for PTY; a command that drives shows lines.
            moving = words[:1] in (["submit"], ["resume"], ["cancel"], ["resolve"], ["amend"], ["fork"])
            patch.setattr(sys, "stderr", _Stream("!", page, terminal=terminal and not moving))
            patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"" if stdin is None else stdin.read_bytes())))
            code = run(words)
        return code, page

    def _environment(self, given: dict[str, str]) -> dict[str, str]:
        return {**os.environ, "PYTHONPATH": str(_ROOT), **given}

    def _on_a_terminal(self, words: list[str], given: dict[str, str]) -> tuple[int, list[tuple[str, str]]]:
        import fcntl
        import struct
        import termios

        ours, theirs = pty.openpty()
        columns = int(given.pop("PTY"))
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
        process = subprocess.Popen(
            [sys.executable, "-m", "saga_engine", *words],
            env=self._environment(given),
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
        )
        os.close(theirs)
        pieces: list[bytes] = []
        while True:
            try:
                piece = os.read(ours, 65536)
            except OSError:  # Linux's way to say that nobody writes any more
                break
            if not piece:
                break
            pieces.append(piece)
        os.close(ours)
        screen = Screen(columns)
        screen.feed(self._fixed(b"".join(pieces).decode()).encode())  # before a line is broken in two
        return process.wait(_LIMIT_S), [("|", "\n".join(screen.lines()))]

    def _signalled(
        self, words: list[str], given: dict[str, str], number: signal.Signals, text: str
    ) -> tuple[int, list[tuple[str, str]]]:
        process = subprocess.Popen(
            [sys.executable, "-m", "saga_engine", *words],
            env=self._environment(given),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        assert process.stderr is not None
        assert process.stdout is not None
        ender = threading.Timer(_LIMIT_S, process.kill)
        ender.start()
        said: list[str] = []
        for line in process.stderr:
            said.append(line)
            if text in line:
                break
        process.send_signal(number)
        if number == signal.SIGINT:
            said += _until(process.stderr, "stopping")
        (self._folder / "gate").touch()
        said += process.stderr.readlines()
        out = process.stdout.read()
        code = process.wait()
        ender.cancel()
        return code, [("!", "".join(said)), *([("|", out)] if out else [])]

    # --- what is shown -------------------------------------------------------------------------------------------

    def _shown(self, page: list[tuple[str, str]]) -> list[str]:
        fixed = [(mark, self._fixed(text)) for mark, text in page]
        lines = [
            f"{mark} {line}".rstrip() for mark, text in fixed for line in text.removesuffix("\n").split("\n") if text
        ]
        text = "\n".join(lines)
        text = re.sub(r"\x1b\[([0-9;]*)m", lambda found: _colour(found.group(1)), text)
        return text.split("\n") if text else []

    def _fixed(self, text: str) -> str:
        """The text as it is in every run."""
        text = text.replace(str(self._folder), _FOLDER).replace(str(_ROOT), "/src").replace(__version__, "9.9.9")
        for pattern, fixed in _VOLATILE:
            text = pattern.sub(fixed, text)  # type: ignore[arg-type]
        return text


def _until(lines: Any, text: str) -> list[str]:
    found: list[str] = []
    for line in lines:
        found.append(line)
        if text in line:
            break
    return found


def _colour(code: str) -> str:
    if code in ("", "0"):
        return "⟨/⟩"
    return f"⟨{' '.join(_COLOURS.get(part, 'bold' if part == '1' else part) for part in code.split(';'))}⟩"


def _redirections(words: list[str]) -> tuple[list[str], Path | None, tuple[signal.Signals, str] | None]:
    if "<" in words:
        at = words.index("<")
        return words[:at], Path(words[at + 1]), None
    for word, number in (("@INT", signal.SIGINT), ("@TERM", signal.SIGTERM)):
        if word in words:
            at = words.index(word)
            return words[:at], None, (number, words[at + 1])
    return words, None, None


class Screen:
    """What stands on a terminal in the end: as much of one as rich's live view uses."""

    def __init__(self, columns: int) -> None:
        self._columns = columns
        self._rows: list[list[str]] = [[]]
        self._row = self._column = 0
        self._decode: Callable[[bytes], str] = codecs.getincrementaldecoder("utf-8")().decode
        self._rest = ""

    def feed(self, data: bytes) -> None:
        """Act on what was printed."""
        text = self._rest + self._decode(data)
        self._rest = ""
        at = 0
        while at < len(text):
            found = re.compile(r"\x1b(\[([0-9;?]*)([A-Za-z])|[^\[])").match(text, at)
            if found:
                self._control(found.group(2) or "", found.group(3) or "")
                at = found.end()
            elif text[at] == "\x1b":
                self._rest = text[at:]
                return
            else:
                self._put(text[at])
                at += 1

    def _control(self, arguments: str, letter: str) -> None:
        count = int(arguments) if arguments.isdecimal() else 1
        if letter == "A":
            self._row = max(self._row - count, 0)
        elif letter == "K" and arguments == "2":
            self._rows[self._row] = []

    def _put(self, char: str) -> None:
        if char == "\r":
            self._column = 0
        elif char == "\n":
            self._down()
        else:
            if self._column == self._columns:
                self._down()
                self._column = 0
            row = self._rows[self._row]
            row += " " * (self._column + 1 - len(row))
            row[self._column] = char
            self._column += 1

    def _down(self) -> None:
        self._row += 1
        if self._row == len(self._rows):
            self._rows.append([])

    def lines(self) -> list[str]:
        """The lines, without the empty ones at the end."""
        lines = ["".join(row).rstrip() for row in self._rows]
        while lines and not lines[-1]:
            lines.pop()
        return lines
