"""``saga mcp`` as a client starts it: a process on stdin and stdout, in front of a server in a process of its own."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest
import pytest_asyncio
from mcp import Client, MCPError, StdioServerParameters

from saga_engine.cli import run
from saga_engine.sources.mcp import McpServer
from saga_engine.sources.mcp.manifest import LOCK_FILE
from saga_engine.sources.mcp.pins import write_pins
from tests.gateway.agents import Agent, about
from tests.mcp.servers import World

SAGA = [sys.executable, "-m", "saga_engine"]
TABLES = """
[saga]
lease_s = 120

[mcp.inn]
command = {command}

[mcp.inn.tools.book]
undo = "cancel"
probe = "find"
key = {{ meta = "example.com/key" }}

# With keys, a lease that is lost on a slow machine leaves no doubt behind.
[mcp.inn.tools.cancel]
tolerates_absence = true
key = {{ meta = "example.com/key" }}

[mcp.inn.tools.wipe]

[mcp.inn.tools.find]
effect = "read"
absent_error = "no such guest"
"""


@pytest_asyncio.fixture
async def world(tmp_path: Path) -> World:
    made = World(tmp_path)
    (tmp_path / "saga.toml").write_text(TABLES.format(command=json.dumps(made.command())))
    server = McpServer("inn", command=made.command())
    write_pins(tmp_path / LOCK_FILE, "inn", await server.listed())
    await server.close()
    return made


class Process:
    """The gateway's process, which tells its id in a file."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "gateway.pid"

    def kill(self) -> None:
        os.kill(int(self.file.read_text()), signal.SIGKILL)


@asynccontextmanager
async def gateway(folder: Path, *options: str) -> AsyncIterator[tuple[Agent, Process]]:
    """A client that has started ``saga mcp``."""
    process = Process(folder)
    # The shell becomes the gateway, so the client's child and the gateway are one process.
    script = f"echo $$ > {process.file}; exec {' '.join([*SAGA, 'mcp', '--id', 'desk', '--hold', '0', *options])}"
    parameters = StdioServerParameters(command="/bin/sh", args=["-c", script], cwd=str(folder))
    async with Client(parameters, cache=None) as client:
        yield Agent(client), process


async def test_a_gateway_that_is_killed_is_replaced_by_another_one(world: World, tmp_path: Path) -> None:
    """SIGKILL between two calls loses nothing: the next gateway undoes the calls of both, and the world is as before."""
    async with gateway(tmp_path) as (it, process):
        assert "cancel" not in await it.names()
        await it.done("book", guest="Ann")
        process.kill()
        with pytest.raises((MCPError, OSError, anyio.ClosedResourceError, anyio.BrokenResourceError)):
            await it.call("book", guest="Bo")
    assert [*world.bookings.values()] == ["Ann"]
    async with gateway(tmp_path, "--offer-undos") as (it, _):
        assert "cancel" in await it.names()
        assert about(await it.call("book", guest="Ann"))["call"] == "2"  # appended, nothing is played back
        told = await it.done("saga_rollback")
        assert ([each["call"] for each in told["undone"]], told["clean"]) == (["2", "1"], True)
        assert world.bookings == {}


async def test_what_nothing_takes_back_is_asked_about(world: World, tmp_path: Path) -> None:
    """The manifest names no undo of ``wipe``, and an agent that calls it has no plan that says so."""
    async with gateway(tmp_path) as (agent, _):
        assert "names no undo" in await agent.refused("wipe")


async def test_an_agent_spares_itself_no_question_by_its_plan(world: World, tmp_path: Path) -> None:
    """With ``--engine`` the agent writes the plan: that it calls the step the pivot is no operator's word."""
    plan = {"steps": [{"step_id": 1, "tool": "inn.wipe", "kind": "pivot"}]}
    async with gateway(tmp_path, "--engine") as (agent, _):
        saga_id = (await agent.done("saga_submit", plan=plan))["saga_id"]
        shown = await agent.done("saga_show", saga_id=saga_id, wait_s=60)
    assert [each["kind"] for each in shown["questions"]] == ["approval"]


@pytest.mark.parametrize(
    ("options", "said"), [([], "no tool to serve"), (["--on-disconnect", "never"], "keep, complete, undo")]
)
def test_what_the_gateway_refuses_to_start_with(
    options: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without tools there is nothing to serve, and stdout stays clean."""
    (tmp_path / "saga.toml").write_text("")
    monkeypatch.chdir(tmp_path)
    assert run(["mcp", *options]) != 0
    out, err = capsys.readouterr()
    assert (out, said in err) == ("", True)
