"""Tables of ``saga.toml`` that are tools, and tables that are none."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from saga_engine.errors import SagaError, SettingInvalid, ToolInvalid
from saga_engine.plan.tool_spec import BreakerPolicy, RetryPolicy
from saga_engine.sources.http import declaration, http_tools
from tests.http.declared import declared

GOOD = """
[http.book]
method = "POST"
url = "https://api.example.com/v1/flights/{flight}/orders"
body = { passenger = "{passenger}", amount = "{amount}" }
params = { flight = "string", passenger = "object", amount = { type = "number", minimum = 0 } }
key = { header = "Idempotency-Key", ttl_s = 86400 }
undo = "cancel"
probe = "find"
timeout_s = 20
retry = { max_attempts = 2, base_s = 0.5 }
breaker = { failures = 5 }
resource = "flight:{flight}"
max_concurrency = 3
compensates = true
semantic = "approve"
version = "2"
description = "Book a flight."
use_when = "a flight is wanted"
tags = ["travel"]

[http.cancel]
method = "DELETE"
url = "https://api.example.com/v1/orders/{order}"
params = { order = "string" }
tolerates_absence = true
absent = [404]

[http.find]
url = "https://api.example.com/v1/orders"
key = { query = "request_id" }
absent = [404]
"""


def test_a_table_is_a_tool_like_any_other() -> None:
    """All options of a tool are those of the table."""
    registry = declared(GOOD)
    book, cancel, find = (registry.spec(name) for name in ("book", "cancel", "find"))
    assert (book.effect, book.keyed, book.key_ttl_s, book.undo, book.probe) == ("write", True, 86400, "cancel", "find")
    assert (book.timeout_s, book.retry) == (20, RetryPolicy(max_attempts=2, base_s=0.5))
    assert (book.description, book.use_when, book.tags, book.compensates) == (
        "Book a flight.",
        "a flight is wanted",
        ("travel",),
        True,
    )
    assert (cancel.effect, cancel.keyed, cancel.tolerates_absence) == ("write", False, True)
    assert find.effect == "read"
    tool = registry.get("book")
    assert (tool.resource, tool.max_concurrency, tool.breaker) == ("flight:{flight}", 3, BreakerPolicy(failures=5))
    assert (tool.semantic, tool.version) == ("approve", "2")
    assert tool.function.host == "api.example.com"


def test_the_short_form_of_params_is_a_schema() -> None:
    """Every param is required unless it has a default or says that it is optional; nothing else is taken."""
    registry = declared(GOOD)
    check = registry.spec("book").check_params
    assert not check({"flight": "LH1", "passenger": {}, "amount": 1})
    assert {path for path, _ in check({"flight": 1, "passenger": {}, "amount": -1, "seat": 2})} == {
        ("flight",),
        ("amount",),
        ("seat",),
    }
    assert "saga_call" not in str(registry.spec("book").input_schema)


def test_a_given_schema_is_closed_unless_it_says_otherwise() -> None:
    """A parameter that a model invented would be sent nowhere."""
    text = '[http.a]\nurl = "http://127.0.0.1/{a}"\ninput_schema = { type = "object", required = ["a"], properties = { a = { type = "string" } } }'
    assert declared(text).spec("a").check_params({"a": "x", "b": 1})


def test_declared_twice_alike_is_one_tool() -> None:
    """Two sources that load the same file do not quarrel."""
    first, second = declared(GOOD), declared(GOOD)
    first.add(second)
    assert len(first) == 3
    with pytest.raises(ToolInvalid):
        first.add(declared(GOOD.replace("/v1/orders/{order}", "/v2/orders/{order}")))


BASE = 'url = "https://api.example.com/o"'
#: A field that is wrong, by the table that has it.
WRONG = {
    "url": [
        "",
        'url = ""',
        "url = 7",
        'url = "ftp://example.com/"',
        'url = "//example.com/"',
        'url = "https:///x"',
        'url = "https://{host}/x"',
        'url = "https://$secret.HOST/x"',
        'url = "https://ada:pw@example.com/x"',
        'url = "https://example.com/x#y"',
        'url = "https://example.com/a b"',
        'url = "https://exämple.com/"',
        'url = "https://example.com\\\\@evil.com/"',
        'url = "https://example.com:99999/"',
        'url = "https://example.com/{"',
        'url = "https://example.com/%zz"',
        'url = "http://example.com/$secret.TOKEN"',
        'url = "http://example.com/"\nheaders = { Authorization = "Bearer $secret.TOKEN" }',
    ],
    "method": [BASE + '\nmethod = "TRACE"', BASE + '\nmethod = "post"'],
    "effect": [BASE + '\neffect = "maybe"'],
    "headers": [
        BASE + "\nheaders = 7",
        BASE + '\nheaders = { "a b" = "x" }',
        BASE + '\nheaders = { Host = "evil" }',
        BASE + '\nheaders = { Content-Length = "0" }',
        BASE + '\nheaders = { A = "x", a = "y" }',
        BASE + '\nheaders = { A = "{" }',
        BASE + "\nheaders = { A = [1] }",
        BASE + '\nheaders = { K = "x" }\nkey = { header = "k" }',
    ],
    "body": [
        BASE + "\nbody = {}",
        BASE + '\nmethod = "POST"\nbody = { a = 2026-01-01 }',
        BASE + '\nmethod = "POST"\nbody = "{"',
    ],
    "form": [BASE + '\nmethod = "POST"\nbody = {}\nform = {}', BASE + "\nform = {}"],
    "key": [
        BASE + "\nkey = {}",
        BASE + '\nkey = { header = "A", query = "b" }',
        BASE + '\nkey = { cookie = "A" }',
        BASE + "\nkey = { header = 7 }",
        BASE + "\nkey = { url = true }",
        BASE + "\nkey = { url = 1 }",
        BASE + '\nmethod = "POST"\nkey = { body = "a" }\nbody = { a = 1 }',
        BASE + '\nmethod = "POST"\nkey = { body = "a" }\nbody = [1]',
    ],
    "params": [
        BASE + '\nparams = { a = "string" }',
        BASE + '\nparams = { a = "text" }\nquery = { a = "{a}" }',
        BASE + '\nparams = { idempotency_key = "string" }',
        BASE + '\nparams = { saga_call = "string" }',
        BASE + '\nparams = { "a b" = "string" }',
        BASE + '\nquery = { a = "{a}" }',
        'url = "https://api.example.com/{a}"',
        'url = "https://example.com/{a}"\nparams = { a = { type = "string", optional = true } }',
        BASE + '\nquery = { a = "x{a}" }\nparams = { a = { type = "string", optional = true } }',
        BASE + '\nparams = {}\ninput_schema = { type = "object" }',
    ],
    "done": [
        BASE + "\ndone = [99]",
        BASE + "\ndone = 200",
        BASE + '\ndone = ["2xx"]',
        BASE + "\ndone = [200]\nunknown = [200]",
    ],
    "absent": [BASE + '\neffect = "write"\nabsent = [404]'],
    "settles": [BASE + "\nsettles = [422]"],
    "output": [BASE + '\noutput = "data"', BASE + '\noutput = "$.a[?(@.b)]"'],
    "absent_output": [BASE + '\nmethod = "POST"\nabsent_output = []'],
    "answer": [BASE + '\nanswer = "xml"'],
    "follow_redirects": [BASE + '\nmethod = "POST"\nfollow_redirects = true', BASE + "\nfollow_redirects = 1"],
    "verify": [BASE + "\nverify = false"],
    "ca_file": [BASE + '\nca_file = "missing.pem"'],
    "connect_timeout_s": [
        BASE + "\nconnect_timeout_s = 0",
        BASE + "\nconnect_timeout_s = nan",
        BASE + "\nconnect_timeout_s = true",
    ],
    "max_response_bytes": [BASE + "\nmax_response_bytes = 1e30"],
    "tags": [BASE + "\ntags = [7]"],
    "retry": [BASE + "\nretry = { attempts = 3 }", BASE + "\nretry = 3"],
    "breaker": [BASE + "\nbreaker = 3", BASE + "\nbreaker = { open = 3 }"],
    "description": [BASE + "\ndescription = 7"],
    "resource": [BASE + '\nresource = "{a.b}"'],
    "timeout": [BASE + "\ntimeout = 3"],
}
CASES = [
    (field, fields) for field, tables in WRONG.items() for fields in tables if fields.startswith("url") or not fields
]


@pytest.mark.parametrize(("field", "fields"), CASES)
def test_what_is_wrong_is_named(field: str, fields: str) -> None:
    """The message names the tool, the field and the file; nothing is guessed."""
    with pytest.raises(SettingInvalid) as caught:
        declared(f"[http.book]\n{fields}")
    assert caught.value.context["tool"] == "book"
    assert caught.value.context["field"] == field
    assert field in caught.value.message
    assert "saga.toml" in caught.value.message


@pytest.mark.parametrize(
    "fields",
    [
        "timeout_s = 0",
        'timeout_s = "long"',
        "retry = { max_attempts = 0 }",
        'undo = "other"',
        "tolerates_absence = true",
        'input_schema = { type = "object", properties = { a = { type = "wrong" } } }\nquery = { a = "{a}" }',
    ],
)
def test_what_no_tool_may_be_no_http_tool_is(fields: str) -> None:
    """The rules of all tools hold."""
    with pytest.raises(ToolInvalid):
        declared(f"[http.book]\n{BASE}\n{fields}")


def test_a_probe_reads() -> None:
    """A probe that writes would make what it asks for."""
    text = GOOD.replace("[http.find]\n", '[http.find]\neffect = "write"\ntolerates_absence = true\n')
    with pytest.raises(ToolInvalid, match="writes"):
        declared(text)


def test_a_table_that_is_none() -> None:
    """``http.name = 7`` is a typing error."""
    with pytest.raises(SettingInvalid):
        http_tools({"a": 7}, base=Path(), source="saga.toml")


def test_a_near_name_is_suggested() -> None:
    """A typing error is told from a wish."""
    with pytest.raises(SettingInvalid) as caught:
        declared(f"[http.a]\n{BASE}\nheader = {{}}")
    assert caught.value.hint == "did you mean headers?"


def test_without_httpx2_there_are_no_http_tools(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is said when the tools are made, with what to install; without tables nothing is needed."""
    monkeypatch.setattr(declaration, "find_spec", lambda _: None)
    assert http_tools({}, base=Path(), source="saga.toml") == []
    with pytest.raises(ToolInvalid) as caught:
        declared(GOOD)
    assert "saga-engine[http]" in (caught.value.hint or "")


def test_declaring_imports_nothing_heavy() -> None:
    """``saga list`` starts fast although there are HTTP tools."""
    code = (
        "import sys, pathlib; from saga_engine.sources.http import http_tools;"
        "http_tools({'a': {'url': 'https://example.com/x'}}, base=pathlib.Path(), source='s');"
        "print([name for name in ('httpx2', 'httpcore2', 'h11', 'anyio', 'ssl', 'asyncio') if name in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert "httpx2" not in found
    assert "httpcore2" not in found


#: What each field may hold of the values below: nothing, where that says nothing, and a schema. All else is refused.
FINE: dict[str, list[Any]] = {
    "query": [None, {}],
    "headers": [None, {}],
    "form": [None],
    "params": [None, {}],
    "input_schema": [None, {}, {"a": {}}],
    "output_schema": [None, {}, {"a": {}}],
    "key": [None],
    "done": [None, []],
    "retry": [None, {}],
}
FIELDS = [
    "method",
    "url",
    "query",
    "headers",
    "body",
    "form",
    "params",
    "input_schema",
    "output_schema",
    "output",
    "key",
]


@pytest.mark.parametrize("value", [None, [], {}, 7, "x", True, 1.5, [[]], {"a": {}}], ids=repr)
@pytest.mark.parametrize("field", [*FIELDS, "undo", "done", "retry"])
def test_whatever_a_field_holds_is_refused_in_words(field: str, value: Any) -> None:
    """A value that the field cannot have is an error that names the table and says what is wrong; it is never passed over."""
    table = {"a": {"url": "https://example.com/x"} | {field: value}}
    if value in FINE.get(field, []) and not isinstance(value, bool | int):
        assert [tool.name for tool in http_tools(table, base=Path(), source="saga.toml")] == ["a"]
        return
    with pytest.raises(SagaError) as refused:
        http_tools(table, base=Path(), source="saga.toml")
    said = f"{refused.value.message} {refused.value.context}"
    assert "[http.a]" in said or "tool 'a'" in said


def test_the_page_s_tables_are_tools() -> None:
    """What ``docs/http-tools.md`` shows can be copied."""
    page = (Path(__file__).parents[2] / "docs" / "http-tools.md").read_text(encoding="utf-8")
    found = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    assert found
    for text in found:
        assert declared(text).names()


def test_the_reference_names_every_field() -> None:
    """A field that the page of the settings does not know is one that nobody finds."""
    page = (Path(__file__).parents[2] / "docs" / "reference" / "settings.md").read_text(encoding="utf-8")
    page = page.split("## `[http.NAME]`")[1].split("\n## ")[0]
    with pytest.raises(SettingInvalid) as caught:
        declared(f"[http.a]\n{BASE}\nzzzzzz = 1")
    fields = (caught.value.hint or "").removeprefix("fields: ").split(", ")
    assert len(fields) > 40
    assert [field for field in fields if f"`{field}`" not in page] == []
