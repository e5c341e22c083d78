"""An MCP server made with the official SDK: tickets in a file. ``tickets_server.py FILE`` serves on stdio.

Its tools are those of the evals (``parts_world``): real processes, whose state is looked at after a run.
"""

import json
import sys
from pathlib import Path

from mcp.server.mcpserver import MCPServer

FILE = Path(sys.argv[1])
server = MCPServer("tickets", version="1")


def tickets() -> dict[str, dict[str, str]]:
    """All tickets by id."""
    found: dict[str, dict[str, str]] = json.loads(FILE.read_text())
    return found


def _write(found: dict[str, dict[str, str]]) -> None:
    FILE.write_text(json.dumps(found))


@server.tool()
def list_tickets(project: str) -> dict[str, object]:
    """The tickets of a project."""
    return {"tickets": [{"ticket": key, **each} for key, each in tickets().items() if each["project"] == project]}


@server.tool()
def get_ticket(ticket: str) -> dict[str, str]:
    """One ticket."""
    return {"ticket": ticket, **tickets()[ticket]}


@server.tool()
def open_ticket(project: str, title: str) -> dict[str, str]:
    """Open a ticket in a project. Its priority is normal."""
    found = tickets()
    key = f"T-{len(found) + 1}"
    _write({**found, key: {"project": project, "title": title, "priority": "normal"}})
    return {"ticket": key}


@server.tool()
def close_ticket(ticket: str) -> dict[str, str]:
    """Close a ticket: it is not there any more."""
    _write({key: each for key, each in tickets().items() if key != ticket})
    return {"closed": ticket}


@server.tool()
def set_priority(ticket: str, priority: str) -> dict[str, str]:
    """Set the priority of a ticket: low, normal or high."""
    found = tickets()
    if priority not in ("low", "normal", "high"):
        raise ValueError("priority is low, normal or high")
    found[ticket]["priority"] = priority
    _write(found)
    return {"ticket": ticket, "priority": priority}


if __name__ == "__main__":
    server.run()
