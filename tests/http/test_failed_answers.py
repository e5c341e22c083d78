"""Errors that come as ordinary answers: ``failed`` in an endpoint's table."""

from __future__ import annotations

import pytest

from saga_engine.core.effects import Done, NotDone
from saga_engine.errors import SettingInvalid
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
    "failed", ["{}", '{ path = "error" }', '{ path = "$.x", is = "error" }', '{ path = "$.x", when = 1 }']
)
async def test_a_failed_that_means_nothing_is_refused(failed: str) -> None:
    """A typing error must not make errors pass for results."""
    with pytest.raises(SettingInvalid, match="failed"):
        await after(done({}), f"failed = {failed}")
