"""A pydantic-ai agent that became transactional by wrapping its tool list. The model is scripted: no key, no network.

The agent dies after its first booking and runs again with the same id: the booking is not made twice, and when the
second one fails for good, both runs are undone as one.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from saga_engine import Coordinator, RetryPolicy
from saga_engine.adapters.pydantic_ai import register, saga_tools
from saga_engine.errors import Interrupted


async def book(what: str, city: str) -> dict[str, str]:
    """Book a flight to a city, or a hotel in it."""
    if what == "hotel":
        raise ValueError(f"every hotel in {city} is full")
    print(f"  booked a {what}: {city}")
    return {"what": what, "city": city}


async def cancel(what: str, city: str) -> str:
    """Cancel a booking."""
    print(f"  cancelled the {what}: {city}")
    return "cancelled"


#: The coordinator knows the undo as well; the model need not.
REGISTERED = register([book, cancel], undo={"book": "cancel"}, options={"book": {"retry": RetryPolicy(max_attempts=1)}})


class NoHotelError(Exception):
    """The agent cannot do what it was asked."""


def scripted() -> FunctionModel:
    """A model that books a flight, then a hotel, then says whether that went well."""
    turns: Iterator[str] = iter(["flight", "hotel"])

    def model(messages: list[ModelMessage], _info: AgentInfo) -> ModelResponse:
        what = next(turns, None)
        if what is None:
            failed = any(getattr(part, "outcome", "") == "failed" for part in messages[-1].parts)
            return ModelResponse([TextPart("no hotel" if failed else "all booked")])
        return ModelResponse([ToolCallPart("book", {"what": what, "city": "Rome"})])

    return FunctionModel(model)


async def life(store: str, *, dies: bool) -> None:
    """One life of the agent, in a coordinator of its own as in a process of its own."""
    agent: Agent[None, str] = Agent(scripted(), tools=[book])
    async with (
        Coordinator.open(store, REGISTERED) as coordinator,
        coordinator.session("rome", goal="two nights in Rome") as session,
    ):
        tools: list[Any] = saga_tools(session, [book])
        with agent.override(tools=tools):
            async with agent.iter("Book a flight to Rome, and a hotel.") as run:
                async for _ in run:
                    if dies and session.savepoint().calls == 1:
                        raise Interrupted("stands for a crash: it says nothing about the work")
        if run.result is not None and run.result.output != "all booked":
            raise NoHotelError(run.result.output)


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        store = f"embedded://{Path(folder) / 'saga'}"
        print("First life:")
        try:
            await life(store, dies=True)
        except Interrupted:
            print("  the agent died")
        print("Second life:")
        try:
            await life(store, dies=False)
        except NoHotelError as error:
            print(f"  the agent gave up: {error}")
        async with Coordinator.open(store, REGISTERED) as coordinator:
            print(f"  the saga is {(await coordinator.show('rome')).status}")


if __name__ == "__main__":
    asyncio.run(main())
