"""Pages that are followed from top to bottom in one folder: their files are written, their commands run.

A block whose fence names a file (``python tools.py``) is that file from there on. A block ``console run`` holds commands
with what they print; ``console run 3`` says that the last of them ends with 3. A command is ``saga …`` or one of
``PROGRAMS``, after values of the environment. What a killed process had printed by then is as it was accepted. In a
block ``console serve`` each command runs in a terminal of its own until the page ends, and what it prints is not shown.
The ports 8000 and 8001 of a page are free ones when it is run. A Chinese page shows the blocks of its English twin, which is the
one that is run.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Self

from tests.docs.pages import PAGES, ROOT
from tests.support.forker import run_python
from tests.support.ports import free_ports

_BLOCK = re.compile(
    r"^```(?:\w+ (?P<file>[\w./-]+\.\w+)|console (?:(?P<serve>serve)|run(?: (?P<code>-?\d+))?))\n(?P<body>.*?)^```$",
    re.DOTALL | re.MULTILINE,
)
#: What differs from one run to the next: times, durations, seeds; and the widths of columns with them.
_VARIES = (
    (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[+:\d]*", "T"),
    (r"\b\d\d:\d\d:\d\d\b", "T"),
    (r"\d[\d.,]* (?:ms|s|min)\b(?: \d[\d.,]* (?:ms|s)\b)?(?: ago)?", "D"),
    (r"\bin \d+\.\d\ds\b(?: \(\d+:\d\d:\d\d\))?", "D"),
    (r"\b[0-9a-f]{16,}(?:…|\b)|(?<=#)[0-9a-f]{8}\b", "H"),
    (r"  +", " "),
    (r" +$", ""),
)
#: What a page may run beside ``saga``.
PROGRAMS = {
    "python": [sys.executable],
    "pytest": [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:asyncio"],
    "uvicorn": [sys.executable, "-m", "uvicorn"],
    "curl": ["curl", "--max-time", "600"],
}
PORTS = ("8000", "8001")


def followed() -> list[Path]:
    """The English pages with such blocks."""
    pages = [page for page in PAGES if not page.name.endswith(".zh.md")]
    return [page for page in pages if "```console run" in page.read_text(encoding="utf-8")]


def fences(page: Path) -> list[str]:
    """The blocks of a page that are files or commands."""
    return [block[0] for block in _BLOCK.finditer(page.read_text(encoding="utf-8"))]


def alike(text: str) -> str:
    """What is printed, without what differs from one run to the next."""
    for pattern, word in _VARIES:
        text = re.sub(pattern, word, text, flags=re.MULTILINE)
    return text


class Walk:
    """One reader, in an empty folder, with as many terminals as the page needs."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._ports = _free_ports()
        self._serving: list[tuple[str, subprocess.Popen[bytes]]] = []
        self.ends: list[str] = []

    def __enter__(self) -> Self:
        # Whatever a shell starts in the background ignores Ctrl-C, and so would our servers.
        self._interrupt = signal.signal(signal.SIGINT, signal.default_int_handler)
        return self

    def __exit__(self, *_: object) -> None:
        """Ctrl-C in every terminal, the last one first."""
        for command, process in reversed(self._serving):
            process.send_signal(signal.SIGINT)
            code = process.wait()
            if code not in (0, 130):
                said = (self._folder / f"terminal-{process.pid}.log").read_text(encoding="utf-8")
                self.ends.append(f"{command}: ended with {code}\n{said}")
        self._serving.clear()
        signal.signal(signal.SIGINT, self._interrupt)

    def follow(self, text: str) -> str:
        """The page with what its commands printed now; where that is alike, the page stays as it is."""
        return _BLOCK.sub(self._block, text)

    def _block(self, block: re.Match[str]) -> str:
        if block["file"]:
            path = self._folder / block["file"]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(_replaced(block["body"], self._ports), encoding="utf-8")
            return block[0]
        if block["serve"]:
            for command, _ in _commands(block["body"]):
                self._serve(command)
            return block[0]
        shown, code = [], 0
        for command, printed in _commands(block["body"]):
            code, found = self._run(command)
            shown.append(f"$ {command}\n{printed if code < 0 or alike(printed) == alike(found) else found}")
        if code != int(block["code"] or 0):
            self.ends.append(f"{command}: ended with {code}, and the page says {block['code'] or 0}\n{found}")
        return block[0].replace(block["body"], "".join(shown), 1) if shown else block[0]

    def _words(self, command: str) -> tuple[list[str], dict[str, str]]:
        """The command with the port of this walk, and its environment."""
        words = shlex.split(_replaced(command, self._ports))
        given = {}
        while "=" in words[0]:
            name, _, value = words.pop(0).partition("=")
            given[name] = value
        env = {name: value for name, value in os.environ.items() if not name.startswith(("SAGA_", "PYTEST_ADD"))}
        return words, env | {"PYTHONPATH": str(ROOT), "NO_COLOR": "1", "USER": "ada", **given}

    def _run(self, command: str) -> tuple[int, str]:
        words, env = self._words(command)
        quiet = words[-1] == "2>/dev/null"
        if quiet:
            words.pop()
        if words[0] == "saga":
            code, out, err = run_python("-m", "saga_engine", *words[1:], cwd=self._folder, env=env)
        else:
            ran = subprocess.run(
                [*PROGRAMS[words[0]], *words[1:]],
                cwd=self._folder, env=env, capture_output=True, text=True, check=False, timeout=600,
            )  # fmt: skip
            code, out, err = ran.returncode, ran.stdout, ran.stderr
        printed = _replaced(out if quiet else err + out, {there: here for here, there in self._ports.items()})
        return code, printed if not printed or printed.endswith("\n") else printed + "\n"

    def _serve(self, command: str) -> None:
        words, env = self._words(command)
        program = [sys.executable, "-m", "saga_engine"] if words[0] == "saga" else PROGRAMS[words[0]]
        with (self._folder / "terminal.log").open("wb") as log:
            process = subprocess.Popen([*program, *words[1:]], cwd=self._folder, env=env, stdout=log, stderr=log)
        (self._folder / "terminal.log").rename(self._folder / f"terminal-{process.pid}.log")
        self._serving.append((command, process))
        for port in (word for word in words if word in self._ports.values()):
            while process.poll() is None and not _answers(int(port)):
                time.sleep(0.05)


def programs_missing(page: Path) -> list[str]:
    """What the page runs and this machine does not have."""
    used = {word for block in fences(page) for word in re.findall(r"^\$ (\w+)", block, re.MULTILINE)}
    return sorted(name for name in used & set(PROGRAMS) if shutil.which(PROGRAMS[name][0]) is None)


def _free_ports() -> dict[str, str]:
    return {port: str(free) for port, free in zip(PORTS, free_ports(len(PORTS)), strict=True)}


def _replaced(text: str, ports: dict[str, str]) -> str:
    return re.sub(rf"\b(?:{'|'.join(ports)})\b", lambda found: ports[found[0]], text)


def _answers(port: int) -> bool:
    with contextlib.suppress(ConnectionRefusedError), socket.create_connection(("127.0.0.1", port)):
        return True
    return False


def _commands(body: str) -> Iterator[tuple[str, str]]:
    for part in re.split(r"^\$ ", body, flags=re.MULTILINE)[1:]:
        command, _, printed = part.partition("\n")
        yield command, printed
