"""Everything that a network may do to the engine's doors, at once and for as long as you like, beside agents that work.

Two servers (one of them is killed again and again), two workers (likewise) and one ``saga mcp --http --engine`` on one
embedded store. Against them, from addresses of their own: clients that never end a head or a body, clients that read
streams and lists a byte at a time or not at all, wrong tokens, a token that floods with checks, simulations and lists
and leaves before the answer. Beside them agents with tokens submit sagas under keys, answer their questions, and read
them to their ends; others check plans by MCP. Each line of the output has the memory of the processes and the answers
of the agents so far. The end says whether every saga of the agents completed with one effect, and how memory went.

    python dev/benchmarks/soak.py --minutes 60          # from an environment with the extras server, mcp and embedded
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import random
import re
import secrets
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from pathlib import Path

import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

TOOLS = """
import json, os
from saga_engine import tool

@tool(undo="cancel", keyed=True)
def book(item: str, idempotency_key: str = "") -> dict[str, str]:
    with open(os.environ["SOAK_LEDGER"], "a") as file:
        file.write(json.dumps([item, idempotency_key]) + "\\n")
    return {"ref": item}

@tool(tolerates_absence=True)
def cancel(item: str) -> None:
    "Never called here."
"""
#: Where the parties call from: limits count by address.
AGENTS, SLOW, WRONG, FLOOD = "127.0.0.2", "127.0.0.66", "127.0.0.67", "127.0.0.68"
PATIENCE_S = 60.0
ENDED = ("COMPLETED", "COMPENSATED", "WAIVED")


class World:
    """The processes, in a folder of their own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ledger = folder / "ledger"
        self.ledger.touch()
        (folder / "tools.py").write_text(TOOLS)
        (folder / "saga.toml").write_text("[server]\nrequests_per_s = 200\nburst = 400\n")
        self.env = {name: value for name, value in os.environ.items() if not name.startswith("SAGA_")}
        self.env["SOAK_LEDGER"] = str(self.ledger)
        self.env["SAGA_LOG_FORMAT"] = "json"
        self.env["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parents[2]), self.env.get("PYTHONPATH", "")])
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.ports: dict[str, int] = {}
        self.kills = 0
        self.ending = False

    def saga(self, *args: str) -> str:
        command = [sys.executable, "-m", "saga_engine", *args]
        done = subprocess.run(command, cwd=self.folder, env=self.env, capture_output=True, text=True, check=True)
        return done.stdout + done.stderr

    def token(self, name: str, *scopes: str) -> str:
        scoped = [part for scope in scopes for part in ("--scope", scope)]
        return re.search(r"saga_t[0-9a-f]{11}_[A-Za-z0-9_-]{43}", self.saga("token", "create", name, *scoped))[0]

    def start(self, name: str, *args: str) -> None:
        command = [sys.executable, "-m", "saga_engine", *args, "--tools", "tools.py"]
        with (self.folder / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(command, cwd=self.folder, env=self.env, stdout=log, stderr=log)

    def serve(self, name: str, port: int = 0) -> None:
        self.ports[name] = port or free_port()
        self.start(name, "serve", "--port", str(self.ports[name]))

    def gateway(self, token: str) -> None:
        (self.folder / "tokens").write_text(f"desk {token}\n")
        (self.folder / "tokens").chmod(0o600)
        self.ports["mcp"] = free_port()
        self.start("mcp", "mcp", "--engine", "--http", f"127.0.0.1:{self.ports['mcp']}", "--token-file", "tokens")

    async def kill(self, names: tuple[str, ...], every_s: float) -> None:
        """Kill one of these processes at random moments, and start it again."""
        while True:
            await asyncio.sleep(random.uniform(0.5, 1.5) * every_s)
            name = random.choice(names)
            self.processes[name].kill()
            await asyncio.to_thread(self.processes[name].wait)
            self.kills += 1
            if name in self.ports:
                self.serve(name, self.ports[name])
            else:
                self.start(name, "worker")

    def memory(self) -> dict[str, int]:
        """MiB of each process, that of the store's server included."""
        pids = {name: process.pid for name, process in self.processes.items()}
        with contextlib.suppress(OSError, ValueError):
            pids["store"] = int((self.folder / ".saga" / "server.pid").read_text())
        found = {}
        for name, pid in pids.items():
            with contextlib.suppress(OSError):
                status = Path(f"/proc/{pid}/status").read_text()
                if (size := re.search(r"VmRSS:\s+(\d+)", status)) is not None:  # one that was just killed has none
                    found[name] = int(size[1]) // 1024
        return found

    def end(self) -> dict[str, int]:
        """Stop all; the exit codes."""
        for process in self.processes.values():
            process.send_signal(signal.SIGTERM)
        return {name: process.wait(60) for name, process in self.processes.items()}


def free_port() -> int:
    import socket

    with socket.socket() as made:
        made.bind(("127.0.0.1", 0))
        return made.getsockname()[1]


class Told:
    """What the agents got: answers by operation and status, how long each took, and what went wrong."""

    def __init__(self) -> None:
        self.answers: Counter[tuple[str, str]] = Counter()
        self.took: dict[str, list[float]] = defaultdict(list)
        self.broken: list[str] = []
        self.items: set[str] = set()

    def line(self) -> str:
        counts = " ".join(f"{name} {status}:{count}" for (name, status), count in sorted(self.answers.items()))
        return f"{counts} | {len(self.items)} sagas ended"


async def opened(port: int, source: str):
    return await asyncio.open_connection("127.0.0.1", port, local_addr=(source, 0))


def head_of(method: str, path: str, token: str, length: int = 0, **more: str) -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost", "Connection: close"]
    lines += [f"Authorization: Bearer {token}"] if token else []
    lines += [f"Content-Type: application/json\r\nContent-Length: {length}"] if length else []
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in more.items()]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


async def ask(port: int, source: str, method: str, path: str, token: str, body=None, **more: str):
    """One request: its status and its body."""
    data = b"" if body is None else json.dumps(body).encode()
    reader, writer = await opened(port, source)
    try:
        writer.write(head_of(method, path, token, len(data), **more) + data)
        await writer.drain()
        answer = await reader.read()
    finally:
        writer.close()
    head, _, rest = answer.partition(b"\r\n\r\n")
    length = re.search(rb"content-length: (\d+)", head, re.IGNORECASE)
    if not head or (length is not None and len(rest) < int(length[1])):
        raise ConnectionError("no whole answer")
    if length is None:
        return int(head.split()[1]), rest
    return int(head.split()[1]), json.loads(rest) if b"json" in head else rest


# --- agents --------------------------------------------------------------------------------------------------------


async def served(world: World, told: Told, name: str, method: str, path: str, token: str, body=None, **more: str):
    """The answer to an agent, which asks the servers in turns until one of them answers."""
    begun = time.monotonic()
    while True:
        for server in random.sample(("one", "two"), 2):
            try:
                async with asyncio.timeout(PATIENCE_S):
                    status, found = await ask(world.ports[server], AGENTS, method, path, token, body, **more)
            except (OSError, TimeoutError) as error:
                if server == "one":  # the one that is never killed
                    told.answers[name, type(error).__name__] += 1
                    told.broken.append(f"{name}: {error!r} of the server that lives")
                continue
            told.answers[name, str(status)] += 1
            if status < 500:
                told.took[name].append(time.monotonic() - begun)
                return status, found
        await asyncio.sleep(0.1)
        if time.monotonic() - begun > 3 * PATIENCE_S:
            told.broken.append(f"{name}: no answer in {3 * PATIENCE_S:g} s")
            return 0, {}


async def agent(world: World, told: Told, token: str, number: int) -> None:
    """Sagas one after the other: submitted, answered, and read to the end."""
    for turn in range(10**9):
        if world.ending:
            return
        item = f"{number}-{turn}"
        question = {"step_id": "ask", "ask": {"question": "Shall we?", "options": ["yes", "no"]}}
        plan = {"steps": [question, {"step_id": "book", "tool": "book", "params": {"item": item}}]}
        key = {"Idempotency_Key": f"submit-{item}"}
        status, found = await served(world, told, "submit", "POST", "/v1/sagas", token, {"plan": plan}, **key)
        if status != 202:
            told.broken.append(f"submit: {status} {str(found)[:200]}")
            continue
        path = f"/v1/sagas/{found['saga_id']}"
        answered, begun = False, time.monotonic()
        while time.monotonic() - begun < 3 * PATIENCE_S:
            status, found = await served(world, told, "show", "GET", f"{path}?wait=20", token)
            if status == 200 and found["status"] in ENDED:
                break
            if status == 200 and found["questions"] and not answered:
                body, key = {"step_id": "ask", "decision": "yes"}, {"Idempotency_Key": f"resolve-{item}"}
                status, _ = await served(world, told, "resolve", "POST", f"{path}/resolve", token, body, **key)
                answered = status == 202
            elif status != 200:
                await asyncio.sleep(0.2)
        if found.get("status") != "COMPLETED":
            told.broken.append(f"saga of item {item}: {found.get('status')}")
        told.items.add(item)


async def mcp_agent(world: World, told: Told, token: str) -> None:
    """Checks plans by MCP, in a session of its own each time."""
    plan = {"steps": [{"step_id": 1, "tool": "book", "params": {"item": "x"}}]}
    transport = httpx2.AsyncHTTPTransport(local_address=AGENTS)
    headers = {"authorization": f"Bearer {token}"}
    address = f"http://127.0.0.1:{world.ports['mcp']}/mcp"
    async with httpx2.AsyncClient(headers=headers, timeout=PATIENCE_S, transport=transport) as http:
        while not world.ending:
            begun = time.monotonic()
            try:
                async with Client(streamable_http_client(address, http_client=http), mode="auto", cache=None) as client:
                    answer = await client.call_tool("saga_check", {"plan": plan})
            except Exception as error:  # noqa: BLE001 - whatever it is, the agent was not served
                told.answers["mcp", type(error).__name__] += 1
                told.broken.append(f"mcp: {error!r}")
            else:
                told.answers["mcp", "error" if answer.is_error else "ok"] += 1
                told.took["mcp"].append(time.monotonic() - begun)
            await asyncio.sleep(0.5)


# --- attackers -----------------------------------------------------------------------------------------------------


async def again(attack) -> None:
    """One after the other, whatever becomes of each."""
    while True:
        with contextlib.suppress(OSError, ConnectionError, TimeoutError, asyncio.IncompleteReadError, ValueError):
            async with asyncio.timeout(120):
                await attack()
        await asyncio.sleep(0.01)


def slow_writer(world: World, token: str):
    async def attack() -> None:
        port = random.choice([*world.ports.values()])
        kind = random.choice(("head", "body", "silent"))
        _, writer = await opened(port, SLOW)
        try:
            head = head_of("POST", "/v1/check", token, 1_000_000)
            await drip(writer, b"" if kind == "silent" else head[:-2] if kind == "head" else head, b" ")
        finally:
            writer.close()

    return attack


async def drip(writer, first: bytes, more: bytes) -> None:
    writer.write(first)
    while True:
        await writer.drain()
        await asyncio.sleep(0.5)
        writer.write(more)


def slow_reader(world: World, token: str, saga: str):
    async def attack() -> None:
        port = world.ports[random.choice(("one", "two"))]
        reader, writer = await opened(port, SLOW)
        path = random.choice((f"/v1/sagas/{saga}/stream", "/v1/sagas?limit=100", "/v1/openapi.json"))
        try:
            writer.write(head_of("GET", path, token) * random.choice((1, 50)))
            pause_s = random.choice((0.5, 30))
            while await reader.read(1):  # noqa: ASYNC110 - it is slow on purpose
                await asyncio.sleep(pause_s)
        finally:
            writer.close()

    return attack


def wrong(world: World):
    async def attack() -> None:
        token = random.choice((f"saga_t{secrets.token_hex(6)[:11]}_{secrets.token_urlsafe(32)}", "x" * 60, "é"))
        port = random.choice([*world.ports.values()])
        reader, writer = await opened(port, WRONG)
        try:
            writer.write(head_of("GET", random.choice(("/v1/sagas", "/mcp", "/v1/events")), token))
            await reader.read()
        finally:
            writer.close()

    return attack


def flood(world: World, token: str):
    steps = [{"step_id": k, "tool": "book", "params": {"item": "x"}, "depends_on": []} for k in range(2000)]
    plans = [json.dumps({"plan": {"steps": steps[:size]}}).encode() for size in (5, 300, 2000)]

    async def attack() -> None:
        port = world.ports[random.choice(("one", "two"))]
        data = random.choice(plans)
        reader, writer = await opened(port, FLOOD)
        try:
            if random.random() < 0.5:
                writer.write(head_of("GET", "/v1/sagas?limit=100", token).replace(b"Connection: close\r\n", b"") * 20)
            else:
                writer.write(head_of("POST", random.choice(("/v1/check", "/v1/simulate")), token, len(data)) + data)
            await writer.drain()
            if random.random() < 0.5:  # the others leave
                await reader.read(65536)
        finally:
            writer.close()

    return attack


# --- the run -------------------------------------------------------------------------------------------------------


async def ended(options: argparse.Namespace, world: World) -> int:
    """The run; the agents see that it is over, however it ends."""
    try:
        return await run(options, world)
    finally:
        world.ending = True


async def run(options: argparse.Namespace, world: World) -> int:
    admin, reading = world.token("admin", "admin"), world.token("reader", "read")
    agents = [world.token(f"agent {number}", "read", "submit", "resolve") for number in range(options.agents)]
    agent_token = secrets.token_urlsafe(32)
    world.gateway(agent_token)
    world.serve("one")
    world.serve("two")
    for name in ("worker-1", "worker-2"):
        world.start(name, "worker")
    told = Told()
    for name in ("one", "two", "mcp"):
        while True:
            with contextlib.suppress(OSError):
                (await opened(world.ports[name], AGENTS))[1].close()
                break
            await asyncio.sleep(0.2)
    wait = {"steps": [{"step_id": 1, "wait": {"event": "never", "key": "1", "timeout_s": 86400}}]}
    status, kept = await served(world, Told(), "submit", "POST", "/v1/sagas", admin, {"plan": wait})
    if status != 202:
        raise SystemExit(f"the first saga was refused: {status} {kept}")
    working = [asyncio.create_task(agent(world, told, token, number)) for number, token in enumerate(agents)]
    working.append(asyncio.create_task(mcp_agent(world, told, agent_token)))
    attacks = [
        slow_writer(world, reading),
        slow_reader(world, reading, kept["saga_id"]),
        wrong(world),
        flood(world, reading),
    ]
    others = [
        asyncio.create_task(again(attack))
        for attack, many in zip(attacks, (options.slow, options.slow, options.wrong, options.flood), strict=True)
        for _ in range(many)
    ]
    if options.kill_s:
        others.append(asyncio.create_task(world.kill(("two", "worker-1", "worker-2"), options.kill_s)))
    history: list[dict[str, int]] = []
    begun = time.monotonic()
    while (at := time.monotonic() - begun) < options.minutes * 60:
        await asyncio.sleep(min(options.every_s, options.minutes * 60 - at + 0.1))
        history.append(world.memory())
        sizes = " ".join(f"{name} {size}" for name, size in history[-1].items())
        print(f"{time.monotonic() - begun:6.0f} s | MiB: {sizes} | {world.kills} kills | {told.line()}", flush=True)
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
    world.ending = True
    done, left = await asyncio.wait(working, timeout=4 * PATIENCE_S)
    told.broken += [f"an agent ended: {task.exception()!r}" for task in done if task.exception() is not None]
    told.broken += ["an agent does not end"] * len(left)
    return summary(world, told, history)


def summary(world: World, told: Told, history: list[dict[str, int]]) -> int:
    effects: dict[str, set[str]] = defaultdict(set)
    for line in world.ledger.read_text().splitlines():
        item, key = json.loads(line)
        effects[item].add(key)
    told.broken += [
        f"item {item}: {len(effects[item])} effects" for item in sorted(told.items) if len(effects[item]) != 1
    ]
    for log in sorted(world.folder.glob("*.log")):
        failed = [line for line in log.read_text(errors="replace").splitlines() if "request failed" in line]
        told.broken += [f"{log.name}: {line[:2000]}" for line in failed[:5]]
    print()
    for name, unsorted in sorted(told.took.items()):
        times = sorted(unsorted)
        late = times[len(times) * 99 // 100]
        middle = statistics.median(times)
        print(f"{name}: {len(times)} answers; median {middle:.3f} s, 99 % {late:.3f} s, longest {times[-1]:.3f} s")
    for name in ("one", "mcp", "store"):  # those that are never killed
        sizes = [each[name] for each in history if name in each]
        if len(sizes) >= 4:
            quarter = len(sizes) // 4
            first, last = statistics.median(sizes[quarter : 2 * quarter]), statistics.median(sizes[-quarter:])
            print(
                f"memory of {name}: {sizes[0]} MiB at first, {first:g} in the second quarter, {last:g} in the last one"
            )
    print(f"{world.kills} kills; {len(told.items)} sagas, each with one effect: {not told.broken}")
    for text in told.broken[:20]:
        print(f"BROKEN {text}")
    return 1 if told.broken else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--every-s", type=float, default=15.0, help="a line of output so often")
    parser.add_argument("--kill-s", type=float, default=15.0, help="a kill so often on average; 0: none")
    parser.add_argument("--agents", type=int, default=8)
    parser.add_argument("--slow", type=int, default=200, help="slow readers, and slow writers")
    parser.add_argument("--wrong", type=int, default=8, help="clients with wrong tokens, each without a pause")
    parser.add_argument("--flood", type=int, default=8, help="clients of one token that flood")
    parser.add_argument("--keep", action="store_true", help="keep the folder with the logs")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="saga-soak-"))
    world = World(folder)
    try:
        return asyncio.run(ended(options, world))
    finally:
        print(f"exit codes at SIGTERM: {world.end()}")
        if options.keep:
            print(f"logs: {folder}")
        else:
            import shutil

            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
