"""The tools of the golden sagas. Journals of published versions name them: they are never changed, others are added."""

from __future__ import annotations

from typing import Any

from saga_engine import ToolError, tool

#: The calls since the start of the process, and the prices and labels as they are.
CALLS: list[tuple[str, Any, str]] = []
PRICES: dict[str, int] = {"tea": 10, "oil": 7, "rice": 3}
LABELS: dict[str, str] = {}


def _seen(name: str, about: Any, key: str) -> None:
    CALLS.append((name, about, key))


@tool(effect="read")
async def look(what: str) -> dict[str, Any]:
    """Look something up."""
    return {"what": what, "rooms": [{"room": "7", "price": "12.50"}, {"room": "8", "price": "80"}]}


@tool(undo="unbook", keyed=True, resource="desk")
async def book(what: str, idempotency_key: str) -> dict[str, Any]:
    """Book something; an attic is refused for good."""
    if what == "attic":
        raise ToolError("the attic is taken", error_code="sold_out", retryable=False, suggestion="try the cellar")
    _seen("book", what, idempotency_key)
    return {"ref": f"ref-{what}", "parts": [{"part": f"{what}-a"}, {"part": f"{what}-b"}]}


@tool(keyed=True, tolerates_absence=True)
async def unbook(ref: str, idempotency_key: str) -> dict[str, Any]:
    """Give a booking back."""
    _seen("unbook", ref, idempotency_key)
    return {"gone": ref}


@tool(keyed=True, tolerates_absence=True)
async def unbook_part(part: str, idempotency_key: str) -> dict[str, Any]:
    """Give a part of a booking back."""
    _seen("unbook_part", part, idempotency_key)
    return {}


@tool(undo="refund", sensitive=["card"])
async def pay(card: str, amount: int) -> dict[str, Any]:
    """Pay: it knows no key, so a lost answer is a question to an operator."""
    _seen("pay", amount, "")
    return {"receipt": f"r-{amount}"}


@tool(tolerates_absence=True)
async def refund(receipt: str) -> dict[str, Any]:
    """Pay back."""
    _seen("refund", receipt, "")
    return {}


@tool(effect="read")
async def price_of(item: str) -> dict[str, Any]:
    """A price."""
    return {"price": PRICES[item]}


@tool(before=price_of, undo="set_price", keyed=True)
async def set_price(item: str, price: int, idempotency_key: str) -> dict[str, Any]:
    """Set a price; the undo restores what was read before."""
    _seen("set_price", (item, price), idempotency_key)
    PRICES[item] = price
    return {}


@tool(semantic="approve")
async def tweet(text: str) -> dict[str, Any]:
    """It cannot be taken back."""
    _seen("tweet", text, "")
    return {"id": 7}


@tool(compensates=True, keyed=True)
async def apologise(post: int, idempotency_key: str) -> dict[str, Any]:
    """Say sorry for a post."""
    _seen("apologise", post, idempotency_key)
    return {}


@tool(effect="read")
async def report(lines: int) -> dict[str, Any]:
    """A long text."""
    return {"text": "line of a report\n" * lines}


@tool(effect="read")
async def label_of(item: str) -> dict[str, Any]:
    """A label."""
    return {"label": LABELS.get(item, "")}


@tool(before=label_of, undo="peel", keyed=True)
async def stick(item: str, label: str, idempotency_key: str) -> dict[str, Any]:
    """Stick a label on; its undo says that it did it, and does nothing."""
    _seen("stick", (item, label), idempotency_key)
    LABELS[item] = label
    return {}


@tool(keyed=True)
async def peel(item: str, idempotency_key: str) -> dict[str, Any]:
    """Say that a label was taken off."""
    _seen("peel", item, idempotency_key)
    return {}


TOOLS = [look, book, unbook, unbook_part, pay, refund, price_of, set_price, tweet, apologise, report]
TOOLS += [label_of, stick, peel]
