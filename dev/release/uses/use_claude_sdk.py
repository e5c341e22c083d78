"""The permissions and tools of a Claude Agent SDK client in a session, undone when it fails; without a model."""

from desk import BOOKED, STORE, book, go, unbook

from saga_engine import Coordinator
from saga_engine.adapters import claude_sdk
from saga_engine.adapters.claude_sdk import SagaClaude
from saga_engine.adapters.routing import Router


async def main() -> str:
    async with Coordinator.open(STORE, [book, unbook]) as coordinator:
        try:
            async with coordinator.session("s") as session:
                saga = SagaClaude(session)
                assert saga.server(["book"])["name"] == "saga"
                assert (await saga.permit("mcp__saga__book", {}, None)).behavior == "allow"
                assert (await saga.permit("Bash", {}, None)).behavior == "deny"
                (offered,) = Router(session).offered(["book"])
                await claude_sdk._tool(offered).handler({"item": "flight"})  # noqa: SLF001 - else a model is needed
                assert BOOKED == ["flight"]
                raise RuntimeError("the agent fails")
        except RuntimeError:
            pass
        assert (await coordinator.show("s")).status == "COMPENSATED"
    assert BOOKED == []
    return "a tool of the Claude Agent SDK is undone when its agent fails"


go(main)
