"""Errors that come as ordinary answers: ``failed`` in an endpoint's table."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from saga_engine.core.effects import Done, NotDone
from saga_engine.errors import SettingInvalid
from saga_engine.sources.http import http_tools
from saga_engine.sources.http.lint import findings
from saga_engine.testing.faulty_http import done
from tests.http.declared import after


@pytest.mark.parametrize(
    ("failed", "body", "message", "code"),
    [
        ('{ path = "$.error" }', {"error": "no seat"}, "no seat", "answer_failed"),
        (
            '{ path = "$.status", is = ["error"], message = "$.why" }',
            {"status": "error", "why": "x"},
            "x",
            "answer_failed",
        ),
        (
            '{ path = "$.error", message = "$.error.text", code = "$.error.code" }',
            {"error": {"text": "x", "code": "E7"}},
            "x",
            "E7",
        ),
    ],
)
async def test_an_answer_that_says_it_is_an_error_is_not_done(failed: str, body: dict, message: str, code: str) -> None:
    """``failed`` tells where a 200 says that nothing was done; it is the endpoint's own word."""
    result, _ = await after(done(body), f"failed = {failed}")
    assert isinstance(result, NotDone)
    assert (result.error.message, result.error.error_code, result.definite) == (message, code, True)


@pytest.mark.parametrize("body", [{"error": None}, {"error": ""}, {"order": "A1"}, {"error": []}])
async def test_an_answer_that_says_nothing_of_an_error_is_done(body: dict) -> None:
    """An empty place is no error."""
    assert await after(done(body), 'failed = { path = "$.error" }') == (Done(body), 1)


@pytest.mark.parametrize(
    ("failed", "body", "fails"),
    [
        ('{ path = "$.code", is_not = [0, "0"] }', {"code": 0}, False),
        ('{ path = "$.code", is_not = [0, "0"] }', {"code": "7"}, True),
        ('{ path = "$.code", is_not = [0, "0"] }', {"id": 1}, False),
        ('{ path = "$.errors", unless = "$.data" }', {"errors": [{}], "data": None}, True),
        ('{ path = "$.errors", unless = "$.data" }', {"errors": [{}], "data": {"id": 1}}, False),
        ("false", {"ok": False, "error": "said so, and done"}, False),
    ],
)
async def test_an_error_by_what_it_is_not(failed: str, body: dict, fails: bool) -> None:
    """A code that is not zero, errors with no data; ``false`` says that no answer reports an error."""
    result, _ = await after(done(body), f"failed = {failed}")
    assert isinstance(result, NotDone) is fails


def test_lint_asks_how_an_answer_reports_an_error() -> None:
    """Of every write that reads its answer and says nothing about it."""
    base = 'method = "POST"\nurl = "https://api.example.com/x"\n'
    tables = {
        "silent": base,
        "told": f'{base}failed = {{ path = "$.ok", is = [false] }}',
        "none": f"{base}failed = false",
        "unread": f'{base}answer = "none"',
        "reads": 'url = "https://api.example.com/x"',
    }
    toml = "\n".join(f"[http.{name}]\n{text}" for name, text in tables.items())
    tools = http_tools(tomllib.loads(toml)["http"], base=Path(), source="test")
    assert [(each.tool, each.code) for each in findings(tools)] == [("silent", "failed-undeclared")]


@pytest.mark.parametrize(
    "failed",
    [
        "{}",
        '{ path = "$.x", is = [1], is_not = [2] }',
        '{ path = "error" }',
        '{ path = "$.x", is = "error" }',
        '{ path = "$.x", when = 1 }',
    ],
)
async def test_a_failed_that_means_nothing_is_refused(failed: str) -> None:
    """A typing error must not make errors pass for results."""
    with pytest.raises(SettingInvalid, match="failed"):
        await after(done({}), f"failed = {failed}")
