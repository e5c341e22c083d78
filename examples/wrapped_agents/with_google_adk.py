"""A Google ADK agent whose tool calls pass through a session by a callback. The model is scripted: no key, no network.

It books a flight and finds the hotel full. Its program gives up, and the flight is cancelled.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Sequence
from typing import Any

from google.adk.agents import Agent
from google.adk.models import BaseLlm, LlmResponse
from google.adk.runners import InMemoryRunner
from google.genai import types
from pydantic import Field

from saga_engine import Coordinator, Session, ToolError, tool
from saga_engine.adapters.google_adk import SagaCallback, saga_tools

Turns = Sequence[Sequence[tuple[str, dict[str, Any]]]]


class Scripted(BaseLlm):
    """A model that asks for the calls of each turn, and then ends."""

    left: list[Any] = Field(default_factory=list)

    async def generate_content_async(self, *_: Any, **__: Any) -> AsyncGenerator[LlmResponse, None]:
        turn = self.left.pop(0) if self.left else []
        parts = [types.Part.from_function_call(name=name, args=args) for name, args in turn]
        yield LlmResponse(content=types.Content(role="model", parts=parts or [types.Part(text="done")]))


async def converse(session: Session, turns: Turns) -> list[str]:
    """What the model was told of each call."""
    agent = Agent(
        name="travel",
        model=Scripted(model="scripted", left=list(turns)),
        tools=saga_tools(session),
        before_tool_callback=SagaCallback(session),
    )
    runner = InMemoryRunner(agent, app_name="trip")
    await runner.session_service.create_session(app_name="trip", user_id="kim", session_id="one")
    told = []
    question = types.Content(role="user", parts=[types.Part(text="a trip")])
    async for event in runner.run_async(user_id="kim", session_id="one", new_message=question):
        told += [json.dumps(each.response) for each in event.get_function_responses()]
    return told


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
