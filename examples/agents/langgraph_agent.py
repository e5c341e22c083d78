"""A LangGraph agent that became transactional by wrapping its tool list. The model is scripted: no key, no network.

It books a flight and finds the hotel full. The first time it gives up, and the flight is cancelled; the second time it
rolls back to its savepoint and tries another city.
"""

from __future__ import annotations

import asyncio
from typing import Any

from langchain_core.language_models.fake_chat_models import FakeMessagesListChatModel
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.tools import ToolException, tool
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition

from saga_engine import Coordinator, RetryPolicy
from saga_engine.adapters.langchain import register, saga_tools


@tool
async def book(what: str, city: str) -> dict:
    """Book a flight to a city, or a hotel in it."""
    if (what, city) == ("hotel", "Rome"):
        raise ToolException("every hotel in Rome is full")
    print(f"  booked a {what}: {city}")
    return {"what": what, "city": city}


@tool
async def cancel(what: str, city: str) -> str:
    """Cancel a booking."""
    print(f"  cancelled the {what}: {city}")
    return "cancelled"


TOOLS = [book]
#: The coordinator knows the undo as well; the model need not.
REGISTERED = register([book, cancel], undo={"book": "cancel"}, options={"book": {"retry": RetryPolicy(max_attempts=1)}})


def says(*cities: str) -> list[AIMessage]:
    """What the model says: a flight and a hotel in each city, then its last word."""
    turns = [
        AIMessage("", tool_calls=[{"name": "book", "args": {"what": what, "city": city}, "id": f"{what}-{city}"}])
        for city in cities
        for what in ("flight", "hotel")
    ]
    return [*turns, AIMessage("That is all.")]


def agent(tools: list[Any], words: list[AIMessage]) -> Any:
    """The usual loop: the model, its tools, the model again."""
    model = FakeMessagesListChatModel(responses=words)

    async def think(state: MessagesState) -> dict[str, Any]:
        return {"messages": [await model.ainvoke(state["messages"])]}

    graph = StateGraph(MessagesState)
    graph.add_node("model", think)
    graph.add_node("tools", ToolNode(tools))
    graph.add_edge(START, "model")
    graph.add_conditional_edges("model", tools_condition, {"tools": "tools", END: END})
    graph.add_edge("tools", "model")
    return graph.compile()


async def visit(session: Any, city: str) -> bool:
    """Whether the agent could book both."""
    asked = {"messages": [HumanMessage(f"Book a flight and a hotel: {city}.")]}
    said = await agent(saga_tools(session, TOOLS), says(city)).ainvoke(asked)
    return all(getattr(message, "status", "success") == "success" for message in said["messages"])


async def main() -> None:
    async with Coordinator.open("memory://", REGISTERED, durability="relaxed") as coordinator:
        print("An agent that gives up:")
        try:
            async with coordinator.session("gives-up", goal="two nights in Rome") as session:
                if not await visit(session, "Rome"):
                    raise LookupError("no hotel")
        except LookupError:
            print(f"  the saga is {(await coordinator.show('gives-up')).status}")

        print("An agent that tries another way:")
        async with coordinator.session("tries-on", goal="two nights somewhere") as session:
            point = session.savepoint()
            if not await visit(session, "Rome"):
                await session.rollback(point)
                await visit(session, "Oslo")
        print(f"  the saga is {(await coordinator.show('tries-on')).status}")


if __name__ == "__main__":
    asyncio.run(main())
