"""The tools that every door is tried with. They write what reaches them into files of the working directory."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from saga_engine import ToolError, tool

LEDGER = Path("ledger.jsonl")
#: While one of these files is there, a payment's answer is lost after it was made, or its tool raises then what says nothing.
LOSES_ANSWERS = Path("loses-answers")
RAISES = Path("raises")
#: While it is there, a refund says that it was made, and is none.
LIES = Path("lies")


def ledger() -> list[dict[str, Any]]:
    """What reached the tools, in its order."""
    return [json.loads(line) for line in LEDGER.read_text().splitlines()] if LEDGER.exists() else []


def _note(**entry: Any) -> None:
    with LEDGER.open("a") as file:
        file.write(json.dumps(entry) + "\n")


@tool(undo="refund", sensitive=["card"])
def pay(amount: int, card: str, idempotency_key: str) -> dict[str, str]:
    """Pay."""
    _note(tool="pay", amount=amount, card=card, key=idempotency_key)
    if LOSES_ANSWERS.exists():
        raise ConnectionResetError("the line is dead")
    if RAISES.exists():
        raise RuntimeError("the upstream broke")
    return {"payment": f"P{amount}"}


@tool(effect="read")
def refunded(payment: str) -> dict[str, bool] | None:
    """Whether a payment was refunded."""
    return {"refunded": True} if any(entry.get("payment") == payment for entry in ledger()) else None


@tool(probe=refunded)
def refund(payment: str, idempotency_key: str) -> None:
    """Refund."""
    if LIES.exists():
        return
    _note(tool="refund", payment=payment, key=idempotency_key)


@tool(undo="refund", sensitive=["card"])
def wire(amount: int, card: str, idempotency_key: str) -> dict[str, str]:
    """Pay by another bank, which takes no orders today."""
    raise ToolError("closed today", error_code="closed", retryable=False)


@tool(effect="read")
def look() -> str:
    """Look."""
    return "seen"


@tool(effect="read")
def balance() -> dict[str, int]:
    """What is left."""
    return {"left": 100 - len(ledger())}


TOOLS = [pay, refund, wire, look, balance]
