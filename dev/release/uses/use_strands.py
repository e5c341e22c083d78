"""An agent of Strands in a session, undone when it fails."""

import json
from collections.abc import AsyncGenerator
from typing import Any

from desk import BOOKED, STORE, book, go, unbook
from strands import Agent
from strands.models import Model

from saga_engine import Coordinator
from saga_engine.adapters.strands import SagaHooks, saga_tools


class Scripted(Model):
    def __init__(self) -> None:
        self._left = [{"item": "flight"}]

    def update_config(self, **_: Any) -> None: ...

    def get_config(self) -> Any:
        return {}

    def structured_output(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError

    async def stream(self, *_: Any, **__: Any) -> AsyncGenerator[Any, None]:
        call = self._left.pop() if self._left else None
        yield {"messageStart": {"role": "assistant"}}
        if call:
            yield {"contentBlockStart": {"start": {"toolUse": {"toolUseId": "1", "name": "book"}}}}
            yield {"contentBlockDelta": {"delta": {"toolUse": {"input": json.dumps(call)}}}}
        else:
            yield {"contentBlockDelta": {"delta": {"text": "done"}}}
        yield {"contentBlockStop": {}}
        yield {"messageStop": {"stopReason": "tool_use" if call else "end_turn"}}


async def main() -> str:
    async with Coordinator.open(STORE, [book, unbook]) as coordinator:
        try:
            async with coordinator.session("s") as session:
                hooks = [SagaHooks(session)]
                agent = Agent(model=Scripted(), tools=saga_tools(session), hooks=hooks, callback_handler=None)
                await agent.invoke_async("a trip")
                assert BOOKED == ["flight"]
                raise RuntimeError("the agent fails")
        except RuntimeError:
            pass
        assert (await coordinator.show("s")).status == "COMPENSATED"
    assert BOOKED == []
    return "an agent of Strands is undone when it fails"


go(main)
