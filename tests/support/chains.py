"""Steps in a row that do nothing but cost what a step costs, and their undo."""

from __future__ import annotations

from typing import Any

from saga_engine import tool


@tool(undo="back")
async def forth(idempotency_key: str) -> dict:
    return {"ref": idempotency_key}


@tool
async def back(ref: str) -> dict:
    return {"gone": ref}


def chain(*names: str) -> dict[str, Any]:
    return {"steps": [{"step_id": number, "tool": name} for number, name in enumerate(names)]}
