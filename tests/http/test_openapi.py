"""Drafts of HTTP tools from OpenAPI documents: what a document says is kept, what it cannot say is asked for."""

from __future__ import annotations

import copy
import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from saga_engine import Coordinator
from saga_engine.errors import SagaError, SettingInvalid
from saga_engine.sources.http import http_tools
from saga_engine.sources.openapi import Draft, draft_tables
from saga_engine.sources.openapi.document import parse
from saga_engine.sources.toml import value
from saga_engine.testing.faulty_http import MisbehavingServer, done

_JSON = "application/json"
ORDER = {
    "type": "object",
    "required": ["id", "item"],
    "properties": {
        "id": {"type": "string", "readOnly": True},
        "item": {"type": "string", "minLength": 1, "description": "What is ordered.\n\nA second paragraph."},
        "count": {"type": "integer", "minimum": 0, "exclusiveMinimum": True, "default": 1},
        "note": {"type": "string", "nullable": True, "enum": ["a", None]},
        "parent": {"$ref": "#/components/schemas/Order"},
    },
}
SHOP: dict[str, Any] = {
    "openapi": "3.0.3",
    "info": {"title": "Shop", "version": "7"},
    "servers": [{"url": "https://{region}.example.com/v1/", "variables": {"region": {"default": "eu"}}}],
    "security": [{"token": []}],
    "paths": {
        "/orders": {
            "get": {
                "operationId": "listOrders",
                "summary": "List the orders",
                "parameters": [
                    {"name": "page-size", "in": "query", "schema": {"type": "integer"}},
                    {"name": "state", "in": "query", "schema": {"type": "array", "items": {"type": "string"}}},
                    {"name": "filter", "in": "query", "schema": {"type": "object"}},
                    {"name": "Accept", "in": "header", "schema": {"type": "string"}},
                ],
                "responses": {"200": {"content": {_JSON: {"schema": {"type": "array", "items": ORDER}}}}},
            },
            "post": {
                "operationId": "createOrder",
                "summary": "Order something",
                "parameters": [{"name": "Idempotency-Key", "in": "header", "schema": {"type": "string"}}],
                "requestBody": {
                    "required": True,
                    "content": {_JSON: {"schema": {"$ref": "#/components/schemas/Order"}}},
                },
                "responses": {"201": {"$ref": "#/components/responses/Order"}},
            },
        },
        "/orders/{order id}": {
            "parameters": [{"name": "order id", "in": "path", "required": True, "schema": {"type": "string"}}],
            "delete": {"operationId": "deleteOrder", "responses": {"204": {}}},
            "patch": {
                "operationId": "changeOrder",
                "requestBody": {"content": {_JSON: {"schema": {"allOf": [{"$ref": "#/components/schemas/Order"}]}}}},
                "responses": {"200": {}},
            },
        },
        "/orders/{missing}": {"delete": {"responses": {}}},
        "/picture": {"put": {"requestBody": {"required": True, "content": {"image/png": {}}}, "responses": {}}},
        "/login": {
            "post": {
                "security": [{"sent": []}, {"basic": []}],
                "requestBody": {
                    "content": {
                        "application/x-www-form-urlencoded": {
                            "schema": {
                                "type": "object",
                                "required": ["user"],
                                "properties": {
                                    "user": {"type": "string"},
                                    "word": {"type": "string", "format": "password"},
                                },
                            }
                        }
                    }
                },
                "responses": {"default": {"content": {_JSON: {}}}},
            }
        },
    },
    "components": {
        "schemas": {"Order": ORDER},
        "responses": {"Order": {"content": {_JSON: {"schema": {"$ref": "#/components/schemas/Order"}}}}},
        "securitySchemes": {
            "token": {"type": "http", "scheme": "bearer"},
            "basic": {"type": "http", "scheme": "basic"},
            "sent": {"type": "apiKey", "in": "cookie", "name": "session"},
        },
    },
}


def drafted(document: Any = SHOP, **options: Any) -> Draft:
    return draft_tables(parse(json.dumps(document), "shop.json"), **options)


def tables(draft: Draft) -> dict[str, Any]:
    found: dict[str, Any] = tomllib.loads("\n".join(table.toml for table in draft.tables))["http"]
    return found


def test_an_operation_becomes_a_table_that_loads() -> None:
    """Path, query, headers, body, credentials and schemas stand where the document says; all tables load together."""
    made = tables(drafted())
    assert made["create_order"] == {
        "description": "Order something",
        "method": "POST",
        "url": "https://eu.example.com/v1/orders",
        "headers": {"Authorization": "Bearer $secret.TOKEN"},
        "body": {name: f"{{{name}}}" for name in ("item", "count", "note", "parent")},
        "key": {"header": "Idempotency-Key"},
        "params": made["create_order"]["params"],
        "output_schema": made["create_order"]["output_schema"],
    }
    params = made["create_order"]["params"]
    assert params["item"] == {"type": "string", "minLength": 1, "description": "What is ordered."}
    assert params["count"] == {"type": "integer", "exclusiveMinimum": 0, "optional": True}
    assert params["note"] == {"type": ["string", "null"], "optional": True}
    assert made["list_orders"]["query"] == {"page-size": "{page-size}", "state": "{state}"}
    assert made["delete_order"]["url"] == "https://eu.example.com/v1/orders/{order_id}"
    assert made["change_order"]["body"]["item"] == "{item}"
    assert made["post_login"]["form"] == {"user": "{user}", "word": "{word}"}
    assert made["post_login"]["headers"] == {"Authorization": "Basic $secret.BASIC"}
    assert made["post_login"]["params"]["word"]["sensitive"] is True
    assert {tool.name for tool in http_tools(made, base=Path(), source="test")} == set(made)


def test_an_answer_is_held_to_names_and_types_only() -> None:
    """Servers return more and less than they document: nothing is required, every value may be null."""
    schema = tables(drafted())["create_order"]["output_schema"]
    assert schema["type"] == "object"
    assert "required" not in schema
    assert schema["properties"]["note"] == {"type": ["string", "null"]}
    assert schema["properties"]["item"] == {"type": ["string", "null"]}


def test_what_a_document_cannot_say_is_a_comment() -> None:
    """The undo is proposed and never set; a write without a key says so."""
    text = {table.name: table.toml for table in drafted().tables}
    assert '# undo = "delete_order"   # delete_order may be it' in text["create_order"]
    assert '# key = { header = "Idempotency-Key" }' in text["change_order"]
    assert "undo" not in text["list_orders"]
    assert "# Left out: an optional parameter that is not one plain value: filter" in text["list_orders"]


def test_what_cannot_be_declared_is_told() -> None:
    """Each operation has a table or a reason."""
    draft = drafted()
    assert {left.operation: left.why for left in draft.left_out} == {
        "DELETE /orders/{missing}": "its path has {missing}, which is no parameter",
        "PUT /picture": "it needs a body of image/png; a table sends JSON or a form",
    }
    assert len(draft.tables) == 5


def test_only_some_operations() -> None:
    """By the tool's name or by method and path; a pattern without a match is an error that lists the names."""
    assert [table.name for table in drafted(only=["delete_*"]).tables] == ["delete_order", "delete_orders_missing"][:1]
    assert [table.name for table in drafted(only=["POST /orders*"]).tables] == ["create_order"]
    with pytest.raises(SettingInvalid, match="no operation matches 'x'") as raised:
        drafted(only=["x"])
    assert "create_order" in str(raised.value.hint)


def test_where_the_api_is() -> None:
    """``base_url`` wins; a relative server counts from the document's URL; without either nothing is drafted."""
    assert tables(drafted(base_url="https://x.example/"))["list_orders"]["url"] == "https://x.example/orders"
    relative = SHOP | {"servers": [{"url": "/v2"}]}
    here = draft_tables(parse(json.dumps(relative), "https://api.example.com/docs/shop.json"))
    assert tables(here)["list_orders"]["url"] == "https://api.example.com/v2/orders"
    nowhere = drafted(relative)
    assert not nowhere.tables
    assert "--server" in nowhere.left_out[0].why


def test_yaml_has_the_values_of_json() -> None:
    """A country code NO is no boolean, a date is a text."""
    text = """
openapi: 3.1.0
info: {title: Y, version: 2024-01-01}
servers: [{url: https://example.com}]
paths:
  /c:
    get:
      parameters:
        - {name: country, in: query, schema: {type: string, enum: [NO, SE]}}
      responses: {200: {description: ok}}
"""
    draft = draft_tables(parse(text, "y.yaml"))
    assert draft.title == "Y 2024-01-01"
    assert tables(draft)["get_c"]["params"]["country"]["enum"] == ["NO", "SE"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is no JSON"),
        ("a: [", "is no YAML"),
        ("[]", "it is no object"),
        ('{"swagger": "2.0"}', "Swagger document of version 2.0"),
        ('{"openapi": "4.0.0"}', "its field openapi is '4.0.0'"),
        ('{"openapi": 3.0}', "its field openapi is 3.0"),
    ],
)
def test_what_is_no_such_document(text: str, message: str) -> None:
    """The error names the source and what is wrong."""
    with pytest.raises(SettingInvalid, match=message):
        parse(text, "shop.json")


def _grows(levels: int) -> dict[str, Any]:
    """A schema that is small on paper and huge when its references are followed."""
    made: dict[str, Any] = {"L0": {"type": "string"}}
    for level in range(1, levels):
        ref = {"$ref": f"#/components/schemas/L{level - 1}"}
        made[f"L{level}"] = {"type": "object", "properties": {str(n): ref for n in range(10)}, "allOf": [ref] * 10}
    return made


def test_a_document_that_refers_to_itself_or_grows_ends() -> None:
    """References in a circle and ones that multiply are bounded."""
    hostile = copy.deepcopy(SHOP)
    hostile["components"]["schemas"] |= _grows(30) | {
        "Order": {"$ref": "#/components/schemas/L29"},
        "A": {"$ref": "#/components/schemas/A"},
        "B": {"allOf": [{"$ref": "#/components/schemas/B"}]},
    }
    hostile["paths"]["/a"] = {
        "put": {
            "requestBody": {"content": {_JSON: {"schema": {"$ref": "#/components/schemas/B"}}}},
            "responses": {"200": {"content": {_JSON: {"schema": {"$ref": "#/components/schemas/A"}}}}},
        }
    }
    assert all(len(table.toml) < 200_000 for table in drafted(hostile).tables)


_ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=5), inner, max_size=2),
    max_leaves=4,
)


def _places(value_: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = value_.items() if isinstance(value_, dict) else enumerate(value_) if isinstance(value_, list) else ()
    return [place for key, each in inner for place in ((*at, key), *_places(each, (*at, key)))]


@settings(max_examples=25)
@given(at=st.sampled_from(_places(SHOP)), other=_ANY)
def test_a_document_of_any_shape_is_drafted_or_refused(at: tuple[Any, ...], other: Any) -> None:
    """Whatever stands in a place of a document, what is printed loads, and the only errors are ours."""
    document = copy.deepcopy(SHOP)
    node: Any = document
    for key in at[:-1]:
        node = node[key]
    node[at[-1]] = other
    try:
        draft = draft_tables(parse(json.dumps(document), "shop.json"))
    except SagaError:
        return
    for table in draft.tables:
        tomllib.loads(table.toml)


@given(_ANY)
def test_a_value_is_written_as_what_it_is(given_: Any) -> None:
    """TOML reads back what was written, or it has no such value."""
    try:
        text = value(given_)
    except ValueError:
        return
    again = tomllib.loads(f"x = {text}")["x"]
    assert (
        again == json.loads(json.dumps(given_).encode("utf-8", "replace")) or "\ud800" <= max(str(given_)) <= "\udfff"
    )


async def test_a_drafted_tool_calls_its_operation(tmp_path: Path) -> None:
    """A table as it was drafted, with what an operator knows, calls a real server once."""
    async with MisbehavingServer() as server:
        server.script("/v1/orders", done({"id": "A1", "item": "chair", "more": 1}))
        document = SHOP | {"security": []}
        made = tables(drafted(document, base_url=f"{server.url}/v1", only=["create_order"]))
        tools = http_tools(made, base=Path(), source="test", allow_private=["127.0.0.1"])
        plan = {"steps": [{"step_id": 1, "tool": "create_order", "params": {"item": "chair"}, "kind": "pivot"}]}
        async with Coordinator.open(f"embedded://{tmp_path}/s", tools=tools) as coordinator:
            outcome = await coordinator.run(plan)
        assert (outcome.status, len(server.effects)) == ("COMPLETED", 1)
        assert outcome.body["steps"][0]["output"] == {"id": "A1", "item": "chair", "more": 1}
