"""A tool that takes, its undo, and a plan of one step."""

from saga_engine import tool


@tool(undo="give_back", keyed=True)
async def take(item: str) -> dict:
    return {"item": item}


@tool
async def give_back(item: str) -> dict:
    return {"item": item}


ONE = {"steps": [{"step_id": 1, "tool": "take", "params": {"item": "x"}}]}
