"""One-tap links in a browser with a phone's viewport: from the card that a chat received to the end of the saga."""

from __future__ import annotations

import json
import os
import queue
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, expect, sync_playwright

from tests.support.servers import GIVE_UP_S

pytestmark = pytest.mark.chromium
CHROMIUM = "/usr/bin/chromium"


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


@pytest.fixture
def chat() -> Iterator[tuple[str, queue.Queue[Any]]]:
    """The address of a chat's webhook, and the cards that it got."""
    cards: queue.Queue[Any] = queue.Queue()

    class Chat(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            cards.put(json.loads(self.rfile.read(int(self.headers["content-length"]))))
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"ok")

        def log_message(self, *_: Any) -> None:
            """Nothing: the test's output is its own."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Chat)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/services/T0/B0/x", cards
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_tap_on_a_phone_lets_the_saga_go_on(chromium: Browser, chat: tuple[str, queue.Queue[Any]], tmp_path: Path):
    """No sign-in, a button for a thumb, nothing to scroll aside; who is late reads who decided, in Chinese as well."""
    listening = socket.create_server(("127.0.0.1", 0))
    command = [sys.executable, str(Path(__file__).parent / "linked.py"), str(listening.fileno())]
    command += [f"embedded://{tmp_path / 'store'}", chat[0]]
    process = subprocess.Popen(command, pass_fds=[listening.fileno()])
    phone = {"viewport": {"width": 390, "height": 844}, "is_mobile": True, "has_touch": True}
    try:
        cards = {}
        for _ in range(2):
            *_, actions = chat[1].get(timeout=GIVE_UP_S)["blocks"]
            approve, deny, opened = (each["url"] for each in actions["elements"])
            cards[opened.rpartition("/")[2]] = (approve, deny)
        context = chromium.new_context(**phone, locale="en-US")
        context.set_default_timeout(GIVE_UP_S * 1000)
        page = context.new_page()
        errors: list[str] = []
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.goto(cards["yes"][0])
        expect(page.locator("h1")).to_have_text("May this call be made?")
        expect(page.locator("main")).to_contain_text("4200")
        button = page.get_by_role("button", name="Approve")
        box = button.bounding_box()
        assert box is not None
        assert box["height"] >= 44
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        page.keyboard.press("?")
        button.tap()
        expect(page.locator("#state")).to_have_text("The answer is recorded: Approve.")
        page.reload()
        expect(page.locator("#state")).to_have_text("The answer is recorded: Approve.")
        assert page.evaluate("window.hacked") is None
        assert errors == []
        late = chromium.new_context(**phone, locale="zh-CN").new_page()
        late.goto(cards["yes"][1])
        expect(late.locator("#state")).to_contain_text("已答复：批准")
        expect(late.get_by_role("button")).to_have_count(0)
        late.goto(cards["no"][1])
        late.get_by_role("button", name="拒绝").tap()
        expect(late.locator("#state")).to_have_text("答复已记录：拒绝。")
    finally:
        process.terminate()
        process.wait()
        listening.close()
