"""The processes of the browser's tests: a server on a socket that its parent holds, or a worker, with the booking tools.

served.py serve FD STORE
served.py work STORE
"""

from __future__ import annotations

import asyncio
import socket
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
sys.path[:0] = [str(ROOT), str(ROOT / "examples/booking")]

from saga_engine import Coordinator, ToolError, tool  # noqa: E402
from saga_engine.server.app import create_app  # noqa: E402
from saga_engine.server.listen import serve  # noqa: E402
from saga_engine.server.settings import ServerSettings  # noqa: E402

POLICY = {
    "default": "allow",
    "rules": [
        {"name": "large", "tools": ["pay"], "when": [{"param": "amount", "op": ">", "value": 1000}], "verdict": "ask"}
    ],
}


@tool(undo="unecho")
async def echo(text: str) -> dict[str, str]:
    """Say what was said."""
    return {"said": text}


@tool(tolerates_absence=True)
async def unecho(said: str) -> None:
    """Take it back."""


@tool(effect="read")
async def fail(text: str) -> None:
    """Fail with what was said."""
    raise ToolError(text, error_code="failed<b>", retryable=False, suggestion=text)


async def main() -> None:
    import tools

    async with Coordinator.open(
        sys.argv[-1], [tools, echo, unecho, fail], policy=POLICY, on_escalation=(), lease_s=5.0
    ) as coordinator:
        if sys.argv[1] == "work":
            sys.stdout.write("works\n")
            sys.stdout.flush()
            await coordinator.work()
            return
        listening = socket.socket(fileno=int(sys.argv[2]))
        port = listening.getsockname()[1]
        app = create_app(coordinator, ServerSettings(port=port, auth="none"))

        def told(_: object) -> None:
            sys.stdout.write("serves\n")
            sys.stdout.flush()

        await serve(app, listening, on_started=told)


if __name__ == "__main__":
    asyncio.run(main())
