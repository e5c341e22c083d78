"""Tools that get their guards from ``saga.toml``. What really happened stands in ``world.log`` of the folder."""

from __future__ import annotations

from pathlib import Path

from saga_engine import RetryPolicy, ToolError, tool
from tests.cli.outside_world import ONCE, happened

SOON = RetryPolicy(max_attempts=1, base_s=0.01, max_s=0.01)


@tool(undo="refund", dedupe_ttl_s=3600)
def pay(to: str, amount: int) -> dict:
    happened(f"pay:{to}:{amount}")
    return {"payment": f"{to}-{amount}"}


@tool(retry=ONCE)
def refund(payment: str) -> dict:
    happened(f"refund:{payment}")
    return {"ok": True}


@tool(undo="refund", retry=SOON)
def by_bank(to: str, amount: int) -> dict:
    """The bank can be reached while there is a file 'bank-is-open'."""
    if not Path("bank-is-open").exists():
        raise ToolError("the bank cannot be reached", error_code="bank_closed", retryable=True)
    return pay(to, amount)


@tool(effect="read", retry=SOON, last_good_s=3600)
def rate(currency: str) -> dict:
    if Path("rates-are-down").exists():
        raise ConnectionRefusedError("nobody is there")
    return {"rate": 1.5}
