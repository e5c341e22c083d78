"""The plans and tools of the kill tests. What really happens outside stands in an ``OutsideLedger``.

Each variant of the tools has the same names, so the plans are the same; they differ in how a call in doubt is settled:
``keyed`` by calling again with the same key, ``probed`` by asking, ``bare`` only by a person. ``threads`` is ``keyed``
with synchronous tools.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from saga_engine import RetryPolicy, ToolContext, ToolError, tool
from saga_engine.testing.faults import CALL, Faults
from saga_engine.testing.ledger import OutsideLedger
from saga_engine.tools.registry import ToolRegistry

FAST = RetryPolicy(max_attempts=4, base_s=0.001, max_s=0.002)
#: The wait between the two attempts of ``stumble``: long enough to freeze its process in, and for a lease to end in.
PAUSE_S = 2.0
PATIENT = RetryPolicy(max_attempts=2, base_s=PAUSE_S, max_s=PAUSE_S, jitter=False)


def keys_of(keys: Mapping[str, str] | None) -> dict[str, bytes] | None:
    """The keyring of a case, whose keys are written in hex; None: nothing is sealed."""
    return {name: bytes.fromhex(key) for name, key in keys.items()} if keys else None


class World:
    """What the tools of this process do their work with; set before a saga is driven."""

    ledger: OutsideLedger
    faults: Faults
    store: Any  # the store of this process, without its faults
    sent_before = 0  # how many requests had come when the server was killed
    folder: Path  # where the pipes are that `wait` and its test meet at


def did(ctx: ToolContext, name: str, output: Any, *, once: bool) -> Any:
    """Take effect in the world, at a point where the process may die."""
    with World.faults.at(CALL):
        return World.ledger.apply(ctx, name, output, once=once)


def refuse(ctx: ToolContext) -> Any:
    """Say no, at a point where the process may die."""
    with World.faults.at(CALL):
        raise ToolError("no rooms", error_code="full", retryable=False)


def make(*, keyed: bool = False, probe: bool = False, retry: RetryPolicy = FAST) -> ToolRegistry:
    """The tools of one variant."""
    about: dict[str, Any] = {"keyed": keyed, "probe": "find" if probe else None, "retry": retry}

    @tool(name="book", undo="cancel", **about)
    async def book(item: str, ctx: ToolContext) -> dict:
        World.ledger.sent(ctx, "book", {"item": item})
        await asyncio.sleep(0)  # branches of a graph are under way together
        return did(ctx, "book", {"ref": item}, once=keyed)

    @tool(name="cancel", **about)
    async def cancel(ref: str, ctx: ToolContext) -> dict:
        World.ledger.sent(ctx, "cancel", {"ref": ref})
        await asyncio.sleep(0)
        return did(ctx, "cancel", {"cancelled": ref}, once=keyed)

    @tool(name="fail", undo="cancel", **about)
    async def fail(item: str, ctx: ToolContext) -> dict:
        World.ledger.sent(ctx, "fail", {"item": item})
        await asyncio.sleep(0)
        return refuse(ctx)

    @tool(name="crack", undo="cancel", **about)
    async def crack(item: str, ctx: ToolContext) -> dict:
        """It happens, and then raises what is no statement of it; a repeat is answered."""
        World.ledger.sent(ctx, "crack", {"item": item})
        known = World.ledger.find(ctx.idempotency_key)
        output = did(ctx, "crack", {"ref": item}, once=keyed)
        if known is None:
            raise RuntimeError("the upstream broke")
        return output

    return ToolRegistry([book, cancel, fail, crack, *_shared(keyed)])


def make_threaded() -> ToolRegistry:
    """The keyed tools once more, as plain functions."""

    @tool(name="book", undo="cancel", keyed=True, retry=FAST)
    def book(item: str, ctx: ToolContext) -> dict:
        World.ledger.sent(ctx, "book", {"item": item})
        return did(ctx, "book", {"ref": item}, once=True)

    @tool(name="cancel", keyed=True, retry=FAST)
    def cancel(ref: str, ctx: ToolContext) -> dict:
        World.ledger.sent(ctx, "cancel", {"ref": ref})
        return did(ctx, "cancel", {"cancelled": ref}, once=True)

    @tool(name="fail", undo="cancel", keyed=True, retry=FAST)
    def fail(item: str, ctx: ToolContext) -> dict:
        World.ledger.sent(ctx, "fail", {"item": item})
        return refuse(ctx)

    return ToolRegistry([book, cancel, fail, *_shared(keyed=True)])


def _shared(keyed: bool) -> list[Any]:
    @tool(effect="read", retry=FAST)
    def find(ctx: ToolContext) -> dict | None:
        """Tell whether the call with this key happened."""
        found = World.ledger.find(ctx.idempotency_key)
        return found.output if found else None

    @tool(undo="cancel", keyed=keyed, retry=FAST, timeout_s=600)
    def wait(item: str, ctx: ToolContext) -> dict:
        """Tell the test that the call is in flight, then wait at its gate; the effect comes after that."""
        World.ledger.sent(ctx, "wait", {"item": item})
        if not (World.folder / "open").exists():
            (World.folder / "begun").write_text("begun")
            (World.folder / "gate").read_text()
        return did(ctx, "wait", {"ref": item}, once=keyed)

    @tool(undo="cancel", retry=FAST)
    def lose(item: str, ctx: ToolContext) -> dict:
        """It happens, and its answer is lost; nobody but a person can find out."""
        World.ledger.sent(ctx, "lose", {"item": item})
        did(ctx, "lose", {"ref": item}, once=False)
        raise ConnectionError("the line is dead")

    @tool(undo="cancel", keyed=keyed, retry=PATIENT)
    async def stumble(item: str, ctx: ToolContext) -> dict:
        """Not done at the first attempt, and worth another."""
        World.ledger.sent(ctx, "stumble", {"item": item})
        if ctx.attempt == 1:
            raise ToolError("later", error_code="busy", retryable=True)
        return did(ctx, "stumble", {"ref": item}, once=keyed)

    return [find, wait, lose, stumble]


TOOLS = {
    "keyed": make(keyed=True),
    "probed": make(probe=True),
    "bare": make(),
    "threads": make_threaded(),
}


def step(step_id: int, name: str = "book", **fields: Any) -> dict[str, Any]:
    """A step with an item of its own, undone by what it answers."""
    rollback = {"tool": "cancel", "params": {"ref": f"$output.step_{step_id}.ref"}}
    return {"step_id": step_id, "tool": name, "params": {"item": f"i{step_id}"}, "rollback": rollback, **fields}


PLANS: dict[str, dict[str, Any]] = {
    "succeeds": {"steps": [step(1), step(2), step(3)]},
    "fails": {"steps": [step(1), step(2), step(3, "fail")]},
    "graph": {
        "steps": [
            step(1, depends_on=[]),
            step(2, depends_on=[1]),
            step(3, depends_on=[1]),
            step(4, "fail", depends_on=[2]),
            step(5, depends_on=[3]),
        ]
    },
}
#: Plans with a list, which have tests of their own.
LISTS: dict[str, dict[str, Any]] = {
    "list": {
        "steps": [
            step(1),
            step(2, params={"item": "i2-{$item}"}, each={"of": ["$output.step_1.ref", "b"]}),
            step(3, "fail"),
        ]
    },
    "lanes": {
        "steps": [
            step(1),
            step(2, params={"item": "i2-{$item}"}, each={"of": ["$output.step_1.ref", "b", "c"], "parallel": 2}),
            step(3),
        ]
    },
}
#: A plan with a call that raises after its effect, for tools with a key or a probe.
RAISING: dict[str, dict[str, Any]] = {"raises": {"steps": [step(1), step(2, "crack"), step(3, "fail")]}}
#: A plan that takes a call back itself, and then turns: its step is the undo of that call, and the engine makes no other.
BACK = {"step_id": 3, "tool": "cancel", "params": {"ref": "$output.step_2.ref"}, "kind": "irreversible"}
TAKING: dict[str, dict[str, Any]] = {"takes back": {"steps": [step(1), step(2), BACK, step(4, "fail")]}}
ALL = {**PLANS, **LISTS, **RAISING, **TAKING}
#: How each plan ends if nobody has to be asked.
ENDS = {
    "succeeds": "COMPLETED",
    "fails": "COMPENSATED",
    "graph": "COMPENSATED",
    "list": "COMPENSATED",
    "lanes": "COMPLETED",
    "raises": "COMPENSATED",
    "takes back": "COMPENSATED",
}
