"""An agent of the OpenAI Agents SDK in a session, undone when it fails."""

import json
from typing import Any

from agents import Agent, Model, ModelResponse, Runner, Usage, set_tracing_disabled
from desk import BOOKED, STORE, book, go, unbook
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

from saga_engine import Coordinator
from saga_engine.adapters.openai_agents import saga_tools

set_tracing_disabled(True)
CALL = ResponseFunctionToolCall(
    type="function_call", name="book", arguments=json.dumps({"item": "flight"}), call_id="1"
)
TEXT = ResponseOutputText(type="output_text", text="done", annotations=[])
LAST = ResponseOutputMessage(id="m", type="message", role="assistant", status="completed", content=[TEXT])


class Scripted(Model):
    def __init__(self) -> None:
        self._left: list[Any] = [CALL, LAST]

    async def get_response(self, *_: Any, **__: Any) -> ModelResponse:
        return ModelResponse(output=[self._left.pop(0)], usage=Usage(), response_id=None)

    def stream_response(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError


async def main() -> str:
    async with Coordinator.open(STORE, [book, unbook]) as coordinator:
        try:
            async with coordinator.session("s") as session:
                await Runner.run(Agent(name="travel", model=Scripted(), tools=saga_tools(session)), "a trip")
                assert BOOKED == ["flight"]
                raise RuntimeError("the agent fails")
        except RuntimeError:
            pass
        assert (await coordinator.show("s")).status == "COMPENSATED"
    assert BOOKED == []
    return "an agent of the OpenAI Agents SDK is undone when it fails"


go(main)
