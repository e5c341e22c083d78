"""What one has to read to know what the engine does: ``python -m dev.benchmarks.reading``.

Three walks are taken at run time, on a store in memory, with tools that are coroutines:

- *step*: from a tool's answer to the next tool's call,
- *submission*: from ``Coordinator.run`` with a plan that the process has not seen to its first call,
- *event*: from ``Coordinator.send_event`` to the end of the saga that waits for it.

For each it says how many files of the package the walk enters and how many of its functions it calls: the least of a
few walks, because now and then something happens by the clock alone. Then what the whole is made of (``parts``), and
the package's lines, by room. The figures say nothing of speed: they count what a reader has to hold in the head.
"""

from __future__ import annotations

import argparse
import ast
import asyncio
import inspect
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any, Final

import saga_engine
from saga_engine import Coordinator, SagaError, tool
from saga_engine.core.records import AnyRecord
from saga_engine.core.state import State
from saga_engine.core.state_values import StepState
from saga_engine.tools.options import ToolOptions

#: How often each walk is taken.
TIMES: Final = 8
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

    def figures(self) -> dict[str, Any]:
        """Files entered, and calls."""
        return {"files": len(self.calls), "calls": sum(self.calls.values()), "entered": sorted(self.calls)}


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


async def walks() -> dict[str, dict[str, Any]]:
    """The three walks. What a process does once is done, but for the plan of the submission."""
    found: dict[str, list[dict[str, Any]]] = {"submission": [], "step": [], "event": []}
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


#: The protocols that a store implements.
STORE_PORTS: Final = ("documents", "ended", "events", "guards", "queue", "seals", "store", "values")
#: The rooms that every saga runs through, whatever its plan has.
COMMON_ROOMS: Final = ("core", "runtime", "stores", "tools", "api", "ports", "execution")


def _trees(*folders: str) -> Iterator[ast.Module]:
    for folder in folders:
        for path in sorted((PACKAGE / folder).rglob("*.py")):
            yield ast.parse(path.read_text(encoding="utf-8"))


def _functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def _statements(*folders: str) -> int:
    """Statements within functions; those of a function within another count once."""
    return sum(
        len({id(each) for made in _functions(tree) for each in ast.walk(made) if isinstance(each, ast.stmt)})
        for tree in _trees(*folders)
    )


def _verbs() -> int:
    """Methods of the protocols that a store implements."""
    found: set[str] = set()
    for name in STORE_PORTS:
        tree = ast.parse((PACKAGE / "ports" / f"{name}.py").read_text(encoding="utf-8"))
        for made in ast.walk(tree):
            if isinstance(made, ast.ClassDef) and any(ast.unparse(base) == "Protocol" for base in made.bases):
                found |= {f"{made.name}.{each.name}" for each in made.body if isinstance(each, ast.AsyncFunctionDef)}
    return len(found)


def _modules(statement: str) -> int:
    """Modules of the package that a new process has loaded after this."""
    code = f"{statement}; import sys; print(sum(name.startswith('saga_engine') for name in sys.modules))"
    return int(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout)


def parts() -> dict[str, int]:
    """What the whole is made of."""
    return {
        "slots of State": len(State.__slots__) - 1,
        "fields of StepState": len(inspect.signature(StepState).parameters),
        "kinds of records": len(AnyRecord.__args__),
        "options of @tool": len(ToolOptions.__annotations__),
        "params of Coordinator.open": len(inspect.signature(Coordinator.open).parameters),
        "verbs of a store": _verbs(),
        "modules that Coordinator loads": _modules("from saga_engine import Coordinator; Coordinator.open"),
        "statements in the rooms of every saga": _statements(*COMMON_ROOMS),
    }


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
    taken, made_of, counted = asyncio.run(walks()), parts(), lines()
    if options.json:
        sys.stdout.write(f"{json.dumps({'walks': taken, 'parts': made_of, 'lines': counted})}\n")
        return
    for name, walk in taken.items():
        sys.stdout.write(f"{name:12s} {walk['files']:4d} files {walk['calls']:6d} calls\n")
    for name, count in made_of.items():
        sys.stdout.write(f"{count:6d} {name}\n")
    for name, count in counted.items():
        sys.stdout.write(f"{name:12s} {count:7d} lines\n")


if __name__ == "__main__":
    main()
