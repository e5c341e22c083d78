"""One gate for schemas: whoever brings one, a schema that takes exponential time is refused where it is read."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

from saga_engine import Coordinator, tool
from saga_engine.errors import PlanInvalid, ToolInvalid
from saga_engine.plan import schema_types
from saga_engine.plan.wait import misfit
from saga_engine.sources.http import http_tools
from saga_engine.sources.mcp import McpServer
from saga_engine.sources.mcp.pins import PinnedTool
from saga_engine.sources.openapi import draft_tables
from saga_engine.sources.openapi.document import parse
from tests.cli.conftest import TOOLS, Cli
from tests.gateway.agents import writer
from tests.server.harness import worked
from tests.support.bombs import BOMB, chain

#: The schemas that a plan may bring, and the problem that each of them is.
_CHILD = {"steps": [{"step_id": 1, "tool": "look", "params": {"item": "$input.a"}}]}
PLANS: dict[str, tuple[dict[str, Any], str]] = {
    "wait": ({"wait": {"event": "paid", "key": "1", "schema": BOMB, "timeout_s": 60}}, "wait-invalid"),
    "a wait for several": (
        {"wait": {"first": [{"event": "paid", "key": "1", "schema": BOMB}, {"event": "void", "key": "1"}]}},
        "wait-invalid",
    ),
    "ask": ({"ask": {"question": "How much?", "schema": BOMB}}, "ask-invalid"),
    "a child's wait": (
        {"saga": {"plan": {"steps": [{"step_id": 1, "wait": {"event": "paid", "key": "1", "schema": BOMB}}]}}},
        "wait-invalid",
    ),
    "child": ({"saga": {"plan": _CHILD, "input": {"a": "x"}, "input_schema": BOMB}}, "saga-input"),
}


@tool(effect="read")
async def look(item: str) -> dict[str, str]:
    """Look at an item."""
    return {"seen": item}


def _plan(kind: str) -> dict[str, Any]:
    return {"steps": [{"step_id": "s", **PLANS[kind][0]}]}


def _refused(kind: str, problems: Any) -> None:
    """The problem has a code, the place of the schema, and words that tell what is wrong with it."""
    found = next(each for each in problems if each["code"] == PLANS[kind][1])
    assert found["path"].endswith("schema"), found
    assert "references written out" in found["message"], found


@pytest.mark.parametrize("kind", PLANS)
async def test_a_plan_with_such_a_schema_is_refused_at_every_door(kind: str, tmp_path: Path) -> None:
    """Python, the command line, the server's API (checks, simulations, submissions, templates) and ``--engine``."""
    plan = _plan(kind)
    async with worked() as (server, coordinator):
        coordinator.register([look])
        _refused(kind, [_as_dict(each) for each in coordinator.check(plan)])
        with pytest.raises(PlanInvalid) as refused:
            await coordinator.submit(plan, saga_id="bomb")
        _refused(kind, [_as_dict(each) for each in refused.value.problems])
        api = await server.api("admin")
        for path, body in (("/v1/check", {}), ("/v1/simulate", {}), ("/v1/sagas", {"saga_id": "bomb"})):
            answer = await api("POST", path, {"plan": plan, **body})
            _refused(kind, answer.json()["problems"])
        answer = await api("PUT", "/v1/templates/bomb", {"plan": plan})
        _refused(kind, answer.json()["problems"])
        async with writer(coordinator) as agent:
            _refused(kind, (await agent.done("saga_check", plan=plan))["problems"])
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    for tools in (("--tools", str(TOOLS)), ()):
        checked = Cli(tmp_path)("check", "plan.json", *tools, "--json")
        assert checked.code == 7
        _refused(kind, checked.json["problems"])


def _as_dict(problem: Any) -> dict[str, str]:
    return {"code": problem.code, "path": problem.path, "message": problem.message}


async def test_a_templates_own_schema_is_refused() -> None:
    """The schema of its input is checked when it is stored, not when somebody submits it."""
    async with Coordinator.open("memory://", [look], durability="relaxed") as coordinator:
        with pytest.raises(PlanInvalid, match="references written out"):
            await coordinator.templates.put("t", _CHILD | {"input": {"a": "x"}}, input_schema=BOMB)


async def test_a_sessions_schemas_are_refused() -> None:
    """An agent's own calls go through the same gate."""
    async with Coordinator.open("memory://", [look], durability="relaxed") as coordinator:
        with pytest.raises(PlanInvalid, match="references written out"):
            async with coordinator.session("one", on_failure="keep") as session:
                await session.wait_for("paid", key="1", schema=BOMB)
        with pytest.raises(PlanInvalid, match="references written out"):
            async with coordinator.session("two", on_failure="keep") as session:
                await session.ask("How much?", schema=BOMB)


async def test_what_is_added_and_what_is_forked_is_refused() -> None:
    """Steps that an amendment adds to a saga under way, and the plan of a fork, go through the same gate."""
    bomb = {"step_id": "b", "ask": {"question": "How much?", "schema": BOMB}}
    asks = {"step_id": "a", "ask": {"question": "Shall we?", "options": ["yes"]}}
    async with Coordinator.open("memory://", [look], durability="relaxed") as coordinator:
        await coordinator.run({"steps": [asks]}, saga_id="old")
        with pytest.raises(PlanInvalid, match="references written out"):
            await coordinator.amend("old", [bomb], wait=False)
        with pytest.raises(PlanInvalid, match="references written out"):
            await coordinator.fork("old", plan={"steps": [asks, bomb]})
        kinds = [record["k"] for record in await coordinator.history("old")]
        assert "StepsAdded" not in kinds
        assert [head.saga_id for head in await coordinator.list()] == ["old"]


def test_a_schema_that_was_journalled_before_the_gate_finds_every_value_unfit() -> None:
    """A worker that takes over an older saga checks no payload against it, and says why."""
    assert "cannot be checked" in misfit(BOMB, "x")


async def _any(**values: Any) -> None:
    """Do nothing."""


@pytest.mark.parametrize("which", ["input_schema", "output_schema"])
def test_a_tools_schemas_are_refused(which: str) -> None:
    """Of a Python function, of an HTTP table, and of a tool that an MCP server lists; there it costs no other tool."""
    schema = {"type": "object", "properties": {"a": BOMB}, "$defs": BOMB["$defs"]}
    schema["properties"]["a"] = {"$ref": BOMB["$ref"]}
    with pytest.raises(ToolInvalid, match="references written out"):
        tool(**{which: schema})(_any).spec()
    table = {"method": "POST", "url": "https://example.org/x", "effect": "read", which: schema}
    table |= {"body": "{a}"} if which == "input_schema" else {}
    with pytest.raises(ToolInvalid, match="references written out"):
        [made] = http_tools({"call": table}, base=Path(), source="saga.toml")
        made.spec()
    plain = {"type": "object", "properties": {}}
    listed = {"name": "bomb", "description": "", "inputSchema": plain}
    listed["inputSchema" if which == "input_schema" else "outputSchema"] = schema
    pins = {
        "bomb": PinnedTool.of(listed),
        "good": PinnedTool.of(listed | {"name": "good", "inputSchema": plain, "outputSchema": None}),
    }
    server = McpServer("inn", url="http://127.0.0.1:9/", tools={"bomb": {"effect": "read"}, "good": {"effect": "read"}})
    found, unusable = server.usable(pins)
    assert [each.name for each in found] == ["inn.good"]
    assert "references written out" in unusable["bomb"]


def test_a_schema_of_an_openapi_document_is_cut_where_it_grows() -> None:
    """The draft of a tool keeps what it can of such a schema and accepts any value in place of the rest."""
    parts = {name.removeprefix("#/$defs/"): each for name, each in BOMB["$defs"].items()}
    text = json.dumps({"components": {"schemas": parts}}).replace("#/$defs/", "#/components/schemas/")
    body = {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/d0"}}}}
    document = {
        "openapi": "3.1.0",
        "info": {"title": "x", "version": "1"},
        "servers": [{"url": "https://example.org"}],
        "paths": {"/x": {"post": {"operationId": "x", "requestBody": body, "responses": {"200": body}}}},
        **json.loads(text),
    }
    draft = draft_tables(parse(json.dumps(document), "x.json"))
    [table] = draft.tables
    assert tomllib.loads(table.toml)
    assert len(table.toml) < 100_000


def test_the_types_that_a_schema_allows_are_found_in_one_walk() -> None:
    """References that double lead to each place once: the walk counts places, not ways to them."""
    wide = chain(9, lambda to: {"anyOf": [to] * 100}, {"type": "string"})
    looked: list[int] = []

    class Root(dict[str, Any]):
        def __contains__(self, key: object) -> bool:
            looked.append(1)
            return super().__contains__(key)

    assert schema_types.types(Root(wide), {"$ref": "#/$defs/d1"}) == {"string"}
    assert len(looked) < 10_000
