"""What the tests of HTTP tools share: tables as ``saga.toml`` has them, and calls."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from saga_engine.sources.http import http_tools
from saga_engine.testing.faulty_http import Act, MisbehavingServer
from saga_engine.tools.registry import ToolRegistry
from tests.tools.calls import a_call

LOOPBACK = ("127.0.0.1",)


def declared(text: str, **options: Any) -> ToolRegistry:
    """The tools of a piece of ``saga.toml``."""
    options = {"base": Path(), "source": "saga.toml", "allow_private": LOOPBACK} | options
    return ToolRegistry(http_tools(tomllib.loads(text)["http"], **options))


def order_tool(server: MisbehavingServer, more: str = "", *, method: str = "POST", path: str = "/orders") -> str:
    """A tool ``order`` with one param, ``item``; ``more`` are further fields."""
    fields = "" if f"\n{more}".count("\nbody =") or method in ("GET", "HEAD") else 'body = { item = "{item}" }\n'
    query = 'query = { item = "{item}" }\n' if method in ("GET", "HEAD") else ""
    params = "" if "params =" in more or "input_schema" in more else 'params = { item = "string" }\n'
    return f'[http.order]\nmethod = "{method}"\nurl = "{server.url}{path}"\n{params}{fields}{query}{more}\n'


async def outcome(text: str, params: dict[str, Any] | None = None, tool: str = "order", **changes: Any) -> Any:
    """Declare, call once, and give the outcome."""
    given = {"item": "chair"} if params is None else params
    return await declared(text).call(tool, given, a_call(**changes))


async def after(act: Act, more: str = "", *, method: str = "POST", **changes: object) -> tuple[object, int]:
    """The outcome of one call that is answered like this, and the number of effects."""
    async with MisbehavingServer() as server:
        server.script("/orders", act)
        return await outcome(order_tool(server, more, method=method), **changes), len(server.effects)
