"""A saga that waits for an hour, and how to see that it sleeps."""

from saga_engine import Coordinator, RetryPolicy, ToolError, tool
from tests.kill.polling import eventually

CALLS: list[str] = []


@tool(undo="cancel", keyed=True)
async def book(item: str) -> dict:
    CALLS.append(f"book {item}")
    return {"item": item}


@tool
async def cancel(item: str) -> dict:
    CALLS.append(f"cancel {item}")
    return {}


@tool(undo="cancel", keyed=True, retry=RetryPolicy(max_attempts=3, base_s=3600.0, max_s=3600.0, jitter=False))
async def later(item: str) -> dict:
    CALLS.append(f"try {item}")
    raise ToolError("come back later", error_code="busy", retryable=True)


TOOLS = [book, cancel, later]


PLAN = {
    "steps": [
        {"step_id": 1, "tool": "book", "params": {"item": "hotel"}},
        {"step_id": 2, "tool": "later", "params": {"item": "car"}},
    ]
}


async def asleep(coordinator: Coordinator, saga_id: str) -> None:
    """Until the saga sleeps."""
    await eventually(lambda: coordinator.supervisor.find(saga_id).asleep, "the saga to fall asleep")
