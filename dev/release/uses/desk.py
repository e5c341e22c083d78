"""What the programs beside this one share: tools, a plan that is undone, and a saga on the given store."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import saga_engine
from saga_engine import Coordinator, ToolError, tool

STORE = os.environ["RELEASE_STORE"]
BIN = Path(os.environ["RELEASE_BIN"])
#: Programs that stand outside the environment: what is no dependency of the engine.
TOOLS = Path(os.environ["RELEASE_TOOLS"])
BOOKED: list[str] = []


@tool(undo="unbook")
async def book(item: str, idempotency_key: str) -> dict[str, str]:
    """Book an item."""
    if item == "hotel":
        raise ToolError("the hotel is full", error_code="sold_out")
    BOOKED.append(item)
    return {"ref": item}


@tool
async def unbook(ref: str, idempotency_key: str) -> None:
    """Give an item back."""
    BOOKED.remove(ref)


PLAN = {
    "goal": "a flight and a hotel",
    "steps": [
        {"step_id": 1, "tool": "book", "params": {"item": "flight"}},
        {"step_id": 2, "tool": "book", "params": {"item": "hotel"}, "depends_on": [1]},
    ],
}
GOOD = {"steps": [{"step_id": 1, "tool": "book", "params": {"item": "flight"}}]}


def installed() -> None:
    """The engine is the one of this environment, not one of a source tree."""
    where = Path(saga_engine.__file__)
    assert where.is_relative_to(BIN.parent), where


async def undone(coordinator: Coordinator, saga_id: str) -> None:
    """The plan fails at its second step, and the first one is undone."""
    outcome = await coordinator.run(PLAN, saga_id=saga_id)
    assert outcome.status == "COMPENSATED", outcome
    assert outcome.report["compensated"] == [1], outcome.report
    assert BOOKED == []


def go(body: Callable[[], Coroutine[None, None, str]]) -> None:
    """Run a program of this folder: its last line says what it did."""
    installed()
    print(asyncio.run(body()))


@contextmanager
def serving(*words: str) -> Iterator[str]:
    """``saga serve`` as a process of its own; its URL."""
    command = [BIN / "saga", "serve", "--port", "0", "--store", STORE, *words]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        yield server.stdout.readline().strip()
        server.send_signal(signal.SIGTERM)
        server.wait(60)
    finally:
        server.kill()
        server.communicate()


Answer = tuple[int, bytes]


def in_turn(*answers: Answer) -> Callable[[int, str], Answer]:
    """These answers one after the other, the last one for ever."""
    return lambda number, _path: answers[min(number, len(answers)) - 1]


@contextmanager
def answering(reply: Callable[[int, str], Answer]) -> Iterator[tuple[str, list[tuple[str, str, bytes]]]]:
    """An HTTP server; ``reply`` gets the number and the path of a request. Its URL, and what was asked."""
    asked: list[tuple[str, str, bytes]] = []

    class Handler(BaseHTTPRequestHandler):
        def _any(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
            asked.append((self.command, self.path, body))
            status, text = reply(len(asked), self.path)
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        do_GET = do_POST = do_DELETE = _any

        def log_message(self, *_: object) -> None:
            """Quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", asked
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
