"""A question reaches a channel of apprise."""

from desk import STORE, answering, go, in_turn

from saga_engine import Coordinator
from saga_engine.hooks.chat import AppriseHook

PLAN = {"steps": [{"step_id": 1, "ask": {"question": "Which room?", "options": ["a", "b"]}}]}


async def main() -> str:
    with answering(in_turn((200, b"{}"))) as (url, asked):
        hook = AppriseHook(url.replace("http://", "json://"))
        async with Coordinator.open(STORE, [], on_escalation=[hook]) as coordinator:
            outcome = await coordinator.run(PLAN, saga_id="s")
            assert outcome.status == "ESCALATED", outcome
    assert any(b"Which room?" in body for _, _, body in asked), asked
    return "a question is delivered to a channel"


go(main)
