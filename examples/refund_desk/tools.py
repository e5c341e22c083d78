"""The tools of the refund desk. Their shop is the SQLite file that ``REFUND_SHOP`` names (``shop.db`` by default)."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any, TypedDict

from saga_engine import ToolError, tool

sys.path.insert(0, str(Path(__file__).parent))
from shop import Refused, Shop


class Line(TypedDict):
    id: str
    item: str
    price: str
    returned: bool


class Order(TypedDict):
    customer: str
    lines: list[Line]


class Refund(TypedDict):
    refund: str


def the_shop() -> Shop:
    """The shop of this process."""
    return Shop(os.environ.get("REFUND_SHOP", "shop.db"))


@tool(effect="read")
def order_get(order: str) -> Order:
    """An order with its customer and its lines. A line that came back is ``returned``."""
    try:
        found = the_shop().order(order)
    except Refused as error:
        raise ToolError(str(error), error_code=error.code, retryable=False) from error
    return {"customer": found["customer"], "lines": found["lines"]}


@tool(undo="refund_void")
def refund_line(order: str, line: str, amount: str, idempotency_key: str) -> Refund:
    """Pay one line of an order back. Returns the reference of the refund."""
    try:
        return {"refund": the_shop().refund(order, line, amount, idempotency_key)}
    except Refused as error:
        raise ToolError(str(error), error_code=error.code, retryable=False) from error


@tool(tolerates_absence=True)
def refund_void(refund: str, idempotency_key: str) -> None:  # noqa: ARG001 - voiding twice is harmless
    """Take a refund back before the bank has it."""
    the_shop().void(refund)


@tool
def send_notice(order: str, status: str, decision: str, refunds: list[Any], idempotency_key: str) -> None:
    """Tell the customer what became of the case."""
    notice = {"order": order, "status": status, "decision": decision, "refunds": len(refunds)}
    the_shop().notify(notice, idempotency_key)
