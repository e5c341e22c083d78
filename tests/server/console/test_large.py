"""The page of a saga of 20,000 records: what is read, sent and drawn for it is bounded."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from playwright.async_api import Page, expect

from saga_engine import Coordinator, RetryPolicy, ToolContext, ToolError, tool
from saga_engine.server.demo import trip
from tests.server.console.browsing import browsing
from tests.server.console.gallery import OPEN, gallery
from tests.server.harness import serving
from tests.support.servers import GIVE_UP_S

pytestmark = pytest.mark.chromium
STEPS = 5000
#: Of a page, however long its saga is.
MOST_NODES, MOST_BYTES = 4000, 200_000
expect.set_options(timeout=GIVE_UP_S * 1000)


@tool(undo="unload", retry=RetryPolicy(max_attempts=2, base_s=0.001, max_s=0.001, jitter=False))
async def load(crate: int, ctx: ToolContext) -> dict[str, int]:
    """Load a crate, in two attempts. crate: its number."""
    if ctx.attempt == 1:
        raise ToolError("the crane is busy", error_code="busy", retryable=True)
    return {"loaded": crate}


@tool
async def unload(loaded: int) -> None:
    """Unload a crate."""


PLAN = {
    "goal": "Load a ship",
    "steps": [
        *({"step_id": n, "tool": "load", "params": {"crate": n}, "depends_on": []} for n in range(STEPS)),
        {"step_id": "sail", "ask": {"question": "Shall she sail?", "options": ["yes", "no"]}},
    ],
}


async def weigh(page: Page, address: str) -> str:
    """Open a page; its size is bounded. Returns what it took, for those who publish it."""
    answer = await page.goto(address)
    assert answer is not None
    size = len(await answer.body())
    nodes = await page.evaluate("document.querySelectorAll('*').length")
    spent = await page.evaluate("performance.getEntriesByType('navigation')[0].domInteractive")
    assert size <= MOST_BYTES, address
    assert nodes <= MOST_NODES, address
    return f"{address.rpartition('/')[2]}: {spent:.0f} ms, {size:,} bytes, {nodes:,} elements"


async def test_a_saga_of_20000_records_is_read_once_and_its_pages_are_short(tmp_path: Path, monkeypatch):
    """Each view has a bounded number of bytes and elements, and of a journal that has grown only the end is read."""
    begun: list[int] = []
    async with (
        browsing() as browser,
        Coordinator.open(f"embedded://{tmp_path / 'store'}", [load, unload], durability="relaxed") as engine,
    ):
        await engine.run(PLAN, saga_id="ship")
        length = (await engine.store.head("ship")).length
        assert length > 4 * STEPS
        read = engine.store.read

        async def counted(saga_id: str, start: int = 0, *more, **options):
            begun.append(start)
            return await read(saga_id, start, *more, **options)

        async with serving(engine, OPEN) as server:
            monkeypatch.setattr(engine.store, "read", counted)
            page = await browser.new_page()
            views = [
                "",
                "?first=0",
                "?view=graph",
                "?view=records",
                "?view=records&at=12000",
                "?view=plan",
                "?step=4999",
            ]
            taken = [await weigh(page, f"{server.url}/ui/sagas/ship{view}") for view in views]
            sys.stdout.write("\n".join(taken))
            assert begun == [0]
            await page.goto(f"{server.url}/ui/sagas/ship")
            await expect(page.locator("html[data-live=on]")).to_be_attached()
            await page.keyboard.press("j")
            await expect(page.locator(".step .name").first).to_be_focused()
            begun.clear()
            await page.get_by_role("button", name="yes").click()
            await engine.resume("ship")
            await expect(page.locator("#head .badge")).to_have_text("Completed")
            shown = await weigh(page, f"{server.url}/ui/sagas/ship")
            assert shown
            # The page's stream learns once, page by page, what is sensitive; nobody else reads more than is new.
            assert [start for start in begun if start >= length]
            pages = [start for start in begun if 0 < start < length]
            assert len(pages) == len(set(pages))


async def test_twenty_sagas_stand_on_one_screen():
    """Each has its row, with tags and goal; the bar of what is done to the chosen ones covers none of them."""
    seen = """rows => rows.filter((row) => row.getBoundingClientRect().bottom <= Math.min(innerHeight,
      document.querySelector('#chosen').getBoundingClientRect().top)).length"""
    async with gallery() as (server, engine), browsing() as browser:
        for number in range(12):
            await engine.submit(trip("Grand Plaza"), saga_id=f"more-{number}", detach=True)
        page = await browser.new_page(locale="en-US", viewport={"width": 1200, "height": 800})
        await page.goto(f"{server.url}/ui/sagas")
        rows = page.locator("main tbody tr")
        assert await rows.count() >= 25
        assert await rows.evaluate_all(seen) >= 20
