"""What tests of questions, waits and conditions share: a shop that refunds orders, and steps of plans for it."""

from __future__ import annotations

from typing import Any

from tests.plan.catalog import NUMBER, TEXT, Catalog, closed, declare
from tests.planner.scenes import step

ITEM = closed(["sku", "price"], sku=TEXT, price={"type": "number"})
ORDER = closed(
    ["state", "lines", "day"],
    state={"type": "string", "enum": ["open", "paid"]},
    lines={"type": "array", "items": ITEM},
    day=TEXT,
)
SHOP = Catalog(
    declare("orders.get", closed(["order"], order=TEXT), effect="read", output_schema=ORDER),
    declare("stock.reserve", closed(["sku"], sku=TEXT), undo="stock.release", output_schema=closed(["id"], id=TEXT)),
    declare("stock.release", closed(["id"], id=TEXT), tolerates_absence=True),
    declare("bank.refund", closed(["amount"], amount=NUMBER)),
    declare("mail.send", closed(["to", "text"], to=TEXT, text=TEXT)),
)
GOAL = "Refund order o-7 if the customer agrees, and tell a@b.example."
ALL = ("ask", "wait", "sleep", "on_error", "irreversible", "each", "finally")
GET = step("get", "orders.get", {"order": "o-7"})
RESERVE = step("keep", "stock.reserve", {"sku": "o-7"})
REFUND = step("refund", "bank.refund", {"amount": 5}, kind="pivot")
REFUSED = [{"value": "$output.step_sure.answer", "op": "==", "to": "no"}]
AGREED = [{"value": "$output.step_sure.answer", "op": "==", "to": "yes"}]


def compared(value: Any, to: Any, op: str = "==") -> list[dict[str, Any]]:
    return [{"value": value, "op": op, "to": to}]
