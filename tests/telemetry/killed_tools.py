"""Tools of the workers that tests/telemetry/test_killed.py kills: calls that say that they have begun, and stay."""

from __future__ import annotations

from pathlib import Path

from saga_engine import ToolError, tool


@tool(undo="cancel")
def book(item: str, idempotency_key: str) -> dict[str, str]:
    """Stays for ever if a file says so; whoever reads the fifo knows that it has begun."""
    if Path(f"stay-{item}").exists():
        Path("begun").write_text(item)
        Path("never").read_text()
    return {"ref": item}


@tool
def cancel(ref: str, idempotency_key: str) -> None:
    """Undoes a booking."""


@tool(undo="cancel")
def full(item: str) -> dict[str, str]:
    """Is full."""
    raise ToolError("no room", error_code="full", retryable=False)


TOOLS = [book, cancel, full]
