"""The store in memory."""

from desk import book, go, unbook, undone

from saga_engine import Coordinator


async def main() -> str:
    async with Coordinator.open("memory://", [book, unbook], durability="relaxed") as coordinator:
        await undone(coordinator, "s")
    return "a saga in memory is undone"


go(main)
