"""A process that drives one saga with HTTP tools, and may be killed at it. Started by ``test_http``."""

from __future__ import annotations

import asyncio
import json
import sys
import tomllib
from pathlib import Path
from typing import Any

from saga_engine import Coordinator
from saga_engine.errors import SagaNotFound
from saga_engine.sources.http import http_tools
from saga_engine.stores import open_store
from saga_engine.testing.faults import Faults, FaultyStore


async def main(case: dict[str, Any]) -> dict[str, Any] | None:
    """Submit the plan, or resume what there is; the outcome, None if nothing was journalled."""
    tables = tomllib.loads(case["toml"])["http"]
    tools = http_tools(tables, base=Path(), source="saga.toml", allow_private=("127.0.0.1",))
    store = FaultyStore(open_store(case["url"]), Faults(case.get("fault", "")))
    try:
        async with Coordinator.open(store, tools) as coordinator:
            if case["part"] == "submit":
                return (await coordinator.run(case["plan"], saga_id=case["saga_id"])).to_dict()
            await coordinator.resume_all()
            try:
                return (await coordinator.show(case["saga_id"])).to_dict()
            except SagaNotFound:
                return None
    finally:
        await store.close()


if __name__ == "__main__":
    print(json.dumps(asyncio.run(main(json.loads(sys.argv[1])))))  # noqa: T201
