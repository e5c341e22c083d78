"""How far one has to walk to read what the engine does: ``python -m benchmarks.walks``.

Three walks are taken at run time, on a store in memory, with tools that are coroutines:

- *step*: from a tool's answer to the next tool's call,
- *submission*: from ``Coordinator.run`` with a plan that the process has not seen to its first call,
- *event*: from ``Coordinator.send_event`` to the end of the saga that waits for it.

For each it says how many files of the package the walk enters and how many of its functions it calls: the least of a
few walks, because now and then something happens by the clock alone. Then the package's lines, by room. The figures say
nothing of speed: they count what a reader has to hold in the head.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any, Final

import saga_engine
from saga_engine import Coordinator, SagaError, tool

#: How often each walk is taken.
TIMES: Final = 4
PACKAGE: Final = Path(saga_engine.__file__).parent


class Walk:
    """Counts calls of the package's functions, by file, while it is on."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()

    def begin(self) -> None:
        """Count from here."""
        self.calls.clear()
        sys.setprofile(self._see)

    def end(self) -> None:
        """Count no more."""
        sys.setprofile(None)

    def _see(self, frame: FrameType, event: str, _arg: Any) -> None:
        name = frame.f_code.co_filename
        if event == "call" and name.startswith(f"{PACKAGE}/"):
            self.calls[name.removeprefix(f"{PACKAGE}/")] += 1

    def figures(self) -> dict[str, int]:
        """Files entered, and calls."""
        return {"files": len(self.calls), "calls": sum(self.calls.values())}


WALK: Final = Walk()


@tool(effect="read")
async def first() -> dict[str, int]:
    """Its call ends the walk of a submission, its answer begins that of a step."""
    WALK.end()
    return {"n": 1}


@tool(effect="read")
async def answers(n: int) -> dict[str, int]:
    """The walk of a step begins with its answer."""
    WALK.begin()
    return {"n": n}


@tool(effect="read")
async def called(n: int) -> dict[str, int]:
    """The walk of a step ends with its call."""
    WALK.end()
    return {"n": n}


async def _waiting(coordinator: Coordinator, saga_id: str) -> None:
    async with asyncio.timeout(30):
        while True:
            try:
                await coordinator.require_waiting(saga_id, 1)
            except SagaError:
                await asyncio.sleep(0)
            else:
                return


async def walks() -> dict[str, dict[str, int]]:
    """The three walks. What a process does once is done, but for the plan of the submission."""
    found: dict[str, list[dict[str, int]]] = {"submission": [], "step": [], "event": []}
    async with Coordinator.open("memory://walks", [first, answers, called], settings=None) as coordinator:
        for number in range(TIMES):
            # (Another text makes another plan.)
            plan = {"goal": f"the walk {number}", "steps": [{"step_id": 1, "tool": "first"}]}
            WALK.begin()
            await coordinator.run(plan)
            found["submission"].append(WALK.figures())

            steps = [
                {"step_id": 1, "tool": "answers", "params": {"n": 1}},
                {"step_id": 2, "tool": "called", "params": {"n": "$output.step_1.n"}},
            ]
            await coordinator.run({"steps": steps})
            found["step"].append(WALK.figures())

            handle = await coordinator.submit({"steps": [{"step_id": 1, "wait": {"event": f"paid-{number}"}}]})
            await _waiting(coordinator, handle.saga_id)
            WALK.begin()
            await coordinator.send_event(f"paid-{number}", handle.saga_id, {})
            await coordinator.wait(handle.saga_id)
            WALK.end()
            found["event"].append(WALK.figures())
    return {name: min(taken, key=lambda figures: (figures["files"], figures["calls"])) for name, taken in found.items()}


def lines() -> dict[str, int]:
    """Lines of Python and of Lua by room, and in all."""
    found: Counter[str] = Counter()
    for path in PACKAGE.rglob("*"):
        if path.suffix in {".py", ".lua"}:
            parts = path.relative_to(PACKAGE).parts
            found[parts[0] if len(parts) > 1 else "."] += path.read_text(encoding="utf-8").count("\n")
    return {"all": found.total(), **dict(found.most_common())}


def main() -> None:
    """Print the figures, as a table or as JSON."""
    parser = argparse.ArgumentParser(description="Count files and calls of three walks through the package.")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    taken, counted = asyncio.run(walks()), lines()
    if options.json:
        sys.stdout.write(f"{json.dumps({'walks': taken, 'lines': counted})}\n")
        return
    for name, walk in taken.items():
        sys.stdout.write(f"{name:12s} {walk['files']:4d} files {walk['calls']:6d} calls\n")
    for name, count in counted.items():
        sys.stdout.write(f"{name:12s} {count:7d} lines\n")


if __name__ == "__main__":
    main()
