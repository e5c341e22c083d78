"""An agent of LangChain whose calls pass through a session by the middleware, undone when it fails."""

from typing import Any

from desk import BOOKED, STORE, book, go, unbook
from langchain.agents import create_agent
from langchain_core.language_models.fake_chat_models import FakeMessagesListChatModel
from langchain_core.messages import AIMessage

from saga_engine import Coordinator
from saga_engine.adapters.langchain import saga_tools
from saga_engine.adapters.langchain_middleware import SagaMiddleware


class Scripted(FakeMessagesListChatModel):
    def bind_tools(self, *_: Any, **__: Any) -> "Scripted":
        return self


MODEL = Scripted(
    responses=[
        AIMessage("", tool_calls=[{"name": "book", "args": {"item": "flight"}, "id": "1"}]),
        AIMessage("done"),
    ]
)


async def main() -> str:
    async with Coordinator.open(STORE, [book, unbook]) as coordinator:
        try:
            async with coordinator.session("s") as session:
                agent = create_agent(MODEL, [*saga_tools(session, ["book"])], middleware=[SagaMiddleware(session)])
                await agent.ainvoke({"messages": [("user", "a trip")]})
                assert BOOKED == ["flight"]
                raise RuntimeError("the agent fails")
        except RuntimeError:
            pass
        assert (await coordinator.show("s")).status == "COMPENSATED"
    assert BOOKED == []
    return "an agent with the middleware is undone when it fails"


go(main)
