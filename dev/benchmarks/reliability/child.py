"""One process of one system: plays the tasks that have no result yet; the runner starts it again after a SIGKILL.

``python child.py SYSTEM FOLDER``. A task's result is a line of ``results.jsonl``: what the system says of it.
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
import json
import os
import sys
from pathlib import Path
from typing import Any

from world import World


class Run:
    """What a system gets: the tasks that are left, the world, and its own folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        given = json.loads((folder / "run.json").read_text())
        self.name: str = given["name"]
        self.world = World(folder / "world.sqlite", given["seed"], given["rate"])
        self._results = folder / "results.jsonl"
        lines = self._results.read_text().splitlines() if self._results.exists() else []
        done = {json.loads(line)["task"] for line in lines}
        self.tasks = [task for task in given["tasks"] if task["id"] not in done]

    def told(self, task: dict[str, Any], *, goal: bool, named: set[int] | None = None, asked: int = 0) -> None:
        """What a system says at the end of a task: that it is done, else which steps stand, or may."""
        body = {"task": task["id"], "goal": goal, "named": sorted(named or ()), "asked": asked}
        with self._results.open("a") as file:
            file.write(json.dumps(body) + "\n")
            file.flush()
            os.fsync(file.fileno())


def main() -> None:
    """Plays what is left."""
    system, folder = sys.argv[1], Path(sys.argv[2])
    play = importlib.import_module(f"systems.{system}").play
    made = play(Run(folder))
    if inspect.isawaitable(made):

        async def whole() -> None:
            await made

        asyncio.run(whole())


if __name__ == "__main__":
    main()
