"""An agent of CrewAI in a session, undone when it fails."""

import asyncio
import os
from typing import Any

os.environ.update(CREWAI_DISABLE_TELEMETRY="true", CREWAI_TRACING_ENABLED="false", OTEL_SDK_DISABLED="true")

from crewai import Agent, BaseLLM, Crew, Task
from desk import BOOKED, STORE, book, go, unbook
from pydantic import Field

from saga_engine import Coordinator, SyncSession
from saga_engine.adapters.crewai import saga_tools

CALL = {"id": "1", "type": "function", "function": {"name": "book", "arguments": '{"item": "flight"}'}}


class Scripted(BaseLLM):
    left: list[Any] = Field(default_factory=lambda: [[CALL]])

    def supports_function_calling(self) -> bool:
        return True

    def call(self, *_: Any, **__: Any) -> Any:
        return self.left.pop() if self.left else "done"


def converse(session: SyncSession) -> None:
    model = Scripted(model="scripted")
    agent = Agent(role="travel desk", goal="book", backstory="You book.", llm=model, tools=saga_tools(session))
    Crew(agents=[agent], tasks=[Task(description="a trip", expected_output="a booking", agent=agent)]).kickoff()


async def main() -> str:
    async with Coordinator.open(STORE, [book, unbook]) as coordinator:
        try:
            async with coordinator.session("s") as session:
                await asyncio.to_thread(converse, SyncSession(session, asyncio.get_running_loop()))
                assert BOOKED == ["flight"]
                raise RuntimeError("the agent fails")
        except RuntimeError:
            pass
        assert (await coordinator.show("s")).status == "COMPENSATED"
    assert BOOKED == []
    return "an agent of CrewAI is undone when it fails"


go(main)
