"""What spans cost: the CPU time of sagas with and without them, in turns in one process, and the ratio.

    python dev/benchmarks/spans.py [SAGAS]

The receiver is a process of its own that reads and forgets. The time counts all threads of this process.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import tempfile
import time
from statistics import median

from saga_engine import Coordinator, tool
from saga_engine.telemetry import Spans

STEPS = 10
ROUNDS = 9
RECEIVER = """
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_POST(self):
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()
    def log_message(self, *_):
        pass
server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
print(server.server_port, flush=True)
server.serve_forever()
"""


@tool(undo="back")
async def forth(idempotency_key: str) -> dict:
    return {"ref": idempotency_key}


@tool
async def back(ref: str) -> dict:  # noqa: ARG001
    return {}


PLAN = {"steps": [{"step_id": at, "tool": "forth"} for at in range(STEPS)]}


async def spent(coordinator: Coordinator, sagas: int) -> float:
    """CPU microseconds for each step."""
    begun = time.process_time()
    await asyncio.gather(*(coordinator.run(PLAN) for _ in range(sagas)))
    return (time.process_time() - begun) / sagas / STEPS * 1e6


async def main(sagas: int) -> None:
    command = [sys.executable, "-c", RECEIVER]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as receiver:  # noqa: ASYNC220
        try:
            assert receiver.stdout is not None
            spans = Spans(f"http://127.0.0.1:{receiver.stdout.readline().strip()}")
            with tempfile.TemporaryDirectory() as folder:
                for store in ("memory://", f"embedded://{folder}"):
                    async with (
                        Coordinator.open(store, [forth, back]) as off,
                        Coordinator.open(off.store, [forth, back], spans=spans) as on,
                    ):
                        rounds = [(await spent(off, sagas), await spent(on, sagas)) for _ in range(ROUNDS)][1:]
                    plain, spanned = (median(column) for column in zip(*rounds, strict=True))
                    ratio = median(one / other for other, one in rounds)
                    name = store.partition(":")[0]
                    print(f"{name}: {plain:.0f} µs a step without, {spanned:.0f} with, ratio {ratio:.2f}")
            spans.close()
            print(f"lost: {spans.outbox.dropped}")
        finally:
            receiver.kill()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 50))
