"""An agent's own loop: the model's list of tools, its calls, and the errors that it gets back."""

from __future__ import annotations

import json

import pytest

from saga_engine import Coordinator, ToolError, ToolRegistry, tool
from saga_engine.adapters.own_loop import answer
from saga_engine.errors import NeedsPerson, ToolMissing


@tool(undo="unbook", use_when="the date is fixed", returns="the order")
async def book(item: str, seats: int = 1) -> dict[str, object]:
    """Book it."""
    if item == "full":
        raise ToolError("it is full", error_code="full", suggestion="another day")
    if item == "lost":
        raise ConnectionError("the line is dead")
    return {"item": item, "seats": seats}


@tool
async def unbook(item: str) -> None:
    """Take it back."""


REGISTRY = ToolRegistry([book, unbook])


def test_both_forms_list_what_a_model_may_call() -> None:
    """Names, descriptions and schemas are the same in both; what only undoes is left out unless it is named."""
    (one,) = REGISTRY.openai_tools()
    (other,) = REGISTRY.anthropic_tools()
    assert one["function"]["parameters"] == other["input_schema"]
    assert other["description"] == "Book it.\nUse when: the date is fixed\nReturns: the order"
    assert [each["name"] for each in REGISTRY.anthropic_tools(["unbook"])] == ["unbook"]
    with pytest.raises(ToolMissing):
        REGISTRY.openai_tools(["bok"])


@pytest.mark.parametrize(
    ("name", "arguments", "code", "path"),
    [
        ("book", '{"item": "full"}', "full", ""),
        ("book", '{"item": 3, "seat": 1}', "params-invalid", "$.params.seat"),
        ("book", "{item: 3}", "params-no-json", "$"),
        ("book", "[1]", "params-no-object", "$"),
        ("bok", {"item": "a"}, "tool-missing", ""),
    ],
)
async def test_what_a_model_can_mend_comes_back_as_json(name: str, arguments: str, code: str, path: str) -> None:
    """Each error has a code and a message, and one of the arguments says where; the session goes on."""
    async with Coordinator.open("memory://", REGISTRY) as coordinator, coordinator.session("s") as session:
        refused = await answer(session, name, arguments)
        assert refused.is_error
        error = json.loads(refused.content)["error"]
        assert error["code"] == code
        assert error["message"]
        assert not path or path in {each["path"] for each in error["problems"]}
        done = await answer(session, "book", '{"item": "a"}')
        assert (json.loads(done.content), done.is_error) == ({"item": "a", "seats": 1}, False)


async def test_what_no_model_can_mend_is_raised() -> None:
    """A call in doubt that an operator has to settle is no text for a model."""
    async with Coordinator.open("memory://", REGISTRY) as coordinator:
        with pytest.raises(NeedsPerson):
            async with coordinator.session("s") as session:
                await answer(session, "book", '{"item": "lost"}')
