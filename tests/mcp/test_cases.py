"""Cases of a tool (``[mcp.NAME.tools.TOOL.cases.CASE]``): what holds for a call by the values of its params."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from saga_engine.errors import PlanInvalid, SettingInvalid
from saga_engine.policy.unlisted import with_unlisted
from saga_engine.sources.mcp import McpServer
from tests.gateway.agents import about, agent, engine

SERVER = """
import json, sys
THINGS = set()
MODE = {"type": "string", "enum": ["list", "add", "drop", "wipe"], "default": "list"}
SCHEMA = {"type": "object", "properties": {"mode": MODE, "name": {"type": "string"}, "force": {"type": "boolean"}}}
WHOLE, LISTED = {"resultType": "complete"}, {"ttlMs": 0, "cacheScope": "private"}
for line in sys.stdin:
    request = json.loads(line)
    if "id" not in request:
        continue
    found = {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}, **LISTED}
    if request["method"] == "tools/list":
        hints = {"readOnlyHint": True}
        found = {"tools": [{"name": "thing", "description": "t", "inputSchema": SCHEMA, "annotations": hints}], **LISTED}
    if request["method"] == "tools/call":
        given = request["params"]["arguments"]
        mode, name = given.get("mode", "list"), given.get("name")
        {"list": lambda n: None, "add": THINGS.add, "drop": THINGS.discard, "wipe": lambda n: THINGS.clear()}[mode](name)
        found = {"content": [{"type": "text", "text": " ".join(sorted(THINGS))}]}
    print(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": {**WHOLE, **found}}), flush=True)
"""
CASES: dict[str, Any] = {
    "list": {"when": {"mode": "list"}, "effect": "read"},
    "add": {"when": {"mode": "add"}, "without": ["force"], "undo": "dropped"},
}
HELPERS = {"dropped": {"tool": "thing", "params": {"mode": "drop", "name": "{name}"}}}


def server(folder: Path, **table: Any) -> McpServer:
    script = folder / "server.py"
    script.write_text(SERVER)
    tools = {"thing": {"cases": CASES, **table}}
    return McpServer("it", command=[sys.executable, "-I", "-S", str(script)], tools=tools, helpers=HELPERS)


async def test_an_agent_calls_the_tool_and_the_engine_the_case(tmp_path: Path) -> None:
    """A read of it is no write, a write is undone, and what no case names is what the tool's own table says."""
    it = server(tmp_path)
    await it.open()
    policy = with_unlisted(None, it.tools(), of_agents=True)
    async with engine(it, policy=policy) as coordinator, agent(coordinator) as desk:
        listed = {tool.name: tool for tool in (await desk.client.list_tools()).tools}
        assert "thing" in listed
        assert not [name for name in listed if "." in name]
        assert listed["thing"].annotations.read_only_hint is False  # whatever the server says: a part of it writes
        assert listed["thing"].annotations.destructive_hint is True
        assert not (await desk.call("thing", mode="add", name="a")).is_error
        assert "a" in str((await desk.call("thing")).content)  # a param that is left out has the schema's default
        assert "pending" in about(await desk.call("thing", mode="wipe"))
        told = await desk.done("saga_rollback")
        assert [each["tool"] for each in told["undone"]] == ["it.thing.add"], told
        assert "pending" in about(await desk.call("thing", mode="add", name="b", force=True))
        await desk.call("saga_rollback")
        assert "text=''" in str((await desk.call("thing")).content)


async def test_a_plan_names_the_case_and_can_make_no_other_call_with_it(tmp_path: Path) -> None:
    """The schema of a case admits the values of ``when`` alone, and none of the params that it is without."""
    async with engine(server(tmp_path)) as coordinator:
        spec = coordinator.tools.spec("it.thing.add")
        assert spec is not None
        assert spec.input_schema["required"] == ["mode"]
        assert list(spec.check_params({"mode": "add", "name": "a"})) == []
        for params in ({"mode": "wipe"}, {"name": "a"}, {"mode": "add", "force": True}):
            assert list(spec.check_params(params)), params
            plan = {"steps": [{"step_id": 1, "tool": "it.thing.add", "params": params}]}
            with pytest.raises(PlanInvalid):
                await coordinator.run(plan)
        plan = {"steps": [{"step_id": 1, "tool": "it.thing.list", "params": {}}]}
        assert (await coordinator.run(plan)).status == "COMPLETED"


@pytest.mark.parametrize(
    ("case", "said"),
    [
        ({}, "must say which calls are of the case"),
        ({"when": {"mode": []}}, "cannot compare"),
        ({"when": {"mode": {"is": "add"}}}, "cannot compare"),
        ({"when": {"mode": 1.5}}, "cannot compare"),
        ({"when": "add"}, "must be a table"),
        ({"without": "force"}, "must be a list"),
        ({"when": {"mode": "add"}, "name": "x"}, "name"),
        ({"when": {"mode": "add"}, "cases": {}}, "cases"),
        ({"when": {"mode": "add"}, "effect": "none"}, "effect"),
    ],
)
def test_a_case_that_says_nothing_is_refused(case: dict[str, Any], said: str, tmp_path: Path) -> None:
    with pytest.raises(SettingInvalid, match=said):
        server(tmp_path, cases={"add": case})


def test_two_tools_of_one_name_are_refused(tmp_path: Path) -> None:
    """A case is a tool of the engine, so its name can be no other tool's."""
    with pytest.raises(SettingInvalid, match="the same name"):
        McpServer("it", command=["-"], tools={"thing": {"cases": CASES}, "other": {"name": "thing.add"}})
    with pytest.raises(SettingInvalid, match="cannot stand in a plan"):
        server(tmp_path, cases={"a/b": {"when": {"mode": "add"}}})


def test_tables_complete_the_cases_of_a_manifest(tmp_path: Path) -> None:
    """An operator's case is added to those of the file, and replaces the one of its name."""
    file = tmp_path / "thing.toml"
    file.write_text('[tools.thing.cases.list]\nwhen = { mode = "list" }\neffect = "read"\n')
    more = {"thing": {"cases": {"drop": {"when": {"mode": "drop"}, "ask": False}}}}
    it = McpServer("it", command=["-"], manifest=str(file), tools=more)
    assert set(it.config.tools["thing"].cases) == {"list", "drop"}


@pytest.mark.parametrize(("output", "kept"), [({"ref": "1"}, True), ({"error": None}, False), (None, False)])
async def test_an_answer_that_does_not_fit_its_schema_is_in_doubt(output: Any, kept: bool, tmp_path: Path) -> None:
    """The server says what it returns. Something else leaves a write in doubt, and no agent gets it as a result."""
    script = tmp_path / "server.py"
    schema = {"type": "object", "properties": {"ref": {"type": "string"}}, "required": ["ref"]}
    declared = f'"outputSchema": {schema!r}, "inputSchema": SCHEMA, "annotations": hints'
    answered = f'"content": [], **({{}} if {output!r} is None else {{"structuredContent": {output!r}}})'
    text = SERVER.replace('"inputSchema": SCHEMA, "annotations": hints', declared)
    script.write_text(text.replace('"content": [{"type": "text", "text": " ".join(sorted(THINGS))}]', answered))
    it = McpServer("it", command=[sys.executable, "-I", "-S", str(script)], tools={"thing": {"ask": False}})
    async with engine(it) as coordinator, agent(coordinator) as desk:
        answer = await desk.call("thing", mode="add", name="a")
        assert answer.is_error != kept
        assert kept or about(answer)["pending"]["kind"] == "in-doubt"
        if kept:
            return
        await coordinator.resolve("desk", 1, "happened", by="operator")  # who does not know what it returned
        again = await desk.refused("thing", mode="add", name="a")
        assert "result_unknown: the call was done" in again
