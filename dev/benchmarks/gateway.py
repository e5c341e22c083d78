"""What the gateway adds to a call: ``python dev/benchmarks/gateway.py [--calls N] [--rounds N]``.

An MCP client calls a tool of a server directly, and the same tool through ``saga mcp`` with an embedded server that
writes each record through to the disk. Beside them stands the durable write alone: the two appends of a call, by the
store's own client on the same disk. All three alternate in one run; only their differences mean something.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from mcp import Client, StdioServerParameters

from saga_engine.ports import Creation, Entry, Store
from saga_engine.sources.mcp import McpServer
from saga_engine.sources.mcp.manifest import LOCK_FILE
from saga_engine.sources.mcp.pins import write_pins
from saga_engine.stores import open_store

#: What the gateway may add beyond the durable write, at the median.
MOST_MS = 3.0
_RECORD = b"r" * 300

SERVER = """
import json, sys
SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}}
WHOLE, LISTED = {"resultType": "complete"}, {"ttlMs": 0, "cacheScope": "private"}
for line in sys.stdin:
    request = json.loads(line)
    if "id" not in request:
        continue
    found = {
        "server/discover": {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}, **LISTED},
        "tools/list": {"tools": [{"name": "act", "description": "Acts.", "inputSchema": SCHEMA}], **LISTED},
        "tools/call": {"content": [{"type": "text", "text": "done"}]},
    }[request["method"]]
    print(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": {**WHOLE, **found}}), flush=True)
"""

Once = Callable[[int], Awaitable[object]]


async def laps_ms(once: Once, count: int) -> list[float]:
    """Milliseconds of each of ``count`` calls, one after another."""
    found = []
    for number in range(count):
        begun = time.perf_counter()
        await once(number)
        found.append((time.perf_counter() - begun) * 1000)
    return found


def durable(store: Store) -> Once:
    """The two appends of a call."""
    made = 0

    async def once(_: int) -> None:
        nonlocal made
        for _ in range(2):
            made += 1
            creation = Creation("d", owned=False)
            await store.append("bench", [Entry(f"s{made}", 0, 0, [_RECORD], "RUNNING", b"{}", creation=creation)])

    return once


async def measure(folder: Path, calls: int, rounds: int) -> dict[str, list[float]]:
    """Milliseconds of all calls, by what was called."""
    script = folder / "server.py"
    script.write_text(SERVER)
    command = [sys.executable, "-I", "-S", str(script)]
    (folder / "saga.toml").write_text(f"[mcp.desk]\ncommand = {json.dumps(command)}\n\n[mcp.desk.tools.act]\n")
    server = McpServer("desk", command=command)
    write_pins(folder / LOCK_FILE, "desk", await server.listed())
    await server.close()
    env = {"SAGA_CONFIG": str(folder / "saga.toml"), "SAGA_STORE": f"embedded://{folder / 'store'}"}
    direct = StdioServerParameters(command=command[0], args=command[1:])
    through = StdioServerParameters(
        command=sys.executable, args=["-m", "saga_engine", "mcp"], env={**os.environ, **env}, cwd=str(folder)
    )
    store = open_store(f"embedded://{folder / 'alone'}")
    await store.open()
    found: dict[str, list[float]] = {"direct": [], "gateway": [], "durable": []}
    try:
        async with Client(direct, cache=None) as plain, Client(through, cache=None) as gateway:
            ways: dict[str, Once] = {
                "direct": lambda number: plain.call_tool("act", {"n": number}),
                "gateway": lambda number: gateway.call_tool("act", {"n": number}),
                "durable": durable(store),
            }
            assert not (await gateway.call_tool("act", {"n": 0})).is_error
            for once in ways.values():
                await laps_ms(once, calls)  # warm
            for _ in range(rounds):
                for name, once in ways.items():
                    found[name] += await laps_ms(once, calls)
    finally:
        await store.close()
    return found


def main() -> int:
    """0 if the gateway adds no more than it may."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=100, help="calls of each way in a round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--folder",
        type=Path,
        default=Path.cwd(),
        help="where both stores are; in memory (/dev/shm) no disk is measured",
    )
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="saga-bench-", dir=args.folder) as folder:
        found = asyncio.run(measure(Path(folder), args.calls, args.rounds))
    middle = {name: statistics.median(laps) for name, laps in found.items()}
    added = middle["gateway"] - middle["direct"]
    beyond = added - middle["durable"]
    print(f"a call, median of {args.calls * args.rounds}: direct {middle['direct']:.2f} ms", end=", ")
    print(f"through the gateway {middle['gateway']:.2f} ms: {added:.2f} ms more")
    print(f"the durable write alone: {middle['durable']:.2f} ms; the gateway adds {beyond:.2f} ms beyond it", end=" ")
    print(f"(at most {MOST_MS:g})")
    best = {name: statistics.quantiles(laps, n=10)[0] for name, laps in found.items()}
    spread = ", ".join(f"{name} {ms:.2f} ms" for name, ms in best.items())
    print(f"the best tenth (a busy machine shows little else): {spread}")
    quarter = len(found["gateway"]) // 4
    first, last = (statistics.median(part) for part in (found["gateway"][:quarter], found["gateway"][-quarter:]))
    print(f"first quarter of the session {first:.2f} ms, last quarter {last:.2f} ms")
    return 0 if beyond <= MOST_MS else 1


if __name__ == "__main__":
    sys.exit(main())
