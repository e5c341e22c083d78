"""The process of the links' browser test: a server and a worker that ask a chat before they pay.

linked.py FD STORE CHAT_URL
"""

from __future__ import annotations

import asyncio
import socket
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
sys.path.insert(0, str(ROOT))

from saga_engine import Coordinator, tool  # noqa: E402
from saga_engine.hooks.card_hook import CardHook  # noqa: E402
from saga_engine.hooks.links import Links  # noqa: E402
from saga_engine.server.app import create_app  # noqa: E402
from saga_engine.server.listen import serve  # noqa: E402
from saga_engine.server.settings import ServerSettings  # noqa: E402

POLICY = {"default": "allow", "rules": [{"name": "large", "tools": ["pay"], "verdict": "ask"}]}
PLAN = {
    "goal": "<img src=x onerror=window.hacked=1>",
    "steps": [{"step_id": "pay", "tool": "pay", "params": {"amount": 4200, "purpose": "window." * 60}}],
}


@tool(undo="repay")
async def pay(amount: int, purpose: str) -> dict[str, int]:
    """Pay."""
    return {"amount": amount, "said": len(purpose)}


@tool(tolerates_absence=True)
async def repay(amount: int) -> None:
    """Give it back."""


async def main() -> None:
    listening = socket.socket(fileno=int(sys.argv[1]))
    port = listening.getsockname()[1]
    links = Links(f"http://127.0.0.1:{port}", "a-key-of-links-with-more-than-32-signs")
    hook = CardHook(sys.argv[3], "slack", links, to="ops")
    async with Coordinator.open(sys.argv[2], [pay, repay], policy=POLICY, on_escalation=hook) as coordinator:
        working = asyncio.create_task(coordinator.work())
        for saga_id in ("yes", "no"):
            await coordinator.submit(PLAN, saga_id=saga_id, detach=True)
        app = create_app(coordinator, ServerSettings(port=port, links=links))
        try:
            await serve(app, listening, on_started=lambda _: None)
        finally:
            working.cancel()
            await asyncio.wait([working])


if __name__ == "__main__":
    asyncio.run(main())
