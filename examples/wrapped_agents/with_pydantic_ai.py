"""A pydantic-ai agent whose tool calls pass through a session by a capability.

The model is scripted: no key, no network. It books a flight and finds the hotel full. Its program gives up, and the
flight is cancelled.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from saga_engine import Coordinator, Session, ToolError, tool
from saga_engine.adapters.pydantic_ai import saga_tools
from saga_engine.adapters.pydantic_ai_capability import SagaCapability

Turns = Sequence[Sequence[tuple[str, dict[str, Any]]]]


def scripted(turns: Turns) -> FunctionModel:
    """A model that asks for the calls of each turn, and then ends."""
    left = list(turns)

    def say(_: list[ModelMessage], __: AgentInfo) -> ModelResponse:
        turn = left.pop(0) if left else []
        calls = [ToolCallPart(name, args) for name, args in turn]
        return ModelResponse(parts=calls or [TextPart("done")])

    return FunctionModel(say)


async def converse(session: Session, turns: Turns) -> list[str]:
    """What the model was told of each call."""
    tools = saga_tools(session, session.catalog.names(), result_bytes=None)
    agent = Agent(scripted(turns), tools=tools, capabilities=[SagaCapability(session)])
    result = await agent.run("a trip")
    parts = [part for message in result.all_messages() for part in message.parts]
    return [str(part.content) for part in parts if isinstance(part, ToolReturnPart)]


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


async def main() -> None:
    turns = [[("book", {"what": "flight"})], [("book", {"what": "hotel"})]]
    async with Coordinator.open("memory://", [book], durability="relaxed") as coordinator:
        try:
            async with coordinator.session("trip") as session:
                for told in await converse(session, turns):
                    print(f"the model was told: {told}")
                raise LookupError("no hotel")
        except LookupError:
            print(f"the saga is {(await coordinator.show('trip')).status}")


if __name__ == "__main__":
    asyncio.run(main())
