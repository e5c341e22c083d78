"""`saga tools`: what the tools are, where their options come from, what to mend, and how they fare."""

from __future__ import annotations

import asyncio
import shutil

import pytest

from saga_engine.stores import open_store
from tests.cli.conftest import TOOLS

TOML = """
[saga]
tools = ["tools.py"]
[tools."*"]
timeout_s = 5
[tools.book]
rate = "10/s"
breaker = true
use_when = "a thing is wanted"
[tools.noisy]
disabled = true
"""
GOOD = '''
from typing import Annotated
from saga_engine import tool
print("NOISE at import")

@tool(tags="pivot", returns="nothing", raised="not-done")
def send_parcel(weight_kg: Annotated[float, "with its box"], idempotency_key: str):
    """Send the parcel when it is packed."""
'''


@pytest.fixture
def shop(cli):
    """A folder with tools and an operator's options."""
    shutil.copy(TOOLS, cli.folder / "tools.py")
    (cli.folder / "saga.toml").write_text(TOML)
    return cli


def test_the_list_shows_each_tool_and_who_is_switched_off(shop):
    """One line a tool, with its guards; stderr tells of tools that the operator took away."""
    ran = shop("tools")
    assert ran.code == 0
    lines = {line.split()[0]: line for line in ran.out.splitlines()}
    assert {"TOOL", "book", "unbook", "fail", "vanish", "block"} == set(lines)
    assert "breaker 3/30 s · 10/s" in lines["book"]
    assert "The request goes out" in lines["vanish"]
    assert "noisy is switched off by saga.toml [tools.noisy]" in ran.err


def test_the_list_says_which_tools_cannot_be_undone(cli):
    """A tool that writes and has no undo is irreversible; one that is another tool's undo, or reads, is not called so."""
    shutil.copy(TOOLS, cli.folder / "tools.py")
    (cli.folder / "more.py").write_text(GOOD)
    lines = cli("tools", "--tools", "tools.py", "--tools", "more.py").out.splitlines()
    listed = {line.split()[0]: "none: irreversible" in line for line in lines if line}
    assert (listed["send_parcel"], listed["book"], listed["unbook"]) == (True, False, False)


def test_one_tool_shows_where_its_options_come_from(shop):
    """An operator sees which value is in force, and which table set it."""
    ran = shop("tools", "book")
    rows = {line.split()[0]: line.split() for line in ran.out.splitlines() if line.strip()}
    assert rows["timeout_s"][1:] == ["5", "saga.toml", '[tools."*"]']
    assert rows["rate"][1:] == ["10/s", "saga.toml", "[tools.book]"]
    assert rows["undo"][1:] == ["unbook", "declaration"]
    assert rows["last_good_s"][1:] == ["none", "default"]
    assert "use_when (saga.toml [tools.book]):" in ran.out
    assert '"item"' in ran.out


def test_the_document(shop):
    """With --json: schema, options with value and source, and what is switched off."""
    body = shop("tools", "--json").json
    assert [one["name"] for one in body["tools"]] == ["book", "unbook", "fail", "vanish", "block"]
    book = body["tools"][0]
    assert book["options"]["breaker"] == {"value": {"failures": 3, "open_s": 30.0}, "from": "saga.toml [tools.book]"}
    assert book["overridden"]["use_when"] == "saga.toml [tools.book]"
    assert book["input_schema"]["required"] == ["item"]
    assert body["switched_off"] == [{"name": "noisy", "from": "saga.toml [tools.noisy]"}]
    assert "findings" not in body
    assert "stats" not in book


def test_a_plan_that_names_a_switched_off_tool_is_refused(shop):
    """The plan is invalid, and the hint says who switched the tool off."""
    ran = shop("check", shop.plan("p.json", {"name": "x", "tool": "noisy", "params": {"item": "a"}}), "--json")
    assert ran.code == 7
    (problem,) = ran.json["problems"]
    assert (problem["code"], problem["hint"]) == ("tool-unknown", "it is switched off by saga.toml [tools.noisy]")


def test_errors_of_the_lint_are_exit_code_1(shop):
    """Tools that a model cannot choose are an error; what only could be better is none."""
    ran = shop("tools", "--lint")
    assert ran.code == 1
    assert "error: book: the tool has no description [description-missing]" in ran.out
    ran = shop("tools", "book", "--lint", "--json")
    assert ran.code == 1
    assert {finding["tool"] for finding in ran.json["findings"]} == {"book"}
    (shop.folder / "good.py").write_text(GOOD)
    (shop.folder / "saga.toml").unlink()
    ran = shop("tools", "--tools", "good.py", "--lint")
    assert (ran.code, ran.out) == (0, "nothing to mend\n")


def test_stats_come_from_the_store(shop):
    """Calls and breakers that any process counted are shown; before the first call there are zeros."""
    stats = {one["name"]: one["stats"] for one in shop("tools", "--stats", "--json").json["tools"]}
    assert stats["book"]["calls"] == 0
    assert stats["book"]["breaker"] == {"state": "closed", "failures": 0, "opens_ms": 0}

    async def fail() -> None:
        store = open_store(f"embedded://{shop.folder}/.saga")
        await store.open()
        try:
            guards = store.guard_store()
            await guards.count("book", {"calls": 3, "not_done": 2, "waited_us": 5500})
            await guards.breaker_outcome("book", failed=True, failures=1, open_ms=3_600_000)
            await guards.breaker_outcome("fail", failed=True, failures=2, open_ms=3_600_000)
        finally:
            await store.close()

    asyncio.run(fail())
    stats = {one["name"]: one["stats"] for one in shop("tools", "--stats", "--json").json["tools"]}
    assert {name: stats["book"][name] for name in ("calls", "not_done", "waited_ms")} == {
        "calls": 3,
        "not_done": 2,
        "waited_ms": 5,
    }
    assert stats["book"]["breaker"]["state"] == "open"
    assert stats["book"]["breaker"]["opens_ms"] > 0
    assert stats["fail"]["breaker"] == {"state": "closed", "failures": 1, "opens_ms": 0}
    text = shop("tools", "--stats").out
    assert "open for" in text
    assert "closed, 1 failure" in text


def test_what_is_not_there_is_told(shop):
    """A name that nobody has, a table that matches nothing and no tools at all: each is said, with a hint."""
    ran = shop("tools", "bok", "--json")
    assert (ran.code, ran.json["error"]["code"]) == (1, "tool-missing")
    assert "book" in ran.json["error"]["hint"]
    assert "switched off" in shop("tools", "noisy", "--json").json["error"]["hint"]
    (shop.folder / "saga.toml").write_text(TOML + "[tools.bok]\ntimeout_s = 1\n")
    ran = shop("tools", "--json")
    assert (ran.code, ran.json["error"]["code"]) == (1, "setting-invalid")
    assert "book" in ran.json["error"]["hint"]
    (shop.folder / "saga.toml").write_text("[tools.bok]\ntimeout_s = 1\n")
    ran = shop("tools")
    assert (ran.code, ran.out) == (0, "")
    assert "no tools are configured" in ran.err


def test_http_tools_alone_are_tools(cli):
    """Endpoints declared in saga.toml need no module: they are listed, overridden and checked like others."""
    (cli.folder / "saga.toml").write_text(
        '[http.ping]\nmethod = "GET"\nurl = "https://example.com/ping"\neffect = "read"\n[tools.ping]\ntimeout_s = 2\n'
    )
    ran = cli("tools", "--json")
    assert ran.code == 0, ran.err + ran.out
    (ping,) = ran.json["tools"]
    assert ping["options"]["timeout_s"] == {"value": 2, "from": "saga.toml [tools.ping]"}
    ran = cli("check", cli.plan("p.json", {"name": "x", "tool": "pong", "params": {}}), "--json")
    assert (ran.code, ran.json["tools_checked"]) == (7, True)


def test_a_hostile_description_cannot_act_on_the_terminal(cli):
    """What a tool says of itself is printed without control characters."""
    (cli.folder / "evil.py").write_text(
        "from saga_engine import tool\n@tool(description='x\\x1b[2J', use_when='\\u202ey')\ndef act(): ...\n"
    )
    for args in (["tools"], ["tools", "act"], ["tools", "--lint"], ["tools", "--json"]):
        ran = cli(*args, "--tools", "evil.py")
        assert "\x1b" not in ran.out + ran.err
        assert "\u202e" not in ran.out + ran.err


def test_the_doctor_can_read_the_tables(shop):
    """Tables of other rooms do not keep the doctor from printing one document."""
    ran = shop("doctor", "--json")
    assert ran.code == 0
    assert ran.json["tools"][0]["name"] == "book"
