"""Texts of models, tools and people are inert in the browser, wherever they stand."""

from __future__ import annotations

import asyncio

import pytest
from playwright.async_api import Page

from saga_engine import Coordinator, Tool, ToolError, tool
from saga_engine.api.stops import stop
from saga_engine.errors import SagaError
from tests.server.console.browsing import browsing
from tests.server.console.gallery import OPEN
from tests.server.harness import serving

pytestmark = pytest.mark.chromium
SCRIPT = "<script>hacked=1</script>"
NASTY = f'{SCRIPT}<img src=x onerror=hacked=1></pre></title><a href=javascript:hacked=1>\'" onfocus=hacked=1 x="&'
#: Where a text of others stands, and is shown.
PLACES = ("goal", "name", "param", "output", "error", "code", "advice", "why", "who", "ask", "option", "event", "tag")
PLACES += ("about", "halt", "default", "answer")
#: Tells what the content policy has stopped on the pages, which must not have had it.
WATCH = """
window.stopped = [];
addEventListener('securitypolicyviolation', (event) => stopped.push(`${event.violatedDirective}: ${event.sample}`));
"""


def nasty(place: str) -> str:
    return f"{place}:{NASTY}"


async def echo(text: str) -> dict[str, str]:
    return {"said": nasty("output"), nasty("field"): text}


@tool(tolerates_absence=True)
async def unecho(said: str) -> None:
    """Say no more."""


echo.__doc__ = nasty("about")
ECHO = [Tool(echo, undo="unecho"), unecho]


@tool(effect="read")
async def fail(text: str) -> None:
    raise ToolError(nasty("error"), error_code=nasty("code"), retryable=False, suggestion=nasty("advice"))


async def write_everywhere(engine: Coordinator) -> None:
    """Sagas that have the text in every place that takes one."""
    step = {"step_id": "echo", "name": nasty("name"), "tool": "echo", "params": {"text": nasty("param")}}
    broken = {"step_id": "fail", "tool": "fail", "params": {"text": nasty("param")}}
    await engine.run({"goal": nasty("goal"), "steps": [step, broken]}, saga_id="fails", tags=[nasty("tag")[:60]])
    question = {"question": nasty("ask"), "options": [nasty("option")[:80], "no"]}
    asks = {"steps": [step, {"step_id": "ask", "ask": question}]}
    await engine.run(asks, saga_id="asks")
    await engine.run(asks, saga_id="told")
    await engine.resolve("told", "ask", nasty("option")[:80], by=nasty("who")[:80], note=nasty("answer"))
    await engine.run(asks, saga_id="cancelled")
    await engine.cancel("cancelled", by=nasty("who")[:80], note=nasty("why"))
    wait = {"steps": [{"step_id": "wait", "wait": {"event": "paid", "key": "17"}}]}
    handle = await engine.submit(wait, saga_id="waits")
    await engine.send_event("paid", "17", {"text": nasty("event")})
    async with asyncio.timeout(60):
        await handle.wait()
    await engine.templates.put("nasty", {"steps": [step], "input": {"text": nasty("default")}})
    await stop(engine.store, tool="fail", by=nasty("who")[:80], note=nasty("halt"))


async def text_of(page: Page, url: str) -> str:
    """What a page shows as text, once all of it is unfolded; nothing of it has run, and nothing was to be stopped."""
    await page.goto(url)
    await page.evaluate("document.querySelectorAll('details').forEach((each) => { each.open = true })")
    await page.locator("main").hover()
    assert await page.evaluate("window.hacked") is None, url
    assert await page.evaluate("stopped") == [], url
    assert await page.evaluate("document.querySelectorAll('main img, main script').length") == 0, url
    fields = "[...document.querySelectorAll('input, textarea, option')].map((each) => each.value)"
    return str(await page.evaluate("document.body.textContent")) + str(await page.evaluate(f"{fields}.join(' ')"))


async def test_what_others_wrote_runs_on_no_page_and_is_shown_as_it_is():
    """A script in each text of a saga, a tool, a stop and a template: it is read on the pages, and runs on none."""
    asked: list[str] = []
    said: list[str] = []
    async with (
        browsing() as browser,
        Coordinator.open("memory://", [*ECHO, fail], durability="relaxed") as engine,
    ):
        await write_everywhere(engine)
        async with serving(engine, OPEN) as server:
            page = await browser.new_page()
            await page.add_init_script(WATCH)
            page.on("request", lambda request: asked.append(request.url))
            page.on("dialog", lambda dialog: said.append(dialog.message))
            page.on("pageerror", lambda error: said.append(str(error)))
            page.on("console", lambda message: said.append(message.text))
            paths = ["/ui/sagas", "/ui/questions", "/ui/workers", "/ui/templates", "/ui/templates/nasty", "/ui/stop"]
            paths += ["/ui/sagas/fails?step=echo", "/ui/sagas/fails?step=fail", "/ui/sagas/asks/cancel"]
            paths += ["/ui/sagas/waits?step=wait", "/ui/sagas/waits/undo", "/ui/sagas/asks"]
            for saga_id in ("fails", "told", "cancelled", "waits"):
                paths += [f"/ui/sagas/{saga_id}?view={view}" for view in ("timeline", "graph", "records", "plan")]
            shown = "".join([await text_of(page, server.url + path) for path in paths])
            assert [place for place in PLACES if f"{place}:{SCRIPT}" not in shown] == []
            assert [url for url in asked if not url.startswith(server.url)] == []
            assert said == []
            # The policy is there: it stops what would get into a page in spite of it all.
            inline = "const made = document.createElement('script'); made.textContent = 'hacked = 1'; document.body.append(made)"
            await page.evaluate(inline)
            assert await page.evaluate("window.hacked") is None
            assert await page.evaluate("stopped.length") == 1


@pytest.mark.parametrize("name", [NASTY, "<b>"])
async def test_a_name_cannot_hold_markup(name):
    """Names of tools, templates, schedules and sagas have letters only: what they are part of is an address."""
    with pytest.raises(SagaError):
        Tool(echo, name=name)
    async with Coordinator.open("memory://", ECHO, durability="relaxed") as engine:
        plan = {"steps": [{"step_id": "a", "tool": "echo", "params": {"text": "x"}}]}
        await engine.templates.put("fine", plan)
        with pytest.raises(SagaError):
            await engine.templates.put(name, plan)
        with pytest.raises(SagaError):
            await engine.schedules.put(name, template="fine", every_s=3600)
        with pytest.raises(SagaError):
            await engine.run(plan, saga_id=name)
