"""What the tests of MCP servers share: the small server of ``world.py`` in any era and over both transports."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pytest

from saga_engine.cli import run
from saga_engine.sources.mcp import McpServer
from saga_engine.tools.registry import ToolRegistry
from tests.tools.calls import a_call

WORLD = Path(__file__).with_name("world.py")
#: A manifest for most of its tools; it does not name ``wipe``.
MANIFEST: dict[str, dict[str, Any]] = {
    "book": {"undo": "cancel", "probe": "find", "key": {"meta": "example.com/key"}},
    "cancel": {"tolerates_absence": True},
    "find": {"effect": "read", "absent_error": "no such guest"},
    "media": {"effect": "read"},
    "large": {},
    "silent": {"timeout_s": 0.2},
    "broken": {},
    "env": {"effect": "read"},
}


class World:
    """The world that a server keeps in a file."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "world.json"

    @property
    def bookings(self) -> dict[str, str]:
        return self._read()["bookings"]

    @property
    def calls(self) -> list[dict[str, Any]]:
        return self._read()["calls"]

    def _read(self) -> Any:
        return json.loads(self.file.read_text()) if self.file.exists() else {"bookings": {}, "calls": []}

    def command(self, **ways: Any) -> list[str]:
        # Without site packages it starts in the time of Python itself.
        return [sys.executable, "-I", "-S", str(WORLD), str(self.file), json.dumps(ways)]

    def server(self, ways: dict[str, Any] | None = None, tools: Any = MANIFEST, **fields: Any) -> McpServer:
        """The server as a child process, called ``inn``."""
        return McpServer("inn", command=self.command(**(ways or {})), tools=tools, **fields)

    @contextmanager
    def listening(self, **ways: Any) -> Iterator[str]:
        """The server behind a URL."""
        process = subprocess.Popen(self.command(http=True, **ways), stdout=subprocess.PIPE, text=True)
        try:
            assert process.stdout is not None
            yield f"http://127.0.0.1:{process.stdout.readline().strip()}/mcp"
        finally:
            process.kill()
            process.wait()
            process.stdout.close()


async def outcome(server: McpServer, tool: str, params: dict[str, Any] | None = None, **changes: Any) -> Any:
    """Call one tool once."""
    await server.open()
    return await ToolRegistry(server.tools()).call(f"inn.{tool}", params or {}, a_call(**changes))


def saga(folder: Path, *args: str) -> tuple[int, str, str]:
    """A command in ``folder``, in this process."""
    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.chdir(folder)
        code = run(args)
    return code, out.getvalue(), err.getvalue()
