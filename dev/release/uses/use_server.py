"""``saga serve``: a saga is submitted over HTTP and read again."""

import asyncio
import json
import time
import urllib.request
from pathlib import Path

from desk import GOOD, STORE, book, go, serving, unbook

from saga_engine import Coordinator


def ask(url: str, body: dict | None = None) -> dict:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"content-type": "application/json", "idempotency-key": "k-1"})
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.loads(answer.read())


def submitted(url: str) -> None:
    ask(f"{url}/v1/sagas", {"plan": GOOD, "saga_id": "s"})
    end = time.monotonic() + 60
    while (found := ask(f"{url}/v1/sagas/s"))["status"] != "COMPLETED":
        assert time.monotonic() < end, found
        time.sleep(0.05)
    with urllib.request.urlopen(f"{url}/", timeout=30) as page:
        assert b"<html" in page.read()


async def main() -> str:
    Path("tools.py").write_text("from desk import book, unbook\n")
    async with Coordinator.open(STORE, [book, unbook]) as coordinator:
        worker = asyncio.create_task(coordinator.work())
        with serving("--auth", "none", "--tools", "tools.py") as url:
            await asyncio.to_thread(submitted, url)
    await worker
    return "a saga over HTTP completes; the console answers"


go(main)
