"""sagaz: the same trip, with an action and a compensation for each step, as its README shows.

The hotel books and does not answer. The storage is its own one in memory, which is enough for one process.
"""

from __future__ import annotations

import asyncio
import logging

logging.disable(logging.CRITICAL)  # it tells of each step, from its import on

import world  # noqa: E402
from sagaz import Saga, SagaConfig, action, compensate  # noqa: E402
from sagaz.core.storage import InMemorySagaStorage  # noqa: E402


class Trip(Saga):
    saga_name = "trip"

    @action("flight")
    async def flight(self, ctx: dict) -> dict:  # noqa: ARG002
        return {"flight": world.act("flight CA1234")}

    @compensate("flight")
    async def cancel_flight(self, ctx: dict) -> None:
        world.take_back(ctx["flight"])

    @action("hotel", depends_on=["flight"])
    async def hotel(self, ctx: dict) -> dict:  # noqa: ARG002
        world.lost("room in the Ibis")
        return {"room": "room in the Ibis"}

    @compensate("hotel")
    async def cancel_hotel(self, ctx: dict) -> None:
        world.take_back(ctx["room"])

    @action("pay", depends_on=["hotel"])
    async def pay(self, ctx: dict) -> dict:  # noqa: ARG002
        raise ValueError("the card is declined")


async def main() -> None:
    """One process."""
    storage = InMemorySagaStorage()
    try:
        await Trip(config=SagaConfig(storage=storage)).run({}, saga_id="trip-1")
    except (TimeoutError, ValueError) as error:
        state = await storage.load_saga_state("trip-1")
        print(f"  the saga is {state['status']}: {error}")


if __name__ == "__main__":
    asyncio.run(main())
