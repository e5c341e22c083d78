"""An agent of pydantic-ai in a session, undone when it fails."""

from desk import BOOKED, STORE, go
from pydantic_ai import Agent
from pydantic_ai.models.test import TestModel

from saga_engine import Coordinator
from saga_engine.adapters.pydantic_ai import register, saga_tools


async def hold(item: str) -> dict[str, str]:
    """Hold an item."""
    BOOKED.append(item)
    return {"item": item}


async def release(item: str) -> None:
    """Release an item."""
    BOOKED.remove(item)


async def main() -> str:
    agent = Agent(TestModel(), tools=[hold])
    tools = register([hold, release], undo={"hold": "release"})
    async with Coordinator.open(STORE, tools) as coordinator:
        try:
            async with coordinator.session("s") as session:
                with agent.override(tools=saga_tools(session, [hold])):
                    await agent.run("Hold something.")
                assert len(BOOKED) == 1
                raise RuntimeError("the agent fails")
        except RuntimeError:
            pass
        assert (await coordinator.show("s")).status == "COMPENSATED"
    assert BOOKED == []
    return "an agent's call is undone when it fails"


go(main)
