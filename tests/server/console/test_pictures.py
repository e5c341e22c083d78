"""The pictures of docs/console.md are of the pages as they are.

``--accept-pictures`` makes them anew; look at each before you commit it. What a page shows beside times and sizes is
kept as a digest with its picture: so a picture that is out of date is found on a machine with other fonts as well.
"""

from __future__ import annotations

import hashlib
import json
import re
import struct
from pathlib import Path

import pytest
from playwright.async_api import Browser, Page

from saga_engine.server.demo import trip
from tests.server.console.browsing import browsing
from tests.server.console.gallery import gallery

pytestmark = pytest.mark.chromium
ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "docs/console"
DIGESTS = FOLDER / "digests.json"
DESK, PHONE = (1200, 760), (390, 844)
#: Name: the page, the language, the theme and the window.
PICTURES = {
    "sagas": ("/ui/sagas", "en-US", "light", DESK),
    "undone": ("/ui/sagas/trip-hotel-full?step=hotel", "en-US", "light", DESK),
    "changed-meanwhile": ("/ui/sagas/catalogue-changed-meanwhile?step=price", "zh-CN", "dark", (1200, 900)),
    "graph": ("/ui/sagas/group-tour?view=graph", "en-US", "dark", (1200, 860)),
    "cancel": ("/ui/sagas/group-tour/cancel", "en-US", "light", (1200, 480)),
    "matrix": ("/ui/plan", "en-US", "light", (1200, 1330)),
    "goal": ("/ui/goal", "en-US", "light", (1200, 1720)),
    "goal-zh": ("/ui/goal", "zh-CN", "dark", (1200, 1720)),
    "questions-phone": ("/ui/questions", "zh-CN", "light", PHONE),
}
#: What differs from one time to the next: times, durations, made-up ids, and the lanes, whose spans are as long as calls.
SHOWN = """() => {
  const page = document.body.cloneNode(true);
  page.querySelectorAll('time, svg.lanes, svg.axis, .head .meta, input[type=hidden]').forEach((each) => each.remove());
  return page.innerHTML;
}"""
VARIES = (
    r"[\w.-]+/[0-9a-f-]{36}/[\w/]+|pid \d+ on [\w.-]+",
    r"\d[\d.,]*(?: (?:ms|s|min|h|d|毫秒|秒|分|小时|天)\b)(?: \d+ \w+)?",
    r"[0-9a-f]{8,}",
    r"\b[FHP]-\d{4}",
    r"after=\d+",
    r"/ui/goal/[\w-]+",
)


async def opened(browser: Browser, url: str, name: str) -> Page:
    """The page of a picture, as it is shown."""
    path, locale, scheme, (width, height) = PICTURES[name]
    phone = (width, height) == PHONE
    context = await browser.new_context(
        locale=locale,
        color_scheme=scheme,
        timezone_id="Europe/Lisbon",
        viewport={"width": width, "height": height},
        is_mobile=phone,
        has_touch=phone,
        device_scale_factor=2 if phone else 1,
        reduced_motion="reduce",
    )
    page = await context.new_page()
    await page.goto(url + path)
    if name == "matrix":
        await page.fill("#plan", json.dumps(trip("Grand Plaza"), indent=2))
        await page.click("button[value=check]")
        await page.wait_for_selector("#matrix")
    if name.startswith("goal"):
        await page.fill("#goal", "Book a hotel in Lisbon and pay it if I agree")
        await page.check("input[name=may-ask]")
        await page.click("form[action='/ui/goal'] button")
        await page.wait_for_selector("#review")
    return page


async def digest(page: Page) -> str:
    """Stands for what a page shows, beside what differs from one time to the next."""
    shown = str(await page.evaluate(SHOWN))
    for pattern in VARIES:
        shown = re.sub(pattern, "…", shown)
    css = (ROOT / "saga_engine/server/console/assets/console.css").read_text()
    # What happened at the same time is listed in either order.
    pieces = sorted(set(re.findall(r"<[^>]*>|[^<\s]+", shown)))
    return hashlib.sha256(f"{css}\0{pieces}".encode()).hexdigest()[:16]


def size_of(picture: Path) -> tuple[int, int]:
    """The width and height of a PNG file."""
    return struct.unpack(">II", picture.read_bytes()[16:24])


async def test_the_pictures_are_of_the_pages_as_they_are(request: pytest.FixtureRequest, tmp_path: Path):
    """Each picture can be made again from the demo's sagas, in its size, and its page has not changed since."""
    accepts = request.config.getoption("--accept-pictures")
    folder = FOLDER if accepts else tmp_path
    found = {}
    async with browsing() as browser, gallery() as (server, _):
        for name in PICTURES:
            page = await opened(browser, server.url, name)
            found[name] = await digest(page)  # before the picture, for which the browser changes the page
            await page.screenshot(path=folder / f"{name}.png")
            await page.context.close()
    if accepts:
        DIGESTS.write_text(json.dumps(found, indent=2) + "\n")
    assert found == json.loads(DIGESTS.read_text()), "renew them with --accept-pictures, and look at each"
    for name in PICTURES:
        assert size_of(folder / f"{name}.png") == size_of(FOLDER / f"{name}.png")


def test_the_page_shows_each_picture_with_words_for_it():
    """docs/console.md shows every picture and no other, each with a text for those who do not see it."""
    text = (ROOT / "docs/console.md").read_text()
    shown = dict((path, words) for words, path in re.findall(r"!\[([^\]]*)\]\(console/([\w-]+)\.png\)", text))
    assert set(shown) == set(PICTURES) == {path.stem for path in FOLDER.glob("*.png")}
    assert all(len(words) > 20 for words in shown.values())
