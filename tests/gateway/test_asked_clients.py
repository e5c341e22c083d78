"""``saga mcp --ask-client`` as users have it: a gateway's process, clients of both eras, an operator at a shell."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import httpx2
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from mcp_types import ElicitRequestFormParams, ElicitResult

from tests.gateway.agents import Agent, about

SAGA = [sys.executable, "-m", "saga_engine"]
OPTIONS = ["mcp", "--id", "desk", "--hold", "0", "--ask-client", "600"]
HOTEL = """
from pathlib import Path
from saga_engine import tool

ROOMS = Path(__file__).with_name("rooms")

@tool(undo="cancel", effect="write")
def book(guest: str) -> dict[str, str]:
    ROOMS.write_text((ROOMS.read_text() if ROOMS.exists() else "") + guest + " ")
    return {"guest": guest}

@tool(tolerates_absence=True)
def cancel(guest: str) -> None:
    ROOMS.write_text(ROOMS.read_text().replace(guest + " ", "", 1))
"""
SETTINGS = """
[saga]
lease_s = 120
tools = ["hotel.py"]

[[policy.rules]]
name = "every-booking"
tools = ["book"]
verdict = "ask"
"""

Says = Callable[[], Awaitable[ElicitResult]]


def word(answer: str) -> ElicitResult:
    return ElicitResult(action="accept", content={"answer": answer})


class User:
    """The user of a client. ``open``: set while a form is open that nobody answers; ``withdrawn``: it is no more."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.says: Says | ElicitResult = word("approve")
        self.open = asyncio.Event()
        self.withdrawn = asyncio.Event()

    async def __call__(self, _: Any, params: Any) -> ElicitResult:
        assert isinstance(params, ElicitRequestFormParams)
        self.asked.append(params.message)
        return self.says if isinstance(self.says, ElicitResult) else await self.says()

    async def hesitates(self) -> ElicitResult:
        self.open.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.withdrawn.set()
            raise
        raise AssertionError


class Hotel:
    """A world, and an operator beside it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.pids = folder / "gateways"
        (folder / "hotel.py").write_text(HOTEL)
        (folder / "saga.toml").write_text(SETTINGS)

    @property
    def rooms(self) -> list[str]:
        file = self.folder / "rooms"
        return file.read_text().split() if file.exists() else []

    async def operator(self, *args: str) -> None:
        made = await asyncio.create_subprocess_exec(*SAGA, *args, cwd=self.folder, stdout=subprocess.DEVNULL)
        assert await made.wait() >= 0

    @asynccontextmanager
    async def on_stdio(self, user: User, mode: Any) -> AsyncIterator[Agent]:
        # The shell becomes the gateway, so its id is known.
        script = f"echo $$ > {self.pids}; exec {' '.join([*SAGA, *OPTIONS])}"
        parameters = StdioServerParameters(command="/bin/sh", args=["-c", script], cwd=str(self.folder))
        async with Client(parameters, mode=mode, cache=None, elicitation_callback=user) as client:
            yield Agent(client)

    def kill(self) -> None:
        os.kill(int(self.pids.read_text()), signal.SIGKILL)

    @contextmanager
    def listening(self) -> Iterator[str]:
        command = [*SAGA, *OPTIONS, "--http", "127.0.0.1:0"]
        process = subprocess.Popen(command, cwd=self.folder, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.terminate()
            process.communicate()


@asynccontextmanager
async def over_http(url: str, user: User, mode: Any) -> AsyncIterator[Agent]:
    async with (
        httpx2.AsyncClient(timeout=300) as http,
        Client(
            streamable_http_client(url, http_client=http), mode=mode, cache=None, elicitation_callback=user
        ) as client,
    ):
        yield Agent(client)


async def test_a_form_on_stdio_and_a_gateway_that_is_killed_while_it_is_open(tmp_path: Path) -> None:
    """The question outlives the gateway and the form: the next gateway asks the user again, in the other era as well."""
    hotel, user = Hotel(tmp_path), User()
    async with hotel.on_stdio(user, "legacy") as it:
        assert await it.done("book", guest="Ann") == {"guest": "Ann"}
        user.says = user.hesitates
        asked = asyncio.create_task(it.call("book", guest="Bo"))
        await user.open.wait()
        hotel.kill()
        await asyncio.wait([asked])
        assert asked.exception() is not None or asked.result().is_error
    assert hotel.rooms == ["Ann"]
    user.says = word("approve")
    async with hotel.on_stdio(user, "2026-07-28") as it:
        assert about(await it.call("book", guest="Bo"))["call"] == "2"
        assert (len(user.asked), user.asked[1], hotel.rooms) == (3, user.asked[2], ["Ann", "Bo"])
        assert (await it.done("saga_rollback"))["clean"]
    assert hotel.rooms == []


async def test_a_form_over_http_beside_an_operator(tmp_path: Path) -> None:
    """The first answer counts, in both eras. A user whose answer came too late is told so; no form stays open."""
    hotel = Hotel(tmp_path)
    with hotel.listening() as url:
        for mode, saga in (("legacy", "kim"), ("2026-07-28", "lou")):
            user = User()
            async with over_http(f"{url}/{saga}", user, mode) as it:
                assert await it.done("book", guest=saga) == {"guest": saga}
                user.says = ElicitResult(action="cancel")
                assert "pending" in await it.refused("book", guest="Bo")
                user.says = word("deny")
                assert "pending" not in await it.refused("book", guest="Bo")
                if mode == "legacy":
                    user.says = user.hesitates
                    asked = asyncio.create_task(it.call("book", guest="Cy"))
                    await user.open.wait()
                    await hotel.operator("resolve", saga, "3", "deny")
                    await user.withdrawn.wait()
                    told = str((await asked).content)
                    if "pending" in told:  # the operator's process had the saga
                        told = await it.refused("book", guest="Cy")
                    assert "approval_denied" in told
                else:

                    async def late(saga: str = saga) -> ElicitResult:
                        await hotel.operator("resolve", saga, "3", "deny")
                        return word("approve")

                    user.says = late
                    assert "the client's user (approve) came too late" in await it.refused("book", guest="Cy")
        assert hotel.rooms == ["kim", "lou"]
