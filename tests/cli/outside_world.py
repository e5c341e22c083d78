"""Tools of the command line's tests. They write what really happened into ``world.log`` of the folder they run in."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from saga_engine import RetryPolicy, ToolError, tool

ONCE = RetryPolicy(max_attempts=1)


def happened(what: str) -> None:
    with Path("world.log").open("a") as log:
        log.write(what + "\n")


@tool(undo="unbook")
def book(item: str) -> dict:
    happened(f"book:{item}")
    return {"ref": item}


@tool(retry=ONCE)
def unbook(ref: str) -> dict:
    if Path("undo-is-broken").exists():
        raise ToolError("the office is closed", error_code="closed", retryable=False)
    happened(f"unbook:{ref}")
    return {"ok": True}


@tool(undo="unbook", retry=ONCE)
def fail(message: str = "no rooms") -> dict:
    raise ToolError(message, error_code="full", suggestion="try another day")


@tool(undo="unbook", retry=ONCE)
def vanish(item: str) -> dict:
    """The request goes out and the answer is lost."""
    happened(f"vanish:{item}")
    raise ConnectionError("the line is dead")


@tool(undo="unbook", timeout_s=600)
def block(item: str) -> dict:
    """Say 'begun' through one pipe, then wait at the gate of the other."""
    happened(f"begun:{item}")
    with Path("begun").open("w") as begun:
        begun.write("begun")
    with Path("gate").open() as gate:
        gate.read()
    happened(f"ended:{item}")
    return {"ref": item}


@tool(undo="unbook")
def noisy(item: str) -> dict:
    """Prints, and has a child that prints."""
    sys.stdout.write("NOISE of the tool\n")
    subprocess.run(["echo", "NOISE of a child"], check=True)
    return {"ref": item}
