"""HTTP tools that change a value which another one reads (docs/before-images.md)."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from saga_engine import Coordinator
from saga_engine.errors import CallFailed, SettingInvalid, ToolInvalid
from saga_engine.sources.http import http_tools
from saga_engine.testing.faulty_http import Act, MisbehavingServer, Received, done, refused
from tests.http.declared import LOOPBACK, declared

TABLES = """
[http.read_price]
url = "{url}/prices/{{item}}"
params = {{ item = "string" }}
absent = [404]

[http.set_price]
method = "PUT"
url = "{url}/prices/{{item}}"
params = {{ item = "string", price = "integer" }}
body = {{ price = "{{price}}" }}
before = "read_price"
undo = "set_price"
undo_absent = "delete_price"

[http.delete_price]
method = "DELETE"
url = "{url}/prices/{{item}}"
params = {{ item = "string" }}
tolerates_absence = true
absent = [404]

[http.fail]
method = "POST"
url = "{url}/fail"
"""


class Prices:
    """What the server keeps; a stranger sets ``meanwhile`` just before the last step fails."""

    def __init__(self) -> None:
        self.now: dict[str, Any] = {"tea": 10}
        self.meanwhile: dict[str, Any] = {}

    def price(self, request: Received) -> Act:
        if request.method == "PUT":
            self.now[request.last] = request.json["price"]
        elif request.method == "DELETE":
            self.now.pop(request.last, None)
        elif request.last not in self.now:
            return refused(404)
        return done({"price": self.now.get(request.last)})

    def fail(self, request: Received) -> Act:
        self.now.update(self.meanwhile)
        return refused(400)


async def ran(prices: Prices, item: str) -> Any:
    async with MisbehavingServer() as server:
        server.script(f"/prices/{item}", prices.price)
        server.script("/fail", prices.fail)
        text = TABLES.format(url=server.url)
        tools = http_tools(tomllib.loads(text)["http"], base=Path(), source="saga.toml", allow_private=LOOPBACK)
        steps = [
            {"step_id": 1, "tool": "set_price", "params": {"item": item, "price": 12}},
            {"step_id": 2, "tool": "fail", "kind": "pivot"},
        ]
        async with Coordinator.open("memory://", tools) as coordinator:
            return await coordinator.run({"steps": steps})


@pytest.mark.parametrize("item", ["tea", "milk"])
async def test_an_update_and_a_creation_are_undone(item: str) -> None:
    """The undo sets the value that was there; where there was none (404), it deletes what the call created."""
    prices = Prices()
    assert (await ran(prices, item)).status == "COMPENSATED"
    assert prices.now == {"tea": 10}


async def test_a_strangers_value_is_not_overwritten() -> None:
    """Drift is asked about, as for any other tool."""
    prices = Prices()
    prices.meanwhile = {"tea": 99}
    outcome = await ran(prices, "tea")
    assert (outcome.body["questions"][0]["kind"], prices.now) == ("drift", {"tea": 99})
    assert [outcome.body["questions"][0][name] for name in ("before", "after", "found")] == [
        {"value": {"price": price}} for price in (10, 12, 99)
    ]


VERSIONED = """
[http.get]
url = "{url}/prices/tea"
output_headers = {{ etag = "ETag" }}

[http.put]
method = "PUT"
url = "{url}/prices/tea"
params = {{ price = "integer", etag = "string" }}
body = {{ price = "{{price}}" }}
headers = {{ If-Match = "{{etag}}" }}
before = "get"
expect = {{ etag = "$before.etag" }}
undo = "put_back"

[http.put_back]
method = "PUT"
url = "{url}/prices/tea"
params = {{ price = "integer" }}
body = {{ price = "{{price}}" }}
"""


class Versioned:
    """A price with an ETag, which the server compares (RFC 9110 section 13.1.1)."""

    def __init__(self) -> None:
        self.price, self.version = 10, 1
        self.seen: list[tuple[str, str]] = []

    def answer(self, request: Received) -> Act:
        match = request.headers.get("if-match", "")
        self.seen.append((request.method, match))
        if request.method == "PUT" and match not in ("", f'"{self.version}"'):
            return refused(412)
        if request.method == "PUT":
            self.price, self.version = request.json["price"], self.version + 1
        said = done({"price": self.price})
        return replace(said, headers={**said.headers, "ETag": f'"{self.version}"'})


async def test_the_server_compares_by_the_etag_that_the_saga_has_read() -> None:
    """``If-Match`` has the ETag of the saga's own read, no second read is made, and 412 is ``changed_meanwhile``."""
    shop = Versioned()
    async with MisbehavingServer() as server:
        server.script("/prices/tea", shop.answer)
        tables = tomllib.loads(VERSIONED.format(url=server.url))["http"]
        tools = http_tools(tables, base=Path(), source="saga.toml", allow_private=LOOPBACK)
        async with Coordinator.open("memory://", tools) as coordinator, coordinator.session("desk") as session:
            assert await session.call("get") == {"price": 10, "etag": '"1"'}
            await session.call("put", price=12)
            assert shop.seen == [("GET", ""), ("PUT", '"1"'), ("GET", "")]
            shop.price, shop.version = 11, 7
            with pytest.raises(CallFailed) as caught:
                await session.call("put", price=13)
            assert caught.value.error_code == "changed_meanwhile"
            assert "11" in caught.value.message
    assert shop.price == 11


def test_declarations_that_cannot_be() -> None:
    """Each names the table and the field."""
    table = '[http.put]\nmethod = "PUT"\nurl = "https://a.example/x"\n'
    with pytest.raises(SettingInvalid, match=r"before_absent of .* has no meaning without before"):
        declared(table + "before_absent = { null = true }\n")
    with pytest.raises(SettingInvalid, match=r"after of .* cannot be 'guess'"):
        declared(table + 'before = "look"\nafter = "guess"\n')
    with pytest.raises(ToolInvalid, match="before 'put_too' writes"):
        declared(table + 'before = "put_too"\n' + table.replace("http.put", "http.put_too"))


async def test_a_table_says_what_its_undo_calls() -> None:
    """``undo_params`` and ``undo_then`` stand in for a rollback in each plan; a wrong one is refused with its table."""
    prices, calls = Prices(), []

    def deleted(request: Received) -> Act:
        calls.append((request.method, request.last))
        return prices.price(request)

    async with MisbehavingServer() as server:
        server.script("/prices/tea", deleted)
        server.script("/fail", prices.fail)
        text = TABLES.format(url=server.url).replace(
            'undo = "set_price"\nundo_absent = "delete_price"',
            'undo = "set_price"\nundo_params = { item = "tea", price = "$before.price" }\n'
            'undo_then = [{ tool = "delete_price", params = { item = "tea" } }]\n'
            "verify_undo = false",  # it does not restore what was there
        )
        tables = tomllib.loads(text)["http"]
        tools = http_tools(tables, base=Path(), source="saga.toml", allow_private=LOOPBACK)
        steps = [
            {"step_id": 1, "tool": "set_price", "params": {"item": "tea", "price": 12}},
            {"step_id": 2, "tool": "fail", "kind": "pivot"},
        ]
        async with Coordinator.open("memory://", tools) as coordinator:
            result = await coordinator.run({"steps": steps})
    assert (result.status, prices.now) == ("COMPENSATED", {})
    assert [method for method, _ in calls] == ["GET", "PUT", "GET", "GET", "PUT", "DELETE"]
    tables["set_price"]["undo_then"] = "delete_price"
    with pytest.raises(SettingInvalid, match=r"undo_then of .* must be a list of tables"):
        http_tools(tables, base=Path(), source="saga.toml", allow_private=LOOPBACK)
