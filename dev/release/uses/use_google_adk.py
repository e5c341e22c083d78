"""An agent of Google ADK in a session, undone when it fails."""

from collections.abc import AsyncGenerator
from typing import Any

from desk import BOOKED, STORE, book, go, unbook
from google.adk.agents import Agent
from google.adk.models import BaseLlm, LlmResponse
from google.adk.runners import InMemoryRunner
from google.genai import types
from pydantic import Field

from saga_engine import Coordinator
from saga_engine.adapters.google_adk import SagaCallback, saga_tools


class Scripted(BaseLlm):
    left: list[Any] = Field(default_factory=lambda: [{"item": "flight"}])

    async def generate_content_async(self, *_: Any, **__: Any) -> AsyncGenerator[LlmResponse, None]:
        call = (
            types.Part.from_function_call(name="book", args=self.left.pop()) if self.left else types.Part(text="done")
        )
        yield LlmResponse(content=types.Content(role="model", parts=[call]))


async def converse(agent: Agent) -> None:
    runner = InMemoryRunner(agent, app_name="trip")
    await runner.session_service.create_session(app_name="trip", user_id="kim", session_id="one")
    question = types.Content(role="user", parts=[types.Part(text="a trip")])
    async for _ in runner.run_async(user_id="kim", session_id="one", new_message=question):
        pass


async def main() -> str:
    async with Coordinator.open(STORE, [book, unbook]) as coordinator:
        try:
            async with coordinator.session("s") as session:
                model, callback = Scripted(model="scripted"), SagaCallback(session)
                tools = saga_tools(session)
                await converse(Agent(name="travel", model=model, tools=tools, before_tool_callback=callback))
                assert BOOKED == ["flight"]
                raise RuntimeError("the agent fails")
        except RuntimeError:
            pass
        assert (await coordinator.show("s")).status == "COMPENSATED"
    assert BOOKED == []
    return "an agent of Google ADK is undone when it fails"


go(main)
