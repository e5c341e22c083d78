"""An operator's 'happened' has to say what the call returned if anything binds that."""

from __future__ import annotations

from typing import Any

import pytest

from saga_engine import Coordinator, tool
from saga_engine.errors import DecisionRefused


@tool
async def vanish() -> dict[str, Any]:
    raise TimeoutError("no answer")


@tool(effect="read")
async def look(what: Any = None) -> dict[str, Any]:
    return {"seen": what}


_HAPPENED = [{"value": "$output.step_a.ok", "op": "==", "to": True}]
_VANISHES: dict[str, Any] = {"step_id": "a", "tool": "vanish", "kind": "pivot"}
_NEXT: dict[str, Any] = {"step_id": "b", "tool": "look"}
_LATER = {"step_id": "c", "tool": "look"}


@pytest.mark.parametrize(
    "plan",
    [
        {"steps": [_VANISHES, _NEXT, {**_LATER, "params": {"what": "$output.step_a.ok"}}]},
        {"steps": [_VANISHES, {**_NEXT, "when": _HAPPENED}]},
        {"steps": [_VANISHES, _NEXT, {**_LATER, "when": _HAPPENED}]},
        {"steps": [_VANISHES, {"step_id": "b", "compute": {"sum": ["$output.step_a.cents", 1]}}]},
        {"steps": [_VANISHES, {**_NEXT, "params": {"what": {"$first": ["$output.step_a.ok", None]}}}]},
        {"steps": [_VANISHES, {**_NEXT, "each": {"of": [1], "when": _HAPPENED}}]},
        {"steps": [_VANISHES], "finally": [{**_LATER, "params": {"what": {"$first": ["$output.step_a.ok", None]}}}]},
    ],
    ids=["later step", "condition", "later condition", "computation", "default", "list", "finally"],
)
async def test_who_says_that_a_call_happened_provides_what_is_bound(plan: dict[str, Any]) -> None:
    """An operator's 'happened' without an output is refused wherever the plan binds it: a default is for what did not."""
    async with Coordinator.open("memory://", tools=[vanish, look]) as engine:
        assert (await engine.run(plan, saga_id="one")).status == "ESCALATED"
        with pytest.raises(DecisionRefused, match="needs an output"):
            await engine.resolve("one", "a", "happened")
        done = await engine.resolve("one", "a", "happened", output={"ok": True, "cents": 5})
        assert done.completed
