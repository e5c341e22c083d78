"""A tool of LangChain in a session, undone when the agent fails."""

from desk import BOOKED, STORE, go
from langchain_core.tools import tool as langchain_tool

from saga_engine import Coordinator
from saga_engine.adapters.langchain import register, saga_tools


@langchain_tool
def hold(item: str) -> dict:
    """Hold an item."""
    BOOKED.append(item)
    return {"item": item}


@langchain_tool
def release(item: str) -> dict:
    """Release an item."""
    BOOKED.remove(item)
    return {}


async def main() -> str:
    tools = register([hold, release], undo={"hold": "release"})
    async with Coordinator.open(STORE, tools) as coordinator:
        try:
            async with coordinator.session("s") as session:
                wrapped = {each.name: each for each in saga_tools(session, [hold])}
                await wrapped["hold"].ainvoke({"item": "room"})
                assert BOOKED == ["room"]
                raise RuntimeError("the agent fails")
        except RuntimeError:
            pass
        assert (await coordinator.show("s")).status == "COMPENSATED"
    assert BOOKED == []
    return "a LangChain tool's call is undone when its agent fails"


go(main)
