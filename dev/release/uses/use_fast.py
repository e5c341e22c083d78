"""The engine on uvloop's event loop."""

import asyncio

import uvloop
from desk import STORE, book, installed, unbook, undone

from saga_engine import Coordinator


async def main() -> None:
    assert isinstance(asyncio.get_running_loop(), uvloop.Loop)
    async with Coordinator.open(STORE, [book, unbook]) as coordinator:
        await undone(coordinator, "s")


installed()
uvloop.run(main())
print(f"a saga is undone on uvloop {uvloop.__version__}")
