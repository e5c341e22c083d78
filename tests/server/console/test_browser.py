"""The console in a browser: Debian's Chromium drives the booking example, on real processes and a real store."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

from saga_engine import Coordinator
from tests.support.servers import GIVE_UP_S, until

pytestmark = pytest.mark.chromium
CHROMIUM = "/usr/bin/chromium"
HERE = Path(__file__).parent
ROOT = HERE.parents[2]
BOOKING = ROOT / "examples/booking"
PLAN = json.loads((BOOKING / "travel_request_001.json").read_text())
NASTY = "</title><script>window.hacked=1</script><img src=x onerror=window.hacked=1>'\"&"
expect.set_options(timeout=GIVE_UP_S * 1000)


class Site:
    """A store, an outside world, and a server on a socket that stays when the server is killed."""

    def __init__(self, folder: Path) -> None:
        self.store = f"embedded://{folder / 'store'}"
        self.world = folder / "world.db"
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.listening.getsockname()[1]}"
        self.running: list[subprocess.Popen[str]] = []
        self.server = self.serve()

    def start(self, *args: str, hold: str = "") -> subprocess.Popen[str]:
        env = os.environ | {"BOOKING_WORLD": str(self.world), "BOOKING_HOLD": hold}
        command = [sys.executable, str(HERE / "served.py"), *args, self.store]
        made = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True, pass_fds=[self.listening.fileno()])
        self.running.append(made)
        assert made.stdout is not None
        assert made.stdout.readline().strip() in {"serves", "works"}
        return made

    def serve(self) -> subprocess.Popen[str]:
        return self.start("serve", str(self.listening.fileno()))

    @contextlib.contextmanager
    def worker(self, hold: str = "") -> Iterator[subprocess.Popen[str]]:
        made = self.start("work", hold=hold)
        try:
            yield made
        finally:
            self.end(made)

    def end(self, process: subprocess.Popen[str]) -> None:
        process.kill()
        process.communicate()
        self.running.remove(process)

    def hotel_has(self, rooms: int) -> None:
        sys.path.insert(0, str(BOOKING))
        from world import World

        World(self.world).set_left("hotel", "Hilton", rooms)

    def close(self) -> None:
        for process in [*self.running]:
            self.end(process)
        self.listening.close()
        last = threading.Thread(target=asyncio.run, args=[self.leave()])  # (Playwright's loop is in this one)
        last.start()
        last.join()

    async def leave(self) -> None:
        """Whoever is killed leaves the store's server running; the last one who closes it stops it."""
        async with Coordinator.open(self.store, []):
            pass


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    if not Path(CHROMIUM).exists():
        if os.environ.get("CI") == "true":
            pytest.fail(f"{CHROMIUM} is missing in CI")
        pytest.skip(f"{CHROMIUM} is not installed")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, chromium: Browser) -> Iterator[Site]:
    made = Site(tmp_path_factory.mktemp("site"))
    yield made
    made.close()


@pytest.fixture
def context(chromium: Browser) -> Iterator[BrowserContext]:
    made = chromium.new_context(locale="en-US")
    made.set_default_timeout(GIVE_UP_S * 1000)
    yield made
    made.close()


def submit(page: Page, site: Site, plan: dict, saga_id: str) -> None:
    """Paste a plan into its page and submit it; the page of the saga follows."""
    page.goto(f"{site.url}/ui/plan")
    page.fill("#plan", json.dumps(plan | {"task_id": saga_id}))
    page.click("button[value=submit]")
    expect(page.locator("h1")).to_have_text(saga_id)
    page.evaluate("window.stays = true")  # until the page is loaded anew


def status(page: Page):
    return page.locator("#head .badge")


def test_the_hotel_is_full_and_the_page_tells_how_the_flight_was_cancelled(site: Site, context: BrowserContext):
    """Pasted, submitted and watched: the page follows the saga to its clean end without being loaded anew."""
    site.hotel_has(0)
    page = context.new_page()
    submit(page, site, PLAN, "full")
    with site.worker():
        expect(status(page)).to_have_text("Compensated")
    expect(page.locator("#report")).to_contain_text("clean")
    expect(page.locator("#why")).to_contain_text("sold_out")
    expect(page.locator(".lanes .undo.ok")).to_have_count(1)
    assert page.evaluate("window.stays")


def test_a_worker_is_killed_and_the_open_page_sees_the_recovery(site: Site, context: BrowserContext):
    """Kill -9 while the hotel's answer is on its way: the page shows the call, then the take-over and the end."""
    site.hotel_has(5)
    held = Path(f"{site.world}.held")
    page = context.new_page()
    submit(page, site, PLAN, "killed")
    with site.worker(hold="hotel_api"):
        until(held.exists, "the hotel has booked")
        expect(page.locator(".lanes .call.open")).to_have_count(1)
    held.unlink()
    with site.worker():
        expect(status(page)).to_have_text("Completed")
    expect(page.locator(".axis .resumed").first).to_be_attached()
    expect(page.locator(".lanes .call.doubt")).not_to_have_count(0)
    assert page.evaluate("window.stays")


def test_an_approval_on_a_phone_and_somebody_who_decides_at_the_same_time(
    site: Site, chromium: Browser, context: BrowserContext
):
    """A thumb reaches the buttons, nothing has to be scrolled aside, and the one who is late reads who was first."""
    plan = {"steps": [{"step_id": "pay", "tool": "pay", "params": {"amount": 4200, "purpose": "all of it"}}]}
    desk = context.new_page()
    submit(desk, site, plan, "dear")
    with site.worker():
        expect(desk.locator(".question")).to_have_count(1)
    phone = chromium.new_context(viewport={"width": 390, "height": 844}, is_mobile=True, has_touch=True, locale="zh-CN")
    phone.set_default_timeout(GIVE_UP_S * 1000)
    page = phone.new_page()
    page.goto(f"{site.url}/ui/questions")
    approve = page.locator(".question").filter(has_text="dear").get_by_role("button", name="批准")
    box = approve.bounding_box()
    assert box is not None
    assert box["height"] >= 44
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    approve.tap()
    expect(page.locator("#said")).to_have_text("答复已记录。")
    desk.get_by_role("button", name="Deny").click()
    expect(desk.locator("#said")).to_contain_text("answered first: Approve")
    phone.close()
    desk.goto(f"{site.url}/ui/sagas/dear")
    with site.worker():
        expect(status(desk)).to_have_text("Completed")


def test_a_server_that_is_killed_loses_and_doubles_nothing_on_the_page(site: Site, context: BrowserContext):
    """The page says that the connection is lost; once the server is back it shows each record once, to the last."""
    site.hotel_has(5)
    page = context.new_page()
    submit(page, site, PLAN, "restart")
    page.goto(f"{site.url}/ui/sagas/restart?view=records&at=0")
    expect(page.locator("html[data-live=on]")).to_be_attached()
    site.end(site.server)
    expect(page.locator("#live-state")).not_to_be_empty()
    with site.worker():
        site.server = site.serve()
        expect(status(page)).to_have_text("Completed")
    expect(page.locator(".records .kind").last).to_have_text("SagaCompleted")
    shown = page.eval_on_selector_all("li[data-seq]", "rows => rows.map(row => Number(row.dataset.seq))")
    assert shown == list(range(len(shown)))
    expect(page.locator("#live-state")).to_be_empty()


def test_what_a_model_wrote_is_inert_in_the_browser(site: Site, context: BrowserContext):
    """Scripts in goal, params, outputs and errors do not run; the policy would also stop one that got into the page."""
    page = context.new_page()
    dialogs: list[str] = []
    page.on("dialog", lambda dialog: dialogs.append(dialog.message))
    plan = {
        "goal": NASTY,
        "steps": [
            {"step_id": "a", "name": NASTY, "tool": "echo", "params": {"text": NASTY}},
            {"step_id": "b", "tool": "fail", "params": {"text": NASTY}},
        ],
    }
    submit(page, site, plan, "nasty")
    with site.worker():
        expect(status(page)).to_have_text("Compensated")
    for path in ("?step=a", "?step=b", "?view=graph", "?view=records", "?view=plan"):
        page.goto(f"{site.url}/ui/sagas/nasty{path}")
        expect(page.locator(".goal").first).to_have_text(NASTY)
        assert page.evaluate("window.hacked") is None
    inline = "const made = document.createElement('script'); made.textContent = 'window.hacked = 1'; document.body.append(made)"
    page.evaluate(inline)
    assert page.evaluate("window.hacked") is None
    assert dialogs == []


def test_all_of_it_is_reached_by_keys(site: Site, context: BrowserContext):
    """Keys open the pages, move between rows, open one and find the search; what has the focus shows it."""
    page = context.new_page()
    submit(page, site, PLAN, "by-keys")
    page.goto(f"{site.url}/ui/questions")
    page.keyboard.press("g")
    page.keyboard.press("s")
    page.wait_for_url(re.compile("/ui/sagas$"))
    expect(page.locator("html[data-live=on]")).to_be_attached()  # the script has begun
    page.keyboard.press("j")
    expect(page.locator("tbody tr").first.locator("a").first).to_be_focused()
    outline = "getComputedStyle(document.activeElement).outlineStyle"
    assert page.evaluate(outline) == "solid"
    page.keyboard.press("/")
    expect(page.locator("[data-search]")).to_be_focused()
    page.keyboard.press("Tab")
    page.locator("tbody a").first.focus()
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile("/ui/sagas/.+"))


def test_a_saga_that_waits_shows_a_stop_and_its_end(site: Site, context: BrowserContext):
    """An open page of a saga without a new record: it learns of a stop, and of `go`, without being loaded anew."""
    saga, page = context.new_page(), context.new_page()
    submit(saga, site, PLAN, "waits")
    expect(saga.locator("html[data-live=on]")).to_be_attached()
    expect(saga.locator("#held")).to_have_count(0)
    for scope in ("saga:waits", "all"):
        page.goto(f"{site.url}/ui/stop?saga=waits")
        page.select_option("#scope", scope if scope != "all" else "")
        page.get_by_role("button", name="Stop now").click()
        expect(saga.locator("#held")).to_be_attached()
        page.get_by_role("button", name="Go on").click()
        expect(saga.locator("#held")).to_have_count(0)
    assert saga.evaluate("window.stays")
    with site.worker():
        expect(status(saga)).to_have_text("Completed")


def test_a_stop_is_set_seen_by_others_and_lifted(site: Site, context: BrowserContext):
    """A button, a reason, and nothing is called; pages that are open show it without being loaded anew, and its end."""
    site.hotel_has(5)
    saga = context.new_page()
    submit(saga, site, PLAN, "held")
    board = context.new_page()
    board.goto(f"{site.url}/ui/stop")
    expect(board.locator("html[data-live=on]")).to_be_attached()
    expect(board.locator("#stops li")).to_have_count(0)
    board.evaluate("window.stays = true")
    page = context.new_page()
    page.goto(f"{site.url}/ui/stop")
    page.fill("#note", NASTY)
    page.get_by_role("button", name="Stop now").click()
    expect(page.locator("#said")).to_have_text("The stop is in force.")
    expect(page.locator("#stops li")).to_contain_text(NASTY)
    expect(board.locator("#stops li")).to_contain_text(NASTY)
    with site.worker():
        expect(saga.locator("#held")).to_be_attached()
        expect(saga.locator(".lanes .call.ok")).to_have_count(0)
        board.get_by_role("button", name="Go on").click()
        expect(page.locator("#stops li")).to_have_count(0)
        expect(status(saga)).to_have_text("Completed")
    expect(saga.locator("#held")).to_have_count(0)
    for each in (saga, board, page):
        assert each.evaluate("window.hacked") is None
    assert saga.evaluate("window.stays")
