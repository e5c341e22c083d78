"""A model behind OpenAI's protocol writes a plan, and it runs."""

import json

from desk import GOOD, STORE, answering, book, go, in_turn, unbook

from saga_engine import Coordinator
from saga_engine.planner.settings import PlannerSettings


async def main() -> str:
    said = {"role": "assistant", "content": json.dumps({"goal": "a flight", **GOOD})}
    answer = {
        "id": "1",
        "object": "chat.completion",
        "created": 1,
        "model": "m",
        "choices": [{"index": 0, "message": said, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 9, "completion_tokens": 9, "total_tokens": 18},
    }
    with answering(in_turn((200, json.dumps(answer).encode()))) as (url, asked):
        model = PlannerSettings(model="openai:m", base_url=f"{url}/v1", api_key="none")
        async with Coordinator.open(STORE, [book, unbook], planner=model) as coordinator:
            outcome = await coordinator.plan_and_run("book a flight", saga_id="s")
    assert outcome.status == "COMPLETED", outcome
    assert asked
    return "a model's plan is checked and runs"


go(main)
