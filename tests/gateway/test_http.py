"""The gateway over HTTP: both eras of the protocol, clients that come, go and come again, and who is let in."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from saga_engine import Coordinator, tool
from saga_engine.cli import run
from saga_engine.errors import SettingInvalid
from saga_engine.execution import incoming
from saga_engine.gateway.door import Door, hosts_for, tokens_in
from saga_engine.plan.effort import spend
from tests.gateway.agents import about, client, legacy_session, served

ERAS = ["legacy", "2026-07-28"]
HOST = [(b"host", b"127.0.0.1")]
SECRET = "a-token-of-an-agent-0123456789"


class Hotel:
    """A world of Python tools. ``slow``: a booking waits for ``go_on``."""

    def __init__(self, *, slow: bool = False) -> None:
        self.rooms: list[str] = []
        self.asked = asyncio.Event()
        self.go_on = asyncio.Event()
        if not slow:
            self.go_on.set()

    def tools(self) -> list[Any]:
        @tool(undo="cancel")
        async def book(guest: str) -> dict[str, str]:
            self.asked.set()
            await self.go_on.wait()
            self.rooms.append(guest)
            return {"guest": guest}

        @tool
        async def cancel(guest: str) -> None:
            self.rooms.remove(guest)

        return [book, cancel]


@asynccontextmanager
async def engine(hotel: Hotel) -> AsyncIterator[Coordinator]:
    async with Coordinator.open("memory://", hotel.tools(), durability="relaxed") as coordinator:
        yield coordinator


# --- the life of a saga ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ERAS)
async def test_a_saga_is_no_connection(mode: Any) -> None:
    """An agent that comes again to the same path appends to its saga and can undo all of it; other paths are others."""
    hotel = Hotel()
    async with engine(hotel) as coordinator, served(coordinator) as url:
        async with client(f"{url}/kim", mode) as it:
            assert it.client.protocol_version == ("2025-11-25" if mode == "legacy" else mode)
            assert about(await it.call("book", guest="Ann"))["saga_id"] == "kim"
        async with client(url, mode) as it:
            assert about(await it.call("book", guest="Bo"))["saga_id"] == "desk"
        async with client(f"{url}/kim", mode) as it:
            assert about(await it.call("book", guest="Cy"))["call"] == "2"
            preview = await it.done("saga_preview")
            assert [each["call"] for each in preview["would_undo"]] == ["2", "1"]
            assert [each["call"] for each in (await it.done("saga_rollback"))["undone"]] == ["2", "1"]
        assert hotel.rooms == ["Bo"]


async def test_a_token_is_for_its_saga_alone() -> None:
    """A client with such a token names no saga, and reaches no other one."""
    tokens = tuple(tokens_in(f"kim {SECRET}\n# a comment\n{SECRET}-of-an-operator", "tokens"))
    hotel = Hotel()
    async with engine(hotel) as coordinator, served(coordinator, tokens=tokens) as url:
        async with client(url, token=SECRET) as it:
            assert about(await it.call("book", guest="Ann"))["saga_id"] == "kim"
        async with client(f"{url}/kim", token=f"{SECRET}-of-an-operator") as it:
            assert (await it.done("saga_status"))["standing"] == 1
        async with httpx2.AsyncClient() as http:
            for path, token, status in (("/desk", SECRET, 404), ("", SECRET + "x", 401), ("", "x", 401)):
                said = await http.post(url + path, json={}, headers={"authorization": f"Bearer {token}"})
                assert said.status_code == status


async def test_a_session_of_the_older_protocol_is_for_its_saga_alone() -> None:
    """The id of a session is of no use at another path."""
    async with engine(Hotel()) as coordinator, served(coordinator) as url, legacy_session(f"{url}/kim") as http:
        ping = {"jsonrpc": "2.0", "id": 2, "method": "ping"}
        assert (await http.post(f"{url}/kim", json=ping)).status_code == 200
        assert (await http.post(f"{url}/lou", json=ping)).status_code == 404


@pytest.mark.parametrize("mode", ERAS)
async def test_a_client_that_disappears(mode: Any) -> None:
    """Its call goes on. The next client that makes the same call gets the outcome of that one, and none is made twice."""
    hotel = Hotel(slow=True)
    async with engine(hotel) as coordinator, served(coordinator, heartbeat_s=0.01) as url:
        async with client(url, mode) as it:
            asked = asyncio.create_task(it.call("book", guest="Ann"))
            await hotel.asked.wait()
            asked.cancel()
            await asyncio.wait([asked])
        async with client(url, mode) as it:
            again = asyncio.create_task(it.call("book", guest="Ann"))
            while not (await it.done("saga_status"))["calls"]:
                pass
            hotel.go_on.set()
            answer = about(await again)
            assert (answer["call"], answer["again"]) == ("1", True)
        assert hotel.rooms == ["Ann"]


async def test_a_connection_that_is_lost() -> None:
    """The older protocol does not call that a cancellation. The gateway knows who got no answer all the same."""
    hotel = Hotel(slow=True)
    async with engine(hotel) as coordinator, served(coordinator) as url:
        async with legacy_session(url) as http:
            params = {"name": "book", "arguments": {"guest": "Ann"}}
            body = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": params}
            async with http.stream("POST", url, json=body):
                await hotel.asked.wait()
        async with client(url, "legacy") as it:
            hotel.go_on.set()
            answer = about(await it.call("book", guest="Ann"))
            assert (answer["call"], answer["again"]) == ("1", True)
        assert hotel.rooms == ["Ann"]


@pytest.mark.parametrize("mode", ERAS)
async def test_progress_and_cancel(mode: Any) -> None:
    """A client hears that its call is under way; one that cancels leaves the call going on, and a rollback undoes it."""
    hotel = Hotel(slow=True)
    async with (
        engine(hotel) as coordinator,
        served(coordinator, heartbeat_s=0.01) as url,
        client(url, mode) as it,
    ):
        beats: asyncio.Queue[str] = asyncio.Queue()

        async def beat(_: float, __: float | None, message: str | None) -> None:
            beats.put_nowait(message or "")

        asked = asyncio.create_task(it.client.call_tool("book", {"guest": "Ann"}, progress_callback=beat))
        assert "book" in await beats.get()
        asked.cancel()
        await asyncio.wait([asked])
        undone = asyncio.create_task(it.done("saga_rollback"))
        hotel.go_on.set()
        assert [each["call"] for each in (await undone)["undone"]] == ["1"]
        assert hotel.rooms == []


async def test_many_clients_at_once() -> None:
    """Clients of both eras share a saga or have their own; each saga has the calls that were made for it, once."""
    hotel = Hotel()
    async with engine(hotel) as coordinator, served(coordinator) as url, AsyncExitStack() as stack:
        agents = [
            (saga, await stack.enter_async_context(client(f"{url}/{saga}", mode)))
            for saga in ("kim", "lou", "max")
            for mode in ERAS
        ]
        calls = [it.call("book", guest=f"{saga}-{number}") for saga, it in agents for number in range(5)]
        answers = [about(answer) for answer in await asyncio.gather(*calls)]
        assert len({(each["saga_id"], each["call"]) for each in answers}) == len(calls)
        told = [(await it.done("saga_status"))["standing"] for _, it in agents]
        assert told == [10] * 6
        assert len(hotel.rooms) == 30


async def test_the_number_of_sagas_is_bounded() -> None:
    """One that nobody calls gives its place to another, and is taken up again; one that must be ended does not."""
    hotel = Hotel()
    async with engine(hotel) as coordinator:
        async with served(coordinator, most=1) as url, client(f"{url}/kim") as kim, client(f"{url}/lou") as lou:
            await kim.done("book", guest="Ann")
            await lou.done("book", guest="Bo")
            assert about(await kim.call("book", guest="Cy"))["call"] == "2"
        async with (
            served(coordinator, most=1, at_end="undo") as url,
            client(f"{url}/max") as it,
            client(f"{url}/pat") as other,
        ):
            await it.done("book", guest="Di")
            assert (await other.refused("book", guest="Ed")).startswith("queue-full")
        assert hotel.rooms == ["Ann", "Bo", "Cy"]


async def test_what_holds_for_every_tool_holds_here() -> None:
    """A policy denies and asks at this door. ``test_operators_rules.py`` has the stop, breakers, limits and memory."""
    hotel = Hotel()
    policy = {
        "rules": [{"name": "no-bob", "when": [{"param": "guest", "op": "==", "value": "Bob"}], "verdict": "deny"}],
        "default": "ask",
    }
    opening = Coordinator.open("memory://", hotel.tools(), durability="relaxed", policy=policy)
    async with opening as coordinator, served(coordinator) as url, client(f"{url}/kim") as it:
        assert (await it.refused("book", guest="Bob")).startswith("policy_denied")
        assert (await it.refused("book", guest="Ann")).startswith("pending")
        assert hotel.rooms == []
        await coordinator.resolve("kim", 2, "approve")
        assert about(await it.call("book", guest="Ann"))["call"] == "2"
        assert hotel.rooms == ["Ann"]


# --- the door -------------------------------------------------------------------------------------------------------


async def knock(door: Door, path: str = "/mcp", **headers: str) -> tuple[int, str]:
    """The status of a request, and the saga that it would be for."""
    listed = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    scope = {"type": "http", "method": "POST", "path": path, "headers": listed}
    told: list[Any] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        told.append(message)

    await door(scope, receive, send)
    return told[0]["status"], told[0].get("saga", "")


async def inside(scope: dict[str, Any], _: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "saga": scope["saga_engine.visit"].saga})


@pytest.mark.parametrize(
    ("path", "headers", "expected"),
    [
        ("/mcp", {}, (200, "desk")),
        ("/mcp/kim", {}, (200, "kim")),
        ("/mcp", {"host": "localhost:80"}, (200, "desk")),
        ("/mcp", {"host": "[::1]:80", "origin": "http://127.0.0.1:9"}, (200, "desk")),
        ("/mcp", {"host": "evil.example"}, (421, "")),
        ("/mcp", {"host": "127.0.0.1.evil.example"}, (421, "")),
        ("/mcp", {"host": ""}, (421, "")),
        ("/mcp", {"origin": "http://evil.example"}, (403, "")),
        ("/mcp", {"origin": "null"}, (403, "")),
        ("/mcp", {"origin": "http://localhost.evil.example"}, (403, "")),
        ("/mcp", {"authorization": "Bearer x"}, (401, "")),
        ("/mcp", {"authorization": SECRET}, (401, "")),
        ("/mcp", {"authorization": ""}, (401, "")),
        ("/mcp", {"authorization": f"bearer {SECRET}"}, (200, "desk")),
        ("/mcp/kim/lou", {}, (404, "")),
        ("/mcp/kim.2", {}, (404, "")),
        ("/mcp/..", {}, (404, "")),
        ("/mcpx", {}, (404, "")),
        ("/", {}, (404, "")),
    ],
)
async def test_who_is_let_in(path: str, headers: dict[str, str], expected: tuple[int, str]) -> None:
    """A page that a browser was led to, a wrong or missing token and another path reach nothing."""
    door = Door(inside, own="desk", tokens=tokens_in(SECRET, "here"), hosts=hosts_for("127.0.0.1", ()))
    given = {"host": "127.0.0.1:8321", "authorization": f"Bearer {SECRET}"} | headers
    assert await knock(door, path, **given) == expected


def test_a_name_of_the_gateway_must_be_known() -> None:
    """Behind every address of the machine, the names that clients use are given; short tokens are refused."""
    with pytest.raises(SettingInvalid, match="no name"):
        hosts_for("0.0.0.0", ())
    assert hosts_for("0.0.0.0", ["Gateway.Example"]) == {"gateway.example"}
    for text in ("short", "", "a b c", f"desk.2 {SECRET}", f"{SECRET}\x00"):
        with pytest.raises(SettingInvalid):
            tokens_in(text, "tokens")


async def test_large_requests_are_counted_and_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """An agent has four at a time; the work on one ends when its client has left, or has taken too long."""
    body = b'{"a":"' + b"," * 100_000 + b'"}'
    left, told, entered = asyncio.Event(), [], []
    begun = threading.Semaphore(0)

    async def reading() -> None:
        parts = [{"type": "http.request", "body": body, "more_body": False}]

        async def receive() -> dict[str, Any]:
            if not parts:
                await left.wait()
                return {"type": "http.disconnect"}
            return parts.pop()

        async def send(message: Any) -> None:
            told.append(message.get("status"))

        await door({"type": "http", "method": "POST", "path": "/mcp", "headers": HOST}, receive, send)

    async def inner(*_: Any) -> None:
        entered.append(1)

    def endless(*_: Any) -> None:
        begun.release()
        while True:
            spend()

    door = Door(inner, own="desk", hosts=hosts_for("127.0.0.1", ()))
    await reading()
    assert (told, entered) == ([], [1])
    monkeypatch.setattr(incoming, "_sliced", endless)
    works = [asyncio.create_task(reading()) for _ in range(5)]
    await asyncio.wait(works, return_when=asyncio.FIRST_COMPLETED)
    assert told[0] == 429
    assert await asyncio.to_thread(begun.acquire, True, 60)
    left.set()
    await asyncio.wait(works)
    assert [status for status in told if status] == [429, 499, 499, 499, 499]
    left.clear()
    monkeypatch.setattr("saga_engine.gateway.door.CHECK_S", 0.01)
    told.clear()
    await reading()
    assert (told[0], entered) == (422, [1])


async def test_a_request_that_is_too_large() -> None:
    """It is refused before it is read into memory, with or without its length."""

    async def endless() -> AsyncIterator[bytes]:
        for _ in range(100):
            yield b" " * 100_000

    hotel = Hotel()
    async with engine(hotel) as coordinator, served(coordinator) as url, httpx2.AsyncClient() as http:
        assert (await http.post(url, content=b" " * 5_000_000)).status_code == 413
        for values in (b"[" + b",".join([b"1"] * 200_000) + b"]", b"," * 200_000):  # the SDK would decode it at once
            assert (await http.post(url, content=values)).status_code == 413
        assert (await http.post(url, content=endless())).status_code == 413


# --- the command ----------------------------------------------------------------------------------------------------

WORLD = """
from pathlib import Path
from saga_engine import tool

def room(guest: str) -> Path:
    return Path(__file__).with_name(guest + ".room")

@tool(undo="cancel")
def book(guest: str) -> dict:
    room(guest).touch()
    return {"guest": guest}

@tool
def cancel(guest: str) -> None:
    room(guest).unlink(missing_ok=True)
"""


def rooms(folder: Path) -> list[Path]:
    return [*folder.glob("*.room")]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--http", "0.0.0.0:0"], "without a token"),
        (["--http", "127.0.0.1"], "is no address"),
        (["--http", "127.0.0.1:0", "--token-file", "none"], "cannot be read"),
        (["--token-file", "none"], "belong to --http"),
    ],
)
def test_what_is_refused_at_the_start(
    options: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nobody listens beyond this machine without a token."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SAGA_MCP_TOKEN", raising=False)
    (tmp_path / "world.py").write_text(WORLD)
    (tmp_path / "saga.toml").write_text('[saga]\ntools = ["world.py"]\n')
    assert run(["mcp", *options]) != 0
    out, err = capsys.readouterr()
    assert (out, said in err.replace("\n", " ")) == ("", True)


async def test_a_gateway_that_is_told_to_stop(tmp_path: Path) -> None:
    """SIGTERM lets nobody in, applies the policy for the end, and ends the process; the port was printed."""
    (tmp_path / "world.py").write_text(WORLD)
    (tmp_path / "saga.toml").write_text('[saga]\ntools = ["world.py"]\n')
    environment = {**os.environ, "SAGA_MCP_TOKEN": SECRET}
    command = [sys.executable, "-m", "saga_engine", "mcp", "--http", "127.0.0.1:0", "--on-disconnect", "undo"]
    process = await asyncio.create_subprocess_exec(
        *command, cwd=tmp_path, env=environment, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    url = (await process.stdout.readline()).decode().strip()
    async with client(f"{url}/kim", "legacy", SECRET) as it:  # its stream of notifications stays open
        await it.done("book", guest="Ann")
        assert rooms(tmp_path)
        process.send_signal(signal.SIGTERM)
        assert await process.wait() == 0
    assert not rooms(tmp_path)
