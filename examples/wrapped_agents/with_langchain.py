"""A LangChain agent whose tool calls pass through a session by a middleware. The model is scripted: no key, no network.

It looks, books a flight and finds the hotel full. Its program gives up, and the flight is cancelled.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from langchain.agents import create_agent
from langchain_core.language_models.fake_chat_models import FakeMessagesListChatModel
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.tools import tool as langchain_tool

from saga_engine import Coordinator, Session, ToolError, tool
from saga_engine.adapters.langchain import saga_tools
from saga_engine.adapters.langchain_middleware import SagaMiddleware

Turns = Sequence[Sequence[tuple[str, dict[str, Any]]]]


class Scripted(FakeMessagesListChatModel):
    """A model that asks for the calls of each turn, and then ends."""

    def bind_tools(self, *_: Any, **__: Any) -> Scripted:
        return self


def scripted(turns: Turns) -> Scripted:
    calls = [
        [{"name": name, "args": args, "id": f"{at}-{number}"} for number, (name, args) in enumerate(turn)]
        for at, turn in enumerate(turns)
    ]
    return Scripted(responses=[*(AIMessage("", tool_calls=each) for each in calls), AIMessage("done")])


async def converse(session: Session, turns: Turns, tools: Sequence[Any] = ()) -> list[str]:
    """What the model was told of each call."""
    offered = tools or saga_tools(session, session.catalog.names(), result_bytes=None)
    agent = create_agent(scripted(turns), [*offered], middleware=[SagaMiddleware(session, reads=["look"])])
    said = await agent.ainvoke({"messages": [("user", "a trip")]})
    return [str(message.content) for message in said["messages"] if isinstance(message, ToolMessage)]


# --- a trip ----------------------------------------------------------------------------------------------------------


@tool
def cancel(what: str) -> None:
    print(f"cancelled the {what}")


@tool(undo=cancel)
def book(what: str) -> dict[str, str]:
    """Book a flight or a hotel."""
    if what == "hotel":
        raise ToolError("every hotel is full", error_code="full", suggestion="another city")
    print(f"booked the {what}")
    return {"what": what}


@langchain_tool
def look(at: str) -> str:
    """Look something up: a tool that only LangChain has."""
    return f"{at}: fine"


async def main() -> None:
    turns = [[("look", {"at": "weather"})], [("book", {"what": "flight"})], [("book", {"what": "hotel"})]]
    async with Coordinator.open("memory://", [book], durability="relaxed") as coordinator:
        try:
            async with coordinator.session("trip") as session:
                # The names must be in the list that the model sees; the middleware makes the calls.
                tools = [*saga_tools(session, [book]), look]
                for told in await converse(session, turns, tools):
                    print(f"the model was told: {told}")
                raise LookupError("no hotel")
        except LookupError:
            print(f"the saga is {(await coordinator.show('trip')).status}")


if __name__ == "__main__":
    asyncio.run(main())
