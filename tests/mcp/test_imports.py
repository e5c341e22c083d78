"""Where the SDK is imported."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.mcp.servers import World

PROGRAM = """
import asyncio, json, sys, threading

class Watch:
    def find_spec(self, name, path=None, target=None):
        if name.startswith("mcp."):  # "mcp" itself may only be looked for
            seen.add("loop" if threading.current_thread() is threading.main_thread() else "thread")

seen = set()
sys.meta_path.insert(0, Watch())

from saga_engine.sources.mcp import McpServer

async def main():
    server = McpServer("inn", command=json.loads(sys.argv[1]))
    assert await server.listed()
    await server.close()

asyncio.run(main())
print(*seen)
"""


def test_the_sdk_is_not_imported_on_the_event_loop(tmp_path: Path) -> None:
    """The first call of a process loads the SDK in a thread: the lease is renewed meanwhile, so no doubt arises."""
    command = [sys.executable, "-c", PROGRAM, json.dumps(World(tmp_path).command())]
    ended = subprocess.run(command, check=True, capture_output=True, text=True)
    assert ended.stdout.split() == ["thread"]
