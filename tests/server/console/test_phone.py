"""Pages on a phone: what a head says on a wide page stands beside its value."""

from __future__ import annotations

import asyncio

import pytest

from tests.server.console.browsing import browsing
from tests.server.console.gallery import gallery
from tests.support.servers import GIVE_UP_S

pytestmark = pytest.mark.chromium
SAID = "cells => cells.map((each) => getComputedStyle(each, '::before').content.slice(1, -1))"


async def test_the_numbers_of_a_worker_are_named():
    """The heads of the table are not shown: each number has its head's words, and the page is no wider than the phone."""
    async with gallery() as (server, engine), browsing() as browser:
        page = await browser.new_page(locale="en-US", viewport={"width": 390, "height": 844}, is_mobile=True)
        await page.goto(f"{server.url}/ui/workers")
        working = asyncio.create_task(engine.work())
        row = page.locator("#workers tbody tr").first
        await row.wait_for(timeout=GIVE_UP_S * 1000)
        working.cancel()
        heads = await page.locator("#workers thead th").all_text_contents()
        assert await row.locator("td.number").evaluate_all(SAID) == heads[1:]
        assert len(heads) > 3
        assert await page.evaluate("document.documentElement.scrollWidth") == 390


async def test_the_cells_of_tools_templates_and_schedules_are_named():
    """Each cell with a value has its head's words, beside the first, whose value is a name, and the last, which has buttons."""
    async with gallery() as (server, _), browsing() as browser:
        page = await browser.new_page(locale="en-US", viewport={"width": 390, "height": 844}, is_mobile=True)
        for path, table in (("workers", "tools"), ("templates", "templates"), ("templates", "schedules")):
            await page.goto(f"{server.url}/ui/{path}")
            assert not await page.locator(f"#{table} thead").is_visible()
            heads = await page.locator(f"#{table} thead th").all_text_contents()
            seen = set()
            for row in await page.locator(f"#{table} tbody tr").all():
                said = [word if word != "on" else "" for word in await row.locator("td").evaluate_all(SAID)]
                assert len(said) == len(heads)
                assert all(word in ("", head) for word, head in zip(said, heads, strict=True)), (table, said)
                seen |= {word for word in said if word}
            assert seen == set(heads[1:]) - {"Actions"}, (table, heads, seen)
            assert await page.evaluate("document.documentElement.scrollWidth") == 390


async def test_every_button_is_on_the_screen():
    """The stop of a tool with counters, answers with their consequences, and the bar of a list can be reached."""
    beyond = "all => all.filter((each) => each.getBoundingClientRect().right > 390).map((each) => each.textContent)"
    async with gallery() as (server, _), browsing() as browser:
        page = await browser.new_page(locale="zh-CN", viewport={"width": 390, "height": 844}, is_mobile=True)
        for path in ("workers", "questions", "sagas", "templates"):
            await page.goto(f"{server.url}/ui/{path}")
            buttons = page.locator("main .button, main input[type=checkbox]:visible")
            assert await buttons.count() > 0
            assert await buttons.evaluate_all(beyond) == [], path


#: Of each step: whether its lane begins below its name and its state, and cuts off what goes beyond it.
APART = """steps => steps.map((step) => {
  const lane = step.querySelector('.lane');
  const above = [...step.querySelectorAll('.name, .badge')].map((each) => each.getBoundingClientRect().bottom);
  return Math.max(...above) <= lane.getBoundingClientRect().top && getComputedStyle(lane).overflowY === 'hidden';
})"""


async def test_nothing_of_the_timeline_hides_the_names_of_steps():
    """The lane of a step is below its name: idle time and marks, which span all rows, are cut off at the lane."""
    async with gallery() as (server, _), browsing() as browser:
        page = await browser.new_page(locale="en-US", viewport={"width": 390, "height": 844}, is_mobile=True)
        await page.goto(f"{server.url}/ui/sagas/group-tour")
        seen = await page.locator("#timeline .steps .step:not(.axis-row)").evaluate_all(APART)
        assert seen == [True] * 9
        assert await page.locator("#timeline .lanes .idle").count() > 0


async def test_a_graph_begins_where_its_first_step_is():
    """A graph that is wider than the phone is shown from its middle: the step that all others wait for is in sight."""
    async with gallery() as (server, _), browsing() as browser:
        page = await browser.new_page(locale="en-US", viewport={"width": 390, "height": 844}, is_mobile=True)
        await page.goto(f"{server.url}/ui/sagas/group-tour?view=graph")
        box = await page.locator(".graph .node").first.bounding_box()
        assert box is not None
        assert 0 <= box["x"] <= 390 - box["width"]
