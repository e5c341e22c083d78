"""Pages that are followed from top to bottom in one folder: their files are written, their commands run.

A block whose fence names a file (``python tools.py``) is that file from there on. A block ``console run`` holds commands
with what they print; ``console run 3`` says that the last of them ends with 3. A command is ``saga …`` or
``python FILE …``, after values of the environment. What a killed process had printed by then is as it was accepted.
A Chinese page shows the blocks of its English twin, which is the one that is run.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.docs.pages import PAGES, ROOT
from tests.forker import run_python

_BLOCK = re.compile(
    r"^```(?:\w+ (?P<file>[\w./-]+\.\w+)|console run(?: (?P<code>-?\d+))?)\n(?P<body>.*?)^```$",
    re.DOTALL | re.MULTILINE,
)
#: What differs from one run to the next: times, durations, seeds; and the widths of columns with them.
_VARIES = (
    (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[+:\d]*", "T"),
    (r"\b\d\d:\d\d:\d\d\b", "T"),
    (r"\d[\d.,]* (?:ms|s|min)\b(?: \d[\d.,]* (?:ms|s)\b)?(?: ago)?", "D"),
    (r"\b[0-9a-f]{16,}(?:…|\b)", "H"),
    (r"  +", " "),
    (r" +$", ""),
)


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
    """One reader, in an empty folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.ends: list[str] = []

    def follow(self, text: str) -> str:
        """The page with what its commands printed now; where that is alike, the page stays as it is."""
        return _BLOCK.sub(self._block, text)

    def _block(self, block: re.Match[str]) -> str:
        if block["file"]:
            path = self._folder / block["file"]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block["body"], encoding="utf-8")
            return block[0]
        shown, code = [], 0
        for command, printed in _commands(block["body"]):
            code, found = self._run(command)
            shown.append(f"$ {command}\n{printed if code < 0 or alike(printed) == alike(found) else found}")
        if code != int(block["code"] or 0):
            self.ends.append(f"{command}: ended with {code}, and the page says {block['code'] or 0}\n{found}")
        return block[0].replace(block["body"], "".join(shown), 1) if shown else block[0]

    def _run(self, command: str) -> tuple[int, str]:
        words = shlex.split(command)
        given = {}
        while "=" in words[0]:
            name, _, value = words.pop(0).partition("=")
            given[name] = value
        env = {name: value for name, value in os.environ.items() if not name.startswith("SAGA_")}
        env |= {"PYTHONPATH": str(ROOT), "NO_COLOR": "1", **given}
        if words[0] == "saga":
            code, out, err = run_python("-m", "saga_engine", *words[1:], cwd=self._folder, env=env)
        else:
            ran = subprocess.run(
                [{"python": sys.executable}[words[0]], *words[1:]],
                cwd=self._folder, env=env, capture_output=True, text=True, check=False,
            )  # fmt: skip
            code, out, err = ran.returncode, ran.stdout, ran.stderr
        printed = err + out
        return code, printed if not printed or printed.endswith("\n") else printed + "\n"


def _commands(body: str) -> Iterator[tuple[str, str]]:
    for part in re.split(r"^\$ ", body, flags=re.MULTILINE)[1:]:
        command, _, printed = part.partition("\n")
        yield command, printed
