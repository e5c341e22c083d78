"""The tool adapter of all wrappers, without a framework: the coordinator's tools, and tools that only a framework has."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from saga_engine import Coordinator, tool
from saga_engine.adapters.routing import Router
from saga_engine.errors import NeedsPerson
from tests.adapters import world
from tests.adapters.world import LOG

ABOUT = ("Look at something.", {"type": "object", "properties": {"at": {"type": "string"}}, "required": ["at"]})


@pytest.fixture(autouse=True)
def fresh() -> None:
    world.reset()


@tool
def remove(at: str) -> None:
    """Remove it."""
    LOG.append(f"remove {at}")


@tool(undo=remove)
def put(at: str) -> dict[str, str]:
    """Put something somewhere."""
    LOG.append(f"put {at}")
    return {"at": at}


async def look(params: dict[str, Any]) -> str:
    LOG.append(f"look {params['at']}")
    return f"{params['at']}: fine"


async def test_the_coordinators_tools_are_offered_without_those_that_only_undo() -> None:
    """Name, description and schema for a model, and a call that takes a text of JSON or an object."""
    async with Coordinator.open("memory://", [put]) as engine, engine.session("s") as s:
        (offered,) = Router(s).offered()
        assert (offered.name, offered.description) == ("put", "Put something somewhere.")
        assert (await offered.call('{"at": "shelf"}')).content == '{"at":"shelf"}'
        assert json.loads((await offered.call({})).content)["error"]["code"] == "params-invalid"
        assert [each.name for each in Router(s).offered(["remove"])] == ["remove"]


@pytest.mark.parametrize(("said", "kind"), [({}, "irreversible"), ({"reads": ["look"]}, "read")])
async def test_a_tool_that_only_the_framework_has_is_brought(said: dict[str, Any], kind: str) -> None:
    """The engine calls it through the framework's own handler; unsaid it counts as a write that nothing takes back."""
    async with Coordinator.open("memory://", [put]) as engine:
        async with engine.session("s") as s:
            router = Router(s, **said)
            answers = [router.route("look", ABOUT, {"at": at}, look) for at in ("sky", "sea", "sky")]
            assert [each.content for each in await asyncio.gather(*answers)] == [
                '"sky: fine"',
                '"sea: fine"',
                '"sky: fine"',
            ]
        steps = (await engine.show("s")).body["steps"]
        assert [(step["tool"], step["kind"]) for step in steps] == [("look", kind)] * 3
    assert sorted(LOG) == ["look sea", "look sky", "look sky"]


async def test_its_undo_is_a_tool_of_the_coordinator() -> None:
    """Named where the wrapper is made."""

    async def place(params: dict[str, Any]) -> dict[str, str]:
        LOG.append(f"place {params['at']}")
        return params

    async with Coordinator.open("memory://", [remove]) as engine:
        with pytest.raises(LookupError):
            async with engine.session("s") as s:
                await Router(s, undo={"place": "remove"}).route("place", ABOUT, {"at": "shelf"}, place)
                raise LookupError
        assert (await engine.show("s")).status == "COMPENSATED"
    assert LOG == ["place shelf", "remove shelf"]


async def test_what_no_model_can_mend_is_raised() -> None:
    """An approval that is open ends the agent's run."""
    policy = {"rules": [{"name": "puts", "tools": ["put"], "verdict": "ask"}]}
    async with Coordinator.open("memory://", [put], policy=policy) as engine:
        with pytest.raises(NeedsPerson):
            async with engine.session("s") as s:
                await Router(s).answer("put", {"at": "shelf"})
    assert LOG == []
