"""No page of the console breaks a rule of accessibility that a program can check."""

from __future__ import annotations

import json

import pytest
from playwright.async_api import Page

from saga_engine.server.demo import trip
from tests.server.console.browsing import axe, browsing
from tests.server.console.gallery import PATHS, gallery, link_paths

pytestmark = pytest.mark.chromium
DESKTOP, PHONE = {"width": 1280, "height": 800}, {"width": 390, "height": 844}
#: What a page shows only after a click is looked at as well.
OPEN_ALL = "document.querySelectorAll('details').forEach(each => { each.open = true })"

#: The element that makes a page wider than the window; null if none does.
TOO_WIDE = """() => {
  const wide = document.documentElement.clientWidth;
  if (document.documentElement.scrollWidth <= wide) return null;
  const all = [...document.querySelectorAll('body *')];
  const out = all.filter((each) => each.getBoundingClientRect().right > wide + 0.5);
  return (out[0] || document.body).outerHTML;
}"""


async def broken(page: Page, source: str, where: str) -> list[str]:
    """The rules that the page breaks, each with the first element that breaks it; also if it scrolls sideways."""
    await page.evaluate(OPEN_ALL)
    await page.evaluate(f"{source};0")
    found = (await page.evaluate("axe.run({resultTypes: ['violations']})"))["violations"]
    said = [f"{where}: {rule['id']}: {rule['nodes'][0]['html'][:300]}" for rule in found]
    wide = await page.evaluate(TOO_WIDE)
    if wide is not None:
        said.append(f"{where}: scrolls sideways because of {wide[:300]}")
    return said


async def after_forms(page: Page, url: str, source: str) -> list[str]:
    """The pages that answer a form: a plan with problems, a matrix, a refused input, and the help for keys."""
    found = []
    for name, plan in (("problems", {"steps": [{"step_id": 1, "tool": "nope"}]}), ("matrix", trip("Grand Plaza"))):
        await page.goto(f"{url}/ui/plan")
        await page.fill("#plan", json.dumps(plan))
        await page.click("button[value=check]")
        await page.wait_for_selector(f"#{name}")
        found += await broken(page, source, f"/ui/plan with {name}")
    await page.goto(f"{url}/ui/templates/trip")
    await page.fill("#input", "[")
    await page.click("main button")
    await page.wait_for_selector("#said")
    found += await broken(page, source, "/ui/templates/trip refused")
    await page.goto(f"{url}/ui/sagas")
    await page.keyboard.press("?")
    await page.wait_for_selector("dialog[open]")
    return found + await broken(page, source, "the help for keys")


FORMS = [("en-US", "light", DESKTOP), ("zh-CN", "dark", PHONE)]
LONG = [
    (locale, scheme, size)
    for locale in ("en-US", "zh-CN")
    for scheme in ("light", "dark")
    for size in (DESKTOP, PHONE)
    if (locale, scheme, size) not in FORMS
]


@pytest.mark.parametrize(
    ("locale", "scheme", "size"), [*FORMS, *(pytest.param(*each, marks=pytest.mark.slow) for each in LONG)]
)
async def test_axe_finds_no_violation_on_any_page(request: pytest.FixtureRequest, locale, scheme, size):
    """Every page in every state, with all of it unfolded, in both languages, both themes, at a desk and on a phone.

    The short form has each page once: every second one in each of its two forms.
    """
    source = axe(request.config)
    async with browsing() as browser, gallery() as (server, _):
        context = await browser.new_context(
            locale=locale, color_scheme=scheme, viewport=size, has_touch=size is PHONE, is_mobile=size is PHONE
        )
        page = await context.new_page()
        found = []
        form = (locale, scheme, size)
        for path in PATHS if request.config.getoption("--long") else PATHS[FORMS.index(form) :: len(FORMS)]:
            await page.goto(server.url + path)
            found += await broken(page, source, path)
        found += await after_forms(page, server.url, source)
        assert found == []


@pytest.mark.parametrize(
    ("locale", "scheme"),
    [
        ("en-US", "light"),
        ("zh-CN", "dark"),
        pytest.param("en-US", "dark", marks=pytest.mark.slow),
        pytest.param("zh-CN", "light", marks=pytest.mark.slow),
    ],
)
async def test_axe_finds_no_violation_on_the_page_of_a_link(request: pytest.FixtureRequest, locale, scheme):
    """Before and after the tap, for who is late, for a link that is too old, and for one that was altered."""
    source = axe(request.config)
    async with browsing() as browser, gallery() as (server, engine):
        context = await browser.new_context(locale=locale, color_scheme=scheme, viewport=PHONE, is_mobile=True)
        page = await context.new_page()
        found = []
        paths = await link_paths(engine)
        for name, path in paths.items():
            await page.goto(server.url + path)
            await page.wait_for_selector("h1")
            found += await broken(page, source, name)
        await page.goto(server.url + paths["link to approve"])
        await page.click("main button")
        await page.wait_for_selector("#state")
        found += await broken(page, source, "the answer")
        await page.goto(server.url + paths["link to deny"])
        await page.wait_for_selector("#state")
        assert await page.locator("main button").count() == 0
        found += await broken(page, source, "who is late")
        assert found == []
