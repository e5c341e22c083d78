"""A tool and its undo, for stores that are damaged."""

from saga_engine import tool


@tool(undo="give_back")
async def take(x: int) -> dict:
    return {"x": x}


@tool
async def give_back(x: int) -> dict:
    return {}
