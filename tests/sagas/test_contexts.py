"""Context variables: what a tool sets is its own call's affair."""

import asyncio
from contextvars import ContextVar

import pytest

from saga_engine import Coordinator, ToolError, tool

WHO: ContextVar[str] = ContextVar("WHO", default="nobody")


def look(seen: list[str], name: str) -> None:
    seen.append(WHO.get())
    WHO.set(name)


def tools(seen: list[str]) -> dict[str, object]:
    """The same tool in each form that a tool may have."""

    @tool(undo="back")
    async def at_once(x: int) -> dict:
        look(seen, f"step {x}")
        return {"x": x}

    @tool(undo="back")
    async def waiting(x: int) -> dict:
        look(seen, f"step {x}")
        await asyncio.sleep(0)
        seen.append(WHO.get())
        WHO.set(f"later {x}")
        await asyncio.sleep(0)
        seen.append(WHO.get())
        return {"x": x}

    async def work(x: int) -> dict:
        look(seen, f"step {x}")
        await asyncio.sleep(0)
        seen.append(WHO.get())
        return {"x": x}

    @tool(undo="back")
    def in_thread(x: int) -> dict:
        look(seen, f"step {x}")
        return {"x": x}

    @tool(undo="back")
    def in_front(x: int) -> dict:
        return work(x)  # type: ignore[return-value]

    return {"at_once": at_once, "waiting": waiting, "in_thread": in_thread, "in_front": in_front}


@pytest.mark.parametrize(
    ("form", "one"),
    [
        ("at_once", ["caller"]),
        ("waiting", ["caller", "step {x}", "later {x}"]),
        ("in_thread", ["caller"]),
        ("in_front", ["caller", "step {x}"]),
    ],
)
async def test_each_call_has_its_callers_context(form: str, one: list[str]) -> None:
    """A call sees what whoever submitted the saga had set, keeps what it sets over its own waits, and leaks nothing."""
    seen: list[str] = []

    @tool
    async def back(x: int) -> dict:
        look(seen, "undo")
        return {}

    @tool(effect="read")
    async def refuse() -> dict:
        raise ToolError("no")

    async with Coordinator.open("memory://", [tools(seen)[form], back, refuse]) as coordinator:
        token = WHO.set("caller")
        steps = [{"step_id": x, "tool": form, "params": {"x": x}} for x in range(3)]
        await coordinator.run({"steps": [*steps, {"step_id": "end", "tool": "refuse"}]})
        assert WHO.get() == "caller"
        WHO.reset(token)
    assert seen == [text.format(x=x) for x in range(3) for text in one] + ["caller"] * 3
