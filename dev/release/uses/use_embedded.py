"""The private server: a saga is undone, and another process reads it."""

import json
import subprocess

from desk import BIN, book, go, unbook, undone

from saga_engine import Coordinator


async def main() -> str:
    async with Coordinator.open(tools=[book, unbook]) as coordinator:
        await undone(coordinator, "s")
    done = subprocess.run([BIN / "saga", "show", "s", "--json"], capture_output=True, text=True, check=False)
    assert json.loads(done.stdout)["status"] == "COMPENSATED"
    return "a saga on the private server is undone, and another process reads it"


go(main)
