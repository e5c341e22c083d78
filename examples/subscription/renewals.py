"""Subscriptions that a schedule renews: a template with a version for each price, and a tick for each month.

No model, no key and no network. The membership and the bank are dictionaries; the program compares them with what the
sagas say, and ends with an error if they disagree.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from saga_engine import Coordinator, RetryPolicy, ToolError, tool

ONCE = RetryPolicy(max_attempts=1)
#: Months of membership by customer, and the charges of the bank by reference.
MONTHS: dict[int, int] = {}
BANK: dict[str, tuple[int, int]] = {}


@tool(undo="shorten", retry=ONCE)
async def extend(customer: int) -> dict[str, int]:
    """Extend a membership by a month."""
    MONTHS[customer] = MONTHS.get(customer, 0) + 1
    return {"customer": customer}


@tool(retry=ONCE)
async def shorten(customer: int) -> None:
    """Take back a month."""
    MONTHS[customer] -= 1


@tool(undo="refund", retry=ONCE)
async def charge(customer: int, cents: int) -> dict[str, str]:
    """Charge the customer's card."""
    if customer == 13:
        raise ToolError("the card is refused", error_code="card_refused", retryable=False)
    ref = f"charge-{len(BANK) + 1}"
    BANK[ref] = (customer, cents)
    return {"ref": ref}


@tool(retry=ONCE)
async def refund(ref: str) -> None:
    """Pay a charge back."""
    del BANK[ref]


INPUT = {"type": "object", "required": ["customer"], "properties": {"customer": {"type": "integer"}}}


def renewal(cents: int) -> dict[str, Any]:
    """The plan of a renewal: a refused card takes the month back."""
    return {
        "goal": "one more month",
        "tags": ["billing"],
        "steps": [
            {"step_id": "extend", "tool": "extend", "params": {"customer": "$input.customer"}},
            {
                "step_id": "charge",
                "tool": "charge",
                "params": {"customer": "$input.customer", "cents": cents},
                "depends_on": ["extend"],
            },
        ],
    }


def paid(customer: int) -> list[int]:
    """What the bank has charged a customer."""
    return [cents for found, cents in BANK.values() if found == customer]


def agree(what: str, found: object, wanted: object) -> None:
    """Compare the world with what it should be."""
    if found != wanted:
        sys.exit(f"{what}: {found!r} instead of {wanted!r}")
    print(f"  {what}: {found}")


async def ended(coordinator: Coordinator, saga_ids: Sequence[str]) -> list[str]:
    """How the sagas of some ticks ended."""
    return [str((await coordinator.wait(each)).status) for each in saga_ids]


async def scenes(coordinator: Coordinator) -> None:
    """What an operator does, while a worker fires ticks and runs their sagas."""
    schedules, templates = coordinator.schedules, coordinator.templates
    first, later = datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 3, 31, tzinfo=UTC)

    print("The first day of each month at six in Tokyo; two of them are filled in:")
    await templates.put("renewal", renewal(990), input_schema=INPUT)
    monthly = {"template": "renewal", "cron": "0 6 1 * *", "time_zone": "Asia/Tokyo"}
    await schedules.put("renewal-42", input={"customer": 42}, **monthly)
    ids = await schedules.backfill("renewal-42", first, later)
    agree("sagas", list(ids), [f"renewal-42-2026{at}T210000Z" for at in ("0131", "0228")])
    agree("they are", await ended(coordinator, ids), ["COMPLETED"] * 2)
    agree("paid", paid(42), [990, 990])

    print("The same months again: a tick happens once.")
    await ended(coordinator, await schedules.backfill("renewal-42", first, later))
    agree("paid", paid(42), [990, 990])

    print("A higher price is the next version, from the next tick on:")
    await templates.put("renewal", renewal(1190), input_schema=INPUT)
    ids = await schedules.backfill("renewal-42", later, datetime(2026, 4, 1, tzinfo=UTC))
    agree("they are", await ended(coordinator, ids), ["COMPLETED"])
    agree("paid", paid(42), [990, 990, 1190])
    agree("months", MONTHS[42], 3)

    print("A card is refused: the month is taken back.")
    await schedules.put("renewal-13", input={"customer": 13}, **monthly)
    agree("it is", await ended(coordinator, [await schedules.trigger("renewal-13")]), ["COMPENSATED"])
    agree("months", MONTHS[13], 0)

    print("A month of one second, until the schedule is paused:")
    await schedules.put("renewal-7", template="renewal", every_s=1, input={"customer": 7})
    while not (await schedules.get("renewal-7")).recent:  # noqa: ASYNC110 - the worker writes it
        await asyncio.sleep(0.05)
    await schedules.pause("renewal-7", why="the customer has cancelled")
    found = (await coordinator.search(tags=["schedule:renewal-7"])).sagas
    refs = {(await coordinator.wait(head.saga_id)).output("charge")["ref"] for head in found}
    agree("each tick has a charge of its own", len(refs) == len(found) > 0 and refs <= set(BANK), True)


async def main() -> None:
    """A store of its own, a worker, and the scenes."""
    with tempfile.TemporaryDirectory() as folder:
        tools = [extend, shorten, charge, refund]
        async with Coordinator.open(f"embedded://{folder}/saga", tools, on_escalation=()) as coordinator:
            worker = asyncio.create_task(coordinator.work(concurrency=8))
            try:
                await scenes(coordinator)
            finally:
                worker.cancel()
                await asyncio.gather(worker, return_exceptions=True)
    print("all agreed")


if __name__ == "__main__":
    asyncio.run(main())
