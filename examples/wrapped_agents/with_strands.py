"""A Strands agent whose tool calls pass through a session by hooks. The model is scripted: no key, no network.

It books a flight and finds the hotel full. Its program gives up, and the flight is cancelled.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Sequence
from typing import Any

from strands import Agent
from strands.models import Model

from saga_engine import Coordinator, Session, ToolError, tool
from saga_engine.adapters.strands import SagaHooks, saga_tools

Turns = Sequence[Sequence[tuple[str, dict[str, Any]]]]


class Scripted(Model):
    """A model that asks for the calls of each turn, and then ends."""

    def __init__(self, turns: Turns) -> None:
        self._left = list(turns)

    def update_config(self, **_: Any) -> None: ...

    def get_config(self) -> Any:
        return {}

    def structured_output(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError

    async def stream(self, *_: Any, **__: Any) -> AsyncGenerator[Any, None]:
        turn = self._left.pop(0) if self._left else []
        yield {"messageStart": {"role": "assistant"}}
        for number, (name, args) in enumerate(turn):
            use = {"toolUseId": f"{len(self._left)}-{number}", "name": name}
            yield {"contentBlockStart": {"start": {"toolUse": use}}}
            yield {"contentBlockDelta": {"delta": {"toolUse": {"input": json.dumps(args)}}}}
            yield {"contentBlockStop": {}}
        if not turn:
            yield {"contentBlockDelta": {"delta": {"text": "done"}}}
            yield {"contentBlockStop": {}}
        yield {"messageStop": {"stopReason": "tool_use" if turn else "end_turn"}}


async def converse(session: Session, turns: Turns) -> list[str]:
    """What the model was told of each call."""
    agent = Agent(model=Scripted(turns), tools=saga_tools(session), hooks=[SagaHooks(session)], callback_handler=None)
    await agent.invoke_async("a trip")
    blocks = [block for message in agent.messages for block in message["content"]]
    return [block["toolResult"]["content"][0].get("text", "") for block in blocks if "toolResult" in block]


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
