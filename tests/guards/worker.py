"""A process of its own that makes guarded calls: ``python -m tests.guards.worker URL LOG LEASE_S [HOST]``.

Reads one JSON list of keys a line, makes a call for each at the same time, and answers with a line when all are served.
Each call writes ``+ KEY ID`` when it is inside and ``- KEY ID`` before it leaves. With ``{"hold": KEYS, "wait": KEYS}`` the
first calls never leave. HOST: another name for this machine.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sys

from saga_engine.core.effects import Done
from saga_engine.stores import open_store
from saga_engine.tools.decorator import tool
from tests.guards.world import guard, step

#: How long a call is inside, in round trips to the server that all processes share.
ROUND_TRIPS = 10


async def main(url: str, path: str, lease_s: float) -> None:
    log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    loop = asyncio.get_running_loop()

    @tool(resource="key:{key}", timeout_s=600)
    async def act(key: str, who: str, hold: bool = False):
        os.write(log, f"+ {key} {who}\n".encode())
        if hold:
            await asyncio.Event().wait()
        for _ in range(ROUND_TRIPS):  # so long that another process would come in if it could
            await shared.saga_driven("nobody")
        os.write(log, f"- {key} {who}\n".encode())

    store = open_store(url, durability="relaxed")
    await store.open()
    shared = store.guard_store()
    tools = guard(shared, act, lease_s=lease_s)
    number = 0
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        asked = json.loads(line)
        held, keys = ([], asked) if isinstance(asked, list) else (asked["hold"], asked.get("wait", []))
        calls = []
        for hold, key in [*((True, key) for key in held), *((False, key) for key in keys)]:
            number += 1
            who = f"{os.getpid()}-{number}"
            calls.append(tools.call("act", {"key": key, "who": who, "hold": hold}, step(f"s{os.getpid()}", number)))
        outcomes = await asyncio.gather(*calls)
        sys.stdout.write("served\n" if all(type(one) is Done for one in outcomes) else f"failed {outcomes}\n")
        sys.stdout.flush()
    await tools.close()
    await store.close()


if __name__ == "__main__":
    if sys.argv[4:]:
        socket.gethostname = lambda: sys.argv[4]
    asyncio.run(main(sys.argv[1], sys.argv[2], float(sys.argv[3])))
