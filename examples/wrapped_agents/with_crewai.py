"""A CrewAI agent whose tool calls are calls of a session. The model is scripted: no key, no network.

It books a flight and finds the hotel full. Its program gives up, and the flight is cancelled.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Sequence
from typing import Any

os.environ.update(CREWAI_DISABLE_TELEMETRY="true", CREWAI_TRACING_ENABLED="false", OTEL_SDK_DISABLED="true")

from crewai import Agent, BaseLLM, Crew, Task
from pydantic import Field

from saga_engine import Session, SyncSession, ToolError, sync_session, tool
from saga_engine.adapters.crewai import saga_tools

Turns = Sequence[Sequence[tuple[str, dict[str, Any]]]]


class Scripted(BaseLLM):
    """A model that asks for the calls of each turn, and then ends."""

    left: list[Any] = Field(default_factory=list)
    told: list[str] = Field(default_factory=list)

    def supports_function_calling(self) -> bool:
        return True

    def call(self, messages: Any, *_: Any, **__: Any) -> Any:
        self.told = [each["content"] for each in messages if each["role"] == "tool"]
        turn = self.left.pop(0) if self.left else []
        calls = [
            {
                "id": f"{len(self.left)}-{at}",
                "type": "function",
                "function": {"name": name, "arguments": json.dumps(args)},
            }
            for at, (name, args) in enumerate(turn)
        ]
        return calls or "done"


def crew(session: SyncSession, turns: Turns) -> list[str]:
    """What the model was told of each call."""
    model = Scripted(model="scripted", left=list(turns))
    agent = Agent(role="travel desk", goal="book", backstory="You book.", llm=model, tools=saga_tools(session))
    task = Task(description="a trip", expected_output="what was booked", agent=agent)
    Crew(agents=[agent], tasks=[task]).kickoff()
    return list(model.told)


async def converse(session: Session, turns: Turns) -> list[str]:
    """The same in a program that is async."""
    return await asyncio.to_thread(crew, SyncSession(session, asyncio.get_running_loop()), turns)


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


def main() -> None:
    turns = [[("book", {"what": "flight"})], [("book", {"what": "hotel"})]]
    try:
        with sync_session("trip", store="memory://", durability="relaxed", tools=[book]) as session:
            for told in crew(session, turns):
                print(f"the model was told: {told}")
            raise LookupError("no hotel")
    except LookupError as failure:
        print(f"undone after: {failure}")


if __name__ == "__main__":
    main()
