"""saga_engine: an operator approves a transfer; the process is killed after the bank made it; the saga is resumed."""

from __future__ import annotations

import asyncio
import sys

import world

from saga_engine import Coordinator, tool
from saga_engine.policy.rules import Policy, Rule


@tool
def transfer(to: str, amount: int) -> dict:
    """Transfer money. The bank keeps no keys and has no way to ask, so nothing is declared."""
    return {"receipt": world.act(f"transfer of {amount} to {to}")}


POLICY = Policy([Rule(name="the treasurer", verdict="ask", tools=["transfer"])])
PLAN = {"steps": [{"step_id": "pay", "tool": "transfer", "params": {"to": "Bob", "amount": 500}, "kind": "pivot"}]}


async def main(phase: str) -> None:
    """One process: start, approve (which dies), resume, or an operator's answer."""
    async with Coordinator.open(
        store="embedded://.saga", tools=[transfer], policy=POLICY, on_escalation=_quiet
    ) as open_:
        if phase == "start":
            result = await open_.run(PLAN, saga_id="transfer-1")
        elif phase == "approve":
            result = await open_.resolve("transfer-1", "pay", "approve", by="kim")
        elif phase == "resume":
            result = await open_.resume("transfer-1")
        else:
            result = await open_.resolve("transfer-1", "pay", "happened", output={"receipt": "seen"}, by="kim")
    kinds = [question["kind"] for question in result.body["questions"]]
    print("  the saga is", result.status, f"and asks: {kinds[0]}" if kinds else "and asks nothing")


def _quiet(question: object) -> None:
    """The operator is the caller of this program."""


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
