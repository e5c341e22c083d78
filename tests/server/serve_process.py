"""`saga serve` as a process of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]


class Process:
    """A server's process; its address is what it prints."""

    def __init__(self, folder: Path, *start: str, tools: bool = True) -> None:
        env = {name: value for name, value in os.environ.items() if not name.startswith("SAGA_")}
        env |= {"PYTHONPATH": str(ROOT)}
        command = [sys.executable, *(start or ("-m", "saga_engine")), "serve", "--port", "0"]
        command += ["--tools", f"{ROOT}/tests/server/harness.py:TOOLS"] if tools else []
        self.process = subprocess.Popen(command, cwd=folder, env=env, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.url = self.process.stdout.readline().strip()
        assert self.url.startswith("http://"), "it did not start"

    def end(self, number: signal.Signals) -> int:
        self.process.send_signal(number)
        return self.process.wait(120)
