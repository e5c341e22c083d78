"""The report: a line for each check as it ends, and the same lines in a file."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any


class Failed(Exception):
    """A check that did not hold; its text says what was found."""


def run(
    *command: str | Path,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    expect: int | None = 0,
    timeout_s: float = 900,
) -> subprocess.CompletedProcess[str]:
    """Run a program without the variables of this process that would change what it does.

    ``expect`` is the exit code that it must have; None takes any. Raises ``Failed`` for another one.
    """
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "SAGA_", "VIRTUAL_"))}
    texts = [str(each) for each in command]
    try:
        done = subprocess.run(
            texts,
            cwd=cwd,
            env={**kept, **(env or {})},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired as late:
        raise Failed(f"{' '.join(texts[:6])} did not end within {timeout_s:.0f} s: {late.output!r}") from late
    if expect is not None and done.returncode != expect:
        tail = "\n".join((done.stdout + done.stderr).strip().splitlines()[-25:])
        raise Failed(f"{' '.join(texts[:6])} ended with {done.returncode}, not {expect}:\n{tail}")
    return done


class Report:
    """Counts what held and what did not, and prints it."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.failures = 0

    def check(self, name: str, body: Callable[..., str], *args: Any) -> bool:
        """Run ``body``: the text that it returns is what was found. ``Failed`` counts and does not stop the others."""
        begun = time.monotonic()
        try:
            found, held = body(*args), True
        except Failed as failed:
            found, held = str(failed), False
            self.failures += 1
        self.say(f"{'ok' if held else 'FAILED':<7}{name}: {found} ({time.monotonic() - begun:.1f} s)")
        return held

    def say(self, line: str) -> None:
        """A line that is no check."""
        self.lines.append(line)
        print(line, flush=True)  # noqa: T201 - the output of the program

    def write(self, path: Path, more: Sequence[str] = ()) -> None:
        """All lines, and those in ``more``, into a file."""
        path.write_text("\n".join([*self.lines, *more]) + "\n", encoding="utf-8")
