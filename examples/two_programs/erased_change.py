"""The undo that erases somebody else's change: ``python erased_change.py FRAMEWORK [--engine]``.

An agent sets the price of an article from 10 to 12. Kim sets it to 15. Then the agent's task fails, and what it did is
undone: the program puts back what it had found.
"""

from __future__ import annotations

import asyncio
import sys

from frameworks import in_session, plain

from saga_engine import Coordinator, tool

PRICES = {"tea": 10}
TURNS = [[("set_price", {"article": "tea", "price": 12})]]
UNDO: list[tuple[str, int]] = []


def set_price(article: str, price: int) -> dict[str, int]:
    """Set the price of an article."""
    UNDO.append((article, PRICES[article]))  # the usual undo: remember what was there
    PRICES[article] = price
    return {"price": price}


@tool(name="get_price", effect="read")
def get_price(article: str) -> dict[str, int]:
    """The price of an article."""
    return {"price": PRICES[article]}


@tool(name="restore_price")
def restore_price(article: str, price: int) -> None:
    """Put a price back."""
    PRICES[article] = price


@tool(
    name="set_price",
    before=get_price,
    undo=restore_price,
    undo_params={"article": "$params.article", "price": "$before.price"},
)
def set_price_looking(article: str, price: int) -> dict[str, int]:
    """Set the price of an article."""
    PRICES[article] = price
    return {"price": price}


def kim() -> None:
    """Somebody else at the same desk."""
    PRICES["tea"] = 15


async def without(framework: str) -> str:
    await plain(framework, TURNS, [set_price])
    kim()
    PRICES.update(reversed(UNDO))  # the task failed
    return "nobody is asked"


async def with_engine(framework: str) -> str:
    async with Coordinator.open("memory://", [set_price_looking], durability="relaxed", settings=None) as coordinator:
        try:
            async with coordinator.session("prices") as session:
                await in_session(framework, session, TURNS)
                kim()
                raise LookupError("the task failed")
        except LookupError:
            (question,) = (await coordinator.show("prices")).body["questions"]
            return f"an operator is asked ({question['kind']}): {question['before']} before, {question['found']} found"


def main(framework: str, *rest: str) -> None:
    asked = asyncio.run(with_engine(framework) if "--engine" in rest else without(framework))
    print(f"{framework}{' with the engine' if rest else ''}: tea costs {PRICES['tea']}; {asked}")


if __name__ == "__main__":
    main(*sys.argv[1:])
