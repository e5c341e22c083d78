"""An effect that nobody can account for is never out of an agent's sight, whatever was killed and however it asks."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from mcp import Client, MCPError, StdioServerParameters

from saga_engine import Coordinator
from tests.gateway.agents import Agent, about, client

SAGA = [sys.executable, "-m", "saga_engine"]
DOORS = ["stdio", "http"]
#: ``book`` has neither a key nor a probe, and kills its process behind its effect if its guest is Ann.
WORLD = """
import os, signal
from pathlib import Path
from saga_engine import tool

def room(guest: str) -> Path:
    return Path(__file__).with_name(guest + ".room")

@tool(undo="cancel")
def book(guest: str) -> dict:
    room(guest).touch()
    if guest == "Ann":
        os.kill(os.getpid(), signal.SIGKILL)
    return {"guest": guest}

@tool
def cancel(guest: str) -> None:
    room(guest).unlink(missing_ok=True)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "world.py").write_text(WORLD)
    (tmp_path / "saga.toml").write_text('[saga]\ntools = ["world.py"]\n')
    return tmp_path


@asynccontextmanager
async def gateway(folder: Path, over: str) -> AsyncIterator[Agent]:
    """A client of a process ``saga mcp`` with the id ``desk``."""
    command = [*SAGA, "mcp", "--id", "desk", "--hold", "0"]
    if over == "stdio":
        parameters = StdioServerParameters(command=command[0], args=command[1:], cwd=str(folder), env=dict(os.environ))
        async with Client(parameters, cache=None) as it:
            yield Agent(it)
        return
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command, "--http", "127.0.0.1:0", cwd=folder, stdout=pipe)
    assert process.stdout is not None
    try:
        async with client((await process.stdout.readline()).decode().strip()) as it:
            yield it
    finally:
        with suppress(ProcessLookupError):
            process.terminate()
        await process.wait()


def rooms(folder: Path) -> list[str]:
    return sorted(each.stem for each in folder.glob("*.room"))


async def killed_behind_the_effect(folder: Path, over: str) -> None:
    gone = (MCPError, OSError, httpx2.HTTPError, anyio.ClosedResourceError, anyio.BrokenResourceError)
    with suppress(*gone, ExceptionGroup):
        async with gateway(folder, over) as it:
            await it.call("book", guest="Bo")
            await it.call("book", guest="Ann")
    assert rooms(folder) == ["Ann", "Bo"]


async def told(it: Agent, name: str) -> dict[str, Any]:
    """The document of one of the gateway's tools."""
    found = (await it.call(name)).structured_content
    assert found is not None
    return found


async def saga(folder: Path, *words: str) -> Any:
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*SAGA, *words, cwd=folder, env=dict(os.environ), stdout=pipe)
    said, _ = await process.communicate()
    return json.loads(said) if "--json" in words else said.decode()


@pytest.mark.parametrize("over", DOORS)
async def test_a_saga_that_waits_for_an_operator_is_named_until_it_has_ended(folder: Path, over: str) -> None:
    """After a kill behind an effect, each report names the saga and its question, in every process; none is clean.

    After the operator's answer the next rollback finishes it.
    """
    await killed_behind_the_effect(folder, over)
    for life in range(2):
        async with gateway(folder, over) as it:
            first = await told(it, "saga_rollback")
            if not life:
                assert (first["saga_id"], first["status"], first["clean"]) == ("desk", "ESCALATED", False)
            for name in ("saga_rollback", "saga_status", "saga_preview", "saga_rollback"):
                found = await told(it, name)
                asked = [(each["saga_id"], each["call"], each["kind"]) for each in found["questions"]]
                assert (found["saga_id"], found["clean"], asked) == ("desk.2", False, [("desk", "2", "in-doubt")]), name
                named = [(each["saga_id"], each["status"]) for each in found["earlier"]]
                assert named == [("desk", "ESCALATED")], name
                assert [each["call"] for each in found["earlier"][0]["unknown"]] == ["2"], name
    async with Coordinator.open(f"embedded://{folder}/.saga", [], settings=None) as operator:
        await operator.resolve("desk", 2, "happened", output={"guest": "Ann"}, wait=False)
    async with gateway(folder, over) as it:
        last = await told(it, "saga_rollback")
        assert (last["clean"], last["earlier"], last["questions"]) == (True, [], [])
        found = await told(it, "saga_status")
        assert (found["clean"], found["earlier"]) == (True, [])
    assert rooms(folder) == []
    assert (await saga(folder, "show", "desk", "--json"))["status"] == "COMPENSATED"


@pytest.mark.parametrize("over", DOORS)
async def test_another_task_does_not_hide_it(folder: Path, over: str) -> None:
    """The agent may go on in its next saga. Its rollback is not clean while the one before waits, also once it is done."""
    await killed_behind_the_effect(folder, over)
    async with gateway(folder, over) as it:
        await told(it, "saga_rollback")
        assert about(await it.call("book", guest="Cy"))["saga_id"] == "desk.2"
        point = (await it.done("saga_savepoint"))["savepoint"]
        found = (await it.call("saga_rollback", savepoint=point)).structured_content
        assert found is not None
        assert (found["clean"], [each["saga_id"] for each in found["earlier"]]) == (False, ["desk"])
        done = await told(it, "saga_done")
        assert (done["status"], done["clean"], [each["saga_id"] for each in done["earlier"]]) == (
            "COMPLETED",
            False,
            ["desk"],
        )
        assert about(await it.call("book", guest="Di"))["saga_id"] == "desk.3"
        found = await told(it, "saga_rollback")
        assert ([each["call"] for each in found["undone"]], found["clean"]) == (["1"], False)
        assert [each["saga_id"] for each in found["questions"]] == ["desk"]
    await saga(folder, "resolve", "desk", "2", "not-happened")
    async with gateway(folder, over) as it:
        found = await told(it, "saga_status")
        assert (found["saga_id"], found["clean"], found["earlier"]) == ("desk.4", True, [])


async def test_a_saga_that_an_operator_turned_is_followed_by_exactly_one(folder: Path) -> None:
    """Whichever of the gateway's tools finds the saga turned, the next one is ``desk.2``: no number is left out."""
    async with gateway(folder, "stdio") as it:
        await it.done("book", guest="Bo")
    await saga(folder, "cancel", "desk")
    async with gateway(folder, "stdio") as it:
        assert (await told(it, "saga_done"))["clean"] is True
        assert about(await it.call("book", guest="Cy"))["saga_id"] == "desk.2"
