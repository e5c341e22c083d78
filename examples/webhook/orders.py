"""Orders that wait for a payment: a webhook brings it, in time, twice, forged, or after the order was undone.

The program starts `saga serve` with a worker, and is the bank itself: it signs webhooks as Standard Webhooks does.
No key and no network. The shop's book is a file; at the end the program compares it with what must have happened.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from saga_engine import RetryPolicy, ToolContext, ToolError, tool

SECRET = b"0123456789abcdef01234567"
BOOK = Path(os.environ.get("SHOP_BOOK", "book.txt"))
ONCE = RetryPolicy(max_attempts=1)


def write(ctx: ToolContext, line: str) -> None:
    """Write into the shop's book, once for each idempotency key."""
    lines = BOOK.read_text().splitlines() if BOOK.exists() else []
    if not any(found.startswith(f"{ctx.idempotency_key} ") for found in lines):
        with BOOK.open("a") as book:
            book.write(f"{ctx.idempotency_key} {line}\n")


@tool(undo="release", keyed=True)
def reserve(item: str, ctx: ToolContext) -> dict[str, str]:
    """Put an item aside."""
    write(ctx, f"reserve {item}")
    return {"item": item}


@tool(keyed=True)
def release(item: str, ctx: ToolContext) -> None:
    """Put it back."""
    write(ctx, f"release {item}")


@tool(undo="call_back", keyed=True, retry=ONCE)
def ship(item: str, ctx: ToolContext) -> dict[str, str]:
    """Ship an item that was paid."""
    if item == "piano":
        raise ToolError("nobody can carry it", error_code="too_heavy", retryable=False)
    write(ctx, f"ship {item}")
    return {"item": item}


@tool(keyed=True)
def call_back(item: str, ctx: ToolContext) -> None:
    """Stop a shipment."""
    write(ctx, f"call_back {item}")


@tool(keyed=True)
def refund(payment: str, cents: int, ctx: ToolContext) -> None:
    """Pay money back."""
    write(ctx, f"refund {payment} {cents}")


TOOLS = [reserve, release, ship, call_back, refund]

REFUND = {
    "tool": "refund",
    "params": {"payment": "$output.step_paid.data.payment", "cents": "$output.step_paid.data.cents"},
}
PLAN = {
    "goal": "an item is shipped when it is paid",
    "steps": [
        {"step_id": "reserve", "tool": "reserve", "params": {"item": "$input.item"}},
        {
            "step_id": "paid",
            "wait": {
                "event": "payment.received",
                "schema": {"type": "object", "required": ["data"]},
                "timeout_s": "$input.patience_s",
                "on_late": REFUND,  # it comes after the order was undone
            },
            "rollback": REFUND,  # it came, and what follows it fails
        },
        {"step_id": "ship", "tool": "ship", "params": {"item": "$input.item"}},
    ],
}
SETTINGS = """
[server.inbound.bank]
scheme = "standard"
secret_env = ["BANK_WEBHOOK_SECRET"]
event_field = "type"
key_field = "data.order"
"""


class Shop:
    """The server, as its customers and the bank see it."""

    def __init__(self, url: str) -> None:
        self.url = url

    def ask(self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None) -> Any:
        """Send a request; the status of a refusal is its answer."""
        data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        made = urllib.request.Request(
            self.url + path, data, {"content-type": "application/json", **(headers or {})}, method=method
        )
        try:
            with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(made, timeout=120) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            with error:
                return error.code

    def order(self, number: str, item: str, patience_s: float = 900) -> None:
        """Submit an order."""
        given = {"item": item, "patience_s": patience_s}
        self.ask("POST", "/v1/sagas", {"plan": PLAN, "saga_id": number, "input": given})

    def status(self, saga_id: str) -> str:
        """How a saga ends; this waits for it."""
        return str(self.ask("GET", f"/v1/sagas/{saga_id}?wait=60")["status"])

    def webhook(self, order: str, payment: str, cents: int, secret: bytes = SECRET) -> Any:
        """What the bank sends when somebody has paid."""
        body = json.dumps(
            {"type": "payment.received", "data": {"order": order, "payment": payment, "cents": cents}}
        ).encode()
        stamp = str(int(time.time()))
        signed = hmac.digest(secret, f"{payment}.{stamp}.".encode() + body, hashlib.sha256)
        signature = f"v1,{base64.b64encode(signed).decode()}"
        headers = {"webhook-id": payment, "webhook-timestamp": stamp, "webhook-signature": signature}
        return self.ask("POST", "/v1/in/bank", body, headers)

    def late(self) -> list[str]:
        """How the sagas end that handle late payments."""
        found = self.ask("GET", "/v1/sagas?tag=late-event")["sagas"]
        return [self.status(saga["saga_id"]) for saga in found]


def agree(what: str, found: object, wanted: object) -> None:
    """Compare the world with what it should be."""
    if found != wanted:
        sys.exit(f"{what}: {found!r}, and not {wanted!r}")
    print(f"  {what}: {found}")


def scenes(shop: Shop) -> None:
    """What may happen to a payment."""
    print("it comes, and comes again")
    shop.order("order-1", "lamp")
    shop.webhook("order-1", "pay-1", 1900)
    agree("the order", shop.status("order-1"), "COMPLETED")
    agree("the same webhook is a repetition", shop.webhook("order-1", "pay-1", 1900)["repeated"], True)

    print("somebody forges it")
    shop.order("order-2", "desk")
    agree("the forged webhook", shop.webhook("order-2", "pay-2", 1, secret=b"a guess"), 401)
    shop.webhook("order-2", "pay-2", 9900)
    agree("the order", shop.status("order-2"), "COMPLETED")

    print("it comes, and the item cannot be shipped")
    shop.order("order-3", "piano")
    shop.webhook("order-3", "pay-3", 50000)
    agree("the order", shop.status("order-3"), "COMPENSATED")

    print("it comes after the order was undone, twice")
    shop.order("order-4", "chair", patience_s=0.1)
    agree("the order", shop.status("order-4"), "COMPENSATED")
    shop.webhook("order-4", "pay-4", 4900)
    shop.webhook("order-4", "pay-4", 4900)
    agree("the late payment", shop.late(), ["COMPLETED"])


HAPPENED = [
    *("reserve lamp", "ship lamp", "reserve desk", "ship desk"),
    *("reserve piano", "refund pay-3 50000", "release piano"),
    *("reserve chair", "release chair", "refund pay-4 4900"),
]


def main() -> None:
    """Serve, play the scenes, and compare the book."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "saga.toml").write_text(SETTINGS)
        book = folder / "book.txt"
        secret = f"whsec_{base64.b64encode(SECRET).decode()}"
        tools = f"{Path(__file__).resolve()}:TOOLS"
        command = [*("serve", "--auth", "none", "--port", "0", "--worker", "--store", "memory://"), "--tools", tools]
        with subprocess.Popen(
            [sys.executable, "-m", "saga_engine", *command],
            cwd=folder,
            env=os.environ | {"BANK_WEBHOOK_SECRET": secret, "SHOP_BOOK": str(book)},
            stdout=subprocess.PIPE,
            text=True,
        ) as process:
            try:
                assert process.stdout is not None
                scenes(Shop(process.stdout.readline().strip()))
                lines = [line.partition(" ")[2] for line in book.read_text().splitlines()]
            finally:
                process.terminate()
    agree("the shop's book", lines, HAPPENED)
    print("all agreed")


if __name__ == "__main__":
    main()
