"""No extra: every public name, the command, the error that names the missing extra, and a saga on a Redis server."""

import json
import subprocess
from pathlib import Path

from desk import BIN, PLAN, STORE, book, go, unbook, undone

import saga_engine
from saga_engine import Coordinator


def saga(*words: str, expect: int) -> str:
    done = subprocess.run([BIN / "saga", *words], capture_output=True, text=True, check=False)
    assert done.returncode == expect, done.stdout + done.stderr
    return done.stdout


async def main() -> str:
    assert all(getattr(saga_engine, name) is not None for name in saga_engine.__all__)
    assert saga_engine.__version__ in saga("--version", expect=0)
    Path("plan.json").write_text(json.dumps(PLAN))
    Path("tools.py").write_text("from desk import book, unbook\n")
    saga("check", "plan.json", "--tools", "tools.py", expect=0)
    error = json.loads(saga("submit", "plan.json", "--tools", "tools.py", "--json", expect=1))["error"]
    assert "pip install 'saga-engine[embedded]'" in error["hint"], error
    async with Coordinator.open(STORE, [book, unbook]) as coordinator:
        await undone(coordinator, "base")
    body = json.loads(saga("show", "base", "--store", STORE, "--json", expect=3))
    assert body["status"] == "COMPENSATED"
    return (
        f"{len(saga_engine.__all__)} names, the command, the error names [embedded], a saga on redis-server is undone"
    )


go(main)
