"""Lists and messages as servers send them: each tool is checked alone, and each text is read as it is meant."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from saga_engine import Coordinator
from saga_engine.core.effects import Done, NotDone, Unknown
from saga_engine.sources.mcp import McpServer
from saga_engine.sources.mcp.pins import write_pins
from tests.mcp.servers import MANIFEST, World, outcome, saga

OBJECT: dict[str, Any] = {"type": "object"}
#: Entries that servers were seen to list, or that are made up, and a part of what is said of each.
WRONG: list[tuple[Any, str, str]] = [
    ({"name": "no_type", "inputSchema": {"$schema": "http://json-schema.org/draft-07/schema#"}}, "no_type", "type"),
    ({"name": "no_schema", "inputSchema": None}, "no_schema", "inputSchema"),
    ({"name": "absent"}, "absent", "inputSchema"),
    ({"name": "", "inputSchema": OBJECT}, "no. ", "name"),
    ({"name": "n" * 300, "inputSchema": OBJECT}, "n" * 50, "name"),
    ({"name": 7, "inputSchema": OBJECT}, "no. ", "name"),
    ("a text", "no. ", "no object"),
    ({"name": "odd", "inputSchema": OBJECT, "annotations": {"readOnlyHint": "maybe"}}, "odd", "readOnlyHint"),
    ({"name": "huge", "inputSchema": OBJECT | {"enum": ["x" * 100] * 3000}}, "huge", "longer than"),
]


def also_lists(world: World, *entries: Any) -> None:
    """From now on the server lists these as well."""
    world.file.with_suffix(".listing").write_text(json.dumps(entries))


@pytest.mark.parametrize("legacy", [True, False], ids=["2025-11-25", "2026-07-28"])
async def test_each_entry_of_a_list_is_checked_alone(tmp_path: Path, legacy: bool) -> None:
    """What cannot be read is named with the reason, and costs nobody else anything."""
    world = World(tmp_path)
    also_lists(world, *(entry for entry, _, _ in WRONG))
    server = world.server({"legacy": legacy})
    listing = await server.listing()
    assert isinstance(await outcome(server, "book", {"guest": "Ann"}), Done)
    await server.close()
    assert {"book", "cancel", "find"} <= listing.tools.keys()
    for _, name, why in WRONG:
        assert any(shown.startswith(name) and why in said for shown, said in listing.unreadable.items()), (name, why)


@pytest.mark.parametrize("cursor", ["", "again"])
async def test_a_cursor_that_repeats_ends_the_list(tmp_path: Path, cursor: str) -> None:
    """A server that always names the same next page has no more."""
    server = World(tmp_path).server({"cursor": cursor})
    listing = await server.listing()
    await server.close()
    assert "book" in listing.tools
    assert not listing.unreadable


async def test_an_upgrade_blocks_no_undo(tmp_path: Path) -> None:
    """The accepted, unchanged undo of a running saga is called, whatever else the server lists by then."""
    world = World(tmp_path)

    def server() -> McpServer:
        return world.server(tools=MANIFEST, lock=tmp_path / "saga.mcp.json")

    write_pins(tmp_path / "saga.mcp.json", "inn", (await server().listing()).tools)
    booked = {"step_id": "b", "tool": "inn.book", "params": {"guest": "Ann"}}
    plan = {"task_id": "trip", "steps": [booked, {"step_id": "q", "ask": {"question": "Go on?"}}]}
    store = f"embedded://{tmp_path}/s"
    async with Coordinator.open(store, sources=[server()]) as coordinator:
        assert (await coordinator.run(plan)).status == "ESCALATED"
    assert list(world.bookings.values()) == ["Ann"]
    also_lists(world, *(entry for entry, _, _ in WRONG))
    async with Coordinator.open(store, sources=[server()]) as coordinator:
        assert (await coordinator.cancel("trip")).status == "COMPENSATED"
    assert not world.bookings


async def test_a_tool_that_can_no_longer_be_read_is_named(tmp_path: Path) -> None:
    """The message says so, and not that the server cannot be reached."""
    world = World(tmp_path)
    also_lists(world, {"name": "pick", "inputSchema": OBJECT})
    server = world.server(tools={"pick": {}}, recheck_s=0.001)
    await server.open()
    also_lists(world, {"name": "pick", "inputSchema": None})
    found = await outcome(server, "pick")
    await server.close()
    assert isinstance(found, NotDone)
    assert found.error.error_code == "tool_changed"
    assert "listed a tool that cannot be read: pick: inputSchema" in found.error.message


def test_accept_names_what_it_leaves_out_and_everything_else_starts(tmp_path: Path) -> None:
    """Exit code 1; the tables that are printed load, and a table of a tool that was left out stops nothing."""
    world = World(tmp_path)
    dialect = {"name": "odd", "inputSchema": OBJECT | {"$schema": "https://example.com/mine"}}
    also_lists(world, dialect, {"name": "no_type", "inputSchema": {}}, {"name": "a/b", "inputSchema": OBJECT})
    config = f"[mcp.inn]\ncommand = {json.dumps(world.command())}\n"
    (tmp_path / "saga.toml").write_text(config)
    code, out, err = saga(tmp_path, "tools", "accept", "inn")
    assert code == 1
    assert "inn.odd is left out, it cannot be used" in err
    assert "inn.no_type is left out, it cannot be used" in err
    assert "inn.a/b" in out
    code, tables, _ = saga(tmp_path, "tools", "accept", "inn", "--manifest")
    (tmp_path / "saga.toml").write_text(f"{config}\n{tables}\n[mcp.inn.tools.odd]\n")
    code, out, err = saga(tmp_path, "tools")
    assert code == 0, err
    assert {"inn.book", "inn.a_b"} <= set(out.split())
    assert "inn.odd" not in out.split()


def _deep(levels: int) -> str:
    """A schema, as text: what builds it must not give up before the engine could."""
    return '{"type":"object","properties":{"d":' * levels + '{"type":"string"}' + "}}" * levels


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        (_deep(99), "nested deeper than 100 levels"),
        (_deep(20_000), "nested deeper than 100 levels"),
        ('{"type":"object","properties":{"a":{"type":"string"},"a":{}}}', "the name 'a' twice"),
    ],
    ids=["deep", "deeper", "twice"],
)
def test_a_schema_that_no_parser_reads_leaves_the_other_tools_alone(tmp_path: Path, schema: str, why: str) -> None:
    """A parser that gives up gives up the whole list; the one tool is left out, and named with the reason."""
    world = World(tmp_path)
    world.file.with_suffix(".raw").write_text(f'{{"name":"odd","inputSchema":{schema}}}')
    (tmp_path / "saga.toml").write_text(f"[mcp.inn]\ncommand = {json.dumps(world.command())}\n")
    code, out, err = saga(tmp_path, "tools", "accept", "inn")
    assert code == 1
    assert "inn.odd is left out, it cannot be used" in err
    assert why in err
    assert "inn.book" in out


def test_keywords_that_are_null_are_none(tmp_path: Path) -> None:
    """Servers in some languages write null for a list or a map that they do not have."""
    world = World(tmp_path)
    schema = {"type": "object", "properties": None, "required": None, "description": None}
    nested = {"type": "object", "properties": {"a": {"type": "array", "items": None, "default": None}}}
    also_lists(world, {"name": "bare", "inputSchema": schema}, {"name": "nested", "inputSchema": nested})
    (tmp_path / "saga.toml").write_text(f"[mcp.inn]\ncommand = {json.dumps(world.command())}\n")
    code, out, err = saga(tmp_path, "tools", "accept", "inn")
    assert (code, err) == (0, "inn: 11 tools, 11 changes; accepted\n")
    assert {"inn.bare", "inn.nested"} <= set(out.split())


def test_two_names_that_become_one_get_two(tmp_path: Path) -> None:
    """The tables that are printed load together."""
    world = World(tmp_path)
    also_lists(world, *({"name": name, "inputSchema": OBJECT} for name in ("a/b", "a:b", "a b")))
    config = f"[mcp.inn]\ncommand = {json.dumps(world.command())}\n"
    (tmp_path / "saga.toml").write_text(config)
    _, tables, _ = saga(tmp_path, "tools", "accept", "inn", "--manifest")
    (tmp_path / "saga.toml").write_text(f"{config}\n{tables}")
    code, out, err = saga(tmp_path, "tools")
    assert code == 0, err
    assert sum(name.startswith("inn.a_b_") for name in out.split()) == 3


@pytest.mark.parametrize(
    ("answer", "output"),
    [
        ({}, {"text": ""}),
        ({"content": None}, {"text": ""}),
        ({"content": "done"}, {"text": "done"}),
        ({"content": {"type": "text", "text": "done"}}, {"text": "done"}),
        ({"structuredContent": {"id": 7}}, {"id": 7}),
        ({"content": [{"type": "hologram", "data": 1}]}, {"text": '{"type": "hologram", "data": 1}'}),
        ({"content": [{"type": "text", "text": None}, "more"]}, {"text": '{"type": "text", "text": null}\nmore'}),
    ],
)
async def test_an_answer_that_spells_its_content_otherwise_is_one(tmp_path: Path, answer: Any, output: Any) -> None:
    """The call was made; that a server leaves `content` out, or writes one block of it, is no doubt about that."""
    server = World(tmp_path).server({"texts": True}, {"loose": {}})
    found = await outcome(server, "loose", {"answer": answer})
    await server.close()
    assert isinstance(found, Done)
    assert found.output == output


async def test_an_answer_that_is_none_says_where(tmp_path: Path) -> None:
    """The place and the fault, without the dump of a library."""
    server = World(tmp_path).server({"texts": True, "legacy": True}, {"loose": {}})
    found = await outcome(server, "loose", {"answer": {"content": 7}})
    await server.close()
    assert isinstance(found, Unknown)
    assert found.error.error_code == "answer_unreadable"
    assert "its answer is none of the protocol: content: Input should be a valid list" in found.error.message
    assert "\n" not in found.error.message


@pytest.mark.parametrize("way", ["stdio", "http", "events"])
async def test_half_a_character_is_no_reason_to_lose_an_answer(tmp_path: Path, way: str) -> None:
    """A text that was cut within an emoji ends in U+FFFD; what is spelled out is left alone."""
    world = World(tmp_path)
    tools = {"half": {"effect": "read"}, "twice": {}}
    if way == "stdio":
        server = world.server({"texts": True}, tools)
        found = [await outcome(server, name) for name in tools]
        await server.close()
    else:
        with world.listening(texts=True, events=way == "events") as url:
            server = McpServer("inn", url=url, tools=tools)
            found = [await outcome(server, name) for name in tools]
            await server.close()
    half, twice = found
    assert isinstance(half, Done)
    assert half.output == {"text": "cut \ufffd, whole \U0001f600, spelled \\ud83d"}
    assert isinstance(twice, Unknown)
    assert "has the name 'id' twice" in twice.error.message
