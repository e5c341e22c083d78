"""The outside world of sagas in Temporal, their steps, and what is compared of their journals."""

from __future__ import annotations

import asyncio
from typing import Any

from saga_engine import ToolContext, ToolError, tool
from saga_engine.analysis.replay_inputs import comparable, plain_record
from saga_engine.testing.ledger import OutsideLedger
from tests.kill.world import FAST


class Outside:
    """The tools of these tests, and the world that they change."""

    def __init__(self, path: Any) -> None:
        self.ledger = OutsideLedger(path)
        self.gate = asyncio.Event()
        self.begun = asyncio.Event()
        self.fails = 0
        self.tools = self._tools()

    def _tools(self) -> list[Any]:
        ledger = self.ledger

        @tool(undo="cancel", keyed=True, retry=FAST)
        async def book(item: str, ctx: ToolContext) -> dict:
            ledger.sent(ctx, "book", {"item": item})
            if self.fails:
                self.fails -= 1
                raise ToolError("busy", error_code="busy", retryable=True)
            return ledger.apply(ctx, "book", {"ref": item})

        @tool(keyed=True, retry=FAST)
        async def cancel(ref: str, ctx: ToolContext) -> dict:
            ledger.sent(ctx, "cancel", {"ref": ref})
            return ledger.apply(ctx, "cancel", {"cancelled": ref})

        @tool(undo="cancel", retry=FAST)
        async def refuse(item: str, ctx: ToolContext) -> dict:
            ledger.sent(ctx, "refuse", {"item": item})
            raise ToolError("no rooms", error_code="full", retryable=False)

        @tool(undo="cancel", probe="find", timeout_s=0.05, retry=FAST)
        async def silent(item: str, ctx: ToolContext) -> dict:
            """It happens, and never answers."""
            ledger.sent(ctx, "silent", {"item": item})
            ledger.apply(ctx, "silent", {"ref": item}, once=False)
            await asyncio.Event().wait()
            return {}

        @tool(effect="read", retry=FAST)
        async def find(ctx: ToolContext) -> dict | None:
            found = ledger.find(ctx.idempotency_key)
            return found.output if found else None

        @tool(undo="cancel", retry=FAST)
        async def lose(item: str, ctx: ToolContext) -> dict:
            """It happens, and its answer is lost."""
            ledger.sent(ctx, "lose", {"item": item})
            ledger.apply(ctx, "lose", {"ref": item}, once=False)
            raise ConnectionError("the line is dead")

        @tool(undo="cancel", keyed=True, retry=FAST, timeout_s=60)
        async def wait(item: str, ctx: ToolContext) -> dict:
            ledger.sent(ctx, "wait", {"item": item})
            self.begun.set()
            await self.gate.wait()
            return ledger.apply(ctx, "wait", {"ref": item})

        @tool(keyed=True, retry=FAST)
        async def post(text: str, ctx: ToolContext) -> dict:
            """Nothing undoes it."""
            ledger.sent(ctx, "post", {"text": text})
            return ledger.apply(ctx, "post", {"id": 7})

        return [book, cancel, refuse, silent, find, lose, wait, post]


def step(number: int, name: str = "book", **fields: Any) -> dict[str, Any]:
    rollback = {"tool": "cancel", "params": {"ref": f"$output.step_{number}.ref"}}
    return {"step_id": number, "tool": name, "params": {"item": f"i{number}"}, "rollback": rollback, **fields}


def facts(records: list[Any]) -> list[Any]:
    """A journal without what is another each time: times, seeds and waits."""
    found = []
    for record in records:
        body = plain_record(comparable(record))
        for name in ("at", "until_ms", "due_ms", "seed", "engine", "error"):
            body.pop(name, None)
        found.append(body)
    return found
