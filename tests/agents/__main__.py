"""``python -m tests.agents [NAME …]``: runs the agents of each framework, and prints their versions and what was seen."""

from __future__ import annotations

import asyncio
import datetime as dt
import sys
import tempfile
from pathlib import Path

from tests.agents.clients import FRAMEWORKS, environment, environments, versions
from tests.agents.desk import Desk, fails, is_killed


def main(names: list[str]) -> int:
    """0 if all of them leave nothing behind."""
    bad = 0
    print(f"| framework | versions | a refused call | killed and resumed |  {dt.date.today()}")  # noqa: T201, DTZ011
    for framework in FRAMEWORKS:
        if names and framework.name not in names:
            continue
        python = environment(framework, environments())
        told = ", ".join(f"{name} {version}" for name, version in versions(framework, python).items())
        seen = []
        for way in (fails, is_killed):
            with tempfile.TemporaryDirectory() as folder:
                desk = Desk(Path(folder))
                asyncio.run(desk.accept())
                try:
                    way(desk, python, framework.program)
                    seen.append("nothing is left")
                except AssertionError as error:
                    seen.append(f"FAILED: {str(error)[:2000]}")
                    bad += 1
        print(f"| {framework.name} | {told} | {' | '.join(seen)} |", flush=True)  # noqa: T201
    return bad


if __name__ == "__main__":
    sys.exit(1 if main(sys.argv[1:]) else 0)
