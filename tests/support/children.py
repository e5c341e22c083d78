"""Tools and plans for the tests of child sagas."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

from saga_engine import Coordinator, ToolError, tool
from saga_engine.errors import SagaNotFound

WAIT = {"step_id": "paid", "wait": {"event": "paid", "key": "k"}}
DONE: list[tuple[str, int]] = []
STUCK: set[int] = set()


@tool(undo="unbook")
async def book(n: int) -> dict[str, int]:
    """Books; 13 is refused."""
    if n == 13:
        raise ToolError("no", error_code="refused", retryable=False)
    DONE.append(("book", n))
    return {"n": n}


@tool
async def unbook(n: int) -> dict[str, int]:
    """Undoes it."""
    if n in STUCK:
        raise ToolError("no", error_code="refused", retryable=False)
    DONE.append(("unbook", n))
    return {}


@tool(sensitive=["card"], undo="refund")
async def pay(card: str) -> dict[str, str]:
    """Pays."""
    return {"receipt": f"of {card}"}


@tool
async def refund(receipt: str) -> dict[str, str]:
    """Undoes it."""
    return {}


def booking(key: Any, n: Any, **more: Any) -> dict[str, Any]:
    return {"step_id": key, "tool": "book", "params": {"n": n}, **more}


def kid(*steps: dict[str, Any], **given: Any) -> dict[str, Any]:
    return {"step_id": "trip", "saga": {"plan": {"steps": list(steps)}, "input": given}}


def plan(*steps: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"steps": list(steps), **more}


def opened(url: str) -> AbstractAsyncContextManager[Coordinator]:
    return Coordinator.open(url, [book, unbook, pay, refund], on_escalation=())


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(60):
        while not await condition():  # noqa: ASYNC110 - what another task has made durable
            await asyncio.sleep(0.005)


async def reaches(engine: Coordinator, saga_id: str, status: str, *, waits: bool = False) -> None:
    async def so() -> bool:
        try:
            head = await engine.store.head(saga_id)
        except SagaNotFound:
            return False
        return head.status == status and (not waits or b'"waits"' in head.summary)

    await until(so)
