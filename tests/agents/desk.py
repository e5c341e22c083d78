"""A travel desk: a folder with ``saga.toml``, a server whose world is a file, and agents that start ``saga mcp``."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from saga_engine.sources.mcp import McpServer
from saga_engine.sources.mcp.manifest import LOCK_FILE
from saga_engine.sources.mcp.pins import write_pins
from tests.agents.model import Model, Turn, serving
from tests.mcp.servers import World

ROOT = Path(__file__).parents[2]
TABLES = """
[saga]
lease_s = 1

[mcp.inn]
command = {command}

[mcp.inn.tools.book]
undo = "cancel"
probe = "find"
key = {{ meta = "example.com/key" }}

[mcp.inn.tools.cancel]
tolerates_absence = true
key = {{ meta = "example.com/key" }}

[mcp.inn.tools.find]
effect = "read"
absent_error = "no such guest"

# It checks first, and then acts.
[mcp.inn.tools.broken]
ask = false
is_error = "not-done"
"""
#: What an agent needs of this process's environment.
_INHERITED = ("HOME", "LANG", "TMPDIR", "USER")
#: Two rooms, a payment that is refused, and what the instructions of the gateway tell an agent to do then.
FAILS: list[Turn] = [
    ("book", {"guest": "Ann"}),
    ("book", {"guest": "Bo"}),
    ("broken", {}),
    ("saga_rollback", {}),
    "Nothing is booked: the payment was refused.",
]
#: What an agent does that starts anew: it looks, books the rest and learns that it cannot pay either.
RESUMED: list[Turn] = [
    ("saga_status", {}),
    ("book", {"guest": "Cy"}),
    ("broken", {}),
    ("saga_rollback", {}),
    "Nothing is booked.",
]


class Desk:
    """``python``: the interpreter of the agent's own environment, where no saga_engine is."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.world = World(folder)
        self.gateways = folder / "gateways"
        (folder / "saga.toml").write_text(TABLES.format(command=json.dumps(self.world.command())))
        shim = folder / "bin" / "saga"
        shim.parent.mkdir()
        # The shell becomes the gateway, and has told its id before.
        shim.write_text(
            f'#!/bin/sh\necho $$ >> {self.gateways}\nPYTHONPATH={ROOT} exec {sys.executable} -m saga_engine "$@"\n'
        )
        shim.chmod(0o755)

    async def accept(self) -> None:
        """What ``saga tools accept`` does."""
        server = McpServer("inn", command=self.world.command())
        write_pins(self.folder / LOCK_FILE, "inn", await server.listed())
        await server.close()

    @contextmanager
    def agent(self, python: str, program: Path, model: Model) -> Iterator[subprocess.Popen[str]]:
        """An agent at work; it is killed at the end of the block if it has not ended."""
        with serving(model) as url:
            env = {name: os.environ[name] for name in _INHERITED if name in os.environ}
            env |= {
                "PATH": os.pathsep.join([str(self.folder / "bin"), *os.environ["PATH"].split(os.pathsep)]),
                "OPENAI_BASE_URL": url,
                "OPENAI_API_KEY": "sk-scripted",
                "ANTHROPIC_BASE_URL": url.removesuffix("/v1"),
                "ANTHROPIC_API_KEY": "sk-scripted",
                "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
                "CREWAI_DISABLE_TELEMETRY": "true",
                "CREWAI_TRACING_ENABLED": "false",
                "OTEL_SDK_DISABLED": "true",
                "NO_PROXY": "127.0.0.1",
                # Its own files: some frameworks keep settings and caches.
                "HOME": str(self.folder),
            }
            # A client that is no Python starts from a program that writes its configuration.
            starter = (
                [python, str(program)] if "python" in Path(python).name else [sys.executable, str(program), python]
            )
            command = [*starter, "Book rooms for Ann and Bo, and pay."]
            with (self.folder / "agent.err").open("ab") as errors:
                process = subprocess.Popen(
                    command,
                    cwd=self.folder,
                    env=env,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=errors,
                    text=True,
                    start_new_session=True,  # some clients start themselves again in a child
                )
            try:
                yield process
            finally:
                _kill(process)
                process.communicate()

    def kill(self, process: subprocess.Popen[str]) -> None:
        """SIGKILL to the agent and to its gateways at once, as when a machine loses power."""
        _kill(process)
        for gateway in self.gateways.read_text().split():
            try:
                os.kill(int(gateway), signal.SIGKILL)
            except ProcessLookupError:
                continue
        process.wait()

    @property
    def errors(self) -> str:
        """The end of what the agents wrote to stderr."""
        return (self.folder / "agent.err").read_text()[-3000:]


def _kill(process: subprocess.Popen[str]) -> None:
    """SIGKILL to an agent and all that it started in its session."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def fails(desk: Desk, python: str, program: Path) -> str:
    """An agent whose third call is refused rolls back: its last words. Raises ``AssertionError``."""
    model = Model(FAILS)
    with desk.agent(python, program, model) as process:
        out, _ = process.communicate(timeout=300)
    told = model.results()
    assert len(told) == 4, (told, out, desk.errors)
    assert [each["name"] for each in desk.world.calls] == ["book", "book", "broken", "cancel", "cancel"]
    assert "broken" in told[2], told
    assert 'clean\\":true' in told[3].replace(" ", ""), told
    assert desk.world.bookings == {}
    return out


def is_killed(desk: Desk, python: str, program: Path) -> str:
    """Agent and gateway are killed after two calls; a new agent continues the saga, fails, and leaves nothing."""
    model = Model(FAILS, hold_at=2)
    with desk.agent(python, program, model) as process:
        while not model.held.wait(0.2):
            assert process.poll() is None, desk.errors
        desk.kill(process)
    assert sorted(desk.world.bookings.values()) == ["Ann", "Bo"]
    again = Model(RESUMED)
    with desk.agent(python, program, again) as process:
        out, _ = process.communicate(timeout=300)
    told = again.results()
    assert len(told) == 4, (told, out, desk.errors)
    assert "Ann" in told[0], told  # the new agent sees what the dead one did
    assert 'clean\\":true' in told[3].replace(" ", ""), told
    assert desk.world.bookings == {}
    return out
