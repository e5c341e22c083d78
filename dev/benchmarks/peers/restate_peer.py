"""Restate: its server, and this process both as the service (HTTP/2) and as the client (HTTP/1.1)."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import socket
import subprocess
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import aiohttp
import restate
import uvloop
from hypercorn.asyncio import serve
from hypercorn.config import Config
from turn import BOOK, Declined, Kind, Turn, act, asked, refuse, take, versions_of

_BINARY = "node_modules/@restatedev/restate-server-linux-x64/bin/restate-server"
_START_S = 60.0
_service = restate.Service("Book")


async def _refuse(name: str) -> Any:
    try:
        return await refuse(name)
    except Declined as error:
        raise restate.TerminalError("declined") from error


@_service.handler()
async def book(ctx: restate.Context, kind: str) -> str:
    done = []
    try:
        for name in BOOK:
            await ctx.run_typed(name, _refuse if kind == "bad" and name == BOOK[-1] else act, name=name)
            done.append(name)
    except restate.TerminalError:
        for name in reversed(done):
            await ctx.run_typed(f"cancel-{name}", act, name=f"cancel-{name}")
        return "bad"
    return "good"


@_service.handler()
async def many(ctx: restate.Context, length: int) -> str:
    for index in range(length):
        await ctx.run_typed(f"step-{index}", act, name="step")
    return "good"


_begun: dict[str, float] = {}


@_service.handler()
async def stopping(ctx: restate.Context, asked_for: dict[str, Any]) -> float:
    """Milliseconds of its second attempt: the first one fails before the last step."""
    name, length = asked_for["name"], asked_for["length"]
    second = name in _begun
    _begun[name] = time.perf_counter()
    for index in range(length):
        if index == length - 1 and not second:
            raise Declined("stopped")
        await ctx.run_typed(f"step-{index}", act, name="step")
    return (time.perf_counter() - _begun[name]) * 1000


def _free_ports(count: int) -> list[int]:
    taken = [socket.socket() for _ in range(count)]
    try:
        for one in taken:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in taken]
    finally:
        for one in taken:
            one.close()


@contextmanager
def _server(turn: Turn, ingress: int, admin: int, node: int) -> Iterator[subprocess.Popen[bytes]]:
    binary = Path(os.environ["BENCH_HOME"]) / "node" / _BINARY
    environment = {
        "PATH": os.environ["PATH"],
        "RESTATE_INGRESS__BIND_PORT": str(ingress),
        "RESTATE_ADMIN__BIND_PORT": str(admin),
        "RESTATE_BIND_PORT": str(node),
        "RESTATE_BIND_IP": "127.0.0.1",
        "RESTATE_LISTEN_MODE": "tcp",
        "RESTATE_BASE_DIR": turn.place,
        "RESTATE_NODE_NAME": "bench",
        "RESTATE_CLUSTER_NAME": "bench",
        "RESTATE_AUTO_PROVISION": "true",
        "RESTATE_DISABLE_TELEMETRY": "true",
        "RESTATE_LOG_FILTER": "warn",
    }
    with Path(turn.place, "server.log").open("wb") as log:
        server = subprocess.Popen([binary, "--no-logo"], env=environment, stdout=log, stderr=log, cwd=turn.place)
    try:
        yield server
    finally:
        server.send_signal(signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            server.wait(20)
        server.kill()
        server.wait()


def _server_version() -> str:
    package = Path(os.environ["BENCH_HOME"], "node", _BINARY).parent.parent / "package.json"
    return json.loads(package.read_text())["version"]


async def _register(http: aiohttp.ClientSession, admin: int, service: int) -> None:
    async with asyncio.timeout(_START_S):
        while True:
            with suppress(aiohttp.ClientError):
                body = {"uri": f"http://127.0.0.1:{service}"}
                async with http.post(f"http://127.0.0.1:{admin}/deployments", json=body) as response:
                    if response.status in (200, 201):
                        return
            await asyncio.sleep(0.1)


async def main() -> None:
    turn = asked()
    ingress, admin, node, own = _free_ports(4)
    config = Config()
    config.bind = [f"127.0.0.1:{own}"]
    config.loglevel = "ERROR"
    config.h2_max_concurrent_streams = 2**20
    stop = asyncio.Event()
    with _server(turn, ingress, admin, node) as server:
        web = asyncio.create_task(serve(restate.app([_service]), config, shutdown_trigger=stop.wait))
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as http:
            await _register(http, admin, own)

            async def call(handler: str, argument: Any) -> Any:
                async with http.post(f"http://127.0.0.1:{ingress}/Book/{handler}", json=argument) as response:
                    assert response.status == 200, await response.text()
                    return await response.json()

            async def saga(kind: Kind) -> None:
                assert await call("book", kind) == kind

            async def long(length: int) -> None:
                assert await call("many", length) == "good"

            async with asyncio.timeout(_START_S):  # the ingress learns of the service a moment later
                while True:
                    try:
                        await saga("good")
                        break
                    except (AssertionError, aiohttp.ClientError):
                        await asyncio.sleep(0.1)
            versions = versions_of("restate-sdk", "hypercorn") | {"restate-server": _server_version()}

            async def resume(length: int) -> float:
                return await call("stopping", {"name": uuid.uuid4().hex, "length": length})

            await take(turn, saga, long, [server.pid], versions, resume)
        stop.set()
        await asyncio.wait_for(web, 10)


if __name__ == "__main__":
    logging.disable(logging.ERROR)
    uvloop.run(main())
