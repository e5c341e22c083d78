"""A process that writes one price and dies: ``python -m tests.isolation.rival_child URL FILE SAGA PRICE [WHEN]``.

WHEN: ``unnoted`` (before the store notes the write), ``noted`` (then, before the call) or ``written`` (after the call).
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

from saga_engine import Coordinator, tool
from saga_engine.stores.guards import RedisGuards

DIED = 9


def tools_on(file: Path, when: str = "") -> list[Any]:
    """The tools over one file, which holds the price."""

    @tool(effect="read")
    def read_price() -> int:
        return int(file.read_text())

    @tool(before=read_price, undo="put_back", resource="price", keyed=True)
    def set_price(price: int) -> None:
        if when == "noted":
            os._exit(DIED)
        file.write_text(str(price))
        if when == "written":
            os._exit(DIED)

    @tool(resource="price")
    def put_back(price: int) -> None:
        file.write_text(str(price))

    return [read_price, set_price, put_back]


def opened(url: str, file: Path, when: str = "") -> Any:
    """A coordinator of that world. An undo needs its param by name: the read gives a number."""
    return Coordinator.open(url, tools_on(file, when), durability="relaxed", on_escalation=(), lease_s=2.0)


def plan(price: int) -> dict[str, Any]:
    """One write."""
    undo = {"tool": "put_back", "params": {"price": "$before"}}
    return {"steps": [{"step_id": 1, "tool": "set_price", "params": {"price": price}, "rollback": undo}]}


async def main(url: str, file: Path, saga_id: str, price: int, when: str = "") -> None:
    if when == "unnoted":
        RedisGuards.take = lambda *_: os._exit(DIED)  # type: ignore[assignment, method-assign]
    async with opened(url, file, when) as c:
        await c.run(plan(price), saga_id=saga_id)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], Path(sys.argv[2]), sys.argv[3], int(sys.argv[4]), *sys.argv[5:]))
