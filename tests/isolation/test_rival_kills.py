"""Processes that die around the note of a write: a write is never missed; at worst one is asked about that never was."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from saga_engine import SagaResult
from saga_engine.core.states import COMPENSATED, COMPLETED, ESCALATED
from tests.isolation.rival_child import DIED, opened, plan
from tests.support.servers import EmbeddedFolder


async def dies(url: str, file: Path, saga_id: str, price: int, when: str) -> None:
    """A saga whose process dies."""
    command = [sys.executable, "-m", "tests.isolation.rival_child", url, str(file), saga_id, str(price), when]
    assert (await asyncio.to_thread(subprocess.run, command, check=False)).returncode == DIED


async def questions(c: Any, saga_id: str) -> list[dict[str, Any]]:
    return list((await c.show(saga_id)).body["questions"])


def price(file: Path) -> str:
    return file.read_text()


def world(tmp_path: Path, what: Any) -> None:
    file = tmp_path / "price"
    file.write_text("10")
    with EmbeddedFolder(tmp_path / "saga") as folder:
        asyncio.run(what(folder.url, file))


@pytest.mark.parametrize(("when", "ends"), [("unnoted", COMPENSATED), ("noted", ESCALATED), ("written", ESCALATED)])
def test_a_rival_that_dies(tmp_path: Path, when: str, ends: str) -> None:
    """It writes the very value that is there. Once it may have, the undo of another saga asks, and names it."""

    async def main(url: str, file: Path) -> None:
        async with opened(url, file) as c:
            assert (await c.run(plan(12), saga_id="x")).status == COMPLETED
            await dies(url, file, "y", 12, when)
            found = await c.undo("x")
            assert isinstance(found, SagaResult)
            assert (found.status, price(file)) == (ends, "12" if ends == ESCALATED else "10")
            assert ["saga y (step 1)" in each["error"]["message"] for each in await questions(c, "x-undo")] == (
                [True] if ends == ESCALATED else []
            )

    world(tmp_path, main)


def test_a_saga_whose_process_died_after_its_write(tmp_path: Path) -> None:
    """Its call is repeated under its key, and keeps the place of the first attempt: what came between is drift."""

    async def main(url: str, file: Path) -> None:
        await dies(url, file, "x", 12, "written")
        async with opened(url, file) as c:
            assert (await c.run(plan(20), saga_id="y")).status == COMPLETED
            resumed = await c.resume("x")
            assert (resumed.status, price(file)) == (COMPLETED, "12")
            writes = await c.store.guard_store().writes("price")
            assert [write.key.partition(":")[0] for write in writes] == ["x", "y"]
            found = await c.undo("x")
            assert isinstance(found, SagaResult)
            assert (found.status, price(file)) == (ESCALATED, "12")

    world(tmp_path, main)
