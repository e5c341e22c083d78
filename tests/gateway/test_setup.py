"""Setting up the gateway: `saga mcp init`, `check` and `observe`."""

from __future__ import annotations

import asyncio
import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
from mcp import Client
from mcp.shared.memory import create_client_server_memory_streams

from saga_engine.cli import run
from saga_engine.gateway.observe import Observer
from saga_engine.sources.mcp import McpServer
from saga_engine.sources.mcp.draft import back_of, described_by, heading
from saga_engine.sources.mcp.pins import PinnedTool
from saga_engine.sources.mcp.shipped import builtin
from tests.mcp.servers import World

TABLES = """
[mcp.inn.tools.book]
undo = "cancel"
[mcp.inn.tools.cancel]
tolerates_absence = true
[mcp.inn.tools.find]
effect = "read"
absent_error = "no such guest"
[mcp.inn.tools.broken]
is_error = "not-done"
ask = false
"""


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.chdir(tmp_path)
    return World(tmp_path)


def configure(world: World, tables: str = TABLES, **ways: Any) -> None:
    command = json.dumps(world.command(**ways))
    Path("saga.toml").write_text(f"[mcp.inn]\ncommand = {command}\n{tables}")


def test_a_draft_is_made_from_what_a_server_lists(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    """The tables load as they are; names and hints only pre-fill them."""
    assert run(["mcp", "init", "inn", "--env", "TOKEN=$secret.HOME", "--", *world.command()]) == 0
    text = capsys.readouterr().out
    made = tomllib.loads(text)["mcp"]["inn"]
    assert (made["command"], made["env"]) == (world.command(), {"TOKEN": "$secret.HOME"})
    assert made["tools"]["book"] == {"effect": "write"}
    assert '# undo = "cancel"' in text
    assert made["tools"]["find"] == {"effect": "read"}
    assert "protocol 2026-07-28" in text
    McpServer("inn", **made)
    Path("saga.toml").write_text(text)
    assert run(["mcp", "init", "inn"]) == 0
    assert capsys.readouterr().out.strip() == ""  # everything is described


@pytest.mark.parametrize(
    ("name", "back"),
    [
        ("create_entities", "delete_entities"),
        ("createUser", "remove_user"),
        ("git_add_tag", "git-delete-tags"),
        ("book", "cancel"),
        ("read_file", ""),
        ("create_thing", ""),
    ],
)
def test_names_tell_what_takes_a_call_back(name: str, back: str) -> None:
    """Only a tool that is called the same but for its verb is guessed."""
    assert (
        back_of(name, [name, "delete_entities", "remove_user", "git-delete-tags", "cancel", "delete", "create"]) == back
    )


def test_a_shipped_manifest_is_proposed_for_its_server() -> None:
    """For the tools that it describes, and with those that it was not tried with."""
    tools = {name: PinnedTool(name, "", {}, None) for name in builtin("memory")["tools"]}
    assert described_by(tools) == ("memory", sorted(tools))
    assert described_by({"open_nodes": tools["open_nodes"]}) == ("", [])


def test_the_draft_of_a_server_that_cannot_delete_has_the_cure() -> None:
    """In comments, because it needs a folder; without its comment sign it loads."""
    tools = {name: PinnedTool(name, "", {}, None) for name in builtin("filesystem")["tools"]}
    text = heading("files", {"command": ["fs"]}, tools, "a server")
    assert "helpers" not in tomllib.loads(text)["mcp"]["files"]
    cure = text.partition("Uncomment:\n")[2].replace("# ", "")
    (helper,) = tomllib.loads(cure)["mcp"]["files"]["helpers"].items()
    assert helper[0] in builtin("filesystem")["helpers"]
    McpServer("files", **tomllib.loads(text + cure)["mcp"]["files"])


def test_what_a_manifest_lacks_is_listed(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    """A tool that nobody accepted, described or can undo; exit code 1 as long as a call of one would be refused or asked."""

    def checked() -> tuple[int, dict[str, Any]]:
        capsys.readouterr()
        code = run(["mcp", "check", "--json"])
        rows = json.loads(capsys.readouterr().out)["servers"][0]["tools"]
        return code, {row["tool"]: [*row["faults"], *row["gaps"]] for row in rows}

    configure(world)
    code, rows = checked()
    assert (code, rows["book"]) == (1, ["not accepted"])
    assert run(["tools", "accept"]) == 0
    code, rows = checked()
    assert (code, rows["wipe"]) == (1, ["not named: each call is asked about"])
    assert rows["book"] == ["no key or probe: a lost answer is asked about"]
    assert rows["broken"] == ["no undo: its effect stays", "no key or probe: a lost answer is asked about"]
    assert rows["find"] == []
    rest = "".join(f'[mcp.inn.tools.{name}]\neffect = "read"\n' for name in ("wipe", "media", "large", "silent", "env"))
    configure(world, TABLES + rest)
    code, rows = checked()
    assert (code, rows["wipe"]) == (0, [])
    world.file.with_suffix(".swapped").write_text("Book a suite.")
    code, rows = checked()
    assert (code, rows["book"][0]) == (1, "changed (description)")


def test_calls_are_tried_with_their_undos(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    """Each call of the file is made and undone, and what the file reads is as before; else the exit code is 1."""
    rest = "".join(f'[mcp.inn.tools.{name}]\neffect = "read"\n' for name in ("wipe", "media", "large", "silent", "env"))
    configure(world, TABLES + rest)
    assert run(["tools", "accept"]) == 0
    look = {"tool": "inn.find", "params": {"guest": "Ann"}}
    book = {"tool": "inn.book", "params": {"guest": "Ann"}}
    Path("calls.json").write_text(json.dumps({"calls": [book], "reads": [look]}))
    assert run(["mcp", "check", "--try", "calls.json", "--store", "memory://"]) == 0
    told = capsys.readouterr()
    assert "inn.book: undone" in told.out
    assert world.bookings == {}
    assert [each["name"] for each in world.calls] == ["find", "book", "cancel", "find"]
    configure(world, TABLES.replace('undo = "cancel"', "ask = false") + rest)
    assert run(["mcp", "check", "--try", "calls.json", "--store", "memory://"]) == 1
    told = capsys.readouterr()
    assert "inn.book: left" in told.out
    assert "not everything is as before" in told.err
    for wrong in ("{}x", '{"calls": [{"tool": "inn.nothing"}]}', '{"reads": [{"tool": "inn.book"}]}', '{"other": 1}'):
        Path("calls.json").write_text(wrong)
        assert run(["mcp", "check", "--try", "calls.json", "--store", "memory://"]) == 1
        assert "--try calls.json" in capsys.readouterr().err


async def test_an_observed_agent_is_not_interfered_with(world: World) -> None:
    """Its calls get the servers' own answers, none is held or journalled, and each is told by its tool and outcome."""
    told: list[dict[str, Any]] = []
    server = McpServer("inn", command=world.command(), tools={"book": {"undo": "cancel"}, "cancel": {}})
    gone = McpServer("gone", command=["/nonexistent/server"])
    observer = Observer([server, gone], told.append)
    await observer.open()
    async with create_client_server_memory_streams() as (client_streams, server_streams):
        serving = asyncio.create_task(observer.serve(*server_streams))

        class Transport:
            async def __aenter__(self) -> Any:
                return client_streams

            async def __aexit__(self, *_: object) -> None:
                pass

        try:
            async with Client(Transport(), cache=None) as client:
                names = [tool.name for tool in (await client.list_tools()).tools]
                booked = await client.call_tool("book", {"guest": "Ann"})
                wiped = await client.call_tool("wipe", {})
                media = await client.call_tool("media", {})
                missed = await client.call_tool("find", {"guest": "Bo"})
        finally:
            for stream in client_streams:
                await stream.aclose()
            await serving
            await observer.close()
    assert "book" in names
    assert not [name for name in names if name.startswith("saga_")]
    assert booked.structured_content == {"id": "b0"}
    assert (wiped.is_error, missed.is_error) == (False, True)
    assert [block.type for block in media.content] == ["text", "image", "resource_link"]
    assert [(each["tool"], each["outcome"], each["manifest"]) for each in told] == [
        ("book", "ok", "write"),
        ("wipe", "ok", ""),
        ("media", "ok", ""),
        ("find", "error", ""),
    ]
    assert told[0]["params"] == ["guest"]  # names alone: values may be secret
    assert world.bookings == {}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["begin"], "init, check, observe"),
        (["init"], "NAME"),
        (["init", "inn"], "no server 'inn'"),
        (["init", "inn", "--env", "x", "--", "server"], "NAME=VALUE"),
        (["check", "other"], "no MCP server"),
        (["check", "--to", "x"], "observe"),
        (["--try", "x"], "init, check, observe"),
    ],
)
def test_what_cannot_be_done_is_said(
    words: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing is started for words that mean nothing."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "saga.toml").write_text("")
    try:
        assert run(["mcp", *words]) != 0
        told = capsys.readouterr().err
    except SystemExit:
        told = capsys.readouterr().err
    assert said in told
