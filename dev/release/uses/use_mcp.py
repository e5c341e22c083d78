"""A server made with the SDK: its tool is called, and undone."""

import sys
from pathlib import Path

from desk import STORE, book, go, unbook

from saga_engine import Coordinator
from saga_engine.sources.mcp import McpServer

SERVER = '''
from pathlib import Path

from mcp.server.mcpserver import MCPServer

server = MCPServer("hotel", version="1")


@server.tool()
def hold(room: str) -> dict[str, str]:
    """Hold a room."""
    Path("held").write_text(room)
    return {"room": room}


@server.tool()
def release(room: str) -> dict[str, str]:
    """Release a room."""
    Path("held").unlink()
    return {"room": room}


server.run()
'''
MANIFEST = {"hold": {"undo": "release"}, "release": {"tolerates_absence": True}}
PLAN = {
    "steps": [
        {"step_id": 1, "tool": "hotel.hold", "params": {"room": "7"}},
        {"step_id": 2, "tool": "book", "params": {"item": "hotel"}, "depends_on": [1]},
    ]
}


async def main() -> str:
    Path("server.py").write_text(SERVER)
    hotel = McpServer("hotel", command=[sys.executable, "server.py"], tools=MANIFEST)
    async with Coordinator.open(STORE, [book, unbook], sources=[hotel]) as coordinator:
        outcome = await coordinator.run(PLAN)
    assert outcome.status == "COMPENSATED", outcome
    assert not Path("held").exists()
    return "a tool of a server made with the SDK is called and undone"


go(main)
