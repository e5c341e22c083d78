"""Stand-ins for tools that a session's agent has not brought yet in this life.

``with sync_session("id") as s: @s.tool def search_web(…)``: the block begins before its functions are there. A call
without an undo needs no tool to be answered from the journal, so a stand-in takes its place until the function comes.
Nothing is called through one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from saga_engine.errors import ToolError
from saga_engine.plan.tool_spec import ToolCatalog
from saga_engine.ports import Store
from saga_engine.runtime.journal import read_records, state_of
from saga_engine.tools.decorator import Tool


async def bring_stand_ins(store: Store, saga_id: str, catalog: ToolCatalog, bring: Callable[[Any], bool]) -> bool:
    """Bring stand-ins for the missing tools of a session; False: one of them undoes or is undone, and must be there."""
    state = state_of(await read_records(store, saga_id))
    missing = {step.tool: step for step in state.plan.steps if step.tool and catalog.spec(step.tool) is None}
    undone = [step for step in state.plan.steps if step.rollback is not None]
    if not missing or any(step.tool in missing or _lacks(step.rollback, catalog) for step in undone):
        return False
    for name, step in missing.items():
        bring(_stand_in(name, read=step.kind == "read"))
    return True


def _lacks(rollback: Any, catalog: ToolCatalog) -> bool:
    return any(catalog.spec(call.tool) is None for call in rollback.calls())


def _stand_in(name: str, *, read: bool) -> Tool[..., Any]:
    def call(**_: Any) -> None:
        raise ToolError(f"{name} is not there yet: its agent brings it", error_code="agent_gone", retryable=True)

    return Tool(call, name=name, declared=False, effect="read" if read else "write", input_schema={"type": "object"})
