"""One plan with every kind and option of a step, and its tools. They are also a file for ``--tools``."""

from __future__ import annotations

from typing import Any

from saga_engine import ToolError, tool

PRICES: dict[str, str] = {}
CARDS: list[str] = []


@tool(effect="read", last_good_s=60)
def read_order(order: str) -> dict:
    lines = [{"sku": "A1", "price": "12.50", "due": "2026-03-01"}, {"sku": "B2", "price": "99.90", "due": "2026-03-02"}]
    return {"id": order, "lines": lines, "vip": True}


@tool(effect="read")
def read_price(sku: str) -> dict:
    if sku not in PRICES:
        raise ToolError(f"no price for {sku}", error_code="not_found", retryable=False)
    return {"price": PRICES[sku]}


@tool(
    before=read_price, absent={"error_code": "not_found"}, sole_writer=True, undo="set_price", undo_absent="drop_price"
)
def set_price(sku: str, price: str, idempotency_key: str) -> dict:
    PRICES[sku] = price
    return {"ok": True}


@tool(tolerates_absence=True)
def drop_price(sku: str, idempotency_key: str) -> dict:
    PRICES.pop(sku, None)
    return {"ok": True}


@tool(undo="free")
def reserve(sku: str, idempotency_key: str) -> dict:
    return {"ref": f"r-{sku}", "parts": [{"part": f"{sku}-1"}, {"part": f"{sku}-2"}]}


@tool(tolerates_absence=True)
def free(ref: str, idempotency_key: str) -> dict:
    return {"freed": ref}


@tool(tolerates_absence=True)
def free_part(part: str, idempotency_key: str) -> dict:
    return {"freed": part}


@tool
def send(text: str, idempotency_key: str) -> dict:
    return {"sent": text}


@tool
def charge(amount: str, idempotency_key: str) -> dict:
    if CARDS:
        raise ToolError("the card was refused", error_code="refused", retryable=False)
    return {"charged": amount}


TOOLS = [read_order, read_price, set_price, drop_price, reserve, free, free_part, send, charge]
RETRY = {"max_attempts": 2, "base_s": 0.001, "max_s": 0.001, "jitter": False}
VIP = {"value": "$output.step_order.vip", "op": "==", "to": True}
STEPS: list[dict[str, Any]] = [
    {"step_id": "order", "name": "look", "tool": "read_order", "params": {"order": "$input.order"}, "kind": "read"},
    {
        "step_id": "first",
        "compute": {"pick": "$output.step_order.lines", "where": [{"value": "$item.sku", "op": "==", "to": "B2"}]},
    },
    {
        "step_id": "amount",
        "compute": {"round": {"percent": [115, {"sum": "$output.step_order.lines", "of": "$item.price"}]}, "places": 2},
    },
    {"step_id": "due", "compute": {"date_add": ["$output.step_first.due", "P3D"]}},
    {
        "step_id": "known",
        "tool": "read_price",
        "params": {"sku": "$output.step_first.sku"},
        "on_error": "continue",
    },
    {
        "step_id": "price",
        "tool": "set_price",
        "params": {"sku": "$output.step_first.sku", "price": "$output.step_amount"},
        "resource": "price:{$output.step_first.sku}",
        "expect": "$before",
        "rollback": {
            "tool": "set_price",
            "params": {"sku": "$output.step_first.sku", "price": "$before.price"},
            "retry": RETRY,
            "timeout_s": 5,
            "when_absent": {"tool": "drop_price", "params": {"sku": "$output.step_first.sku"}},
        },
    },
    {
        "step_id": "one",
        "tool": "reserve",
        "kind": "compensatable",
        "params": {"sku": "K9"},
        "retry": RETRY,
        "timeout_s": 5,
        "rollback": {
            "tool": "free_part",
            "params": {"part": "$item.part"},
            "each": "$output.step_one.parts",
            "then": [
                {"tool": "free_part", "params": {"part": "$item.part"}, "each": "$output.step_one.parts"},
                {"tool": "free", "params": {"ref": "$output.step_one.ref"}, "retry": RETRY, "timeout_s": 5},
            ],
        },
    },
    {"step_id": "lines", "tool": "reserve", "params": {"sku": "$item.sku"}, "each": "$output.step_order.lines"},
    {
        "step_id": "both",
        "tool": "reserve",
        "params": {"sku": "$item.sku"},
        "each": {
            "of": "$output.step_order.lines",
            "parallel": 2,
            "on_error": "collect",
            "when": [{"value": "$item.sku", "op": "!=", "to": "C3"}],
        },
    },
    {"step_id": "gift", "tool": "reserve", "params": {"sku": "GIFT"}, "when": [{"not": VIP}]},
    {"step_id": "extra", "tool": "read_price", "params": {"sku": "none"}, "on_error": "continue"},
    {
        "step_id": "checked",
        "tool": "reserve",
        "params": {"sku": "X1"},
        "depends_on": ["both", "extra"],
        "failed_when": [{"value": "$output.step_checked.ref", "op": "==", "to": "none"}],
        "fallback": [
            {
                "tool": "set_price",
                "params": {"sku": "X2", "price": "1"},
                "rollback": {"tool": "drop_price", "params": {"sku": "X2"}},
                "retry": RETRY,
                "timeout_s": 5,
            },
            {"queue_s": 60},
        ],
    },
    {"step_id": "stock", "tool": "read_order", "params": {"order": "s"}, "fallback": [{"cached_s": 60}]},
    {"step_id": "nap", "sleep": 0.001},
    {"step_id": "until", "sleep": {"until": "2026-01-01T00:00:00Z"}},
    {"step_id": "mail", "tool": "send", "kind": "irreversible", "params": {"text": "due {$output.step_due}"}},
    {
        "step_id": "paid",
        "wait": {
            "event": "paid",
            "key": "$input.order",
            "schema": {"type": "object"},
            "timeout_s": 86400,
            "on_timeout": {"value": {}},
            "on_late": {"tool": "free", "params": {"ref": "$input.order"}},
        },
        "rollback": {"tool": "free", "params": {"ref": "$input.order"}},
    },
    {
        "step_id": "reply",
        "wait": {
            "first": [
                {"event": "reply.mail", "key": "$input.order", "schema": {"type": "object"}},
                {"event": "reply.call", "key": "$input.order"},
            ],
            "timeout_s": 86400,
            "on_late": {"tool": "send", "params": {"text": "$output.step_reply.event"}},
        },
        "rollback": {"tool": "free", "params": {"ref": "$output.step_reply.key"}},
    },
    {
        "step_id": "guests",
        "wait": {
            "all": [{"event": "confirmed", "key": "ada"}, {"event": "confirmed", "key": "$input.order"}],
            "timeout_s": 86400,
            "on_timeout": {"value": []},
            "on_late": {"tool": "free", "params": {"ref": "$output.step_guests.key"}},
        },
        "rollback": {"tool": "free", "params": {"ref": "$input.order"}},
    },
    {
        "step_id": "approve",
        "ask": {
            "question": "Charge {$output.step_amount}?",
            "to": "finance of {$input.city}",
            "options": ["yes", "no"],
            "expires_s": 86400,
            "on_timeout": {"value": "no"},
        },
    },
    {"step_id": "why", "ask": {"question": "Why?", "schema": {"type": "string"}}},
    {
        "step_id": "trip",
        "saga": {
            "input": {"city": "$input.city"},
            "input_schema": {"type": "object"},
            "plan": {"steps": [{"step_id": "room", "tool": "reserve", "params": {"sku": "$input.city"}}]},
        },
    },
    {"step_id": "stay", "saga": {"template": "stay", "input": {"city": "$input.city"}}},
    {"step_id": "charge", "tool": "charge", "kind": "pivot", "params": {"amount": "$output.step_amount"}},
    {"step_id": "after", "tool": "send", "kind": "retriable", "params": {"text": "done"}},
]
PLAN: dict[str, Any] = {
    "task_id": "all",
    "name": "everything",
    "tags": ["customer:42"],
    "goal": "Use every kind of step once.",
    "input": {"order": "o-7", "city": "Lyon"},
    "assumptions": ["none"],
    "deadline_s": 864_000,
    "max_tool_calls": 1000,
    "max_cost": {"usd": 100.0},
    "on_failure": "compensate",
    "steps": STEPS,
    "finally": [{"step_id": "notice", "tool": "send", "params": {"text": "$end.status"}}],
}
STAY = {"input": {"city": "x"}, "steps": [{"step_id": "bed", "tool": "reserve", "params": {"sku": "$input.city"}}]}
#: What stands in a text only if a value was printed as Python has it.
RAW = ("None", "Stored(", "Wait(", "<saga_engine", "_ms=", "frozenset", "UndoCall")
