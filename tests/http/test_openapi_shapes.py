"""What a document accepts, the drafted tool accepts, and sends as the document says: each shape in a small document."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from saga_engine import Coordinator
from saga_engine.errors import SettingInvalid
from saga_engine.sources.http import http_tools
from saga_engine.sources.openapi import Draft, draft_tables
from saga_engine.sources.openapi.document import parse
from saga_engine.sources.openapi.files import beside
from saga_engine.testing.faulty_http import MisbehavingServer, done
from tests import tiers

_JSON, _FORM = "application/json", "application/x-www-form-urlencoded"


def documented(
    schema: Any = None,
    *,
    media: str = _JSON,
    method: str = "post",
    version: str = "3.1.0",
    schemas: Any = None,
    path: str = "/things",
    content: Any = None,
    **operation: Any,
) -> dict[str, Any]:
    """A document with one operation, ``act``."""
    if schema is not None:
        operation["requestBody"] = {"required": True, "content": {media: {"schema": schema, **(content or {})}}}
    return {
        "openapi": version,
        "info": {"title": "Shapes", "version": "1"},
        "servers": [{"url": "https://api.example.com"}],
        "paths": {path: {method: {"operationId": "act", "responses": {"200": {}}, **operation}}},
        "components": {"schemas": schemas or {}},
    }


def drafted(document: Any, **options: Any) -> Draft:
    return draft_tables(parse(json.dumps(document), "api.json"), **options)


def table(document: Any) -> dict[str, Any]:
    (only,) = drafted(document).tables
    found: dict[str, Any] = tomllib.loads(only.toml)["http"]["act"]
    return found


def findings(document: Any, params: Any) -> list[str]:
    """What the drafted tool finds wrong in params."""
    (only,) = drafted(document).tables
    (tool,) = http_tools(tomllib.loads(only.toml)["http"], base=Path(), source="test")
    return [said for _, said in tool.spec().check_params(params)]


# --- the law -------------------------------------------------------------------------------------------------------

_NAMES = st.sampled_from("abc")
_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from(["", "a", "xx", "a@b.c"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(_NAMES, inner, max_size=3),
    max_leaves=5,
)


def _schemas(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    few = st.lists(inner, min_size=1, max_size=3)
    return st.fixed_dictionaries(
        {},
        optional={
            "type": st.sampled_from(["object", "array", "string", "integer", "null", ["string", "null"]]),
            "properties": st.dictionaries(_NAMES, inner, max_size=3),
            "required": st.lists(_NAMES, max_size=2, unique=True),
            "additionalProperties": st.booleans() | inner,
            "items": inner,
            "prefixItems": few,
            "oneOf": few,
            "anyOf": few,
            "allOf": few,
            "not": inner,
            "patternProperties": st.just({"^b": {}}),
            "readOnly": st.just(False),
        },
    )


_LEAVES = st.sampled_from(
    [
        *({}, {"type": "string", "minLength": 1}, {"type": "integer", "minimum": 0}, {"enum": ["a", None, 1]}),
        *({"const": None}, {"const": "xx"}, {"pattern": "^a"}, {"maxItems": 1}, {"minProperties": 1}),
        *({"type": "string", "format": "email"}, {"exclusiveMinimum": 0}, {"multipleOf": 2}, {"uniqueItems": True}),
        *({"$ref": "#/components/schemas/Node"}, {"maximum": 10**30}, {"$ref": "#/components/schemas/Leaf"}),
    ]
)
_SCHEMAS = st.recursive(_LEAVES, _schemas, max_leaves=8)
_SHARED = {
    "Leaf": {"type": "string"},
    "Node": {"type": "object", "properties": {"a": {"$ref": "#/components/schemas/Node"}, "b": {"type": "integer"}}},
}


@settings(max_examples=tiers.examples(300))
@given(schema=_SCHEMAS, values=st.lists(_VALUES, min_size=3, max_size=6))
def test_what_the_document_accepts_the_tool_accepts(schema: Any, values: list[Any]) -> None:
    """For any schema and any value: the tool is never stricter than the document's own schema."""
    own = jsonschema_rs.Draft202012Validator({**schema, "components": {"schemas": _SHARED}}, validate_formats=False)
    document = documented({"type": "object", "required": ["value"], "properties": {"value": schema}}, schemas=_SHARED)
    (only,) = drafted(document).tables
    (tool,) = http_tools(tomllib.loads(only.toml)["http"], base=Path(), source="test")
    for value in values:
        if own.is_valid(value):
            assert not tool.spec().check_params({"value": value}), (value, tomllib.loads(only.toml))


@pytest.mark.parametrize(
    ("schema", "right", "wrong"),
    [
        pytest.param(
            {"allOf": [{"properties": {"k": {"enum": ["a", "b"]}}}, {"properties": {"k": {"enum": ["b", "c"]}}}]},
            [{"k": "b"}],
            [{"k": "a"}, {"k": "c"}],
            id="parts that narrow one property",
        ),
        pytest.param(
            {"oneOf": [{"type": "object", "required": ["a"]}, {"type": "object", "required": ["b"]}]},
            [{"a": 1}, {"b": 1}],
            [{}, {"a": 1, "b": 1}, 7],
            id="branches that only require",
        ),
        pytest.param(
            {"oneOf": [{"$ref": "#/components/schemas/Loop"}, {"type": "object", "required": ["z"]}]},
            [{"loop": {"loop": {"z": 1}}, "z": 1}],
            [],
            id="a branch that goes in a circle",
        ),
        pytest.param(
            {"type": "object", "additionalProperties": False, "properties": {"id": {"readOnly": True}, "n": {}}},
            [{"n": 1, "id": 5}],
            [7],
            id="a closed object with a field that is only returned",
        ),
        pytest.param(
            {"type": "object", "additionalProperties": False, "patternProperties": {"^x-": {}}},
            [{"x-a": 1}],
            [7],
            id="a closed object that is open by a pattern",
        ),
        pytest.param({"type": "file"}, ["x", 1], [], id="a type that JSON Schema does not know"),
        pytest.param({"type": "string", "pattern": "(?<a>x"}, ["y"], [7], id="a pattern that does not compile"),
        pytest.param({"type": "integer", "maximum": 2**64}, [5], ["x"], id="a bound that TOML does not have"),
        pytest.param({"type": "string", "format": "date-time"}, ["tomorrow"], [7], id="a format, which is a hint"),
        pytest.param({"type": "array", "prefixItems": [{"type": "integer"}]}, [[1, "x"]], [["x"]], id="a tuple"),
    ],
)
def test_schemas_of_each_shape(schema: Any, right: list[Any], wrong: list[Any]) -> None:
    """What fits the document fits the tool, and where the words can be kept, they still refuse."""
    loop = {"type": "object", "properties": {"loop": {"$ref": "#/components/schemas/Loop"}}}
    body = {"type": "object", "required": ["value"], "properties": {"value": schema}}
    document = documented(body, schemas={"Loop": loop})
    assert [findings(document, {"value": value}) for value in right] == [[] for _ in right]
    assert all(findings(document, {"value": value}) for value in wrong)


@pytest.mark.parametrize(
    ("schema", "right", "wrong"),
    [
        ({"type": "string", "nullable": True, "enum": ["a", None]}, ["a", None], [7]),
        ({"allOf": [{"$ref": "#/components/schemas/Leaf"}], "nullable": True}, ["a", None], [7]),
        ({"$ref": "#/components/schemas/Leaf", "nullable": True}, ["a", None], [7]),
        ({"oneOf": [{"type": "string"}, {"type": "integer"}], "nullable": True}, ["a", None, 7], [[]]),
        ({"type": "integer", "minimum": 0, "exclusiveMinimum": True}, [1], [0]),
    ],
)
def test_words_of_openapi_3_0(schema: Any, right: list[Any], wrong: list[Any]) -> None:
    """``nullable`` and strict bounds as booleans, wherever they stand."""
    body = {"type": "object", "required": ["value"], "properties": {"value": schema}}
    document = documented(body, schemas=_SHARED, version="3.0.3")
    assert [findings(document, {"value": value}) for value in right] == [[] for _ in right]
    assert all(findings(document, {"value": value}) for value in wrong)


def test_words_beside_a_reference_count_in_3_1() -> None:
    """There they are a part of the schema; in 3.0 they are ignored."""
    schema = {"$ref": "#/components/schemas/Leaf", "minLength": 2}
    body = {"type": "object", "required": ["value"], "properties": {"value": schema}}
    assert findings(documented(body, schemas=_SHARED), {"value": "a"})
    assert not findings(documented(body, schemas=_SHARED, version="3.0.3"), {"value": "a"})


def test_a_choice_beyond_the_bounds_accepts_every_branch() -> None:
    """Branches that are cut accept any value, so that none of the documented kinds is refused."""
    kinds = [
        {
            "type": "object",
            "properties": {"kind": {"enum": [f"k{n}"]}, **{f"f{m}": {"type": "string"} for m in range(30)}},
        }
        for n in range(60)
    ]
    body = {"type": "object", "required": ["method"], "properties": {"method": {"oneOf": kinds}}}
    for kind in ("k0", "k33", "k59"):
        assert not findings(documented(body), {"method": {"kind": kind, "f0": "x"}})


def test_fields_that_only_an_example_has() -> None:
    """An object is open where its schema does not close it, so the document's own examples are documented calls."""
    body = {"type": "object", "required": ["a"], "properties": {"a": {"type": "string"}}}
    document = documented(body, content={"examples": {"one": {"value": {"a": "x", "more": 1}}}})
    assert not findings(document, {"a": "x", "more": 1})
    assert findings(document, {"a": "x", "most": 1})


def test_a_response_of_any_type() -> None:
    """``null`` stays the type null, unknown types say nothing, and the table loads."""
    shown = {"type": "object", "properties": {"p": {"type": "null"}, "q": {"type": "any"}, "r": {"type": ["null"]}}}
    document = documented({}, responses={"200": {"content": {_JSON: {"schema": shown}}}})
    assert table(document)["output_schema"]["properties"] == {"p": {"type": "null"}, "q": {}, "r": {"type": "null"}}


# --- requests ------------------------------------------------------------------------------------------------------


async def sent(tmp_path: Path, document: Any, params: Any) -> Any:
    """The one request that a drafted table makes of params."""
    async with MisbehavingServer() as server:
        server.script("/things", done({"id": "1"}))
        (only,) = drafted(document, base_url=server.url).tables
        tools = http_tools(tomllib.loads(only.toml)["http"], base=Path(), source="test", allow_private=["127.0.0.1"])
        plan = {"steps": [{"step_id": 1, "tool": "act", "params": params, "kind": "pivot"}]}
        async with Coordinator.open(f"embedded://{tmp_path}/s", tools=tools) as coordinator:
            result = await coordinator.run(plan)
        assert result.status == "COMPLETED", result.body
        (request,) = server.received
        return request


_NESTED = {
    "type": "object",
    "properties": {
        "amount": {"type": "integer"},
        "metadata": {"type": "object", "additionalProperties": {"type": "string"}},
        "items": {"type": "array", "items": {"type": "object"}},
        "expand": {"type": "array", "items": {"type": "string"}},
    },
}


async def test_a_nested_form_is_written_as_its_encoding_says(tmp_path: Path) -> None:
    """``deepObject`` names the place of each value in brackets; without a style an object is written as JSON."""
    deep = {"style": "deepObject", "explode": True}
    document = documented(_NESTED, media=_FORM, content={"encoding": {"metadata": deep, "items": deep}})
    params = {"amount": 5, "metadata": {"a b": "1"}, "items": [{"price": "p"}], "expand": ["x", "y"]}
    request = await sent(tmp_path, document, params)
    assert request.body == b"amount=5&metadata%5Ba+b%5D=1&items%5B0%5D%5Bprice%5D=p&expand=x&expand=y"
    plain = await sent(tmp_path, documented(_NESTED, media=_FORM), {"metadata": {"a": "1"}})
    assert plain.body == b"metadata=%7B%22a%22%3A%221%22%7D"


async def test_a_query_is_written_as_its_style_says(tmp_path: Path) -> None:
    """Lists repeat a name or are joined, objects stand in brackets, as JSON, or as their own properties."""
    many, thing = (
        {"type": "array", "items": {"type": "string"}},
        {"type": "object", "properties": {"s": {"type": "string"}}},
    )
    parameters = [
        {"name": "r", "in": "query", "schema": many},
        {"name": "c", "in": "query", "schema": many, "explode": False},
        {"name": "p", "in": "query", "schema": many, "style": "pipeDelimited", "explode": False},
        {"name": "f", "in": "query", "schema": thing, "style": "deepObject"},
        {"name": "j", "in": "query", "content": {_JSON: {"schema": thing}}},
        {"name": "spread", "in": "query", "schema": thing},
    ]
    params = {"r": ["1", "2"], "c": ["1", "2"], "p": ["1", "2"], "f": {"s": "x"}, "j": {"s": "x"}, "s": "y"}
    request = await sent(tmp_path, documented(parameters=parameters), params)
    assert request.query == "r=1&r=2&c=1%2C2&p=1%7C2&f%5Bs%5D=x&j=%7B%22s%22%3A%22x%22%7D&s=y"


@pytest.mark.parametrize(
    "media", ["application/vnd.api+json", "application/merge-patch+json", "application/json-patch+json", _JSON]
)
async def test_a_body_has_the_media_type_of_the_document(tmp_path: Path, media: str) -> None:
    """A server answers 415 to another one."""
    request = await sent(tmp_path, documented({"type": "array"}, media=media), {"body": []})
    assert dict(request.headers)["content-type"] == media


async def test_a_mandatory_cookie_is_a_header(tmp_path: Path) -> None:
    """Beside a credential that is a cookie, too."""
    cookie = {"name": "session", "in": "cookie", "required": True, "schema": {"type": "string"}}
    request = await sent(tmp_path, documented(parameters=[cookie]), {"session": "s1"})
    assert dict(request.headers)["cookie"] == "session=s1"


@pytest.mark.parametrize(
    ("parameter", "value"),
    [
        ({"in": "cookie", "schema": {"type": "string"}}, "s1; admin=1"),
        ({"in": "query", "explode": False, "schema": {"type": "array", "items": {"type": "string"}}}, ["a,b"]),
    ],
    ids=["another cookie", "another item"],
)
async def test_a_value_stays_within_its_place(tmp_path: Path, parameter: Any, value: Any) -> None:
    """One that would become two is refused before anything is sent."""
    document = documented(parameters=[{"name": "it", "required": True, **parameter}])
    async with MisbehavingServer() as server:
        (only,) = drafted(document, base_url=server.url).tables
        tools = http_tools(tomllib.loads(only.toml)["http"], base=Path(), source="test", allow_private=["127.0.0.1"])
        plan = {"steps": [{"step_id": 1, "tool": "act", "params": {"it": value}, "kind": "pivot"}]}
        async with Coordinator.open(f"embedded://{tmp_path}/s", tools=tools) as coordinator:
            result = await coordinator.run(plan)
        assert result.body["steps"][0]["error"]["error_code"] == "params_invalid"
        assert not server.received


def test_the_server_of_a_path_and_of_an_operation() -> None:
    """The nearest servers win, and a table says that its credentials go to another host than the document's."""
    document = documented()
    item = document["paths"]["/things"]
    item["servers"] = [{"url": "https://files.example.net/v2"}]
    (only,) = drafted(document).tables
    assert 'url = "https://files.example.net/v2/things"' in only.toml
    assert "# It is served by files.example.net" in only.toml
    item["post"]["servers"] = [{"url": "https://own.example.net"}]
    assert table(document)["url"] == "https://own.example.net/things"


def test_a_path_with_a_query_or_a_fragment() -> None:
    """What follows ``#`` is never sent, ``?`` begins the query, and neither is written as a part of the path."""
    assert table(documented(path="/things/#Action=Delete"))["url"] == "https://api.example.com/things/"
    assert table(documented(path="/things?kind=a b"))["url"] == "https://api.example.com/things?kind=a%20b"


def test_what_a_table_cannot_send_is_said() -> None:
    """A mandatory part leaves the operation out; an optional one is named in the table, and counted by kind."""
    body = {"required": True, "content": {_JSON: {"schema": {"type": "object"}}}}
    (left,) = drafted(documented(method="get", requestBody=body)).left_out
    assert "a body with GET" in left.why
    (only,) = drafted(documented(method="get", requestBody=body | {"required": False})).tables
    assert only.without == (("a body with GET, which is optional", "a table sends none"),)
    assert "# Left out: a body with GET, which is optional: a table sends none" in only.toml


# --- errors inside of answers ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("properties", "examples", "failed"),
    [
        ({"ok": {"type": "boolean"}, "error": {}}, [], {"path": "$.ok", "is": [False, "false"], "message": "$.error"}),
        ({"Success": {"type": "boolean"}}, [], {"path": "$.Success", "is": [False, "false"]}),
        ({}, [{"success": "true", "id": 1}], {"path": "$.success", "is": [False, "false"]}),
        ({"success": {"type": "boolean"}}, [], None),
        (
            {"data": {}, "errors": {"type": "array"}},
            [],
            {"path": "$.errors", "unless": "$.data", "message": "$.errors[0].message"},
        ),
        (
            {"jsonrpc": {}, "result": {}, "error": {}},
            [],
            {"path": "$.error", "message": "$.error.message", "code": "$.error.code"},
        ),
        (
            {"code": {"type": "integer"}, "message": {}},
            [{"code": 0, "message": "ok"}],
            {"path": "$.code", "is_not": [0, "0"], "code": "$.code", "message": "$.message"},
        ),
        ({"code": {"type": "string"}, "message": {}}, [{"code": "A7", "message": "for the guest"}], None),
    ],
)
def test_the_shapes_of_errors_that_a_document_shows(properties: Any, examples: list[Any], failed: Any) -> None:
    """A drafted write understands them; a field that only looks alike is none."""
    content = {
        "schema": {"type": "object", "properties": properties},
        "examples": {str(at): {"value": example} for at, example in enumerate(examples)},
    }
    assert table(documented({}, responses={"200": {"content": {_JSON: content}}})).get("failed") == failed


def test_the_media_type_of_an_answer_is_asked_for() -> None:
    """A server that has another one answers 406."""
    vendor = {"200": {"content": {"application/vnd.api+json; charset=utf-8": {}}}}
    assert table(documented({}, responses=vendor))["headers"]["Accept"] == "application/vnd.api+json"
    both = {"200": {"content": {"application/vnd.api+json": {}, _JSON: {}}}}
    assert "Accept" not in table(documented({}, responses=both)).get("headers", {})


# --- files ---------------------------------------------------------------------------------------------------------


def _files(folder: Path) -> Draft:
    root = documented()
    root["paths"] = {
        "/a": {"$ref": "paths/a.json"},
        "/b": {"post": {"parameters": [{"$ref": "missing.json#/b"}], "responses": {}}},
        "/c": {"$ref": "../outside.json"},
        "/d": {"post": {"requestBody": {"$ref": "https://elsewhere.example/d.json"}, "responses": {}}},
    }
    (folder / "api" / "paths").mkdir(parents=True)
    (folder / "outside.json").write_text("{}")
    (folder / "api" / "api.json").write_text(json.dumps(root))
    (folder / "api" / "paths" / "a.json").write_text(
        json.dumps({"post": {"operationId": "act", "parameters": [{"$ref": "../shared.json#/tag"}], "responses": {}}})
    )
    (folder / "api" / "shared.json").write_text(
        json.dumps(
            {
                "tag": {"name": "tag", "in": "query", "required": True, "schema": {"$ref": "#/kind"}},
                "kind": {"type": "string"},
            }
        )
    )
    source = str(folder / "api" / "api.json")

    def fetch(url: str) -> str:
        raise SettingInvalid(f"{url} must not be fetched", source=url)

    return draft_tables(parse(Path(source).read_text(), source, beside(source, fetch)))


def test_references_to_other_files_are_read_beside_the_document(tmp_path: Path) -> None:
    """A tool is drafted with what the files say, or not at all: never without a parameter that could not be read."""
    draft = _files(tmp_path)
    (only,) = draft.tables
    made = tomllib.loads(only.toml)["http"]["act"]
    assert (made["query"], made["params"]["tag"]) == ({"tag": "{tag}"}, {"type": "string"})
    left = {each.operation: each.why for each in draft.left_out}
    assert "missing.json" in left["POST /b"]
    assert "outside of the document's folder" in left["ANY /c"]
    assert "on another host" in left["POST /d"]


def test_yaml_has_merge_keys() -> None:
    """``<<`` takes over the fields of an alias, as documents written by hand use it."""
    text = """
openapi: 3.1.0
info: {title: Y, version: "1"}
servers: [{url: https://api.example.com}]
x-common: &common
  operationId: act
  summary: Act once
paths:
  /things:
    post:
      <<: *common
      responses: {"200": {description: done}}
"""
    (only,) = draft_tables(parse(text, "y.yaml")).tables
    assert (only.name, tomllib.loads(only.toml)["http"]["act"]["description"]) == ("act", "Act once")


# --- shapes of published documents ---------------------------------------------------------------------------------


def test_a_property_that_only_one_part_calls_read_only_may_be_sent() -> None:
    """The part that declares it anew means it to be sent; it is not demanded, since the other part says otherwise."""
    base = {
        "type": "object",
        "required": ["id", "type"],
        "properties": {"id": {"type": "string", "readOnly": True}, "type": {"type": "string", "readOnly": True}},
    }
    kinds = [
        {"allOf": [base, {"type": "object", "properties": {"type": {"type": "string", "enum": [kind]}, **more}}]}
        for kind, more in (("mail", {}), ("phone", {"code": {"type": "integer"}}))
    ]
    body = {"type": "object", "required": ["it"], "properties": {"it": {"oneOf": kinds}}}
    for sent in ({"type": "mail"}, {"type": "phone", "code": 1}, {}):
        assert not findings(documented(body), {"it": sent})
    assert findings(documented(body), {"it": {"type": "fax"}})


def test_a_branch_whose_read_only_property_told_it_apart() -> None:
    """Without it two branches fit, where the document means one."""
    kinds = [
        {"type": "object", "properties": {"kind": {"enum": [kind], "readOnly": True}, "name": {"type": "string"}}}
        for kind in ("a", "b")
    ]
    body = {"type": "object", "required": ["it"], "properties": {"it": {"oneOf": kinds}}}
    assert not findings(documented(body), {"it": {"name": "x"}})


@pytest.mark.parametrize("turned", [False, True])
async def test_a_property_of_a_query_with_the_name_of_a_parameter(tmp_path: Path, turned: bool) -> None:
    """A query has one value for a name: the parameter's own. The table says that the other one is left out."""
    dates = {"name": "created", "in": "query", "style": "deepObject", "schema": {"type": "object"}}
    fields = {"created": {"enum": ["asc", "desc"]}, "size": {"type": "integer"}}
    order = {"name": "sort_by", "in": "query", "schema": {"type": "object", "properties": fields}}
    document = documented(parameters=[order, dates] if turned else [dates, order])
    (only,) = drafted(document).tables
    assert only.without == (("an optional parameter whose name another one has", "created"),)
    request = await sent(tmp_path, document, {"created": {"gt": "1"}, "size": 5})
    assert request.query == "created%5Bgt%5D=1&size=5"


async def test_an_object_of_alternatives_in_a_query(tmp_path: Path) -> None:
    """Each property of each alternative is a parameter of its own."""
    one_of = [
        {"properties": {name: {"type": "string"}}, "required": [name], "additionalProperties": False}
        for name in ("email", "user_id")
    ]
    parameter = {"name": "filter", "in": "query", "required": True, "schema": {"type": "object", "oneOf": one_of}}
    request = await sent(tmp_path, documented(parameters=[parameter]), {"email": "a@b.example"})
    assert request.query == "email=a%40b.example"


@pytest.mark.parametrize(("where", "name", "spelt"), [("header", "X-Token", "x-token"), ("query", "token", "token")])
def test_a_credential_that_is_a_parameter_as_well(where: str, name: str, spelt: str) -> None:
    """It is filled with the secret, and no param of a plan takes its place."""
    document = documented(parameters=[{"name": spelt, "in": where, "required": True, "schema": {"type": "string"}}])
    document["components"]["securitySchemes"] = {"it": {"type": "apiKey", "in": where, "name": name}}
    document["security"] = [{"it": []}]
    found = table(document)
    assert found["headers" if where == "header" else "query"] == {name: "$secret.IT"}
    assert "params" not in found


def test_a_parameter_that_is_declared_twice() -> None:
    """It is one param."""
    twice = [{"name": "q", "in": "query", "schema": {"type": "string"}}] * 2
    assert [*table(documented(parameters=twice))["params"]] == ["q"]


def test_variables_of_an_operations_own_server() -> None:
    """A server without variables of its own has those of the document."""
    document = documented(servers=[{"url": "https://{region}.example.com/v2"}])
    document["servers"] = [{"url": "https://{region}.example.com", "variables": {"region": {"default": "eu"}}}]
    assert table(document)["url"] == "https://eu.example.com/v2/things"


async def test_a_path_is_written_as_its_style_says(tmp_path: Path) -> None:
    """``label`` puts a point before the value, and ``matrix`` its name."""
    for style, path in (("simple", "/things/a"), ("label", "/things/.a"), ("matrix", "/things/;id=a")):
        parameter = {"name": "id", "in": "path", "required": True, "style": style, "schema": {"type": "string"}}
        assert table(documented(path="/things/{id}", parameters=[parameter]))["url"].endswith(path.replace("a", "{id}"))


def test_a_field_that_is_only_demanded() -> None:
    """A call cannot be accepted without it, so it is a param, whatever its value is."""
    body = {"type": "object", "required": ["a", "b"], "properties": {"a": {"type": "string"}}}
    assert not findings(documented(body), {"a": "x", "b": [1]})
    assert findings(documented(body), {"a": "x"})


@pytest.mark.parametrize(
    ("servers", "url"),
    [
        (["/v1", "https://api.example.com/v1"], "https://api.example.com/v1"),
        (["wss://api.example.com", "https://api.example.com"], "https://api.example.com"),
        (["http://api.example.com", "https://api.example.com"], "https://api.example.com"),
        (["http://localhost:8080", "https://api.example.com"], "http://localhost:8080"),
    ],
)
def test_the_first_server_whose_address_is_whole(servers: list[str], url: str) -> None:
    """A relative one needs the address of the document; TLS comes before its lack, on the same host."""
    document = documented()
    document["servers"] = [{"url": each} for each in servers]
    assert table(document)["url"] == f"{url}/things"


def test_a_variable_of_a_server_without_a_value() -> None:
    """One of those that are listed will do; without any the operation is left out, and the reason names it."""
    document = documented()
    document["servers"] = [{"url": "https://{r}.example.com", "variables": {"r": {"enum": ["eu", "us"]}}}]
    assert table(document)["url"] == "https://eu.example.com/things"
    (left,) = drafted(document | {"servers": [{"url": "https://{tenant}.example.com"}]}).left_out
    assert "the host of its server has {tenant}" in left.why


@pytest.mark.parametrize("name", ["2fa-enable", "7", "3DSecure"])
def test_a_name_that_begins_with_a_digit(name: str) -> None:
    """The operation is drafted, under a name that plans can write."""
    document = documented()
    document["paths"]["/things"]["post"]["operationId"] = name
    (only,) = drafted(document).tables
    assert only.name.startswith("post_")


def test_a_header_that_nobody_can_send() -> None:
    """An optional one is left out by name; an operation that needs it has no table."""
    header = {"name": "X Trace:", "in": "header", "schema": {"type": "string"}}
    (only,) = drafted(documented(parameters=[header])).tables
    assert only.without == (("an optional header that cannot be sent", "X Trace:"),)
    (left,) = drafted(documented(parameters=[{**header, "required": True}])).left_out
    assert "X Trace:" in left.why


@pytest.mark.parametrize("version", ["3.0.0", "3.1.1", "3.2.0"])
def test_versions(version: str) -> None:
    """A newer document says what an older one can say in the same words."""
    assert drafted({**documented(), "openapi": version}).tables
