"""Tools that get stuck, for sagas in this process and in others: what they do is a line in the file ``STUCK_WORLD``."""

from __future__ import annotations

import os
from pathlib import Path

from saga_engine import RetryPolicy, ToolError, tool

ONCE = RetryPolicy(max_attempts=1)
#: What a tweet returns beside its id: a text from outside.
NOTE = "STUCK_NOTE"


def did(line: str) -> None:
    with Path(os.environ["STUCK_WORLD"]).open("a", encoding="utf-8") as world:
        world.write(line + "\n")


@tool(undo="unbook", retry=ONCE)
async def book(what: str, idempotency_key: str) -> dict:
    """Book something. Returns its ref."""
    if what == "Hilton":
        raise ToolError("the Hilton is full", error_code="sold_out", suggestion="try another hotel")
    did(f"book {what}")
    return {"ref": f"R-{what}"}


@tool(retry=ONCE)
async def unbook(ref: str, idempotency_key: str) -> dict:
    """Cancel what was booked."""
    if ref == "R-ferry":
        raise ToolError("the ferry has left", error_code="too_late", retryable=False)
    did(f"unbook {ref}")
    return {}


@tool(retry=ONCE, semantic="approve")
async def tweet(text: str) -> dict:
    """Tell the world. It cannot be taken back."""
    did(f"tweet {text}")
    return {"id": 7, "note": os.environ.get(NOTE, "")}


@tool(retry=ONCE, compensates=True)
async def apologise(to: str, text: str = "sorry", idempotency_key: str = "") -> dict:
    """Say sorry to somebody."""
    did(f"apologise {to}")
    return {}


@tool(retry=ONCE, undo="wire_back")
async def wire(amount: int) -> dict:
    """Send money away."""
    did(f"wire {amount}")
    return {"ref": "W-1"}


@tool(retry=ONCE)
async def wire_back(ref: str) -> dict:
    """Ask for money back."""
    did(f"wire_back {ref}")
    return {}


TOOLS = [book, unbook, tweet, apologise, wire, wire_back]
