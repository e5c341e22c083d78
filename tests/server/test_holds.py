"""What sagas hold, over HTTP and in the console: who, since when, who waits; and taking it away."""

from __future__ import annotations

import asyncio
from typing import Any

from saga_engine import Coordinator, tool
from saga_engine.api.holds import held
from saga_engine.core.states import COMPLETED, ESCALATED
from tests.guards.world import poll
from tests.server.harness import serving


@tool(undo="free", resource="seat:{seat}", hold="saga", hold_max_s=0.001)
async def book(seat: str) -> dict[str, str]:
    return {"seat": seat}


@tool(resource="seat:{seat}", hold="saga")
async def free(seat: str) -> None: ...


ASKS: dict[str, Any] = {
    "steps": [
        {"step_id": 1, "tool": "book", "params": {"seat": "<b>12A"}},
        {"step_id": 2, "ask": {"question": "fine?", "options": ["yes"]}, "depends_on": [1]},
    ]
}


async def test_who_holds_and_who_waits_is_shown_and_taken_away() -> None:
    """The list, the page of workers and that of each saga say the same; after a release the other saga has it."""
    async with (
        Coordinator.open("memory://", [book, free], durability="relaxed", on_escalation=(), settings=None) as c,
        serving(c) as server,
    ):
        api, reader = await server.api(), await server.api("read")
        assert (await reader.get("/v1/holds"))["holds"] == []
        await c.submit(ASKS, saga_id="one")

        async def rests() -> bool:
            return (await c.show("one")).status == ESCALATED

        await poll(rests)
        two = asyncio.create_task(c.run({"steps": ASKS["steps"][:1]}, saga_id="two"))

        async def waits() -> bool:
            return any(each.waiting for each in await held(c.store))

        await poll(waits)
        (hold,) = (await reader.get("/v1/holds"))["holds"]
        assert (hold["resource"], hold["saga_id"], hold["tool"], hold["overdue"]) == (
            "seat:<b>12A",
            "one",
            "book",
            True,
        )
        assert [each["saga_id"] for each in hold["waiting"]] == ["two"]
        pages = {}
        for path in ("/ui/workers", "/ui/sagas/one", "/ui/sagas/two"):
            found = await server.client.get(path, headers=api.headers)
            assert found.status_code == 200, found.text
            pages[path] = found.text
            assert "<b>12A" not in found.text
        assert 'id="holds"' in pages["/ui/workers"]
        assert "Holds seat:&lt;b&gt;12A; waiting for it: 1" in pages["/ui/sagas/one"]
        assert "Waits for seat:&lt;b&gt;12A, which saga one holds" in pages["/ui/sagas/two"]
        assert (await reader("POST", "/v1/release", {"saga_id": "one"})).status_code == 403
        for wrong in ({}, {"saga_id": "one", "resource": "seat:<b>12A"}, {"resource": "seat:9"}):
            assert (await api.post("/v1/release", wrong, status=422))["code"] == "setting-invalid"
        (taken,) = (await api.post("/v1/release", {"resource": "seat:<b>12A"}, status=200))["holds"]
        assert taken["saga_id"] == "one"
        assert (await two).status == COMPLETED
        assert (await reader.get("/v1/holds"))["holds"] == []
