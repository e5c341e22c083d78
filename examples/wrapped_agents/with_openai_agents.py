"""An agent of the OpenAI Agents SDK whose tool calls are calls of a session. The model is scripted: no key, no network.

It books a flight and finds the hotel full. Its program gives up, and the flight is cancelled.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from typing import Any

from agents import Agent, Model, ModelResponse, Runner, Usage, set_tracing_disabled
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

from saga_engine import Coordinator, Session, ToolError, tool
from saga_engine.adapters.openai_agents import saga_tools

Turns = Sequence[Sequence[tuple[str, dict[str, Any]]]]
set_tracing_disabled(True)


class Scripted(Model):
    """A model that asks for the calls of each turn, and then ends."""

    def __init__(self, turns: Turns) -> None:
        self._turns = list(turns)

    async def get_response(self, *_: Any, **__: Any) -> ModelResponse:
        turn = self._turns.pop(0) if self._turns else []
        calls: list[Any] = [
            ResponseFunctionToolCall(
                type="function_call", name=name, arguments=json.dumps(args), call_id=f"{len(self._turns)}-{number}"
            )
            for number, (name, args) in enumerate(turn)
        ]
        text = ResponseOutputText(type="output_text", text="done", annotations=[])
        last = ResponseOutputMessage(id="m", type="message", role="assistant", status="completed", content=[text])
        return ModelResponse(output=calls or [last], usage=Usage(), response_id=None)

    def stream_response(self, *_: Any, **__: Any) -> AsyncIterator[Any]:
        raise NotImplementedError


async def converse(session: Session, turns: Turns) -> list[str]:
    """What the model was told of each call."""
    agent = Agent(name="travel", model=Scripted(turns), tools=saga_tools(session))
    result = await Runner.run(agent, "a trip")
    return [str(each["output"]) for each in result.to_input_list() if each.get("type") == "function_call_output"]


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
