"""The preview of a cancel, against what the cancel then does."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from saga_engine import Coordinator
from saga_engine.analysis.cancellation import CancelPreview, preview_cancel
from saga_engine.runtime.journal import read_records, state_of
from tests.support.children import DONE, WAIT, booking, kid, opened, plan, reaches, until


async def previewed(coordinator: Coordinator, saga_id: str) -> CancelPreview:
    """The preview of the saga as its journal has it."""
    return preview_cancel(state_of(await read_records(coordinator.store, saga_id)))


def keys(bodies: list[dict[str, Any]]) -> list[Any]:
    return [body["step_id"] for body in bodies]


@pytest.fixture
def url() -> str:
    DONE.clear()
    return f"memory://{uuid.uuid4().hex}"


async def test_an_open_child_is_settled_and_what_happened_is_undone(url: str) -> None:
    """A child that has not ended is cancelled and undone, so it is not among the steps that would not begin."""
    async with opened(url) as engine:
        await engine.submit(plan(booking(1, 1), kid(booking("a", 2), WAIT), booking(3, 3)), saga_id="p")
        await reaches(engine, "p.trip", "RUNNING", waits=True)
        found = await previewed(engine, "p")
        assert (keys(found.undoes), keys(found.settles), keys(found.never)) == ([1], ["trip"], [3])
        await engine.cancel("p")
        assert (await engine.wait("p")).status == "COMPENSATED"
    assert DONE == [("book", 1), ("book", 2), ("unbook", 2), ("unbook", 1)]


async def test_a_child_that_completed_is_undone_as_a_whole(url: str) -> None:
    """It is among the undos, in its place; so are all calls of an undo."""
    undo = {"tool": "unbook", "params": {"n": 1}, "then": [{"tool": "unbook", "params": {"n": 4}}]}
    async with opened(url) as engine:
        steps = (booking(1, 1, rollback=undo), kid(booking("a", 2)), WAIT)
        await engine.submit(plan(*steps), saga_id="p")
        await reaches(engine, "p.trip", "COMPLETED")

        async def happened() -> bool:
            return not (await previewed(engine, "p")).settles

        await until(happened)
        found = await previewed(engine, "p")
        assert [(body["step_id"], body["undo"]) for body in found.undoes] == [
            ("trip", "saga"),
            (1, "unbook, then unbook"),
        ]
        await engine.cancel("p")
        assert (await engine.wait("p")).status == "COMPENSATED"
    assert DONE == [("book", 1), ("book", 2), ("unbook", 2), ("unbook", 1), ("unbook", 4)]
