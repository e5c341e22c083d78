"""The tool adapter of all wrappers, without a framework: the coordinator's tools, and tools that only a framework has."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from saga_engine import Coordinator, tool
from saga_engine.adapters.routing import Router
from saga_engine.errors import NeedsPerson, ToolInvalid
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


async def test_the_calls_of_several_sessions_reach_their_own_handlers() -> None:
    """In one process, with one tool and the same params; the third session begins when the others are over."""

    async def agent(engine: Coordinator, who: str) -> list[str]:
        def handler(number: int) -> Any:
            async def run(_: dict[str, Any]) -> str:
                await asyncio.sleep(0)
                return f"{who} {number}"

            return run

        async with engine.session(who) as s:
            router = Router(s, reads=["look"])
            calls = [router.route("look", ABOUT, {"at": "sky"}, handler(number)) for number in range(3)]
            return [json.loads(each.content) for each in await asyncio.gather(*calls)]

    async with Coordinator.open("memory://", []) as engine:
        found = [*await asyncio.gather(agent(engine, "alice"), agent(engine, "bob")), await agent(engine, "carol")]
    assert found == [[f"{who} {number}" for number in range(3)] for who in ("alice", "bob", "carol")]


async def test_another_agent_does_not_get_what_the_first_has_said() -> None:
    """What a second router says otherwise is refused while the first session is open, and holds afterwards."""
    async with Coordinator.open("memory://", [put]) as engine:
        async with engine.session("one") as one, engine.session("two") as two:
            await Router(one, reads=["look"]).route("look", ABOUT, {"at": "sky"}, look)
            with pytest.raises(ToolInvalid, match="otherwise"):
                await Router(two).route("look", ABOUT, {"at": "sky"}, look)
            with pytest.raises(ToolInvalid, match="another thing"):
                await Router(two, reads=["put"]).route("put", ABOUT, {"at": "sky"}, look)
        async with engine.session("three") as three:
            await Router(three).route("look", ABOUT, {"at": "sky"}, look)
        assert (await engine.show("three")).body["steps"][0]["kind"] == "irreversible"


@pytest.mark.parametrize("params", [{"at": float("nan")}, None, "[" * 100_000, "{at"])
async def test_params_that_are_none_are_told_to_the_model(params: Any) -> None:
    """The session goes on, and nothing was called."""
    async with Coordinator.open("memory://", []) as engine:
        async with engine.session("s") as s:
            told = await Router(s, reads=["look"]).route("look", ABOUT, params, look)
            assert told.is_error
            assert json.loads(told.content)["error"]["problems"][0]["code"] in (
                "params-no-json",
                "params-no-object",
                "params-invalid",
                "value-not-json",
            )
        assert (await engine.show("s")).completed
    assert LOG == []


async def test_no_tool_is_promised_that_the_model_does_not_have() -> None:
    """A result that is cut names no tool that only other adapters offer."""

    async def long(_: dict[str, Any]) -> str:
        return "x" * 20_000

    async with Coordinator.open("memory://", []) as engine, engine.session("s") as s:
        told = await Router(s, reads=["look"]).route("look", ABOUT, {"at": "sky"}, long)
    assert "This result was cut" in told.content
    assert "saga_fetch" not in told.content
