"""The world as an MCP server, for the gateway: its call, its inverse, and the question whether a call happened.

It speaks JSON-RPC on stdin and stdout. What goes wrong is what a server can do wrong: an answer that says ``isError``,
none at all, or a process that dies. A fault that kills takes the gateway and its agent (``SCORE_AGENT``) as well.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from world import Refused, World

WHOLE, LISTED = {"resultType": "complete"}, {"ttlMs": 0, "cacheScope": "private"}
INTEGER, TEXT = {"type": "integer"}, {"type": "string"}
REF = {"type": "object", "properties": {"ref": TEXT}, "required": ["ref"]}


def tool(name: str, about: str, params: dict[str, Any], output: dict[str, Any] | None = None) -> dict[str, Any]:
    """A tool as ``tools/list`` has it."""
    schema = {"type": "object", "properties": params, "required": list(params)}
    made = {"name": name, "description": about, "inputSchema": schema}
    return made | ({"outputSchema": output} if output else {})


STEP = {"task": TEXT, "step": INTEGER}
TOOLS = [
    tool("act", "Makes a step's call.", {**STEP, "name": TEXT, "key": TEXT}, REF),
    tool("take_back", "Takes a step back.", STEP),
    tool("happened", "Whether the call with a key happened.", {**STEP, "key": TEXT}),
]


def refused(text: str) -> dict[str, Any]:
    """An answer that says that something went wrong."""
    return {"content": [{"type": "text", "text": text}], "isError": True}


def answer(world: World, name: str, given: dict[str, Any]) -> dict[str, Any] | None:
    """What the server answers; None: nothing."""
    task, step = given["task"], given["step"]
    try:
        if name == "take_back":
            world.undo(task, step)
            return {"content": []}
        if name == "happened":
            if not world.find(given["key"]):
                return refused("no such call")
            found = {"ref": f"{task}/{step}"}
        else:
            found = world.call(task, step, given["name"], given["key"])
    except Refused as error:
        return refused(f"refused: {error}")
    except TimeoutError:
        return None
    except ConnectionError:
        os._exit(1)
    except Exception as error:  # noqa: BLE001 - as servers do with what they did not expect
        return refused(f"{type(error).__name__}: {error}")
    return {"content": [{"type": "text", "text": json.dumps(found)}], "structuredContent": found}


def kill_all() -> None:
    """Kill the gateway, its agent, and this process."""
    for process in (os.getppid(), int(os.environ["SCORE_AGENT"]), os.getpid()):
        os.kill(process, signal.SIGKILL)


def main() -> None:
    """Serves until stdin ends."""
    given = json.loads(Path(sys.argv[1], "run.json").read_text())
    world = World(Path(sys.argv[1], "world.sqlite"), given["seed"], given["rate"], kill=kill_all)
    for line in sys.stdin:
        request = json.loads(line)
        if "id" not in request:
            continue
        if request["method"] == "tools/call":
            found = answer(world, request["params"]["name"], request["params"]["arguments"])
        elif request["method"] == "tools/list":
            found = {"tools": TOOLS, **LISTED}
        else:
            found = {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}, **LISTED}
        if found is not None:
            print(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": {**WHOLE, **found}}), flush=True)


if __name__ == "__main__":
    main()
